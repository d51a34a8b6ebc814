"""Means over the tasks of a benchmark, as its public leaderboard computes them.

A mean is over a single benchmark: BEIR by nDCG@10 (papers report it with and without MS MARCO), MS
MARCO by MRR@10, MTEB by the main score of each task, over tasks and over types. A group of tasks,
such as the forums of CQADupStack, counts as one task with the mean of its parts. A mean is defined
only if every task has a score; otherwise missing tasks are listed.
"""

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from qwen3nb.analysis.comparison import differences, ranking
from qwen3nb.analysis.comparison.alignment import Names, pair_results
from qwen3nb.analysis.stats.resampling import draw_seed
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, SystemScores, by_id
from qwen3nb.metrics.aggregate import Aggregate, reported
from qwen3nb.metrics.intervals import Array, Interval, mean_of_intervals
from qwen3nb.records.record import Result, TaskInfo
from qwen3nb.tiers import BENCHMARKS, GROUP_OF, GROUPS, TIERS, Benchmark

# The scores of tasks by key and metric (None: the main one); None if no two systems pair.
Joined = dict[tuple[str, str | None], ScoreMatrix | None]

_WITHOUT = {"BEIR": "MSMARCO"}  # also reported without this task
# Benchmarks with a group of tasks.
_GROUPED = tuple(name for name, each in BENCHMARKS.items() if GROUPS.keys() & {*each.tasks})
MEAN = "mean"  # task type in the record of a mean
_TOLERANCE = 1e-5  # between MTEB's score and a record's, as in the check of an evaluation


@dataclass(frozen=True)
class MeanColumn:
    """A mean reported by a leaderboard."""

    benchmark: str  # name of the benchmark
    name: str  # name of the mean; unique among a tier's
    over: str  # what the mean is over: ``15 tasks``, ``7 types``
    weights: Mapping[str, float]  # weight of each task, by key; they add up to 1
    metric: str = ""  # the metric that is averaged; empty for MTEB's main score of each task
    tasks: int = 0  # number of tasks; a group counts as one

    @property
    def measure(self) -> str:
        """The metric, in words."""
        return self.metric or "main score"

    def entries(self) -> dict[str, list[str]]:
        """Return its tasks, each with its parts (several for a group that is averaged whole)."""
        entries: dict[str, list[str]] = {}
        for key in self.weights:
            group = GROUP_OF.get(key, key)
            parts_of_group = GROUPS.get(group, ())  # none of a single task, which is its own group
            is_averaged_whole = all(part in self.weights for part in parts_of_group)
            # A group of which only some parts are averaged is named part by part.
            name = group if is_averaged_whole else key
            entries.setdefault(name, []).append(key)
        return entries


@dataclass(frozen=True)
class BenchmarkMean:
    """A mean of one model."""

    column: MeanColumn  # what the mean is over
    value: float | None  # the mean; None if a task has no score
    # see `column_mean`; None without a value, or if a task lacks an interval
    interval: Interval | None
    missing: tuple[str, ...]  # keys of the tasks without a score

    @property
    def measured(self) -> int:
        """Number of tasks with a score; a group counts if all its parts have one."""
        missing_tasks = [
            name
            for name, keys in self.column.entries().items()
            if any(key in self.missing for key in keys)
        ]
        return self.column.tasks - len(missing_tasks)

    @property
    def gaps(self) -> tuple[str, ...]:
        """Missing tasks; for a group, with the number of available parts."""
        gaps = []
        for name, keys in self.column.entries().items():
            available = [key for key in keys if key not in self.missing]
            if not available:
                gaps.append(name)
            elif len(available) < len(keys):
                gaps.append(f"{name} ({len(available)} of {len(keys)} parts)")
        return tuple(gaps)


def tier_columns(tier: str) -> tuple[MeanColumn, ...]:
    """Return the means that a tier's leaderboard reports; none if it has no benchmarks."""
    return tuple(
        column for name in TIERS[tier].benchmarks for column in benchmark_columns(BENCHMARKS[name])
    )


def benchmark_columns(benchmark: Benchmark) -> tuple[MeanColumn, ...]:
    """Return a benchmark's means: over its tasks, over its types if it has several, by type."""
    tasks, types = benchmark.tasks, benchmark.types
    has_types = len(types) > 1
    name = benchmark.name
    if has_types:  # with the names on MTEB's leaderboard
        name = f"{benchmark.name} Mean (Task)"
    columns = [_column_over([tasks], benchmark, name)]
    left_out = _WITHOUT.get(benchmark.name)
    if left_out:
        rest = tuple(task for task in tasks if task != left_out)
        name = f"{benchmark.name} without {left_out.replace('MSMARCO', 'MS MARCO')}"
        columns.append(_column_over([rest], benchmark, name))
    if has_types:
        name = f"{benchmark.name} Mean (TaskType)"
        columns.append(_column_over(list(types.values()), benchmark, name))
        for kind, tasks_of_type in types.items():
            columns.append(_column_over([tasks_of_type], benchmark, kind))
    return tuple(columns)


