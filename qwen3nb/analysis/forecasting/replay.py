"""Forecasts of published models, each by a fit that has not seen its family.

They show how far forecasts err, and calibrate the intervals. Of every model that has enough of a
benchmark's tasks, a part is taken as measured: the first in telling order, or some at random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qwen3nb.analysis.forecasting.forecast import (
    USUAL,
    Calibration,
    MeanForecast,
    forecast_mean,
    telling_order,
)
from qwen3nb.analysis.forecasting.moments import Array, Moments, fit_moments
from qwen3nb.analysis.forecasting.published import PublishedBenchmark, PublishedScores
from qwen3nb.analysis.stats.resampling import LEVEL

COUNTS = (1, 2, 3, 5, 8, 12, 16, 20, 30, 40, 60, 90, 120)  # of tasks taken as measured
_FEWEST_SHARE = 0.3  # of a benchmark's tasks: models with fewer take no part in a fit
_WORST_MEAN = 0.15  # mean score below which a model is no embedding model, such as random vectors
_ENOUGH = 0.9  # share of the tasks that a replayed model must have
_RARE = 0.99  # quantile of published models that bounds what is usual


@dataclass(frozen=True)
class FieldScores:
    """The published scores that a benchmark's fit may use."""

    benchmark: PublishedBenchmark
    models: tuple[str, ...]
    families: tuple[str, ...]
    scores: Array  # (models, tasks and aids)

    @classmethod
    def of(cls, published: PublishedScores, benchmark: PublishedBenchmark) -> FieldScores:
        """Return the models with at least three tenths of the tasks, and usual scores."""
        scores = published.of(benchmark.columns)
        of_tasks = scores[:, : len(benchmark.tasks)]
        share = (~np.isnan(of_tasks)).mean(axis=1)
        sums = np.nansum(of_tasks, axis=1)
        means = sums / np.maximum(share * len(benchmark.tasks), 1)
        rows = np.flatnonzero((share >= _FEWEST_SHARE) & (means >= _WORST_MEAN))
        return cls(
            benchmark=benchmark,
            models=tuple(published.models[row] for row in rows),
            families=tuple(published.families[row] for row in rows),
            scores=scores[rows],
        )

    def fit(self, without_family: str = "") -> Moments:
        """Fit the moments, with or without the models of one family."""
        rows = [row for row, family in enumerate(self.families) if family != without_family]
        return fit_moments(self.scores[rows], self.benchmark.columns)

    def rows_of(self, family: str) -> list[int]:
        """Return the rows of a family's models that have nine tenths of the tasks."""
        count = len(self.benchmark.tasks)
        rows = []
        for row, name in enumerate(self.families):
            has_enough = (~np.isnan(self.scores[row, :count])).mean() >= _ENOUGH
            if name == family and has_enough:
                rows.append(row)
        return rows


@dataclass(frozen=True)
class LeftOut:
    """One forecast of a model whose family the fit has not seen."""

    model: str
    family: str
    how: str  # ``order``, ``random``, or ``budget`` and a share of the cost
    tasks: int  # number of measured tasks
    cost: float  # share of the benchmark's cost that was taken as run
    mean: float  # the true mean
    forecast: MeanForecast  # without a calibration

    @property
    def error(self) -> float:
        """Forecast less true mean."""
        return self.forecast.mean - self.mean

    @property
    def deviations(self) -> float:
        """The error in standard deviations, which no calibration has widened."""
        return self.error / max(self.forecast.spread * self.forecast.fit_deviation, 1e-9)


def replay(
    field: FieldScores,
    *,
    budgets: Sequence[float] = (),
    counts: Sequence[int] = COUNTS,
    seed: int = 0,
    moments_of: Callable[[str], Moments] | None = None,
) -> Iterator[LeftOut]:
    """Forecast every model with enough tasks, by fits without its family.

    Args:
        field: the published scores of a benchmark.
        budgets: shares of the cost; the first tasks in telling order that fit are measured.
        counts: numbers of tasks; as many first tasks in telling order, and as many at random.
        seed: of the random tasks.
        moments_of: returns the fit without a family; by default it is fitted here.
    """
    fit = moments_of or field.fit
    for family in sorted(set(field.families)):
        rows = field.rows_of(family)
        if not rows:
            continue
        moments = fit(family)
        for row in rows:
            yield from _replay_model(field, row, moments, budgets, counts, seed)


