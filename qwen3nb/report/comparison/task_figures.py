"""Figures of every model against the baseline on one task; for several tasks see `figures`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.report.render.figure import COLORS, GREY, SMALL, Figure, plain
from qwen3nb.report.render.forest_plot import ForestRow, forest_figure
from qwen3nb.report.render.format import not_shown, short_task
from qwen3nb.report.render.model_styles import ModelStyle, model_styles
from qwen3nb.report.render.sections import MOST_MODELS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

__all__ = ["task_differences_figure", "wins_figure"]

# Has a contrast of 5 with the colours of the bars, where white has 3.5. Not pure black, which
# matplotlib omits from an SVG, so that the page would apply its own text colour.
_ON_COLOR = "#010101"


def task_differences_figure(comparison: Comparison, *, task: str) -> Figure | None:
    """Draw a forest plot of every model's difference from the baseline; None without any."""
    every = comparison.differences_on(task)
    differences = every[:MOST_MODELS]
    if not differences:
        return None
    how, baseline = comparison.procedure, comparison.baseline
    styles = model_styles([each.first for each in differences])
    sizes = {each.n for each in differences}
    n = f"n = {sizes.pop()}" if len(sizes) == 1 else f"n = {min(sizes)} to {max(sizes)}"
    metric = differences[0].metric
    words = "; ".join(f"{each.first}: {each}" for each in differences)
    return forest_figure(
        [_forest_row(each, styles[each.first], how.alpha) for each in differences],
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


def _forest_row(each: PairedDifference, style: ModelStyle, alpha: float) -> ForestRow:
    low, high = each.interval or (None, None)
    return ForestRow(
        each.first, each.difference, low, high, clear=each.significant(alpha), **asdict(style)
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
        draw=lambda width: _wins(counts, width),
        caption=f"{short_task(task)}: queries on which a model's {metric} is above that of "
        f"{reference}, equal to it, or below it (n = {max(each.n for each in counts)}). These are "
        "counts: a model may win often by little. For the test, see the paired differences."
        + not_shown(len(every) - len(differences)),
        alt=f"Bars of queries won, tied and lost against {reference}. {words}.",
    )


def _wins(counts: Sequence[PairedDifference], width: float) -> MplFigure:
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
                _inside(axis, left + size / 2, row, size, full=kind != "tied")
            left += size
    axis.set_yticks(range(len(counts)), [plain(c.first, most=30) for c in counts])
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    axis.set_xlim(0, total)
    axis.set_xlabel(f"queries, by {metric} against {plain(reference, most=24)}")
    for x, (kind, _, _) in zip((0.0, 0.5, 1.0), kinds, strict=True):
        axis.annotate(
            kind, (x, 1.0), xycoords="axes fraction", xytext=(0, 2), fontsize=SMALL,
            textcoords="offset points", va="bottom",
            ha={0.0: "left", 0.5: "center", 1.0: "right"}[x],
        )  # fmt: skip
    return figure


def _inside(axis: Axes, x: float, y: float, size: int, *, full: bool) -> None:
    """Write a count on its bar: black on a full colour, the page's text colour on a pale one."""
    count = axis.annotate(f"{size}", (x, y), ha="center", va="center", fontsize=SMALL)
    if full:
        count.set_color(_ON_COLOR)
