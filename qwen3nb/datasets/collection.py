"""Test collections: documents, queries and qrels, in memory or from a BEIR folder.

The revision of a collection is the digest of its content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.datasets.judgements import (
    judgement_counts,
    nonzero,
    read_grade,
    read_qrels,
    text_counts,
)
from qwen3nb.datasets.rows import (
    DataError,
    numbered_json_rows,
    required,
    unicode_text,
    variant,
)
from qwen3nb.datasets.values import checked_id
from qwen3nb.models.search.mteb_rows import ENGLISH
from qwen3nb.utils.strict_json import first_duplicate

__all__ = ["SKIP_SELF", "TestCollection", "values_by_id"]

TWICE = "candidates given twice for a query"
WITHOUT_CANDIDATES = "queries without candidates, counted as 0"
STRAY_CANDIDATES = "queries with candidates that are not among the queries, left out"

# Data sets whose queries are documents too: MTEB removes a document with the query's own id
# from their rankings. By the name of their folders in BEIR and on the hub, in lower case.
SKIP_SELF = (
    "arguana",
    "fever",
    "fever_test_top_250_only_w_correct-v2",
    "fiqa",
    "msmarco",
    "quora",
)


@dataclass(frozen=True, repr=False)
class TestCollection:
    """Documents, queries and qrels.

    Attributes:
        name: name of the collection, safe in file names.
        documents: text per id, starting with the title if there is one.
        queries: text per id, for the queries that are scored: those with a relevant document,
            of an MTEB task all that are judged.
        qrels: grade per query and document.
        candidates: documents to rerank per query, if the data provide them.
        ordered: whether the candidates are sorted, best first.
        skip_self: whether to remove a document with the query's own id from its ranking.
        group: the group of collections this one is averaged with, or empty.
        language: three-letter code of the texts' language; `BM25` stems English only.
        counts: what is odd about the data, with its number: judged documents that are missing,
            queries without a relevant document, empty texts; only what there is.
    """

    name: str
    documents: Mapping[str, str]
    queries: Mapping[str, str]
    qrels: Mapping[str, Mapping[str, int]]
    candidates: Mapping[str, list[str]] | None = None
    ordered: bool = False
    skip_self: bool = False
    group: str = ""
    language: str = ENGLISH
    counts: Mapping[str, int] = field(default_factory=dict)

    __test__ = False  # keeps pytest from collecting the class

    @classmethod
    def from_texts(
        cls,
        queries: Mapping[str, str] | Sequence[str],
        documents: Mapping[str, str] | Sequence[str],
        relevant: Mapping[str, Mapping[str, int] | Iterable[str]] | Sequence[Iterable[int]],
        *,
        name: str = "custom",
    ) -> TestCollection:
        """Create a collection from queries, documents and qrels in memory.

        Args:
            queries: text per id, or a list of texts.
            documents: text per id, or a list of texts.
            relevant: for each query, a grade per document or a list of relevant documents; of
                lists, their positions, which are their ids.
            name: name of the collection, safe in file names.

        Raises:
            DataError: a judged query or document has no text; an id is blank, given twice or
                has control characters or lone surrogates; a text is no text or has a lone
                surrogate; a grade is no whole number; or there is no relevant document.

        >>> TestCollection.from_texts({"q": "sort a list"}, {"d": "list.sort"}, {"q": ["d"]})
        TestCollection('custom', 1 documents, 1 queries)
        >>> TestCollection.from_texts(["sort a list"], ["str.join", "list.sort"], [[1]]).qrels
        {'0': {'1': 1}}

        The prefixes of a model belong to the model: `load_encoder` takes them as ``prompts``.
        """
        queries, documents = _texts(name, queries), _texts(name, documents)
        qrels = {
            query: _grades(grades, where=f"{name}: query {query!r:.60}")
            for query, grades in _named(name, relevant).items()
        }
        judged = {document for grades in qrels.values() for document in grades}
        if lost := sorted(judged - documents.keys()):
            raise DataError(
                f"document {lost[0]!r:.60} is judged but has no text ({len(lost)} in total)"
            )
        return cls(name, documents, queries, qrels).checked(name)

    @classmethod
    def from_beir(
        cls, folder: Path | str, *, split: str = "test", skip_self: bool | None = None
    ) -> TestCollection:
        """Read a BEIR folder.

        A document with the query's own id is removed from its ranking only where MTEB's task
        says so: in ArguAna, FEVER, FiQA, MS MARCO and Quora (`SKIP_SELF`). BEIR's own code
        removes it everywhere, even if it is judged.

        Args:
            folder: with corpus.jsonl, queries.jsonl and qrels/<split>.tsv (or .jsonl; or .gz).
            split: split whose qrels to read.
            skip_self: whether to remove a document with the query's own id; by default decided
                by the name of the folder.

        Raises:
            DataError: a file is missing, or a row is malformed.
        """
        folder = Path(folder).expanduser()
        corpus, queries = (required(folder, f"{part}.jsonl") for part in ("corpus", "queries"))
        rows = numbered_json_rows(corpus, {"_id": str, "title": (str, type(None)), "text": str})
        documents = values_by_id(
            corpus, ((n, (i, f"{title or ''} {text}".strip())) for n, (i, title, text) in rows)
        )
        texts = values_by_id(queries, numbered_json_rows(queries, {"_id": str, "text": str}))
        qrels, counts = read_qrels(required(folder, f"qrels/{split}.tsv", f"qrels/{split}.jsonl"))
        top_ranked = variant(folder, f"top_ranked/{split}.jsonl")
        candidates = None
        if top_ranked is not None:
            fields: dict[str, Any] = {"query-id": str, "corpus-ids": list}
            candidates = values_by_id(top_ranked, numbered_json_rows(top_ranked, fields))
        if skip_self is None:
            skip_self = folder.name.lower() in SKIP_SELF
        collection = cls(folder.name, documents, texts, qrels, candidates, skip_self=skip_self)
        return collection.checked(folder, counted=counts)

    def checked(
        self, where: Any, *, counted: Mapping[str, int] | None = None, zeros: bool = False
    ) -> TestCollection:
        """Keep the queries that are scored; each must have a text. Count what is odd.

        Judged documents may be missing from the corpus, as in some BEIR data sets, and count as
        not retrieved; most of them must be there. Candidates must not be missing.

        Args:
            where: what an error names.
            counted: what is odd about the data and was counted while they were read.
            zeros: do as MTEB: keep the queries whose judgements are all zero, which score 0, and
                candidates that are given twice. Otherwise these queries are left out, and such
                candidates are refused.

        Raises:
            DataError: no query has a relevant document, a judged query or a candidate has no
                text, a candidate is given twice, all documents are empty, or most judged
                documents are missing.
        """
        scored = {
            query: dict(grades)
            for query, grades in self.qrels.items()
            if any(grade > 0 for grade in grades.values())
        }
        if not scored:
            raise DataError(f"{where}: no query has a relevant document")
        if zeros:
            scored = {query: dict(grades) for query, grades in self.qrels.items() if grades}
        if lost := sorted(scored.keys() - self.queries.keys()):
            raise DataError(
                f"{where}: query {lost[0]!r:.60} is judged but has no text ({len(lost)} in total)"
            )
        if not any(text.strip() for text in self.documents.values()):
            raise DataError(f"{where}: expected documents with a text; all are empty")
        counts = judgement_counts(
            self.qrels, queries=self.queries, documents=self.documents, where=where, zeros=zeros
        )
        queries = {query: self.queries[query] for query in sorted(scored)}
        for name, count in (counted or {}).items():
            counts[name] = counts.get(name, 0) + count
        counts |= _text_counts(self.documents, queries) | _candidate_counts(self, scored)
        return replace(
            self,
            queries=queries,
            qrels=scored,
            candidates=_candidates(self, scored, where, twice=zeros),
            counts=nonzero(counts),
        )

    def subset(self, *, documents: int, seed: int = 0) -> TestCollection:
        """Return a subset of the documents: all judged ones and a random sample of the rest.

        A subset makes search easier for every model: scores are comparable only on the same
        subset. The name of the subset includes its size.

        Raises:
            ValueError: ``documents`` is less than the number of judged documents.
        """
        judged = {d for grades in self.qrels.values() for d in grades} & set(self.documents)
        if documents < len(judged):
            raise ValueError(
                f"{self.name}: {len(judged)} documents are judged and must be kept; "
                f"got a limit of {documents}"
            )
        if documents >= len(self.documents):
            return self
        others = sorted(set(self.documents) - judged)
        drawn = np.random.default_rng(seed).choice(
            len(others), size=documents - len(judged), replace=False
        )
        keep = judged | {others[index] for index in drawn}
        texts = {name: text for name, text in self.documents.items() if name in keep}
        counts = nonzero({**self.counts, **_text_counts(texts, self.queries)})
        return replace(self, name=f"{self.name}-{len(texts)}", documents=texts, counts=counts)

    def __repr__(self) -> str:
        odd = "".join(f"; {name}: {count:,}" for name, count in self.counts.items())
        return (
            f"TestCollection({self.name!r}, {len(self.documents)} documents, "
            f"{len(self.queries)} queries{odd})"
        )

    @cached_property
    def revision(self) -> str:
        """SHA-256 of documents, queries, qrels and candidates, and of how they are used."""
        digest = hashlib.sha256()
        for part in (self.documents, self.queries):
            for name in sorted(part):
                text = part[name]
                if "\1" in text:  # which ends a text below
                    digest.update(f"{len(text)}\2".encode())
                digest.update(f"{name}\0{text}\1".encode("utf-8", "surrogatepass"))
            digest.update(b"\2")
        for query in sorted(self.qrels):
            digest.update(f"{query}\0{sorted(self.qrels[query].items())}\1".encode())
        for query in sorted(self.candidates or {}):
            digest.update(f"{query}\0{(self.candidates or {})[query]}\1".encode())
        digest.update(f"{self.ordered} {self.skip_self}".encode())
        if self.language != ENGLISH:
            digest.update(self.language.encode())
        return digest.hexdigest()


def _named(where: str, values: Mapping[Any, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return values by id; the position is the id in a list."""
    if not isinstance(values, Mapping):
        return {str(index): value for index, value in enumerate(values)}
    named = {checked_id(str(name), where=where): value for name, value in values.items()}
    if len(named) < len(values):
        raise DataError(f"{where}: duplicate id {first_duplicate(map(str, values))!r:.60}")
    return named


