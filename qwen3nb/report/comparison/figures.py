"""Figures of a comparison: forest plots of differences, queries won, matrices of all pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import PairedDifference, PairOutcome, TaskComparison
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.report.comparison.conclusion import find_best
from qwen3nb.report.comparison.tables import tasks_by_type
from qwen3nb.report.render.figure import (
    COLORS,
    GREY,
    SMALL,
    Figure,
    draw_estimate,
    grid,
    panels,
    plain,
)
from qwen3nb.report.render.forest_plot import ForestRow, forest_figure
from qwen3nb.report.render.format import not_shown, short_task
from qwen3nb.report.render.model_styles import ModelStyle, model_styles
from qwen3nb.report.render.sections import MANY, MOST_MODELS
from qwen3nb.utils.format import interval_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

# Has a contrast of 5 with the colours of the bars, where white has 3.5. Not pure black, which
# matplotlib omits from an SVG, so that the page would apply its own text colour.
_ON_COLOR = "#010101"
_MOST_BEHIND = 8  # models in the figure of the landing page, beside the best


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
    many = len(tasks) > MANY
    models = comparison.leaders(MANY if many else MOST_MODELS)
    words = "; ".join(
        f"{each.first} on {short_task(each.task)}: {each}"
        for each in comparison.differences
        if each.first in models
    )
    return Figure(
        name="differences",
        draw=lambda width: (
            _draw_by_model(comparison, models, width)
            if many
            else _draw_by_task(comparison, tasks, models, width)
        ),
        caption=f"Difference of each model's mean from that of {comparison.baseline}, paired over "
        f"{'the same queries' if many else 'the n queries below each panel'}, with "
        f"95 % intervals ({interval_words(['paired'])}). "
        "Filled: significantly different by the two-sided paired permutation test, corrected p < "
        f"{how.alpha:g}, {comparison.family()}, and by the interval; open: not significantly "
        f"different. Shaded: differences below {how.minimum:g}."
        + not_shown(len(every) - len(models)),
        alt=f"Forest plots of differences from {comparison.baseline}. {words}.",
    )


def _draw_by_task(
    comparison: Comparison, tasks: Sequence[TaskComparison], names: Sequence[str], width: float
) -> MplFigure:
    styles = model_styles([*names, comparison.baseline])
    figure, axes, first = panels(len(tasks), width, height=0.21 * len(names) + 0.8, sharey=True)
    for axis, task in zip(axes, tasks, strict=True):
        _start(axis, comparison)
        for each in task.with_baseline:
            if each.first in names:
                row = len(names) - 1 - names.index(each.first)
                _draw_difference(axis, row, each, styles, comparison)
        axis.set_title(plain(short_task(task.task), most=24))
        axis.set_xlabel(f"Δ {task.metric}, n = {task.with_baseline[0].n}")
    for axis in first:
        axis.set_yticks(range(len(names)), [plain(name, most=28) for name in names[::-1]])
    return figure


def _draw_by_model(comparison: Comparison, models: Sequence[str], width: float) -> MplFigure:
    """Draw a forest plot of each of some models, a row per task; types are divided by lines."""
    tasks = [
        (kind, each)
        for kind, own in tasks_by_type(comparison).items()
        for each in own
        if each.with_baseline
    ]
    rows = {(each.task, each.metric): len(tasks) - 1 - i for i, (_, each) in enumerate(tasks)}
    height = 0.125 * len(tasks) + 0.8
    figure, axes, first = panels(len(models), width, height=height, sharex=True, sharey=True)
    styles = model_styles([*models, comparison.baseline])
    for axis, model in zip(axes, models, strict=True):
        _start(axis, comparison)
        for each in comparison.differences:
            if each.first == model:
                row = rows[each.task, each.metric]
                _draw_difference(axis, row, each, styles, comparison, thin=True)
        axis.set_ylim(-0.7, len(rows) - 0.3)
        axis.set_xlabel(f"Δ to {plain(comparison.baseline, most=20)}")
        _divide(axis, [kind for kind, _ in tasks], named=width > 5)
        axis.set_title(plain(model, most=26))
        axis.tick_params(labelbottom=True)
    names = [plain(short_task(each.task), most=30) for _, each in reversed(tasks)]
    for axis in first:
        axis.set_yticks(range(len(tasks)), names, fontsize=SMALL)
    return figure


def _start(axis: Axes, comparison: Comparison) -> None:
    """Draw the line of no effect in the band of differences that do not matter."""
    how = comparison.procedure
    axis.axvspan(-how.minimum, how.minimum, color=GREY, alpha=0.13, linewidth=0)
    axis.axvline(0, color=GREY, linewidth=1)
    axis.tick_params(axis="y", length=0)
    grid(axis)


def _draw_difference(
    axis: Axes,
    row: int,
    each: PairedDifference,
    styles: dict[str, ModelStyle],
    comparison: Comparison,
    *,
    thin: bool = False,
) -> None:
    draw_estimate(
        axis,
        row,
        each.difference,
        each.interval,
        **asdict(styles[each.first]),
        filled=each.significant(comparison.procedure.alpha),
        linewidth=1.3 if thin else 1.8,
        size=3 if thin else 4.5,
    )


def _divide(axis: Axes, kinds: Sequence[str], *, named: bool) -> None:
    """Draw a line above each type of task, with its name at the right."""
    for i, kind in enumerate(kinds):
        if i and kind == kinds[i - 1]:
            continue
        height = len(kinds) - i - 0.5
        axis.axhline(height, color=GREY, linewidth=0.7)
        if named:
            axis.annotate(
                kind,
                (1, height),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="top",
                fontsize=SMALL - 1,
                xytext=(0, -1),
                textcoords="offset points",
                alpha=0.8,
            )


def pairs_figure(comparison: Comparison) -> Figure | None:
    """Draw every pair of models, a panel per task: row minus column; a dot is not significant.

    Of more than `MANY` tasks, a panel per type with the number of tasks on which the row is
    significantly above the column. None if nothing was compared.
    """
    tasks = [task for task in comparison.tasks if task.outcomes]
    if not tasks:
        return None
    how = comparison.procedure
    test = f"{NAMES[how.correction]} over these pairs on each task"
    if len(tasks) > MANY:
        return Figure(
            name="pairs",
            draw=lambda width: _draw_wins_by_type(comparison, width),
            caption="Every pair of models by type of task: on how many tasks the row is "
            "significantly above the column, paired over the queries that both answered (two-sided "
            f"paired permutation test, corrected p < {how.alpha:g}, {test}, and an interval that "
            "leaves out 0)."
            + comparison.caution
            + not_shown(len({name for _, name in comparison.records}) - MOST_MODELS),
            alt="A matrix of counts per type of task; the same differences are in the tables.",
        )
    pairs = [each for task in tasks for each in task.outcomes]
    undecided = sum(not each.significant for each in pairs)
    return Figure(
        name="pairs",
        draw=lambda width: _draw_pairs(tasks, width),
        caption="Every pair of models, row minus column, best first, paired over the queries that "
        "both answered. Dot: not significantly different (two-sided paired permutation test, "
        f"corrected p ≥ {how.alpha:g}, {test}, or an interval that holds 0)."
        + comparison.caution
        + not_shown(max(len(task.columns) for task in tasks) - MOST_MODELS),
        alt="A matrix of differences per task. "
        f"{undecided} of {len(pairs)} pairs are not significantly different.",
    )


def _draw_pairs(tasks: Sequence[TaskComparison], width: float) -> MplFigure:
    largest = max(abs(each.difference) for task in tasks for each in task.outcomes) or 1.0
    figure, axes, _ = panels(len(tasks), width, aspect=0.95, most=2)
    image: Any = None
    for axis, task in zip(axes, tasks, strict=True):
        total = _totals((each, each.difference) for each in task.outcomes)
        names = sorted(total, key=lambda name: -total[name])[:MOST_MODELS]
        table = np.full((len(names), len(names)), np.nan)
        for pair, i, j in _within(task.outcomes, names):
            table[i, j], table[j, i] = pair.difference, -pair.difference
            if not pair.significant:
                axis.plot([j, i], [i, j], "o", color="#24292f", markersize=2.5)
        _label_matrix(axis, [plain(name, most=26) for name in names])
        image = axis.imshow(table, cmap="RdBu", vmin=-largest, vmax=largest)
        axis.set_title(plain(short_task(task.task), most=24))
    figure.colorbar(image, ax=axes, label="row − column", shrink=0.7)
    return figure


def _draw_wins_by_type(comparison: Comparison, width: float) -> MplFigure:
    """Draw a matrix per type: on how many tasks the row is significantly above the column.

    Of more than `MOST_MODELS`, those with most significant wins.
    """
    types = tasks_by_type(comparison)
    every = [each for task in comparison.tasks for each in task.outcomes]
    won = _totals((each, float(np.sign(each.difference)) * each.significant) for each in every)
    names = sorted(won, key=lambda name: (-won[name], name))[:MOST_MODELS]
    figure, axes, _ = panels(len(types), width, height=1.2, aspect=0.85, sharex=True, sharey=True)
    for axis, (kind, tasks) in zip(axes, types.items(), strict=True):
        table = np.full((len(names), len(names)), np.nan)
        for task in tasks:
            for each, i, j in _within(task.outcomes, names):
                for row, column, sign in ((i, j, 1), (j, i, -1)):
                    above = each.significant and sign * each.difference > 0
                    table[row, column] = np.nan_to_num(table[row, column]) + above
        axis.imshow(table, cmap="Blues", vmin=0, vmax=1.6 * len(tasks))
        for (i, j), value in np.ndenumerate(table):
            if not np.isnan(value):
                _write(axis, f"{value:.0f}", j, i).set_color(_ON_COLOR)
        _label_matrix(axis, [plain(name, most=18) for name in names])
        axis.set_title(f"{kind}, {len(tasks)} task{'s' if len(tasks) > 1 else ''}")
        axis.tick_params(labelbottom=True)
    return figure


def _totals(gains: Iterable[tuple[PairOutcome, float]]) -> dict[str, float]:
    """Return the sum of each system's gains over the others."""
    total: dict[str, float] = {}
    for pair, gain in gains:
        total[pair.first] = total.get(pair.first, 0.0) + gain
        total[pair.second] = total.get(pair.second, 0.0) - gain
    return total


