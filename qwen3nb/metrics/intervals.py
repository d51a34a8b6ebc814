"""Confidence intervals of an aggregate of per-query values, in closed form.

A method per kind of aggregate, each chosen because it covers the true value at least as often as
it says from 10 queries on (`qwen3nb.analysis.calibration`), which a percentile bootstrap does not:

    wilson      scores from 0 to 1, and macro F1. Wilson's score interval, with the variance
                of a share, m (1 − m), scaled to that of the scores. Where every score is 0 or 1
                it is Wilson's interval of a share; where scores are close together it is
                Student's. It ends within 0 and 1, and has a width where all scores are 1.
    student     Student's interval of a mean, for values with other bounds.
    paired      mean paired differences of scores. Student's interval of the differences and two
                pseudo-pairs, one at each bound, whose weight is the fourth power of the share of
                ties: without ties it is Student's; where nearly all queries tie, the rare ones
                that differ are missing from many samples, which Student's does not see.
    fisher      correlations. Student's interval on Fisher's z scale; the standard error is the
                larger of that of normal data and that of the sample's own influence values.
    percentile  the bootstrap interval of records written before these methods.

From 2 to 9 queries the methods are the same, but their coverage falls below the nominal one for
skewed scores; for one query, or a correlation of fewer than 4 pairs, there is no interval.

References:
    Wilson 1927; Dean and Pagano 2015 (Wilson's interval with an estimated variance ratio);
    Student 1908; Bonett and Price 2012 (paired proportions, with a pseudo-pair at each bound;
    the weight is our own, chosen by simulation); Fisher 1921; Bonett and Wright 2000 (standard
    error of Spearman's correlation); Croux and Dehon 2010 (influence functions of
    correlations); Zou and Donner 2008 (MOVER: an interval of a mean from those of its parts).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from qwen3nb.utils.choices import one_of

__all__ = [
    "INTERVALS",
    "Array",
    "Interval",
    "correlation_influence",
    "correlation_interval",
    "difference_interval",
    "difference_intervals",
    "excludes_zero",
    "f1_interval",
    "interval_words",
    "mean_interval",
    "mean_of_intervals",
    "no_worse",
    "student_interval",
    "within",
]

Array = NDArray[np.float64]
Interval = tuple[float, float]

_TINY = 1e-12

# What each method is called wherever an interval is shown.
INTERVALS = {
    "wilson": "Wilson's",
    "student": "Student's",
    "paired": "tie-adjusted Student's",
    "fisher": "Fisher's z",
    "percentile": "percentile bootstrap",
}


def student_interval(values: Array, *, level: float) -> Interval | None:
    """Student's interval of the mean; None for a single value, a point for equal values."""
    n = len(values)
    if n < 2:
        return None
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    half = _quantile(n - 1, level) * float(values.std(ddof=1)) / math.sqrt(n)
    mean = float(values.mean())
    return mean - half, mean + half


def difference_interval(differences: Array, *, level: float) -> Interval | None:
    """Interval of the mean of paired differences (n,) of scores from 0 to 1.

    It is the only interval of paired differences that is shown. Of larger differences, the
    largest is taken as the bound. None for a single query; a point for equal differences other
    than 0, of which a sample has no spread.
    """
    return difference_intervals(differences[None], level=level)[0]


def difference_intervals(
    differences: Array, *, level: float, queries: int = 0
) -> list[Interval | None]:
    """Intervals of the means of many rows of paired differences (rows, n).

    ``queries``: of so many queries, by default n, whose differences are distributed like these.
    """
    n = queries or differences.shape[1]
    if differences.shape[1] < 2:
        return [None] * len(differences)
    means = differences.mean(axis=1)
    highest, lowest = differences.max(axis=1), differences.min(axis=1)
    bounds = np.maximum(1.0, np.maximum(highest, -lowest))
    tied = np.count_nonzero(np.abs(differences) < _TINY, axis=1) / differences.shape[1]
    weights = np.array([share**4 for share in tied.tolist()])
    totals = n + 2 * weights
    centres = n * means / totals
    deviations = differences - centres[:, None]
    squares = np.square(deviations, out=deviations).mean(axis=1) * n
    constant = (highest == lowest) & (means != 0)
    quantile = _quantile(n - 1, level)
    rows = zip(means, bounds, weights, totals, centres, squares, constant, lowest, strict=True)
    return [
        (float(value), float(value))
        if alone
        else _difference_ends(*map(float, sums), quantile=quantile)
        for *sums, alone, value in rows
    ]


