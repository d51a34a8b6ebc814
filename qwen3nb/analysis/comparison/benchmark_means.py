"""Means over the tasks of a benchmark, as its public leaderboard computes them.

A mean is over a single benchmark: BEIR by nDCG@10 (papers report it with and without MS MARCO), MS
MARCO by MRR@10, MTEB by the main score of each task, over tasks and over types. A group of tasks,
such as the forums of CQADupStack, counts as one task with the mean of its parts. A mean is defined
only if every task has a score; otherwise missing tasks are listed.
"""

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

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

_WITHOUT = {"BEIR": "MSMARCO"}  # also reported without this task
_GROUPED = tuple(name for name, each in BENCHMARKS.items() if {*GROUPS} & {*each.tasks})
MEAN = "mean"  # task type in the record of a mean
_AGREE = 1e-5  # tolerance between MTEB's score and a record's, as in the check of an evaluation


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
            whole = self.weights.keys() >= {*GROUPS.get(group, ())}
            entries.setdefault(group if whole else key, []).append(key)
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
        parts = {part: name for name, keys in self.column.entries().items() for part in keys}
        return self.column.tasks - len({parts[key] for key in self.missing})

    @property
    def gaps(self) -> tuple[str, ...]:
        """Missing tasks; for a group, with the number of available parts."""
        gaps = []
        for name, keys in self.column.entries().items():
            there = len({*keys} - {*self.missing})
            if there < len(keys):
                gaps.append(f"{name} ({there} of {len(keys)} parts)" if there else name)
        return tuple(gaps)


def tier_columns(tier: str) -> tuple[MeanColumn, ...]:
    """Return the means that a tier's leaderboard reports; none if it has no benchmarks."""
    return tuple(
        column for name in TIERS[tier].benchmarks for column in benchmark_columns(BENCHMARKS[name])
    )


def benchmark_columns(benchmark: Benchmark) -> tuple[MeanColumn, ...]:
    """Return a benchmark's means: over its tasks, over its types if it has several, by type."""
    tasks = benchmark.tasks
    kinds = list(benchmark.types.values())
    several = len(kinds) > 1
    columns = [_over([tasks], benchmark, benchmark.name + " Mean (Task)" * several)]
    if left_out := _WITHOUT.get(benchmark.name):
        rest = tuple(task for task in tasks if task != left_out)
        name = f"{benchmark.name} without {left_out.replace('MSMARCO', 'MS MARCO')}"
        columns.append(_over([rest], benchmark, name))
    if several:  # with the names on MTEB's leaderboard
        columns.append(_over(kinds, benchmark, f"{benchmark.name} Mean (TaskType)"))
        columns += [_over([tasks], benchmark, kind) for kind, tasks in benchmark.types.items()]
    return tuple(columns)


def task_column(benchmark: Benchmark, task: str) -> MeanColumn:
    """Return the mean of a single task of a benchmark; over its parts if it is a group."""
    return _over([(task,)], benchmark, task)


def _over(parts: Sequence[Sequence[str]], benchmark: Benchmark, name: str) -> MeanColumn:
    """Return the mean over ``parts`` of the means over the tasks of each."""
    weights: dict[str, float] = {}
    for tasks in parts:
        for task in tasks:
            keys = GROUPS.get(task, (task,))
            for key in keys:
                share = 1 / (len(parts) * len(tasks) * len(keys))
                weights[key] = weights.get(key, 0.0) + share
    count = sum(map(len, parts))
    over = f"{len(parts)} types" if len(parts) > 1 else f"{count} task{'s' if count > 1 else ''}"
    return MeanColumn(benchmark.name, name, over, weights, benchmark.metric, count)


