"""Changes between successive runs of the same model on the same data.

Runs are records with the same label, ordered by the time they finished. Consecutive runs on the
same revision of the data are compared query by query; across revisions no change is computed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from qwen3nb.analysis.comparison.alignment import score_columns, system_names
from qwen3nb.analysis.comparison.differences import PairedDifference, paired_differences
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL
from qwen3nb.analysis.stats.score_matrix import join, shared_queries
from qwen3nb.metrics.intervals import Interval, mean_interval
from qwen3nb.records.record import Result


@dataclass(frozen=True)
class TrendPoint:
    """One run."""

    label: str  # of the model
    finished: str  # time, ISO 8601
    identity: str  # of the model's weights and settings
    revision: str  # of the data
    # over queries; ``interval`` is its widened or Student's interval, or None for a single query
    mean: float
    interval: Interval | None
    n: int
    # mean paired difference from the previous run; None for the first run and where the data
    # changed
    change: float | None = None
    change_interval: Interval | None = None  # of the change
    p_value: float | None = None  # paired permutation test, Holm-corrected over all changes


def trend(
    results: Iterable[Result], *, metric: str, n_resamples: int = DRAWS, seed: int
) -> tuple[TrendPoint, ...]:
    """Runs ordered by label and time; labels with a single run are left out."""
    runs: dict[str, list[Result]] = {}
    for result in sorted(results, key=lambda each: each.finished):
        if metric in result.per_query:
            runs.setdefault(result.model.label, []).append(result)
    points = []
    for records in runs.values():
        for before, result in zip([None, *records], records, strict=False):
            if len(records) > 1:
                change = _change(before, result, metric, n_resamples, seed) if before else None
                points.append(_point(result, metric, change))
    values = iter(adjust([p.p_value for p in points if p.p_value is not None]))
    return tuple(p if p.p_value is None else replace(p, p_value=next(values)) for p in points)


def _change(
    before: Result, result: Result, metric: str, draws: int, seed: int
) -> PairedDifference | None:
    """The paired difference of a run from the one before; None across revisions of the data."""
    names, task = system_names([result, before]), before.task
    columns, _ = score_columns(task.key, [result, before], names, metric, str(task.revision))
    if len(columns) < 2 or not shared_queries([each.queries for each in columns.values()]):
        return None
    matrix = join(columns, task=task.key, metric=metric)
    return paired_differences(matrix, draws=draws, seed=seed)[0]


def _point(result: Result, metric: str, change: PairedDifference | None) -> TrendPoint:
    scores = result.per_query[metric]
    values = np.array([scores[query] for query in sorted(scores)])
    point = TrendPoint(
        label=result.model.label,
        finished=result.finished,
        identity=result.model.identity,
        revision=str(result.task.revision),
        mean=float(values.mean()),
        interval=mean_interval(values, level=LEVEL)[1],
        n=len(values),
    )
    if change is None:
        return point
    ends, p_value = change.interval, change.p_value
    return replace(point, change=change.difference, change_interval=ends, p_value=p_value)
