"""How the scores of tasks go together over models: means and covariance, with missing scores.

The covariance is fitted by expectation and maximisation for a normal distribution with missing
values (Little and Rubin, "Statistical Analysis with Missing Data", chapter 11). There are fewer
models than numbers in a covariance. So after each step, correlations are shrunk by a fixed share
towards those that one common factor, "how good a model is", would give.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

SHRINKAGE = 0.2  # share of the correlations that comes from the common factor
ITERATIONS = 20  # of expectation and maximisation
_FACTOR_ITERATIONS = 15
_LARGEST_LOADING = 0.99
_SMALLEST_DEVIATION = 1e-3  # of the scores of a task over models; keeps the covariance regular


@dataclass(frozen=True, eq=False)
class Moments:
    """Means and covariance of the scores of tasks, over models."""

    tasks: tuple[str, ...]
    means: Array  # (tasks,)
    covariance: Array  # (tasks, tasks)

    def given(self, measured: Mask, scores: Array, noise: Array | None = None) -> Moments:
        """Return the moments of the other tasks of a model, given its measured ones.

        Args:
            measured: of shape (tasks,): which tasks are measured; at least one.
            scores: of shape (measured tasks,): their scores.
            noise: of shape (measured tasks,): variance to add to each measured score.
        """
        others = ~measured
        of_measured = self.covariance[np.ix_(measured, measured)]
        if noise is not None:
            of_measured = of_measured + np.diag(noise)
        between = self.covariance[np.ix_(measured, others)]
        slopes = np.linalg.solve(of_measured, between)  # (measured, others)
        means = self.means[others] + (scores - self.means[measured]) @ slopes
        covariance = self.covariance[np.ix_(others, others)] - between.T @ slopes
        names = tuple(task for task, there in zip(self.tasks, measured, strict=True) if not there)
        return Moments(names, means, covariance)


def fit_moments(
    scores: Array,
    tasks: Sequence[str],
    *,
    shrinkage: float = SHRINKAGE,
    iterations: int = ITERATIONS,
) -> Moments:
    """Fit means and covariance to the scores of models.

    Args:
        scores: of shape (models, tasks), from 0 to 1; missing ones are NaN.
        tasks: their names.
        shrinkage: share of the correlations that comes from the common factor, from 0 to 1.
        iterations: of expectation and maximisation.
    """
    deviations = np.nanstd(scores, axis=0) + _SMALLEST_DEVIATION
    means = np.nanmean(scores, axis=0)
    correlations = 0.5 * np.eye(len(tasks)) + 0.5
    moments = Moments(tuple(tasks), means, correlations * np.outer(deviations, deviations))
    for _ in range(iterations):
        moments = _improved(moments, scores, shrinkage)
    return moments


def _improved(moments: Moments, scores: Array, shrinkage: float) -> Moments:
    """Return the moments after one step of expectation and maximisation, shrunk."""
    completed, uncertainty = _completed(moments, scores)
    means = completed.mean(axis=0)
    centred = completed - means
    covariance = (centred.T @ centred + uncertainty) / len(scores)
    return Moments(moments.tasks, means, _shrunk(covariance, shrinkage))


def _completed(moments: Moments, scores: Array) -> tuple[Array, Array]:
    """Return the scores with expected values for missing ones, and their summed covariance.

    Models with the same tasks missing are completed together.
    """
    completed = scores.copy()
    uncertainty = np.zeros_like(moments.covariance)
    is_measured = ~np.isnan(scores)
    patterns, pattern_of_model = np.unique(is_measured, axis=0, return_inverse=True)
    for number, measured in enumerate(patterns):
        missing = ~measured
        if not missing.any() or not measured.any():
            continue
        rows = np.flatnonzero(pattern_of_model.ravel() == number)
        others = moments.given(measured, scores[np.ix_(rows, measured)])
        completed[np.ix_(rows, missing)] = others.means
        uncertainty[np.ix_(missing, missing)] += len(rows) * others.covariance
    return completed, uncertainty


def _shrunk(covariance: Array, share: float) -> Array:
    """Return a covariance whose correlations are shrunk towards those of one factor."""
    deviations = np.sqrt(np.diag(covariance))
    scale = np.outer(deviations, deviations)
    correlations = covariance / scale
    loadings = _factor_loadings(correlations)
    of_factor = np.outer(loadings, loadings)
    np.fill_diagonal(of_factor, 1.0)
    shrunk: Array = ((1 - share) * correlations + share * of_factor) * scale
    return shrunk


def _factor_loadings(correlations: Array) -> Array:
    """Return the loadings of the one factor that explains correlations best, of shape (tasks,).

    By principal axes: the diagonal is replaced by what the factor explains, until it settles.
    """
    count = len(correlations)
    mean_correlation = (correlations.sum() - count) / (count * (count - 1))
    loadings = np.full(count, np.sqrt(max(mean_correlation, 0.0)))
    for _ in range(_FACTOR_ITERATIONS):
        reduced = correlations.copy()
        np.fill_diagonal(reduced, loadings**2)
        values, vectors = np.linalg.eigh(reduced)
        largest = np.sqrt(max(values[-1], 0.0))
        loadings = np.clip(np.abs(vectors[:, -1]) * largest, 0.0, _LARGEST_LOADING)
    return loadings
