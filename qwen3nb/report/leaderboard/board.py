"""The leaderboard: all models of a tier, their tasks, ranks and costs.

For a tier with benchmarks, the means of each come first, then tasks and types.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from qwen3nb.analysis.comparison import benchmark_means
from qwen3nb.analysis.comparison.alignment import model_names, newest_records, pair_results
from qwen3nb.analysis.comparison.benchmark_means import BenchmarkMean, MeanColumn
from qwen3nb.analysis.comparison.compare import Comparison, compare
from qwen3nb.analysis.comparison.differences import ALPHA, TEST
from qwen3nb.analysis.comparison.ranking import FEWEST_TASKS, Ranking, Standing, rank_systems
from qwen3nb.analysis.stats.multiple_testing import NAMES
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.models.kinds.resolve import FUSION_KIND, KINDS
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import newest
from qwen3nb.records.store import latest
from qwen3nb.report.render.figure import (
    MOST_IN_LINE,
    Figure,
    MplFigure,
    draw_estimate,
    grid,
    name_rows,
    panels,
    plain,
)
from qwen3nb.report.render.home import score_link
from qwen3nb.report.render.model_styles import model_styles
from qwen3nb.report.render.table import (
    MOST_MODELS,
    Cell,
    Sections,
    Table,
    not_shown,
    number,
    plural,
    short_task,
    transposed,
)
from qwen3nb.tiers import BENCHMARKS, GROUPS, TIERS, Benchmark, is_search
from qwen3nb.utils.choices import split_names

_SEARCHES = ("Retrieval", "Reranking")  # types of tasks that need no vectors
_NEAR = (
    "not significantly different from the best of its column, as in the table of differences; only "
    "for metrics that are a mean over queries"
)
ALL_TASKS = "all tasks"  # title of the ranking on the mean over a tier's tasks
_MEANS = (
    "Means over the tasks of one benchmark; a group such as CQADupStack counts as one task. No "
    "metric: the main scores, averaged as on MTEB's leaderboard. 95 % intervals, combined from "
    "those of the given tasks. Incomplete: a mean needs a score on every task; the "
    "tables of tasks show what is missing. Best of each column in bold, second best underlined."
)


def by_model(results: Iterable[Result]) -> dict[str, dict[str, Result]]:
    """Return the newest records by identity of the model, then by task."""
    records: dict[str, dict[str, Result]] = {}
    for result in newest_records(results)[0]:
        records.setdefault(result.model.identity, {})[result.task.key] = result
    return records


def leaderboard(
    results: Iterable[Result],
    *,
    tier: str = "smoke",
    tasks: Sequence[str] = (),
    comparison: Comparison | None = None,
    links: Mapping[str, str] | None = None,
    name: str = "",
) -> Table:
    """Return all models on a tier: a row per model, a column per task, the two best marked.

    Models not significantly different from the best of a column also have a mark. A tier with
    benchmarks has a column per mean over a benchmark instead; the means by type and the tasks are
    in `task_tables`.

    Args:
        results: any records; those on other tiers' tasks are ignored.
        tier: the tier whose tasks are the columns.
        tasks: keys of the tasks to show instead of the tier's.
        comparison: comparison of these results; computed if None.
        links: page of each run id.
        name: name of the table, its files and its link; by default ``comparison-`` and the tier.
    """
    name, models = name or f"comparison-{'tasks' if tasks else tier}", _grid(results, tier, tasks)
    if models.columns:
        return replace(_means_table(models, tier, links or {}), name=name)
    tested = comparison or compare(results, tier=tier, tasks=tasks)
    near = {
        key: _systems_compared([own[key] for own in models.records.values() if key in own], tested)
        for key in tasks or TIERS[tier].task_keys
    }
    table = _scores_table(models, near, links or {})
    legend = (("†", _NEAR),) if any(near.values()) else ()
    return replace(table, name=name, legend=legend)


def _scores_table(
    models: _Grid, near: Mapping[str, Iterable[str]], links: Mapping[str, str]
) -> Table:
    """Return a row per model and a column per task, with marks on ``near`` models, by task."""
    records = models.records
    examples = {identity: next(iter(own.values())) for identity, own in records.items()}
    heads = ["model"]
    rows = [[Cell(models.names[i], link=links.get(each.run, ""))] for i, each in examples.items()]
    for key, marked in near.items():
        main = next((own[key] for own in records.values() if key in own), None)
        measure = f"\n{main.task.main_metric}, n = {main.main.n}" if main else ""
        heads.append(short_task(key) + measure)
        for (identity, own), row in zip(records.items(), rows, strict=True):
            if record := own.get(key):
                mark = "†" * (identity in marked)
                row.append(number(record.main, link=score_link(record, links), mark=mark))
            else:
                searched = is_search(key) if main is None else main.task.type in _SEARCHES
                row.append(Cell(_why_missing(examples[identity], searched=searched)))
    shown = [record for own in records.values() for key, record in own.items() if key in near]
    used = [record.main.interval for record in shown]
    return Table.of(
        rows,
        heads,
        best=True,
        note=f"95 % intervals over n ({interval_words(used)}); best of each column in bold, second "
        "best underlined, whether or not they differ significantly (see the paired differences).",
        caption="Scores of all models, with 95 % intervals.",
        data=DataUsed.of(shown),
    )


def _systems_compared(results: Iterable[Result], comparison: Comparison) -> set[str]:
    """Return the models not significantly different from the best on each task, by identity.

    Includes only models that can be paired with the best.
    """
    means = [r for r in results if r.main.how == "mean" and r.main.value is not None]
    best = max(means, key=lambda each: each.main.value or 0.0, default=None)
    return {
        other.model.identity
        for other in means
        if best is not None and other is not best
        if (difference := comparison.between(other, best)) is not None
        and not difference.significant(comparison.procedure.alpha)
    }


def _why_missing(other: Result, *, searched: bool) -> str:
    """Return why a model has no result on tasks, inferred from its result on another.

    ``searched`` says whether one of the tasks is a search, which needs no vectors.
    """
    kind = other.model.settings.get("model", {}).get("kind")
    searches_only = kind in (each.name for each in (*KINDS, FUSION_KIND) if each.searches)
    return "no vectors" if searches_only and not searched else "not run"


def record_list(results: Iterable[Result]) -> Table:
    """Return a row per record: model, task, main metric with its interval, and n."""
    listed = list(results)
    return Table.of(
        (
            {
                "model": (each.model.label, each.model.identity[:8]),
                "task": each.task.key,
                "metric": each.task.main_metric,
                "value": each.main,
                "n": f"{each.main.n} {each.task.unit}",
            }
            for each in listed
        ),
        note=f"Intervals: 95 %, {interval_words(each.main.interval for each in listed)}, over n.",
        empty="no records",
        kind="words",
        data=DataUsed.of(listed),
    )


@dataclass(frozen=True)
class _Grid:
    """Models on a tier, the best first, and their means on its benchmarks."""

    names: Mapping[str, str]  # of the models, by identity
    records: Mapping[str, Mapping[str, Result]]  # by model identity, then task
    columns: tuple[MeanColumn, ...]  # in the tier's order; none if tasks are shown
    means: Mapping[str, Sequence[BenchmarkMean]]  # by model identity, one per column

    def data_used(self, tasks: Iterable[str]) -> DataUsed:
        """Return the data of some tasks, by their keys."""
        return DataUsed.of(own.get(task) for task in tasks for own in self.records.values())


def _grid(results: Iterable[Result], tier: str, tasks: Sequence[str] = ()) -> _Grid:
    """Return the models with a result, sorted by the first available mean, or the first task.

    Models without it follow, those with most tasks first.
    """
    keys = tasks or TIERS[tier].task_keys
    columns = () if tasks else benchmark_means.tier_columns(tier)
    on_tier = [result for result in latest(results) if result.task.key in keys]
    names, records = model_names(on_tier), by_model(on_tier)
    means = {
        identity: [benchmark_means.column_mean(column, own.values()) for column in columns]
        for identity, own in records.items()
    }
    known = ([each.value is not None for each in own] for own in means.values())
    first = next((i for i, have in enumerate(zip(*known, strict=True)) if any(have)), 0)

    def key(identity: str) -> tuple[bool, float, int, str]:
        own = records[identity]
        record = own.get(keys[0])
        value = means[identity][first].value if columns else record and record.main.value
        return value is None, -(value or 0.0), -len(own) if columns else 0, names[identity]

    order = sorted(records, key=key)
    return _Grid({i: names[i] for i in order}, {i: records[i] for i in order}, columns, means)


def _means_table(grid: _Grid, tier: str, links: Mapping[str, str], *, types: bool = False) -> Table:
    """Return a row per model, a column per mean over a benchmark, or over one of its types."""
    columns = [i for i, each in enumerate(grid.columns) if types != _of_benchmark(each)]
    rows = []
    for identity, name in grid.names.items():
        last = newest(grid.records[identity].values())
        cells = [_mean(grid.means[identity][i], last) for i in columns]
        rows.append((Cell(name, link=links.get(last.run, "")), *cells))
    shown = [grid.columns[i] for i in columns]
    heads = (f"{c.name}\n{', '.join(filter(None, (c.metric, c.over)))}" for c in shown)
    return Table.of(
        rows,
        ("model", *heads),
        best=True,
        note="" if types else _MEANS,
        empty=f"No results on the tier {tier}.",
        name="types",
        caption=f"The mean over each {'type of task' if types else 'benchmark'} of the tier "
        f"{tier}, with 95 % intervals.",
        data=grid.data_used({key for column in shown for key in column.weights}),
    )


def _of_benchmark(column: MeanColumn) -> bool:
    """Return whether a mean is over a whole benchmark, not one type of its tasks."""
    return column.name.startswith(column.benchmark)


def _mean(mean: BenchmarkMean, example: Result) -> Cell | str:
    if mean.value is not None:
        return number(mean.value, interval=mean.interval)
    if not mean.measured and len(mean.missing) == len(mean.column.weights):
        return _why_missing(example, searched=any(map(is_search, mean.column.weights)))
    return Cell(f"{mean.measured} of {mean.column.tasks}", "incomplete")


def task_tables(
    results: Iterable[Result], *, tier: str, links: Mapping[str, str] | None = None
) -> Sections | None:
    """Return the means by type, and tables of tasks by benchmark and type.

    None for a tier without benchmarks, whose leaderboard shows its tasks.
    """
    if not TIERS[tier].benchmarks:
        return None
    grid, pages = _grid(results, tier), links or {}
    tables = []
    if not all(map(_of_benchmark, grid.columns)):
        tables.append(("Means by type of task", _means_table(grid, tier, pages, types=True)))
    for benchmark in map(BENCHMARKS.__getitem__, TIERS[tier].benchmarks):
        for title, tasks in _parts(benchmark):
            columns = [benchmark_means.task_column(benchmark, task) for task in tasks]
            table = Table.of(
                (
                    (name, *(_task(column, grid.records[identity], pages) for column in columns))
                    for identity, name in grid.names.items()
                ),
                ("model", *(_head(column, grid) for column in columns)),
                best=True,
                name=f"tasks-{benchmark.name}-{tasks[0]}",
                caption=f"Scores of all models on the tasks of {benchmark.name}, with 95 % "
                "intervals.",
                data=grid.data_used({key for column in columns for key in column.weights}),
            )
            tables.append((title, transposed(table, first="task") if len(tasks) > 1 else table))
    about = "All tasks, by benchmark and type, with the models in the order of the table above."
    return Sections(tuple(tables), about)


def _parts(benchmark: Benchmark) -> Iterator[tuple[str, Sequence[str]]]:
    """Return the titles and tasks of a benchmark's types, and those of its groups."""
    for kind, tasks in benchmark.types.items():
        name = benchmark.name if len(benchmark.types) == 1 else f"{benchmark.name}: {kind}"
        yield f"{name} ({plural(len(tasks), 'task')})", tasks
        for group in tasks:
            if parts := GROUPS.get(group):
                yield f"{benchmark.name}: the parts of {group} ({len(parts)})", parts


