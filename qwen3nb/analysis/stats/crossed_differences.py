"""The difference of two trainings for new seeds and new queries, from a few of each.

Every model of an arm, a training with several seeds, answers the same queries: a crossed design.
The mean difference is uncertain because of the seeds, of the queries and, if prompts count as a
sample, of the prompts. Each part has a squared standard error and its own degrees of freedom:

::

    seeds     the means of the models over queries. With equally many seeds in both arms, Welch's
              degrees of freedom; otherwise each arm is a part of its own, with its seeds less one.
              Paired by seed: the differences of the pairs, with one less than their number.
    prompts   the mean difference with each prompt, with one less than their number
    queries   the widened interval of paired differences, see `qwen3nb.metrics.intervals`

The lengths of the parts' intervals add up in quadrature on each side (MOVER). An interaction, such
as that of seeds and queries, counts in every part that it belongs to, so that the interval is
rather too long. Satterthwaite's degrees of freedom of the sum are too many for few seeds: with two,
the interval would cover 0.88 to 0.95 (see `benchmarks/seeds.py`).

With fewer than 50 queries, skewed differences are not found: of n queries, the interval over the
queries errs by (n / 50)² of the nominal share. The exponent was chosen by simulation.

References:
    Zou and Donner 2008 (MOVER); Welch 1947 and Satterthwaite 1946 (degrees of freedom); Hsu 1938
    (unequal numbers); Baayen, Davidson and Bates 2008 (crossed random effects of queries).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # loads scipy.special on first use

from qwen3nb.metrics.intervals import (
    FEW_QUERIES,
    Array,
    Interval,
    difference_interval,
    excludes_zero,
)

_SMALLEST_P = 1e-6
_GRID = 24  # quantiles of each estimated variance
_HALVINGS = 40  # of the range of a p-value, on a logarithmic scale


@dataclass(frozen=True)
class Spread:
    """How far a sample, such as of seeds, moves a mean difference."""

    variance: float  # squared standard error
    freedom: float  # degrees of freedom

    def half_width(self, level: float) -> float:
        """Half of Student's interval at a level."""
        if not self.variance:
            return 0.0
        quantile = float(scipy.special.stdtrit(self.freedom, (1 + level) / 2))
        return quantile * math.sqrt(self.variance)


def spread_of_mean(values: Array) -> Spread:
    """Return the spread of the mean of two or more values (S,)."""
    count = len(values)
    return Spread(float(values.var(ddof=1)) / count, count - 1)


def seed_spreads(first: Array, second: Array, *, paired: bool = False) -> tuple[Spread, ...]:
    """Return how far the seeds move the difference of two arms; nothing for two single models.

    An arm of one model is taken as it is: nothing is said of its other seeds.

    Args:
        first: mean score of each model of the first arm (S,).
        second: the same of the second arm (R,).
        paired: whether the models at one place were trained with the same seed, which therefore
            moves both alike. Otherwise trainings count as independent, which is safe.

    Raises:
        ValueError: pairs of arms with different numbers of models.
    """
    if paired:
        if len(first) != len(second):
            raise ValueError(
                f"expected as many models in both arms; got {len(first)} and {len(second)}"
            )
        if len(first) == 1:
            return ()
        return (spread_of_mean(first - second),)
    spreads = tuple(spread_of_mean(means) for means in (first, second) if len(means) > 1)
    if len(first) == len(second) and spreads:
        return (_welch(*spreads),)
    # Welch's degrees of freedom are too many where the smaller arm varies more (Hsu 1938).
    return spreads


def _welch(first: Spread, second: Spread) -> Spread:
    """Return the spread of the difference of two independent means."""
    variance = first.variance + second.variance
    if variance == 0:
        return Spread(0.0, min(first.freedom, second.freedom))
    shares = first.variance**2 / first.freedom + second.variance**2 / second.freedom
    return Spread(variance, variance**2 / shares)


def crossed_interval(
    differences: Array, spreads: Sequence[Spread], *, level: float
) -> Interval | None:
    """Return the interval of a mean difference over queries and all else that was sampled.

    Args:
        differences: of the arms' means on each query, or cluster of queries (n,).
        spreads: of seeds and prompts; without any, the claim is about these models.
        level: such as 0.95.

    Returns:
        Its ends; None for a single query.
    """
    over_queries = difference_interval(
        differences, level=_level_of_queries(level, len(differences))
    )
    if over_queries is None:
        return None
    mean = float(differences.mean())
    low, high = over_queries
    half_widths = [spread.half_width(level) for spread in spreads]
    return mean - math.hypot(mean - low, *half_widths), mean + math.hypot(high - mean, *half_widths)


