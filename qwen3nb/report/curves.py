"""Scores along a training: checkpoints by step, beside what came before and of their mean."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from qwen3nb.report.look import GREY, SMALL, Picture, grid, model_colors, plain
from qwen3nb.report.views import latest, short_task
from qwen3nb.results import Result
from qwen3nb.tasks.tiers import TIERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["checkpoint_figure"]

_STEP = re.compile(r"(?P<run>.*)-checkpoint-(?P<step>\d+)", re.DOTALL)
_BESIDE = ("init", "average")


def checkpoint_figure(results: Iterable[Result], *, tier: str) -> Picture | None:
    """Main metric against training step, a panel per task; None without two checkpoints.

    Checkpoints are told by their label, ``<run>-checkpoint-<step>``; ``<run>-init`` and
    ``<run>-average`` of the same run are lines beside the curve.
    """
    tasks = TIERS[tier].tasks
    chosen = [result for result in latest(results) if result.task["name"] in tasks]
    runs = {found["run"] for r in chosen if (found := _STEP.fullmatch(r.model["label"]))}
    curves = {
        task: {run: points for run in sorted(runs) if len(points := _points(chosen, run, task)) > 1}
        for task in tasks
    }
    curves = {task: found for task, found in curves.items() if found}
    if not curves:
        return None
    beside = {
        task: {f"{run}-{name}": r for run in found for name in _BESIDE
               for r in chosen if (r.model["label"], r.task["name"]) == (f"{run}-{name}", task)}
        for task, found in curves.items()
    }  # fmt: skip
    return Picture(
        name=f"checkpoints-{tier}",
        draw=lambda width: _draw(curves, beside, width),
        caption="Main metric of each task by training step; the band is the 95 % percentile "
        "bootstrap interval over the n of the task. Dashed: the same network before training "
        "(init) and the mean of its checkpoints (average), their intervals at the right edge. "
        "The best of several was picked by looking: its value flatters it.",
        alt=f"Score by training step. {_in_words(curves)}",
    )


def _points(results: Iterable[Result], run: str, task: str) -> dict[int, Result]:
    """The records of a run's checkpoints on a task, by step."""
    found = {}
    for result in results:
        label = _STEP.fullmatch(result.model["label"])
        if label and label["run"] == run and result.task["name"] == task:
            found[int(label["step"])] = result
    return {step: found[step] for step in sorted(found) if found[step].main.value is not None}


Curves = Mapping[str, Mapping[str, Mapping[int, Result]]]


def _in_words(curves: Curves) -> str:
    return "; ".join(
        f"{short_task(task)}, {run}: "
        + ", ".join(f"{step} {r.main.value or 0.0:.3f}" for step, r in points.items())
        for task, found in curves.items()
        for run, points in found.items()
    )


def _draw(curves: Curves, beside: Mapping[str, Mapping[str, Result]], width: float) -> Figure:
    import matplotlib.pyplot as plt

    columns = min(len(curves), 3 if width > 5 else 1)
    lines = -(-len(curves) // columns)
    figure, axes = plt.subplots(lines, columns, figsize=(width, 1.9 * lines), squeeze=False)
    for axis, (task, found) in zip(axes.flat, curves.items(), strict=False):
        colors = model_colors(found)
        for run, points in found.items():
            _curve(axis, points, run if len(found) > 1 else "", colors[run])
        for place, (name, result) in enumerate(beside[task].items()):
            _level(axis, name.rsplit("-", 1)[1], result, 1.01 + 0.03 * place)
        example = next(iter(next(iter(found.values())).values()))
        axis.set_title(f"{plain(short_task(task), most=24)}, n = {example.main.n}")
        axis.set_ylabel(example.task["main_metric"])
        axis.set_xlabel("training step")
        grid(axis, which="y")
    for axis in list(axes.flat)[len(curves) :]:
        axis.remove()
    return figure


def _curve(axis: Axes, points: Mapping[int, Result], label: str, color: str) -> None:
    steps = list(points)
    values = [points[step].main.value or 0.0 for step in steps]
    ends = [(points[step].main.low, points[step].main.high) for step in steps]
    low = [v if e[0] is None else e[0] for v, e in zip(values, ends, strict=True)]
    high = [v if e[1] is None else e[1] for v, e in zip(values, ends, strict=True)]
    axis.fill_between(steps, low, high, color=color, alpha=0.15, linewidth=0)
    axis.plot(steps, values, "o-", color=color, markersize=3.5)
    axis.set_xticks(_ticks(steps))
    if label:
        axis.annotate(plain(label, most=18), (steps[-1], values[-1]), xytext=(3, 0),
                      textcoords="offset points", fontsize=SMALL, va="center")  # fmt: skip


def _ticks(steps: Sequence[int]) -> Sequence[int]:
    """A tick per checkpoint, or a few of them where there are many."""
    return steps if len(steps) <= 5 else steps[:: -(-len(steps) // 5)]


def _level(axis: Axes, name: str, result: Result, place: float) -> None:
    """A line at the value of a model that has no step, its name on it, its interval at its end."""
    if result.main.value is None:
        return
    if result.main.low is not None and result.main.high is not None:
        axis.plot([place] * 2, [result.main.low, result.main.high], color=GREY, linewidth=1.8,
                  transform=axis.get_yaxis_transform(), clip_on=False)  # fmt: skip
    axis.axhline(result.main.value, color=GREY, linewidth=1, linestyle="--")
    axis.annotate(
        name, (1.0, result.main.value), xycoords=("axes fraction", "data"), xytext=(0, 1),
        textcoords="offset points", ha="right", va="bottom", fontsize=SMALL,
    )  # fmt: skip
