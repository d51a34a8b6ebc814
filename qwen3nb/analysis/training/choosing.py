"""Choose a model on one half of the queries, and report its score on the other.

The best of many models is partly the luckiest: on the queries that chose it, its score is too high
(Cawley and Talbot 2010, "On Over-fitting in Model Selection"). Queries that took no part in the
choice do not flatter. So the queries of each task are split into two halves at random; queries of a
cluster stay together. By how much a choice flatters is what its score loses from the first half to
the second. It is also averaged over many other splits, as one pair of halves may differ by luck.

Scores are means over the tasks, each with equal weight, of one metric.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qwen3nb.analysis.comparison import ranking
from qwen3nb.analysis.comparison.differences import ALPHA, significant
from qwen3nb.analysis.stats import resampling
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.metrics.intervals import Array, Interval, possible_interval

SPLITS = 200  # over which the flattery is averaged
_FEWEST_QUERIES = 4  # of a task: two in each half
_EQUAL = 1e-12  # scores closer than this are the same, but for rounding


@dataclass(frozen=True)
class Halves:
    """The queries of each task that choose; the others report."""

    selecting: Mapping[str, frozenset[str]]  # by task

    def parts(self, matrix: ScoreMatrix) -> tuple[ScoreMatrix, ScoreMatrix]:
        """Return the scores of a task on the selecting and on the reporting half."""
        selecting_queries = self.selecting[matrix.task]
        selecting_places, reporting_places = [], []
        for place, query in enumerate(matrix.queries):
            if query in selecting_queries:
                selecting_places.append(place)
            else:
                reporting_places.append(place)
        return matrix.at(selecting_places), matrix.at(reporting_places)


@dataclass(frozen=True)
class Candidate:
    """A model that could be chosen."""

    name: str
    selecting: float  # mean score on the selecting half
    reporting: float  # mean score on the reporting half
    # of the reporting half: the chosen model less this one, its interval and corrected p-value
    difference: float
    interval: Interval | None
    p_value: float | None
    is_significant: bool  # whether the difference is significant


@dataclass(frozen=True)
class Choice:
    """A chosen model, and its score on queries that took no part in the choice."""

    chosen: Candidate
    interval: Interval  # of the chosen model's score on the reporting half
    others: tuple[Candidate, ...]  # best first, by the selecting half
    flattery: float  # mean over other splits: what a chosen model loses on the other half
    queries: tuple[int, int]  # of the selecting and the reporting half
    tasks: tuple[str, ...]
    metric: str
    seed: int

    @property
    def equally_good(self) -> tuple[Candidate, ...]:
        """The models that the reporting half does not tell apart from the chosen one."""
        return tuple(other for other in self.others if not other.is_significant)

    @property
    def loss(self) -> float:
        """The chosen model's score on the selecting half less that on the reporting half."""
        return self.chosen.selecting - self.chosen.reporting


def split(matrices: Sequence[ScoreMatrix], *, seed: int = 0) -> Halves:
    """Split the queries of each task into two halves at random, clusters whole.

    Raises:
        ValueError: a task with fewer than four queries, or with a single cluster.
    """
    selecting: dict[str, frozenset[str]] = {}
    for matrix in matrices:
        units = matrix.clusters or matrix.queries
        if len(matrix.queries) < _FEWEST_QUERIES or len(set(units)) < 2:
            raise ValueError(
                f"{matrix.task}: {len(matrix.queries)} queries in {len(set(units))} groups; two "
                f"halves need {_FEWEST_QUERIES} queries in two groups. Leave this task out"
            )
        generator = np.random.default_rng(resampling.draw_seed(seed, matrix.queries))
        selecting[matrix.task] = _one_half(matrix.queries, units, generator)
    return Halves(selecting)


def _one_half(
    queries: Sequence[str],
    units: Sequence[str],
    generator: np.random.Generator,
) -> frozenset[str]:
    """Return half of the queries; those of one unit are all in it, or none."""
    members: dict[str, list[str]] = {}
    for query, unit in zip(queries, units, strict=True):
        members.setdefault(unit, []).append(query)
    names = list(members)
    generator.shuffle(names)
    names.sort(key=lambda unit: -len(members[unit]))  # stable: equal sizes stay in random order
    halves: tuple[list[str], list[str]] = ([], [])
    for unit in names:
        smaller = min(halves, key=len)
        smaller.extend(members[unit])
    # Of an odd number of queries, either half may have the one more.
    return frozenset(halves[int(generator.integers(2))])


