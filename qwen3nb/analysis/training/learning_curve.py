"""Learning curves, the best checkpoint of a training, what it changed, and variance between seeds.

Scores are given per step and query. The mean of the best of several checkpoints is biased upwards
by the selection; a checkpoint is called the best only if it differs significantly from the next.
The models of all seeds answered the same queries: a crossed design in which both are random.

References:
    Fisher 1921 (interval of a correlation); Bonett and Wright 2000 (of a rank correlation);
    Searle, Casella and McCulloch 1992, section 4.3 (variance components of a crossed
    design); Zou and Donner 2008 (MOVER); Satterthwaite 1946 (degrees of freedom).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats
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
    interval_words,
    mean_interval,
    student_interval,
)

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


_TINY = 1e-12  # a rounding error


@dataclass(frozen=True)
class VarianceSplit:
    """Where the squared error of a mean over seeds and queries comes from."""

    shares: tuple[float, float, float] | None  # seeds, queries, residual; None without error
    notes: tuple[str, ...]  # components with a negative estimate, which is set to 0


@dataclass(frozen=True)
class SeedPoint:
    """The score at one step, over seeds."""

    step: int  # of the training
    means: tuple[float, ...]  # over queries, one per seed
    mean: float  # of the means
    std: float  # sample standard deviation of the means (ddof = 1)
    interval: Interval | None  # of the mean over seeds and queries; see `crossed_interval`
    split: VarianceSplit  # variance components


@dataclass(frozen=True)
class SeedCurve:
    """Score against step, over seeds."""

    points: tuple[SeedPoint, ...]  # ordered by step, for steps with two or more seeds
    seeds: tuple[int, ...]  # all seeds
    left_out: tuple[str, ...]  # missing steps and seeds, and queries that do not pair


def seed_curve(scores: Mapping[int, Mapping[int, Mapping[str, float]]]) -> SeedCurve:
    """Learning curve of the scores by seed, step and query id.

    Steps with fewer than two seeds and seeds without a step are reported.

    Raises:
        ValueError: the seeds share no query, or only one, at a step.
    """
    steps = sorted({step for per_step in scores.values() for step in per_step})
    points, left_out = [], []
    for step in steps:
        having = [each for each in sorted(scores) if step in scores[each]]
        lacking = ", ".join(str(each) for each in sorted(scores) if each not in having)
        if lacking:
            left_out.append(f"step {step}: no score of seed {lacking}")
        if len(having) < 2:
            continue
        columns = {f"seed {each}": scores[each][step] for each in having}
        matrix = join(columns, task=f"step {step}")
        left_out += matrix.notes
        table = matrix.scores
        means = table.mean(axis=1)
        mean, moved = float(means.mean()), [table.mean(axis=0) / table.shape[1]]
        points.append(
            SeedPoint(
                step=step,
                means=tuple(map(float, means)),
                mean=mean,
                std=float(means.std(ddof=1)),
                interval=crossed_interval(mean, means, moved, level=LEVEL),
                split=variance_split(table),
            )
        )
    return SeedCurve(tuple(points), tuple(sorted(scores)), tuple(left_out))


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


def variance_split(scores: ArrayLike) -> VarianceSplit:
    """Variance components of scores (S seeds, n queries) in the crossed random-effects model.

    From the mean squares: residual = MSR, seeds = (MSS − MSR) / n, queries =
    (MSQ − MSR) / S; negative estimates are set to 0 and reported.

    Raises:
        ValueError: fewer than two seeds or queries, or a value that is not finite.
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or min(table.shape) < 2 or not np.isfinite(table).all():
        raise ValueError(
            f"expected finite scores of two or more seeds and queries; got shape {table.shape}"
        )
    seeds, queries = table.shape
    by_seed, by_query = table.mean(axis=1), table.mean(axis=0)
    residuals = table - by_seed[:, None] - by_query[None, :] + table.mean()
    residual = float((residuals**2).sum() / ((seeds - 1) * (queries - 1)))
    raw = {
        "seeds": (queries * float(by_seed.var(ddof=1)) - residual) / queries,
        "queries": (seeds * float(by_query.var(ddof=1)) - residual) / seeds,
    }
    notes = tuple(f"{name}: estimate {v:.2e}, set to 0" for name, v in raw.items() if v < 0)
    seed_variance, query_variance = (max(0.0, value) for value in raw.values())
    parts = (seed_variance / seeds, query_variance / queries, residual / table.size)
    total = sum(parts)
    shares = (parts[0] / total, parts[1] / total, parts[2] / total) if total > 0 else None
    return VarianceSplit(shares, notes)
