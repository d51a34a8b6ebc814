"""The range of scores and of differences over the grades that unjudged documents may have.

A document without a judgement has the grade 0, or any grade that the judgements use; for metrics
without grades it is relevant, or it is not. It has one grade in both rankings that are compared,
and the ideal ranking has it, too. A document that no ranking has stays without a grade.

The lowest and the highest difference of a query are exact: other grades give none beyond them. They
need not be those where no unjudged document is relevant, or where all are: a relevant document far
down raises the ideal ranking more than the score.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from qwen3nb.metrics.intervals import Array
from qwen3nb.metrics.retrieval import UNJUDGED, Grades, JudgedRanking, Measure

_MOST_STEPS = 100  # of Dinkelbach's method, which needs about five


@dataclass(frozen=True)
class GradedDocuments:
    """The first documents of one query, with their grades."""

    documents: Sequence[str]  # best first
    grades: Grades  # of these; `UNJUDGED` without a judgement
    ideal: Grades  # of all documents that are judged relevant, highest first


NOTHING = GradedDocuments((), (), ())


@dataclass(frozen=True, eq=False)
class Extremes:
    """Scores of two rankings (n, 2) per query, the first in the first column."""

    recorded: Array  # if what is unjudged is not relevant
    lowest: Array  # where first - second is lowest
    highest: Array  # where it is highest


@dataclass(frozen=True)
class _Weights:
    """How a metric weighs ranks: the score is a sum of gains over the sum of an ideal ranking."""

    gain: Callable[[float], float]  # of a grade
    of_rank: Callable[[int, int], float]  # of a rank (1 is first) and the depth of the metric
    # The sum of the weights of the first documents of the ideal ranking, by their number.
    of_ideal: Callable[[int, int], float]


def _discount(rank: int, depth: int) -> float:
    return 1 / math.log2(rank + 1) if rank <= depth else 0.0


def _sum_of_discounts(count: int, depth: int) -> float:
    return sum(_discount(rank, depth) for rank in range(1, min(count, depth) + 1))


def _exponential(grade: float) -> float:
    return float(2.0**grade - 1)


_SUMS = {
    "nDCG": _Weights(float, _discount, _sum_of_discounts),
    "nDCGexp": _Weights(_exponential, _discount, _sum_of_discounts),
    "Recall": _Weights(
        float,
        of_rank=lambda rank, depth: float(rank <= depth),
        of_ideal=lambda count, depth: float(count),
    ),
    "P": _Weights(
        float,
        of_rank=lambda rank, depth: float(rank <= depth) / depth,
        of_ideal=lambda count, depth: 1.0,
    ),
}
# Metrics of the first relevant document: the score by its rank.
_OF_FIRST: dict[str, Callable[[int], float]] = {
    "MRR": lambda rank: 1 / rank,
    "Hit": lambda rank: 1.0,
}


def has_range(measure: Measure) -> bool:
    """Return whether the range of a measure is known."""
    return measure.metric in _SUMS or measure.metric in _OF_FIRST


def extremes(
    measure: Measure,
    first: Sequence[GradedDocuments],
    second: Sequence[GradedDocuments],
    *,
    threshold: float = 1,
) -> Extremes:
    """Return the scores where the difference of two rankings is lowest and highest, query by query.

    Args:
        measure: one that `has_range`.
        first: a ranking per query.
        second: the other ranking of the same queries; `NOTHING` for the range of the first's score.
        threshold: lowest grade that is relevant for metrics that are not graded.

    Raises:
        ValueError: the range of the measure is not known, or a query has no relevant document.
    """
    if not has_range(measure):
        raise ValueError(f"the range of {measure} is not known")
    if not measure.graded:
        first = [_binary(ranking, threshold) for ranking in first]
        second = [_binary(ranking, threshold) for ranking in second]
    if any(not ranking.ideal for ranking in first):
        raise ValueError("expected a relevant document for every query")
    if measure.metric in _OF_FIRST:
        pairs = list(zip(first, second, strict=True))
        recorded = np.array([_recorded_scores(pair, measure) for pair in pairs])
        highest = [_largest_of_first(pair, measure) for pair in pairs]
        lowest = [_largest_of_first(pair[::-1], measure)[::-1] for pair in pairs]
        return Extremes(recorded, np.array(lowest), np.array(highest))
    recorded, highest_scores = _largest_of_sums(measure, first, second)
    _, lowest_scores = _largest_of_sums(measure, second, first, ideals=first)
    return Extremes(recorded, lowest_scores[:, ::-1], highest_scores)


def _binary(ranking: GradedDocuments, threshold: float) -> GradedDocuments:
    binary = JudgedRanking(ranking.grades, ranking.ideal).binary(threshold)
    return GradedDocuments(ranking.documents, binary.grades, binary.ideal)


# --- metrics of the first relevant document ---------------------------------------------------

_RankingPair = tuple[GradedDocuments, GradedDocuments]


def _recorded_scores(pair: _RankingPair, measure: Measure) -> tuple[float, float]:
    """Return the scores of two rankings if what is unjudged is not relevant."""
    first, second = pair
    return (
        measure.score(first.grades, first.ideal),
        measure.score(second.grades, second.ideal),
    )


def _largest_of_first(pair: _RankingPair, measure: Measure) -> tuple[float, float]:
    """Return the scores of two rankings where the first gains most on the second.

    At most one unjudged document is relevant there. Of several, the one that the first ranking has
    earliest gives it its score; the others can only raise that of the second.
    """
    recorded = _recorded_scores(pair, measure)
    best = recorded
    ranks_in_first, ranks_in_second = (_unjudged_ranks(ranking) for ranking in pair)
    for document, rank in ranks_in_first.items():
        first_score = max(recorded[0], _value_within(rank, measure))
        rank_in_second = ranks_in_second.get(document)
        second_score = max(recorded[1], _value_within(rank_in_second, measure))
        if first_score - second_score > best[0] - best[1]:
            best = (first_score, second_score)
    return best


def _value_within(rank: int | None, measure: Measure) -> float:
    """Return the value of a rank; 0 below the depth, and for a document that was not found."""
    if rank is None or rank > measure.depth:
        return 0.0
    return _OF_FIRST[measure.metric](rank)


def _unjudged_ranks(ranking: GradedDocuments) -> dict[str, int]:
    """Return the ranks of documents without a judgement."""
    ranks = {}
    graded = zip(ranking.documents, ranking.grades, strict=True)
    for rank, (document, grade) in enumerate(graded, start=1):
        if grade == UNJUDGED:
            ranks[document] = rank
    return ranks


# --- metrics that sum gains -------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums of n queries by the number of their unjudged documents (0 to m) that have a grade.

    The documents of a query are in falling order of the weight in the first ranking - that in the
    second. Whatever numbers of them have which grades, the difference is largest if the first ones
    have the highest grades. A gain is a sum of steps, from each grade to the next higher, so that
    every sum is one over steps.
    """

    judged: Array  # sums of gains of judged documents in both rankings (n, 2)
    weights: Array  # cumulative weights of unjudged documents in both (n, 2, m + 1)
    ideal: Array  # weights of the ideal ranking down to each grade (n, grades, m + 1)
    steps: Array  # gain from each grade to the next higher (grades,)
    is_possible: NDArray[np.bool_]  # whether a query has so many unjudged documents (n, m + 1)


