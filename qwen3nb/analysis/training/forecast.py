"""What more training would bring, and whether that can be said.

Curves are fitted to the mean scores of the checkpoints (`qwen3nb.analysis.training.curves`). The
interval of a gain is the union of the intervals of all adequate curves, so it allows for not
knowing the shape.

A forecast is only made if it is tested: the best saturating curve through the earlier checkpoints
must foresee the last ones. A saturating curve must also still be adequate with them, and the
forecast reaches no farther than the test did.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import scipy  # loads scipy.special on first use

from qwen3nb.analysis.stats.resampling import LEVEL
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.analysis.training.curves import Course, adequate_curves
from qwen3nb.metrics.intervals import Array, Interval, possible_interval

FEWEST = 8  # checkpoints: six to fit, two to test
_FEWEST_TESTED = 2
_TEST_SHARE = 4  # a quarter of the checkpoints, the last ones, test the curve
TEST_ALPHA = 0.05  # of the test on the last checkpoints
_ADEQUATE = 0.95  # level of the test that leaves curves out
_SATURATING = 0.999  # level of the test that no curve is saturating
_DRAWN = 61  # places of the band
_SAME = 1e-9  # scores closer than this are the same


class Refusal(enum.Enum):
    """Why nothing is forecast."""

    FEW_CHECKPOINTS = "few checkpoints"
    FEW_QUERIES = "few queries"
    SAME_SCORES = "same scores"
    TOO_FAR = "too far"
    MISSED = "missed"
    TURNS = "turns"
    NO_CURVE = "no curve"


@dataclass(frozen=True)
class Foreseen:
    """A checkpoint that the curve had not seen."""

    place: float  # steps or tokens
    score: float
    interval: Interval  # what the curve foresaw, 95 % for all of them together

    @property
    def is_inside(self) -> bool:
        """Whether the interval has the score."""
        low, high = self.interval
        return low <= self.score <= high


@dataclass(frozen=True)
class Band:
    """The best curve, and the union of the intervals of all adequate ones."""

    places: tuple[float, ...]
    curve: tuple[float, ...]
    intervals: tuple[Interval, ...]


@dataclass(frozen=True)
class Forecast:
    """What more steps or tokens would bring, or why that is not said."""

    places: tuple[float, ...]  # steps or tokens of the checkpoints
    scores: tuple[float, ...]  # their means over queries, and over tasks
    more: float  # further steps or tokens
    queries: int
    refusal: Refusal | None = None
    gain: float | None = None  # of the best curve
    interval: Interval | None = None  # of the gain, 95 %
    score_interval: Interval | None = None  # of what a checkpoint there would score, 95 %
    tested: tuple[Foreseen, ...] = ()  # the last checkpoints, foreseen from the others
    p_value_of_test: float | None = None  # of what they scored, if the curve is right
    turn: float | None = None  # the checkpoint where the curve turns, if it does

    @property
    def is_stated(self) -> bool:
        """Whether a gain is forecast."""
        return self.refusal is None


def forecast(
    matrices: Sequence[ScoreMatrix], places: Sequence[float], *, more: float = 0
) -> Forecast:
    """Forecast the mean score over tasks, each with equal weight.

    Args:
        matrices: a task each, all with the same checkpoints as systems, in their order.
        places: steps or tokens of the checkpoints, increasing.
        more: further steps or tokens; by default `round_distance`.

    Raises:
        ValueError: no task, places that do not increase, or another number of checkpoints.
    """
    _check(matrices, places, more)
    course = Course.of(matrices, places)
    more = more or round_distance(places)
    queries = sum(len(matrix.queries) for matrix in matrices)
    about = Forecast(tuple(places), tuple(course.means.tolist()), more, queries)
    refusal = _refusal_of_scores(matrices, course, more)
    if refusal is not None:
        return replace(about, refusal=refusal)
    tested, p_value_of_test = _test(course)
    about = replace(about, tested=tested, p_value_of_test=p_value_of_test)
    curves = adequate_curves(course, np.array([places[-1] + more]), level=_SATURATING)
    if not curves.saturates.any():
        turn = _turn(course)
        refusal = Refusal.NO_CURVE if turn is None else Refusal.TURNS
        return replace(about, refusal=refusal, turn=turn)
    if p_value_of_test < TEST_ALPHA:
        return replace(about, refusal=Refusal.MISSED)
    curves = curves.adequate(_ADEQUATE)
    (interval,) = curves.intervals_of_gains()
    (score_interval,) = curves.intervals_of_scores()
    return replace(
        about,
        gain=float(curves.gains[curves.best, 0]),
        interval=interval,
        score_interval=possible_interval(score_interval, [matrix.scores for matrix in matrices]),
    )


def band(matrices: Sequence[ScoreMatrix], places: Sequence[float], *, more: float) -> Band:
    """Return the curves from the first checkpoint to where a forecast of `forecast` ends."""
    course = Course.of(matrices, places)
    drawn = np.linspace(places[0], places[-1] + more, _DRAWN)
    curves = adequate_curves(course, drawn, level=_ADEQUATE)
    levels = curves.levels[curves.best]
    return Band(tuple(drawn.tolist()), tuple(levels.tolist()), tuple(curves.intervals_of_levels()))


def round_distance(places: Sequence[float]) -> float:
    """Return about a tenth of the training, but at least its last interval, as a round number.

    It is no farther than the test of a curve looks ahead.

    >>> round_distance([0, 500, 1000]), round_distance(range(0, 12_001, 500))
    (500.0, 1000.0)
    """
    distance = max(places[-1] / 10, places[-1] - places[-2])
    distance = min(distance, reach(places))
    power = 10.0 ** math.floor(math.log10(distance))
    for digit in (5.0, 2.0):
        if digit * power <= distance:
            return digit * power
    return power


def reach(places: Sequence[float]) -> float:
    """Return how far the test looks ahead: from the last checkpoint that it sees to the end."""
    seen = max(1, len(places) - held_out(len(places)))
    return float(places[-1] - places[seen - 1])


def held_out(checkpoints: int) -> int:
    """Return how many of the last checkpoints test the curve."""
    return max(_FEWEST_TESTED, checkpoints // _TEST_SHARE)


def _check(matrices: Sequence[ScoreMatrix], places: Sequence[float], more: float) -> None:
    """Refuse arguments that have no meaning."""
    if not matrices:
        raise ValueError("expected the scores of one task or more; got none")
    if len(places) < 2 or any(second <= first for first, second in pairwise(places)):
        raise ValueError(f"expected two or more places that increase; got {list(places)}")
    if places[0] < 0 or more < 0:
        raise ValueError(f"expected steps or tokens of 0 or more; got {min(places[0], more):g}")
    for matrix in matrices:
        if len(matrix.systems) != len(places):
            raise ValueError(
                f"{matrix.task}: scores of {len(matrix.systems)} checkpoints for {len(places)} "
                "places; every task needs all checkpoints"
            )


def _refusal_of_scores(
    matrices: Sequence[ScoreMatrix], course: Course, more: float
) -> Refusal | None:
    """Return why no curve can be fitted or tested."""
    if len(course) < FEWEST:
        return Refusal.FEW_CHECKPOINTS
    if min(len(matrix.unit_names) for matrix in matrices) < 2:
        return Refusal.FEW_QUERIES
    if np.ptp(course.means) < _SAME:
        return Refusal.SAME_SCORES
    if more > reach(course.places.tolist()):
        return Refusal.TOO_FAR
    return None


def _test(course: Course) -> tuple[tuple[Foreseen, ...], float]:
    """Foresee the last checkpoints from the others; return them, and the p-value of the misses."""
    count = held_out(len(course))
    seen = len(course) - count
    later_places, scores = course.places[seen:], course.means[seen:]
    curves = adequate_curves(
        course.first(seen), later_places, level=_ADEQUATE, only_saturating=True
    )
    best = curves.best
    levels = curves.levels[best]
    covariance = curves.covariance_of_scores(best)
    freedom = float(curves.freedom[best])
    p_value = _p_value_of_misses(scores - levels, covariance, freedom)
    # Bonferroni: the intervals of all of them hold together.
    quantile = scipy.special.stdtrit(freedom, 1 - (1 - LEVEL) / 2 / count)
    lengths = quantile * np.sqrt(np.diag(covariance))
    tested = []
    for place, score, level, length in zip(
        later_places.tolist(), scores.tolist(), levels.tolist(), lengths.tolist(), strict=True
    ):
        tested.append(Foreseen(place, score, (level - length, level + length)))
    return tuple(tested), p_value


def _p_value_of_misses(misses: Array, covariance: Array, freedom: float) -> float:
    """Return the p-value of two tests, corrected: of all misses together, and of their mean.

    The first finds a checkpoint far away (Hotelling's form), the second a common drift.
    """
    count = len(misses)
    together = float(misses @ np.linalg.solve(covariance, misses)) / count
    p_together = float(scipy.special.fdtrc(count, freedom, together))
    error_of_mean = math.sqrt(covariance.sum()) / count
    p_of_mean = 2 * float(scipy.special.stdtr(freedom, -abs(misses.mean()) / error_of_mean))
    return min(1.0, 2 * min(p_together, p_of_mean))


def _turn(course: Course) -> float | None:
    """Return the checkpoint where the best of all curves turns; None if it does not."""
    curves = adequate_curves(course, course.places, level=_ADEQUATE)
    levels = curves.levels[curves.best]
    lower_end, upper_end = sorted([levels[0], levels[-1]])
    rises_above, falls_below = levels.max() - upper_end, lower_end - levels.min()
    if max(rises_above, falls_below) < _SAME:
        return None
    turn = levels.argmax() if rises_above > falls_below else levels.argmin()
    return float(course.places[turn])
