"""Confidence intervals of an aggregate of per-query values, in closed form.

With 20 to 200 queries, each covers the true value in at least 0.93 of the samples from every
population in `qwen3nb.analysis.calibration`: scores that are nearly all equal, skewed or bimodal,
differences that are rare and large, and others. A percentile bootstrap does not.

::

    widened     means of scores from 0 to 1, and of paired differences. Student's interval, widened
                on each side for skewness and, if the values hardly spread to that side, for queries
                at the bound that the sample may lack. Equal to Student's for symmetric values with
                enough spread.
    student     Student's interval of a mean, for values with other bounds, and for random draws of
                an algorithm such as clustering, where no rare queries are missing.
    wilson      macro F1. Wilson's score interval, with the variance of a share, m (1 − m), scaled
                to that of the influence values.
    fisher      correlations. Student's interval on Fisher's z scale; the standard error is the
                larger of that of normal data and that of the sample's own influence values.
    percentile  the percentile bootstrap, for comparison.

No method detects rare values far from all others if the sample spreads by more than 5 % of the way
to a bound: of 20 queries, 6 % of which are far from the others, it covers 0.71. With fewer than 20
queries, coverage may also fall below 0.93. A single query, or a
correlation of fewer than 4 pairs, has no interval.

References:
    Student 1908; Johnson 1978 (the shift of Student's interval by skewness); Clopper and Pearson
    1934 (the largest share that n queries may lack; the combination of the three is our own, and
    its constants were chosen by simulation); Wilson 1927; Dean and Pagano 2015 (Wilson's interval
    with an estimated variance ratio); Fisher 1921; Bonett and Wright 2000 (standard error of
    Spearman's correlation); Croux and Dehon 2010 (influence functions of correlations); Zou and
    Donner 2008 (MOVER: an interval of a mean from those of its parts).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import scipy  # loads its parts on first use: scipy.stats takes a second
from numpy.typing import NDArray

from qwen3nb.metrics.columns import Column, numbers
from qwen3nb.utils.format import names_in_words

Array = NDArray[np.float64]
Interval = tuple[float, float]

_TINY = 1e-12
# Spread, as a share of the way to a bound, below which values there may be missing.
_NARROW_SPREAD = 0.05
_SKEWNESS_WEIGHT = 2.5  # of the shift by skewness beyond its standard error
# Up to this many queries without spread, the interval is the whole range.
_UNINFORMATIVE_QUERIES = 3
_FEWEST_PAIRS = 4  # for the interval of a correlation

# Below it, a sample may lack the rare scores that decide a mean; see the book's methods.
FEW_QUERIES = 50
# Name of each method as shown with an interval; ``paired``: of differences.
INTERVALS = {
    "widened": "widened Student's",
    "parallel": "widened Student's, of subsets that share their queries",
    "parallel fisher": "Fisher's z, of subsets that share their pairs",
    "parallel wilson": "Wilson's, of subsets that share their texts",
    "paired": "widened Student's",
    "wilson": "Wilson's",
    "student": "Student's",
    "fisher": "Fisher's z",
    "percentile": "percentile bootstrap",
}


def student_interval(values: Column, *, level: float = 0.95) -> Interval | None:
    """Student's interval of the mean; None for a single value, a point for equal values.

    ``values`` (n,) are an array, a list, a Series, a dictionary, or a data frame of one column.
    """
    values = numbers(values)
    n = len(values)
    if n < 2:
        return None
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    half = _t_quantile(n - 1, level) * float(values.std(ddof=1)) / math.sqrt(n)
    mean = float(values.mean())
    return mean - half, mean + half


def difference_interval(differences: Column, *, level: float = 0.95) -> Interval | None:
    """Interval of the mean of paired differences (n,) of scores from 0 to 1.

    The only interval shown for paired differences. If differences exceed 1, the largest is the
    bound. None for a single query. They are given as in `student_interval`.
    """
    return difference_intervals(numbers(differences)[None], level=level)[0]


def difference_intervals(
    differences: Array, *, level: float, queries: int = 0
) -> list[Interval | None]:
    """Intervals of the means of many rows of paired differences (rows, n).

    ``queries``: number of queries with differences distributed like these; by default n.
    """
    bounds = np.maximum(1.0, np.maximum(differences.max(axis=1), -differences.min(axis=1)))
    return _widened(differences, -bounds, bounds, level=level, queries=queries)


def mean_interval(
    values: Array, *, level: float, drawn: bool = False
) -> tuple[str, Interval | None]:
    """Return the method for the mean of ``values`` (n,), and the interval; None for a single value.

    ``drawn``: whether the values are random draws of an algorithm.
    """
    # The widened interval allows for queries at the bounds 0 and 1, which other values lack.
    if values.min() < -_TINY or values.max() > 1 + _TINY:
        return "student", student_interval(values, level=level)
    values = values.clip(0, 1)  # a V-measure may exceed 1 by rounding
    if drawn and np.ptp(values):  # an algorithm's draws lack no rare queries
        low, high = student_interval(values, level=level) or (0.0, 1.0)
        return "student", (max(0.0, low), min(1.0, high))
    return "widened", _widened(values[None], np.zeros(1), np.ones(1), level=level)[0]


def _widened(
    rows: Array, low: Array, high: Array, *, level: float, queries: int = 0
) -> list[Interval | None]:
    """Intervals of the means of rows (rows, n) of values from ``low`` to ``high`` (rows,).

    With mean m, standard deviation s and skewness g, the length of a side is
    ``sqrt((t s / sqrt(n) + 2.5 e s (1 + 2 t²) / (6 n))² + (f q d)²)``::

        e   g on the longer side, less its standard error in normal data, at least 0
        d   distance of m from the bound
        q   largest share of the queries that n may lack, 1 − ((1 − level) / 2)^(1/n)
        f   1 − (r / 0.05 d)⁴, at least 0, where r is the smaller of s and of the root of twice the
            mean square of the deviations to that side
    """
    size = rows.shape[1]
    if size < 2:
        return [None] * len(rows)
    moments = moments_of(rows)
    lower, upper = widened_ends(moments, low, high, level=level, queries=queries or size)
    return list(zip(lower.tolist(), upper.tolist(), strict=True))


class Moments(NamedTuple):
    """What the widened interval depends on, besides the number of queries: arrays (rows,)."""

    means: Array
    variances: Array  # mean squares of the deviations from the mean
    to_sides: Array  # the part of the variance above the mean, less that below
    cubes: Array  # mean cubes of the deviations


def moments_of(rows: Array) -> Moments:
    """The moments of rows (rows, n)."""
    means = rows.mean(axis=1)
    deviations = rows - means[:, None]
    squares = deviations**2
    variances = squares.mean(axis=1)
    to_sides = (squares * np.sign(deviations)).mean(axis=1)  # those above, less those below
    cubes = np.multiply(squares, deviations, out=squares).mean(axis=1)  # in the same memory
    return Moments(means, variances, to_sides, cubes)


def widened_ends(
    moments: Moments, low: Array, high: Array, *, level: float | Array, queries: int
) -> tuple[Array, Array]:
    """Lower and upper ends (rows,) of widened intervals, by the formula of `_widened`.

    ``level`` is that of all rows, or of each.
    """
    means = moments.means
    length_below = _side_length(moments, -1.0, means - low, level=level, queries=queries)
    length_above = _side_length(moments, 1.0, high - means, level=level, queries=queries)
    return np.maximum(means - length_below, low), np.minimum(means + length_above, high)


def _side_length(
    moments: Moments, sign: float, distance: Array, *, level: float | Array, queries: int
) -> Array:
    """Return the lengths (rows,) of the side below the mean (``sign`` -1) or above it (1).

    ``distance``: of the mean from the bound on this side.
    """
    student_length = _student_length(moments, sign, level=level, n=queries)
    missing_length = _missing_length(moments, sign, distance, level=level, n=queries)
    return np.asarray(np.hypot(student_length, missing_length))


def side_length_bounds(
    moments: Moments, sign: float, distance: Array, *, level: float, queries: int
) -> tuple[Array, Array]:
    """Return the shortest and the longest side of a widened interval, as arrays of any shape.

    Where it is not known how much of the variance is above the mean. The arguments are those of
    `_side_length`.
    """
    student_length = _student_length(moments, sign, level=level, n=queries)
    # Values hardly spread to this side, at most.
    most_missing = _missing_share(queries, level) * distance
    return student_length, np.hypot(student_length, most_missing)


def _student_length(moments: Moments, sign: float, *, level: float | Array, n: int) -> Array:
    """Return Student's half width, longer on the side of the skewness (Johnson 1978)."""
    skewness = _divide_or_zero(moments.cubes, moments.variances**1.5)
    skewness_error = math.sqrt(6 * (n - 2) / ((n + 1) * (n + 3)))  # in normal data
    skewness_beyond_error = np.maximum(0.0, sign * skewness - skewness_error)
    t = scipy.special.stdtrit(n - 1, (1 + level) / 2)
    shift = _SKEWNESS_WEIGHT * skewness_beyond_error * (1 + 2 * t**2) / (6 * n)
    return np.asarray(_sample_deviations(moments, n) * (t / math.sqrt(n) + shift))


