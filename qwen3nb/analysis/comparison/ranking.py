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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from qwen3nb.analysis.comparison.differences import (
    ALPHA,
    Pair,
    method_words,
    over_pairs,
)
from qwen3nb.analysis.stats import resampling
from qwen3nb.analysis.stats.multiple_testing import MAX_T
from qwen3nb.analysis.stats.pair_moments import interval_bounds
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.analysis.stats.weighted_scores import WeightedScores, WeightedTask
from qwen3nb.metrics import intervals
from qwen3nb.metrics.intervals import Array, Interval
from qwen3nb.records.data_used import NO_SCORES, DataUsed

FEWEST_TASKS = 5  # for statements on tasks like these
_MOST_EQUAL = 0.4  # share of tasks with the same mean, up to this many digits
_DIGITS = 9
_ROUNDING = 1e-9  # of an end of an interval, within which bounds do not decide


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
    differ: NDArray[np.bool_] | None = None,
    data: DataUsed = NO_SCORES,
) -> Ranking:
    """Rank the systems that are in all of ``matrices`` (one per task).

    By default, tasks are weighted equally, independent of their number of queries, and each is a
    group (``units``) of its own. Weights are scaled to add up to 1. P-values of all pairs, unless
    they are known with their ``correction``, are from ``n_resamples`` sign flips. Which pairs
    ``differ`` may be known, too. ``data`` is that of the scores.

    Raises:
        ValueError: no task, or fewer than two systems with all tasks.
    """
    systems, unranked = common_systems(matrices)
    tasks = [matrix.task for matrix in matrices]
    shares = _shares(matrices, weights)
    scores = [matrix.scores_of(systems) for matrix in matrices]
    means_on_tasks = np.array([_exact_means(scores_on_task) for scores_on_task in scores])  # (T, S)
    means = shares @ means_on_tasks  # (S,)
    # Tasks of one group are a single unit; by default each is its own.
    means_on_units = unit_means(means_on_tasks, shares, units or tasks)
    if not p_values:
        seeds = [resampling.draw_seed(seed, matrix.unit_names) for matrix in matrices]
        # Sampling units: queries, or clusters of them.
        units_of_tasks = [
            matrix.unit_values(scores_on_task, centred=False)
            for matrix, scores_on_task in zip(matrices, scores, strict=True)
        ]
        _, p_values = mean_p_values(units_of_tasks, seeds, shares, n_resamples=n_resamples)
    if differ is None:
        differ = differing_pairs(matrices, systems, p_values, shares)
    return Ranking(
        standings=tuple(_standings(systems, means, means_on_units, differ, seed)),
        tasks=tuple(tasks),
        left_out=left_out_notes(unranked, matrices),
        unranked={system: tuple(missing_tasks) for system, missing_tasks in unranked.items()},
        queries=tuple(len(matrix.queries) for matrix in matrices),
        units=len(means_on_units),
        name=name,
        family=len(p_values),
        correction=correction,
        data=data,
    )


def _shares(matrices: Sequence[ScoreMatrix], weights: Sequence[float]) -> Array:
    """Return the weights of the tasks (T,), by default equal, scaled to add up to 1."""
    if not weights:
        return np.full(len(matrices), 1.0) / len(matrices)
    return np.asarray(weights) / sum(weights)


def _exact_means(scores: Array) -> list[float]:
    """Return the mean of each row: exact sums do not depend on the order of queries."""
    # A list of floats is summed in half the time of an array.
    return [math.fsum(of_system.tolist()) / len(of_system) for of_system in scores]


def differing_pairs(
    matrices: Sequence[ScoreMatrix],
    systems: Sequence[str],
    p_values: Sequence[float],
    shares: Array,
    *,
    alpha: float = ALPHA,
) -> NDArray[np.bool_]:
    """Return which pairs of systems are significantly different (S, S), by test and interval.

    Args:
        matrices: the scores on each task.
        systems: names; all have every task.
        p_values: of all pairs, in the order of `itertools.combinations`.
        shares: weights of the tasks (T,).
        alpha: level of the test.
    """
    count = len(systems)
    rows, columns = np.triu_indices(count, 1)  # in the order of the p-values
    is_found = np.asarray(p_values) < alpha
    rows, columns = rows[is_found], columns[is_found]
    excludes_zero = _pairs_away_from_zero(matrices, systems, rows, columns, shares)
    differ = np.zeros((count, count), dtype=bool)
    differ[rows, columns] = excludes_zero
    return differ | differ.T


