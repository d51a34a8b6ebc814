"""Variance between seeds of one training, compared with that between queries.

The models of all seeds answered the same queries: a crossed design in which both seeds and
queries are random.

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

from qwen3nb.analysis.stats.hierarchical_bootstrap import over_seeds
from qwen3nb.analysis.stats.resampling import draw_seed, percentile_interval, resampled_means
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.metrics.intervals import Array, Interval, student_interval
from qwen3nb.utils.format import interval_text, json_text, number_text
from qwen3nb.utils.markdown import markdown_table

__all__ = ["SeedCurve", "SeedPoint", "VarianceSplit", "seed_curve", "variance_split"]


@dataclass(frozen=True)
class VarianceSplit:
    """Variance components of a mean over seeds and queries.

    Attributes:
        seeds: number of seeds; ``queries``: number of queries.
        seed_variance: between seeds, of the expected score of a seed.
        query_variance: between queries.
        residual_variance: interaction of seeds and queries, and noise.
        error: standard error of the grand mean.
        shares: of the squared error, from seeds, queries and residual; None if it is 0.
        notes: components with a negative estimate, which is set to 0.
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
        means: over queries, one per seed.
        mean: of the means.
        std: sample standard deviation of the means (ddof = 1).
        interval: bootstrap interval of the mean over seeds and queries.
        seed_interval: Student's interval of the mean over seeds alone.
        split: variance components.
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
        points: ordered by step, for steps with two or more seeds.
        seeds: all seeds.
        level: of the intervals.
        left_out: missing steps and seeds, and queries that do not pair.
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
    """Learning curve over several seeds.

    Steps with fewer than two seeds and seeds without a step are reported.

    Args:
        scores: score per seed, step and query id.
        n_resamples: number of bootstrap resamples.
        level: of the intervals.
        seed: of the draws.

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
        seed_interval=student_interval(means, level=level),
        split=variance_split(scores),
    )


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
