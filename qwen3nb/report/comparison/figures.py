"""Figures of a comparison: forest plots of differences by task, and matrices of all pairs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.task_comparison import PairOutcome, TaskComparison
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.report.comparison.by_type import draw_by_model, draw_wins
from qwen3nb.report.render.figure import GREY, SMALL, Figure, grid, plain
from qwen3nb.report.render.format import not_shown, short_task
from qwen3nb.report.render.model_styles import ModelStyle, model_styles
from qwen3nb.report.render.sections import MANY, MOST_MODELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

    from qwen3nb.analysis.comparison.differences import PairedDifference

__all__ = ["differences_figure", "pairs_figure"]


def differences_figure(comparison: Comparison) -> Figure | None:
    """Draw forest plots: a panel per task, a row per model with its difference and interval.

    Of more than `MANY` tasks, a panel per model with a row per task, by type. Filled markers are
    significant after correction; the grey band contains differences that do
    not matter. None if nothing was compared.
    """
    tasks = [task for task in comparison.tasks if task.with_baseline]
    if not tasks:
        return None
    how, every = comparison.procedure, {each.first for each in comparison.differences}
    models = comparison.leaders(MANY if len(tasks) > MANY else MOST_MODELS)
    words = "; ".join(
        f"{each.first} on {short_task(each.task)}: {each}"
        for each in comparison.differences
        if each.first in models
    )
    return Figure(
        name="differences",
        draw=lambda width: (
            draw_by_model(comparison, models, width)
            if len(tasks) > MANY
            else _draw_differences(comparison, tasks, models, width)
        ),
        caption=f"Difference of each model's mean from that of {comparison.baseline}, paired over "
        f"{'the same queries' if len(tasks) > MANY else 'the n queries below each panel'}, with "
        f"95 % intervals ({interval_words(['paired'])}). "
        "Filled: significantly different by the two-sided paired permutation test, corrected p < "
        f"{how.alpha:g}, {comparison.family()}, and by the interval; open: not significantly "
        f"different. Shaded: differences below {how.minimum:g}."
        + not_shown(len(every) - len(models)),
        alt=f"Forest plots of differences from {comparison.baseline}. {words}.",
    )


def _draw_differences(
    comparison: Comparison, tasks: Sequence[TaskComparison], names: Sequence[str], width: float
) -> MplFigure:
    import matplotlib.pyplot as plt

    how = comparison.procedure
    styles = model_styles([*names, comparison.baseline])
    columns = min(3 if width > 5 else 1, len(tasks))
    lines = -(-len(tasks) // columns)
    height = lines * (0.21 * len(names) + 0.8)
    figure, axes = plt.subplots(lines, columns, figsize=(width, height), sharey=True, squeeze=False)
    for axis, task in zip(axes.flat, tasks, strict=False):
        axis.axvspan(-how.minimum, how.minimum, color=GREY, alpha=0.13, linewidth=0)
        axis.axvline(0, color=GREY, linewidth=1)
        for each in task.with_baseline:
            if each.first in names:
                row = len(names) - 1 - names.index(each.first)
                _forest_row(axis, row, each, styles[each.first], how.alpha)
        axis.set_title(plain(short_task(task.task), most=24))
        axis.set_xlabel(f"Δ {task.metric}, n = {task.with_baseline[0].n}")
        axis.tick_params(axis="y", length=0)
        grid(axis)
    for axis in list(axes.flat)[len(tasks) :]:
        axis.remove()
    for line in axes:
        line[0].set_yticks(range(len(names)), [plain(name, most=28) for name in names[::-1]])
    return figure


def _forest_row(
    axis: Axes, row: int, each: PairedDifference, style: ModelStyle, alpha: float
) -> None:
    if each.interval is not None:
        axis.plot(each.interval, [row, row], color=style.color, linewidth=1.8,
                  solid_capstyle="butt")  # fmt: skip
    fill = style.color if each.significant(alpha) else "none"
    axis.plot([each.difference], [row], style.marker, mec=style.color, mfc=fill, markersize=4.5)


def pairs_figure(comparison: Comparison) -> Figure | None:
    """Draw every pair of models, a panel per task: row minus column; a dot is not significant.

    Of more than `MANY` tasks, a panel per type with the number of tasks on which the row is
    significantly above the column. None if nothing was compared.
    """
    tasks = [task for task in comparison.tasks if task.outcomes]
    if not tasks:
        return None
    if len(tasks) > MANY:
        return _wins_by_type(comparison)
    how = comparison.procedure
    pairs = [each for task in tasks for each in task.outcomes]
    open_ones = sum(not each.significant for each in pairs)
    return Figure(
        name="pairs",
        draw=lambda width: _draw_pairs(tasks, width),
        caption="Every pair of models, row minus column, best first, paired over the queries that "
        "both answered. Dot: not significantly different (two-sided paired permutation test, "
        f"corrected p ≥ {how.alpha:g}, {NAMES[how.correction]} over these pairs on each task, or "
        "an interval that holds 0)."
        + comparison.caution
        + not_shown(max(len(task.columns) for task in tasks) - MOST_MODELS),
        alt="A matrix of differences per task. "
        f"{open_ones} of {len(pairs)} pairs are not significantly different.",
    )


def _wins_by_type(comparison: Comparison) -> Figure:
    how = comparison.procedure
    return Figure(
        name="pairs",
        draw=lambda width: draw_wins(comparison, width),
        caption="Every pair of models by type of task: on how many tasks the row is significantly "
        "above the column, paired over the queries that both answered (two-sided paired "
        f"permutation test, corrected p < {how.alpha:g}, {NAMES[how.correction]} over these pairs "
        "on each task, and an interval that leaves out 0)."
        + comparison.caution
        + not_shown(len({name for _, name in comparison.records}) - MOST_MODELS),
        alt="A matrix of counts per type of task; the same differences are in the tables.",
    )


def _draw_pairs(tasks: Sequence[TaskComparison], width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    largest = max(abs(each.difference) for task in tasks for each in task.outcomes) or 1.0
    columns = min(2 if width > 5 else 1, len(tasks))
    lines = -(-len(tasks) // columns)
    side = width / columns
    figure, axes = plt.subplots(lines, columns, figsize=(width, 0.95 * side * lines), squeeze=False)
    image: Any = None
    for axis, task in zip(axes.flat, tasks, strict=False):
        image = _matrix(axis, task.outcomes, largest)
        axis.set_title(plain(short_task(task.task), most=24))
    for axis in list(axes.flat)[len(tasks) :]:
        axis.remove()
    shown = list(axes.flat)[: len(tasks)]
    figure.colorbar(image, ax=shown, label="row − column", shrink=0.7)
    return figure


def _matrix(axis: Axes, pairs: Sequence[PairOutcome], largest: float) -> Any:
    names = _order(pairs)[:MOST_MODELS]
    rows = {name: row for row, name in enumerate(names)}
    table = np.full((len(names), len(names)), np.nan)
    for pair in pairs:
        if pair.first not in rows or pair.second not in rows:
            continue
        i, j = rows[pair.first], rows[pair.second]
        table[i, j], table[j, i] = pair.difference, -pair.difference
        if not pair.significant:
            axis.plot([j, i], [i, j], "o", color="#24292f", markersize=2.5)
    labels = [plain(name, most=26) for name in names]
    axis.set_xticks(range(len(names)), labels, rotation=90, fontsize=SMALL)
    axis.set_yticks(range(len(names)), labels, fontsize=SMALL)
    axis.tick_params(length=0)
    return axis.imshow(table, cmap="RdBu", vmin=-largest, vmax=largest)


def _order(pairs: Sequence[PairOutcome]) -> list[str]:
    """Return the systems from best to worst by their mean difference from all others."""
    total: dict[str, float] = {}
    for pair in pairs:
        total[pair.first] = total.get(pair.first, 0.0) + pair.difference
        total[pair.second] = total.get(pair.second, 0.0) - pair.difference
    return sorted(total, key=lambda name: -total[name])
