"""Read relevance judgements, and count what is odd about them and about the texts.

Nothing odd is passed over silently: it is counted, and `TestCollection.counts` carries the
numbers to the record and the page. The scores of a collection that misses most of its judged
documents mean nothing; it is refused.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

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
ZERO = "queries without a relevant document, counted as 0"
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
    documents: Collection[str],
    where: Any,
    zeros: bool,
) -> dict[str, int]:
    """Count judged documents that are missing, and queries that cannot be answered.

    Args:
        qrels: grade per query and document.
        queries: ids of the queries.
        documents: ids of the documents.
        where: what the error names.
        zeros: whether queries without a relevant document count as 0, or are left out.

    Raises:
        DataError: most of the judged documents are missing; names some of them.
    """
    judged = {document for grades in qrels.values() for document in grades}
    lost = sorted(judged.difference(documents))
    if len(lost) > _MOST * len(judged):
        some = ", ".join(repr(name) for name in islice(documents, 3)) or "none"
        raise DataError(
            f"{where}: {len(lost)} of {len(judged)} judged documents are not in the corpus "
            f"({listed(lost[:10])}, ...); its own ids are like {some}. Are the qrels those of "
            "this corpus?"
        )
    given = [qrels.get(query, {}).values() for query in queries]
    unanswerable = sum(bool(grades) and max(grades) <= 0 for grades in given)
    return {
        MISSING: len(lost),
        ZERO if zeros else UNANSWERABLE: unanswerable,
        UNJUDGED: sum(not grades for grades in given),
    }


def text_counts(kind: str, texts: Iterable[str]) -> dict[str, int]:
    """Count empty texts, and texts that occur before under another id; numbers may be 0.

    >>> text_counts("documents", ["a", "", "a"])
    {'empty documents': 1, 'documents equal to another': 1}
    """
    empty, hashes = 0, array("q")  # of hashes, millions fit into memory
    for text in texts:
        if text.strip():
            hashes.append(hash(text))
        else:
            empty += 1
    equal = len(hashes) - len(np.unique(hashes))
    return {f"empty {kind}": empty, f"{kind} equal to another": equal}


def nonzero(counts: Mapping[str, int]) -> dict[str, int]:
    """Drop what does not occur."""
    return {name: count for name, count in counts.items() if count}
