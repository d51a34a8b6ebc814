"""What the grades show of the difference between each two models.

A difference is shown once two things hold. The grades that are missing would not turn it, with a
chance of less than 5 % at any look. And the queries agree enough: Student's t of all grades, as it
is estimated, is beyond a limit, which is higher at early looks. Or two models are close: all grades
would not tell them apart, or their difference does not matter.

Whether other queries would agree, too, is a harder question. Its answer stands beside the verdict:
there, the error of the sample of grades counts as well.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy  # loads scipy.special on first use

from qwen3nb.analysis.judging.gains import ExpectedGains
from qwen3nb.analysis.judging.pool import Flags, GradingPool
from qwen3nb.analysis.judging.sign_test import PositiveTest
from qwen3nb.metrics.intervals import Array

ALPHA = 0.05
MARGIN = 0.01  # a mean difference that does not matter; 1 is the highest grade at the first rank
CLOSE_T = 2.0  # the absolute value of t below which all grades cannot tell two models apart
# This level holds for the last look. Earlier ones take a higher limit: the share of information, to
# a power. With the first one, two equal models are told apart in 12 to 15 % of sessions. With the
# second one, and the error of the sample of grades, in at most 5 %, for up to twice the grades.
_LAST_LEVEL = 0.0125
_EARLY_POWER = 0.4
_GENERAL_EARLY_POWER = 0.15
_LEAST_SHARE = 1e-6  # of information
_LEAST_VARIANCE = 1e-18  # of the same difference on every query
_MOST_VARIANCE = 1e100  # where nothing is known
_ROUNDING = 1e-9  # a sum of weighted gains that is 0
_ENOUGH_RELEVANT = 8  # grades above 0, after which the highest of them is taken for the scale's
_BETTER, _WORSE, _BELOW, _ABOVE = range(4)  # what each of four gamblers bets on
# The least sums that stakes are made for: absolute values of t, and a share of the closeness. Most
# of the capital is for a t that is just enough; the rest is for clear differences.
_TARGETS_OF_T = np.array([4.0, 10.0])
_SHARES = np.array([0.85, 0.15])
_TARGET_CLOSENESS = 0.75
_MOST_SPREAD = 0.25  # of a difference over samples of queries, as a share of what is open
_CAUTION = 2.0  # standard errors, by which an estimate must be above these sums to count
_PRIOR_DRAWS = 24.0  # as many draws as the first guess of the noise counts
_ALL = slice(None)


@dataclass
class Plan:
    """With what chances pairs are drawn, until it is made anew.

    N pairs, C comparisons of two models, H highest grades that may be in use, from 1.
    """

    is_compared: Flags  # (C,): whether further grades are for this comparison
    sizes: Array  # (N,): chances are in proportion to them; 0 if not to be graded
    gains: Array  # (N,): expected
    total: float  # of the sizes
    rests: Array  # (C, Q): sum of the expected weighted gains of what is open, by query
    lowest: Array  # (H, C): the least that a weighted gain is above its expectation, over its size
    highest: Array  # (H, C): the most


@dataclass(frozen=True, eq=False)
class Draw:
    """A pair that was drawn, with the state of that moment, on which a bet on it rests."""

    pair: int
    plan: Plan
    scale: float  # 1 over its chance
    by_query: Array  # (C, Q): what was known and expected of each difference, by query
    skipped_low: Array  # (C,): the least that pairs add which nobody could grade
    skipped_high: Array  # (C,)
    total: float  # of the sizes of the plan
    stakes: Array  # (C, 4, K): of each gambler; see `sign_test`


class Differences:
    """The differences between each two of M models: C = M (M - 1) / 2 of them.

    A difference is the DCG of the second model minus that of the first, over all queries. The first
    M - 1 have the model in use as their first.
    """

    def __init__(self, pool: GradingPool, highest_grade: int) -> None:
        models = np.vstack([np.zeros(len(pool)), pool.weights])
        self.firsts, self.seconds = np.triu_indices(len(models), k=1)
        self.weights = models[self.seconds] - models[self.firsts]  # (C, N)
        self.family = len(pool.candidates)
        self.highest_grade = highest_grade
        self.query_numbers = _query_numbers(pool)  # (N,)
        self.queries = len(set(pool.queries))
        count = len(self.weights)
        self.totals = np.zeros(count)  # of what is graded
        self._skipped_low = np.zeros(count)  # the least that skipped pairs can add
        self._skipped_high = np.zeros(count)
        self._by_query = np.zeros((count, self.queries))  # of what is graded
        self._open_counts = np.count_nonzero(self.weights, axis=1)
        # For each grade that may be the highest.
        self._tests = PositiveTest(_SHARES, highest_grade, count, 4)
        # Of squared distances of estimates from their expectations, over squared sizes of the plan.
        self._noise_sums = np.full(count, _PRIOR_DRAWS)  # 1 at first
        self._noise_counts = _PRIOR_DRAWS
        self._relevant_count = 0  # grades above 0
        self._top_grade = 1  # the highest so far
        self._draws = np.zeros(count)
        self._precisions = np.zeros(count)  # sum of the weights of all estimates
        self._means = np.zeros((count, self.queries))  # weighted mean of all estimates, by query
        # Of the difference that all grades would show, over samples of queries.
        self._variances = np.zeros(count)

    def plan(self, gains: ExpectedGains, is_open: Flags, is_compared: Flags) -> Plan:
        """Return the chances of what is open, for the sake of some comparisons."""
        weights = self.weights
        expected_gains = gains.means()
        strength = np.sqrt(np.sum(weights[is_compared] ** 2, axis=0))
        sizes = strength * gains.sizes() * is_open
        is_drawn = sizes > 0
        expected = weights[:, is_drawn] * expected_gains[is_drawn]
        by_grade = np.arange(1, self.highest_grade + 1)[:, np.newaxis, np.newaxis]
        lowest_gains = np.minimum(0.0, weights[:, is_drawn] * by_grade) - expected
        highest_gains = np.maximum(0.0, weights[:, is_drawn] * by_grade) - expected
        return Plan(
            is_compared=is_compared,
            sizes=sizes,
            gains=expected_gains,
            total=float(sizes.sum()),
            rests=np.stack([self._sum_by_query(row, is_drawn) for row in expected]),
            lowest=(lowest_gains / sizes[is_drawn]).min(axis=2, initial=0.0),
            highest=(highest_gains / sizes[is_drawn]).max(axis=2, initial=0.0),
        )

    def estimate_variances(self, gains: ExpectedGains, is_open: Flags) -> None:
        """Estimate how much each difference by all grades varies over samples of queries."""
        means = gains.means() * is_open
        variances = np.maximum(gains.squares() * is_open - means**2, 0.0)
        for row, weights in enumerate(self.weights):
            expected = self._by_query[row] + self._sum_by_query(weights * means)
            unknown = float(weights**2 @ variances)
            self._variances[row] = _variances(expected) + unknown

    def _sum_by_query(self, values: Array, pairs: Flags | slice = _ALL) -> Array:
        """Return the sum of the values of some pairs by query (Q,)."""
        numbers = self.query_numbers[pairs]
        sums = np.bincount(numbers, weights=values, minlength=self.queries)
        return np.asarray(sums, dtype=float)

    def draw(self, pair: int, plan: Plan) -> Draw:
        """Return the draw of a pair now, to bet on once it is graded."""
        return Draw(
            pair=pair,
            plan=plan,
            scale=plan.total / plan.sizes[pair],
            by_query=self._by_query + plan.rests,
            skipped_low=self._skipped_low.copy(),
            skipped_high=self._skipped_high.copy(),
            total=plan.total,
            stakes=self._stakes(plan.total),
        )

    def _stakes(self, total: float) -> Array:
        """Return the stakes on the next draw (C, 4, K): guessed sums over a guessed variance."""
        noise = np.maximum(self._noise_sums / self._noise_counts, _LEAST_VARIANCE)
        estimates = self._means.sum(axis=1)
        errors = np.sqrt(noise / np.maximum(self._precisions, _LEAST_VARIANCE))
        close = np.maximum(*self._closeness())
        sums = np.stack([estimates, -estimates, close - estimates, close + estimates], axis=1)
        sure_sums = sums - _CAUTION * errors[:, np.newaxis]
        spreads = np.minimum(np.sqrt(self._variances), _MOST_SPREAD * total)
        targets = np.empty((*sums.shape, len(_TARGETS_OF_T)))
        targets[:, :_BELOW] = np.outer(spreads, _TARGETS_OF_T)[:, np.newaxis]
        targets[:, _BELOW:] = (_TARGET_CLOSENESS * close)[:, np.newaxis, np.newaxis]
        guesses = np.maximum(targets, sure_sums[..., np.newaxis])
        variances = noise * total**2
        return np.asarray(guesses / variances[:, np.newaxis, np.newaxis])

    def bet(self, draw: Draw, *, low: int, high: int) -> None:
        """Let the gamblers bet on a drawn pair, whose gain is between ``low`` and ``high``.

        Others may have graded since the draw. The bet rests on what was known then.
        """
        pair, plan = draw.pair, draw.plan
        weights = self.weights[:, pair]
        base = draw.by_query.sum(axis=1)
        expected = weights * plan.gains[pair]
        ends = np.stack([weights * low - expected, weights * high - expected]) * draw.scale
        lower = base + draw.skipped_low + ends.min(axis=0)
        upper = base + draw.skipped_high + ends.max(axis=0)
        least = base + draw.skipped_low + draw.total * plan.lowest
        most = base + draw.skipped_high + draw.total * plan.highest
        close = np.maximum(*self._closeness())
        bounds = np.stack([least, -most, close - most, close + least], axis=2)
        self._tests.bet(
            np.stack([lower, -upper, close - upper, close + lower], axis=1),
            least=np.where(plan.is_compared[:, np.newaxis], bounds, 0.0),
            stakes=draw.stakes,
        )
        if low == high:
            estimates = draw.by_query.copy()
            estimates[:, self.query_numbers[pair]] += ends[0]
            self._average(estimates, draw)
            self._noise_sums += (ends[0] / draw.total) ** 2
            self._noise_counts += 1

    def _average(self, estimates: Array, draw: Draw) -> None:
        """Take the estimates of a draw into their mean; the less is open, the more they weigh."""
        is_compared = draw.plan.is_compared
        weight = is_compared / draw.total**2
        self._draws += is_compared
        self._precisions += weight
        shares = weight / np.maximum(self._precisions, weight + _LEAST_VARIANCE)
        self._means += shares[:, np.newaxis] * (estimates - self._means)

    @property
    def _scale(self) -> int:
        """The highest grade that is in use, as far as is known: some graders give only 0 and 1."""
        if self._relevant_count < _ENOUGH_RELEVANT:
            return self.highest_grade
        return self._top_grade

    def add(self, pair: int, grade: int) -> None:
        """Add a grade to what is known; a negative one takes it back."""
        self._relevant_count += grade > 0
        self._top_grade = max(self._top_grade, grade)
        gains = self.weights[:, pair] * grade
        self.totals += gains
        self._by_query[:, self.query_numbers[pair]] += gains

    def close(self, pair: int, plan: Plan) -> None:
        """Note that a pair is no longer open, and take it out of the plan."""
        weights = self.weights[:, pair]
        self._open_counts -= weights != 0
        if plan.sizes[pair] > 0:
            plan.rests[:, self.query_numbers[pair]] -= weights * plan.gains[pair]
            plan.total -= plan.sizes[pair]
            plan.sizes[pair] = 0.0

    def set_aside(self, pair: int, count: int = 1) -> None:
        """Note that nobody could grade a pair; a count of -1 takes it back."""
        extremes = self.weights[:, pair] * self.highest_grade * count
        self._skipped_low += np.where(self.weights[:, pair] < 0, extremes, 0)
        self._skipped_high += np.where(self.weights[:, pair] > 0, extremes, 0)

    def _closeness(self) -> tuple[float, Array]:
        """Return the difference that does not matter, and those that queries cannot tell (C,)."""
        margin = MARGIN * self._scale * self.queries
        if self.queries < 2:
            return margin, np.zeros(len(self.weights))
        return margin, CLOSE_T * np.sqrt(self._variances)

    def _p_values(self, is_complete: Flags) -> Array:
        """Return the p-values of what each gambler bets against (C, 4); see `Verdicts`."""
        p_values = np.minimum(1.0, self.family * self._tests.p_values[self._scale - 1])
        lowest, highest = self.totals + self._skipped_low, self.totals + self._skipped_high
        # With nothing left to grade, the sign is known.
        p_values[is_complete & (lowest > _ROUNDING), _BETTER] = 0.0
        p_values[is_complete & (highest < -_ROUNDING), _WORSE] = 0.0
        return np.asarray(p_values)

    def _information(self, variances: Array, is_complete: Flags) -> Array:
        """Return the share of a difference's variance that would be left with all grades (C,)."""
        shares = np.minimum(1.0, self._variances / np.maximum(variances, _LEAST_VARIANCE))
        return np.where(is_complete, 1.0, np.maximum(shares, _LEAST_SHARE))

    def verdicts(self) -> "Verdicts":
        """Return what the grades show of each difference."""
        is_complete = self._open_counts == 0
        p_values = self._p_values(is_complete)
        by_query = np.where(is_complete[:, np.newaxis], self._by_query, self._means)
        estimates = by_query.sum(axis=1)
        variances = _variances(by_query)
        is_seen = is_complete | (self._draws > 1)
        z = np.where(is_seen, _ratios(estimates, variances), 0.0)
        t = _ratios(estimates, self._variances)
        information = self._information(variances, is_complete)
        limit = last_limit(self.queries, self.family)
        limits = limit / information**_EARLY_POWER
        is_better = (p_values[:, _BETTER] <= ALPHA) & (t >= limits) & is_seen
        is_worse = (p_values[:, _WORSE] <= ALPHA) & (t <= -limits) & is_seen
        is_between = p_values[:, _BELOW:].max(axis=1) <= ALPHA
        is_close = (is_between | is_complete) & ~is_better & ~is_worse
        margin, spread = self._closeness()
        return Verdicts(
            p_values=p_values,
            estimates=estimates,
            t=t,
            z=z,
            is_general=np.abs(z) >= limit / information**_GENERAL_EARLY_POWER,
            is_complete=is_complete,
            is_better=is_better,
            is_worse=is_worse,
            is_close=is_close,
            is_equal=is_close & (np.abs(estimates) <= margin) & (spread <= margin),
        )


