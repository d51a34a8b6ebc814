"""A session of grading: which pair to grade next, and what the grades show so far.

A pair of a query and a document is drawn at random. Its chance grows with what a grade of it can
change: with its weight, and with the gain that documents of its ranks have had so far. Because the
chances are known, a small sample is enough to tell the sign of the difference; see `sign_test`.
"""

from dataclasses import dataclass

import numpy as np

from qwen3nb.analysis.judging.pool import DEPTH, GradingPool
from qwen3nb.analysis.judging.sign_test import PositiveTest
from qwen3nb.metrics.intervals import Array

ALPHA = 0.05
CLEAR_T = (
    2.0  # the absolute value of t from which the grades of all documents tell two models apart
)
_POWERFUL_T = 2.8  # normal quantiles of 0.975 and 0.8, added
_PRIOR_GRADES = 4  # as many grades as the prior of a rank counts
_PRIOR_GAIN = 0.2  # expected before the first grade, as a share of the highest
_ROUNDING = 1e-9  # a sum of weighted gains that is 0
_LEAST_SIZE = 0.25  # a rank's size of gains, of the largest: no chance becomes too small


@dataclass(frozen=True)
class Standing:
    """What the grades show of a candidate against the model in use."""

    candidate: str
    p_better: float  # of "it is not better", corrected over the candidates; valid at every look
    p_worse: float  # of "it is not worse"
    is_known: bool  # whether all that is not graded cannot change which of the two gains more
    total: float  # DCG of the candidate minus that of the model in use, over what is graded
    t: float  # Student's t of these differences over the queries
    queries: int

    def is_better(self, alpha: float = ALPHA) -> bool:
        """Whether the grades show that it is better than the model in use.

        The other grades would not turn this, and the queries agree enough: `t`.
        """
        return (self.is_known or self.p_better <= alpha) and self.t >= CLEAR_T

    def is_worse(self, alpha: float = ALPHA) -> bool:
        """Whether the grades show that it is worse than the model in use."""
        return (self.is_known or self.p_worse <= alpha) and self.t <= -CLEAR_T

    def is_decided(self, alpha: float = ALPHA) -> bool:
        """Whether no further grade is needed for it."""
        return self.is_known or self.is_better(alpha) or self.is_worse(alpha)

    @property
    def queries_needed(self) -> int | None:
        """About how many queries would show this difference; None if there is none.

        With as many, a difference of this size is significant in 80 % of samples.
        """
        if self.t == 0:
            return None
        return int(np.ceil(self.queries * (_POWERFUL_T / self.t) ** 2))