def _difference_ends(
    mean: float,
    bound: float,
    weight: float,
    total: float,
    centre: float,
    squares: float,
    *,
    quantile: float,
) -> Interval:
    squares += weight * ((bound - centre) ** 2 + (bound + centre) ** 2)
    half = quantile * math.sqrt(squares / (total * (total - 1)))
    return max(-bound, min(centre - half, mean)), min(bound, max(centre + half, mean))


def mean_interval(values: Array, *, level: float) -> tuple[str, Interval | None]:
    """The method for the mean of ``values`` (n,), and the interval; None for a single value."""
    if values.min() < -_TINY or values.max() > 1 + _TINY:
        return "student", student_interval(values, level=level)
    values = values.clip(0, 1)  # a V-measure may exceed 1 by a rounding error
    mean = float(values.mean())
    extreme = float(((values < _TINY) | (values > 1 - _TINY)).mean())
    n = len(values)
    variance = float(values.var()) if np.ptp(values) else 0.0
    ends = _wilson(mean, variance, extreme=extreme, n=n, freedom=n - 1, level=level)
    return "wilson", ends


def mean_of_intervals(
    values: Sequence[float], ends: Sequence[Interval], *, weights: Array | None = None
) -> Interval:
    """Interval of the weighted mean of independent values, from their own intervals (MOVER).

    The distances of the ends from the values add up as errors do, each side by itself (Zou and
    Donner 2008). ``weights`` sum to 1; by default all are equal.

    >>> mean_of_intervals([0.5], [(0.4, 0.7)])
    (0.4, 0.7)
    """
    if len(values) == 1:
        return ends[0]
    shares = np.full(len(values), 1 / len(values)) if weights is None else weights
    sides = np.abs(np.asarray(ends) - np.asarray(values)[:, None])
    below, above = np.sqrt(((shares[:, None] * sides) ** 2).sum(axis=0))
    mean = float(shares @ np.asarray(values))
    return mean - float(below), mean + float(above)


def f1_interval(truth: Array, predicted: Array, *, level: float) -> Interval | None:
    """Interval of macro F1 over class numbers (n,), as that of a mean of its influence values."""
    parts, scores = [], []
    for label in np.union1d(truth, predicted):
        actual, assigned = truth == label, predicted == label
        size = actual.astype(float) + assigned
        scores.append(2 * (actual & assigned).sum() / size.sum())
        parts.append((2 * (actual & assigned) - scores[-1] * size) / size.mean())
    spread = float((np.mean(parts, axis=0) ** 2).mean())
    freedom = max(1, len(truth) - len(scores))
    return _wilson(
        float(np.mean(scores)), spread, freedom=freedom, extreme=1.0, n=len(truth), level=level
    )


def _wilson(
    mean: float, variance: float, *, extreme: float, n: int, freedom: int, level: float
) -> Interval | None:
    """Ends m of ``|mean − m| = t sqrt(ratio m (1 − m) / freedom)``.

    The ratio of the variance to that of a share, mean (1 − mean), is estimated from n scores. Of
    few scores of which most are 0 (or 1) it is likely too small, as the rare ones are missing; it
    is therefore moved towards 1, by more the larger the share ``extreme`` of scores at a bound.
    """
    if n < 2:
        return None
    largest = mean * (1 - mean)
    if variance == 0 and largest > _TINY:
        return mean, mean
    ratio = variance / largest if largest > _TINY else 1.0
    if ratio < 1:
        ratio = min(1.0, ratio + (1 - ratio) * (extreme + ratio / 2) / math.sqrt(n))
    weight = ratio * _quantile(freedom, level) ** 2 / freedom
    centre = (mean + weight / 2) / (1 + weight)
    half = math.sqrt(weight * largest + weight**2 / 4) / (1 + weight)
    return max(0.0, min(centre - half, mean)), min(1.0, max(centre + half, mean))