def _task(column: MeanColumn, own: Mapping[str, Result], links: Mapping[str, str]) -> Cell | str:
    record, parts = own.get(next(iter(column.weights))), len(column.weights)
    if parts == 1 and record is not None:
        score, link = benchmark_means.task_score(record, column.metric), score_link(record, links)
        return number(score, absent=f"no {column.metric}", link=link)
    mean = benchmark_means.column_mean(column, own.values())
    if mean.value is None and 0 < len(mean.missing) < parts:
        return Cell(f"{parts - len(mean.missing)} of {parts}", "incomplete")
    return _mean(mean, next(iter(own.values())))


def _head(column: MeanColumn, grid: _Grid) -> str:
    """Return the task's name, with its metric and n or the number of its parts."""
    key, *others = column.weights
    if others:
        return f"{column.name}\n{column.metric}, mean of {len(column.weights)}"
    record = next((own[key] for own in grid.records.values() if key in own), None)
    if record is None:
        return short_task(column.name)
    score = benchmark_means.task_score(record, column.metric)
    mteb = record.task.mteb  # whose metric may be none of the record's
    named = next((name for name, each in record.metrics.items() if each == score), "")
    metric = column.metric or named or (mteb.metric if mteb else record.task.main_metric)
    return f"{short_task(column.name)}\n{metric}, n = {score.n if score else 0}"