def _missing_length(
    moments: Moments, sign: float, distance: Array, *, level: float | Array, n: int
) -> Array:
    """Return how far queries at the bound, which the sample may lack, may move the mean.

    0 where values spread over more than `_NARROW_SPREAD` of the way to the bound.
    """
    # The variance if the other side were like this one: twice the part on this side.
    mean_square = moments.variances + sign * moments.to_sides
    deviations_of_side = np.sqrt(np.maximum(0.0, mean_square))
    spread = np.minimum(_sample_deviations(moments, n), deviations_of_side)
    # Narrowness is 1 without spread, and 0 from a twentieth of the way to the bound on.
    share_of_way = _divide_or_zero(spread, _NARROW_SPREAD * distance)
    narrowness = 1 - np.minimum(1.0, share_of_way) ** 4
    return np.asarray(narrowness * _missing_share(n, level) * distance)


def _sample_deviations(moments: Moments, n: int) -> Array:
    return np.sqrt(moments.variances * n / (n - 1))


def _missing_share(queries: int, level: float | Array) -> float | Array:
    """Return the largest share of all queries that a sample may lack (Clopper and Pearson 1934)."""
    if queries <= _UNINFORMATIVE_QUERIES:
        return 1.0
    return 1 - ((1 - level) / 2) ** (1 / queries)


