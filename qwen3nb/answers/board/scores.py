"""Tables of the scores of all models: on tasks, and on means over benchmarks and types."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from qwen3nb.analysis.comparison import benchmark_means
from qwen3nb.analysis.comparison.benchmark_means import BenchmarkMean, MeanColumn
from qwen3nb.answers.board.grid import Grid, Links, is_of_benchmark
from qwen3nb.answers.board.published import published_means, published_rows
from qwen3nb.answers.comparison import Comparison
from qwen3nb.answers.forecast import forecast_of_column
from qwen3nb.metrics.intervals import few_queries_sentence, interval_words
from qwen3nb.models.kinds.resolve import FUSION_KIND, KINDS
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import newest
from qwen3nb.report.render.figure import (
    Axes,
    MplFigure,
    draw_estimate,
    grid,
    name_rows,
    panels,
    plain,
    row_height,
)
from qwen3nb.report.render.home import score_link
from qwen3nb.report.render.model_styles import rank_style
from qwen3nb.report.render.table import Cell, Head, Table, number, plural, short_task, transposed
from qwen3nb.tiers import GROUPS, Benchmark, is_search
from qwen3nb.utils.format import interval_text, number_text

NEAR_BEST = (
    "not significantly different from the best of its column; only for metrics that are a mean "
    "over queries"
)
_BEST = "Bold: the best of its column. Underlined: the second best, whether or not they differ."
_MEANS = (
    "Means over the tasks of one benchmark. Incomplete: a mean needs a score on every task. "
    f"{_BEST}"
)
_HOW_MEANS = (
    "A group such as CQADupStack counts as one task. Without a metric, the main scores are "
    "averaged as on MTEB's leaderboard. The 95 % intervals are combined from those of the tasks. "
    "A forecast is from published scores of other models; it is no measurement."
)


def scores_table(models: Grid, near_best: Mapping[str, Iterable[str]], links: Links) -> Table:
    """Return a row per model and a column per task, with marks on models near the best."""
    # The keys of `near_best` are the tasks, in the order of the columns.
    heads = ["model", *[_task_head(task, models.on(task)) for task in near_best]]
    rows = []
    records: list[Result] = []
    for identity, name in models.names.items():
        records_by_task = models.records[identity]
        example = models.example(identity)
        row = [Cell(name, link=links.get(example.run, ""))]
        for task, identities in near_best.items():
            if task in records_by_task:
                mark = "†" if identity in identities else ""
                link = score_link(records_by_task[task], links)
                row.append(number(records_by_task[task].main, link=link, mark=mark))
            else:
                row.append(Cell(why_missing(example, searched=models.is_search(task))))
        rows.append(row)
        records += [record for task, record in records_by_task.items() if task in near_best]
    methods = interval_words(record.main.interval for record in records)
    return Table.of(
        rows,
        heads,
        best=True,
        note=_BEST + few_queries_sentence(record.main for record in records),
        method=f"95 % intervals over n: {methods}.",
        caption="Scores of all models, with 95 % intervals.",
        data=DataUsed.of(records),
    )


def _task_head(key: str, records: Sequence[Result]) -> str:
    if not records:
        return short_task(key)
    score = records[0].main
    return Head(f"{short_task(key)}\n{records[0].task.main_metric}, n = {score.n}", score.n)


def near_best_models(records: Iterable[Result], comparison: Comparison) -> set[str]:
    """Return the models not significantly different from the best on a task, by identity.

    Includes only models that can be paired with the best.
    """
    # Only means over queries are compared query by query; a correlation has no such scores.
    means = [
        record for record in records if record.main.how == "mean" and record.main.value is not None
    ]
    if not means:
        return set()
    # No value is None here; the 0.0 is for the type.
    best = max(means, key=lambda record: record.main.value or 0.0)
    identities = set()
    for record in means:
        if record is best:
            continue
        difference = comparison.between(record, best)
        if difference and not difference.significant(comparison.procedure.alpha):
            identities.add(record.model.identity)
    return identities


def why_missing(example: Result, *, searched: bool) -> str:
    """Return why a model has no result on tasks, inferred from its result on another.

    ``searched`` says whether one of the tasks is a search, which needs no vectors.
    """
    kind_name = example.model.settings.get("model", {}).get("kind")
    search_kinds = [kind.name for kind in (*KINDS, FUSION_KIND) if kind.searches]
    if kind_name in search_kinds and not searched:
        return "no vectors"
    return "not run"


def shown_means(models: Grid, *, types: bool = False) -> list[MeanColumn]:
    """Return the means over benchmarks, or those over their types."""
    return [column for column in models.columns if is_of_benchmark(column) != types]


def means_table(models: Grid, tier: str, links: Links, *, types: bool = False) -> Table:
    """Return a row per model, a column per mean over a benchmark, or over one of its types."""
    columns = shown_means(models, types=types)
    heads = ["model"]
    for column in columns:
        measure = column.over
        if column.metric:
            measure = f"{column.metric}, {column.over}"
        heads.append(f"{column.name}\n{measure}")
    rows = []
    for identity, name in models.names.items():
        newest_record = newest(models.records[identity].values())
        row: list[Cell | str] = [Cell(name, link=links.get(newest_record.run, ""))]
        for mean in models.means[identity]:
            if mean.column in columns:
                row.append(_mean_cell(mean, newest_record, models.records[identity].values()))
        rows.append(row)
    noun = "type of task" if types else "benchmark"
    return Table.of(
        rows,
        heads,
        best=True,
        note="" if types else _MEANS,
        method="" if types else _HOW_MEANS,
        empty=f"No results on the tier {tier}.",
        name="types",
        caption=f"The mean over each {noun} of the tier {tier}, with 95 % intervals.",
        data=models.data_used(columns),
    )


def _mean_cell(mean: BenchmarkMean, example: Result, records: Iterable[Result] = ()) -> Cell | str:
    """Return a mean; of an incomplete one its number of tasks, with a forecast in words.

    A forecast is no value: it is neither sorted with measured means, nor the best of a column.
    """
    if mean.value is not None:
        return number(mean.value, interval=mean.interval)
    if not mean.measured and len(mean.missing) == len(mean.column.weights):
        has_search = any(is_search(task) for task in mean.column.weights)
        return why_missing(example, searched=has_search)
    detail = "incomplete"
    forecast = forecast_of_column(mean.column, records)
    if forecast is not None:
        detail = f"forecast {number_text(forecast.mean)} {interval_text(forecast.interval)}"
    return Cell(f"{mean.measured} of {mean.column.tasks}", detail)


def tasks_table(
    models: Grid,
    benchmark: Benchmark,
    tasks: Sequence[str],
    links: Links,
    *,
    published: bool = True,
) -> Table:
    """Return the scores of all models on some tasks of a benchmark, a row per task.

    With ``published``, those of reference models that were not measured here follow.
    """
    columns = [benchmark_means.task_column(benchmark, task) for task in tasks]
    heads = ["model", *[_benchmark_task_head(column, models) for column in columns]]
    rows = []
    for identity, name in models.names.items():
        row: list[Cell | str] = [name]
        for column in columns:
            row.append(_benchmark_task_cell(column, models.records[identity], links))
        rows.append(row)
    scores = Table.of(
        rows,
        heads,
        best=True,
        name=f"tasks-{benchmark.name}-{tasks[0]}",
        caption=f"Scores of all models on the tasks of {benchmark.name}, with 95 % intervals.",
        data=models.data_used(columns),
    )
    if published:
        references = published_means(models, columns)
        below = published_rows(references, [column.name for column in columns])
        scores = replace(scores, rows=(*scores.rows, *map(tuple, below)))
    if len(tasks) == 1:
        return scores
    return transposed(scores, first="task")


def titles_and_tasks(benchmark: Benchmark) -> Iterator[tuple[str, Sequence[str]]]:
    """Return the titles and tasks of a benchmark's types, and those of its groups."""
    for kind, tasks in benchmark.types.items():
        name = benchmark.name
        if len(benchmark.types) > 1:
            name = f"{benchmark.name}: {kind}"
        yield f"{name} ({plural(len(tasks), 'task')})", tasks
        for task in tasks:
            parts = GROUPS.get(task)  # such as the forums of CQADupStack
            if parts:
                yield f"{benchmark.name}: the parts of {task} ({len(parts)})", parts