def task_column(benchmark: Benchmark, task: str) -> MeanColumn:
    """Return the mean of a single task of a benchmark; over its parts if it is a group."""
    return _column_over([(task,)], benchmark, task)


def _column_over(parts: Sequence[Sequence[str]], benchmark: Benchmark, name: str) -> MeanColumn:
    """Return the mean over ``parts`` of the means over the tasks of each."""
    weights: dict[str, float] = {}
    for tasks in parts:
        for task in tasks:
            keys = GROUPS.get(task, (task,))
            # Each part counts alike, so does each of its tasks, and each part of a group of tasks.
            weight_of_key = 1 / (len(parts) * len(tasks) * len(keys))
            for key in keys:  # a task may be of several parts
                weights[key] = weights.get(key, 0.0) + weight_of_key
    count = sum(len(tasks) for tasks in parts)
    if len(parts) > 1:
        units_text = f"{len(parts)} types"
    elif count == 1:
        units_text = "1 task"
    else:
        units_text = f"{count} tasks"
    return MeanColumn(
        benchmark=benchmark.name,
        name=name,
        over=units_text,
        weights=weights,
        metric=benchmark.metric,
        tasks=count,
    )


def column_mean(column: MeanColumn, records: Iterable[Result]) -> BenchmarkMean:
    """Return one model's mean over the tasks of a column.

    Its interval combines those of the tasks, whose queries are independent.
    """
    by_task = {record.task.key: record for record in records}
    values: list[float] = []
    ends: list[Interval] = []
    unscored_tasks: list[str] = []
    for key in column.weights:
        score = task_score(by_task[key], column.metric) if key in by_task else None
        if score is None or score.value is None:
            unscored_tasks.append(key)
            continue
        values.append(score.value)
        if score.low is not None and score.high is not None:
            ends.append((score.low, score.high))
    if unscored_tasks:
        return BenchmarkMean(column, value=None, interval=None, missing=tuple(unscored_tasks))
    weights = list(column.weights.values())
    mean = math.fsum(weight * value for weight, value in zip(weights, values, strict=True))
    if len(ends) < len(values):  # a task has no interval
        return BenchmarkMean(column, value=mean, interval=None, missing=())
    interval = mean_of_intervals(values, ends, weights=np.array(weights))
    return BenchmarkMean(column, value=mean, interval=interval, missing=())


def task_score(record: Result, metric: str = "") -> Aggregate | None:
    """Return a record's score by a metric, or its main score as MTEB reports it."""
    if metric:
        return record.metrics.get(metric)
    reported_value = main_score(record)
    if reported_value is None or record.main.value is None:
        return None
    # MTEB's main score may be another of the record's metrics, which has an interval.
    for score in (record.main, *record.metrics.values()):
        if score.value is not None and abs(reported_value - score.value) <= _TOLERANCE:
            return score
    return reported(reported_value, n=record.main.n)


def main_score(record: Result) -> float | None:
    """Return MTEB's main score of the task; its metric may differ from the record's main one."""
    mteb = record.task.mteb
    return record.main.value if mteb is None else mteb.value


def ranked_columns(tier: str) -> dict[str, MeanColumn]:
    """Return the means to rank models on, by title: of each benchmark, and by type."""
    columns = {}
    for name in TIERS[tier].benchmarks:
        benchmark = BENCHMARKS[name]
        for kind, tasks in benchmark.types.items():
            # Such as ``BEIR``, or ``MTEB(eng, v2): STS``.
            title = name if len(benchmark.types) == 1 else f"{name}: {kind}"
            columns[title] = _column_over([tasks], benchmark, kind)
    return columns