def _largest_of_sums(
    measure: Measure,
    first: Sequence[GradedDocuments],
    second: Sequence[GradedDocuments],
    *,
    ideals: Sequence[GradedDocuments] | None = None,
) -> tuple[Array, Array]:
    """Return the recorded scores (n, 2), and those where the first gains most on the second.

    Source: Dinkelbach, "On nonlinear fractional programming" (Management Science, 1967). With the
    ratio found so far, the best counts maximise numerator - ratio · denominator; they give a
    larger ratio, until none is larger.
    """
    sums = _sums(measure, first, second, ideals or first)
    queries = len(first)
    none_relevant = np.zeros((queries, len(sums.steps)), dtype=np.intp)
    scores = recorded = _scores(sums, none_relevant)
    contrast = sums.weights[:, 0] - sums.weights[:, 1]
    for _ in range(_MOST_STEPS):
        ratio = scores[:, 0] - scores[:, 1]
        values = contrast[:, None, :] - ratio[:, None, None] * sums.ideal
        values = np.where(sums.is_possible[:, None, :], values, -np.inf)
        candidate_scores = _scores(sums, _best_counts(values * sums.steps[:, None]))
        is_larger = candidate_scores[:, 0] - candidate_scores[:, 1] > ratio + 1e-14
        if not is_larger.any():
            break
        scores = np.where(is_larger[:, None], candidate_scores, scores)
    return recorded, scores