def _divide_or_zero(numerator: Array, denominator: Array) -> Array:
    """Divide; 0 where the denominator is 0."""
    zeros = np.zeros_like(numerator)
    return np.divide(numerator, denominator, out=zeros, where=denominator > 0)


def mean_of_intervals(
    values: Sequence[float],
    ends: Sequence[Interval | None],
    *,
    weights: Array | None = None,
    correlations: Array | None = None,
) -> Interval:
    """Interval of the weighted mean of values, from their own intervals (MOVER).

    Distances of the ends from the values add up in quadrature, separately for each side (Zou and
    Donner 2008). ``weights`` sum to 1; by default all are equal. A value without an interval counts
    as exact. Values are independent, unless they have ``correlations`` (values, values), with which
    the products of two distances then count twice.

    >>> mean_of_intervals([0.5], [(0.4, 0.7)])
    (0.4, 0.7)
    """
    # A value without an interval counts as exact: both ends are the value.
    intervals = [interval or (value, value) for value, interval in zip(values, ends, strict=True)]
    if len(values) == 1:
        return intervals[0]
    if weights is None:
        weights = np.full(len(values), 1 / len(values))
    points = np.asarray(values)
    distances = np.abs(np.asarray(intervals) - points[:, None])  # (values, 2): below, above
    weighted_distances = weights[:, None] * distances
    # MOVER (Zou and Donner 2008): the distances add up in quadrature, on each side for itself.
    if correlations is None:
        squares = (weighted_distances**2).sum(axis=0)
    else:
        squares = _squares_of_correlated(weighted_distances, correlations)
    length_below, length_above = np.sqrt(squares).tolist()
    mean = float(weights @ points)
    return mean - length_below, mean + length_above


def _squares_of_correlated(distances: Array, correlations: Array) -> Array:
    """Return, of each side, the sum of ``r_ij d_i d_j`` over all pairs of values."""
    products = np.einsum("is,ij,js->s", distances, correlations, distances)
    return np.maximum(0.0, products)


