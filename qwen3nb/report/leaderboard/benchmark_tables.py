"""Tables of a tier with benchmarks: their means, then the tasks of each benchmark and type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.analysis.comparison.benchmark_means import (
    BenchmarkMean,
    MeanColumn,
    column_mean,
    task_column,
    task_score,
    tier_columns,
)
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import number, short_task
from qwen3nb.report.render.home import score_link
from qwen3nb.report.render.sections import Sections
from qwen3nb.report.render.table import Table, with_ranks
from qwen3nb.tiers import BENCHMARKS, GROUPS, TIERS, Benchmark, is_search
from qwen3nb.utils.format import interval_text, number_text

__all__ = ["BenchmarkGrid", "benchmark_grid", "means_table", "task_tables", "why_missing"]

MISSING = "not run"
_MEANS = (
    "Means over the tasks of one benchmark, never over several or over different metrics; a group "
    "such as CQADupStack counts as one task. Without a metric: the main scores as MTEB defines "
    "them, averaged as on its public leaderboard. 95 % intervals, combined from those of the tasks "
    "and over their queries, the tasks being given. 12 of 15: a mean needs a score on every task; "
    "what is missing is listed below the tables of tasks. Best of each column in bold, second best "
    "underlined."
)


@dataclass(frozen=True)
class BenchmarkGrid:
    """The means of several models over the benchmarks of a tier.

    Attributes:
        columns: the means, in the tier's order.
        names: of the models, by identity, the best first.
        records: by model identity, then task.
        means: by model identity, one per column.
    """

    columns: tuple[MeanColumn, ...]
    names: Mapping[str, str]
    records: Mapping[str, Mapping[str, Result]]
    means: Mapping[str, tuple[BenchmarkMean, ...]]


def benchmark_grid(results: Iterable[Result], *, tier: str, by_type: bool = True) -> BenchmarkGrid:
    """Return the means of every model, sorted by the first mean that any model has.

    Models without that mean follow, those with most tasks first.

    Args:
        results: any records; those on other tiers' tasks are ignored.
        tier: a tier with benchmarks.
        by_type: whether to include the means over the types of a benchmark.
    """
    tasks = TIERS[tier].task_keys
    columns = tuple(
        each for each in tier_columns(tier) if by_type or each.name.startswith(each.benchmark)
    )
    on_tier = [result for result in latest(results) if result.task.key in tasks]
    names = model_names(on_tier)
    records: dict[str, dict[str, Result]] = {}
    for result in newest_records(on_tier)[0]:
        records.setdefault(result.model.identity, {})[result.task.key] = result
    means = {
        identity: tuple(column_mean(column, own.values()) for column in columns)
        for identity, own in records.items()
    }
    first = next(
        (i for i in range(len(columns)) if any(own[i].value is not None for own in means.values())),
        0,
    )

    def key(identity: str) -> tuple[bool, float, int, str]:
        value = means[identity][first].value
        return value is None, -(value or 0.0), -len(records[identity]), names[identity]

    order = sorted(means, key=key)
    return BenchmarkGrid(columns, {each: names[each] for each in order}, records, means)


def means_table(grid: BenchmarkGrid, *, tier: str, links: Mapping[str, str]) -> Table:
    """Return a row per model, a column per mean over a benchmark or one of its types."""
    rows = []
    for identity, name in grid.names.items():
        newest = max(grid.records[identity].values(), key=lambda each: each.finished)
        cells = [_mean(each, newest) for each in grid.means[identity]]
        rows.append([Cell(name, link=links.get(newest.run, "")), *cells])
    heads = [f"{each.name}\n{_measure(each)}" for each in grid.columns]
    return Table(
        ("model", *heads),
        with_ranks(rows),
        _MEANS if rows else f"No results on the tier {tier}.",
        name=f"comparison-{tier}",
        caption=f"Means of all models over the benchmarks of the tier {tier}, with 95 % intervals.",
    )


def _measure(column: MeanColumn) -> str:
    return f"{column.metric}, {column.over}" if column.metric else column.over


def _mean(mean: BenchmarkMean, example: Result) -> Cell:
    if mean.value is not None:
        detail = interval_text(mean.interval, sign=False, absent="")
        return Cell(number_text(mean.value), detail, value=mean.value, interval=mean.interval)
    if not mean.measured and len(mean.missing) == len(mean.column.weights):
        return Cell(why_missing(example, mean.column.weights))
    return Cell(f"{mean.measured} of {mean.column.tasks}", "incomplete")


def why_missing(other: Result, tasks: Iterable[str]) -> str:
    """Return why a model has no result on ``tasks``, inferred from its result on another."""
    searches_only = other.model.settings.get("model", {}).get("kind") in ("bm25", "fusion")
    return "no vectors" if searches_only and not any(map(is_search, tasks)) else MISSING


def task_tables(
    results: Iterable[Result], *, tier: str, links: Mapping[str, str] | None = None
) -> Sections | None:
    """Return a table of tasks per benchmark and type, and a table of what is missing.

    None for a tier without benchmarks, whose leaderboard shows its tasks.
    """
    if not TIERS[tier].benchmarks:
        return None
    grid, pages = benchmark_grid(results, tier=tier), links or {}
    tables = [
        (title, _tasks_table(grid, [task_column(benchmark, task) for task in tasks], pages))
        for name in TIERS[tier].benchmarks
        for benchmark in (BENCHMARKS[name],)
        for title, tasks in _parts(benchmark)
    ]
    tables.append(("What is missing", _missing_table(grid)))
    about = "All tasks, by benchmark and type, with the models in the order of the table above."
    return Sections(tuple(tables), about)


def _parts(benchmark: Benchmark) -> Iterator[tuple[str, Sequence[str]]]:
    """Return the titles and tasks of a benchmark's types, and those of its groups."""
    for kind, tasks in benchmark.types.items():
        name = benchmark.name if len(benchmark.types) == 1 else f"{benchmark.name}: {kind}"
        yield f"{name} ({len(tasks)} task{'s' if len(tasks) > 1 else ''})", tasks
        for group in tasks:
            if group in GROUPS:
                yield (
                    f"{benchmark.name}: the parts of {group} ({len(GROUPS[group])})",
                    GROUPS[group],
                )


