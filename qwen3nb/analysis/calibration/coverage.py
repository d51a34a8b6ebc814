"""Simulated coverage of the intervals of scores, on distributions like those of the tasks.

nDCG@10         a quarter of the queries has 0, a quarter 1
hard nDCG@10    three quarters have 0
MRR@10          reciprocal ranks, nearly half of the queries without a hit
accuracy .9     nine of ten are right
tied            nineteen of twenty are .5, the others 1
nearly equal    the same, with a standard deviation of .01 about .5
two kinds       nine of ten are .9, the others .1
skewed          beta(.5, 5)
AP              average precisions, of which a tenth is 0
V-measure       draws that are close together
Spearman        similarities of sentence pairs and their ratings, with noise that depends on
the rating, and ties
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from scipy.stats import rankdata

from qwen3nb.analysis.stats.resampling import percentile_interval, resampled_means
from qwen3nb.metrics.aggregate import AGGREGATES
from qwen3nb.metrics.intervals import (
    INTERVALS,
    Array,
    Interval,
    correlation_interval,
    mean_interval,
    student_interval,
)

__all__ = ["Hits", "holds", "score_coverage"]

Hits = tuple[str, str, int, int, int]  # method, world, n, intervals that hold, simulations
Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]

_SPEARMAN = "Spearman"
_DRAWN = "V-measure"
_BATCH = 100  # simulations that share one set of draws
_LARGE = 1_000_000  # draws by which the true value is computed


def _ndcg(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    share = generator.random(shape)
    return np.where(share < 0.25, 0, np.where(share < 0.5, 1, generator.beta(1.2, 1.2, shape)))


def _hard_ndcg(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    share = generator.random(shape)
    return np.where(share < 0.75, 0, np.where(share < 0.8, 1, generator.beta(1, 2, shape)))


def _mrr(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    rank = generator.geometric(0.25, shape)
    return np.where((rank > 10) | (generator.random(shape) < 0.4), 0, 1 / rank)


_SCORES: dict[str, Draw] = {
    "nDCG@10": _ndcg,
    "hard nDCG@10": _hard_ndcg,
    "MRR@10": _mrr,
    "accuracy .9": lambda draw, shape: np.where(draw.random(shape) < 0.9, 1.0, 0.0),
    "tied": lambda draw, shape: np.where(draw.random(shape) < 0.05, 1.0, 0.5),
    "nearly equal": lambda draw, shape: np.where(
        draw.random(shape) < 0.05, 1.0, draw.normal(0.5, 0.01, shape)
    ),
    "two kinds": lambda draw, shape: np.where(draw.random(shape) < 0.1, 0.1, 0.9),
    "skewed": lambda draw, shape: draw.beta(0.5, 5, shape),
    "AP": lambda draw, shape: np.where(draw.random(shape) < 0.1, 0.0, draw.beta(0.6, 1.5, shape)),
    _DRAWN: lambda draw, shape: np.clip(draw.normal(0.45, 0.02, shape), 0, 1),
}


def score_coverage(
    *, sizes: Sequence[int], simulations: int, n_resamples: int, seed: int
) -> Iterator[Hits]:
    """How often each method's interval contains the true value, per world and size.

    ``simulations`` is rounded up to whole batches.
    """
    simulations = -(-simulations // _BATCH) * _BATCH
    for index, (world, draw) in enumerate(_SCORES.items()):
        truth = float(draw(np.random.default_rng((seed, index)), (_LARGE,)).mean())
        for n in sizes:
            drawn_by = (seed, index, n)
            drawn = world == _DRAWN
            counts = _means(draw, truth, n, simulations, n_resamples, drawn_by, drawn=drawn)
            yield from ((method, world, n, held, simulations) for method, held in counts.items())
    a, b = _pairs(np.random.default_rng((seed, 99)), _LARGE)
    truth = float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])
    for n in sizes:
        counts = _correlations(truth, n, simulations // 4, n_resamples // 4, (seed, 99, n))
        yield from (
            (method, _SPEARMAN, n, held, simulations // 4) for method, held in counts.items()
        )


def _means(
    draw: Draw,
    truth: float,
    n: int,
    simulations: int,
    n_resamples: int,
    drawn_by: tuple[int, ...],
    *,
    drawn: bool,
) -> dict[str, int]:
    generator = np.random.default_rng(drawn_by)
    counts = dict.fromkeys(("widened", "student", "percentile")[drawn:], 0)
    for batch in range(simulations // _BATCH):
        values = draw(generator, (n, _BATCH))
        _, means = resampled_means(values, n_resamples=n_resamples, seed=(*drawn_by, batch))
        for column, resampled in zip(values.T, means.T, strict=True):
            if not drawn:
                counts["widened"] += holds(mean_interval(column, level=0.95)[1], truth)
            counts["student"] += holds(student_interval(column, level=0.95), truth)
            counts["percentile"] += holds(percentile_interval(resampled, level=0.95), truth)
    return {INTERVALS[method]: held for method, held in counts.items()}


def _pairs(generator: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Similarities (n,) and ratings from 0 to 5 in halves."""
    rating = generator.beta(1.2, 1, n)
    similarity = 0.4 + 0.5 * rating**1.5 + generator.normal(0, 0.12, n) * (1.3 - rating)
    return similarity, np.round(10 * rating) / 2


def _correlations(
    truth: float, n: int, simulations: int, n_resamples: int, drawn_by: tuple[int, ...]
) -> dict[str, int]:
    generator = np.random.default_rng(drawn_by)
    counts = dict.fromkeys(("fisher", "percentile"), 0)
    for _ in range(simulations):
        first, second = _pairs(generator, n)
        picks = generator.integers(0, n, size=(n_resamples, n))
        drawn = AGGREGATES["spearman"](np.stack([first[picks], second[picks]], axis=-1))
        fine = drawn[np.isfinite(drawn)]
        counts["percentile"] += holds(percentile_interval(fine, level=0.95), truth)
        ends = correlation_interval(first, second, how="spearman", level=0.95)
        counts["fisher"] += holds(ends, truth)
    return {INTERVALS[method]: held for method, held in counts.items()}


def holds(ends: Interval | None, truth: float) -> bool:
    """Whether an interval contains the true value, to rounding."""
    return ends is not None and ends[0] - 1e-9 <= truth <= ends[1] + 1e-9