def _replay_model(
    field: FieldScores,
    row: int,
    moments: Moments,
    budgets: Sequence[float],
    counts: Sequence[int],
    seed: int,
) -> Iterator[LeftOut]:
    """Forecast one model from several parts of its scores."""
    benchmark = field.benchmark
    scores = {}
    for task, score in zip(benchmark.columns, field.scores[row], strict=True):
        if not np.isnan(score):
            scores[task] = float(score)
    mean_tasks = [task for task in benchmark.tasks if task in scores]
    order = telling_order(moments, benchmark.costs, mean_tasks=mean_tasks)
    order = [task for task in order if task in scores]
    shuffled = np.random.default_rng([seed, row]).permutation(mean_tasks).tolist()
    parts = [(f"budget {budget:g}", within(order, benchmark, budget)) for budget in budgets]
    for count in counts:
        if count < len(mean_tasks):
            parts.append(("order", order[:count]))
            parts.append(("random", shuffled[:count]))
    for how, part in parts:
        measured = {task: scores[task] for task in part}
        yield LeftOut(
            model=field.models[row],
            family=field.families[row],
            how=how,
            tasks=len(part),
            cost=sum(benchmark.costs[task] for task in part),
            mean=float(np.mean([scores[task] for task in mean_tasks])),
            forecast=forecast_mean(
                moments, measured, mean_tasks=mean_tasks, calibration=Calibration()
            ),
        )


def within(order: Sequence[str], benchmark: PublishedBenchmark, budget: float) -> list[str]:
    """Return the first tasks in an order that cost no more than a share of the benchmark.

    A task that is too dear is passed over, and cheaper ones after it may still run.
    """
    chosen: list[str] = []
    spent = 0.0
    for task in order:
        if spent + benchmark.costs[task] <= budget:
            chosen.append(task)
            spent += benchmark.costs[task]
    return chosen


def calibrated(forecasts: Sequence[LeftOut]) -> Calibration:
    """Return the factors and bounds by which forecasts of unseen families would have held.

    A factor is the quantile 0.95 of the errors in standard deviations, over 1.96, and at least 1.
    It is the largest one of three ways to choose tasks: in telling order, at random, by budget.
    The quantile is over families, with a share for the next family: see `next_family_quantile`.
    """
    factors = []
    for below, count, above in zip((0, *COUNTS), COUNTS, (*COUNTS[1:], None), strict=False):
        near = [item for item in forecasts if _is_between(item.tasks, below, above)]
        ratios = [_needed_factor(near, way) for way in ("order", "random", "budget")]
        if near:
            factors.append((count, round(max(1.0, *ratios), 3)))
    in_order = [item.forecast for item in forecasts if item.how == "order"]
    distances = [forecast.distance for forecast in in_order]
    residuals = []
    for forecast in in_order:
        residuals += [abs(residual.deviations) for residual in forecast.residuals]
    return Calibration(
        factors=tuple(factors),
        usual_distance=round(float(np.quantile(distances, _RARE)), 3),
        unusual_residual=round(float(np.quantile(residuals, _RARE)), 3),
    )


def _is_between(tasks: int, below: int, above: int | None) -> bool:
    """Return whether a number of tasks is nearer to a count than to those beside it."""
    return tasks > below and (above is None or tasks < above)


def _needed_factor(forecasts: Sequence[LeftOut], way: str) -> float:
    """Return the factor by which intervals hold 95 of 100 true means; 1 without forecasts."""
    of_way = [item for item in forecasts if item.how.startswith(way)]
    if not of_way:
        return 1.0
    errors = np.abs([item.deviations for item in of_way])
    return next_family_quantile(errors, [item.family for item in of_way]) / USUAL


def next_family_quantile(errors: Array, families: Sequence[str], level: float = LEVEL) -> float:
    """Return the error that a model of one more family does not exceed, at a level.

    Models of a family err alike, so each family has the same weight, and so has the next one: its
    error may be any. That is conformal prediction with groups: Lee, Barber and Willett,
    "Distribution-free inference with hierarchical data", 2023. With too few families for the level,
    it is the largest error.

    Args:
        errors: of shape (models,).
        families: of each model.
        level: share of next families.

    >>> next_family_quantile(np.array([1.0, 2.0, 3.0, 9.0]), ["a", "b", "c", "c"], level=0.5)
    2.0
    """
    _, family_of_model, sizes = np.unique(families, return_inverse=True, return_counts=True)
    shares = 1 / (len(sizes) + 1) / sizes[family_of_model]
    order = np.argsort(errors)
    reached = np.cumsum(shares[order])
    # A hair less: sums of shares are rounded.
    place = int(np.searchsorted(reached, level - 1e-9))
    return float(errors[order[min(place, len(errors) - 1)]])
