"""Paired tests, intervals and effect sizes over queries.

Two systems answered the same queries, so differences are taken per query, and queries are
resampled. Every function takes two columns of equal length; functions that draw random numbers take
a seed. A column is an array, a list, a Series, a dictionary by query, or a data frame of one
column. Those with names of queries are paired by them, others by position
(`qwen3nb.metrics.columns`). Without a second column, the first one has the differences, or is a
data frame of two columns.

Degenerate samples have defined results::

    equal systems           difference 0, p = 1 in every test; the interval is not a point, since a
                            tie on these queries does not imply a tie on all
    constant differences    likewise; the permutation test is valid; the t-test and d_z are
                            undefined, and the reason is given
    a single query          no interval, permutation p = 1, no t-test

References:
    Efron and Tibshirani 1993, chapters 13 to 15; Phipson and Smyth 2010 (a p-value of
    random permutations is (b + 1) / (m + 1), never 0); Schuirmann 1987 (equivalence);
    Cohen 1988 (d_z, power).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy  # loads scipy.stats on first use, which takes a second
from numpy.typing import ArrayLike, NDArray

from qwen3nb.analysis.stats import resampling
from qwen3nb.metrics import intervals
from qwen3nb.metrics.columns import Column, in_order_of, numbers, two_columns
from qwen3nb.metrics.intervals import Array, Interval

CONSTANT = "the differences are all the same, so they have no spread to test against"
SINGLE = "a single query has no spread"
_SHARE_TO_SHOW = 0.8  # of new samples show equivalence with the number of queries needed
_MOST_DOUBLINGS = 59  # of the number of queries
_MOST_DEVIATIONS = 9.0  # from the mean, beyond which nothing is counted
_SAMPLES = 2000  # simulated, of rare wins
_MANY_WINS = 400  # from so many on, their mean is nearly normal


@dataclass(frozen=True)
class MeanDifference:
    """A mean difference with its interval."""

    difference: float  # mean of a - b
    interval: Interval | None  # ends of the widened Student's interval; None for a single query
    level: float  # nominal coverage, 0.95 by default
    n: int  # number of queries
    undefined: str = ""  # why there is no interval, or empty


@dataclass(frozen=True)
class PermutationResult:
    """A mean difference with the p-value of a permutation test."""

    difference: float  # mean of a - b
    # two-sided: the share of all sign flips, or (b + 1) / (m + 1) of m random ones
    p_value: float
    n: int  # number of queries


@dataclass(frozen=True)
class TestResult:
    """The result of a test."""

    __test__ = False  # not a pytest test

    statistic: float | None  # t; None if it has no finite value
    p_value: float | None  # two-sided; None if undefined
    n: int  # number of queries
    undefined: str = ""  # why there is no value, or empty


@dataclass(frozen=True)
class EffectSize:
    """Size of a difference, without a test."""

    difference: float  # mean of a - b
    # mean over standard deviation (ddof = 1) of the differences; 0 for equal systems, None if the
    # standard deviation is 0 or undefined
    d_z: float | None
    won: int  # queries on which a is above b; ``tied`` and ``lost`` likewise
    tied: int
    lost: int

    @property
    def n(self) -> int:
        """Number of queries."""
        return self.won + self.tied + self.lost


@dataclass(frozen=True)
class EquivalenceResult:
    """Whether the interval of a difference lies within a margin."""

    difference: float  # mean of a - b
    margin: float  # differences smaller than this do not matter
    # interval of the difference, as shown on pages; None for a single query
    interval: Interval | None
    no_worse: bool  # whether a is non-inferior: the interval ends above -margin
    equivalent: bool  # whether the interval lies within ±margin
    alpha: float  # 1 - level of the interval
    n: int  # number of queries
    # number of queries like these needed to show it, see `queries_to_show`
    queries_needed: int | None
    undefined: str = ""  # why there is no interval, or empty


def mean_difference(
    a: Column,
    b: Column | None = None,
    *,
    level: float = resampling.LEVEL,
    cluster: ArrayLike | None = None,
) -> MeanDifference:
    """Return the mean of a − b over queries, with its interval as shown on pages.

    Student's interval, widened where the differences are skewed or hardly spread
    (`metrics.intervals.difference_interval`). See `qwen3nb.analysis.calibration` for measured
    coverages, also of Student's and bootstrap intervals, which are too narrow where few queries
    differ.

    Args:
        a: scores of one system; or the differences, without ``b``.
        b: scores of the other, of the same queries.
        level: nominal coverage of the interval.
        cluster: cluster of each query; queries of one cluster are dependent (see
            `qwen3nb.analysis.stats.resampling`). By default, queries are independent.

    Raises:
        ValueError: columns of different or zero length, or of other queries; a value that is not
            finite; or a level outside 0 to 1.
    """
    differences = _differences(a, b, level=level)
    clusters = _clusters(a, cluster)
    units = resampling.cluster_values(differences, clusters, level=level)
    interval = intervals.difference_interval(units, level=level)
    undefined = "" if interval else SINGLE
    return MeanDifference(
        difference=float(differences.mean()),
        interval=interval,
        level=level,
        n=len(differences),
        undefined=undefined,
    )


def permutation_test(
    a: Column,
    b: Column | None = None,
    *,
    n_resamples: int = resampling.DRAWS,
    seed: resampling.Seed = 0,
    cluster: ArrayLike | None = None,
) -> PermutationResult:
    """Two-sided paired permutation test of the mean of a − b (sign flips).

    Exact if all sign flips are no more than ``n_resamples``, as of 13 queries.

    Args:
        a: scores of one system; or the differences, without ``b``.
        b: scores of the other, of the same queries.
        n_resamples: number of random sign flips.
        seed: seed of the sign flips.
        cluster: as in `mean_difference`: the signs of a cluster flip together.

    Raises:
        ValueError: as in `mean_difference`.
    """
    differences = _differences(a, b)
    clusters = _clusters(a, cluster)
    unit_differences = resampling.cluster_values(differences, clusters, centred=False)
    # The differences as the scores of a system, compared with one that has 0 everywhere.
    columns = np.stack([unit_differences, np.zeros(len(unit_differences))], axis=1)
    (p,), _ = resampling.max_t_p_values(columns, [(0, 1)], n_resamples=n_resamples, seed=seed)
    return PermutationResult(float(differences.mean()), p, len(differences))


def t_test(a: Column, b: Column | None = None, *, cluster: ArrayLike | None = None) -> TestResult:
    """Paired t-test of the mean of a − b, two-sided (`scipy.stats.ttest_rel`).

    If queries have a ``cluster``, the standard error is cluster-robust (see `mean_difference`). It
    is Bell and McCaffrey's if one cluster is large (`resampling.large_cluster_error`).

    Raises:
        ValueError: as in `mean_difference`.
    """
    differences = _differences(a, b)
    cluster = _clusters(a, cluster)
    n = len(differences)
    if not differences.any():  # the two systems are equal
        return TestResult(statistic=0.0, p_value=1.0, n=n)
    units = resampling.cluster_values(differences, cluster)
    if len(units) == 1:
        return TestResult(statistic=None, p_value=None, n=n, undefined=SINGLE)
    if _constant(units):
        return TestResult(statistic=None, p_value=None, n=n, undefined=CONSTANT)
    clusters = np.arange(n) if cluster is None else cluster  # by default, one per query
    _, sizes = np.unique(clusters, return_counts=True)
    if not resampling.has_large_cluster(sizes):
        result = scipy.stats.ttest_1samp(units, 0.0)
        return TestResult(float(result.statistic), float(result.pvalue), n)
    # Bell and McCaffrey 2002: another standard error, and their degrees of freedom.
    mean = float(differences.mean())
    sums = resampling.cluster_values(differences - mean, cluster, centred=False)
    error, freedom = resampling.large_cluster_error(sums, sizes)
    statistic = mean / float(error)
    p_value = 2 * scipy.stats.t.sf(abs(statistic), freedom)
    return TestResult(statistic, float(p_value), n)


# Tests that `qwen3nb compare` shows beside the one that decides, uncorrected. By their names in its
# tables; a new one takes the same arguments as `t_test`.
FURTHER_TESTS = {"t-test": t_test}


def effect_size(a: Column, b: Column | None = None) -> EffectSize:
    """Cohen's d_z and the numbers of queries won, tied and lost by a.

    Raises:
        ValueError: as in `mean_difference`.
    """
    return effect_sizes(_differences(a, b)[None])[0]


def effect_sizes(differences: Array) -> list[EffectSize]:
    """Return the effect sizes of many pairs of systems, from differences of scores (pairs, n)."""
    n = differences.shape[1]
    means = differences.mean(axis=1).tolist()
    deviations = differences.std(axis=1, ddof=min(1, n - 1)).tolist()  # ddof 0 of a single query
    wins = np.count_nonzero(differences > 0, axis=1).tolist()
    losses = np.count_nonzero(differences < 0, axis=1).tolist()
    is_constant = _constant(differences)
    has_difference = np.any(differences, axis=1)
    sizes = []
    for pair, mean in enumerate(means):
        d_z: float | None = None
        if not has_difference[pair]:  # the two systems are equal
            d_z = 0.0
        elif not is_constant[pair]:
            d_z = mean / deviations[pair]  # Cohen 1988
        ties = n - wins[pair] - losses[pair]
        sizes.append(EffectSize(mean, d_z, won=wins[pair], tied=ties, lost=losses[pair]))
    return sizes


def _constant(differences: Array) -> NDArray[np.bool_]:
    """Whether the differences (…, n) are all equal, up to rounding."""
    largest = np.abs(differences).max(axis=-1)
    return np.asarray(np.ptp(differences, axis=-1) <= 1e-12 * np.maximum(1.0, largest))


def equivalence(
    a: Column, b: Column | None = None, *, margin: float, alpha: float = 0.05
) -> EquivalenceResult:
    """Return whether the 1 − alpha interval of a − b shows non-inferiority or equivalence.

    Two systems are equivalent if the interval is within ±``margin``. If the true difference equals
    the margin, this happens in about alpha / 2 of the samples of many queries, and in up to alpha
    of the samples of few, by the simulations in `qwen3nb.analysis.calibration`.

    Raises:
        ValueError: as in `mean_difference`, a margin that is not above 0, or an alpha
            outside 0 to 1.
    """
    differences = _differences(a, b, alpha=alpha)
    queries_needed = queries_to_show(differences, margin=margin, level=1 - alpha)
    ends = intervals.difference_interval(differences, level=1 - alpha)
    return EquivalenceResult(
        difference=float(differences.mean()),
        margin=margin,
        interval=ends,
        no_worse=intervals.no_worse(ends, margin),
        equivalent=intervals.within(ends, margin),
        alpha=alpha,
        n=len(differences),
        queries_needed=queries_needed,
        undefined="" if ends else SINGLE,
    )


def queries_to_show(
    differences: Array, *, margin: float, level: float = resampling.LEVEL
) -> int | None:
    """Return the number of queries that would show a difference within ±``margin``.

    This is the smallest m for which four of five new samples of m queries, with differences
    distributed like these (n,), have an interval within the margin; n if this sample has one. With
    the interval as long as these differences make it, the mean of m is normal around theirs. None
    if the mean is outside the margin, or for a single query.

    Raises:
        ValueError: a margin that is not above 0.
    """
    if not (margin > 0 and math.isfinite(margin)):
        raise ValueError(f"expected a margin above 0; got {margin}")
    n = len(differences)
    if n < 2 or abs(float(differences.mean())) >= margin:
        return None
    if intervals.within(intervals.difference_interval(differences, level=level), margin):
        return n

    def would_show(queries: int) -> bool:
        return _would_show(differences, queries, margin=margin, level=level)

    # Doubled until it is enough; the smallest number is then in the last half.
    sufficient_count = 2 * n
    while not would_show(sufficient_count):
        sufficient_count *= 2
        if sufficient_count > n * 2**_MOST_DOUBLINGS:
            return None
    too_few = sufficient_count // 2
    return too_few + bisect_left(range(too_few, sufficient_count), True, key=would_show)


def _would_show(differences: Array, queries: int, *, margin: float, level: float) -> bool:
    """Return whether most new samples of so many queries have an interval within ±``margin``."""
    # The interval of the same differences, if there were so many queries.
    (ends,) = intervals.difference_intervals(differences[None], level=level, queries=queries)
    deviation = float(differences.std(ddof=1))
    if ends is None or not deviation:  # without spread, all samples are alike
        return intervals.within(ends, margin)
    error = deviation / math.sqrt(queries)
    # The mean may rise, or fall, until one of the ends is at the margin.
    low, high = ends
    rise, fall = margin - high, margin + low
    # The probability that a normal mean moves by no more than that: Φ(rise) - Φ(-fall).
    share_of_samples = float(scipy.special.ndtr(rise / error) - scipy.special.ndtr(-fall / error))
    return share_of_samples >= _SHARE_TO_SHOW


def unseen_outlier_could_turn(differences: Array) -> bool:
    """Return whether rare queries missing in this sample (n,) could turn the sign of the mean.

    Queries with a share below q = 1 − 0.025^(1/n) are missing in a sample with a probability above
    0.025. If each has the largest difference of the other sign, they move the mean by q times its
    distance from there: ``r = 1 + |mean|`` for scores from 0 to 1. The sign may turn if ``q r >
    |mean|``, which neither a p-value nor an interval from this sample excludes.
    """
    mean = abs(float(differences.mean()))
    largest = max(1.0, float(np.abs(differences).max()))
    missing_share = 1 - 0.025 ** (1 / len(differences))
    distance = largest + mean
    return missing_share * distance > mean


def power(effect: float, *, deviation: float, n: int, alpha: float = 0.05) -> float:
    """Probability that a two-sided paired t-test detects a mean difference of ``effect``.

    From the noncentral t distribution (Cohen 1988, 2.5): n − 1 degrees of freedom,
    noncentrality ``effect * sqrt(n) / deviation``.
    """
    freedom = n - 1
    critical = float(scipy.stats.t.ppf(1 - alpha / 2, freedom))
    shift = effect * math.sqrt(n) / deviation  # noncentrality: the effect in standard errors
    upper_tail = scipy.stats.nct.sf(critical, freedom, shift)
    # As the upper tail of -shift, because scipy's nct.cdf is NaN there.
    lower_tail = scipy.stats.nct.sf(critical, freedom, -shift)
    return float(upper_tail + lower_tail)


def power_of_rare_wins(effect: float, *, deviation: float, n: int, alpha: float = 0.05) -> float:
    """Probability that a mean difference is significant if some queries are won and none is lost.

    Many samples then have too few wins, and the interval allows for losses that the sample lacks,
    so that the `power` of a t-test is not reached. The permutation test is at ``alpha``, the
    interval at 0.95. The lower of two, with the same mean and standard deviation:

    - all wins have the same size: exact, by the binomial distribution of their number;
    - small wins are more frequent than large ones, linearly: simulated, with 2,000 samples.

    Wins that would have to exceed 1 are 1, and the standard deviation is smaller.
    """
    mean_square = deviation**2 + effect**2  # E(x²) = variance + E(x)²
    # Equal wins: E(x) = chance · size, E(x²) = chance · size².
    size = min(1.0, mean_square / effect)
    chance = min(1.0, effect / size)
    power_if_equal = _power_of_equal_wins(size, chance=chance, n=n, alpha=alpha)
    # Unequal wins: E(x) = chance · largest / 3, E(x²) = chance · largest² / 6.
    largest = min(1.0, 2 * size)
    power_if_unequal = _power_of_unequal_wins(largest, effect=effect, n=n, alpha=alpha)
    return min(power_if_equal, power_if_unequal)


def _power_of_equal_wins(size: float, *, chance: float, n: int, alpha: float) -> float:
    expected = n * chance
    spread = math.sqrt(n * chance * (1 - chance))  # deviation of a binomial number
    # Every number of wins that is not nearly impossible.
    fewest_wins = max(0, math.floor(expected - _MOST_DEVIATIONS * spread))
    most_wins = min(n, math.ceil(expected + _MOST_DEVIATIONS * spread))
    wins = np.arange(fewest_wins, most_wins + 1)
    numbers = wins.astype(np.float64)
    # Of sizes, squares and cubes, by number of wins.
    sums = (numbers * size, numbers * size**2, numbers * size**3)
    means = sums[0] / n
    # Wins may be below the mean, all ties are: they are 0.
    wins_below = np.where(size < means, wins, 0)
    squares_below = wins_below * (size - means) ** 2 + (n - wins) * means**2
    is_significant = _wins_significant(wins, sums, squares_below, n=n, alpha=alpha)
    probabilities = scipy.stats.binom.pmf(wins, n, chance)
    return float(probabilities[is_significant].sum())


def _power_of_unequal_wins(largest: float, *, effect: float, n: int, alpha: float) -> float:
    """Sizes have the density ``2 (1 − x / largest) / largest``, whose mean is largest / 3."""
    chance = min(1.0, 3 * effect / largest)  # the mean win is a third of the largest
    if n * chance > _MANY_WINS:
        return 1.0  # nearly normal, so that `power` says it
    generator = np.random.default_rng(0)  # the same samples for every plan
    quantiles = generator.random(_SAMPLES)
    wins = scipy.stats.binom.ppf(quantiles, n, chance).astype(np.int64)
    # Inverse of the distribution F(x) = 1 - (1 - x / largest)²: (samples, most wins).
    sizes = largest * (1 - np.sqrt(generator.random((int(wins.max()), _SAMPLES)).T))
    is_won = np.arange(sizes.shape[1]) < wins[:, None]  # each sample has its number of wins
    sizes = np.where(is_won, sizes, 0.0)
    sums = (sizes.sum(axis=1), (sizes**2).sum(axis=1), (sizes**3).sum(axis=1))
    means = sums[0] / n
    is_below = is_won & (sizes < means[:, None])
    squares_below = (np.where(is_below, sizes - means[:, None], 0.0) ** 2).sum(axis=1)
    squares_below += (n - wins) * means**2  # of ties, which are 0
    return float(_wins_significant(wins, sums, squares_below, n=n, alpha=alpha).mean())


def _wins_significant(
    wins: NDArray[np.int64],
    sums: tuple[Array, Array, Array],
    squares_below: Array,
    *,
    n: int,
    alpha: float,
) -> NDArray[np.bool_]:
    """Whether samples of n queries, of which some are won and the others tie, are significant.

    Args:
        wins: their number in each sample.
        sums: of their sizes, and of the squares and cubes of these.
        squares_below: sum of squares of the deviations below the mean.
        n: number of queries of each sample.
        alpha: level of the permutation test.
    """
    means, squares, cubes = (total / n for total in sums)
    variances = np.maximum(0.0, squares - means**2)
    moments = intervals.Moments(
        means=means,
        variances=variances,
        to_sides=variances - 2 * squares_below / n,  # above the mean, less below it
        # The third central moment: E(x³) - 3 E(x) E(x²) + 2 E(x)³.
        cubes=cubes - 3 * means * squares + 2 * means**3,
    )
    ones = np.ones(len(wins))  # differences are from -1 to 1
    lower, _ = intervals.widened_ends(moments, -ones, ones, level=resampling.LEVEL, queries=n)
    # Of 2^wins sign flips, two are as extreme: all signs alike.
    p_values = np.ldexp(2.0, -wins)
    return np.asarray((p_values < alpha) & (lower > 0))


def minimum_detectable_effect(
    a: Column, b: Column | None = None, *, alpha: float = 0.05, power: float = 0.8
) -> float | None:
    """Minimum detectable effect, given the number of queries and the spread of a − b.

    This is the mean difference that a two-sided paired t-test at ``alpha`` detects with
    probability ``power``. None if the standard deviation of a − b is 0 or undefined (constant
    differences, or a single query).

    Raises:
        ValueError: as in `mean_difference`, or ``power`` not between alpha and 1.
    """
    differences = _differences(a, b, alpha=alpha)
    if not alpha < power < 1:
        raise ValueError(f"expected a power between alpha ({alpha}) and 1; got {power}")
    if _constant(differences):
        return None
    n, deviation = len(differences), float(differences.std(ddof=1))
    # From standard errors to the scale of scores.
    return _detectable(n, alpha=alpha, wanted=power) * deviation / math.sqrt(n)


@lru_cache
def _detectable(n: int, *, alpha: float, wanted: float) -> float:
    """Noncentrality at which the test reaches the power, in standard errors."""
    root = math.sqrt(n)

    # What the power lacks at a noncentrality; its root is the effect that is looked for.
    def missing(shift: float) -> float:
        return power(shift / root, deviation=1.0, n=n, alpha=alpha) - wanted

    # Nearly the answer: the quantiles of the level and of the power add up.
    guess = float(scipy.stats.t.ppf(1 - alpha / 2, n - 1) + scipy.stats.t.ppf(wanted, n - 1))
    high = 2 * guess
    while missing(high) <= 0:
        high *= 2
    return float(scipy.optimize.brentq(missing, 0.0, high, xtol=1e-10))


def _differences(a: Column, b: Column | None, **shares: float) -> Array:
    """The differences a − b; checks that each of ``shares``, such as a level, is in (0, 1)."""
    both = two_columns(a)
    if b is None and both is not None:
        a, b = both
    a_scores = numbers(a)
    b_scores = np.zeros(a_scores.shape)  # if the first column has the differences
    if b is not None:
        b_scores = numbers(in_order_of(a, b))
    if a_scores.ndim != 1 or a_scores.shape != b_scores.shape or len(a_scores) == 0:
        raise ValueError(
            "expected two arrays of the same queries; "
            f"got shapes {a_scores.shape}, {b_scores.shape}"
        )
    differences: Array = a_scores - b_scores
    if not np.isfinite(differences).all():
        index = int(np.flatnonzero(~np.isfinite(differences))[0])
        raise ValueError(f"query {index} has a value that is not finite")
    for name, value in shares.items():
        if not 0 < value < 1:
            raise ValueError(f"expected {name} between 0 and 1; got {value}")
    return differences


def _clusters(a: Column, cluster: ArrayLike | None) -> ArrayLike | None:
    """The cluster of each query, in the order of the scores ``a``; None without clusters."""
    if cluster is None:
        return None
    ordered: ArrayLike = in_order_of(a, cluster)
    return ordered