def _benchmark_task_cell(
    column: MeanColumn, records: Mapping[str, Result], links: Links
) -> Cell | str:
    tasks = list(column.weights)  # several for a task in parts
    if len(tasks) == 1 and tasks[0] in records:
        record = records[tasks[0]]
        score = benchmark_means.task_score(record, column.metric)
        return number(score, absent=f"no {column.metric}", link=score_link(record, links))
    mean = benchmark_means.column_mean(column, records.values())
    measured = len(tasks) - len(mean.missing)
    # Some parts of the task are missing: say how many there are.
    if mean.value is None and 0 < measured < len(tasks):
        return Cell(f"{measured} of {len(tasks)}", "incomplete")
    example = next(iter(records.values()))
    return _mean_cell(mean, example)


def _benchmark_task_head(column: MeanColumn, models: Grid) -> str:
    """Return the task's name, with its metric and n or the number of its parts."""
    tasks = list(column.weights)
    if len(tasks) > 1:
        return f"{column.name}\n{column.metric}, mean of {len(tasks)}"
    records = models.on(tasks[0])
    if not records:
        return short_task(column.name)
    score = benchmark_means.task_score(records[0], column.metric)
    queries = score.n if score else 0
    metric = column.metric or _metric_of(records[0])
    return Head(f"{short_task(column.name)}\n{metric}, n = {queries}", queries)


def _metric_of(record: Result) -> str:
    """Name the metric of the score that MTEB reports, which may be none of the record's."""
    score = benchmark_means.task_score(record)
    for name, value in record.metrics.items():
        if value == score:
            return name
    if record.task.mteb:
        return record.task.mteb.metric
    return record.task.main_metric


def draw_scores(scores: Table, width: float) -> MplFigure:
    """Draw a panel per column of a table with a row per model."""
    rows = scores.rows[::-1]  # the last row is drawn on top
    names = [row[0].text for row in rows]
    heads = scores.columns[1:]
    height = row_height(names, one_line=0.18) * len(rows) + 0.72
    figure, axes, left_axes = panels(len(heads), width, height=height, sharey=True)
    for index, (axis, head) in enumerate(zip(axes, heads, strict=True), start=1):
        cells = [row[index] for row in rows]
        _draw_panel(axis, head, dict(zip(names, cells, strict=True)))
    for axis in left_axes:
        name_rows(axis, names)
    return figure


def _draw_panel(axis: Axes, head: str, cells: Mapping[str, Cell]) -> None:
    for row, cell in enumerate(cells.values()):
        if cell.value is not None:
            look = rank_style(is_best=cell.strong or cell.mark != "")
            draw_estimate(axis, row, cell.value, cell.interval, **look, size=4)
    title, _, measure = head.partition("\n")
    axis.set_title(plain(title))
    axis.set_xlabel(plain(measure, longest=44))
    # The axis begins at 0, or below where a score is negative.
    axis.set_xlim(left=min(0.0, axis.get_xlim()[0]))
    axis.set_ylim(-0.6, len(cells) - 0.4)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    grid(axis)