def f1_interval(truth: Array, predicted: Array, *, level: float) -> Interval | None:
    """Interval of macro F1 over class numbers (n,), as that of a mean of its influence values.

    Ends m of ``|mean − m| = t sqrt(ratio m (1 − m) / freedom)``. The ratio of the variance to that
    of a share, mean (1 − mean), is estimated from n values. With few values it is likely too small,
    because rare ones are missing; it is therefore shrunk towards 1.
    """
    n = len(truth)
    if n < 2:
        return None
    # Of each class: its F1, and how far each text moves it.
    scores, influences = [], []
    for label in np.union1d(truth, predicted):
        score, influence = _f1(truth == label, predicted == label)
        scores.append(score)
        influences.append(influence)
    mean = float(np.mean(scores))
    variance = float((np.mean(influences, axis=0) ** 2).mean())
    variance_of_share = mean * (1 - mean)  # of a share of n texts, such as an accuracy
    # Every text moves the mean alike, although it is neither 0 nor 1.
    if variance_of_share > _TINY and variance == 0:
        return mean, mean
    ratio = _variance_ratio(variance, variance_of_share, n)
    freedom = max(1, n - len(scores))  # one F1 per class is estimated
    # Wilson's interval with t for z, and the variance of a share scaled by the ratio.
    return _wilson_interval(mean, ratio * _t_quantile(freedom, level) ** 2 / freedom)


def possible_interval(interval: Interval, scores: Sequence[Array]) -> Interval:
    """Cut the interval of a score to 0 to 1, if all scores are shares."""
    lowest = min(float(values.min()) for values in scores)
    highest = max(float(values.max()) for values in scores)
    if lowest < 0 or highest > 1:
        return interval
    low, high = interval
    return max(0.0, low), min(1.0, high)


def _wilson_interval(share: float, weight: float) -> Interval:
    """Return Wilson's interval of a share, for ``weight`` t² / n; it contains the share."""
    centre = (share + weight / 2) / (1 + weight)
    half_width = math.sqrt(weight * (share * (1 - share)) + weight**2 / 4) / (1 + weight)
    low = min(centre - half_width, share)
    high = max(centre + half_width, share)
    return max(0.0, low), min(1.0, high)


def _variance_ratio(variance: float, variance_of_share: float, n: int) -> float:
    """Return the ratio of a variance to that of a share; of few values, shrunk towards 1."""
    if variance_of_share <= _TINY:
        return 1.0
    ratio = variance / variance_of_share
    if ratio >= 1:
        return ratio
    # Towards 1, by less the more values there are.
    shift = (1 - ratio) * (1.0 + ratio / 2) / math.sqrt(n)
    return min(1.0, ratio + shift)


def _f1(
    actual: NDArray[np.bool_], assigned: NDArray[np.bool_]
) -> tuple[np.float64, NDArray[np.float64]]:
    """F1 of one class, and its influence values (n,), from membership in truth and prediction."""
    size = actual.astype(float) + assigned
    hits = actual & assigned
    score = 2 * hits.sum() / size.sum()
    return score, (2 * hits - score * size) / size.mean()


def correlation_interval(first: Array, second: Array, *, how: str, level: float) -> Interval | None:
    """Interval of the ``pearson`` or ``spearman`` correlation of two columns (n,)."""
    n = len(first)
    if n < _FEWEST_PAIRS:
        return None
    correlation, influence = correlation_influence(first, second, how=how)
    clipped_correlation = _clipped_correlation(correlation, n)
    # Fisher's z, atanh(r): its error hardly depends on r, and its derivative is 1 / (1 - r²).
    deviation = float(influence.std()) / (1 - clipped_correlation**2)
    normal_deviation = 1.0  # in normal data, z has the error 1 / sqrt(n - 3) (Fisher 1921)
    if how == "spearman":
        normal_deviation = math.sqrt(1 + clipped_correlation**2 / 2)  # Bonett and Wright 2000
    quantile = float(scipy.special.ndtri((1 + level) / 2))
    half = quantile * max(deviation, normal_deviation) / math.sqrt(n - 3)
    centre = math.atanh(clipped_correlation)
    low, high = math.tanh(centre - half), math.tanh(centre + half)
    # A correlation of 1 was clipped: the interval has to reach it.
    return min(low, correlation), max(high, correlation)


def correlation_influence(first: Array, second: Array, *, how: str) -> tuple[float, Array]:
    """Return a correlation and its influence values (n,), one per pair.

    The standard deviation of the influence values, over the root of n, is the standard error; that
    of the difference of two systems' influence values gives the error of their difference.
    """
    if how == "spearman":
        first, second = scipy.stats.rankdata(first), scipy.stats.rankdata(second)
    a, b = _standardised(first), _standardised(second)
    products = a * b  # whose mean is the correlation
    correlation = max(-1.0, min(1.0, float(products.mean())))
    clipped_correlation = _clipped_correlation(correlation, len(a))
    if how != "spearman":
        # From Fisher's z to r, whose derivative by z is 1 - r².
        return correlation, _jackknife(a, b, clipped_correlation) * (1 - clipped_correlation**2)
    # The influence function of Pearson's r, here of ranks: a b - r (a² + b²) / 2.
    influence = products - clipped_correlation / 2 * (a**2 + b**2)
    # A value also moves the ranks of the others (Croux and Dehon 2010).
    influence += _rank_influence(a, b)
    influence += _rank_influence(b, a)
    # Less r times what that changes in the variances of the ranks.
    influence -= clipped_correlation * (_rank_influence(a, a) + _rank_influence(b, b))
    return correlation, influence