def _tasks_table(
    grid: BenchmarkGrid, columns: Sequence[MeanColumn], links: Mapping[str, str]
) -> Table:
    """Return a row per model, a column per task or group of tasks."""
    rows = []
    for identity, name in grid.names.items():
        own = grid.records[identity]
        rows.append([Cell(name), *(_task(column, own, links) for column in columns)])
    heads = [_head(column, grid) for column in columns]
    title = "-".join((columns[0].benchmark, columns[0].name))
    caption = f"Scores of all models on the tasks of {columns[0].benchmark}, with 95 % intervals."
    return Table(("model", *heads), with_ranks(rows), name=f"tasks-{title}", caption=caption)


def _task(column: MeanColumn, own: Mapping[str, Result], links: Mapping[str, str]) -> Cell:
    record = own.get(next(iter(column.weights)))
    if len(column.weights) == 1 and record is not None:
        score, link = task_score(record, column.metric), score_link(record, links)
        return Cell(f"no {column.metric}", link=link) if score is None else number(score, link=link)
    mean = column_mean(column, own.values())
    if mean.value is None and 0 < len(mean.missing) < len(column.weights):
        parts = len(column.weights)
        return Cell(f"{parts - len(mean.missing)} of {parts}", "incomplete")
    return _mean(mean, next(iter(own.values())))


def _head(column: MeanColumn, grid: BenchmarkGrid) -> str:
    """Return the task's name; its metric and n, or the number of its parts."""
    keys = list(column.weights)
    if len(keys) > 1:
        return f"{column.name}\n{column.metric}, mean of {len(keys)}"
    record = next((own[keys[0]] for own in grid.records.values() if keys[0] in own), None)
    if record is None:
        return short_task(column.name)
    score = task_score(record, column.metric)
    return f"{short_task(column.name)}\n{_metric(record, column)}, n = {score.n if score else 0}"


def _metric(record: Result, column: MeanColumn) -> str:
    """Return the metric shown: the benchmark's, the record's, or MTEB's where that is another."""
    score, mteb = task_score(record), record.task.mteb
    if column.metric:
        return column.metric
    named = next((name for name, each in record.metrics.items() if each == score), "")
    return named or (mteb.metric if mteb else str(record.task.main_metric))


def _missing_table(grid: BenchmarkGrid) -> Table:
    """Return a row per model and benchmark with the tasks that have no score."""
    whole = {column.benchmark: i for i, column in reversed(list(enumerate(grid.columns)))}
    rows = []
    for identity, name in grid.names.items():
        for benchmark, index in sorted(whole.items(), key=lambda item: item[1]):
            mean = grid.means[identity][index]
            if mean.gaps:
                count = f"{mean.measured} of {mean.column.tasks}"
                rows.append((Cell(name, benchmark), Cell(count), Cell(", ".join(mean.gaps))))
    note = "" if rows else "Every model has a score on every task."
    heads, caption = ("model", "tasks with a score", "without"), "Tasks without a score."
    return Table(heads, tuple(rows), note, kind="words", name="missing", caption=caption)
