"""Figures of scores, with an interval on every mean and one colour per model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.evaluation.mteb.select import split_names
from qwen3nb.metrics.intervals import Interval, interval_words
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.leaderboard.tables import benchmark_grid
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
from qwen3nb.report.render.format import not_shown, short_task
from qwen3nb.report.render.model_styles import ModelStyle, model_styles
from qwen3nb.report.render.sections import MANY, MOST_MODELS
from qwen3nb.tiers import TIERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure

_MOST_BARS = 8  # models in a group of bars


@dataclass(frozen=True)
class _ScoreGrid:
    """Main scores of models on tasks, or their means over benchmarks.

    Attributes:
        columns: metric and n of each task or mean, by its name, in the tier's order.
        models: names, the best on the first column first.
        scores: each score that is defined, with its interval, by model and column.
        intervals: how they were made, in words.
        what: what a column is.
    """

    columns: Mapping[str, str]
    models: tuple[str, ...]
    scores: Mapping[tuple[str, str], tuple[float, Interval | None]]
    intervals: str
    what: str

    @cached_property
    def styles(self) -> Mapping[str, ModelStyle]:
        """Colour and marker per model."""
        return model_styles(self.models)

    def __str__(self) -> str:
        first = next(iter(self.columns))
        scored = ((name, self.scores.get((name, first))) for name in self.models)
        values = ", ".join(f"{name} {score[0]:.3f}" for name, score in scored if score)
        return f"{short_task(first)}: {values or 'no values'}."


def _score_grid(results: Iterable[Result], tier: str, tasks: tuple[str, ...]) -> _ScoreGrid:
    """Return the scores on the tasks, by default the tier's; its means if it has benchmarks."""
    if TIERS[tier].benchmarks and not tasks:
        grid = benchmark_grid(results, tier=tier)
        means = {
            (name, mean.column.name): (mean.value, mean.interval)
            for identity, name in grid.names.items()
            for mean in grid.means[identity]
            if mean.value is not None
        }
        columns = {each.name: f"{each.measure}, {each.over}" for each in grid.columns}
        how = "95 % interval over the queries of the mean's tasks, the tasks being given"
        return _ScoreGrid(columns, tuple(grid.names.values()), means, how, "mean")
    tasks = tasks or TIERS[tier].task_keys
    on_tier = [result for result in latest(results) if result.task.key in tasks]
    names, (newest, _) = model_names(on_tier), newest_records(on_tier)
    measures = {r.task.key: f"{r.task.main_metric}, n = {r.main.n}" for r in newest[::-1]}
    scores = {
        (names[r.model.identity], r.task.key): (
            r.main.value,
            None if r.main.low is None or r.main.high is None else (r.main.low, r.main.high),
        )
        for r in newest
        if r.main.value is not None
    }

    def key(name: str) -> tuple[bool, float, str]:
        score = scores.get((name, tasks[0]))
        return score is None, -score[0] if score else 0.0, name

    how = f"95 % interval ({interval_words(r.main.interval for r in newest)}) over the n given "
    columns = {task: measures.get(task, "") for task in tasks}
    models = tuple(sorted(names.values(), key=key))
    return _ScoreGrid(columns, models, scores, f"{how}with each task", "task")


def comparison_figure(results: Iterable[Result], *, tier: str, tasks: Sequence[str] = ()) -> Figure:
    """Draw a panel per task, with a point and its 95 % interval per model, the best on top.

    A tier with benchmarks has a panel per mean over a benchmark or type. Models keep their row
    and colour in every panel; a missing result leaves its row empty.

    Args:
        results: any records.
        tier: the tier whose tasks are shown.
        tasks: keys of the tasks to show in place of the tier's.
    """
    every = _score_grid(results, tier, tuple(tasks))
    scores = replace(every, models=every.models[:MOST_MODELS])
    what = "task" if tasks else f"{scores.what} of the tier {tier}"
    return Figure(
        name="comparison-tasks" if tasks else f"comparison-{tier}",
        draw=lambda width: _comparison(scores, width),
        caption=f"Every {what} with its {scores.intervals}. Rows are "
        "ordered by the first panel; a row without a point was not measured. Overlapping "
        "intervals say little about a difference: see the paired tests."
        + not_shown(len(every.models) - len(scores.models)),
        alt=f"Panels with a point and an interval per model. {scores}",
    )


