"""Judgements: the grades of documents for queries, and what is irregular about them."""

import unicodedata
from array import array
from collections.abc import Collection, Iterable, Mapping
from itertools import islice

import numpy as np

from qwen3nb.datasets.rows import (
    CONTROL,
    LARGEST_GRADE,
    DataError,
    listed,
    shown_value,
    stated_number,
)
from qwen3nb.metrics.retrieval import PART_FOUND_NOTHING

CONFLICTING = "judgements given twice with different grades, the last one counts"
FRACTIONAL = "judgements with a fractional grade, which counts as it is"
NEGATIVE = "judgements with a negative grade, counted as 0"
MISSING = "judged documents not in the corpus"
UNANSWERABLE = "queries without a relevant document, left out"
ZERO = "queries without a relevant document, counted as 0"
UNWINNABLE = "queries whose relevant documents are not in the corpus, left out"
UNJUDGED = "queries without judgements, left out"
UNKNOWN = "judged queries that are not among the queries, left out"
DUPLICATES = "texts with the id of an earlier one, which they replace"
TWINS = "documents whose id is another's in a second Unicode form"
WITHOUT_CANDIDATES = "queries without candidates, counted as 0"
_MOST_MISSING = 0.5  # share of the judged documents above which data are refused
_EXAMPLES = 10  # of missing documents in an error

Qrels = Mapping[str, Mapping[str, float]]


def read_grade(value: object, *, place: str, example: str = "") -> float:
    """Return a grade: an integer if it is whole, else a float.

    >>> read_grade("2.0", place="test.tsv:7"), read_grade("0.5", place="test.tsv:8")
    (2, 0.5)

    Args:
        value: a number, or its text.
        place: where it is, for errors.
        example: a line that would be right, for errors.

    Raises:
        DataError: it is no number from -1,000 to 1,000, such as a word, NaN or a truth value.
    """
    number = stated_number(value)
    if isinstance(value, np.generic):  # a number of NumPy
        number = stated_number(value.item())
    hint = ""
    if example:
        hint = f"; right: {example}"
    if number is None:
        raise DataError(f"{place}: expected a number as grade; got {shown_value(value)}{hint}")
    if abs(number) > LARGEST_GRADE:
        raise DataError(
            f"{place}: expected a grade of at most {LARGEST_GRADE:,}; got "
            f"{shown_value(value)}{hint}"
        )
    if number.is_integer():
        return int(number)
    return number


def highest_grade(grades: Mapping[str, float]) -> float:
    """Return the highest grade; 0 if there is none above."""
    return max([0, *grades.values()])


def in_corpus(grades: Mapping[str, float], documents: Collection[str]) -> dict[str, float]:
    """Return the grades of documents that are there."""
    return {document: grade for document, grade in grades.items() if document in documents}


def binary_grades(qrels: Qrels, threshold: float) -> dict[str, dict[str, float]]:
    """Return grades as 1 from the threshold on, and 0 below it."""
    binary: dict[str, dict[str, float]] = {}
    for query, grades in qrels.items():
        binary[query] = {name: int(grade >= threshold) for name, grade in grades.items()}
    return binary


def shared_documents(qrels: Mapping[str, Mapping[str, float]]) -> dict[str, str]:
    """Return the relevant document of each query, as clusters of queries.

    Empty unless each query has exactly one, and some share it.

    >>> shared_documents({"q1": {"a": 1, "b": 0}, "q2": {"a": 1}, "q3": {"c": 2}})
    {'q1': 'a', 'q2': 'a', 'q3': 'c'}
    """
    clusters: dict[str, str] = {}
    for query, grades in qrels.items():
        relevant = [document for document, grade in grades.items() if grade > 0]
        # With several or no answers, a query belongs to no single cluster.
        if len(relevant) != 1:
            return {}
        clusters[query] = relevant[0]
    some_share_one = len(set(clusters.values())) < len(clusters)
    if not some_share_one:
        return {}
    return clusters