def _level_of_queries(level: float, queries: int) -> float:
    """Return the level of the interval over the queries: higher for few of them."""
    share = min(1.0, queries / FEW_QUERIES)
    return 1 - (1 - level) * share**2


def crossed_p_value(differences: Array, spreads: Sequence[Spread]) -> float:
    """Return the p-value of no difference: the level at which `crossed_interval` touches 0."""

    def is_shown(p_value: float) -> bool:
        interval = crossed_interval(differences, spreads, level=1 - p_value)
        return interval is not None and excludes_zero(interval)

    if not is_shown(1.0):
        return 1.0
    if is_shown(_SMALLEST_P):
        return _SMALLEST_P
    # Excluded at the larger p-value, and contained at the smaller.
    smaller, larger = math.log(_SMALLEST_P), 0.0
    for _ in range(_HALVINGS):
        middle = (smaller + larger) / 2
        if is_shown(math.exp(middle)):
            larger = middle
        else:
            smaller = middle
    return math.exp(larger)


def share_of_seeds(differences: Array, spreads: Sequence[Spread], *, level: float) -> float | None:
    """Return which share of the squared length of the interval is not from the queries.

    Of the longer side; None without an interval.
    """
    interval = crossed_interval(differences, spreads, level=level)
    if interval is None or not spreads:
        return None
    low, high = interval
    mean = float(differences.mean())
    longest = max(mean - low, high - mean)
    if longest == 0:
        return None
    squares = sum(spread.half_width(level) ** 2 for spread in spreads)
    return float(squares / longest**2)


@dataclass(frozen=True)
class CrossedDesign:
    """How many models and prompts a comparison has, and how far they spread."""

    seeds: tuple[int, int]  # models of both arms; 1 for a model that is taken as it is
    seed_deviation: float  # standard deviation of the mean score between seeds
    prompts: int = 0  # that count as a sample; 0 if none do
    prompt_deviation: float = 0.0  # standard deviation of the mean difference between prompts

    def power(self, effect: float, *, deviation: float, queries: int, alpha: float) -> float:
        """Return the probability that a true difference of ``effect`` is shown.

        The estimated spreads of seeds and prompts are averaged over their chi-squared
        distributions.

        Args:
            effect: the true difference.
            deviation: standard deviation of the difference between queries.
            queries: their number.
            alpha: level of the test.
        """
        if queries < 2:
            return 0.0
        level_of_queries = _level_of_queries(1 - alpha, queries)
        of_queries = Spread(deviation**2 / queries, queries - 1)
        half_of_queries = of_queries.half_width(level_of_queries)
        true_variances = [self.seed_deviation**2 / count for count in self.seeds if count > 1]
        freedoms = [count - 1 for count in self.seeds if count > 1]
        if self.prompts > 1:
            true_variances.append(self.prompt_deviation**2 / self.prompts)
            freedoms.append(self.prompts - 1)
        squares = self._squares_of_half_widths(true_variances, freedoms, alpha)
        half_widths = np.sqrt(half_of_queries**2 + squares)
        error = math.sqrt(of_queries.variance + sum(true_variances))
        if error == 0:
            return 1.0
        return float(scipy.special.ndtr((effect - half_widths) / error).mean())

    def _squares_of_half_widths(
        self, variances: Sequence[float], freedoms: Sequence[int], alpha: float
    ) -> Array:
        """Return squared half widths for a grid of estimated variances."""
        if not variances:
            return np.zeros(1)
        shares = (np.arange(_GRID) + 0.5) / _GRID
        estimates = [
            variance * scipy.special.chdtri(freedom, 1 - shares) / freedom
            for variance, freedom in zip(variances, freedoms, strict=True)
        ]
        grid = list(np.meshgrid(*estimates, indexing="ij"))
        first_seeds, second_seeds = self.seeds
        if first_seeds == second_seeds > 1:
            of_first, of_second, *others = grid
            freedom = first_seeds - 1
            total = of_first + of_second
            sum_of_squares = of_first**2 + of_second**2
            welch = np.full(total.shape, float(freedom))
            np.divide(freedom * total**2, sum_of_squares, out=welch, where=sum_of_squares > 0)
            squares = scipy.special.stdtrit(welch, 1 - alpha / 2) ** 2 * total
            other_freedoms = freedoms[2:]
        else:
            squares, others, other_freedoms = np.zeros(grid[0].shape), grid, freedoms
        for estimate, freedom in zip(others, other_freedoms, strict=True):
            squares = squares + scipy.special.stdtrit(freedom, 1 - alpha / 2) ** 2 * estimate
        return np.asarray(squares)
