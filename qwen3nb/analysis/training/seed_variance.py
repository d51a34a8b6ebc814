"""One training repeated with several seeds: how much of the uncertainty is the training's.

Every seed's model answered the same queries: a crossed design, in which seeds and queries
are both drawn from many.

References:
    Searle, Casella and McCulloch 1992, section 4.3 (variance components of a crossed
    design).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from qwen3nb.analysis.comparison.alignment import join
from qwen3nb.analysis.stats.hierarchical_bootstrap import over_seeds, t_interval
from qwen3nb.analysis.stats.resampling import (
    Array,
    Interval,
    draw_seed,
    percentile_interval,
    resampled_means,
)
from qwen3nb.utils.format import interval_text, json_text, number_text
from qwen3nb.utils.markdown import markdown_table

__all__ = ["SeedCurve", "SeedPoint", "VarianceSplit", "seed_curve", "variance_split"]


@dataclass(frozen=True)
class VarianceSplit:
    """What makes a mean over seeds and queries uncertain.

    Attributes:
        seeds: number of seeds; ``queries``: number of queries.
        seed_variance: between seeds, of the expected score of a seed.
        query_variance: between queries.
        residual_variance: seed by query interaction, and noise.
        error: standard error of the grand mean.
        shares: of its square, from seeds, queries and residual; None if it is 0.
        notes: components whose estimate was below 0 and is set to 0.
    """

    seeds: int
    queries: int
    seed_variance: float
    query_variance: float
    residual_variance: float
    error: float
    shares: tuple[float, float, float] | None
    notes: tuple[str, ...]


@dataclass(frozen=True)
class SeedPoint:
    """The score at one step, over seeds.

    Attributes:
        step: of the training.
        means: per seed, over queries.
        mean: of the means.
        std: sample standard deviation of the means (ddof = 1).
        interval: of the mean, bootstrap over seeds and queries.
        seed_interval: of the mean, Student's over the seeds alone.
        split: of the variance.
    """

    step: int
    means: tuple[float, ...]
    mean: float
    std: float
    interval: Interval
    seed_interval: Interval | None
    split: VarianceSplit


@dataclass(frozen=True)
class SeedCurve:
    """Score against step, over seeds.

    Attributes:
        points: by step, of the steps that two or more seeds have.
        seeds: all of them.
        level: of the intervals.
        left_out: steps and seeds that are missing, queries that do not pair.
    """

    points: tuple[SeedPoint, ...]
    seeds: tuple[int, ...]
    level: float
    left_out: tuple[str, ...]

    def to_json(self) -> str:
        """As strict JSON."""
        return json_text(self)

    def to_markdown(self) -> str:
        """As a Markdown table."""
        heads = ("step", "seeds", "mean ± std", "interval", "over seeds alone", "error from seeds")
        rows = [
            (
                str(p.step),
                str(len(p.means)),
                f"{p.mean:.3f} ± {p.std:.3f}",
                interval_text(p.interval, sign=False),
                interval_text(p.seed_interval, sign=False),
                number_text(100 * p.split.shares[0], digits=0) + " %" if p.split.shares else "–",
            )
            for p in self.points
        ]
        return markdown_table(heads, rows)


def seed_curve(
    scores: Mapping[int, Mapping[int, Mapping[str, float]]],
    *,
    n_resamples: int = 10_000,
    level: float = 0.95,
    seed: int,
) -> SeedCurve:
    """Score against step over several seeds.

    Args:
        scores: score per seed, step and query id.
        n_resamples: of the bootstrap.
        level: of the intervals.
        seed: of the draws.

    Steps that fewer than two seeds have are named, as are seeds that lack a step.

    Raises:
        ValueError: seeds that have a step without a query in common, or with a single one.
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
        drawn = draw_seed(seed, matrix.queries)
        point = _point(step, matrix.scores, n_resamples=n_resamples, level=level, seed=drawn)
        points.append(point)
    return SeedCurve(tuple(points), tuple(sorted(scores)), level, tuple(left_out))


def _point(
    step: int, scores: Array, *, n_resamples: int, level: float, seed: tuple[int, int]
) -> SeedPoint:
    means, resampled = resampled_means(scores.T, n_resamples=n_resamples, seed=seed)
    return SeedPoint(
        step=step,
        means=tuple(map(float, means)),
        mean=float(means.mean()),
        std=float(means.std(ddof=1)),
        interval=percentile_interval(over_seeds(resampled, seed=(*seed, 1)), level=level),
        seed_interval=t_interval(means, level=level),
        split=variance_split(scores),
    )


def variance_split(scores: ArrayLike) -> VarianceSplit:
    """Split the variance of scores (S seeds, n queries) by the crossed random model.

    From the mean squares: residual = MSR, seeds = (MSS − MSR) / n, queries =
    (MSQ − MSR) / S; estimates below 0 are set to 0 and named.

    Raises:
        ValueError: fewer than two seeds or queries, or a value that is not finite.
    """
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or min(table.shape) < 2 or not np.isfinite(table).all():
        raise ValueError(
            f"expected finite scores of two or more seeds and queries; got shape {table.shape}"
        )
    seeds, queries = table.shape
    grand = table.mean()
    by_seed, by_query = table.mean(axis=1), table.mean(axis=0)
    residuals = table - by_seed[:, None] - by_query[None, :] + grand
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
    return VarianceSplit(
        seeds, queries, seed_variance, query_variance, residual, math.sqrt(total), shares, notes
    )
