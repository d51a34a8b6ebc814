"""Queries and documents of one's own, brought together: one table of what is relevant.

The grades of the queries' file are the only truth. nDCG takes them as they are; MRR,
precision and recall take those of at least ``relevance_threshold``. A grade for a document
that is not there is left out and reported: no model can find it. A query with no relevant
document left is dropped and reported. An ``expected`` list that says otherwise than the
grades is reported, and decides nothing.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from qwen3nb.datasets.custom.documents import Documents, Layout, read_documents
from qwen3nb.datasets.custom.queries import Query, QueryFile, ScoringSettings, read_queries
from qwen3nb.datasets.custom.score_boosts import Factors, document_factors
from qwen3nb.datasets.rows import DataError, listed
from qwen3nb.utils.atomic_files import canonical, sha256_json

__all__ = ["Domain", "load_domain"]

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True)
class Domain:
    """What models are compared on.

    Attributes:
        name: of the task; ends in eight digits of the content, so that two states of the
            data, or two dates, never share a record.
        revision: SHA-256 of documents, queries, grades, threshold and boosts.
        texts: text per document.
        factors: what a document's score is multiplied by, per document; see `boosts`.
        recipe: how the factors were made; ``{}`` without boosts.
        queries: text per query that is scored.
        categories: category per query that is scored.
        grades: grade per query and document, of documents that are there.
        threshold: smallest grade that counts as relevant where grades do not.
        dropped: queries without a relevant document, which no metric counts.
        notes: what in the data needs a look, a line each.
    """

    name: str
    revision: str
    texts: Mapping[str, str]
    factors: Mapping[str, float]
    recipe: Mapping[str, Any]
    queries: Mapping[str, str]
    categories: Mapping[str, str]
    grades: Mapping[str, Mapping[str, int]]
    threshold: int
    dropped: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def relevant(self) -> dict[str, dict[str, int]]:
        """The grades as 0 and 1, by the threshold."""
        return {
            query: {name: int(grade >= self.threshold) for name, grade in grades.items()}
            for query, grades in self.grades.items()
        }


def load_domain(
    queries: Path | str | QueryFile,
    documents: Path | str | Documents,
    *,
    layout: Layout | None = None,
    boost: bool = True,
    on: date | None = None,
    name: str | None = None,
) -> Domain:
    """Read, check and join the queries and the documents.

    Args:
        queries: a TOML file; see `qwen3nb.datasets.custom.queries`.
        documents: a JSONL, CSV, SQLite or DuckDB file; see `qwen3nb.datasets.custom.documents`.
        layout: where in a row the parts of a document are.
        boost: whether stars and recency, if the layout has them, change scores.
        on: the date recency is counted from.
        name: of the task; by default that of the documents' file.

    Raises:
        DataError: a file that is not what it should be, no query with a relevant document,
            or recency without a date.
    """
    asked = queries if isinstance(queries, QueryFile) else read_queries(Path(queries))
    read = documents
    if not isinstance(read, Documents):
        read = read_documents(Path(read), layout)
    factors = Factors(dict.fromkeys(read.texts, 1.0), {})
    if boost:
        factors = document_factors(read, asked.settings, on=on)
    judged = _judged(asked, read)
    kept = [each for each in asked.queries if each.id in judged]
    threshold = asked.settings.relevance_threshold
    texts = {each.id: each.text for each in kept}
    revision = _revision(read.texts, factors, texts, judged, asked.settings)
    stem = _UNFIT.sub("-", name or read.name.split(".")[0]).strip("-._") or "data"
    return Domain(
        name=f"domain-{stem[:60]}-{revision[:8]}",
        revision=revision,
        texts=read.texts,
        factors=factors.values,
        recipe=factors.recipe,
        queries=texts,
        categories={each.id: each.category for each in kept},
        grades=judged,
        threshold=threshold,
        dropped=tuple(each.id for each in asked.queries if each.id not in judged),
        notes=(*factors.notes, *_notes(asked, read.texts, threshold)),
    )


def _judged(asked: QueryFile, read: Documents) -> dict[str, dict[str, int]]:
    """Grades of the documents that are there, of each query with a relevant one among them.

    Raises:
        DataError: there is no such query.
    """
    threshold = asked.settings.relevance_threshold
    grades = {each.id: _known(each.grades, read.texts) for each in asked.queries}
    judged = {
        query: known
        for query, known in grades.items()
        if max(known.values(), default=0) >= threshold
    }
    if not judged:
        raise DataError(
            f"{asked.file}: no query has a document of grade {threshold} or more that is among "
            f"the {len(read.texts)} of {read.name}; is the id column the right one?"
        )
    return judged


def _known(grades: Mapping[str, int], texts: Mapping[str, str]) -> dict[str, int]:
    return {name: grade for name, grade in grades.items() if name in texts}


def _notes(asked: QueryFile, texts: Mapping[str, str], threshold: int) -> Iterator[str]:
    for query in asked.queries:
        place = f"{asked.file.name}:{query.line}: query {query.id!r}"
        unknown = [d for d in dict.fromkeys((*query.grades, *query.expected)) if d not in texts]
        if unknown:
            yield f"{place}: not among the documents, left out: {listed(unknown)}"
        yield from (f"{place}: {each}" for each in _two_truths(query, threshold))
        if max(_known(query.grades, texts).values(), default=0) < threshold:
            yield f"{place}: no document of grade {threshold} or more, dropped"


def _two_truths(query: Query, threshold: int) -> Iterator[str]:
    """Where the list and the grades of a query do not agree."""
    if not query.expected:
        return
    relevant = [name for name, grade in query.grades.items() if grade >= threshold]
    if only := [name for name in query.expected if name not in relevant]:
        yield f"expected, but no grade of {threshold} or more (the grades count): {listed(only)}"
    if only := [name for name in relevant if name not in query.expected]:
        yield f"grade of {threshold} or more, but not expected (it counts): {listed(only)}"


def _revision(
    texts: Mapping[str, str],
    factors: Factors,
    queries: Mapping[str, str],
    grades: Mapping[str, Mapping[str, int]],
    settings: ScoringSettings,
) -> str:
    digest = hashlib.sha256()
    for name in sorted(texts):
        digest.update(canonical([name, texts[name], factors.values[name]]) + b"\n")
    threshold = settings.relevance_threshold
    return sha256_json([digest.hexdigest(), queries, grades, threshold, factors.recipe])
