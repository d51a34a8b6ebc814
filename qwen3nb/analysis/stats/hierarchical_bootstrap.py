"""Resampling two things at once: the seeds of a training and the queries of a test.

Every seed's model answered the same queries, so the design is crossed: a resample draws
queries once, for all seeds and both systems, and then draws seeds. With S seeds a drawn
mean varies by (S − 1) / S of what it should; deviations are scaled up to make good for
it (Davison and Hinkley 1997, section 2.3; Owen 2007 for crossed designs, in which this
bootstrap errs on the wide side).
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from qwen3nb.analysis.stats.resampling import Array, Interval, Seed

__all__ = ["over_seeds", "t_interval", "t_probability"]


def over_seeds(values: Array, *, seed: Seed) -> Array:
    """Means over resampled seeds.

    Args:
        values: a statistic per resample of queries and seed (R, S).
        seed: of the draws.

    Returns:
        Resampled means (R,); with a single seed, its own values, which hold no spread of
        the training.
    """
    count, seeds = values.shape
    if seeds == 1:
        return values[:, 0]
    picks = np.random.default_rng(seed).integers(0, seeds, size=(count, seeds))
    centre = values.mean(axis=1)
    drawn = np.take_along_axis(values, picks, axis=1).mean(axis=1)
    means: Array = centre + math.sqrt(seeds / (seeds - 1)) * (drawn - centre)
    return means


def t_interval(values: Array, *, level: float) -> Interval | None:
    """Student's interval of the mean of S values; None for one; a point without spread."""
    if len(values) < 2:
        return None
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    half = float(stats.t.ppf((1 + level) / 2, len(values) - 1) * stats.sem(values))
    mean = float(np.mean(values))
    return mean - half, mean + half


def t_probability(values: Array, *, threshold: float) -> float | None:
    """Probability that the mean is at least ``threshold``, from Student's distribution.

    It is the posterior under a flat prior; None for one value; 0 or 1 without spread.
    """
    if len(values) < 2:
        return None
    if np.ptp(values) == 0:
        return float(values[0] >= threshold)
    shift = (float(np.mean(values)) - threshold) / float(stats.sem(values))
    return float(stats.t.cdf(shift, len(values) - 1))
