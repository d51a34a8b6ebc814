"""Learning curves, the best checkpoint of a training, and what the training changed.

Scores are given per step and query. The mean of the best of several checkpoints is biased upwards
by the selection; a checkpoint is called the best only if it differs significantly from the next.

References:
    Fisher 1921 (interval of a correlation); Bonett and Wright 2000 (of a rank correlation).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from qwen3nb.analysis.comparison.differences import significant
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.paired_tests import permutation_test
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL, draw_seed, sign_flip_p_values
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, join
from qwen3nb.metrics.intervals import Interval, difference_interval, interval_words, mean_interval

PerStep = Mapping[int, Mapping[str, float]]


@dataclass(frozen=True)
class Point:
    """The score at one step."""

    step: int  # of the training
    mean: float  # over queries
    interval: Interval | None  # over queries, or None for a single query
    change: float | None  # difference from the mean of the previous step; None at the first
    change_interval: Interval | None  # its paired interval


@dataclass(frozen=True)
class Curve:
    """Score against training step."""

    points: tuple[Point, ...]  # ordered by step
    n: int  # number of queries shared by all steps
    notes: tuple[str, ...]  # queries that do not pair
    # the methods of the intervals of means; those of changes are of paired differences
    interval: str


@dataclass(frozen=True)
class BestCheckpoint:
    """The checkpoint with the highest mean, and whether it differs from the others."""

    step: int  # of the best checkpoint
    mean: float  # its mean, slightly biased upwards by the selection
    next_step: int | None  # of the second best; None if there is only one
    difference: float | None  # best - next
    interval: Interval | None  # paired interval of the difference
    # of best against next, Holm-corrected over best against each of the others
    p_value: float | None
    significant: bool  # whether the difference is
    tied: tuple[int, ...]  # steps that are not significantly different from the best
    statement: str  # a summary in words


@dataclass(frozen=True)
class Gain:
    """Difference between the last and the first step of a training; neither is selected."""

    first: int  # the first step; ``last`` the last
    last: int
    first_mean: float  # mean at the first step; ``last_mean`` at the last
    last_mean: float
    difference: float  # last - first, with its paired ``interval``
    interval: Interval | None
    p_value: float  # of the paired permutation test, not corrected
    n: int
    # ``rising`` or ``falling`` if every step is above or below the one before it, ``uneven``
    # otherwise, empty for two steps
    course: str


@dataclass(frozen=True)
class Correlation:
    """A correlation with its interval."""

    value: float | None  # the correlation, or None if undefined
    interval: Interval | None  # 95 % by default; None for fewer than four points
    n: int  # number of points
    undefined: str = ""  # why there is no value or no interval, or empty


def curve(scores: PerStep) -> Curve:
    """Learning curve with intervals, of the scores by step and query id.

    Raises:
        ValueError: fewer than two steps, or no query shared by all.
    """
    steps, matrix = _matrix(scores)
    methods, points = set(), []
    for i, values in enumerate(matrix.scores):
        method, ends = mean_interval(values, level=LEVEL)
        methods.add(method)
        mean = float(values.mean())
        if i == 0:
            points.append(Point(steps[i], mean, ends, None, None))
            continue
        change = difference_interval(values - matrix.scores[i - 1], level=LEVEL)
        points.append(Point(steps[i], mean, ends, mean - points[-1].mean, change))
    return Curve(tuple(points), len(matrix.queries), matrix.notes, interval_words(methods))


def best_checkpoint(scores: PerStep, *, seed: int) -> BestCheckpoint:
    """The best checkpoint, and whether it differs significantly from the next best.

    Of equal means, the earliest step is the best. P-values are corrected for the number of
    checkpoints it is compared with, but not for its selection as the best.

    Raises:
        ValueError: no step, or no query shared by all.
    """
    if len(scores) == 1:
        ((step, values),) = scores.items()
        text = f"step {step} is the only checkpoint"
        return BestCheckpoint(
            step, float(np.mean(list(values.values()))), None, None, None, None, False, (), text
        )
    steps, matrix = _matrix(scores)
    columns, means = matrix.scores.T, matrix.scores.T.mean(axis=0)
    best, *others = (int(i) for i in np.argsort(-means, kind="stable"))
    uncorrected = sign_flip_p_values(
        columns,
        [(best, other) for other in others],
        n_resamples=DRAWS,
        seed=draw_seed(seed, matrix.queries),
    )
    p_values = adjust(uncorrected)
    intervals = [
        difference_interval(columns[:, best] - columns[:, other], level=LEVEL) for other in others
    ]
    shown = [significant(*each) for each in zip(p_values, intervals, strict=True)]
    tied = tuple(sorted(steps[i] for i, clear in zip(others, shown, strict=True) if not clear))
    second = others[0]
    difference = float(means[best] - means[second])
    return BestCheckpoint(
        step=steps[best],
        mean=float(means[best]),
        next_step=steps[second],
        difference=difference,
        interval=intervals[0],
        p_value=p_values[0],
        significant=shown[0],
        tied=tied,
        statement=_statement(steps[best], steps[second], difference, p_values[0], tied),
    )


def _statement(best: int, second: int, difference: float, p: float, tied: Sequence[int]) -> str:
    start = f"step {best} has the highest mean, {difference:+.4f} above step {second}"
    if not tied:
        return f"{start}, and differs from every other checkpoint (p = {p:.4f}, Holm)"
    names = ", ".join(map(str, tied))
    if second not in tied:
        return f"{start}, from which it differs (p = {p:.4f}, Holm), but not from step {names}"
    verdict = f"not significantly different from step {names} (p = {p:.4f}, Holm)"
    return f"{start}, which is no evidence: {verdict}"


def gain(scores: PerStep, *, seed: int) -> Gain:
    """What a training changed: its last step against its first, paired by query.

    Raises:
        ValueError: fewer than two steps, or no query shared by all.
    """
    if len(scores) < 2:
        raise ValueError(f"expected two or more steps; got {len(scores)}")
    steps, matrix = _matrix(scores)
    first, last = matrix.scores[0], matrix.scores[-1]
    test = permutation_test(last, first, seed=draw_seed(seed, matrix.queries))
    changes = np.diff(matrix.scores.mean(axis=1))
    course = "rising" if (changes > 0).all() else "falling" if (changes < 0).all() else "uneven"
    return Gain(
        first=steps[0],
        last=steps[-1],
        first_mean=float(first.mean()),
        last_mean=float(last.mean()),
        difference=test.difference,
        interval=difference_interval(last - first, level=LEVEL),
        p_value=test.p_value,
        n=len(matrix.queries),
        course=course if len(steps) > 2 else "",
    )


def correlation(x: ArrayLike, y: ArrayLike) -> Correlation:
    """Spearman's correlation of two measures of the same checkpoints, such as loss and score.

    The interval is Fisher's: atanh(r) ± z · se, with se = sqrt((1 + r² / 2) / (n − 3)). It is too
    narrow for checkpoints of one training, which are not independent.

    Raises:
        ValueError: arrays of different length, or a value that is not finite.
    """
    first, second = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape:
        raise ValueError(f"expected arrays of equal length; got {first.shape} and {second.shape}")
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ValueError("expected finite values only")
    n = len(first)
    if n < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        reason = "fewer than three points" if n < 3 else "one of the measures is constant"
        return Correlation(None, None, n, reason)
    value = max(-1.0, min(1.0, float(stats.spearmanr(first, second).statistic)))
    if n < 4:
        return Correlation(value, None, n, "fewer than four points have no interval")
    if abs(value) > 1 - 1e-12:
        return Correlation(value, None, n, "a perfect correlation has no interval")
    half = float(stats.norm.ppf((1 + LEVEL) / 2)) * math.sqrt((1 + value**2 / 2) / (n - 3))
    centre = math.atanh(value)
    return Correlation(value, (math.tanh(centre - half), math.tanh(centre + half)), n)


def _matrix(scores: PerStep) -> tuple[list[int], ScoreMatrix]:
    steps = sorted(scores)
    return steps, join({f"step {step}": scores[step] for step in steps}, task="checkpoints")