def _comparison(scores: _ScoreGrid, width: float) -> MplFigure:
    rows, count = scores.models[::-1], len(scores.columns)
    figure, axes, first = panels(count, width, height=0.165 * len(rows) + 0.72, sharey=True)
    for axis, (column, measure) in zip(axes, scores.columns.items(), strict=True):
        for row, name in enumerate(rows):
            if score := scores.scores.get((name, column)):
                draw_estimate(axis, row, *score, **asdict(scores.styles[name]), size=4)
        axis.set_title(plain(short_task(column), most=34))
        axis.set_xlabel(measure)
        axis.set_xlim(left=min(0.0, axis.get_xlim()[0]))
        axis.set_ylim(-0.6, len(rows) - 0.4)
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        grid(axis)
    for axis in first:
        axis.set_yticks(range(len(rows)), [plain(name, most=30) for name in rows])
    return figure


def bars_figure(
    results: Iterable[Result], *, tier: str, tasks: str | Sequence[str] = ()
) -> Figure | None:
    """Draw a group of bars per task, one per model with its interval; a cross is not measured.

    Of many models, the best on the tier's first task are shown.
    A tier with benchmarks has a group per mean over a benchmark or type.
    None if there are no results on the tier.

    Args:
        results: any records.
        tier: the tier whose tasks are shown.
        tasks: keys of the tasks to show in place of the tier's, or a comma-separated string.
    """
    keys = tuple(split_names(tasks) if isinstance(tasks, str) else tasks)
    scores = _score_grid(results, tier, keys)
    shown = scores.models[:_MOST_BARS]
    what = "task compared" if keys else f"{scores.what} of the tier {tier}"
    if not shown:
        return None
    left_out = len(scores.models) - len(shown)
    return Figure(
        name=f"bars-{'-'.join(keys) or tier}",
        draw=lambda width: _bars(scores, shown, width),
        caption=f"Every {what}, a bar per model with its "
        f"{scores.intervals}; × means not measured, not zero." + not_shown(left_out),
        alt=f"Groups of bars, one group per {scores.what}. {scores}",
    )


def _bars(scores: _ScoreGrid, models: Sequence[str], width: float) -> MplFigure:
    import matplotlib.pyplot as plt
    from matplotlib.patches import Rectangle

    per_line = 6 if width > 5 else 3
    lines = -(-len(scores.columns) // per_line)
    figure, axes = plt.subplots(lines, 1, figsize=(width, 1.75 * lines + 0.5), squeeze=False)
    wide = 0.84 / len(models)
    # The hatching of a bar tells it apart without colour.
    looks: list[dict[str, Any]] = [
        {"facecolor": style.color, "hatch": style.hatch, "edgecolor": "white", "linewidth": 0}
        for style in (scores.styles[name] for name in models)
    ]
    for line, axis in enumerate(axes[:, 0]):
        tasks = list(scores.columns)[line * per_line : (line + 1) * per_line]
        for center, task in enumerate(tasks):
            for index, (name, look) in enumerate(zip(models, looks, strict=True)):
                x = center - 0.42 + wide * (index + 0.5)
                value, ends = scores.scores.get((name, task), (None, None))
                if value is None:
                    color = look["facecolor"]
                    axis.plot([x], [0.0], "x", color=color, markersize=3.5, clip_on=False)
                    continue
                axis.bar(x, value, width=wide * 0.9, **look)
                if ends is not None:
                    axis.plot([x, x], ends, color=GREY, linewidth=1.1)
        measures = [scores.columns[task] for task in tasks]
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
    figure.legend(
        [Rectangle((0, 0), 1, 1, **look) for look in looks],
        [plain(name, most=26) for name in models],
        loc="outside lower center",
        ncols=4 if width > 5 else 2,
        handlelength=0.9,
        columnspacing=1.2,
    )
    return figure


def per_query_figure(results: Sequence[Result], *, metric: str = "nDCG@10") -> Figure | None:
    """Draw the distribution of a retrieval metric over queries, a panel per task.

    Of many tasks, those with most queries are shown.

    None if no record has the metric per query.

    Args:
        results: records of one model.
        metric: a metric per query, between 0 and 1.
    """
    every = [result for result in results if metric in result.per_query]
    if not every:
        return None
    largest = sorted(every, key=lambda each: -each.scores.counts[metric])[:MANY]
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
    figure, axes, _ = panels(len(results), width, height=1.9, sharey=True)
    for axis, result in zip(axes, results, strict=True):
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
            f"{middle:.2f}",
            (grade + 0.3, middle),
            xytext=(2, 0),
            fontsize=SMALL,
            textcoords="offset points",
            va="center",
        )
    axis.set_xticks(grades)
    axis.set_xlabel("gold score of a pair (rounded); line: median")
    axis.set_ylabel("cosine similarity")
    grid(axis, which="y")
    return figure
