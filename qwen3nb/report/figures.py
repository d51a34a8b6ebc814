"""Figures of results: an interval on every mean, one colour per model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from qwen3nb.report.look import COLORS, style
from qwen3nb.report.views import latest, model_names, short_task
from qwen3nb.results import Result
from qwen3nb.tasks.tiers import TIERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLORS", "comparison_figure", "per_query_figure", "similarity_figure", "style"]


def comparison_figure(results: Iterable[Result], *, tier: str) -> Figure:
    """A panel per task; a point and its 95 % interval per model, the best on top.

    Models keep their row and colour in every panel; a missing result is an empty row.
    """
    import matplotlib.pyplot as plt

    tasks = TIERS[tier].tasks
    chosen = [result for result in latest(results) if result.task["name"] in tasks]
    names = model_names(chosen)
    scores = {(names[r.model["identity"]], r.task["name"]): r for r in chosen}
    first = {
        name: scores[name, tasks[0]].main.value if (name, tasks[0]) in scores else None
        for name in names.values()
    }
    rows = sorted(first, key=lambda name: (first[name] is not None, first[name] or 0.0, name))
    columns = min(3, len(tasks))
    lines = -(-len(tasks) // columns)
    with style():
        figure, axes = plt.subplots(
            lines,
            columns,
            figsize=(8.2, lines * (0.24 * len(rows) + 1.0)),
            sharey=True,
            squeeze=False,
        )
        panels = list(axes.flat)
        for axis, task in zip(panels, tasks, strict=False):
            found = {name: scores[name, task] for name in rows if (name, task) in scores}
            for row, name in enumerate(rows):
                if name in found:
                    _interval(axis, row, found[name])
            example = next(iter(found.values()), None)
            measure = f"{example.task['main_metric']}, n = {example.main.n}" if example else ""
            axis.set(title=short_task(task), xlabel=measure)
            axis.set_xlim(left=min(0.0, axis.get_xlim()[0]))
            axis.tick_params(axis="y", length=0)
            axis.grid(axis="x", color="#7d8590", alpha=0.25, linewidth=0.6)
        for axis in panels[len(tasks) :]:
            axis.remove()
        for line in axes:
            line[0].set_yticks(range(len(rows)), rows)
    return figure


def _interval(axis: Axes, row: int, result: Result) -> None:
    """A point with its interval, in the colour of its row."""
    value, low, high = result.main.value, result.main.low, result.main.high
    if value is None:
        return
    color = COLORS[row % len(COLORS)]
    if low is not None and high is not None:
        axis.plot([low, high], [row, row], color=color, linewidth=2, solid_capstyle="butt")
    axis.plot([value], [row], "o", color=color, markersize=4.5)


def per_query_figure(results: Sequence[Result], *, metric: str = "nDCG@10") -> Figure | None:
    """How a retrieval metric is spread over queries, a panel per task; None without any."""
    import matplotlib.pyplot as plt

    chosen = [result for result in results if metric in result.per_query]
    if not chosen:
        return None
    with style():
        figure, axes = plt.subplots(
            1, len(chosen), figsize=(3.4 * len(chosen), 2.3), sharey=True, squeeze=False
        )
        for axis, result in zip(axes[0], chosen, strict=True):
            values = list(result.per_query[metric].values())
            axis.hist(values, bins=np.linspace(0, 1, 21), color=COLORS[0])
            mean = float(np.mean(values))
            axis.axvline(mean, color=COLORS[1], linewidth=1.5)
            axis.annotate(
                f"mean {mean:.3f}",
                (mean, 0.97),
                xycoords=("data", "axes fraction"),
                xytext=(-4 if mean > 0.5 else 4, 0),
                textcoords="offset points",
                color=COLORS[1],
                ha="right" if mean > 0.5 else "left",
                va="top",
            )
            axis.set_title(f"{short_task(result.task['name'])}, n = {len(values)}")
            axis.set_xlabel(f"{metric} of a query")
        axes[0][0].set_ylabel("queries")
    return figure


def similarity_figure(results: Sequence[Result]) -> Figure | None:
    """Cosine similarity of sentence pairs by their gold score; None without an STS task."""
    import matplotlib.pyplot as plt

    result = next((result for result in results if "gold" in result.per_query), None)
    if result is None:
        return None
    gold, cosine = result.per_query["gold"], result.per_query["cosine"]
    grades = sorted({round(value) for value in gold.values()})
    groups = [[cosine[pair] for pair in gold if round(gold[pair]) == grade] for grade in grades]
    with style():
        figure, axis = plt.subplots(figsize=(5.2, 2.6))
        for place, values in zip(grades, groups, strict=True):
            spread = np.linspace(-0.22, 0.22, len(values))
            axis.plot(place + spread, sorted(values), ".", color=COLORS[0], alpha=0.6, markersize=4)
            axis.plot(
                [place - 0.3, place + 0.3], [np.median(values)] * 2, color=COLORS[1], linewidth=2
            )
        axis.set_xlabel("gold score of a pair (rounded); line: median")
        axis.set_ylabel("cosine similarity")
        axis.set_title(f"{result.task['name']}, n = {len(gold)}")
    return figure
