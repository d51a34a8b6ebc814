"""Figures of scores, with an interval on every mean and one colour per model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.evaluation.mteb.select import split_names
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.leaderboard.benchmark_tables import benchmark_grid
from qwen3nb.report.render.figure import (
    COLORS,
    GREY,
    SMALL,
    Figure,
    grid,
    plain,
)
from qwen3nb.report.render.format import not_shown, short_task
from qwen3nb.report.render.model_styles import ModelStyle, model_styles
from qwen3nb.report.render.sections import MANY, MOST_MODELS
from qwen3nb.tiers import TIERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

__all__ = ["bars_figure", "comparison_figure", "per_query_figure", "similarity_figure"]


@dataclass(frozen=True)
class _ScoreGrid:
    """Main scores of models on the tasks of a tier, or their means if it has benchmarks.

    Attributes:
        columns: names of the tasks or means, in the tier's order.
        models: names, the best on the first column first.
        scores: score per model and column.
        measures: metric and n of each column.
        styles: colour and marker per model.
        what: what a column is.
    """

    columns: tuple[str, ...]
    models: tuple[str, ...]
    scores: Mapping[tuple[str, str], Aggregate]
    measures: Mapping[str, str]
    styles: Mapping[str, ModelStyle]
    what: str = "task"

    @property
    def intervals(self) -> str:
        """How the intervals were made, in words."""
        if self.what != "task":
            return "95 % interval over the queries of the mean's tasks, the tasks being given"
        how = "over the n given with each task"
        return f"95 % interval ({interval_words(e.interval for e in self.scores.values())}) {how}"


def _scores(results: Iterable[Result], tier: str) -> _ScoreGrid:
    if TIERS[tier].benchmarks:
        return _means(results, tier)
    return _task_scores(results, TIERS[tier].task_keys)


def _means(results: Iterable[Result], tier: str) -> _ScoreGrid:
    grid = benchmark_grid(results, tier=tier)
    scores = {}
    for identity, name in grid.names.items():
        for mean in grid.means[identity]:
            if mean.value is not None:
                low, high = mean.interval or (None, None)
                n, how = mean.column.tasks, "mean"
                scores[name, mean.column.name] = Aggregate(
                    mean.value, low, high, n, how, (), interval=""
                )
    models = tuple(grid.names.values())
    measures = {each.name: f"{each.measure}, {each.over}" for each in grid.columns}
    return _ScoreGrid(tuple(measures), models, scores, measures, model_styles(models), "mean")


def _task_scores(results: Iterable[Result], tasks: tuple[str, ...]) -> _ScoreGrid:
    on_tier = [result for result in latest(results) if result.task.key in tasks]
    names = model_names(on_tier)
    newest, _ = newest_records(on_tier)
    scores = {(names[r.model.identity], r.task.key): r.main for r in newest}
    measures = {r.task.key: f"{r.task.main_metric}, n = {r.main.n}" for r in newest[::-1]}

    def key(name: str) -> tuple[bool, float, str]:
        score = scores.get((name, tasks[0]))
        value = score.value if score else None
        return value is None, -(value or 0.0), name

    models = tuple(sorted(names.values(), key=key))
    return _ScoreGrid(tasks, models, scores, measures, model_styles(models))


def comparison_figure(results: Iterable[Result], *, tier: str, tasks: Sequence[str] = ()) -> Figure:
    """Draw a panel per task, with a point and its 95 % interval per model, the best on top.

    A tier with benchmarks has a panel per mean over a benchmark or type. Models keep their row
    and colour in every panel; a missing result leaves its row empty.

    Args:
        results: any records.
        tier: the tier whose tasks are shown.
        tasks: keys of the tasks to show in place of the tier's.
    """
    every = _task_scores(results, tuple(tasks)) if tasks else _scores(results, tier)
    scores = replace(every, models=every.models[:MOST_MODELS])
    what = "task" if tasks else f"{scores.what} of the tier {tier}"
    return Figure(
        name="comparison-tasks" if tasks else f"comparison-{tier}",
        draw=lambda width: _comparison(scores, width),
        caption=f"Every {what} with its {scores.intervals}. Rows are "
        "ordered by the first panel; a row without a point was not measured. Overlapping "
        "intervals say little about a difference: see the paired tests."
        + not_shown(len(every.models) - len(scores.models)),
        alt=f"Panels with a point and an interval per model. {_in_words(scores)}",
    )


def _in_words(scores: _ScoreGrid) -> str:
    first = scores.columns[0]
    values = [
        f"{name} {score.value:.3f}"
        for name in scores.models
        if (score := scores.scores.get((name, first))) and score.value is not None
    ]
    return f"{short_task(first)}: {', '.join(values) or 'no values'}."


def _comparison(scores: _ScoreGrid, width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    rows, shown = tuple(reversed(scores.models)), scores.columns
    columns = min(3 if width > 5 else 1, len(shown))
    lines = -(-len(shown) // columns)
    size = (width, lines * (0.165 * len(rows) + 0.72))
    figure, axes = plt.subplots(lines, columns, figsize=size, sharey=True, squeeze=False)
    panels = list(axes.flat)
    for axis, column in zip(panels, shown, strict=False):
        for row, name in enumerate(rows):
            if (name, column) in scores.scores:
                _interval(axis, row, scores.scores[name, column], scores.styles[name])
        axis.set_title(plain(short_task(column), most=34))
        axis.set_xlabel(scores.measures.get(column, ""))
        axis.set_xlim(left=min(0.0, axis.get_xlim()[0]))
        axis.set_ylim(-0.6, len(rows) - 0.4)
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        grid(axis)
    for axis in panels[len(shown) :]:
        axis.remove()
    for line in axes:
        line[0].set_yticks(range(len(rows)), [plain(name, most=30) for name in rows])
    return figure


def _interval(axis: Axes, row: int, score: Aggregate, style: ModelStyle) -> None:
    """Draw a point with its interval, in the style of its model."""
    value, low, high = score.value, score.low, score.high
    if value is None:
        return
    if low is not None and high is not None:
        axis.plot([low, high], [row, row], color=style.color, linewidth=1.8, solid_capstyle="butt")
    axis.plot([value], [row], style.marker, color=style.color, markersize=4)


def bars_figure(
    results: Iterable[Result], *, tier: str, tasks: str | Sequence[str] = (), most: int = 8
) -> Figure | None:
    """Draw a group of bars per task, one per model with its interval; a cross is not measured.

    A tier with benchmarks has a group per mean over a benchmark or type.
    None if there are no results on the tier.

    Args:
        results: any records.
        tier: the tier whose tasks are shown.
        tasks: keys of the tasks to show in place of the tier's, or a comma-separated string.
        most: how many models to show, the best on the tier's first task.
    """
    keys = tuple(split_names(tasks) if isinstance(tasks, str) else tasks)
    scores = _task_scores(results, keys) if keys else _scores(results, tier)
    shown = scores.models[:most]
    what = "task compared" if keys else f"{scores.what} of the tier {tier}"
    if not shown:
        return None
    left_out = len(scores.models) - len(shown)
    return Figure(
        name=f"bars-{'-'.join(keys) or tier}",
        draw=lambda width: _bars(scores, shown, width),
        caption=f"Every {what}, a bar per model with its "
        f"{scores.intervals}; × means not measured, not zero." + not_shown(left_out),
        alt=f"Groups of bars, one group per {scores.what}. {_in_words(scores)}",
    )


def _bars(scores: _ScoreGrid, models: Sequence[str], width: float) -> MplFigure:
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    per_line = 6 if width > 5 else 3
    lines = -(-len(scores.columns) // per_line)
    figure, axes = plt.subplots(lines, 1, figsize=(width, 1.75 * lines + 0.5), squeeze=False)
    for line, axis in enumerate(axes[:, 0]):
        tasks = scores.columns[line * per_line : (line + 1) * per_line]
        for center, task in enumerate(tasks):
            _group(axis, center, [scores.scores.get((name, task)) for name in models],
                   [scores.styles[name] for name in models])  # fmt: skip
        measures = [scores.measures.get(task, "") for task in tasks]
        if width < 5:
            measures = [each.replace(", ", "\n") for each in measures]
        names = ["\n".join(wrap(plain(short_task(task), most=32), 18)) for task in tasks]
        labels = [f"{name}\n{each}" for name, each in zip(names, measures, strict=True)]
        axis.set_xticks(range(len(tasks)), labels, fontsize=SMALL)
        axis.set_xlim(-0.5, per_line - 0.5 if lines > 1 else len(tasks) - 0.5)
        axis.tick_params(axis="x", length=0)
        axis.axhline(0, color=GREY, linewidth=0.7)
        axis.set_ylabel("main metric" if scores.what == "task" else "mean")
        grid(axis, which="y")
    bars = [Rectangle((0, 0), 1, 1, **_filled(scores.styles[name])) for name in models]
    named = [plain(name, most=26) for name in models]
    figure.legend(bars, named, loc="outside lower center", ncols=4 if width > 5 else 2,
                  handlelength=0.9, columnspacing=1.2)  # fmt: skip
    return figure


def _filled(style: ModelStyle) -> dict[str, Any]:
    """Return how a bar is filled: its hatching tells it apart without colour."""
    return {"facecolor": style.color, "hatch": style.hatch, "edgecolor": "white", "linewidth": 0}


def _group(
    axis: Axes, center: int, scores: Sequence[Aggregate | None], styles: Sequence[ModelStyle]
) -> None:
    """Draw one task: a bar per model, side by side."""
    wide = 0.84 / max(len(scores), 1)
    for index, (main, style) in enumerate(zip(scores, styles, strict=True)):
        x = center - 0.42 + wide * (index + 0.5)
        if main is None or main.value is None:
            axis.plot([x], [0.0], "x", color=style.color, markersize=3.5, clip_on=False)
            continue
        axis.bar(x, main.value, width=wide * 0.9, **_filled(style))
        if main.low is not None and main.high is not None:
            axis.plot([x, x], [main.low, main.high], color=GREY, linewidth=1.1)


def per_query_figure(
    results: Sequence[Result], *, metric: str = "nDCG@10", most: int = MANY
) -> Figure | None:
    """Draw the distribution of a retrieval metric over queries, a panel per task.

    None if no record has the metric per query.

    Args:
        results: records of one model.
        metric: a metric per query, between 0 and 1.
        most: how many tasks to show, those with most queries.
    """
    every = [result for result in results if metric in result.per_query]
    if not every:
        return None
    largest = sorted(every, key=lambda each: -len(each.per_query[metric]))[:most]
    measured = [result for result in every if result in largest]
    left_out = len(every) - len(measured)
    means = ", ".join(
        f"{short_task(r.task.key)} mean {np.mean(list(r.per_query[metric].values())):.3f}, "
        f"n = {len(r.per_query[metric])}"
        for r in measured
    )
    return Figure(
        name="per-query",
        draw=lambda width: _per_query(measured, metric, width),
        caption=f"Queries by their {metric}: {means}. Peaks at both ends: the model either "
        "finds the document or misses it; a peak in the middle: it finds it, but ranks it low."
        + (f" {left_out} tasks with fewer queries are not shown." if left_out else ""),
        alt=f"Histograms of {metric} over queries: {means}.",
        columns=2 if len(measured) > 1 else 1,
    )


def _per_query(results: Sequence[Result], metric: str, width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    columns = min(len(results), 3 if width > 5 else 1)
    lines = -(-len(results) // columns)
    size = (width, 1.9 * lines)
    figure, axes = plt.subplots(lines, columns, figsize=size, sharey=True, squeeze=False)
    for axis, result in zip(axes.flat, results, strict=False):
        values = list(result.per_query[metric].values())
        axis.hist(values, bins=np.linspace(0, 1, 21).tolist(), color=COLORS[0])
        mean = float(np.mean(values))
        axis.axvline(mean, color=COLORS[1], linewidth=1.5)
        axis.annotate(
            f"mean {mean:.3f}",
            (mean, 0.97),
            xycoords=("data", "axes fraction"),
            xytext=(-4 if mean > 0.5 else 4, 0),
            textcoords="offset points",
            ha="right" if mean > 0.5 else "left",
            va="top",
        )
        axis.set_title(f"{plain(short_task(result.task.key), most=34)}\nn = {len(values)}")
        axis.set_xlabel(f"{metric} of a query")
        axis.set_ylabel("queries")
        axis.label_outer()
    for axis in list(axes.flat)[len(results) :]:
        axis.remove()
    return figure


def similarity_figure(results: Sequence[Result]) -> Figure | None:
    """Draw the cosine similarity of sentence pairs by gold score; None without an STS task."""
    result = next((result for result in results if "gold" in result.per_query), None)
    if result is None:
        return None
    n = len(result.per_query["gold"])
    value = result.main.value
    measures = "" if value is None else f"; {result.task.main_metric} {value:.3f}"
    return Figure(
        name="similarity",
        draw=lambda width: _similarity(result, width),
        caption=f"Cosine similarity of each sentence pair of {result.task.key} by its gold score, "
        f"rounded (n = {n} pairs{measures}); lines are medians. With a useful encoder, they rise "
        "from left to right and the columns overlap little.",
        alt=f"Cosine similarity by gold score, {n} pairs{measures}.",
    )


def _similarity(result: Result, width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    gold, cosine = result.per_query["gold"], result.per_query["cosine"]
    grades = sorted({round(value) for value in gold.values()})
    figure, axis = plt.subplots(figsize=(width, 2.3))
    for grade in grades:
        values = sorted(cosine[pair] for pair in gold if round(gold[pair]) == grade)
        spread = np.linspace(-0.22, 0.22, len(values))
        axis.plot(grade + spread, values, ".", color=COLORS[0], alpha=0.6, markersize=4)
        middle = float(np.median(values))
        axis.plot([grade - 0.3, grade + 0.3], [middle] * 2, color=COLORS[1], linewidth=1.8)
        axis.annotate(
            f"{middle:.2f}", (grade + 0.3, middle), xytext=(2, 0), fontsize=SMALL,
            textcoords="offset points", va="center",
        )  # fmt: skip
    axis.set_xticks(grades)
    axis.set_xlabel("gold score of a pair (rounded); line: median")
    axis.set_ylabel("cosine similarity")
    grid(axis, which="y")
    return figure
