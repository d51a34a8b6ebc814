"""Retrieval metrics, one value per query, under the names the field writes them with.

The conventions are trec_eval's: documents are ranked by score, compared as 32-bit
floats, ties by document id, descending; gains are linear in the grade, and a grade of
0 or below gains nothing; a judged query that the run does not answer scores 0. A query
without a relevant document has no defined score and is left out; callers report how
many there were.

References:
    Järvelin and Kekäläinen 2002 (nDCG); Voorhees 1999 (MRR); Buckley and Voorhees 2005.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

__all__ = ["METRICS", "Qrels", "Run", "rank_documents", "score_run"]

Qrels = Mapping[str, Mapping[str, int]]
Run = Mapping[str, Mapping[str, float]]

_NAME = re.compile(r"(?P<name>[A-Za-z]+)@(?P<k>[1-9]\d*)")


def _ndcg(grades: Sequence[int], ideal: Sequence[int], k: int) -> float:
    return _dcg(grades[:k]) / _dcg(ideal[:k])


def _dcg(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, start=1) if grade)


def _mrr(grades: Sequence[int], ideal: Sequence[int], k: int) -> float:
    return next((1 / rank for rank, grade in enumerate(grades[:k], start=1) if grade), 0.0)


def _recall(grades: Sequence[int], ideal: Sequence[int], k: int) -> float:
    return sum(map(bool, grades[:k])) / len(ideal)


def _precision(grades: Sequence[int], ideal: Sequence[int], k: int) -> float:
    return sum(map(bool, grades[:k])) / k


def _average_precision(grades: Sequence[int], ideal: Sequence[int], k: int) -> float:
    """Divided by all relevant documents, found or not."""
    found = 0
    total = 0.0
    for rank, grade in enumerate(grades[:k], start=1):
        if grade:
            found += 1
            total += found / rank
    return total / len(ideal)


# Each takes the grades of the ranked documents, the grades of all relevant documents
# from best to worst, and k.
METRICS: dict[str, Callable[[Sequence[int], Sequence[int], int], float]] = {
    "nDCG": _ndcg,
    "MRR": _mrr,
    "Recall": _recall,
    "P": _precision,
    "MAP": _average_precision,
}


def rank_documents(scores: Mapping[str, float]) -> list[str]:
    """Document ids from best to worst.

    Raises:
        ValueError: a score is NaN or infinite; names the document.
    """
    for document, score in scores.items():
        if not math.isfinite(score):
            raise ValueError(f"document {document!r} has the score {score}; expected a number")
    return sorted(scores, key=lambda document: (np.float32(scores[document]), document))[::-1]


def score_run(
    qrels: Qrels, run: Run, metrics: Iterable[str] = ("nDCG@10",)
) -> dict[str, dict[str, float]]:
    """Value per metric and query id.

    >>> score_run({"q": {"d1": 1}}, {"q": {"d1": 0.3, "d2": 0.9}}, ["MRR@10", "Recall@1"])
    {'MRR@10': {'q': 0.5}, 'Recall@1': {'q': 0.0}}

    Args:
        qrels: grade per query and document.
        run: score per query and document; higher is better.
        metrics: names such as ``nDCG@10``; the part before ``@`` is one of `METRICS`.

    Raises:
        ValueError: an unknown metric (the message lists the choices), or a score that
            is not a number.
    """
    wanted = {metric: _parse(metric) for metric in metrics}
    values: dict[str, dict[str, float]] = {metric: {} for metric in wanted}
    for query, judged in qrels.items():
        ideal = sorted((grade for grade in judged.values() if grade > 0), reverse=True)
        if not ideal:
            continue
        try:
            ranked = rank_documents(run.get(query, {}))
        except ValueError as error:
            raise ValueError(f"query {query!r}: {error}") from None
        grades = [max(judged.get(document, 0), 0) for document in ranked]
        for metric, (function, k) in wanted.items():
            values[metric][query] = function(grades, ideal, k)
    return values


def _parse(metric: str) -> tuple[Callable[[Sequence[int], Sequence[int], int], float], int]:
    match = _NAME.fullmatch(metric)
    if match is None or match["name"] not in METRICS:
        raise ValueError(
            f"unknown metric {metric!r}; expected one of {', '.join(METRICS)} and a depth, "
            "as in nDCG@10"
        )
    return METRICS[match["name"]], int(match["k"])
