"""Forecast a benchmark's mean, and each missing task, from the tasks that were run.

Scores are taken as normal with the moments of the published models, and conditioned on the measured
tasks. A score far from what the others suggest says little about the rest: leakage, or a wrong
prompt. Its variance is raised, so that it counts less (Huber's weights).

A model that is unlike the published ones has wider intervals, as in a multivariate t distribution.

Intervals are of level 0.95. They are widened by factors that were calibrated on whole families of
models left out of the fit: see `qwen3nb.analysis.forecasting.replay`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qwen3nb.analysis.forecasting.moments import Array, Mask, Moments
from qwen3nb.metrics.intervals import Interval

_LOWEST, _HIGHEST = -1.0, 1.0  # of a score; correlations can be negative
USUAL = 1.96  # standard deviations of half an interval of level 0.95
_SURPRISING = 2.5  # standard deviations beyond which a score counts less
_ROUNDS = 5  # of raising variances
# Degrees of freedom of the scores of one model; by nested families, see `benchmarks.forecasting`.
DEGREES = 5.0


@dataclass(frozen=True)
class Calibration:
    """What leaving families out of the fit has shown of one benchmark."""

    # factor of the standard deviation by number of measured tasks, in ascending order
    factors: tuple[tuple[int, float], ...] = ((1, 1.0),)
    usual_distance: float = float("inf")  # 99 of 100 published models are nearer than this
    # standard deviations that 1 of 100 published scores exceeds, given the model's other scores
    unusual_residual: float = float("inf")

    def factor(self, measured: int) -> float:
        """Return the factor for a number of measured tasks, between those that were simulated."""
        counts = [count for count, _ in self.factors]
        factors = [factor for _, factor in self.factors]
        return float(np.interp(np.log(measured), np.log(counts), factors))


@dataclass(frozen=True)
class ScoreForecast:
    """A score that was not measured."""

    score: float
    interval: Interval  # of level 0.95


@dataclass(frozen=True)
class Residual:
    """A measured score beside what the other scores of the model say of it."""

    task: str
    score: float
    expected: float  # by the other scores
    deviations: float  # score less expected, in standard deviations


@dataclass(frozen=True)
class MeanForecast:
    """The mean of a benchmark, of which some tasks are measured."""

    mean: float
    fit_deviation: float  # standard deviation by the fit; 0 if all tasks are measured
    spread: float  # of that deviation, by how unlike the published models this one is
    factor: float  # of that deviation, by the calibration
    measured: Mapping[str, float]  # scores by task, with aids
    missing: Mapping[str, ScoreForecast]  # by task
    # root mean square of the measured scores in independent standard deviations; about 1
    distance: float
    residuals: tuple[Residual, ...]  # of the measured tasks, if there are at least two

    @property
    def deviation(self) -> float:
        """Standard deviation of the forecast mean."""
        return self.factor * self.spread * self.fit_deviation

    @property
    def interval(self) -> Interval:
        """The interval of level 0.95; the mean twice if all tasks are measured."""
        return _interval(self.mean, self.deviation)


def _interval(mean: float, deviation: float) -> Interval:
    """Return the interval of level 0.95 of a normal distribution, within what a score can be."""
    half_width = USUAL * deviation
    return max(_LOWEST, mean - half_width), min(_HIGHEST, mean + half_width)


def forecast_mean(
    moments: Moments,
    measured: Mapping[str, float],
    *,
    mean_tasks: Sequence[str],
    calibration: Calibration,
) -> MeanForecast:
    """Forecast the mean over ``mean_tasks``, each with equal weight.

    Args:
        moments: of the scores of tasks over published models.
        measured: scores from 0 to 1 by task; at least one, all of them in ``moments``.
        mean_tasks: the tasks of the mean; those that are not measured are forecast.
        calibration: of the intervals.
    """
    measured = {task: measured[task] for task in moments.tasks if task in measured}
    mask = np.array([task in measured for task in moments.tasks])
    scores = np.array(list(measured.values()))
    noise, residuals = noise_of_surprises(moments, mask, scores)
    others = moments.given(mask, scores, noise)
    factor = calibration.factor(len(scores))
    how_unlike = distance(moments, mask, scores)
    spread = spread_of_unlike(how_unlike, len(scores))
    deviations = (spread * np.sqrt(np.diag(others.covariance).clip(0))).tolist()
    missing = {}
    for task, score, deviation in zip(others.tasks, others.means.tolist(), deviations, strict=True):
        if task in mean_tasks:
            missing[task] = ScoreForecast(score, _interval(score, factor * deviation))
    weights = np.array([float(task in missing) for task in others.tasks]) / len(mean_tasks)
    known = sum(measured[task] for task in mean_tasks if task in measured) / len(mean_tasks)
    variance = float(weights @ others.covariance @ weights)
    return MeanForecast(
        mean=float(known + weights @ others.means),
        fit_deviation=math.sqrt(max(variance, 0.0)),
        spread=spread,
        factor=factor,
        measured=measured,
        missing=missing,
        distance=how_unlike,
        residuals=residuals,
    )


def noise_of_surprises(
    moments: Moments, measured: Mask, scores: Array
) -> tuple[Array, tuple[Residual, ...]]:
    """Return the variance to add to each measured score, and what the others say of it.

    A score beyond 2.5 standard deviations gets the variance that makes it 1 standard deviation
    times 2.5 away: its influence on the others stays bounded.

    Args:
        moments: of all tasks.
        measured: of shape (tasks,).
        scores: of shape (measured tasks,).
    """
    covariance = moments.covariance[np.ix_(measured, measured)]
    deviations = scores - moments.means[measured]
    noise = np.zeros(len(scores))
    if len(scores) < 2:
        return noise, ()
    for _ in range(_ROUNDS):
        left_out, variances = _left_out(covariance, deviations, noise)
        standardized = np.abs(left_out) / np.sqrt(variances)
        excess = (standardized / _SURPRISING) ** 2 - 1
        noise = np.where(standardized > _SURPRISING, variances * excess, 0.0)
    left_out, variances = _left_out(covariance, deviations, noise)
    standardized = left_out / np.sqrt(variances)
    names = [task for task, there in zip(moments.tasks, measured, strict=True) if there]
    residuals = []
    for task, score, residual, deviation in zip(names, scores, left_out, standardized, strict=True):
        residuals.append(Residual(task, float(score), float(score - residual), float(deviation)))
    return noise, tuple(residuals)


def _left_out(covariance: Array, deviations: Array, noise: Array) -> tuple[Array, Array]:
    """Return each score less what the others say of it, and the variance without its own noise.

    By the inverse of the covariance: Rasmussen and Williams, "Gaussian Processes", equation 5.12.
    """
    precision = np.linalg.inv(covariance + np.diag(noise))
    diagonal = np.diag(precision)
    residuals: Array = (precision @ deviations) / diagonal
    variances: Array = np.maximum(1 / diagonal - noise, 1e-12)
    return residuals, variances


def distance(moments: Moments, measured: Mask, scores: Array) -> float:
    """Return how unlike the published models a model is: about 1 for one of them.

    The root mean square of its measured scores in independent standard deviations (Mahalanobis).
    """
    covariance = moments.covariance[np.ix_(measured, measured)]
    deviations = scores - moments.means[measured]
    squared = deviations @ np.linalg.solve(covariance, deviations)
    return float(np.sqrt(squared / len(scores)))


def spread_of_unlike(how_unlike: float, measured: int, degrees: float = DEGREES) -> float:
    """Return how much larger the deviations of a model are than those of the published ones.

    Its scores are as of a multivariate t distribution, given those that are measured: Ding, "On the
    conditional distribution of the multivariate t distribution", 2016.

    Args:
        how_unlike: its `distance`.
        measured: number of measured scores.
        degrees: of freedom.

    >>> spread_of_unlike(1.0, 8)
    1.0
    >>> spread_of_unlike(3.0, 10, degrees=5.0)  # (5 + 10 * 9) / (5 + 10), its root
    2.516611478423583
    """
    return math.sqrt((degrees + measured * how_unlike**2) / (degrees + measured))


def telling_order(
    moments: Moments,
    costs: Mapping[str, float],
    *,
    mean_tasks: Sequence[str],
    measured: Sequence[str] = (),
) -> list[str]:
    """Return the tasks that are not measured, in the order that tells most of the mean per cost.

    Next is the task that lowers the variance of the forecast mean most for its cost. Aids come
    last when they tell nothing more: once a task itself has run, its small version is left out.
    """
    weights = np.array([float(task in mean_tasks) for task in moments.tasks]) / len(mean_tasks)
    left = [place for place, task in enumerate(moments.tasks) if task not in measured]
    covariance = moments.covariance  # of all tasks, given those measured or chosen
    for place, task in enumerate(moments.tasks):
        if task in measured:
            covariance = _given_one(covariance, place)
    order: list[str] = []
    while any(weights[place] for place in left):
        with_mean = covariance @ weights  # (tasks,): covariance of each task with the mean
        gains = [
            with_mean[place] ** 2 / covariance[place, place] / costs[moments.tasks[place]]
            for place in left
        ]
        place = left.pop(int(np.argmax(gains)))
        covariance = _given_one(covariance, place)
        order.append(moments.tasks[place])
    return order


def _given_one(covariance: Array, place: int) -> Array:
    """Return the covariance of all tasks given one of them, of shape (tasks, tasks)."""
    with_one = covariance[place]
    conditional: Array = covariance - np.outer(with_one, with_one) / with_one[place]
    return conditional
