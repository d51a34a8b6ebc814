"""Retrieval metrics per query, under their usual names.

The conventions are those of trec_eval: documents are ranked by score, compared as 32-bit
floats, ties by document id, descending; gains are linear in the grade (``nDCGexp``:
2^grade - 1), and grades of 0 or below have no gain; a judged query that is missing from the
run scores 0. A query without a relevant document is omitted, or scores 0 on request, as in MTEB.

References:
    Järvelin and Kekäläinen 2002 (nDCG); Voorhees 1999 (MRR); Buckley and Voorhees 2005.
"""

import math
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Self

import numpy as np

from qwen3nb.metrics.run_arrays import RunArrays

Qrels = Mapping[str, Mapping[str, int]]
Run = Mapping[str, Mapping[str, float]]

UNJUDGED = -1
JUDGED = "Judged@10"  # recorded with every score on own data, and no score itself
# Names of counts in records; the second follows the name of a part of a fusion.
NOTHING_FOUND = "queries for which nothing was retrieved, counted as 0"
PART_FOUND_NOTHING = ", a part of the fusion, retrieved nothing"
_NAME = re.compile(r"(?P<name>[A-Za-z]+)@(?P<k>[1-9]\d*)")


def _dcg(gains: Sequence[float]) -> float:
    return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1) if gain > 0)


def _ndcg_exponential(grades: Sequence[int], ideal: Sequence[int], k: int) -> float:
    """NDCG with gains of 2^grade - 1 (Burges et al. 2005), which emphasises high grades."""
    ours, best = ([2.0 ** max(grade, 0) - 1 for grade in each[:k]] for each in (grades, ideal))
    return _dcg(ours) / _dcg(best)


def _mrr(grades: Sequence[int], ideal: Sequence[int], k: int) -> float:
    return next((1 / rank for rank, grade in enumerate(grades[:k], start=1) if grade > 0), 0.0)


def _judged(grades: Sequence[int], ideal: Sequence[int], k: int) -> float:
    """Share of judged documents among the first k: how far the other metrics can be trusted.

    As in ir_measures, the denominator is the number of retrieved documents if fewer than k.
    """
    retrieved = grades[:k]
    return sum(grade != UNJUDGED for grade in retrieved) / max(len(retrieved), 1)


def _relevant(grades: Sequence[int]) -> int:
    return sum(grade > 0 for grade in grades)


def _average_precision(grades: Sequence[int], ideal: Sequence[int], k: int) -> float:
    """Average precision, divided by the number of all relevant documents."""
    hits = [rank for rank, grade in enumerate(grades[:k], start=1) if grade > 0]
    return sum((count / rank for count, rank in enumerate(hits, start=1)), 0.0) / len(ideal)


# Each takes the grades of the ranked documents (`UNJUDGED` if there is no judgement), the
# grades of all relevant documents from best to worst, and k.
METRICS: dict[str, Callable[[Sequence[int], Sequence[int], int], float]] = {
    "nDCG": lambda grades, ideal, k: _dcg(grades[:k]) / _dcg(ideal[:k]),
    "MRR": _mrr,
    "Recall": lambda grades, ideal, k: _relevant(grades[:k]) / len(ideal),
    "P": lambda grades, ideal, k: _relevant(grades[:k]) / k,
    "MAP": _average_precision,
    "Hit": lambda grades, ideal, k: float(_relevant(grades[:k]) > 0),
    "Judged": _judged,
    "nDCGexp": _ndcg_exponential,
}


class Measure(str):
    """A metric of `METRICS` at a depth: a name such as ``nDCG@10``, which it prints and equals.

    >>> measure = Measure("nDCG@10")
    >>> measure, measure.depth, {measure: 0.5}["nDCG@10"]
    ('nDCG@10', 10, 0.5)

    Raises:
        ValueError: an unknown metric, or no depth; lists the choices.
    """

    metric: str  # its name in `METRICS`
    depth: int  # number of documents that count

    def __new__(cls, name: str) -> Self:
        """Return the measure of a name such as ``nDCG@10``."""
        match = _NAME.fullmatch(name)
        if match is None or match["name"] not in METRICS:
            raise ValueError(
                f"unknown metric {name!r}; choose one of {', '.join(METRICS)} with a depth, "
                "as in nDCG@10"
            )
        measure = super().__new__(cls, name)
        measure.metric, measure.depth = match["name"], int(match["k"])
        return measure

    def score(self, grades: Sequence[int], ideal: Sequence[int]) -> float:
        """Return the value of one query; see `METRICS`."""
        return METRICS[self.metric](grades, ideal, self.depth)