def _texts(where: str, values: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    texts = _named(where, values)
    for name, text in texts.items():
        if not isinstance(text, str) or not unicode_text(text):
            raise DataError(
                f"{where}: {name!r:.60} is {text!r:.60}; expected a text of valid Unicode"
            )
    return texts


def _grades(relevant: Mapping[str, int] | Iterable[str], *, where: str) -> dict[str, int]:
    if isinstance(relevant, Mapping):
        return {str(name): read_grade(grade, where=where) for name, grade in relevant.items()}
    return dict.fromkeys(map(str, relevant), 1)


def values_by_id(file: Path, rows: Iterable[tuple[int, Sequence[Any]]]) -> dict[str, Any]:
    """Return the values of numbered rows of id and value.

    Raises:
        DataError: an id is not fit for one, or given twice; names file and line.
    """
    values: dict[str, Any] = {}
    for number, (name, value) in rows:
        if name in values:
            raise DataError(f"{file}:{number}: duplicate id {name!r:.60}")
        if not name.isprintable() or not name.strip():
            checked_id(name, where=f"{file}:{number}")
        values[name] = value
    return values


def _text_counts(documents: Mapping[str, str], queries: Mapping[str, str]) -> dict[str, int]:
    return {
        **text_counts("documents", documents.values()),
        **text_counts("queries", queries.values()),
    }


def _candidates(
    collection: TestCollection, judged: Iterable[str], where: Any, *, twice: bool
) -> dict[str, list[str]] | None:
    if collection.candidates is None:
        return None
    candidates = {q: [str(d) for d in collection.candidates.get(q, [])] for q in judged}
    for query, names in candidates.items():
        if odd := next((d for d in names if d not in collection.documents), None):
            raise DataError(f"{where}: candidate {odd!r:.60} of query {query!r:.60} is unknown")
        if not twice and (name := first_duplicate(names)) is not None:
            raise DataError(
                f"{where}: candidate {name!r:.60} of query {query!r:.60} is given twice"
            )
    return candidates


def _candidate_counts(collection: TestCollection, judged: Iterable[str]) -> dict[str, int]:
    if collection.candidates is None:
        return {}
    given = collection.candidates
    return {
        TWICE: sum(len(names) - len(set(names)) for names in given.values()),
        WITHOUT_CANDIDATES: sum(not given.get(query) for query in judged),
        STRAY_CANDIDATES: len(given.keys() - collection.queries.keys()),
    }