def column_matrices(
    results: Iterable[Result],
    column: MeanColumn,
    *,
    names: Names | None = None,
    joined: Joined | None = None,
) -> list[ScoreMatrix]:
    """Return the tasks of a mean to rank models on, without incomplete groups.

    A task in parts is one of them, with its mean over the parts, as MTEB's score is. Tasks in
    ``joined`` are not joined again, and others are added to it: means share their tasks.
    """
    joined = {} if joined is None else joined
    metric = column.metric or None
    new_tasks = [task for task in column.weights if (task, metric) not in joined]
    for task in new_tasks:
        joined[task, metric] = None
    if new_tasks:
        matrices_of_new, _ = pair_results(
            results, metric=metric, tasks=new_tasks, names=names, whole=True
        )
        for matrix in matrices_of_new:
            joined[matrix.task, metric] = matrix
    of_tasks = [joined[task, metric] for task in sorted(column.weights)]
    task_matrices = [matrix for matrix in of_tasks if matrix is not None]
    matrices = {matrix.task: matrix for matrix in rankable(task_matrices)}
    # A group counts as one task, so it needs all its parts.
    complete: set[str] = set()
    for keys in column.entries().values():
        if all(key in matrices for key in keys):
            complete.update(keys)
    return [matrix for task, matrix in matrices.items() if task in complete]


def rankable(matrices: Iterable[ScoreMatrix]) -> list[ScoreMatrix]:
    """Return the tasks to rank on, dropping the sparsest until two systems have all of them."""
    rest = list(matrices)
    while rest:
        common = set.intersection(*(set(matrix.systems) for matrix in rest))
        if len(common) >= 2:
            break
        # A task that few systems have leaves the fewest in common.
        sparsest = min(rest, key=lambda matrix: len(matrix.systems))
        rest.remove(sparsest)
    return rest


def units_of(tasks: Iterable[str], name: str) -> list[str]:
    """Return the group of each task of a benchmark, which counts as one, or its own name."""
    if name not in _GROUPED:
        return list(tasks)
    return [GROUP_OF.get(task, task) for task in tasks]


def counted_tasks(tasks: Iterable[str], name: str) -> str:
    """Return the number of tasks of a benchmark; a group counts as one.

    If some of the benchmark, or of its type of tasks, are not among them, say of how many.

    >>> counted_tasks(["NQ", "FEVER"], "BEIR")
    '2 of 15 tasks'
    """
    count = len(set(units_of(tasks, name)))
    total_count = max(count, len(_tasks_of(name)))
    size = str(count) if count == total_count else f"{count} of {total_count}"
    return f"{size} task" if total_count == 1 else f"{size} tasks"


def _tasks_of(title: str) -> tuple[str, ...]:
    """Return the tasks of a ranking by its title; see `ranked_columns`. Empty for other titles."""
    name, _, kind = title.partition(": ")
    if name not in BENCHMARKS:
        return ()
    benchmark = BENCHMARKS[name]
    return tuple(benchmark.types[kind]) if kind else benchmark.tasks


def missing_tasks(tasks: Iterable[str], title: str) -> list[str]:
    """Return the tasks of a ranking's benchmark that are not among ``tasks``, groups as one."""
    present = set(units_of(tasks, title))
    return [name for name in _tasks_of(title) if name not in present]


@dataclass(frozen=True, eq=False)
class MeanComparison(differences.TaskComparison):
    """Systems compared on the mean over tasks; scores of queries are scaled to have this mean.

    Intervals and p-values of differences are those of the ranking on these tasks.
    """

    parts: tuple[ScoreMatrix, ...] = ()  # the scores on each task
    shares: tuple[float, ...] = ()  # of the tasks; they add up to 1

    @property
    def has_parts(self) -> bool:
        """Whether a task has parts."""
        return any(part.parts for part in self.parts)

    def records(self, of: Mapping[tuple[str, str], Result]) -> list[Result]:
        """Return a record per system, with its mean and interval as the score."""
        tasks = {part.task for part in self.parts}
        of_system: dict[str, Result] = {}  # the first on one of the tasks
        for (task, system), record in of.items():
            if task in tasks:
                of_system.setdefault(system, record)
        records = []
        for system, column in self.columns.items():
            low, high = ranking.over_tasks(
                [part.sample(system) for part in self.parts], np.array(self.shares)
            )
            mean = float(column.scores.mean())
            score = Aggregate(
                value=mean,
                low=low,
                high=high,
                n=len(column.queries),
                how="mean",
                columns=(self.metric,),
                interval="",
            )
            records.append(
                replace(
                    of_system[system],
                    task=TaskInfo(self.task, type=MEAN, main_metric=self.metric),
                    metrics={self.metric: score},
                    per_query={self.metric: {}},  # those of a mean are scaled, and of no use
                    parts=(),
                )
            )
        return records

    @cached_property
    def differ(self) -> NDArray[np.bool_]:
        """Which pairs of systems are significantly different (S, S), in their order."""
        return ranking.differing_pairs(
            self.parts,
            list(self.columns),
            self.p_values,
            np.array(self.shares),
            alpha=self.procedure.alpha,
        )

    def tied_pairs(self, systems: Iterable[str]) -> set[frozenset[str]]:
        """Pairs of some systems that are not significantly different."""
        rows = {system: row for row, system in enumerate(self.columns)}
        present = [system for system in systems if system in rows]
        return {
            frozenset((first, second))
            for first, second in itertools.combinations(present, 2)
            if not self.differ[rows[first], rows[second]]
        }

    def _permutation_p_values(
        self, pairs: Sequence[differences.Pair]
    ) -> tuple[list[float], list[float]]:
        units = [
            part.unit_values(part.scores_of(self.columns), centred=False) for part in self.parts
        ]
        seeds = [draw_seed(self.procedure.seed, part.unit_names) for part in self.parts]
        return ranking.mean_p_values(units, seeds, np.array(self.shares), n_resamples=self.draws)

    def _differences(self, pairs: Sequence[differences.Pair]) -> list[differences.PairedDifference]:
        shares = np.array(self.shares)
        groups = units_of([part.task for part in self.parts], self.task)
        over_queries = super()._differences(pairs)
        over_tasks = ranking.paired_over_tasks(self.parts, pairs, shares)
        completed_differences = []
        for difference, of_pair in zip(over_queries, over_tasks, strict=True):
            on_tasks = np.array(of_pair.on_tasks).reshape(-1, 1)  # (tasks, 1), as of one system
            on_groups = ranking.unit_means(on_tasks, shares, groups).ravel()
            completed_differences.append(
                replace(
                    difference,
                    d_z=None,  # an effect size is of the queries of one task
                    interval=of_pair.interval,
                    like_these=ranking.on_tasks_like_these(on_groups),
                )
            )
        return completed_differences