def column_mean(column: MeanColumn, records: Iterable[Result]) -> BenchmarkMean:
    """Return one model's mean over the tasks of a column.

    Its interval combines those of the tasks, whose queries are independent.
    """
    by_task = {record.task.key: record for record in records}
    scores = {
        key: task_score(by_task[key], column.metric) if key in by_task else None
        for key in column.weights
    }
    known = {key: each for key, each in scores.items() if each and each.value is not None}
    if missing := tuple(key for key in scores if key not in known):
        return BenchmarkMean(column, None, None, missing)
    values, weights = [_value(each) for each in known.values()], [*column.weights.values()]
    mean = math.fsum(map(operator.mul, weights, values))
    ends = [(s.low, s.high) for s in known.values() if s.low is not None and s.high is not None]
    if len(ends) < len(known):
        return BenchmarkMean(column, mean, None, ())
    interval = mean_of_intervals(values, ends, weights=np.array(weights))
    return BenchmarkMean(column, mean, interval, ())


def _value(score: Aggregate) -> float:
    return math.nan if score.value is None else score.value


def task_score(record: Result, metric: str = "") -> Aggregate | None:
    """Return a record's score by a metric, or its main score as MTEB reports it."""
    if metric:
        return record.metrics.get(metric)
    value = main_score(record)
    if value is None or record.main.value is None:
        return None
    if abs(value - record.main.value) <= _AGREE:
        return record.main
    same = (each for each in record.metrics.values() if abs(_value(each) - value) <= _AGREE)
    return next(same, None) or reported(value, n=record.main.n)


def main_score(record: Result) -> float | None:
    """Return MTEB's main score of the task; its metric may differ from the record's main one."""
    mteb = record.task.mteb
    return record.main.value if mteb is None else mteb.value


def ranked_columns(tier: str) -> dict[str, MeanColumn]:
    """Return the means to rank models on, by title: of each benchmark, and by type."""
    columns = {}
    for name in TIERS[tier].benchmarks:
        benchmark = BENCHMARKS[name]
        for kind in benchmark.types:
            title = name if len(benchmark.types) == 1 else f"{name}: {kind}"
            columns[title] = _over([benchmark.types[kind]], benchmark, kind)
    return columns


def column_matrices(
    results: Iterable[Result], column: MeanColumn, *, names: Names | None = None
) -> list[ScoreMatrix]:
    """Return the tasks of a mean to rank models on, without incomplete groups."""
    matrices, _ = pair_results(
        results, metric=column.metric or None, tasks=list(column.weights), names=names
    )
    matrices = rankable(matrices)
    have = {matrix.task for matrix in matrices}
    whole = {key for keys in column.entries().values() if have >= {*keys} for key in keys}
    return [matrix for matrix in matrices if matrix.task in whole]


def rankable(matrices: Iterable[ScoreMatrix]) -> list[ScoreMatrix]:
    """Return the tasks to rank on, dropping the sparsest until two systems have all of them."""
    left = list(matrices)
    while left and len(set.intersection(*(set(each.systems) for each in left))) < 2:
        left.remove(min(left, key=lambda matrix: len(matrix.systems)))
    return left


def units_of(tasks: Iterable[str], name: str) -> list[str]:
    """Return the group of each task of a benchmark, which counts as one, or its own name."""
    return [GROUP_OF.get(task, task) if name in _GROUPED else task for task in tasks]


def counted_tasks(tasks: Iterable[str], name: str) -> str:
    """Return the number of tasks of a benchmark; a group counts as one.

    If some of the benchmark, or of its type of tasks, are not among them, say of how many.

    >>> counted_tasks(["NQ", "FEVER"], "BEIR")
    '2 of 15 tasks'
    """
    count = len({*units_of(tasks, name)})
    whole = max(count, len(_tasks_of(name)))
    size = str(count) if count == whole else f"{count} of {whole}"
    return f"{size} task{'s' if whole > 1 else ''}"


def _tasks_of(title: str) -> tuple[str, ...]:
    """Return the tasks of a ranking by its title; see `ranked_columns`. Empty for other titles."""
    name, _, kind = title.partition(": ")
    if name not in BENCHMARKS:
        return ()
    benchmark = BENCHMARKS[name]
    return tuple(benchmark.types[kind]) if kind else benchmark.tasks