def headline_table(
    results: Iterable[Result],
    *,
    tier: str,
    comparison: Comparison | None = None,
    links: Mapping[str, str] | None = None,
    most: int | None = None,
) -> Table:
    """Return the leaderboard of the landing page: the means, or `headline_task`.

    Shows at most the ``most`` best models; for the other arguments see `leaderboard`.
    """
    newest = latest(results)
    tasks = [] if TIERS[tier].benchmarks else [headline_task(newest, tier=tier)]
    how: dict[str, Any] = {"comparison": comparison, "links": links, "name": "headline"}
    table = leaderboard(newest, tier=tier, tasks=tasks, **how)
    if not len(table):
        note = f"No results on the {tier} tier yet; run `qwen3nb eval --tier {tier}`."
        return Table(("model",), (), note)
    if most is None or len(table) <= most:
        return table
    note = f"The best {most} of {len(table)} models. {table.note}"
    return replace(table, rows=table.rows[:most], note=note)


def headline_task(results: Iterable[Result], *, tier: str) -> str:
    """Return the task of a tier with per-query scores of most models; the first if tied.

    A tier with benchmarks is summarised by the first of `Comparison.means` instead.
    """
    models: dict[str, set[str]] = {task: set() for task in TIERS[tier].task_keys}
    for result in results:
        if result.task.key in models and result.task.main_metric in result.per_query:
            models[result.task.key].add(result.model.identity)
    return max(models, key=lambda task: len(models[task]))