def _scaled(
    parts: Sequence[ScoreMatrix], shares: Sequence[float], system: str, rows: NDArray[np.intp]
) -> Array:
    """Return a system's scores on all tasks, scaled so that their mean is that over tasks."""
    scaled_columns = []
    for part, share in zip(parts, shares, strict=True):
        # Summed over this task and divided by all rows, its mean counts by its share.
        scale = share * len(rows) / len(part.queries)
        scaled_columns.append(part.column(system) * scale)
    return np.concatenate(scaled_columns)[rows]  # in the order of the sorted ids


def mean_comparisons(
    results: Sequence[Result],
    tier: str,
    *,
    baselines: Sequence[str],
    names: Names,
    procedure: differences.Procedure,
) -> tuple[MeanComparison, ...]:
    """Return the comparisons on the means of a tier's benchmarks, in the order of its rankings."""
    comparisons = []
    joined: Joined = {}  # a task is of several means
    for title, column in ranked_columns(tier).items():
        parts = column_matrices(results, column, names=names, joined=joined)
        if not procedure.clusters:  # queries count as independent
            parts = [replace(part, clusters=()) for part in parts]
        if parts:
            comparisons.append(_mean_comparison(title, column, parts, baselines, procedure))
    return tuple(comparisons)


def _mean_comparison(
    title: str,
    column: MeanColumn,
    parts: Sequence[ScoreMatrix],
    baselines: Sequence[str],
    procedure: differences.Procedure,
) -> MeanComparison:
    """Compare systems on the mean of tasks; the scores are scaled when they are needed."""
    tasks = [part.task for part in parts]
    total = math.fsum(column.weights[task] for task in tasks)
    shares = tuple(column.weights[task] / total for task in tasks)
    ids: list[str] = []
    clusters: dict[str, str] = {}
    has_clusters = any(part.clusters for part in parts)
    for part in parts:
        if not has_clusters:
            ids += [f"{part.task}/{query}" for query in part.queries]
            continue
        # Without clusters, each query is a cluster of its own.
        for query, cluster in zip(part.queries, part.clusters or part.queries, strict=True):
            query_id = f"{part.task}/{query}"
            ids.append(query_id)
            clusters[query_id] = f"{part.task}/{cluster}"
    queries, rows = by_id(tuple(ids))  # sorted, and where each was
    systems, unranked = ranking.common_systems(parts)
    # Scores are read and scaled only where they are needed.
    columns = {
        system: SystemScores(queries, partial(_scaled, parts, shares, system, rows))
        for system in systems
    }
    return MeanComparison(
        task=title,
        metric=f"mean {column.measure} of {counted_tasks(tasks, title)}",
        baseline=next((name for name in baselines if name in columns), ""),
        columns=columns,
        procedure=procedure,
        left_out=ranking.left_out_notes(unranked, parts),
        clusters=clusters,
        unranked=tuple(unranked),
        parts=tuple(parts),
        shares=shares,
    )