# Measures of records by kind of evaluation, in the order of tables. A measure added here is
# computed for the next record; stored records without it are evaluated again.
RECORDED: dict[str, tuple[Measure, ...]] = {
    kind: tuple(map(Measure, names.split()))
    for kind, names in {
        "task": "nDCG@10 MRR@10 Recall@1 Recall@10 Recall@100 MAP@100",
        "collection": "nDCG@10 MRR@10 Recall@1 Recall@10 Recall@100 P@10 MAP@100 Judged@10",
        "own data": "MRR@10 nDCG@10 P@5 P@10 Recall@10 Recall@20 Judged@10",
        "reranking": "nDCG@10 MRR@10",
    }.items()
}


def rank_documents(scores: Mapping[str, float]) -> list[str]:
    """Return document ids from best to worst.

    Raises:
        ValueError: a score is NaN or infinite; names the document.
    """
    names = list(scores)
    values = np.fromiter(scores.values(), dtype=np.float64, count=len(names))
    if not np.isfinite(values).all():
        document = names[int(np.flatnonzero(~np.isfinite(values))[0])]
        raise ValueError(f"document {document!r}: expected a finite score; got {scores[document]}")
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32)
    order = np.argsort(rounded)[::-1]
    ranked = rounded[order]
    if (ranked[1:] != ranked[:-1]).all():
        return [names[row] for row in order.tolist()]
    # Equal scores rank by id, from the last.
    return [name for _, name in sorted(zip(rounded.tolist(), names, strict=True), reverse=True)]


def ranking(run: Run, query: str, depth: int | None = None) -> list[str]:
    """Return the ``depth`` best documents of ``query``, by default all; none if it is missing.

    Raises:
        ValueError: see `rank_documents`.
    """
    if query not in run:
        return []
    if isinstance(run, RunArrays):
        return run.ranked(query, depth)
    return rank_documents(run[query])[:depth]


def score_run(
    qrels: Qrels, run: Run, metrics: Iterable[str] = ("nDCG@10",), *, zeros: bool = False
) -> dict[str, dict[str, float]]:
    """Compute the value per metric and query id.

    >>> score_run({"q": {"d1": 1}}, {"q": {"d1": 0.3, "d2": 0.9}}, ["MRR@10", "Recall@1"])
    {'MRR@10': {'q': 0.5}, 'Recall@1': {'q': 0.0}}

    Args:
        qrels: grade per query and document.
        run: score per query and document; higher is better.
        metrics: names of a `Measure`, such as ``nDCG@10``.
        zeros: whether a query with judgements, none of them relevant, scores 0.

    Raises:
        ValueError: an unknown metric (lists the choices), or a score that is not finite.
    """
    wanted = [Measure(metric) for metric in metrics]
    values: dict[str, dict[str, float]] = {str(measure): {} for measure in wanted}
    deepest = max((measure.depth for measure in wanted), default=0)
    for query, judged in qrels.items():
        ideal = sorted((grade for grade in judged.values() if grade > 0), reverse=True)
        if not ideal:
            if judged and zeros:
                for column in values.values():
                    column[query] = 0.0
            continue
        try:
            ranked = ranking(run, query, deepest)
        except ValueError as error:
            raise ValueError(f"query {query!r}: {error}") from None
        grades = [
            max(judged[document], 0) if document in judged else UNJUDGED for document in ranked
        ]
        for measure in wanted:
            values[measure][query] = measure.score(grades, ideal)
    return values


def score_rankings(
    retrieved: Sequence[Sequence[Hashable]],
    relevant: Sequence[Iterable[Hashable]],
    metrics: Iterable[str] = ("MRR@10", "Recall@1", "Recall@10", "Recall@100", "nDCG@10"),
) -> dict[str, float]:
    """Compute the mean of each metric over queries, from ranked lists of documents.

    >>> score_rankings([["a", "b", "c"], ["c", "a"]], [{"b"}, {"c"}], ["MRR@10", "Recall@1"])
    {'MRR@10': 0.75, 'Recall@1': 0.5}

    Args:
        retrieved: for each query, its documents from best to worst.
        relevant: for each query, its relevant documents, at least one.
        metrics: as for `score_run`.

    Raises:
        ValueError: lists of different lengths, a query without a relevant document, or a
            document twice in a ranking.
    """
    if len(retrieved) != len(relevant):
        raise ValueError(
            f"expected as many rankings as sets of relevant documents; got {len(retrieved)} and "
            f"{len(relevant)}"
        )
    qrels = {str(index): dict.fromkeys(map(str, each), 1) for index, each in enumerate(relevant)}
    run = {}
    for index, ranking in enumerate(retrieved):
        if not qrels[str(index)]:
            raise ValueError(f"query {index}: expected at least one relevant document; got none")
        scores = {str(document): -float(rank) for rank, document in enumerate(ranking)}
        if len(scores) < len(ranking):
            raise ValueError(f"query {index}: a document occurs twice in its ranking")
        run[str(index)] = scores
    values = score_run(qrels, run, metrics)
    return {name: sum(each.values()) / max(len(each), 1) for name, each in values.items()}
