"""Figures of trainings: score by step, losses, conflicts of gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from qwen3nb.report.training import SERIES, TITLES, Trainings
from qwen3nb.report.views import short_task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from qwen3nb.analysis.logs import Conflicts
    from qwen3nb.analysis.resampling import Array
    from qwen3nb.analysis.trajectory import Curve

__all__ = ["conflict_figure", "loss_figure", "trajectory_figure"]

_LABELLED = 60  # cells of a heat map that still have room for their numbers


def trajectory_figure(found: Trainings) -> Figure | None:
    """Score against step, a panel per task, a line per training, 95 % intervals; None if none."""
    from qwen3nb.report.look import COLORS, style

    curves = found.curves()
    tasks = list(dict.fromkeys(task for task, _, _ in curves))
    if not tasks:
        return None
    names = list(dict.fromkeys((training, seed) for _, training, seed in curves))
    metrics = {each.task: each.metric for each in found.trajectories}
    with style():
        figure, panels = _grid(len(tasks))
        for axis, task in zip(panels, tasks, strict=True):
            for (where, training, seed), curve in curves.items():
                if where == task:
                    color = COLORS[names.index((training, seed)) % len(COLORS)]
                    _curve(axis, curve, color, f"{training}, seed {seed}")
            n = max(curve.n for (where, *_), curve in curves.items() if where == task)
            axis.set(title=short_task(task), xlabel="step", ylabel=f"{metrics[task]}, n = {n}")
            axis.grid(axis="y", color="#7d8590", alpha=0.25, linewidth=0.6)
        if len(names) > 1:
            panels[0].legend(fontsize=8)
    return figure


def _curve(axis: Axes, curve: Curve, color: str, label: str) -> None:
    steps = [point.step for point in curve.points]
    axis.plot(steps, [point.mean for point in curve.points], "o-", color=color, label=label,
              markersize=4)  # fmt: skip
    known = [point for point in curve.points if point.interval is not None]
    low = [point.interval[0] for point in known if point.interval]
    high = [point.interval[1] for point in known if point.interval]
    axis.vlines([point.step for point in known], low, high, color=color, linewidth=2)


def _grid(count: int, *, height: float = 2.4) -> tuple[Figure, list[Axes]]:
    import matplotlib.pyplot as plt

    columns = min(3, count)
    lines = -(-count // columns)
    figure, axes = plt.subplots(
        lines, columns, figsize=(2.75 * columns + 0.4, height * lines), squeeze=False
    )
    panels = list(axes.flat)
    for axis in panels[count:]:
        axis.remove()
    return figure, panels[:count]


def loss_figure(found: Trainings) -> Figure | None:
    """Losses and learning rate by step, a line per training; None without a log."""
    from qwen3nb.report.look import COLORS, style

    keys = [key for key in SERIES if any(key in log.series for log in found.logs)]
    if not keys:
        return None
    with style():
        figure, panels = _grid(len(keys))
        for axis, key in zip(panels, keys, strict=True):
            for place, log in enumerate(found.logs):
                if values := log.series.get(key):
                    steps, heights = zip(*values, strict=True)
                    axis.plot(steps, heights, ".-", color=COLORS[place % len(COLORS)],
                              linewidth=1.4, markersize=4, label=log.name)  # fmt: skip
            axis.set(title=TITLES[key], xlabel="step")
            axis.grid(axis="y", color="#7d8590", alpha=0.25, linewidth=0.6)
        shown = {str(line.get_label()): line for axis in panels for line in axis.lines}
        lines, labels = list(shown.values()), list(shown)
        figure.legend(lines, labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def conflict_figure(found: Trainings) -> Figure | None:
    """Cosine of the two objectives' gradients: by layer and step, by layer and module, by step.

    A row per joint training, one scale of colours for all. What was not measured is hatched.
    None without any.
    """
    import matplotlib.pyplot as plt

    from qwen3nb.report.look import style

    given = [each for each in found.conflicts if each.cosines]
    if not given:
        return None
    tables = [table for each in given for table in (each.by_step(), each.by_module())]
    largest = max(float(np.nanmax(np.abs(table))) for table in tables)
    layers = max(len(each.layers) for each in given)
    with style():
        height = min(6.0, 1.9 + 0.22 * layers)
        figure, axes = plt.subplots(
            len(given), 3, figsize=(9.2, height * len(given)), squeeze=False,
            width_ratios=(1.2, 1.3, 1),
        )  # fmt: skip
        for (left, middle, right), each in zip(axes, given, strict=True):
            image = _heat(left, each.by_step(), each.layers, each.steps, largest)
            _heat(middle, each.by_module(), each.layers, each.modules, largest)
            left.set(title=f"{each.name}\nmean over modules", xlabel="step", ylabel="layer")
            middle.set(title="mean over steps")
            figure.colorbar(image, ax=middle, label="cosine", shrink=0.9)
            _over_time(right, each)
    return figure


def _heat(
    axis: Axes, table: Array, rows: Sequence[str], columns: Sequence[object], largest: float
) -> AxesImage:
    """A heat map whose gaps are hatched, with the numbers where there is room."""
    axis.set_facecolor("#7d859033")
    axis.patch.set_hatch("///")
    axis.patch.set_edgecolor("#7d8590")
    image = axis.imshow(
        np.ma.masked_invalid(table), cmap="RdBu", vmin=-largest, vmax=largest, aspect="auto"
    )
    axis.set_yticks(range(len(rows)), rows)
    every = max(1, len(columns) // 8)
    turned = 90 if any(len(str(name)) > 4 for name in columns) else 0
    axis.set_xticks(
        range(0, len(columns), every), [str(c) for c in columns[::every]], rotation=turned
    )
    axis.tick_params(length=0)
    if table.size <= _LABELLED and len(columns) <= 8:
        for (row, column), value in np.ndenumerate(table):
            if np.isfinite(value):
                dark = abs(value) > 0.6 * largest
                axis.text(column, row, f"{value:+.2f}", ha="center", va="center", fontsize=7,
                          color="white" if dark else "#24292f")  # fmt: skip
    return image


def _over_time(axis: Axes, each: Conflicts) -> None:
    """Mean over layers, and from the lowest to the highest layer."""
    table = np.ma.masked_invalid(each.by_step())
    axis.axhline(0, color="#7d8590", linewidth=1)
    axis.fill_between(each.steps, table.min(axis=0), table.max(axis=0), alpha=0.2, linewidth=0)
    axis.plot(each.steps, table.mean(axis=0), "o-", markersize=4)
    axis.set(title="mean over layers", xlabel="step")
