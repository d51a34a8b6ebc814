"""Figures of trainings: learning curves, losses, gradient conflicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from qwen3nb.report.render.figure import GREY, SMALL, Figure, grid, plain
from qwen3nb.report.render.format import short_task
from qwen3nb.report.render.model_styles import ModelStyle, model_styles
from qwen3nb.report.training.tables import Trainings, logged_series, series_title

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

    from qwen3nb.analysis.inventory.training_logs import Conflicts, TrainingLog
    from qwen3nb.analysis.training.learning_curve import Curve
    from qwen3nb.metrics.intervals import Array

    Curves = Mapping[tuple[str, str, int], Curve]

__all__ = ["conflict_figure", "loss_figure", "trajectory_figure"]

_UNLIKE = 8  # times longer than the shortest: from here on, steps are on a logarithmic scale
_LABELLED = 60  # most cells of a heat map that have room for numbers


def trajectory_figure(trainings: Trainings) -> Figure | None:
    """Learning curves with 95 % intervals, one panel per task; None if there are none."""
    curves = trainings.curves()
    if not curves:
        return None
    metrics = {each.task: each.metric for each in trainings.trajectories}
    words = "; ".join(
        f"{short_task(task)}, {training}: "
        + ", ".join(f"{point.step} {point.mean:.3f}" for point in curve.points)
        for (task, training, _), curve in curves.items()
    )
    return Figure(
        name="trajectory",
        draw=lambda width: _draw_trajectory(curves, metrics, width),
        caption="Score by training step: mean and 95 % interval over the n given at each panel "
        f"({' and '.join(sorted({curve.interval for curve in curves.values()}))}). "
        "One line per training; step 0 is before training, or the checkpoint that it started from.",
        alt=f"Score by training step. {words}.",
    )


def _draw_trajectory(curves: Curves, metrics: Mapping[str, str], width: float) -> MplFigure:
    tasks = list(dict.fromkeys(task for task, _, _ in curves))
    lines = _line_names(curves)
    several = len(lines) > 1
    styles = model_styles(lines.values())
    figure, panels = _panels(len(tasks), width)
    for axis, task in zip(panels, tasks, strict=True):
        own = {key[1:]: curve for key, curve in curves.items() if key[0] == task}
        for (training, seed), curve in own.items():
            name = lines[training, seed]
            _curve(axis, curve, styles[name], plain(name) if several else "")
        axis.set_title(plain(short_task(task), most=24))
        n = max(curve.n for curve in own.values())
        axis.set(xlabel="training step", ylabel=f"{metrics[task]}, n = {n}")
        grid(axis, which="y")
    _legend(figure, panels)
    return figure


def _line_names(curves: Curves) -> dict[tuple[str, int], str]:
    """Name of each line: its training, with the seed where the training has several."""
    lines = list(dict.fromkeys((training, seed) for _, training, seed in curves))
    seeds = Counter(training for training, _ in lines)
    return {
        (training, seed): f"{training}, seed {seed}" if seeds[training] > 1 else training
        for training, seed in lines
    }


def _curve(axis: Axes, curve: Curve, look: ModelStyle, label: str) -> None:
    steps = [point.step for point in curve.points]
    means = [point.mean for point in curve.points]
    axis.plot(steps, means, color=look.color, marker=look.marker, markersize=4, label=label or None)
    known = [(point.step, *point.interval) for point in curve.points if point.interval]
    if known:
        at, low, high = zip(*known, strict=True)
        axis.vlines(at, low, high, color=look.color, linewidth=1.8)


def _panels(count: int, width: float) -> tuple[MplFigure, list[Axes]]:
    """A grid of ``count`` panels, three per row, or one per row in narrow figures."""
    import matplotlib.pyplot as plt

    columns = min(3 if width > 5 else 1, count)
    lines = -(-count // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(width, 1.9 * lines), squeeze=False)
    panels = list(axes.flat)
    for axis in panels[count:]:
        axis.remove()
    return figure, panels[:count]


def _legend(figure: MplFigure, panels: Sequence[Axes]) -> None:
    """Draw one legend below all panels if their lines have labels."""
    shown = {
        str(line.get_label()): line
        for axis in panels
        for line in axis.lines
        if not str(line.get_label()).startswith("_")
    }
    if shown:
        columns = 3 if figure.get_figwidth() > 5 else 1
        lines, labels = list(shown.values()), list(shown)
        figure.legend(lines, labels, loc="outside lower center", ncols=columns, fontsize=SMALL)


def loss_figure(trainings: Trainings) -> Figure | None:
    """Losses and learning rate by step, one line per training; None without logs."""
    keys = logged_series(trainings.logs)
    if not keys:
        return None
    words = "; ".join(
        f"{log.name}: {series_title(key)} {log.series[key][0][1]:.3f} to "
        f"{log.series[key][-1][1]:.3f}"
        for log in trainings.logs
        for key in keys
        if key in log.series and key != "lr"
    )
    return Figure(
        name="losses",
        draw=lambda width: _draw_losses(trainings.logs, keys, width),
        caption="Losses, development scores and learning rate by step, as logged, one line per "
        "training; single values, so without intervals. Values that were not logged have no line.",
        alt=f"Losses by training step. {words}.",
    )


def _draw_losses(logs: Sequence[TrainingLog], keys: Sequence[str], width: float) -> MplFigure:
    styles = model_styles(log.name for log in logs)
    figure, panels = _panels(len(keys), width)
    for axis, key in zip(panels, keys, strict=True):
        for log in logs:
            if values := log.series.get(key):
                steps, heights = zip(*values, strict=True)
                look = styles[log.name]
                axis.plot(
                    steps, heights, color=look.color, marker=look.marker, lw=1.3, markersize=3,
                    label=plain(log.name),
                )  # fmt: skip
        axis.set(title=series_title(key), xlabel="training step")
        _fit_steps(axis, [log.series[key] for log in logs if key in log.series])
        grid(axis, which="y")
    _legend(figure, panels)
    return figure


def _fit_steps(axis: Axes, series: Sequence[Sequence[tuple[int, float]]]) -> None:
    """Scale the steps by logarithm if a short training would be a dot beside a long one."""
    from matplotlib.ticker import NullFormatter, ScalarFormatter

    steps = [step for values in series for step, _ in values if step > 0]
    lasts = [values[-1][0] for values in series]
    if not steps or max(lasts) < _UNLIKE * min(lasts):
        return
    axis.set_xscale("symlog", linthresh=min(steps))
    axis.xaxis.set_major_formatter(ScalarFormatter())
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.set_xlabel("training step, logarithmic")


def conflict_figure(trainings: Trainings) -> Figure | None:
    """Cosine of the two objectives' gradients: by layer and step, by layer and module, by step.

    One row per joint training on a common colour scale; unmeasured cells are hatched. None if
    there are no measurements.
    """
    given = [each for each in trainings.conflicts if each.cosines]
    if not given:
        return None
    words = "; ".join(
        f"{each.name}: mean {float(np.nanmean(each.by_step())):+.3f}, from "
        f"{float(np.nanmin(each.by_step())):+.3f} to {float(np.nanmax(each.by_step())):+.3f}"
        for each in given
    )
    return Figure(
        name="conflicts",
        draw=lambda width: _draw_conflicts(given, width),
        caption="Cosine of the gradients of two objectives, one row per joint training: by layer "
        "and step (mean over modules), by layer and module (mean over steps), and over time (line: "
        "mean over layers, band: lowest to highest layer). Hatched: not measured.",
        alt=f"Cosines of gradients by layer, module and step. {words}.",
    )


def _draw_conflicts(given: Sequence[Conflicts], width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    tables = [table for each in given for table in (each.by_step(), each.by_module())]
    largest = max(float(np.nanmax(np.abs(table))) for table in tables)
    layers = max(len(each.layers) for each in given)
    height = min(5.0, 1.6 + 0.15 * layers)
    wide = width > 5
    shape = (len(given), 3) if wide else (3 * len(given), 1)
    figure, axes = plt.subplots(
        *shape, figsize=(width, height * shape[0]), squeeze=False,
        width_ratios=(1.2, 1.3, 1) if wide else (1,),
    )  # fmt: skip
    for (left, middle, right), each in zip(axes.reshape(len(given), 3), given, strict=True):
        _heat(left, each.by_step(), each.layers, each.steps, largest=largest, bar=False)
        _heat(middle, each.by_module(), each.layers, each.modules, largest=largest, bar=True)
        left.set_title(plain(each.name, most=40), loc="left", fontsize=8)
        left.set(xlabel="training step, mean over modules", ylabel="layer")
        middle.set_title("mean over steps", fontsize=8)
        _over_time(right, each)
    return figure


def _heat(
    axis: Axes,
    table: Array,
    rows: Sequence[str],
    columns: Sequence[object],
    *,
    largest: float,
    bar: bool,
) -> None:
    """Draw a heat map with hatched gaps, and with numbers if there is room."""
    from pandas import DataFrame
    from seaborn import heatmap

    labelled = table.size <= _LABELLED and len(columns) <= 7
    axis.set_facecolor((0.49, 0.52, 0.56, 0.2))
    axis.patch.set(hatch="///", edgecolor=GREY)
    index, heads = ([plain(str(each), most=12) for each in names] for names in (rows, columns))
    heatmap(
        DataFrame(table, index=index, columns=heads), ax=axis,
        cmap="RdBu", vmin=-largest, vmax=largest,
        annot=labelled, fmt="+.2f", annot_kws={"fontsize": SMALL, "rotation": 90},
        rasterized=not labelled,  # a page of thousands of rectangles is slow
        cbar=bar, cbar_kws={"label": "cosine", "shrink": 0.9},
    )  # fmt: skip
    axis.tick_params(length=0)
    axis.tick_params(axis="y", rotation=0)


def _over_time(axis: Axes, each: Conflicts) -> None:
    """Draw the mean over layers by step, with a band from the lowest to the highest layer."""
    table = np.ma.masked_invalid(each.by_step())
    axis.axhline(0, color=GREY, linewidth=1)
    axis.fill_between(each.steps, table.min(axis=0), table.max(axis=0), alpha=0.2, linewidth=0)
    axis.plot(each.steps, table.mean(axis=0), "o-", markersize=3.5)
    axis.set_title("mean over layers", fontsize=8)
    axis.set_xlabel("training step")
