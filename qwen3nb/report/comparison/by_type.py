"""Comparisons over many tasks, by type of task: counts, tables, forest plots, matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.analysis.comparison.task_comparison import TaskComparison
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.figure import GREY, SMALL, grid, plain
from qwen3nb.report.render.format import not_shown, short_task
from qwen3nb.report.render.model_styles import ModelStyle, model_styles
from qwen3nb.report.render.sections import MANY, MOST_MODELS, Sections
from qwen3nb.report.render.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

__all__ = [
    "by_type_tables",
    "draw_by_model",
    "draw_wins",
    "overview_table",
    "tasks_by_type",
]

_MOST_ROWS = 1000  # of the tables of a page


def tasks_by_type(comparison: Comparison) -> dict[str, list[TaskComparison]]:
    """Return the tasks on which models were compared, by type."""
    kinds = {task: str(record.task.type) for (task, _), record in comparison.records.items()}
    types: dict[str, list[TaskComparison]] = {}
    for task in comparison.tasks:
        if task.outcomes:
            types.setdefault(kinds[task.task], []).append(task)
    return dict(sorted(types.items()))


def by_type_tables(comparison: Comparison, make: Callable[..., Table]) -> Table | Sections:
    """Return a table of a comparison, or of many tasks one per type.

    Args:
        comparison: the comparison to show.
        make: `differences_table` or `power_table`; it takes the ``tasks`` and ``models`` to show,
            of many models the best.
    """
    types = tasks_by_type(comparison)
    models = comparison.leaders(max(MANY, _MOST_ROWS // (sum(map(len, types.values())) or 1)))
    if sum(map(len, types.values())) <= MANY:
        return make(comparison, models=models)
    tables = []
    for kind, tasks in types.items():
        keys = [each.task for each in tasks if each.with_baseline]
        if keys:
            table = make(comparison, tasks=keys, models=models)
            name = "-".join([table.name, *kind.lower().split()])
            tables.append((f"{kind} ({len(keys)} tasks)", replace(table, name=name)))
    return Sections(tuple(tables))


def overview_table(comparison: Comparison, *, most: int = MOST_MODELS) -> Table:
    """Count the tasks of each type on which a model is better or worse than the baseline.

    If no type has several tasks, all tasks are counted together.

    Args:
        comparison: the comparison to show.
        most: how many models to show, of more the best.
    """
    how, rows, models = comparison.procedure, [], comparison.leaders(most)
    for kind, tasks in _counted_together(comparison).items():
        differences = [each for task in tasks for each in task.with_baseline]
        for model in dict.fromkeys(each.first for each in differences if each.first in models):
            own = [each for each in differences if each.first == model]
            rows.append(
                (
                    Cell(model, kind),
                    Cell(str(len(own)), value=len(own)),
                    Cell(_counts(own, how.alpha)),
                )
            )
    heads = ("model\ntype of task", "tasks", "better / no difference / worse")
    note = (
        f"Tasks on which a model is significantly better or worse than {comparison.baseline}: "
        f"two-sided paired permutation test, {NAMES[how.correction]}, p < {how.alpha:g}, and the "
        "interval leaves out 0. p is corrected over all pairs of models on each task, so that of "
        "many tasks some differences are significant by chance."
        + comparison.caution
        + _uncounted(comparison)
        + not_shown(len({each.first for each in comparison.differences}) - len(models))
    )
    caption = f"Tasks on which a model is better or worse than {comparison.baseline}, by type."
    return Table(
        heads, tuple(rows), note if rows else "Nothing was compared.", name="overview",
        caption=caption,
    )  # fmt: skip


def _counted_together(comparison: Comparison) -> dict[str, list[TaskComparison]]:
    types = tasks_by_type(comparison)
    if len(types) > 1 and all(len(tasks) == 1 for tasks in types.values()):
        return {"all types": [task for tasks in types.values() for task in tasks]}
    return types


def _uncounted(comparison: Comparison) -> str:
    """Name the tasks on which nothing is paired over queries."""
    counted = {each.task for each in comparison.differences}
    others = list(dict.fromkeys(task for task, _ in comparison.records if task not in counted))
    if not others:
        return ""
    return (
        " Not counted, since their score is not a mean over queries or only one model has it (for "
        f"STS see the correlations): {', '.join(map(short_task, others))}."
    )


def _counts(differences: Sequence[PairedDifference], alpha: float) -> str:
    gains = [each.difference for each in differences if each.significant(alpha)]
    better = sum(gain > 0 for gain in gains)
    return f"{better} / {len(differences) - len(gains)} / {len(gains) - better}"


def draw_by_model(comparison: Comparison, models: Sequence[str], width: float) -> MplFigure:
    """Draw a forest plot of each of some models, a row per task; types are divided by lines."""
    import matplotlib.pyplot as plt

    tasks = [(kind, each) for kind, own in tasks_by_type(comparison).items() for each in own
             if each.with_baseline]  # fmt: skip
    rows = {(each.task, each.metric): len(tasks) - 1 - i for i, (_, each) in enumerate(tasks)}
    columns = min(3 if width > 5 else 1, len(models))
    lines = -(-len(models) // columns)
    size = (width, lines * (0.125 * len(tasks) + 0.8))
    figure, axes = plt.subplots(
        lines, columns, figsize=size, sharex=True, sharey=True, squeeze=False
    )
    styles = model_styles([*models, comparison.baseline])
    for axis, model in zip(axes.flat, models, strict=False):
        own = [each for each in comparison.differences if each.first == model]
        _forest(axis, own, rows, styles[model], comparison)
        _divide(axis, [kind for kind, _ in tasks], named=width > 5)
        axis.set_title(plain(model, most=26))
        axis.tick_params(labelbottom=True)
    for axis in list(axes.flat)[len(models) :]:
        axis.remove()
    names = [plain(short_task(each.task), most=30) for _, each in reversed(tasks)]
    for line in axes:
        line[0].set_yticks(range(len(tasks)), names, fontsize=SMALL)
    return figure


def _forest(
    axis: Axes,
    own: Sequence[PairedDifference],
    rows: dict[tuple[str, str], int],
    style: ModelStyle,
    comparison: Comparison,
) -> None:
    how = comparison.procedure
    axis.axvspan(-how.minimum, how.minimum, color=GREY, alpha=0.13, linewidth=0)
    axis.axvline(0, color=GREY, linewidth=1)
    for each in own:
        row = rows[each.task, each.metric]
        if each.interval is not None:
            axis.plot(each.interval, [row, row], color=style.color, linewidth=1.3,
                      solid_capstyle="butt")  # fmt: skip
        fill = style.color if each.significant(how.alpha) else "none"
        axis.plot([each.difference], [row], style.marker, mec=style.color, mfc=fill, markersize=3)
    axis.set_ylim(-0.7, len(rows) - 0.3)
    axis.set_xlabel(f"Δ to {plain(comparison.baseline, most=20)}")
    axis.tick_params(axis="y", length=0)
    grid(axis)


def _divide(axis: Axes, kinds: Sequence[str], *, named: bool) -> None:
    """Draw a line above each type of task, with its name at the right."""
    for i, kind in enumerate(kinds):
        if i and kind == kinds[i - 1]:
            continue
        height = len(kinds) - i - 0.5
        axis.axhline(height, color=GREY, linewidth=0.7)
        if named:
            axis.annotate(kind, (1, height), xycoords=("axes fraction", "data"), ha="right",
                          va="top", fontsize=SMALL - 1, xytext=(0, -1),
                          textcoords="offset points", alpha=0.8)  # fmt: skip


def draw_wins(comparison: Comparison, width: float) -> MplFigure:
    """Draw a matrix per type: on how many tasks the row is significantly above the column.

    Of more than `MOST_MODELS`, those with most significant wins.
    """
    import matplotlib.pyplot as plt

    types = tasks_by_type(comparison)
    columns = min(3 if width > 5 else 1, len(types))
    lines = -(-len(types) // columns)
    names = _order(comparison)[:MOST_MODELS]
    size = (width, lines * max(1.2, 0.85 * width / columns))
    figure, axes = plt.subplots(
        lines, columns, figsize=size, sharex=True, sharey=True, squeeze=False
    )
    for axis, (kind, tasks) in zip(axes.flat, types.items(), strict=False):
        _wins(axis, tasks, names)
        axis.set_title(f"{kind}, {len(tasks)} task{'s' if len(tasks) > 1 else ''}")
        axis.tick_params(labelbottom=True)
    for axis in list(axes.flat)[len(types) :]:
        axis.remove()
    return figure


def _order(comparison: Comparison) -> list[str]:
    """Return the models, those with most significant wins over all tasks first."""
    score: dict[str, int] = {}
    for task in comparison.tasks:
        for each in task.outcomes:
            won = int(np.sign(each.difference)) * each.significant
            score[each.first] = score.get(each.first, 0) + won
            score[each.second] = score.get(each.second, 0) - won
    return sorted(score, key=lambda name: (-score[name], name))


def _wins(axis: Any, tasks: Sequence[TaskComparison], names: list[str]) -> None:
    table = np.full((len(names), len(names)), np.nan)
    rows = {name: row for row, name in enumerate(names)}
    for task in tasks:
        for each in task.outcomes:
            if each.first not in rows or each.second not in rows:
                continue
            i, j = rows[each.first], rows[each.second]
            for row, column, sign in ((i, j, 1), (j, i, -1)):
                won = each.significant and sign * each.difference > 0
                table[row, column] = np.nan_to_num(table[row, column]) + won
    axis.imshow(table, cmap="Blues", vmin=0, vmax=1.6 * len(tasks))
    for (i, j), value in np.ndenumerate(table):
        if not np.isnan(value):
            ink = axis.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=SMALL)
            ink.set_color("#010101")
    labels = [plain(name, most=18) for name in names]
    axis.set_xticks(range(len(names)), labels, rotation=90, fontsize=SMALL)
    axis.set_yticks(range(len(names)), labels, fontsize=SMALL)
    axis.tick_params(length=0)