def judgement_counts(
    qrels: Qrels,
    *,
    queries: Iterable[str],
    documents: Collection[str],
    place: object,
    zeros: bool,
) -> dict[str, int]:
    """Count missing judged documents and queries without a relevant document.

    With ``zeros``, such queries count as 0, else they are left out; errors name ``place``.

    Raises:
        DataError: most of the judged documents are missing, or, unless ``zeros``, one is there in
            another Unicode form only; names some of them.
    """
    judged_ids: set[str] = set()
    negative_count = 0
    fractional_count = 0
    for grades in qrels.values():
        judged_ids.update(grades)
        negative_count += sum(grade < 0 for grade in grades.values())
        fractional_count += sum(grade % 1 != 0 for grade in grades.values())
    missing_ids = sorted(judged_ids.difference(documents))
    composed_ids = _composed(documents)
    if not zeros:
        _check_unicode_forms(missing_ids, set(composed_ids), place=place)
    if len(missing_ids) > _MOST_MISSING * len(judged_ids):
        hint = spelling_hint(missing_ids, documents)
        if hint:
            hint = f" {hint}."
        raise DataError(
            f"{place}: {len(missing_ids)} of {len(judged_ids)} judged documents are not in the "
            f"corpus ({listed(missing_ids[:_EXAMPLES])}, ...); its ids look like "
            f"{some_ids(documents)}.{hint} Do the qrels belong to this corpus?"
        )
    query_ids = set(queries)
    unjudged_count = 0
    unanswerable_count = 0
    for query in query_ids:
        grades = qrels.get(query, {})
        if not grades:
            unjudged_count += 1
        elif highest_grade(grades) == 0:
            unanswerable_count += 1
    name_of_unanswerable = UNANSWERABLE
    if zeros:
        name_of_unanswerable = ZERO
    return {
        MISSING: len(missing_ids),
        name_of_unanswerable: unanswerable_count,
        UNJUDGED: unjudged_count,
        UNKNOWN: len(qrels.keys() - query_ids),
        NEGATIVE: negative_count,
        FRACTIONAL: fractional_count,
        TWINS: len(composed_ids) - len(set(composed_ids)),
    }


def _check_unicode_forms(missing_ids: list[str], forms: set[str], *, place: object) -> None:
    """Refuse missing documents that are in the corpus in another Unicode form."""
    other_forms = [name for name in missing_ids if not forms.isdisjoint(_composed([name]))]
    if other_forms:
        raise DataError(
            f"{place}: judged document {other_forms[0]!a:.60} is in the corpus only in another "
            f"Unicode form ({len(other_forms)} in total); write ids alike, as NFC or as NFD"
        )


def spelling_hint(missing_ids: Iterable[str], documents: Collection[str]) -> str:
    """Return which missing id is there in another spelling; empty if none is.

    >>> spelling_hint(["7.0"], ["007", "8"])
    "'7.0' is missing, and '007' is there: ids are compared character by character"
    """
    missing = list(missing_ids)
    if not missing:
        return ""
    by_spelling = {_plain_spelling(name): name for name in documents}
    for name in missing:
        other = by_spelling.get(_plain_spelling(name))
        if other is not None:
            return (
                f"{name!r:.60} is missing, and {other!r:.60} is there: ids are compared character "
                "by character"
            )
    return ""


def _plain_spelling(name: str) -> str:
    """Return an id without differences of case, blanks, leading zeros, ``.0`` and suffix."""
    plain = unicodedata.normalize("NFKC", name).casefold().strip().removeprefix("./")
    plain = plain.removesuffix(".0").removesuffix(".md").removesuffix(".txt")
    return plain.lstrip("0") or plain


def _composed(names: Iterable[str]) -> list[str]:
    """Return the names that are not ASCII, in Unicode's composed form (NFC)."""
    return [unicodedata.normalize("NFC", name) for name in names if not name.isascii()]


def some_ids(names: Iterable[str]) -> str:
    """Return the first ids, for a message."""
    return ", ".join(f"{name!r:.60}" for name in islice(names, 3)) or "none"


def text_counts(kind: str, texts: Iterable[str]) -> dict[str, int]:
    """Count texts that are empty, have control characters or are duplicates; counts may be 0.

    >>> text_counts("documents", ["a", "", "a"])  # doctest: +NORMALIZE_WHITESPACE
    {'empty documents': 1, 'documents with control characters': 0,
     'documents equal to another': 1}
    """
    empty = 0
    control = 0
    hashes = array("q")  # of 8 bytes each: millions fit into memory
    for text in texts:
        if CONTROL.search(text) is not None:
            control += 1
        if text.strip():
            hashes.append(hash(text))
        else:
            empty += 1
    return {
        f"empty {kind}": empty,
        f"{kind} with control characters": control,
        f"{kind} equal to another": len(hashes) - len(np.unique(hashes)),
    }


def nothing_found_by(part: str) -> str:
    """Return the name of the count of queries for which a part of a fusion found nothing."""
    return f"queries for which {part}{PART_FOUND_NOTHING}"


def nonzero(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts that are not 0."""
    return {name: count for name, count in counts.items() if count}
