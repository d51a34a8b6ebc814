"""What generated queries are worth: do they order models, and decide between them, as real ones do?

Kendall's tau-b compares the order of models by their mean scores on generated queries with the
order on real ones: 1 if all pairs of models stand in the same order, −1 if all are reversed. Ties
do not count for or against. Its interval is a percentile bootstrap over the queries of both sets,
drawn independently; queries of a cluster are drawn together. With few models, or models of nearly
equal scores, it is wide.

Source: Kendall, "The treatment of ties in ranking problems" (Biometrika, 1945).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.analysis.stats.resampling import draw_seed, percentile_interval, resampled_means
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.metrics.intervals import Array, Interval

RESAMPLES = 2000
LEVEL = 0.95
_SAME = 1e-9  # means whose difference is smaller are tied


@dataclass(frozen=True)
class Estimate:
    """A number with its interval; both are None where it is not defined."""

    value: float | None
    interval: Interval | None


def kendall_tau_b(first: Array, second: Array) -> Array:
    """Return the rank correlation of values of S models (…, S); NaN if all of a side are tied.

    >>> float(kendall_tau_b(np.array([1, 2, 3]), np.array([1, 3, 2])).round(3))
    0.333
    """
    pairs = list(itertools.combinations(range(first.shape[-1]), 2))
    left = [left for left, _ in pairs]
    right = [right for _, right in pairs]
    first_signs = _signs(first[..., left] - first[..., right])
    second_signs = _signs(second[..., left] - second[..., right])
    agreement = np.sum(first_signs * second_signs, axis=-1)
    untied = np.sum(first_signs**2, axis=-1) * np.sum(second_signs**2, axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(agreement / np.sqrt(untied))


def _signs(differences: Array) -> Array:
    return np.where(np.abs(differences) < _SAME, 0.0, np.sign(differences))


@dataclass(frozen=True)
class Means:
    """The means of S models on one set of queries, and those of resamples (R, S)."""

    sample: Array
    resamples: Array


def resample(matrix: ScoreMatrix, *, seed: int) -> Means:
    """Return the means of a matrix, and of bootstrap resamples of its queries or clusters."""
    values = matrix.unit_values(matrix.scores)
    sample, resamples = resampled_means(
        values.T, n_resamples=RESAMPLES, seed=draw_seed(seed, matrix.unit_names)
    )
    return Means(sample, resamples)


def order_agreement(real: Means, generated: Means) -> Estimate:
    """Return Kendall's tau-b between the orders of models by real and by generated queries."""
    value = float(kendall_tau_b(real.sample, generated.sample))
    if not np.isfinite(value):
        return Estimate(None, None)
    drawn = kendall_tau_b(real.resamples, generated.resamples)
    drawn = drawn[np.isfinite(drawn)]
    return Estimate(value, percentile_interval(drawn, level=LEVEL))


def lexical_shift(
    real: Means, generated: Means, *, lexical: Sequence[int], others: Sequence[int]
) -> Estimate:
    """Return by how much generated queries favour lexical search, against real ones.

    It is the mean of lexical models minus that of other models on generated queries, minus the same
    on real ones. ``lexical`` and ``others`` are positions of models; without either, there is none.
    """
    if not lexical or not others:
        return Estimate(None, None)

    def advantage(means: Array) -> Array:
        of_lexical = means[..., list(lexical)].mean(axis=-1)
        return np.asarray(of_lexical - means[..., list(others)].mean(axis=-1))

    value = float(advantage(generated.sample) - advantage(real.sample))
    drawn = advantage(generated.resamples) - advantage(real.resamples)
    return Estimate(value, percentile_interval(drawn, level=LEVEL))


class Outcome(StrEnum):
    """What generated queries say of two models that real queries tell apart."""

    SAME = "the same"
    OPPOSITE = "the opposite"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class DecisionAgreement:
    """How often generated queries decide between two models as real ones do."""

    pairs: int  # of models
    decided: int  # by real queries
    same: int
    opposite: int
    undecided: int  # by generated queries
    only_generated: int  # decided by generated queries, but not by real ones


def decision_agreement(
    real: Sequence[PairedDifference], generated: Sequence[PairedDifference], *, alpha: float
) -> DecisionAgreement:
    """Count the pairs of models on which both kinds of queries decide alike.

    Args:
        real: the tested difference of each pair of models on real queries.
        generated: the same on generated queries, in any order.
        alpha: level of the tests.
    """
    generated_of_pair: dict[tuple[str, str], PairedDifference] = {}
    for difference in generated:
        generated_of_pair[difference.first, difference.second] = difference
        generated_of_pair[difference.second, difference.first] = difference.reversed()
    outcomes = []
    only_generated = 0
    for difference in real:
        other = generated_of_pair[difference.first, difference.second]
        if difference.significant(alpha):
            outcomes.append(_outcome(difference, other, alpha))
        elif other.significant(alpha):
            only_generated += 1
    return DecisionAgreement(
        pairs=len(real),
        decided=len(outcomes),
        same=outcomes.count(Outcome.SAME),
        opposite=outcomes.count(Outcome.OPPOSITE),
        undecided=outcomes.count(Outcome.UNDECIDED),
        only_generated=only_generated,
    )


def _outcome(real: PairedDifference, generated: PairedDifference, alpha: float) -> Outcome:
    """Return what generated queries say of a pair that real ones decide."""
    if not generated.significant(alpha):
        return Outcome.UNDECIDED
    if (real.difference > 0) == (generated.difference > 0):
        return Outcome.SAME
    return Outcome.OPPOSITE
