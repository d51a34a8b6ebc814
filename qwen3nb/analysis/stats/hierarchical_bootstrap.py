"""Bootstrap over both the seeds of a training and the queries of a test collection.

The models of all seeds answered the same queries, so the design is crossed: a resample draws
queries once, for all seeds and both systems, and then draws seeds. With S seeds, the variance
of a resampled mean is too small by the factor (S − 1) / S; deviations are scaled up to correct
for it (Davison and Hinkley 1997, section 2.3; Owen 2007 for crossed designs, in which this
bootstrap is conservative).
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from qwen3nb.analysis.stats.resampling import Seed
from qwen3nb.metrics.intervals import Array

__all__ = ["over_seeds", "t_probability"]


def over_seeds(values: Array, *, seed: Seed) -> Array:
    """Means over resampled seeds.

    Args:
        values: a statistic per resample of queries and seed (R, S).
        seed: of the draws.

    Returns:
        Resampled means (R,); with a single seed, its values unchanged, which do not reflect
        the variance between seeds.
    """
    count, seeds = values.shape
    if seeds == 1:
        return values[:, 0]
    picks = np.random.default_rng(seed).integers(0, seeds, size=(count, seeds))
    centre = values.mean(axis=1)
    drawn = np.take_along_axis(values, picks, axis=1).mean(axis=1)
    means: Array = centre + math.sqrt(seeds / (seeds - 1)) * (drawn - centre)
    return means


def t_probability(values: Array, *, threshold: float) -> float | None:
    """Probability that the mean is at least ``threshold``, from Student's distribution.

    This is the posterior under a flat prior; None for a single value, 0 or 1 for equal values.
    """
    if len(values) < 2:
        return None
    if np.ptp(values) == 0:
        return float(values[0] >= threshold)
    shift = (float(np.mean(values)) - threshold) / float(stats.sem(values))
    return float(stats.t.cdf(shift, len(values) - 1))
