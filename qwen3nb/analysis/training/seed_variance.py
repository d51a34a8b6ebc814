"""Variance between seeds of one training, compared with that between queries.

The models of all seeds answered the same queries: a crossed design in which both seeds and
queries are random.

References:
    Searle, Casella and McCulloch 1992, section 4.3 (variance components of a crossed
    design); Zou and Donner 2008 (MOVER); Satterthwaite 1946 (degrees of freedom).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from qwen3nb.analysis.stats.resampling import LEVEL
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.metrics.intervals import Array, Interval, student_interval

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
