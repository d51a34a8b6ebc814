"""The documents and queries on which a migration is rehearsed, with or without grades."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb.datasets.custom.documents import find_layout, read_documents
from qwen3nb.datasets.custom.load import Domain, load_domain
from qwen3nb.datasets.custom.queries import QueryFile, read_queries
from qwen3nb.datasets.custom.query_texts import read_entries
from qwen3nb.datasets.rows import DataError
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.search.exact import Hits, Ids
from qwen3nb.models.search.words import Words, with_parts_if_needed, words_of_texts

METRIC = "nDCG@10"
_FEWEST_DOCUMENTS = 2
_NO_GRADES = "'relevance_grades' or 'expected' is required"
_BEGINNING = 4096  # characters of a file, in which the names of its fields are
_GRADE_WORDS = ("grade", "expected", "relevan", "qrel", "rating", "judg", "score", "docid")


@dataclass(frozen=True)
class MigrationData:
    """Own documents and queries; with grades, also the task that they make."""

    name: str
    documents: Mapping[str, str]  # text by id
    queries: Mapping[str, str]  # text by id; with grades, those that are scored
    domain: Domain | None = None  # None without grades
    clusters: Mapping[str, str] = field(default_factory=dict)  # cluster by query, or empty
    generated: int = 0  # queries that were generated, and not asked by people

    @property
    def is_generated(self) -> bool:
        """Whether some queries were generated."""
        return self.generated > 0

    @cached_property
    def words(self) -> Words:
        """How `BM25` reads the texts."""
        if self.domain is not None:
            return self.domain.words
        queries, documents = self.queries.values(), self.documents.values()
        return with_parts_if_needed(words_of_texts(queries, documents), queries, documents)

    @cached_property
    def names(self) -> list[str]:
        """The ids of the documents, by position."""
        return list(self.documents)

    @cached_property
    def positions(self) -> dict[str, int]:
        """The position of each document, by id."""
        return {name: position for position, name in enumerate(self.documents)}

    @cached_property
    def removed(self) -> dict[int, Ids]:
        """The documents that are the query itself, by the row of the query."""
        if self.domain is None:
            return {}
        removed = {}
        for row, query in enumerate(self.queries):
            documents = self.domain.itself.get(query, ())
            if documents:
                removed[row] = np.array([self.positions[name] for name in documents])
        return removed

    @property
    def most_removed(self) -> int:
        """The largest number of documents that are one query itself."""
        return max((len(documents) for documents in self.removed.values()), default=0)

    def by_query(self, values: NDArray[Any]) -> dict[str, float]:
        """Return values (Q,) by the ids of the queries."""
        return dict(zip(self.queries, values.tolist(), strict=True))

    def ndcg(self, hits: Hits) -> dict[str, float]:
        """Return nDCG@10 of each query.

        Raises:
            ValueError: there are no grades.
        """
        if self.domain is None:
            raise ValueError("expected grades; the queries have none")
        run = hits.run(self.queries, self.names)
        scores = score_run(self.domain.grades, run, [METRIC], threshold=self.domain.threshold)
        return dict(scores[METRIC])

    def ndcg_or_nothing(self, hits: Hits) -> dict[str, float]:
        """Return nDCG@10 of each query; empty without grades."""
        if self.domain is None:
            return {}
        return self.ndcg(hits)


def read_migration_data(
    queries: Path | str,
    documents: Path | str,
    *,
    id_column: str | None = None,
    text: str | None = None,
    relevance_threshold: int | None = None,
    complete: bool = False,
) -> MigrationData:
    """Read documents, and queries with or without grades.

    Args:
        queries: a file with a query a line (.txt), or any query file that `qwen3nb domain` reads.
        documents: a file that `qwen3nb domain` reads.
        id_column: of the documents; by default ``id``.
        text: template of a document's text; by default ``{text}``.
        relevance_threshold: lowest relevant grade; by default the file's.
        complete: whether a document without a grade is not relevant.

    Raises:
        DataError: a file that cannot be read, or fewer than two documents.
    """
    query_file, document_file = Path(queries).expanduser(), Path(documents).expanduser()
    collection = read_documents(document_file, find_layout(id_column=id_column, text=text))
    if len(collection.texts) < _FEWEST_DOCUMENTS:
        raise DataError(f"{document_file}: expected two documents or more; got one")
    graded_queries = _graded_queries(query_file)
    if graded_queries is None:
        entries = read_entries(query_file)
        texts = list(dict.fromkeys(entries.texts))
        numbered = {f"q{number:04d}": query for number, query in enumerate(texts, start=1)}
        kinds = entries.generated
        generated = sum(query in kinds for query in texts)
        return MigrationData(query_file.stem, collection.texts, numbered, generated=generated)
    domain = load_domain(
        graded_queries,
        collection,
        boost=False,
        relevance_threshold=relevance_threshold,
        complete=complete,
    )
    return MigrationData(
        domain.name,
        domain.texts,
        domain.queries,
        domain=domain,
        clusters=domain.clusters,
        generated=len(domain.generated),
    )


def _graded_queries(file: Path) -> QueryFile | None:
    """Return the queries with their grades; None if the file has no grade at all.

    Raises:
        DataError: only some queries have grades, or the file is invalid.
    """
    try:
        return read_queries(file)
    except DataError as error:
        lines = str(error).splitlines()
        if all(_NO_GRADES in line for line in lines) or not _mentions_grades(file):
            return None
        raise


def _mentions_grades(file: Path) -> bool:
    """Return whether a file of queries has a field or a column of grades, or of documents."""
    if not file.is_file():  # a folder, or nothing
        return True
    with file.open(encoding="utf-8", errors="replace") as stream:
        beginning = stream.read(_BEGINNING).lower()
    return any(word in beginning for word in _GRADE_WORDS)