def cost_table(results: Iterable[Result]) -> Table:
    """Return the cost of each model's records."""
    newest = latest(results)
    names, rows = model_names(newest), []
    by_name = {names[identity]: [*own.values()] for identity, own in by_model(newest).items()}
    for name, own in sorted(by_name.items()):
        speeds = [r.cost.texts_per_second for r in own if r.cost.texts_per_second]
        peak = max(r.cost.peak_memory_bytes or 0 for r in own) / 2**20
        fastest = max(speeds, default=None)
        rows.append(
            {
                "model": name,
                "parameters": number(own[0].model.parameters or None, ",", absent="none"),
                "seconds": number(sum(r.cost.seconds for r in own), ".1f"),
                "texts encoded": number(sum(r.cost.encoded for r in own), ","),
                "texts/s": Cell(f"{min(speeds):,.0f} to {fastest:,.0f}", value=fastest)
                if speeds
                else "none encoded",
                "peak MiB": number(peak or None, ",.0f", absent="not measured"),
                "device": own[0].environment.device,
            }
        )
    return Table.of(
        rows,
        note="Seconds over all tasks, with loading and scoring; peak memory of the whole process.",
        name="cost",
        caption="Cost of the results of each model.",
    )


def comparison_figure(
    results: Iterable[Result], *, tier: str, tasks: str | Sequence[str] = ()
) -> Figure:
    """Draw a panel per task, with a point and its 95 % interval per model, the best on top.

    A tier with benchmarks has a panel per mean over a benchmark; ``tasks`` (keys, also
    comma-separated) replace the tier's. Models keep their row and colour in every panel; rows of
    missing results are empty.
    """
    keys = split_names(tasks) if isinstance(tasks, str) else tasks
    models = _grid(results, tier, keys)
    if models.columns:
        table = _means_table(models, tier, {})
    else:
        table = _scores_table(models, dict.fromkeys(keys or TIERS[tier].task_keys, ()), {})
    shown = replace(table, rows=table.rows[:MOST_MODELS])
    first = ", ".join(f"{row[0].text} {row[1].text}" for row in shown.rows)
    return Figure(
        name="comparison-tasks" if tasks else f"comparison-{tier}",
        draw=lambda width: _draw_scores(shown, width),
        caption=f"{table.caption[:-1]} over the n given with each panel. Rows are ordered by the "
        "first panel; a row without a point was not measured. Overlapping intervals say little "
        "about a difference: see the paired tests." + not_shown(len(table) - len(shown)),
        alt=f"Panels with a point and an interval per model. "
        f"{' '.join(table.columns[1].split())}: {first or 'no values'}.",
        data=table.data,
    )


