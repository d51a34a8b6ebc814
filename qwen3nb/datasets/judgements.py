"""Read relevance judgements, and count what is odd about them and about the texts.

Nothing odd is passed over silently: it is counted, and `TestCollection.counts` carries the
numbers to the record and the page. The scores of a collection that misses most of its judged
documents mean nothing; it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from qwen3nb.datasets.rows import DataError, listed, numbered_json_rows, numbered_tsv_rows

__all__ = [
    "CONFLICTING",
    "Grades",
    "judgement_counts",
    "keep_judgement",
    "nonzero",
    "read_grade",
    "read_qrels",
    "text_counts",
]

CONFLICTING = "judgements given twice with different grades, the last one counts"
MISSING = "judged documents not in the corpus"
UNANSWERABLE = "queries without a relevant document, left out"
UNJUDGED = "queries without judgements, left out"
_MOST = 0.5  # refuse when more than this share of the judged documents is missing
Grades = dict[str, dict[str, int]]


def read_qrels(file: Path) -> tuple[Grades, int]:
    """Read the grade per query and document from BEIR's TSV or JSONL.

    Of several grades for one pair the last counts, as in BEIR and MTEB.

    Returns:
        The grades, and the number of pairs with different ones.

    Raises:
        DataError: a malformed line; names file and line.
    """
    rows: Iterator[tuple[int, Any]]
    if ".jsonl" in file.name:
        fields: dict[str, Any] = {"query-id": str, "corpus-id": str, "score": (int, float)}
        rows = numbered_json_rows(file, fields)
    else:
        rows = numbered_tsv_rows(file, 3)
    qrels: Grades = {}
    conflicts = 0
    for number, (query, document, grade) in rows:
        if number == 1 and grade == "score":
            continue
        value = read_grade(grade, where=f"{file}:{number}")
        conflicts += keep_judgement(qrels, query, document, value)
    return qrels, conflicts


def read_grade(grade: Any, *, where: str) -> int:
    """Return a grade as an integer; ``2.0`` is 2.

    Raises:
        DataError: it is not a whole number; the message starts with ``where``.

    >>> read_grade("2.0", where="test.tsv:7")
    2
    """
    try:
        value = float(grade)
        if value.is_integer():
            return int(value)
    except (TypeError, ValueError):
        pass  # the error below covers text as well as fractions
    raise DataError(f"{where}: expected a whole number as grade; got {grade!r:.60}")


def keep_judgement(qrels: Grades, query: str, document: str, grade: int) -> bool:
    """Add a judgement to ``qrels``; return whether it replaces one with another grade."""
    grades = qrels.setdefault(query, {})
    earlier = grades.get(document, grade)
    grades[document] = grade
    return earlier != grade


def judgement_counts(
    qrels: Mapping[str, Mapping[str, int]],
    *,
    queries: Iterable[str],
    documents: Mapping[str, str],
    where: Any,
) -> dict[str, int]:
    """Count judged documents that are missing, and queries that cannot be scored.

    Raises:
        DataError: most of the judged documents are missing; names some of them.
    """
    judged = {document for grades in qrels.values() for document in grades}
    lost = sorted(judged - documents.keys())
    if len(lost) > _MOST * len(judged):
        known = ", ".join(repr(name) for name in list(documents)[:3]) or "none"
        raise DataError(
            f"{where}: {len(lost)} of {len(judged)} judged documents are not in the corpus "
            f"({listed(lost[:10])}, ...); its own ids are like {known}. Are the qrels those of "
            "this corpus?"
        )
    unanswerable = sum(not any(g > 0 for g in grades.values()) for grades in qrels.values())
    unjudged = sum(query not in qrels for query in queries)
    return {MISSING: len(lost), UNANSWERABLE: unanswerable, UNJUDGED: unjudged}


def text_counts(documents: Mapping[str, str], queries: Mapping[str, str]) -> dict[str, int]:
    """Count empty texts, and texts that occur before under another id; numbers may be 0."""
    counts = {}
    for kind, texts in (("documents", documents), ("queries", queries)):
        filled = [text for text in texts.values() if text.strip()]
        counts[f"empty {kind}"] = len(texts) - len(filled)
        counts[f"{kind} equal to another"] = len(filled) - len(set(filled))
    return counts


def nonzero(counts: Mapping[str, int]) -> dict[str, int]:
    """Drop what does not occur."""
    return {name: count for name, count in counts.items() if count}