def _within(
    pairs: Iterable[PairOutcome], names: Sequence[str]
) -> Iterator[tuple[PairOutcome, int, int]]:
    """Yield the pairs of some systems, with the positions of both."""
    rows = {name: row for row, name in enumerate(names)}
    for pair in pairs:
        if pair.first in rows and pair.second in rows:
            yield pair, rows[pair.first], rows[pair.second]


def _label_matrix(axis: Axes, labels: Sequence[str]) -> None:
    axis.set_xticks(range(len(labels)), labels, rotation=90, fontsize=SMALL)
    axis.set_yticks(range(len(labels)), labels, fontsize=SMALL)
    axis.tick_params(length=0)


def task_differences_figure(comparison: Comparison, *, task: str) -> Figure | None:
    """Draw a forest plot of every model's difference from the baseline; None without any."""
    every = comparison.differences_on(task)
    differences = every[:MOST_MODELS]
    if not differences:
        return None
    how, baseline = comparison.procedure, comparison.baseline
    styles = model_styles([each.first for each in differences])
    sizes = sorted({each.n for each in differences})
    n = f"n = {sizes[0]}" if len(sizes) == 1 else f"n = {sizes[0]} to {sizes[-1]}"
    metric = differences[0].metric
    words = "; ".join(f"{each.first}: {each}" for each in differences)
    return forest_figure(
        [_forest_row(each, styles, comparison) for each in differences],
        xlabel=f"{metric} minus that of {baseline}",
        name=f"differences-{task}",
        caption=f"{short_task(task)}: mean difference of {metric} from {baseline} over the same "
        f"queries ({n}), with its 95 % interval ({interval_words(['paired'])}). "
        "Filled: significantly different, two-sided paired permutation test, corrected p < "
        f"{how.alpha:g}, {comparison.family(task)}, and the interval leaves out 0."
        f"{comparison.given(task)}"
        f"{not_shown(len(every) - len(differences))}",
        alt=f"Forest plot of {metric} minus that of {baseline}. {words}.",
    )