def _draw_scores(table: Table, width: float) -> MplFigure:
    """Draw a panel per column of a table with a row per model."""
    rows = table.rows[::-1]
    names = [row[0].text for row in rows]
    styles, heads = model_styles(names), table.columns[1:]
    pitch = 0.22 if max(map(len, names), default=0) > MOST_IN_LINE else 0.165
    figure, axes, first = panels(len(heads), width, height=pitch * len(rows) + 0.72, sharey=True)
    for index, (axis, head) in enumerate(zip(axes, heads, strict=True), start=1):
        for height, row in enumerate(rows):
            cell = row[index]
            if cell.value is not None:
                look = styles[row[0].text]
                draw_estimate(axis, height, cell.value, cell.interval, **look, size=4)
        title, _, measure = head.partition("\n")
        axis.set_title(plain(title))
        axis.set_xlabel(plain(measure, most=44))
        axis.set_xlim(left=min(0.0, axis.get_xlim()[0]))
        axis.set_ylim(-0.6, len(rows) - 0.4)
        axis.tick_params(axis="y", length=0)
        axis.spines["left"].set_visible(False)
        grid(axis)
    for axis in first:
        name_rows(axis, names)
    return figure


def standings(
    results: Iterable[Result], *, tier: str, seed: int = 0, comparison: Comparison | None = None
) -> dict[str, Ranking]:
    """Rank the models on each of a tier's tasks with per-query scores, and on their mean.

    The mean is over the tasks that most models have, by metric if they have several: models that
    lack one of them are not ranked but listed with the reason. A tier with benchmarks has a ranking
    per benchmark and type instead. Tasks with fewer than two models are left out.
    """
    if TIERS[tier].benchmarks:
        compared = comparison or compare(results, tier=tier, seed=seed)
        return {
            each.task: rank_systems(
                each.parts,
                seed=seed,
                weights=each.shares,
                name=each.task,
                units=benchmark_means.units_of([part.task for part in each.parts], each.task),
                p_values=each.p_values,
                correction=each.correction,
                data=compared.data_used(each.task),
            )
            for each in compared.means
        }
    tasks = TIERS[tier].task_keys
    boards: dict[str, Ranking] = {}
    on_tier = [result for result in latest(results) if result.task.key in tasks]
    matrices, _ = pair_results(on_tier)

    def position(matrix: ScoreMatrix) -> int:  # of a task, or a part of it, in the tier
        starts = (i for i, key in enumerate(tasks) if matrix.task.startswith(key))
        return next(starts, len(tasks))

    def data_of(*ranked: ScoreMatrix) -> DataUsed:
        names = [f"{matrix.task}-" for matrix in ranked]  # of a task, or of a part of it
        return DataUsed.of(
            record
            for record in on_tier
            if any(name.startswith(f"{record.task.key}-") for name in names)
        )

    for matrix in sorted(matrices, key=position):
        if len(matrix.systems) > 1:
            boards[matrix.task] = rank_systems([matrix], seed=seed, data=data_of(matrix))
    by_metric: dict[str, list[ScoreMatrix]] = {}  # unlike metrics have no mean
    for matrix in matrices:
        by_metric.setdefault(matrix.metric, []).append(matrix)
    for metric, own in by_metric.items():
        shared = benchmark_means.rankable(own)
        if len(shared) > 1:
            title = ALL_TASKS if len(by_metric) == 1 else f"{ALL_TASKS} by {metric}"
            boards[title] = rank_systems(shared, seed=seed, data=data_of(*shared))
    return boards


