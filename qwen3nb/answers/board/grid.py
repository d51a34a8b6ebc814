"""The models of a tier, the best first, with their records and means."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from qwen3nb.analysis.comparison import benchmark_means
from qwen3nb.analysis.comparison.alignment import model_names, newest_records
from qwen3nb.analysis.comparison.benchmark_means import BenchmarkMean, MeanColumn
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.tiers import TIERS, is_search

_SEARCHES = ("Retrieval", "Reranking")  # types of tasks that need no vectors
Records = Mapping[str, Mapping[str, Result]]  # by identity of the model, then by task
Links = Mapping[str, str]  # the page of each run id


def by_model(results: Iterable[Result]) -> dict[str, dict[str, Result]]:
    """Return the newest records by identity of the model, then by task."""
    records: dict[str, dict[str, Result]] = {}
    newest_results, _ = newest_records(results)
    for result in newest_results:
        records_by_task = records.setdefault(result.model.identity, {})
        records_by_task[result.task.key] = result
    return records


@dataclass(frozen=True)
class Grid:
    """Models on a tier, the best first, and their means on its benchmarks."""

    names: Mapping[str, str]  # of the models, by identity
    records: Records
    columns: tuple[MeanColumn, ...]  # in the tier's order; none if tasks are shown
    means: Mapping[str, Sequence[BenchmarkMean]]  # by model identity, one per column

    def on(self, task: str) -> list[Result]:
        """Return the records of a task, in the order of the models."""
        return [records[task] for records in self.records.values() if task in records]

    def example(self, identity: str) -> Result:
        """Return some record of a model."""
        return next(iter(self.records[identity].values()))

    def is_search(self, task: str) -> bool:
        """Whether a task needs no vectors: by its records, else by its name."""
        records = self.on(task)
        if records:
            return records[0].task.type in _SEARCHES
        return is_search(task)

    def data_used(self, columns: Iterable[MeanColumn]) -> DataUsed:
        """Return the data of the tasks that are averaged."""
        tasks: dict[str, None] = {}
        for column in columns:
            tasks |= dict.fromkeys(column.weights)
        records = [self.on(task) for task in tasks]
        return DataUsed.of(itertools.chain(*records))


def score_grid(results: Iterable[Result], tier: str, tasks: Sequence[str] = ()) -> Grid:
    """Return the models with a result, sorted by the first available mean, or the first task.

    Models without it follow, those with most tasks first.
    """
    keys = tasks or TIERS[tier].task_keys
    columns = () if tasks else benchmark_means.tier_columns(tier)
    on_tier = [result for result in latest(results) if result.task.key in keys]
    names, records = model_names(on_tier), by_model(on_tier)
    means = {}
    for identity, records_by_task in records.items():
        means[identity] = [
            benchmark_means.column_mean(column, records_by_task.values()) for column in columns
        ]
    if columns:
        index = _first_measured(means)
        order = sorted(
            records,
            key=lambda identity: (
                *_descending(means[identity][index].value),
                -len(records[identity]),
                names[identity],
            ),
        )
    else:
        order = sorted(
            records,
            key=lambda identity: (
                *_descending(_score_on(keys[0], records[identity])),
                names[identity],
            ),
        )
    return Grid(
        {identity: names[identity] for identity in order},
        {identity: records[identity] for identity in order},
        columns,
        means,
    )


def _descending(score: float | None) -> tuple[bool, float]:
    """Return a key that sorts the best score first, and no score last."""
    return score is None, -(score or 0.0)


def _score_on(task: str, records: Mapping[str, Result]) -> float | None:
    if task not in records:
        return None
    return records[task].main.value


def _first_measured(means: Mapping[str, Sequence[BenchmarkMean]]) -> int:
    """Return the first column in which a model has a mean; the first of all if there is none."""
    by_column = zip(*means.values(), strict=True)
    for index, column in enumerate(by_column):
        if any(mean.value is not None for mean in column):
            return index
    return 0


def is_of_benchmark(column: MeanColumn) -> bool:
    """Return whether a mean is over a whole benchmark, not one type of its tasks."""
    return column.name.startswith(column.benchmark)


def busiest_task(results: Iterable[Result], keys: Iterable[str]) -> str:
    """Return the task with per-query scores of most models; the first if tied.

    Where no model has any, as on a study of STS alone, return the task with most models.
    """
    keys = tuple(keys)
    paired: dict[str, set[str]] = {task: set() for task in keys}
    scored: dict[str, set[str]] = {task: set() for task in keys}
    for result in results:
        if result.task.key not in scored:
            continue
        scored[result.task.key].add(result.model.identity)
        if result.task.main_metric in result.per_query:
            paired[result.task.key].add(result.model.identity)
    return max(keys, key=lambda task: (len(paired[task]), len(scored[task])))


def headline_task(results: Iterable[Result], *, tier: str) -> str:
    """Return the task of a tier with per-query scores of most models; the first if tied.

    A tier with benchmarks is summarised by the first of `Comparison.means` instead.
    """
    return busiest_task(results, TIERS[tier].task_keys)
