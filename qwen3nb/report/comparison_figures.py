"""Figures of compared models: a forest of differences, every pair as a map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.report.comparison import Compared
from qwen3nb.report.views import short_task

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from qwen3nb.analysis.pairwise import Pair

__all__ = ["differences_figure", "pairs_figure"]


def differences_figure(compared: Compared) -> Figure | None:
    """A forest plot: a panel per task, a model's difference and interval per row.

    Filled: differs after correction; the grey band holds differences that do not matter.
    None if nothing was compared.
    """
    import matplotlib.pyplot as plt

    from qwen3nb.report.look import COLORS, style

    groups = list(compared.by_task())
    if not groups:
        return None
    names = list(dict.fromkeys(pair.first for _, rows in groups for pair, _ in rows))
    columns = min(3, len(groups))
    lines = -(-len(groups) // columns)
    with style():
        figure, axes = plt.subplots(
            lines, columns, figsize=(8.4, lines * (0.25 * len(names) + 1.0)), sharey=True,
            squeeze=False,
        )  # fmt: skip
        for axis, (task, rows) in zip(axes.flat, groups, strict=False):
            axis.axvspan(-compared.minimum, compared.minimum, color="#7d8590", alpha=0.12, lw=0)
            axis.axvline(0, color="#7d8590", linewidth=1)
            for pair, _ in rows:
                place = names.index(pair.first)
                _forest_row(axis, len(names) - 1 - place, pair, COLORS[place % 6], compared.alpha)
            axis.set(title=short_task(task), xlabel=f"Δ {rows[0][1].metric}, n = {rows[0][0].n}")
            axis.tick_params(axis="y", length=0)
            axis.grid(axis="x", color="#7d8590", alpha=0.25, linewidth=0.6)
        for axis in list(axes.flat)[len(groups) :]:
            axis.remove()
        for line in axes:
            line[0].set_yticks(range(len(names)), names[::-1])
    return figure


def _forest_row(axis: Axes, row: int, pair: Pair, color: str, alpha: float) -> None:
    if pair.interval is not None:
        axis.plot(pair.interval, [row, row], color=color, linewidth=2, solid_capstyle="butt")
    fill = color if pair.adjusted < alpha else "white"
    axis.plot([pair.difference], [row], "o", mec=color, mfc=fill, markersize=5)


def pairs_figure(compared: Compared) -> Figure | None:
    """Every pair of models, a panel per task: row minus column; what may be chance is a dot.

    None if nothing was compared.
    """
    import matplotlib.pyplot as plt

    from qwen3nb.report.look import style

    pairs = compared.pairs.pairs
    tasks = [task for task in compared.tasks if any(pair.task == task for pair in pairs)]
    if not tasks:
        return None
    largest = max(abs(pair.difference) for pair in pairs) or 1.0
    order = {task: _order([pair for pair in pairs if pair.task == task]) for task in tasks}
    size = 1.7 + 0.3 * max(map(len, order.values()))
    columns = min(2, len(tasks))
    lines = -(-len(tasks) // columns)
    with style():
        figure, axes = plt.subplots(
            lines, columns, figsize=(size * columns + 1.2, size * lines), squeeze=False
        )
        image: Any = None
        for axis, task in zip(axes.flat, tasks, strict=False):
            names = order[task]
            table = np.full((len(names), len(names)), np.nan)
            for pair in pairs:
                if pair.task == task:
                    i, j = names.index(pair.first), names.index(pair.second)
                    table[i, j], table[j, i] = pair.difference, -pair.difference
                    if pair.adjusted >= compared.alpha:
                        axis.plot([j, i], [i, j], "o", color="#24292f", markersize=3)
            image = axis.imshow(table, cmap="RdBu", vmin=-largest, vmax=largest)
            axis.set_xticks(range(len(names)), names, rotation=90, fontsize=8)
            axis.set_yticks(range(len(names)), names, fontsize=8)
            axis.tick_params(length=0)
            axis.set_title(short_task(task))
        for axis in list(axes.flat)[len(tasks) :]:
            axis.remove()
        figure.colorbar(image, ax=list(axes.flat)[: len(tasks)], label="row − column", shrink=0.7)
    return figure


def _order(pairs: Sequence[Pair]) -> list[str]:
    """Systems from best to worst by their mean difference from all others."""
    total: dict[str, float] = {}
    for pair in pairs:
        total[pair.first] = total.get(pair.first, 0.0) + pair.difference
        total[pair.second] = total.get(pair.second, 0.0) - pair.difference
    return sorted(total, key=lambda name: -total[name])