def correlation_interval(first: Array, second: Array, *, how: str, level: float) -> Interval | None:
    """Interval of the ``pearson`` or ``spearman`` correlation of two columns (n,)."""
    n = len(first)
    if n < 4:
        return None
    r, influence = correlation_influence(first, second, how=how)
    inner = _inside(r, n)
    own = float(influence.std()) / (1 - inner**2)
    usual = math.sqrt(1 + inner**2 / 2) if how == "spearman" else 1.0
    half = float(ndtri((1 + level) / 2)) * max(own, usual) / math.sqrt(n - 3)
    centre = math.atanh(inner)
    return min(math.tanh(centre - half), r), max(math.tanh(centre + half), r)


def correlation_influence(first: Array, second: Array, *, how: str) -> tuple[float, Array]:
    """A correlation, and how far each pair moves it (n,): the correlation's values per pair.

    The standard deviation of the influence values, over the root of n, is the standard error; that
    of the difference of two systems' influence values gives the error of their difference.
    """
    from scipy.stats import rankdata

    ranked = how == "spearman"
    a, b = (_standard(rankdata(each) if ranked else each) for each in (first, second))
    r = max(-1.0, min(1.0, float((a * b).mean())))
    inner = _inside(r, len(a))
    if not ranked:
        return r, _jackknife(a, b, inner) * (1 - inner**2)
    moved = a * b - inner / 2 * (a**2 + b**2) + _rank_influence(a, b) + _rank_influence(b, a)
    return r, moved - inner * (_rank_influence(a, a) + _rank_influence(b, b))


def _inside(r: float, n: int) -> float:
    """A correlation whose Fisher's z is finite, also where all pairs are on a line."""
    return min(max(r, 1 / n**2 - 1), 1 - 1 / n**2)


def _jackknife(a: Array, b: Array, r: float) -> Array:
    """How each pair moves Fisher's z: n − 1 times the difference without the pair."""
    n = len(a)
    step = n / (n - 1)
    spread = np.sqrt(np.maximum(_TINY, (n - step * a**2) * (n - step * b**2)))
    without = (n * r - step * a * b) / spread
    bound = 1 - 1 / n**2
    moved: Array = (n - 1) * (math.atanh(r) - np.arctanh(np.clip(without, -bound, bound)))
    return moved


def _standard(values: Array) -> Array:
    scaled: Array = (values - values.mean()) / values.std()
    return scaled


def _rank_influence(ranks: Array, other: Array) -> Array:
    """How each value moves the ranks of the others: mean of (1[r_i <= r_j] - F(r_j)) other_j."""
    from scipy.stats import rankdata

    order = np.argsort(ranks, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(other[order])])
    ascending = ranks[order]
    below = sums[np.searchsorted(ascending, ranks, side="left")]
    upto = sums[np.searchsorted(ascending, ranks, side="right")]
    n = len(ranks)
    above = (sums[-1] - (below + upto) / 2) / n
    scale = n / rankdata(ranks).std()  # of a rank's share of n, in standard deviations
    return np.asarray((above - above.mean()) * scale)


def _quantile(freedom: int, level: float) -> float:
    return float(stdtrit(freedom, (1 + level) / 2))


def excludes_zero(interval: Interval) -> bool:
    """Return whether 0 is outside an interval, ends included."""
    return not interval[0] <= 0 <= interval[1]


def no_worse(interval: Interval | None, margin: float) -> bool:
    """Return whether a difference's interval leaves out losses of ``margin`` or more."""
    return interval is not None and interval[0] > -margin


def within(interval: Interval | None, margin: float) -> bool:
    """Return whether a difference's interval is within ±``margin``: all that shows equivalence."""
    return interval is not None and -margin < interval[0] and interval[1] < margin


def interval_words(methods: Iterable[str]) -> str:
    """Name the methods of the intervals shown together, as in ``Wilson's and Fisher's z``.

    Raises:
        ValueError: an unknown method; lists those that are known.
    """
    known = [one_of("interval", method, INTERVALS) for method in set(methods) if method]
    names = [name for method, name in INTERVALS.items() if method in known]
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]])) or "none"