def choose(
    matrices: Sequence[ScoreMatrix],
    *,
    halves: Halves | None = None,
    shaped: Collection[str] = (),
    seed: int = 0,
    alpha: float = ALPHA,
    n_resamples: int = resampling.DRAWS,
    splits: int = SPLITS,
) -> Choice:
    """Choose the model with the best mean score on one half, and report it on the other.

    Of models with equal scores, the first one is chosen.

    Args:
        matrices: scores of the same models on each task, of one metric.
        halves: by default those of `split`.
        shaped: models that were made by the selecting half, as a greedy soup is. The flattery is
            that of a choice among the others: on other splits, theirs would seem smaller.
        seed: seed of the halves, and of the permutation test.
        alpha: level of the test that tells models apart.
        n_resamples: number of sign flips of the test.
        splits: number of splits over which the flattery is averaged.

    Raises:
        ValueError: no tasks, unlike metrics, other models on some task, or too few queries.
    """
    systems = _common_systems(matrices)
    if halves is None:
        halves = split(matrices, seed=seed)
    parts = [halves.parts(matrix) for matrix in matrices]
    selecting = [selecting_part for selecting_part, _ in parts]
    reporting = [reporting_part for _, reporting_part in parts]
    selecting_scores = mean_scores(selecting)
    order = sorted(range(len(systems)), key=lambda row: -round(float(selecting_scores[row]), 12))
    candidates = _candidates(
        order, selecting_scores, reporting, seed=seed, alpha=alpha, n_resamples=n_resamples
    )
    best = order[0]
    shares = _shares(matrices)
    return Choice(
        chosen=candidates[0],
        interval=_interval(reporting, best, shares),
        others=tuple(candidates[1:]),
        flattery=flattery(_without(matrices, shaped), seed=seed, splits=splits),
        queries=(_size(selecting), _size(reporting)),
        tasks=tuple(matrix.task for matrix in matrices),
        metric=matrices[0].metric,
        seed=seed,
    )


def _without(matrices: Sequence[ScoreMatrix], names: Collection[str]) -> list[ScoreMatrix]:
    """Return the scores of the other models."""
    smaller: list[ScoreMatrix] = []
    for matrix in matrices:
        systems = tuple(system for system in matrix.systems if system not in names)
        smaller.append(replace(matrix, systems=systems, scores=matrix.scores_of(systems)))
    return smaller


def _common_systems(matrices: Sequence[ScoreMatrix]) -> tuple[str, ...]:
    """Return the models, which must be the same on all tasks, as must be the metric."""
    if not matrices:
        raise ValueError("no task has scores of two models; evaluate the candidates first")
    reference = matrices[0]
    for matrix in matrices:
        if matrix.metric != reference.metric:
            raise ValueError(
                f"{matrix.task} is scored by {matrix.metric}, {reference.task} by "
                f"{reference.metric}; "
                "unlike metrics have no mean. Name tasks of one metric"
            )
        if matrix.systems != reference.systems:
            names = sorted(set(matrix.systems) ^ set(reference.systems))
            raise ValueError(
                f"{names[0]} has scores on only one of {reference.task} and {matrix.task}; "
                "evaluate every candidate on the same tasks"
            )
    return reference.systems


