"""Rankings with rank intervals, groups of systems that are not significantly different.

The interval of a rank follows from the numbers of systems that are significantly better or worse.
With probability 1 − alpha, the tests of all pairs make no error, and all true ranks are in their
intervals. Only systems with a score on every task are ranked; the others are reported.

References:
    Mogstad, Romano, Shaikh and Wilhelm 2024 (rank intervals); Demšar 2006 (groups of systems
    that do not differ, as joined in critical-difference diagrams); Zou and Donner 2008 (MOVER).
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import scipy

from qwen3nb.analysis.comparison.differences import (
    ALPHA,
    Pair,
    method_words,
    over_pairs,
    significant,
)
from qwen3nb.analysis.stats import resampling
from qwen3nb.analysis.stats.multiple_testing import MAX_T
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.metrics import intervals
from qwen3nb.metrics.intervals import Array, Interval
from qwen3nb.records.data_used import NO_SCORES, DataUsed

FEWEST_TASKS = 5  # for statements on tasks like these
_MOST_EQUAL = 0.4  # share of tasks with the same mean, up to this many digits
_DIGITS = 9


@dataclass(frozen=True)
class Standing:
    """One system in the ranking."""

    system: str  # its name
    mean: float  # weighted mean over tasks of the means over queries
    rank: int  # 1 is best; equal means share the better rank
    rank_interval: tuple[int, int]  # simultaneous interval of the true rank
    # numbers, from 1, of its tie groups: neighbouring systems that are not significantly different
    groups: tuple[int, ...]
    borda: int  # rank by `borda_ranks`
    like_these: Interval | None  # interval of the mean, see `on_tasks_like_these`
    # share of bootstrap draws of the tasks in which it is first, a tie of k counting 1 / k; None
    # with fewer than `FEWEST_TASKS`
    first: float | None


@dataclass(frozen=True)
class Ranking:
    """Standings from best to worst."""

    standings: tuple[Standing, ...]  # one per system
    tasks: tuple[str, ...]  # names of the tasks that are averaged over
    left_out: tuple[str, ...]  # systems without a score on every task, and queries that do not pair
    unranked: Mapping[str, tuple[str, ...]]  # the tasks that systems lack, by system
    queries: tuple[int, ...]  # number of queries of each task
    units: int  # number of tasks; a group counts as one
    name: str = ""  # name of the tasks, such as a benchmark; may be empty
    family: int = 0  # number of pairs of systems, over which p-values are corrected
    correction: str = MAX_T  # of the p-values; one of `multiple_testing.CORRECTIONS`
    data: DataUsed = NO_SCORES  # of the scores

    @property
    def method(self) -> str:
        """The test of differences and its correction, in words."""
        return method_words(self.correction, self.family)


def rank_systems(
    matrices: Sequence[ScoreMatrix],
    *,
    n_resamples: int = resampling.DRAWS,
    seed: int,
    weights: Sequence[float] = (),
    name: str = "",
    units: Sequence[str] = (),
    p_values: Sequence[float] = (),
    correction: str = MAX_T,
    data: DataUsed = NO_SCORES,
) -> Ranking:
    """Rank the systems that are in all of ``matrices`` (one per task).

    By default, tasks are weighted equally, independent of their number of queries, and each is a
    group (``units``) of its own. Weights are scaled to add up to 1. P-values of all pairs, unless
    they are known with their ``correction``, are from ``n_resamples`` sign flips. ``data`` is
    that of the scores.

    Raises:
        ValueError: no task, or fewer than two systems with all tasks.
    """
    systems, unranked = common_systems(matrices)
    shares = np.asarray(weights or [1.0] * len(matrices)) / (sum(weights) or len(matrices))
    columns = [matrix.of(systems).T for matrix in matrices]
    seeds = [resampling.draw_seed(seed, matrix.sampled) for matrix in matrices]
    # Exact sums: equal scores have equal means in any order of queries.
    each = [[math.fsum(scores) / len(scores) for scores in column.T] for column in columns]
    means = shares @ np.array(each)
    of_units = unit_means(np.array(each), shares, units or [m.task for m in matrices])
    borda, first = borda_ranks(of_units), _shares_first(of_units, seed=seed)
    order = [int(i) for i in np.argsort(-means, kind="stable")]
    if not p_values:
        flipped = [m.units(c.T, centred=False) for m, c in zip(matrices, columns, strict=True)]
        _, p_values = mean_p_values(flipped, seeds, shares, n_resamples=n_resamples)
    pairs = itertools.combinations(range(len(systems)), 2)
    low = [(pair, p) for pair, p in zip(pairs, p_values, strict=True) if p < ALPHA]
    named = [(systems[i], systems[j]) for (i, j), _ in low]
    differ = np.zeros((len(systems), len(systems)), dtype=bool)
    for ((i, j), p), (_, ends) in zip(low, paired_over_tasks(matrices, named, shares), strict=True):
        differ[i, j] = differ[j, i] = significant(p, ends)
    groups = tie_groups(order, differ)
    better = differ & (means[:, None] > means)
    standings = [
        Standing(
            system=systems[i],
            mean=float(means[i]),
            rank=1 + int((means > means[i]).sum()),
            rank_interval=(1 + int(better[:, i].sum()), len(order) - int(better[i].sum())),
            groups=tuple(number for number, group in enumerate(groups, 1) if i in group),
            borda=borda[i],
            like_these=on_tasks_like_these(of_units[:, i]),
            first=first[i] if len(of_units) >= FEWEST_TASKS else None,
        )
        for i in order
    ]
    return Ranking(
        standings=tuple(standings),
        tasks=tuple(matrix.task for matrix in matrices),
        left_out=left_out_notes(unranked, matrices),
        unranked={system: tuple(tasks) for system, tasks in unranked.items()},
        queries=tuple(len(matrix.queries) for matrix in matrices),
        units=len(of_units),
        name=name,
        family=len(p_values),
        correction=correction,
        data=data,
    )


def over_tasks(columns: Sequence[Array], shares: Array) -> Interval:
    """Interval of a mean over tasks; a task with a single query counts as exact."""
    values = [float(each.mean()) for each in columns]
    ends = [intervals.mean_interval(each, level=resampling.LEVEL)[1] for each in columns]
    return intervals.mean_of_intervals(values, ends, weights=shares)


def paired_over_tasks(
    matrices: Sequence[ScoreMatrix], pairs: Sequence[Pair], shares: Array
) -> list[tuple[list[float], Interval]]:
    """Return the difference of each pair of systems on each task, and the interval of their mean.

    A task with a single query counts as exact.
    """
    tasks = [over_pairs(m, pairs, partial(_of_block, m)) for m in matrices]
    return [
        ([*means], intervals.mean_of_intervals(values, ends, weights=shares))
        for means, values, ends in (zip(*own, strict=True) for own in zip(*tasks, strict=True))
    ]


def _of_block(matrix: ScoreMatrix, block: Array) -> list[tuple[float, float, Interval | None]]:
    """Return the means of differences, those of their sampling units, and the intervals."""
    units = matrix.units(block)
    means = (each.mean(axis=1).tolist() for each in (block, units))
    return list(
        zip(*means, intervals.difference_intervals(units, level=resampling.LEVEL), strict=True)
    )


def unit_means(means: Array, shares: Array, units: Sequence[str]) -> Array:
    """Average the means of tasks (T, S) by group: (U, S), in the order of the groups."""
    weights = np.array([[unit == name for unit in units] for name in dict.fromkeys(units)]) * shares
    return np.asarray(weights @ means / weights.sum(axis=1, keepdims=True))


def on_tasks_like_these(values: Array) -> Interval | None:
    """Interval of a mean over tasks like these; None for fewer than five, or if many are equal.

    Student's interval over the means of the tasks (T,). A bootstrap of five tasks covers .84, not
    .95. If more than two fifths of the means are equal, such as differences of 0, rare tasks decide
    that a sample may lack: with four of five at 0, the interval of five tasks would cover .57.
    """
    if len(values) < FEWEST_TASKS:
        return None
    _, counts = np.unique(np.round(values, _DIGITS), return_counts=True)
    if counts.max() > _MOST_EQUAL * len(values):
        return None
    return intervals.student_interval(values, level=resampling.LEVEL)


def borda_ranks(means: Array) -> list[int]:
    """Borda ranks of S systems from their means on T tasks (T, S), as on MTEB's leaderboard.

    On each task, a system gets S minus its rank points, with mean ranks for ties. Systems are
    ranked by the sum of points; ties share the better rank.
    """
    points = (means.shape[1] - scipy.stats.rankdata(-means, axis=1)).sum(axis=0)
    return [int(rank) for rank in scipy.stats.rankdata(-points, method="min")]


def _shares_first(means: Array, *, seed: int) -> list[float]:
    """Share of bootstrap draws of the tasks (T, S) in which each system has the largest mean."""
    _, drawn = resampling.resampled_means(means, n_resamples=resampling.DRAWS, seed=seed)
    first = drawn == drawn.max(axis=1, keepdims=True)
    shares: list[float] = (first / first.sum(axis=1, keepdims=True)).mean(axis=0).tolist()
    return shares


def tie_groups(order: Sequence[int], differ: np.ndarray) -> list[tuple[int, ...]]:
    """Maximal runs of two or more neighbours in ``order`` without a pair that differs (S, S).

    >>> import numpy as np
    >>> far = np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=bool)
    >>> tie_groups([0, 1, 2], far)
    [(0, 1), (1, 2)]
    """
    groups: list[tuple[int, ...]] = []
    reached = 0
    for start in range(len(order)):
        stop = start + 1
        while stop < len(order) and not any(differ[i, order[stop]] for i in order[start:stop]):
            stop += 1
        if stop - start > 1 and stop > reached:
            groups.append(tuple(order[start:stop]))
            reached = stop
    return groups


def common_systems(matrices: Sequence[ScoreMatrix]) -> tuple[list[str], dict[str, list[str]]]:
    """Systems that have every task, and for each of the others the tasks that it lacks."""
    if not matrices:
        raise ValueError("expected at least one task to rank on; got none")
    missing: dict[str, list[str]] = {}
    for matrix in matrices:
        for system in matrix.systems:
            missing.setdefault(system, [])
    for system, tasks in missing.items():
        tasks += [matrix.task for matrix in matrices if system not in matrix.systems]
    unranked = {system: tasks for system, tasks in missing.items() if tasks}
    common = [system for system in matrices[0].systems if system not in unranked]
    if len(common) < 2:
        raise ValueError(
            "fewer than two systems have a score on every task: "
            + "; ".join(unranked_notes(unranked))
        )
    return common, unranked


def unranked_notes(unranked: Mapping[str, Sequence[str]]) -> list[str]:
    """Say of each system that is not ranked which tasks it lacks."""
    return [
        f"{system} is not ranked: no score on {', '.join(tasks)}"
        for system, tasks in unranked.items()
    ]


def left_out_notes(
    unranked: Mapping[str, Sequence[str]], matrices: Sequence[ScoreMatrix]
) -> tuple[str, ...]:
    """Say which systems are not ranked, and which queries do not pair."""
    notes = unranked_notes(unranked)
    for matrix in matrices:
        notes += matrix.notes
    return tuple(notes)


def mean_p_values(
    tasks: Sequence[Array], seeds: Sequence[tuple[int, int]], shares: Array, *, n_resamples: int
) -> tuple[list[float], list[float]]:
    """Raw and MaxT p-values of differences of means over tasks (S, n), for every pair of systems.

    The mean over tasks is a sum over queries, weighted by their task's share and the inverse of its
    size; tasks with the same queries share the sign flips.
    """
    sizes = {drawn: each.shape[1] for drawn, each in zip(seeds, tasks, strict=True)}
    starts = dict(zip(sizes, itertools.accumulate(sizes.values(), initial=0), strict=False))
    every = np.zeros((len(tasks[0]), sum(sizes.values())))
    for each, drawn, share in zip(tasks, seeds, shares, strict=True):
        start, size = starts[drawn], sizes[drawn]
        for row, scores in zip(every[:, start : start + size], each, strict=True):
            row += len(tasks) * share * scores / size
    pairs = list(itertools.combinations(range(len(every)), 2))
    flips = [number for drawn in sizes for number in drawn]
    return resampling.max_t_p_values(every.T, pairs, n_resamples=n_resamples, seed=flips)
