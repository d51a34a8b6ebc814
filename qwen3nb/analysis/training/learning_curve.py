"""The best checkpoint of a training, what it changed, and intervals over seeds and queries.

Scores are given per step and query. The mean of the best of several checkpoints is biased upwards
by the selection; a checkpoint is called the best only if it differs significantly from the next.
The models of all seeds answered the same queries: a crossed design in which both are random.

References:
    Zou and Donner 2008 (MOVER); Satterthwaite 1946 (degrees of freedom).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from qwen3nb.analysis.comparison.differences import significant
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.paired_tests import permutation_test
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL, draw_seed, sign_flip_p_values
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, join
from qwen3nb.metrics.intervals import (
    Array,
    Interval,
    difference_interval,
    student_interval,
)

PerStep = Mapping[int, Mapping[str, float]]


@dataclass(frozen=True)
class BestCheckpoint:
    """The checkpoint with the highest mean, and whether it differs from the others."""

    step: int  # of the best checkpoint
    mean: float  # its mean, slightly biased upwards by the selection
    next_step: int  # of the second best
    difference: float  # best - next
    interval: Interval | None  # paired interval of the difference; None for a single query
    p_value: float  # of best against next, Holm-corrected over best against each of the others
    significant: bool  # whether the difference is
    tied: tuple[int, ...]  # steps that are not significantly different from the best


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


def best_checkpoint(scores: PerStep, *, seed: int) -> BestCheckpoint:
    """The best checkpoint, and whether it differs significantly from the next best.

    Of equal means, the earliest step is the best. P-values are corrected for the number of
    checkpoints it is compared with, but not for its selection as the best.

    Raises:
        ValueError: fewer than two steps, or no query shared by all.
    """
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
    return BestCheckpoint(
        step=steps[best],
        mean=float(means[best]),
        next_step=steps[second],
        difference=float(means[best] - means[second]),
        interval=intervals[0],
        p_value=p_values[0],
        significant=shown[0],
        tied=tied,
    )


def gain(scores: PerStep, *, seed: int) -> Gain:
    """What a training changed: its last step against its first, paired by query.

    Raises:
        ValueError: fewer than two steps, or no query shared by all.
    """
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


def _matrix(scores: PerStep) -> tuple[list[int], ScoreMatrix]:
    if len(scores) < 2:
        raise ValueError(f"expected two or more steps; got {len(scores)}")
    steps = sorted(scores)
    return steps, join({f"step {step}": scores[step] for step in steps}, task="checkpoints")


_TINY = 1e-12  # a rounding error


def crossed_interval(
    mean: float, per_seed: Array, moved: Sequence[Array], *, level: float
) -> Interval | None:
    """Interval of a mean over seeds and queries, which adds up the errors of both (MOVER).

    Each error is Student's. That of the seeds also holds their interaction with the queries,
    which the other one counts again: the interval is conservative where queries vary most.

    Args:
        mean: the centre.
        per_seed: the value of each seed (S,); of a single one, only the queries' error counts.
        moved: how far each query moves the mean, (n,) per set of queries; may be empty, then only
            the seeds' error counts.
        level: of the interval.

    Returns:
        The interval, or None without any spread: equal seeds and queries show no error.
    """
    low, high = student_interval(per_seed, level=level) or (0.0, 0.0)
    error, freedom = query_error(moved)
    half = math.hypot((high - low) / 2, float(stdtrit(freedom, (1 + level) / 2)) * error)
    return (mean - half, mean + half) if half > _TINY else None


def query_error(moved: Sequence[Array]) -> tuple[float, float]:
    """Standard error of a sum over queries, and its degrees of freedom (Satterthwaite).

    Args:
        moved: how far each of two or more queries moves the sum, (n,) per independent set.
    """
    sizes = np.array([len(each) for each in moved])
    parts = np.array([len(each) * each.var(ddof=1) for each in moved])
    total = float(parts.sum())
    if total == 0:
        return 0.0, 1.0
    return math.sqrt(total), total**2 / float((parts**2 / (sizes - 1)).sum())