def _standardised(values: Array) -> Array:
    return np.asarray((values - values.mean()) / values.std())


def _clipped_correlation(correlation: float, n: int) -> float:
    """Clip a correlation to keep Fisher's z finite, also if all pairs are on a line."""
    return min(max(correlation, 1 / n**2 - 1), 1 - 1 / n**2)


def _jackknife(a: Array, b: Array, correlation: float) -> Array:
    """Jackknife influence on Fisher's z: n − 1 times the difference without each pair."""
    n = len(a)
    factor = n / (n - 1)
    # Of standardised values without the i-th, sum((a - mean)²) is n - a_i² n / (n - 1).
    squares_of_a = n - factor * a**2
    squares_of_b = n - factor * b**2
    products = n * correlation - factor * a * b
    norms = np.sqrt(np.maximum(_TINY, squares_of_a * squares_of_b))  # of a, times that of b
    bound = 1 - 1 / n**2  # keeps Fisher's z finite
    correlations = np.clip(products / norms, -bound, bound)
    return np.asarray((n - 1) * (math.atanh(correlation) - np.arctanh(correlations)))


def _rank_influence(ranks: Array, other: Array) -> Array:
    """Influence of values on the others' ranks: mean of (1[r_i <= r_j] - F(r_j)) other_j."""
    # A value moves the rank of each value above it, which weighs by the other column there.
    n = len(ranks)
    order = np.argsort(ranks, kind="stable")
    sorted_ranks = ranks[order]
    # At index k: the sum of the other column over the k lowest ranks.
    sums_of_lowest = np.concatenate([[0.0], np.cumsum(other[order])])
    sums_below = sums_of_lowest[np.searchsorted(sorted_ranks, ranks, side="left")]
    sums_up_to = sums_of_lowest[np.searchsorted(sorted_ranks, ranks, side="right")]
    sum_of_all = sums_of_lowest[-1]
    # Sums over higher ranks, of which equal ones count half, over n.
    means_above = (sum_of_all - (sums_below + sums_up_to) / 2) / n
    # The ranks came standardised: this is their deviation before.
    deviation_of_ranks = scipy.stats.rankdata(ranks).std()
    scale = n / deviation_of_ranks  # from shares of n to standard deviations
    return np.asarray((means_above - means_above.mean()) * scale)


def _t_quantile(freedom: int, level: float) -> float:
    return float(scipy.special.stdtrit(freedom, (1 + level) / 2))


def excludes_zero(interval: Interval) -> bool:
    """Return whether 0 is outside a closed interval."""
    return not interval[0] <= 0 <= interval[1]


def no_worse(interval: Interval | None, margin: float) -> bool:
    """Return whether a difference's interval excludes losses of ``margin`` or more."""
    return interval is not None and interval[0] > -margin


def within(interval: Interval | None, margin: float) -> bool:
    """Return whether a difference's interval is within ±``margin``, which shows equivalence."""
    return interval is not None and -margin < interval[0] and interval[1] < margin


class Scored(Protocol):
    """A score with the method of its interval."""

    @property
    def interval(self) -> str:
        """The method; empty without an interval."""

    @property
    def n(self) -> int:
        """The number of queries, pairs or texts."""


def few_queries_sentence(scores: Iterable[Scored]) -> str:
    """Say what the intervals of scores presume where queries are few, after a blank; or nothing."""
    for score in scores:
        if score.interval == "widened" and score.n < FEW_QUERIES:
            return (
                f" Of fewer than {FEW_QUERIES}, an interval is too narrow if rare ones score far "
                "from the rest."
            )
    return ""


def interval_words(methods: Iterable[str]) -> str:
    """Name the methods of the intervals shown together, as in ``Wilson's and Fisher's z``."""
    shown_methods = set(methods)
    names: list[str] = []
    for method, name in INTERVALS.items():
        if method in shown_methods and name not in names:
            names.append(name)
    if not names:
        return "none"
    return names_in_words(names)