@dataclass(frozen=True)
class Verdicts:
    """What the grades show of each of C differences."""

    # Of "not better", "not worse", "not below" and "not above" the closeness (C, 4), corrected over
    # the candidates and valid at every look.
    p_values: Array
    estimates: Array  # (C,): what all grades would show
    t: Array  # (C,): about Student's t of all grades over the queries
    z: Array  # (C,): estimates over their errors, of the sample of grades and that of queries
    is_general: Flags  # (C,): whether other queries would agree, too; valid at every look
    is_complete: Flags  # (C,): whether nothing is open that counts
    is_better: Flags  # (C,): whether the second model is shown to be better than the first
    is_worse: Flags  # (C,)
    is_close: Flags  # (C,): whether the grades show neither, and more would not either
    is_equal: Flags  # (C,): whether the two are close because they differ by less than the margin

    @property
    def is_decided(self) -> Flags:
        """Whether no further grade is needed for a difference (C,)."""
        return self.is_better | self.is_worse | self.is_close


@lru_cache
def last_limit(queries: int, family: int) -> float:
    """Return the absolute value of t by all grades from which two models are told apart."""
    return float(scipy.special.stdtrit(max(1, queries - 1), 1 - _LAST_LEVEL / 2 / family))


def _variances(by_query: Array) -> Array:
    """Return the variance of sums over queries (..., Q), over samples of queries."""
    queries = by_query.shape[-1]
    if queries < 2:  # nothing is known of other queries
        return np.full(by_query.shape[:-1], _MOST_VARIANCE)
    return queries * by_query.var(axis=-1, ddof=1)


def _ratios(differences: Array, variances: Array) -> Array:
    """Return differences over the roots of their variances; 0 for a difference of 0."""
    is_none = np.abs(differences) <= _ROUNDING
    return np.where(is_none, 0.0, differences / np.sqrt(np.maximum(variances, _LEAST_VARIANCE)))


def _query_numbers(pool: GradingPool) -> Array:
    """Return the number of the query of each pair (N,), from 0."""
    numbers = {query: number for number, query in enumerate(dict.fromkeys(pool.queries))}
    return np.array([numbers[query] for query in pool.queries], dtype=int)