def _candidates(
    order: Sequence[int],
    selecting_scores: Array,
    reporting: Sequence[ScoreMatrix],
    *,
    seed: int,
    alpha: float,
    n_resamples: int,
) -> list[Candidate]:
    """Return the models in their order, each compared with the first on the reporting half."""
    best, *rivals = order
    shares = _shares(reporting)
    pairs = [(best, rival) for rival in rivals]
    systems = reporting[0].systems
    names = [(systems[best], systems[rival]) for rival in rivals]
    differences = ranking.paired_over_tasks(reporting, names, shares)
    _, p_values = ranking.mean_p_values(
        [matrix.unit_values(matrix.scores, centred=False) for matrix in reporting],
        [resampling.draw_seed(seed, matrix.unit_names) for matrix in reporting],
        shares,
        n_resamples=n_resamples,
        pairs=pairs,
    )
    reporting_scores = mean_scores(reporting)
    candidates = [
        Candidate(
            name=systems[best],
            selecting=float(selecting_scores[best]),
            reporting=float(reporting_scores[best]),
            difference=0.0,
            interval=None,
            p_value=None,
            is_significant=False,
        )
    ]
    for rival, difference, p_value in zip(rivals, differences, p_values, strict=True):
        candidate = Candidate(
            name=systems[rival],
            selecting=float(selecting_scores[rival]),
            reporting=float(reporting_scores[rival]),
            difference=float(reporting_scores[best] - reporting_scores[rival]),
            interval=difference.interval,
            p_value=p_value,
            is_significant=significant(p_value, difference.interval, alpha=alpha),
        )
        candidates.append(candidate)
    return candidates


def flattery(matrices: Sequence[ScoreMatrix], *, seed: int = 0, splits: int = SPLITS) -> float:
    """Return what a model chosen on one half loses on the other, as a mean over many splits.

    Each pair of halves is used in both roles. What one half is easier by then cancels.
    """
    losses: list[float] = []
    for number in range(splits):
        halves = split(matrices, seed=_seed_of_split(seed, number))
        parts = [halves.parts(matrix) for matrix in matrices]
        half_scores = (
            mean_scores([part for part, _ in parts]),
            mean_scores([part for _, part in parts]),
        )
        for selecting, reporting in (half_scores, half_scores[::-1]):
            best = int(selecting.argmax())
            losses.append(float(selecting[best] - reporting[best]))
    return float(np.mean(losses))


def _seed_of_split(seed: int, number: int) -> int:
    """Return another seed per split; that of the choice itself is not among them."""
    return (seed + 1) * 1_000_003 + number


def mean_scores(matrices: Sequence[ScoreMatrix]) -> Array:
    """Return the mean over tasks of each model's mean score (S,)."""
    means = [matrix.scores.mean(axis=1) for matrix in matrices]
    return np.asarray(np.mean(means, axis=0))


def _interval(matrices: Sequence[ScoreMatrix], row: int, shares: Array) -> Interval:
    """Return the interval of a model's mean over tasks, by queries or clusters of them."""
    columns = [matrix.unit_values(matrix.scores[row]) for matrix in matrices]
    interval = ranking.over_tasks(columns, shares)
    # Values of clusters may exceed the bounds of scores, and so would their interval.
    return possible_interval(interval, [matrix.scores[row] for matrix in matrices])


def _shares(matrices: Sequence[ScoreMatrix]) -> Array:
    """Return the weights of the tasks, which are equal."""
    return np.full(len(matrices), 1 / len(matrices))


def _size(matrices: Sequence[ScoreMatrix]) -> int:
    return sum(len(matrix.queries) for matrix in matrices)


@dataclass(frozen=True)
class SoupStep:
    """One trial of a greedy soup: the mean of some models, scored on the selecting half."""

    added: int  # the model that was tried
    members: tuple[int, ...]  # the models of the mean
    score: float
    is_kept: bool


def greedy_soup(
    scores: NDArray[np.float64] | Sequence[float],
    score_of: Callable[[tuple[int, ...]], float],
) -> list[SoupStep]:
    """Average models, from the best on, as long as the mean does not become worse.

    Wortsman and others 2022, "Model soups" (https://arxiv.org/abs/2203.05482), recipe 1: each model
    is added to those kept so far, in the order of its own score, and stays if the score of the mean
    is no lower.

    Args:
        scores: of the models, on the selecting half.
        score_of: the score there of the mean of some models, by their places, in ascending order.
    """
    order = sorted(range(len(scores)), key=lambda place: -float(scores[place]))
    best = order[0]
    members: tuple[int, ...] = (best,)
    score = float(scores[best])
    steps = [SoupStep(best, members, score, is_kept=True)]
    for place in order[1:]:
        trial = tuple(sorted({*members, place}))
        trial_score = score_of(trial)
        is_kept = trial_score >= score - _EQUAL
        steps.append(SoupStep(place, trial, trial_score, is_kept))
        if is_kept:
            members = trial
            score = trial_score
    return steps