def wins_figure(comparison: Comparison, *, task: str) -> Figure | None:
    """Draw how many queries each model wins, ties and loses against the baseline; None without."""
    every = comparison.differences_on(task)
    differences = every[:MOST_MODELS]
    if not differences:
        return None
    counts = sorted(differences, key=lambda each: (each.won - each.lost, each.first))
    words = "; ".join(
        f"{each.first}: {each.won} won, {each.tied} tied, {each.lost} lost" for each in counts[::-1]
    )
    reference, metric = comparison.baseline, counts[0].metric
    return Figure(
        name=f"wins-{task}",
        draw=lambda width: _draw_wins(counts, width),
        caption=f"{short_task(task)}: queries on which a model's {metric} is above that of "
        f"{reference}, equal to it, or below it (n = {max(each.n for each in counts)}). These are "
        "counts: a model may win often by little. For the test, see the paired differences."
        + not_shown(len(every) - len(differences)),
        alt=f"Bars of queries won, tied and lost against {reference}. {words}.",
    )


def _draw_wins(counts: Sequence[PairedDifference], width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    reference, metric = counts[0].second, counts[0].metric
    figure, axis = plt.subplots(figsize=(width, 0.21 * len(counts) + 0.75))
    kinds = (("won", COLORS[2], 0.9), ("tied", GREY, 0.35), ("lost", COLORS[1], 0.9))
    total = max(each.n for each in counts)
    for row, each in enumerate(counts):
        left = 0
        for kind, color, alpha in kinds:
            size = getattr(each, kind)
            axis.barh(row, size, left=left, height=0.72, color=color, alpha=alpha)
            if size > 0.06 * total * (1 if width > 5 else 2):
                count = _write(axis, f"{size}", left + size / 2, row)
                if kind != "tied":  # on a pale colour, the page's text colour is legible
                    count.set_color(_ON_COLOR)
            left += size
    axis.set_yticks(range(len(counts)), [plain(c.first, most=30) for c in counts])
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.set_xlim(0, total)
    axis.set_xlabel(f"queries, by {metric} against {plain(reference, most=24)}")
    for x, side, (kind, _, _) in zip(
        (0.0, 0.5, 1.0), ("left", "center", "right"), kinds, strict=True
    ):
        axis.annotate(
            kind,
            (x, 1.0),
            xycoords="axes fraction",
            xytext=(0, 2),
            fontsize=SMALL,
            textcoords="offset points",
            va="bottom",
            ha=side,
        )
    return figure


def _write(axis: Axes, text: str, x: float, y: float) -> Any:
    """Write a small text at the middle of a point."""
    return axis.annotate(text, (x, y), ha="center", va="center", fontsize=SMALL)


def lead_figure(comparison: Comparison, *, task: str) -> Figure | None:
    """Draw how far each model is behind the best one, the best on top; None for fewer than two.

    Args:
        comparison: the comparison that all pages show.
        task: the task to report on, or a benchmark, whose mean it then is.
    """
    best = find_best(comparison, task=task)
    if best is None or not best.ahead:
        return None
    shown = [each.reversed() for each in best.ahead[:_MOST_BEHIND]]
    styles = model_styles([best.name, *(each.first for each in shown)])
    start = ForestRow(best.name, 0.0, **asdict(styles[best.name]))
    where, how = short_task(best.record.task.key), comparison.procedure
    test = f"{comparison.family(best.record.task.key)}, corrected p < {how.alpha:g}"
    ends = "; ".join(
        f"{each.first}: {each.difference:+.3f} {interval_text(each.interval, absent='')}"
        for each in shown
    )
    left_out = f" Not shown: {len(best.ahead) - len(shown)} more."
    return forest_figure(
        [start, *(_forest_row(each, styles, comparison) for each in shown)],
        xlabel=f"{best.record.task.main_metric} minus the best model's",
        name="lead",
        caption=f"{where}: how far each model is from the best, {best.name} ({best.score}), "
        f"paired over the same {best.queries}, with the 95 % interval of the difference. Filled: "
        f"different by the test (paired permutation test, {test}) and by the interval; open: "
        f"not.{comparison.given(task)}" + left_out * (len(best.ahead) > len(shown)),
        alt=f"Forest plot of differences from {best.name} on {where}. {ends}.",
        columns=1,
    )


def _forest_row(
    each: PairedDifference, styles: dict[str, ModelStyle], comparison: Comparison
) -> ForestRow:
    clear, style = each.significant(comparison.procedure.alpha), asdict(styles[each.first])
    low, high = each.interval or (None, None)
    return ForestRow(each.first, each.difference, low, high, clear=clear, **style)