class GradingSession:
    """The state of a grading session, which grows by one grade at a time.

    The same pool, seed and grades give the same state, so that a file of grades is all that a
    session needs to go on.
    """

    def __init__(self, pool: GradingPool, *, seed: int, highest_grade: int = 3) -> None:
        self.pool = pool
        self.seed = seed
        self.highest_grade = highest_grade
        self.grades: dict[int, int] = {}  # by pair
        self.skipped: set[int] = set()  # pairs that nobody could grade
        self._known = np.zeros(len(pool))  # the grade of each pair; 0 without one
        self._gains = _ExpectedGains(pool, highest_grade)
        self._is_open = pool.counts  # (N,): neither graded nor skipped, and counts
        self._chances: Array | None = None  # of the state, once computed
        self._query_numbers = _query_numbers(pool)
        self._query_count = len(set(pool.queries))
        self._tests = [(PositiveTest(), PositiveTest()) for _ in pool.candidates]

    def next_pair(self, grader: str = "") -> int | None:
        """Return the pair that a grader is asked next; None if the grades decide, or none is left.

        It is drawn anew after each grade, and stays the same until then. Two graders who ask at
        once get different ones.
        """
        chances = self.chances()
        if not chances.any():
            return None
        state = [self.seed, len(self.grades), len(self.skipped), *grader.encode()]
        return int(np.random.default_rng(state).choice(len(chances), p=chances))

    def chances(self) -> Array:
        """Return the chance of each pair to be the next one (N,); all 0 if nothing is open.

        It is in proportion to the pair's weight for the candidates that are not decided, and to
        the expected size of its gain.
        """
        if self._chances is None:
            self._chances = self._compute_chances()
        return self._chances

    def _compute_chances(self) -> Array:
        undecided = [not standing.is_decided() for standing in self.standings()]
        weights = self.pool.weights[undecided]
        sizes = np.sqrt(np.sum(weights**2, axis=0)) * self._gains.sizes() * self._is_open
        total = sizes.sum()
        if total == 0:
            return np.zeros(len(self.pool))
        return sizes / total

    def grade(self, pair: int, grade: int, *, grader: str = "") -> None:
        """Take the grade of a pair; a second one replaces the first.

        The test bets only on the pair that was drawn for the grader. Any other grade makes the
        rest smaller, without a bet.

        Raises:
            ValueError: no such grade.
        """
        if not 0 <= grade <= self.highest_grade:
            raise ValueError(f"expected a grade from 0 to {self.highest_grade}; got {grade}")
        if pair == self.next_pair(grader):
            self._bet(pair, low=grade, high=grade)
        self._gains.add(pair, grade, replaced=self.grades.get(pair))
        self.grades[pair] = grade
        self._known[pair] = grade
        self.skipped.discard(pair)
        self._close(pair)

    def skip(self, pair: int, *, grader: str = "") -> None:
        """Set a pair aside; until it is graded, each test takes it for the worst that it can be."""
        if pair in self.grades:
            return
        if pair == self.next_pair(grader):
            self._bet(pair, low=0, high=self.highest_grade)
        self.skipped.add(pair)
        self._close(pair)

    def _close(self, pair: int) -> None:
        self._is_open[pair] = False
        self._chances = None

    def standings(self) -> list[Standing]:
        """Return what the grades show of each candidate."""
        return [self._standing(row) for row in range(len(self.pool.candidates))]

    def _standing(self, row: int) -> Standing:
        """Return what the grades show of the candidate of a row of the weights."""
        weights = self.pool.weights[row]
        better, worse = self._tests[row]
        lowest, highest = self._bounds(weights, self._ungraded())
        is_complete = not np.any(self._is_open & (weights != 0))
        family = len(self.pool.candidates)
        return Standing(
            candidate=self.pool.candidates[row],
            p_better=min(1.0, family * better.p_value),
            p_worse=min(1.0, family * worse.p_value),
            is_known=is_complete or lowest > _ROUNDING or highest < -_ROUNDING,
            total=float(weights @ self._known),
            t=self._student_t(weights),
            queries=self._query_count,
        )

    def _student_t(self, weights: Array) -> float:
        """Return Student's t over the queries of what is graded; 0 without a difference."""
        differences = np.bincount(
            self._query_numbers, weights=weights * self._known, minlength=self._query_count
        )
        if len(differences) < 2 or not np.any(np.abs(differences) > _ROUNDING):
            return 0.0
        error = differences.std(ddof=1) / np.sqrt(len(differences))
        if error < _ROUNDING:  # the same difference on every query
            return float(np.copysign(np.inf, differences[0]))
        return float(differences.mean() / error)

    def _ungraded(self) -> Array:
        """Whether each pair is open or skipped (N,)."""
        is_ungraded = self._is_open.copy()
        is_ungraded[list(self.skipped)] = True
        return is_ungraded

    def _is_skipped(self) -> Array:
        """Whether each pair is skipped (N,)."""
        is_skipped = np.zeros(len(self.pool), dtype=bool)
        is_skipped[list(self.skipped)] = True
        return is_skipped

    def _bounds(self, weights: Array, is_unknown: Array) -> tuple[float, float]:
        """Return the least and the largest sum of weighted gains.

        Pairs that are neither graded nor unknown count 0.
        """
        known = float(weights @ self._known)
        extremes = weights[is_unknown] * self.highest_grade
        return known + np.minimum(extremes, 0).sum(), known + np.maximum(extremes, 0).sum()

    def _bet(self, pair: int, *, low: int, high: int) -> None:
        """Let each test bet on a drawn pair, whose gain is between ``low`` and ``high``."""
        chances = self.chances()
        is_open, is_skipped = self._is_open, self._is_skipped()
        gains = self._gains.means()
        for row, (better, worse) in enumerate(self._tests):
            weights = self.pool.weights[row]
            lowest_known, highest_known = self._bounds(weights, is_skipped)
            expected = weights * gains
            rest = float(expected[is_open].sum())
            # How far the estimate can be from what is known and expected, for each open pair.
            extremes = np.stack([-expected, weights * self.highest_grade - expected])[:, is_open]
            corrections = extremes / chances[is_open]
            drawn = np.array([weights[pair] * low, weights[pair] * high])
            correction = (drawn - expected[pair]) / chances[pair]
            better.bet(
                lowest_known + rest + correction.min(),
                least=lowest_known + rest + corrections.min(),
            )
            worse.bet(
                -(highest_known + rest + correction.max()),
                least=-(highest_known + rest + corrections.max()),
            )


def _query_numbers(pool: GradingPool) -> Array:
    """Return the number of the query of each pair (N,), from 0."""
    numbers = {query: number for number, query in enumerate(dict.fromkeys(pool.queries))}
    return np.array([numbers[query] for query in pool.queries], dtype=int)


class _ExpectedGains:
    """The gain that is expected of a document by its best rank, from those graded so far."""

    def __init__(self, pool: GradingPool, highest_grade: int) -> None:
        self._ranks = pool.best_ranks
        self._counts = np.zeros(DEPTH)
        self._sums = np.zeros(DEPTH)
        self._squares = np.zeros(DEPTH)
        self._highest = highest_grade

    def add(self, pair: int, grade: int, *, replaced: int | None) -> None:
        """Take a grade of a pair, in place of an earlier one."""
        rank = self._ranks[pair]
        if replaced is not None:
            self._counts[rank] -= 1
            self._sums[rank] -= replaced
            self._squares[rank] -= replaced**2
        self._counts[rank] += 1
        self._sums[rank] += grade
        self._squares[rank] += grade**2

    def means(self) -> Array:
        """The expected gain of each pair (N,)."""
        return self._shrunk(self._sums, _PRIOR_GAIN * self._highest)[self._ranks]

    def sizes(self) -> Array:
        """The root of the expected squared gain of each pair (N,)."""
        squares = self._shrunk(self._squares, _PRIOR_GAIN * self._highest**2)
        sizes = np.sqrt(squares)
        return np.maximum(sizes, _LEAST_SIZE * sizes.max())[self._ranks]

    def _shrunk(self, sums: Array, prior: float) -> Array:
        """Return the mean of each rank, drawn towards the mean of all, and that to the prior."""
        overall = (sums.sum() + _PRIOR_GRADES * prior) / (self._counts.sum() + _PRIOR_GRADES)
        return (sums + _PRIOR_GRADES * overall) / (self._counts + _PRIOR_GRADES)