def _pairs_away_from_zero(
    matrices: Sequence[ScoreMatrix],
    systems: Sequence[str],
    rows: NDArray[np.intp],
    columns: NDArray[np.intp],
    shares: Array,
) -> NDArray[np.bool_]:
    """Return whether the intervals of pairs, rows and columns of the systems, exclude 0.

    Bounds decide for most; only of the others, intervals are computed.
    """
    away, decided = _decided_by_bounds(matrices, systems, shares)
    away, decided = away[rows, columns], decided[rows, columns]
    undecided = np.flatnonzero(~decided)
    names = [(systems[rows[pair]], systems[columns[pair]]) for pair in undecided]
    differences = paired_over_tasks(matrices, names, shares)
    away[undecided] = [intervals.excludes_zero(difference.interval) for difference in differences]
    return away


def _decided_by_bounds(
    matrices: Sequence[ScoreMatrix], systems: Sequence[str], shares: Array
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which intervals exclude 0 (S, S), and for which this is certain."""
    count = len(systems)
    means = np.zeros((count, count))
    squares = np.zeros((2, 2, count, count))  # of lengths: below and above, shortest and longest
    decided = np.ones((count, count), dtype=bool)
    for matrix, share in zip(matrices, shares, strict=True):
        if matrix.has_large_cluster:  # its intervals are not those of differences of units
            return np.zeros_like(decided), np.zeros_like(decided)
        units = matrix.unit_values(matrix.scores_of(systems))
        if units.shape[1] == 1:  # counts as exact
            means += share * (units - units.T)
            continue
        bounds = interval_bounds(units, level=resampling.LEVEL)
        means += share * bounds.means
        squares += (share * np.array([bounds.below, bounds.above])) ** 2
        decided &= bounds.is_certain
    # As in `intervals.mean_of_intervals`.
    (shortest_below, longest_below), (shortest_above, longest_above) = np.sqrt(squares)
    away = (means - longest_below > _ROUNDING) | (means + longest_above < -_ROUNDING)
    around = (means - shortest_below < -_ROUNDING) & (means + shortest_above > _ROUNDING)
    return away, decided & (away | around)


def _standings(
    systems: Sequence[str],
    means: Array,
    means_on_units: Array,
    differ: NDArray[np.bool_],
    seed: int,
) -> Iterator[Standing]:
    """Yield the systems from the best to the worst."""
    best_first = [int(row) for row in np.argsort(-means, kind="stable")]
    groups = tie_groups(best_first, differ)
    has_higher_mean = means[:, None] > means  # (S, S), at [i, j]: whether i is above j
    is_better = differ & has_higher_mean
    borda = borda_ranks(means_on_units)
    shares_first = _shares_first(means_on_units, seed=seed)
    has_many_tasks = len(means_on_units) >= FEWEST_TASKS
    for row in best_first:
        number_better = int(is_better[:, row].sum())  # systems that are significantly better
        number_worse = int(is_better[row].sum())  # systems that this one is better than
        yield Standing(
            system=systems[row],
            mean=float(means[row]),
            rank=1 + int(has_higher_mean[:, row].sum()),
            rank_interval=(1 + number_better, len(systems) - number_worse),
            groups=tuple(number for number, group in enumerate(groups, 1) if row in group),
            borda=borda[row],
            like_these=on_tasks_like_these(means_on_units[:, row]),
            first=shares_first[row] if has_many_tasks else None,
        )


def over_tasks(samples: Sequence[Array], shares: Array) -> Interval:
    """Interval of a mean over tasks, from a sample of each (see `ScoreMatrix.sample`).

    A task with a single query counts as exact.
    """
    means, ends = [], []
    for scores in samples:
        means.append(float(scores.mean()))
        ends.append(intervals.mean_interval(scores, level=resampling.LEVEL)[1])
    return intervals.mean_of_intervals(means, ends, weights=shares)


class DifferenceOverTasks(NamedTuple):
    """The difference of two systems on each task, and the interval of their weighted mean."""

    on_tasks: list[float]
    interval: Interval


def paired_over_tasks(
    matrices: Sequence[ScoreMatrix], pairs: Sequence[Pair], shares: Array
) -> list[DifferenceOverTasks]:
    """Return the difference of each pair of systems on each task, and the interval of their mean.

    A task with a single query counts as exact.
    """
    by_task = [over_pairs(matrix, pairs, partial(_task_differences, matrix)) for matrix in matrices]
    differences = []
    for on_tasks in zip(*by_task, strict=True):
        interval = intervals.mean_of_intervals(
            [difference.mean_of_units for difference in on_tasks],
            [difference.interval for difference in on_tasks],
            weights=shares,
        )
        means = [difference.mean for difference in on_tasks]
        differences.append(DifferenceOverTasks(means, interval))
    return differences


class _TaskDifference(NamedTuple):
    mean: float
    mean_of_units: float  # the same, but for the rounding of other sums
    interval: Interval | None


def _task_differences(matrix: ScoreMatrix, block: Array) -> Iterator[_TaskDifference]:
    """Return the mean of each row of differences (pairs, n), and its interval."""
    units = matrix.unit_values(block)
    ends = intervals.difference_intervals(units, level=resampling.LEVEL)
    means, means_of_units = block.mean(axis=1).tolist(), units.mean(axis=1).tolist()
    return map(_TaskDifference, means, means_of_units, ends)


def unit_means(means: Array, shares: Array, units: Sequence[str]) -> Array:
    """Average the means of tasks (T, S) by group: (U, S), in the order of the groups."""
    groups = list(dict.fromkeys(units))
    weights = np.zeros((len(groups), len(units)))
    for task, group in enumerate(units):
        weights[groups.index(group), task] = shares[task]
    group_weights = weights.sum(axis=1, keepdims=True)
    return np.asarray(weights @ means / group_weights)


def on_tasks_like_these(values: Array) -> Interval | None:
    """Interval of a mean over tasks like these; None for fewer than five, or if many are equal.

    Student's interval over the means of the tasks (T,). A bootstrap of five tasks covers 0.84, not
    0.95. If more than two fifths of the means are equal, such as differences of 0, rare tasks
    decide that a sample may lack. With four of five at 0, the interval would cover 0.57.
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
    systems = means.shape[1]
    ranks = scipy.stats.rankdata(-means, axis=1)  # 1 for the best on a task
    points = (systems - ranks).sum(axis=0)
    return [int(rank) for rank in scipy.stats.rankdata(-points, method="min")]


def _shares_first(means: Array, *, seed: int) -> list[float]:
    """Share of bootstrap draws of the tasks (T, S) in which each system has the largest mean."""
    _, drawn_means = resampling.resampled_means(means, n_resamples=resampling.DRAWS, seed=seed)
    is_first = drawn_means == drawn_means.max(axis=1, keepdims=True)
    number_of_first = is_first.sum(axis=1, keepdims=True)
    shares: list[float] = (is_first / number_of_first).mean(axis=0).tolist()
    return shares


def tie_groups(order: Sequence[int], differ: np.ndarray) -> list[tuple[int, ...]]:
    """Maximal runs of two or more neighbours in ``order`` without a pair that differs (S, S).

    >>> import numpy as np
    >>> far = np.array([[0, 0, 1], [0, 0, 0], [1, 0, 0]], dtype=bool)
    >>> tie_groups([0, 1, 2], far)
    [(0, 1), (1, 2)]
    """
    groups: list[tuple[int, ...]] = []
    end_of_last = 0
    for start in range(len(order)):
        end = start + 1
        while end < len(order):
            # A run grows as long as its next neighbour differs from none of its members.
            run, neighbour = order[start:end], order[end]
            if any(differ[member, neighbour] for member in run):
                break
            end += 1
        is_maximal = end > end_of_last  # else it is within the last group
        if end - start > 1 and is_maximal:
            groups.append(tuple(order[start:end]))
            end_of_last = end
    return groups


def common_systems(matrices: Sequence[ScoreMatrix]) -> tuple[list[str], dict[str, list[str]]]:
    """Systems that have every task, and for each of the others the tasks that it lacks."""
    if not matrices:
        raise ValueError("expected at least one task to rank on; got none")
    common: list[str] = []
    unranked: dict[str, list[str]] = {}
    for system in dict.fromkeys(name for matrix in matrices for name in matrix.systems):
        missing_tasks = [matrix.task for matrix in matrices if system not in matrix.systems]
        if missing_tasks:
            unranked[system] = missing_tasks
        else:
            common.append(system)
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
    tasks: Sequence[Array],
    seeds: Sequence[tuple[int, int]],
    shares: Array,
    *,
    n_resamples: int,
    pairs: Sequence[tuple[int, int]] | None = None,
) -> tuple[list[float], list[float]]:
    """Raw and MaxT p-values of differences of means over tasks (S, n), for pairs of systems.

    The pairs are by default all.

    The mean over tasks is a sum over queries, weighted by their task's share and the inverse of its
    size; tasks with the same queries share the sign flips.
    """
    # Tasks with the same queries have the same seed: their scores add up.
    start_by_seed: dict[tuple[int, int], int] = {}
    queries_so_far = 0
    weighted_tasks = []
    for scores, seed, share in zip(tasks, seeds, shares, strict=True):
        if seed not in start_by_seed:
            start_by_seed[seed] = queries_so_far
            queries_so_far += scores.shape[1]
        # Sums are then means over tasks, but for a factor that no p-value sees.
        weight = len(tasks) * share
        weighted_tasks.append(WeightedTask(scores, start_by_seed[seed], weight))
    if pairs is None:
        pairs = list(itertools.combinations(range(len(tasks[0])), 2))
    return resampling.max_t_p_values(
        WeightedScores(weighted_tasks),
        pairs,
        n_resamples=n_resamples,
        seed=list(itertools.chain.from_iterable(start_by_seed)),
    )
