"""Figures of results: an interval on every mean, one colour per model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from qwen3nb.report.views import latest, model_names, short_task
from qwen3nb.results import Result
from qwen3nb.tasks.tiers import TIERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["comparison_figure", "per_query_figure", "similarity_figure", "style"]

STYLE = Path(__file__).with_name("book.mplstyle")


@contextmanager
def style() -> Iterator[None]:
    """The book's look, for figures made inside the block."""
    import matplotlib.pyplot as plt

    with plt.style.context(STYLE):
        yield


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
    with style():
        figure, axes = plt.subplots(
            1, len(tasks), figsize=(2.1 * len(tasks) + 1.4, 0.34 * len(rows) + 1.1), sharey=True
        )
        for axis, task in zip(np.atleast_1d(axes), tasks, strict=True):
            for row, name in enumerate(rows):
                if (result := scores.get((name, task))) and result.main.value is not None:
                    _point(axis, row, result)
            _finish(axis, task, next((r for (_, t), r in scores.items() if t == task), None))
        np.atleast_1d(axes)[0].set_yticks(range(len(rows)), rows)
    return figure


def _point(axis: object, row: int, result: Result) -> None:
    value, low, high = result.main.value, result.main.low, result.main.high
    assert value is not None  # noqa: S101 - callers draw defined values only
    color = f"C{row % 7}"
    if low is not None and high is not None:
        axis.plot([low, high], [row, row], color=color, linewidth=2, solid_capstyle="butt")  # type: ignore[attr-defined]
    axis.plot([value], [row], "o", color=color, markersize=5)  # type: ignore[attr-defined]


def _finish(axis: object, task: str, example: Result | None) -> None:
    axis.set_title(short_task(task))  # type: ignore[attr-defined]
    if example is not None:
        axis.set_xlabel(f"{example.task['main_metric']}, n = {example.main.n}")  # type: ignore[attr-defined]
    axis.set_xlim(left=min(0.0, axis.get_xlim()[0]))  # type: ignore[attr-defined]
    axis.tick_params(axis="y", length=0)  # type: ignore[attr-defined]
    axis.grid(axis="x", color="#7d8590", alpha=0.25, linewidth=0.6)  # type: ignore[attr-defined]


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
            axis.hist(values, bins=np.linspace(0, 1, 21), color="C0")
            mean = float(np.mean(values))
            axis.axvline(mean, color="C1", linewidth=1.5)
            axis.annotate(
                f"mean {mean:.3f}",
                (mean, 0.97),
                xycoords=("data", "axes fraction"),
                xytext=(4, 0),
                textcoords="offset points",
                color="C1",
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
            axis.plot(place + spread, sorted(values), ".", color="C0", alpha=0.6, markersize=4)
            axis.plot([place - 0.3, place + 0.3], [np.median(values)] * 2, color="C1", linewidth=2)
        axis.set_xlabel("gold score of a pair (rounded); line: median")
        axis.set_ylabel("cosine similarity")
        axis.set_title(f"{result.task['name']}, n = {len(gold)}")
    return figure