def missing_tasks(tasks: Iterable[str], title: str) -> list[str]:
    """Return the tasks of a ranking's benchmark that are not among ``tasks``, groups as one."""
    return [name for name in _tasks_of(title) if name not in {*units_of(tasks, title)}]


@dataclass(frozen=True, eq=False)
class MeanComparison(differences.TaskComparison):
    """Systems compared on the mean over tasks; scores of queries are scaled to have this mean.

    Intervals and p-values of differences are those of the ranking on these tasks.
    """

    parts: tuple[ScoreMatrix, ...] = ()  # the scores on each task
    shares: tuple[float, ...] = ()  # of the tasks; they add up to 1

    def records(self, of: Mapping[tuple[str, str], Result]) -> list[Result]:
        """Return a record per system, with its mean and interval as the score."""
        tasks, records = {each.task for each in self.parts}, []
        for name, own in self.columns.items():
            ends = ranking.over_tasks([m.column(name) for m in self.parts], np.array(self.shares))
            value, n = float(own.scores.mean()), len(own.queries)
            score = Aggregate(value, *ends, n, "mean", (self.metric,), interval="")
            one = next(of[task, system] for task, system in of if system == name and task in tasks)
            records.append(
                replace(
                    one,
                    task=TaskInfo(self.task, MEAN, self.metric),
                    metrics={self.metric: score},
                    per_query={self.metric: {}},
                    parts=(),
                )
            )
        return records

    def _drawn(self, pairs: Sequence[differences.Pair]) -> tuple[list[float], list[float]]:
        tasks = [m.units(m.of(self.columns), centred=False) for m in self.parts]
        seeds = [draw_seed(self.procedure.seed, each.sampled) for each in self.parts]
        return ranking.mean_p_values(tasks, seeds, np.array(self.shares), n_resamples=self.draws)

    def _described(self, pairs: Sequence[differences.Pair]) -> list[differences.PairedDifference]:
        shares, units = np.array(self.shares), units_of([m.task for m in self.parts], self.task)
        described = []
        over = ranking.paired_over_tasks(self.parts, pairs, shares)
        for each, (means, ends) in zip(super()._described(pairs), over, strict=True):
            of_units = ranking.unit_means(np.array(means)[:, None], shares, units)[:, 0]
            wider = ranking.on_tasks_like_these(of_units)
            described.append(replace(each, d_z=None, interval=ends, like_these=wider))
        return described


def _scaled(
    parts: Sequence[ScoreMatrix], shares: Sequence[float], system: str, rows: NDArray[np.intp]
) -> Array:
    scales = (share * len(rows) / len(m.queries) for m, share in zip(parts, shares, strict=True))
    return np.concatenate([m.column(system) * x for m, x in zip(parts, scales, strict=True)])[rows]


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
    for title, column in ranked_columns(tier).items():
        parts = column_matrices(results, column, names=names)
        if not parts:
            continue
        if not procedure.clusters:
            parts = [replace(part, clusters=()) for part in parts]
        total = math.fsum(column.weights[each.task] for each in parts)
        shares = tuple(column.weights[each.task] / total for each in parts)
        ids = tuple(f"{part.task}/{query}" for part in parts for query in part.queries)
        clusters = {
            f"{part.task}/{query}": f"{part.task}/{cluster}"
            for part in parts
            for query, cluster in zip(part.queries, part.clusters or part.queries, strict=True)
        }
        systems, unranked = ranking.common_systems(parts)  # whose scores are scaled when needed
        own, rows = by_id(ids)
        columns = {s: SystemScores(own, partial(_scaled, parts, shares, s, rows)) for s in systems}
        tasks = counted_tasks([each.task for each in parts], title)
        comparisons.append(
            MeanComparison(
                title,
                f"mean {column.measure} of {tasks}",
                next((name for name in baselines if name in columns), ""),
                columns,
                procedure,
                ranking.left_out_notes(unranked, parts),
                clusters,
                unranked=tuple(unranked),
                parts=tuple(parts),
                shares=shares,
            )
        )
    return tuple(comparisons)
