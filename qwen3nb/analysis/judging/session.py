"""A session of grading: which pair to grade next, and what the grades show so far.

A pair of a query and a document is drawn at random. Its chance grows with what a grade of it can
change: with its weight, and with the gain that documents like it have had so far. Because the
chances are known, a small sample is enough to tell the sign of the difference; see `sign_test`.
"""

from dataclasses import dataclass

import numpy as np

from qwen3nb.analysis.judging.differences import Differences, Draw, Plan, Verdicts
from qwen3nb.analysis.judging.gains import ExpectedGains
from qwen3nb.analysis.judging.pool import Flags, GradingPool
from qwen3nb.metrics.intervals import Array

_POWERFUL_T = 2.8  # normal quantiles of 0.975 and 0.8, added
_RANGE_Z = 1.28  # normal quantile of 0.9: a range of 80 %
_STEADY_SHARE = 0.05  # of all grades: as many new ones leave the chances as they are


@dataclass(frozen=True)
class Standing:
    """What the grades show of a candidate against the model in use.

    `is_better`, `is_worse` and `is_close` exclude each other. While none holds, grades are missing.
    """

    candidate: str
    p_better: float  # of "it is not better", corrected over the candidates; valid at every look
    p_worse: float  # of "it is not worse"
    is_better: bool  # the other grades would not turn this, and the queries agree
    is_worse: bool
    is_general: bool  # other queries like these would agree, too
    is_close: bool  # the grades show neither, and more of them would not either
    is_equal: bool  # it is close, and differs by less than the margin
    is_beaten: bool  # it or another candidate is shown to be better than this one
    is_open: bool  # whether a grade is needed for it, against any model
    is_known: bool  # whether everything that counts is graded or skipped
    total: float  # DCG of the candidate minus that of the model in use, over what is graded
    estimate: float  # the same over all that can be graded, as the sample of grades shows it
    t: float  # about Student's t of all grades over the queries
    t_error: float  # of this t, by the samples of grades and queries
    queries: int

    @property
    def queries_needed(self) -> int | None:
        """About how many queries would show this difference; None if there is none.

        With as many, a difference of this size is significant in 80 % of samples.
        """
        if self.t == 0:
            return None
        return self._needed(abs(self.t))

    @property
    def queries_range(self) -> tuple[int, int | None]:
        """The range of `queries_needed`, at 80 %; its end is None if no number may be enough."""
        spread = _RANGE_Z * self.t_error
        fewest = self._needed(abs(self.t) + spread)
        if abs(self.t) <= spread:
            return fewest, None
        return fewest, self._needed(abs(self.t) - spread)

    def _needed(self, t: float) -> int:
        return int(np.ceil(self.queries * (_POWERFUL_T / t) ** 2))


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
        self.differences = Differences(pool, highest_grade)
        self._gains = ExpectedGains(pool)
        self._is_open = pool.counts  # (N,): neither graded nor skipped, and counts
        self._planned_at = 0  # grades when the chances were last computed
        self._draws: dict[str, Draw | None] = {}  # the next pair by grader, once drawn
        self._graders: set[str] = set()  # who has graded; what they are asked stays until then
        self._verdicts: Verdicts | None = None  # of the state, once computed
        self._plan = self._new_plan()

    def verdicts(self) -> Verdicts:
        """Return what the grades show of the difference between each two models."""
        if self._verdicts is None:
            self._verdicts = self.differences.verdicts()
        return self._verdicts

    def next_pair(self, grader: str = "") -> int | None:
        """Return the pair that a grader is asked next; None if the grades decide, or none is left.

        It is drawn after each grade of this grader, and stays the same until it is graded. Two
        graders get different ones, mostly.
        """
        if not self._plan.sizes.any():
            return None
        # After the end there was nothing to draw; another grade may have opened it again.
        if self._draws.get(grader) is None:
            self._draws[grader] = self._draw(grader)
        draw = self._draws[grader]
        return None if draw is None else draw.pair

    def _draw(self, grader: str) -> Draw | None:
        edges = np.cumsum(self._plan.sizes)
        if len(edges) == 0 or edges[-1] == 0:
            return None
        state = [self.seed, len(self.grades), len(self.skipped), *grader.encode()]
        place = np.random.default_rng(state).random() * edges[-1]
        pair = int(np.searchsorted(edges, place, side="right"))
        return self.differences.draw(pair, self._plan)

    def chances(self) -> Array:
        """Return the chance of each pair to be the next one (N,); all 0 if nothing is open.

        It is in proportion to the pair's weight for the differences that are not decided, and to
        the expected size of its gain.
        """
        sizes = self._plan.sizes
        total = sizes.sum()
        if total == 0:
            return np.zeros(len(self.pool))
        return sizes / total

    def _new_plan(self) -> Plan:
        self._planned_at = len(self.grades) + len(self.skipped)
        self.differences.estimate_variances(self._gains, self._is_open)
        self._verdicts = None
        return self.differences.plan(self._gains, self._is_open, self._is_compared())

    def _is_compared(self) -> Flags:
        """Whether each difference is still to be shown (C,).

        That is none of a model than which another one is shown to be better.
        """
        differences = self.differences
        is_open = ~self.verdicts().is_decided
        for model in self._beaten():
            is_open &= (differences.firsts != model) & (differences.seconds != model)
        return is_open

    def _beaten(self) -> set[int]:
        """Return the models than which another one is shown to be better; 0 is that in use."""
        verdicts = self.verdicts()
        firsts = self.differences.firsts[verdicts.is_better]
        seconds = self.differences.seconds[verdicts.is_worse]
        return {*firsts.tolist(), *seconds.tolist()}

    def grade(self, pair: int, grade: int, *, grader: str = "") -> None:
        """Take the grade of a pair; a second one replaces the first.

        The test bets only on a pair that was drawn, for this grader or another one. Any other grade
        makes the rest smaller, without a bet.

        Raises:
            ValueError: no such grade.
        """
        if not 0 <= grade <= self.highest_grade:
            raise ValueError(f"expected a grade from 0 to {self.highest_grade}; got {grade}")
        self._bet(pair, grader, low=grade, high=grade)
        replaced = self.grades.get(pair)
        if replaced is not None:
            self._gains.add(pair, replaced, count=-1)
            self.differences.add(pair, -replaced)
        if pair in self.skipped:
            self.skipped.discard(pair)
            self.differences.set_aside(pair, -1)
        self._gains.add(pair, grade)
        self.differences.add(pair, grade)
        self.grades[pair] = grade
        self._close(pair, is_steady=replaced is None)

    def skip(self, pair: int, *, grader: str = "") -> None:
        """Set a pair aside; until it is graded, each test takes it for the worst that it can be."""
        if pair in self.grades or pair in self.skipped:
            return
        self._bet(pair, grader, low=0, high=self.highest_grade)
        self.skipped.add(pair)
        self.differences.set_aside(pair)
        self._close(pair)

    def _bet(self, pair: int, grader: str, *, low: int, high: int) -> None:
        """Bet for everybody for whom a pair was drawn, and forget what must be drawn anew."""
        self.next_pair(grader)
        self._graders.add(grader)
        kept_draws: dict[str, Draw | None] = {}
        for name, draw in self._draws.items():
            is_drawn = draw is not None and draw.pair == pair
            if draw is not None and is_drawn and name in self._graders:
                self.differences.bet(draw, low=low, high=high)
            elif name in self._graders:
                kept_draws[name] = draw
        self._draws = kept_draws

    def _close(self, pair: int, *, is_steady: bool = True) -> None:
        """Leave a pair out of what is open, and compute the chances anew when they change."""
        self._verdicts = None
        if self._is_open[pair]:
            self._is_open[pair] = False
            self.differences.close(pair, self._plan)
        count = len(self.grades) + len(self.skipped)
        is_old = count - self._planned_at > _STEADY_SHARE * count
        # Last, because it computes the verdicts, and a new plan computes them anew.
        if is_old or not is_steady or self._is_changed():
            self._plan = self._new_plan()
        for grader in self._graders - self._draws.keys():
            self._draws[grader] = self._draw(grader)

    def _is_changed(self) -> bool:
        """Whether other differences are still to be shown than when the chances were computed."""
        return not np.array_equal(self._plan.is_compared, self._is_compared())

    def standings(self) -> list[Standing]:
        """Return what the grades show of each candidate."""
        is_compared, beaten = self._is_compared(), self._beaten()
        standings = []
        for row in range(len(self.pool.candidates)):
            model = row + 1
            has_model = (self.differences.firsts == model) | (self.differences.seconds == model)
            is_open = bool(np.any(is_compared & has_model))
            standings.append(self._standing(row, is_beaten=model in beaten, is_open=is_open))
        return standings

    def _standing(self, row: int, *, is_beaten: bool, is_open: bool) -> Standing:
        """Return what the grades show of the candidate of a row of the weights."""
        verdicts = self.verdicts()
        t, z = float(verdicts.t[row]), float(verdicts.z[row])
        t_error = 1.0
        if z != 0:
            t_error = max(1.0, t / z)
        p_better, p_worse, _, _ = verdicts.p_values[row].tolist()
        return Standing(
            candidate=self.pool.candidates[row],
            p_better=p_better,
            p_worse=p_worse,
            is_better=bool(verdicts.is_better[row]),
            is_worse=bool(verdicts.is_worse[row]),
            is_general=bool(verdicts.is_general[row]),
            is_close=bool(verdicts.is_close[row]),
            is_equal=bool(verdicts.is_equal[row]),
            is_beaten=is_beaten,
            is_open=is_open,
            is_known=bool(verdicts.is_complete[row]),
            total=float(self.differences.totals[row]),
            estimate=float(verdicts.estimates[row]),
            t=t,
            t_error=t_error,
            queries=self.differences.queries,
        )
