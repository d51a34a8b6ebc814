"""Read relevance judgements, and count what is odd about them and about the texts.

Nothing odd is passed over silently: it is counted, and `TestCollection.counts` carries the
numbers to the record and the page. The scores of a collection that misses most of its judged
documents mean nothing; it is refused. The rules are a table of the guide,
`book/guide/what-is-refused.md`.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.datasets.rows import DataError, listed, numbered_json_rows, numbered_tsv_rows
from qwen3nb.datasets.values import (
    checked_id,
    finite_number,
    has_control_characters,
    number_in_text,
)

__all__ = [
    "DUPLICATES",
    "UNANSWERABLE",
    "UNKNOWN",
    "Grades",
    "judgement_counts",
    "nonzero",
    "read_grade",
    "read_qrels",
    "text_counts",
]

CONFLICTING = "judgements given twice with different grades, the last one counts"
REPEATED = "judgements given twice with the same grade"
NEGATIVE = "judgements with a negative grade, counted as 0"
MISSING = "judged documents not in the corpus"
UNANSWERABLE = "queries without a relevant document, left out"
ZERO = "queries without a relevant document, counted as 0"
UNJUDGED = "queries without judgements, left out"
UNKNOWN = "judged queries that are not among the queries, left out"
DUPLICATES = "texts with the id of an earlier one, which they replace"
LARGEST = 1000  # grade; 2 to its power, a gain of nDCGexp, is still a number
_MOST = 0.5  # refuse when more than this share of the judged documents is missing
Grades = dict[str, dict[str, int]]
Counts = dict[str, int]


def read_qrels(file: Path, *, columns: int = 3) -> tuple[Grades, Counts]:
    """Read the grade per query and document from BEIR's TSV or JSONL, or from a TSV of TREC.

    Of several grades for one pair the last counts, as in BEIR and MTEB.

    Args:
        file: the qrels.
        columns: 3, or 4 if the second column of a TSV is TREC's iteration.

    Returns:
        The grades, and the counts `REPEATED` and `CONFLICTING`.

    Raises:
        DataError: a malformed line; names file and line.
    """
    rows: Iterator[tuple[int, Any]]
    if ".jsonl" in file.name:
        fields: dict[str, Any] = {"query-id": str, "corpus-id": str, "score": (int, float)}
        rows = numbered_json_rows(file, fields)
    else:
        rows = numbered_tsv_rows(file, columns)
    qrels: Grades = {}
    counts = {REPEATED: 0, CONFLICTING: 0}
    for number, (query, *_, document, grade) in rows:
        if number == 1 and grade == "score":
            continue
        where = f"{file}:{number}"
        grades = qrels.setdefault(checked_id(query, where=where), {})
        value = read_grade(grade, where=where)
        if document in grades:
            counts[REPEATED if grades[document] == value else CONFLICTING] += 1
        grades[checked_id(document, where=where)] = value
    return qrels, counts


def read_grade(grade: Any, *, where: str) -> int:
    """Return a grade as an integer; ``2.0`` is 2.

    Raises:
        DataError: it is not a whole number from -1,000 to 1,000; the message starts with
            ``where``.

    >>> read_grade("2.0", where="test.tsv:7")
    2
    """
    value = number_in_text(grade) if isinstance(grade, str) else _as_float(grade)
    if value is None or not value.is_integer():
        raise DataError(f"{where}: expected a whole number as grade; got {grade!r:.60}")
    if abs(value) > LARGEST:
        raise DataError(f"{where}: expected a grade of at most {LARGEST:,}; got {grade!r:.60}")
    return int(value)


def _as_float(grade: Any) -> float | None:
    """Return a number as a float, also one of NumPy; None for anything else."""
    return finite_number(grade.item() if isinstance(grade, np.generic) else grade)


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
        some = ", ".join(f"{name!r:.60}" for name in islice(documents, 3)) or "none"
        raise DataError(
            f"{where}: {len(lost)} of {len(judged)} judged documents are not in the corpus "
            f"({listed(lost[:10])}, ...); its own ids are like {some}. Are the qrels those of "
            "this corpus?"
        )
    known = set(queries)
    given = [qrels.get(query, {}).values() for query in known]
    unanswerable = sum(bool(grades) and max(grades) <= 0 for grades in given)
    return {
        MISSING: len(lost),
        ZERO if zeros else UNANSWERABLE: unanswerable,
        UNJUDGED: sum(not grades for grades in given),
        UNKNOWN: len(qrels.keys() - known),
        NEGATIVE: sum(grade < 0 for grades in qrels.values() for grade in grades.values()),
    }


def text_counts(kind: str, texts: Iterable[str]) -> dict[str, int]:
    """Count texts that are empty, have control characters or occur before; numbers may be 0.

    >>> text_counts("documents", ["a", "", "a"])  # doctest: +NORMALIZE_WHITESPACE
    {'empty documents': 1, 'documents with control characters': 0,
     'documents equal to another': 1}
    """
    empty, control, hashes = 0, 0, array("q")  # of hashes, millions fit into memory
    for text in texts:
        control += has_control_characters(text)
        if text.strip():
            hashes.append(hash(text))
        else:
            empty += 1
    equal = len(hashes) - len(np.unique(hashes))
    return {
        f"empty {kind}": empty,
        f"{kind} with control characters": control,
        f"{kind} equal to another": equal,
    }


def nonzero(counts: Mapping[str, int]) -> dict[str, int]:
    """Drop what does not occur."""
    return {name: count for name, count in counts.items() if count}
