"""Figures of compared models: a forest of differences, every pair as a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.analysis.comparison.compare import Compared
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.report.render.figure import GREY, SMALL, Figure, grid, model_colors, plain
from qwen3nb.report.render.format import short_task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

    from qwen3nb.analysis.comparison.alignment import ScoreMatrix
    from qwen3nb.analysis.comparison.pairwise import Pair

    Groups = Sequence[tuple[str, list[tuple[Pair, ScoreMatrix]]]]

__all__ = ["differences_figure", "pairs_figure"]


def differences_figure(compared: Compared) -> Figure | None:
    """A forest plot: a panel per task, a model's difference and interval per row.

    Filled: differs after correction; the grey band holds differences that do not matter.
    None if nothing was compared.
    """
    groups = list(compared.by_task())
    if not groups:
        return None
    count = len(compared.against.pairs)
    words = "; ".join(
        f"{pair.first} on {short_task(pair.task)}: {pair.difference:+.3f}"
        for pair in compared.against.pairs
    )
    return Figure(
        name="differences",
        draw=lambda width: _draw_differences(compared, groups, width),
        caption=f"Difference of each model's mean from that of {compared.baseline}, paired over "
        "the n queries below each panel, with 95 % percentile bootstrap intervals (10,000 "
        "resamples). Filled: differs by the two-sided paired permutation test, p < "
        f"{compared.alpha:g}, {NAMES[compared.against.correction]} over these {count}; open: may "
        f"be chance. Shaded: differences below {compared.minimum:g}.",
        alt=f"Forest plots of differences from {compared.baseline}. {words}.",
    )


def _draw_differences(compared: Compared, groups: Groups, width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(pair.first for _, rows in groups for pair, _ in rows))
    colors = model_colors([*names, compared.baseline])
    columns = min(3 if width > 5 else 1, len(groups))
    lines = -(-len(groups) // columns)
    height = lines * (0.21 * len(names) + 0.8)
    figure, axes = plt.subplots(lines, columns, figsize=(width, height), sharey=True, squeeze=False)
    for axis, (task, rows) in zip(axes.flat, groups, strict=False):
        axis.axvspan(-compared.minimum, compared.minimum, color=GREY, alpha=0.13, linewidth=0)
        axis.axvline(0, color=GREY, linewidth=1)
        for pair, _ in rows:
            place = len(names) - 1 - names.index(pair.first)
            _forest_row(axis, place, pair, colors[pair.first], compared.alpha)
        axis.set_title(plain(short_task(task), most=24))
        axis.set_xlabel(f"Δ {rows[0][1].metric}, n = {rows[0][0].n}")
        axis.tick_params(axis="y", length=0)
        grid(axis)
    for axis in list(axes.flat)[len(groups) :]:
        axis.remove()
    for line in axes:
        line[0].set_yticks(range(len(names)), [plain(name, most=28) for name in names[::-1]])
    return figure


def _forest_row(axis: Axes, row: int, pair: Pair, color: str, alpha: float) -> None:
    if pair.interval is not None:
        axis.plot(pair.interval, [row, row], color=color, linewidth=1.8, solid_capstyle="butt")
    fill = color if pair.adjusted < alpha else "none"
    axis.plot([pair.difference], [row], "o", mec=color, mfc=fill, markersize=4.5)


def pairs_figure(compared: Compared) -> Figure | None:
    """Every pair of models, a panel per task: row minus column; what may be chance is a dot.

    None if nothing was compared.
    """
    pairs = compared.pairs.pairs
    tasks = [task for task in compared.tasks if any(pair.task == task for pair in pairs)]
    if not tasks:
        return None
    chance = sum(pair.adjusted >= compared.alpha for pair in pairs)
    return Figure(
        name="pairs",
        draw=lambda width: _draw_pairs(compared, tasks, width),
        caption="Every pair of models, row minus column, best first, paired over the queries that "
        "all models of a task answered. A dot: may be chance (two-sided paired permutation test, "
        f"p ≥ {compared.alpha:g}, {NAMES[compared.pairs.correction]} over {len(pairs)} pairs and "
        "tasks).",
        alt=f"A matrix of differences per task. {chance} of {len(pairs)} pairs are not told apart.",
    )


def _draw_pairs(compared: Compared, tasks: Sequence[str], width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    largest = max(abs(pair.difference) for pair in compared.pairs.pairs) or 1.0
    columns = min(2 if width > 5 else 1, len(tasks))
    lines = -(-len(tasks) // columns)
    side = width / columns
    figure, axes = plt.subplots(lines, columns, figsize=(width, 0.95 * side * lines), squeeze=False)
    image: Any = None
    for axis, task in zip(axes.flat, tasks, strict=False):
        own = [pair for pair in compared.pairs.pairs if pair.task == task]
        image = _matrix(axis, own, largest, compared.alpha)
        axis.set_title(plain(short_task(task), most=24))
    for axis in list(axes.flat)[len(tasks) :]:
        axis.remove()
    shown = list(axes.flat)[: len(tasks)]
    figure.colorbar(image, ax=shown, label="row − column", shrink=0.7)
    return figure


def _matrix(axis: Axes, pairs: Sequence[Pair], largest: float, alpha: float) -> Any:
    names = _order(pairs)
    table = np.full((len(names), len(names)), np.nan)
    for pair in pairs:
        i, j = names.index(pair.first), names.index(pair.second)
        table[i, j], table[j, i] = pair.difference, -pair.difference
        if pair.adjusted >= alpha:
            axis.plot([j, i], [i, j], "o", color="#24292f", markersize=2.5)
    labels = [plain(name, most=26) for name in names]
    axis.set_xticks(range(len(names)), labels, rotation=90, fontsize=SMALL)
    axis.set_yticks(range(len(names)), labels, fontsize=SMALL)
    axis.tick_params(length=0)
    return axis.imshow(table, cmap="RdBu", vmin=-largest, vmax=largest)


def _order(pairs: Sequence[Pair]) -> list[str]:
    """Systems from best to worst by their mean difference from all others."""
    total: dict[str, float] = {}
    for pair in pairs:
        total[pair.first] = total.get(pair.first, 0.0) + pair.difference
        total[pair.second] = total.get(pair.second, 0.0) - pair.difference
    return sorted(total, key=lambda name: -total[name])