def rank_table(boards: Mapping[str, Ranking]) -> Table | None:
    """Return a row per model and a column per ranking, best on the first of them first.

    A cell has the rank, its interval and the tie groups. Then follow the Borda rank in the ranking
    over most tasks, and statistics for other tasks like these. Models that are not ranked have a
    row with the reason. None without rankings, which need two models with scores per query on the
    same tasks.
    """
    if not boards:
        return None
    systems = dict.fromkeys(each.system for board in boards.values() for each in board.standings)
    rows: list[dict[str, Any]] = [{"model": system} for system in systems]
    widest = max(boards.values(), key=lambda each: each.units)
    draws = widest.units >= FEWEST_TASKS
    for name, board in boards.items():
        benchmark, _, kind = name.rpartition(": ")
        size = f"n = {board.queries[0]}"
        if board.name or len(board.tasks) > 1:
            count = benchmark_means.counted_tasks(board.tasks, board.name)
            size = f"{benchmark}, {count}" if benchmark else f"mean of {count}"
        own = {each.system: each for each in board.standings}
        for row in rows:
            cell = _rank(own.get(row["model"]), row["model"], board)
            row[f"{short_task(kind)}\n{size}"] = cell
            standing = own.get(row["model"])
            if board is widest and board.units > 1:
                row[f"Borda\n{name}"] = number(standing.borda if standing else None, "d")
            if board is widest and draws:
                ends, first = (standing.like_these, standing.first) if standing else (None, None)
                mean = number(standing.mean if standing else None, interval=ends)
                row["mean\non tasks like these"] = mean
                row["first\nin draws of tasks"] = number(first, ".0%")
    data = functools.reduce(operator.or_, (board.data for board in boards.values()))
    return Table.of(
        rows,
        note="Only models with a score on every task are ranked; in a mean over tasks each has the "
        "same weight, a group that of one task. Intervals exclude the ranks of models that are "
        f"significantly better or worse. Letters and intervals: {_methods(boards)}, alpha "
        f"{ALPHA:g}, and the interval of the difference.{_averaged(boards)}"
        + " Borda: as on MTEB's leaderboard."
        * (widest.units > 1)
        + " Tasks like these: the tasks as a sample, with Student's interval over their means, and "
        "the share of bootstrap draws of them in which a model has the best mean." * draws,
        name="ranks",
        caption="Rank of each model with its interval, on each task or type of task. Models that "
        "share a letter in a column are not significantly different.",
        data=data,
    )


def _methods(boards: Mapping[str, Ranking]) -> str:
    """Name the test behind rankings, and the pairs of each over which it is corrected."""
    corrections = dict.fromkeys(NAMES[board.correction] for board in boards.values())
    pairs = dict.fromkeys(plural(board.family, "pair") for board in boards.values())
    sizes = " or ".join(pairs)
    return f"{TEST}, {' or '.join(corrections)} over all pairs of models of a column ({sizes})"


def _averaged(boards: Mapping[str, Ranking]) -> str:
    """Name the tasks of each mean over tasks, and those that the other columns show besides."""
    sentences = []
    for title, mean in boards.items():
        missing = benchmark_means.missing_tasks(mean.tasks, mean.name)
        if missing:
            names = ", ".join(map(short_task, missing))
            sentences.append(f" {mean.name} without {names}: too few models have them.")
        if not title.startswith(ALL_TASKS):
            continue
        tasks = ", ".join(map(short_task, mean.tasks))
        sentence = f" A{title[1:]}: the mean of {tasks}"
        left_out = [name for name in boards if name not in (*mean.tasks, ALL_TASKS)]
        if title == ALL_TASKS and left_out:
            sentence += f"; without {', '.join(map(short_task, left_out))}, which fewer models have"
        sentences.append(f"{sentence}.")
    return "".join(sentences)


def _rank(standing: Standing | None, system: str, board: Ranking) -> Cell:
    """Return a rank with its interval, or the reason why there is none."""
    if standing is None:
        start = f"{system} is not ranked: "
        reasons = (line.removeprefix(start) for line in board.left_out if line.startswith(start))
        return Cell("not ranked", " ".join(map(short_task, next(reasons, "no score").split())))
    letters = (chr(ord("a") + n - 1) if n <= 26 else str(n) for n in standing.groups)
    return Cell(
        str(standing.rank),
        "{} to {}".format(*standing.rank_interval),
        value=standing.rank,
        interval=standing.rank_interval,
        mark=" ".join(letters),
    )