def _scores(sums: _Sums, counts: NDArray[np.intp]) -> Array:
    """Return the scores (n, 2) if so many unjudged documents have each grade or a higher one.

    ``counts`` are by query and grade (n, grades).
    """
    rows = np.arange(len(counts))[:, None]
    ideal = (sums.ideal[rows, np.arange(counts.shape[1]), counts] * sums.steps).sum(axis=1)
    gained = sums.weights[rows[:, :, None], np.arange(2)[:, None], counts[:, None, :]]
    numerators = sums.judged + (gained * sums.steps).sum(axis=2)
    return np.asarray(numerators / ideal[:, None])


def _best_counts(values: Array) -> NDArray[np.intp]:
    """Return the counts of largest total value (n, grades), which fall from grade to grade.

    ``values`` (n, grades, m + 1) are by grade, the lowest first, and by count.
    """
    queries, grades, _ = values.shape
    totals = values[:, -1]  # of the highest grade alone
    choices = []  # by count of the next lower grade, from the highest grade but the lowest
    for grade in reversed(range(grades - 1)):
        largest = np.maximum.accumulate(totals, axis=1)
        positions = np.where(totals == largest, np.arange(totals.shape[1]), 0)
        choices.append(np.maximum.accumulate(positions, axis=1))
        totals = values[:, grade] + largest
    counts = np.zeros((queries, grades), dtype=np.intp)
    counts[:, 0] = totals.argmax(axis=1)
    for grade in range(1, grades):
        chosen = choices[grades - 1 - grade]
        counts[:, grade] = chosen[np.arange(queries), counts[:, grade - 1]]
    return counts


def _sums(
    measure: Measure,
    first: Sequence[GradedDocuments],
    second: Sequence[GradedDocuments],
    ideals: Sequence[GradedDocuments],
) -> _Sums:
    weights = _SUMS[measure.metric]
    grades = sorted({grade for ranking in ideals for grade in ranking.ideal})
    gains = np.array([0.0, *[weights.gain(grade) for grade in grades]])
    weights_of_unjudged = []
    judged = []
    for pair in zip(first, second, strict=True):
        judged.append([_judged_gain(ranking, measure, weights) for ranking in pair])
        weights_of_unjudged.append(_unjudged_weights(pair, measure, weights))
    most = max((len(documents) for documents in weights_of_unjudged), default=0)
    queries = len(ideals)
    cumulative = np.zeros((queries, 2, most + 1))
    is_possible = np.zeros((queries, most + 1), dtype=bool)
    counts_at_grade = np.zeros((queries, len(grades)), dtype=np.intp)  # or higher
    for row, (documents, ranking) in enumerate(zip(weights_of_unjudged, ideals, strict=True)):
        is_possible[row, : len(documents) + 1] = True
        if documents:
            cumulative[row, :, 1 : len(documents) + 1] = np.cumsum(documents, axis=0).T
        for column, grade in enumerate(grades):
            counts_at_grade[row, column] = sum(other >= grade for other in ranking.ideal)
    most_relevant = int(counts_at_grade.max(initial=0)) + most
    of_ideal = np.array(
        [weights.of_ideal(count, measure.depth) for count in range(most_relevant + 1)]
    )
    ideal = of_ideal[counts_at_grade[:, :, None] + np.arange(most + 1)]
    return _Sums(np.array(judged), cumulative, ideal, np.diff(gains), is_possible)


def _judged_gain(ranking: GradedDocuments, measure: Measure, weights: _Weights) -> float:
    """Return the weighted sum of the gains of judged documents."""
    total = 0.0
    for rank, grade in enumerate(ranking.grades, start=1):
        if grade > 0:
            total += weights.gain(grade) * weights.of_rank(rank, measure.depth)
    return total


def _unjudged_weights(
    pair: _RankingPair, measure: Measure, weights: _Weights
) -> list[tuple[float, float]]:
    """Return the weights of unjudged documents in both rankings, the best for the first first.

    Below the depth of the metric they have no weight, but the ideal ranking would have them, too.
    """
    ranks_in_first, ranks_in_second = (_unjudged_ranks(ranking) for ranking in pair)
    of_documents = []
    for document in dict.fromkeys([*ranks_in_first, *ranks_in_second]):
        of_documents.append(
            (
                _weight(ranks_in_first.get(document), measure, weights),
                _weight(ranks_in_second.get(document), measure, weights),
            )
        )
    return sorted(of_documents, key=lambda both: both[1] - both[0])


def _weight(rank: int | None, measure: Measure, weights: _Weights) -> float:
    """Return the weight of a rank; 0 for a document that a ranking lacks."""
    if rank is None:
        return 0.0
    return weights.of_rank(rank, measure.depth)
