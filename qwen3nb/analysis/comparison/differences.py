"""Paired differences between systems on one task: interval, test, effect size.

Signs are flipped once for all pairs of systems that answered the same queries (see `resampling`).
The draws depend only on the seed and the query ids, so a difference has the same values independent
of which other systems are compared.
"""

import itertools
import math
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from statistics import fmean
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from qwen3nb.analysis.stats.multiple_testing import MAX_T, NAMES, adjust, enough_draws
from qwen3nb.analysis.stats.paired_tests import EffectSize, effect_sizes
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL, draw_seed, max_t_p_values
from qwen3nb.analysis.stats.score_matrix import (
    Columns,
    ScoreMatrix,
    SystemScores,
    join,
    shared_queries,
)
from qwen3nb.analysis.stats.skewness import MANY_QUERIES, skewed
from qwen3nb.metrics import intervals
from qwen3nb.metrics.intervals import Array, Interval
from qwen3nb.utils.format import interval_text, number_text, p_value_text
from qwen3nb.utils.hardware import cores

Pair = tuple[str, str]  # names of two systems
T = TypeVar("T")

ALPHA = 0.05  # default level of the tests
TEST = "two-sided paired permutation test"  # the test behind each p-value, as pages name it
HOLM = "holm"
_FEW_QUERIES = 50  # below which corrections err more often if differences are skewed
_HELD = 500_000  # score differences held at once, to bound memory
_LARGEST = 2000  # in thousandths, the largest difference considered


def significant(p: float | None, interval: Interval | None, *, alpha: float = ALPHA) -> bool:
    """Return whether a difference is significant, as shown on every page, figure and card.

    Args:
        p: its corrected p-value; None if it has none.
        interval: the interval shown, which must exclude 0; None for a single query.
        alpha: level of the test.
    """
    return p is not None and p < alpha and (interval is None or intervals.excludes_zero(interval))


class Verdict(StrEnum):
    """What interval and p-value of a difference show."""

    BETTER = "better"
    WORSE = "worse"
    EQUIVALENT = "equivalent"
    NO_WORSE = "no worse"
    NOT_SHOWN = "not shown"


def find_verdict(
    difference: float,
    p: float | None,
    interval: Interval | None,
    *,
    alpha: float = ALPHA,
    margin: float,
) -> Verdict:
    """Return the verdict that interval and p-value of a difference support.

    ``better`` or ``worse`` if `significant`; else ``equivalent`` if the interval is within
    ±``margin``, ``no worse`` if it is above −margin, otherwise ``not shown``.
    """
    if significant(p, interval, alpha=alpha):
        return Verdict.BETTER if difference > 0 else Verdict.WORSE
    if intervals.within(interval, margin):
        return Verdict.EQUIVALENT
    if intervals.no_worse(interval, margin):
        return Verdict.NO_WORSE
    return Verdict.NOT_SHOWN


def verdict(
    difference: float,
    p: float | None,
    interval: Interval | None,
    *,
    alpha: float = ALPHA,
    margin: float,
) -> str:
    """Return `find_verdict` in words; see `verdict_words`."""
    found = find_verdict(difference, p, interval, alpha=alpha, margin=margin)
    return verdict_words(found, interval, margin=margin)


def verdict_words(found: Verdict, interval: Interval | None, *, margin: float) -> str:
    """Return a verdict in words; a significant difference within the margin is marked."""
    is_significant = found in (Verdict.BETTER, Verdict.WORSE)
    if is_significant and intervals.within(interval, margin):
        return f"{found}, by less than {margin:g}"
    return str(found)


def shown_by_interval(differences: Array) -> float | None:
    """Return the smallest true difference whose interval excludes 0 in 80 % of samples.

    For samples of n queries with differences distributed like these (n,), to three digits; None if
    there is none.
    """
    n = len(differences)
    if n < 2:
        return None
    below = float(ndtri(0.8)) * float(differences.std(ddof=1)) / math.sqrt(n)
    rest = differences - differences.mean() - below

    def shown(thousandths: int) -> bool:
        ends = intervals.difference_intervals(rest[None] + thousandths / 1000, level=LEVEL)[0]
        return ends is not None and ends[0] > 0

    least = bisect_left(range(_LARGEST), True, key=shown)
    return least / 1000 if least < _LARGEST else None


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The mean difference of two systems over the queries that both answered."""

    task: str  # name of the task
    metric: str  # name of the metric
    first: str  # name of system a
    second: str  # name of system b
    n: int  # number of shared queries
    unpaired: int  # number of queries that only one of the two answered
    means: tuple[float, float]  # mean of a and mean of b
    difference: float  # mean of a - b
    # see `metrics.intervals.difference_interval`; None for a single query
    interval: Interval | None
    p_value: float  # see `TEST`, uncorrected
    corrected: float  # p-value corrected over its family
    family: int  # number of comparisons in that family
    d_z: float | None  # Cohen's d_z, or None
    won: int  # queries on which a is above b; ``tied`` and ``lost`` likewise
    tied: int
    lost: int
    # interval over tasks like these, for a mean over tasks (see `ranking.on_tasks_like_these`)
    like_these: Interval | None = None
    correction: str = "none"  # how ``corrected`` was made; one of `multiple_testing.CORRECTIONS`
    units: int = 0  # number of clusters of its queries; 0 if queries were sampled one by one

    @property
    def identical(self) -> bool:
        """Whether the two systems have the same score on every query."""
        return not (self.won or self.lost)

    @property
    def method(self) -> str:
        """The test and the correction over its family, in words."""
        return method_words(self.correction, self.family)

    def significant(self, alpha: float) -> bool:
        """Whether it is `significant`."""
        return significant(self.corrected, self.interval, alpha=alpha)

    def reversed(self) -> Self:
        """The same difference as b − a."""
        ends, wider = self.interval, self.like_these
        return replace(
            self,
            first=self.second,
            second=self.first,
            means=(self.means[1], self.means[0]),
            difference=-self.difference,
            interval=None if ends is None else (-ends[1], -ends[0]),
            like_these=None if wider is None else (-wider[1], -wider[0]),
            d_z=None if self.d_z is None else -self.d_z,
            won=self.lost,
            lost=self.won,
        )

    def __str__(self) -> str:
        text = f"{number_text(self.difference, sign=True)} {self.interval_text}"
        text += f", p {p_value_text(self.p_value, relation=True)}"
        if self.family > 1:
            corrected = p_value_text(self.corrected, relation=True)
            text += f", corrected over {self.family}: {corrected}"
        return f"{text}, n = {self.n}"

    @property
    def interval_text(self) -> str:
        """The interval as pages show it: in words for equal scores, or for a single query."""
        if self.identical and self.n > 1:
            return f"(identical scores on all {self.n:,})"
        return interval_text(self.interval, absent="(a single query)")


def method_words(correction: str, family: int) -> str:
    """Name the test of paired differences, and the correction over a family of p-values.

    >>> method_words("holm", 3), method_words("holm", 1)
    ('two-sided paired permutation test, Holm over 3', 'two-sided paired permutation test')
    """
    return ", ".join(filter(None, [TEST, correction_words(correction, family)]))


def correction_words(correction: str, family: int, noun: str = "") -> str:
    """Name the correction over a family of p-values; empty for a single test.

    ``noun`` names the members of the family, such as ``data sets``.

    >>> correction_words("holm", 3), correction_words("holm", 3, "gains")
    ('Holm over 3', 'Holm over 3 gains')
    """
    if family < 2 or correction == "none":
        return ""
    return f"{NAMES[correction]} over {family} {noun}".strip()


def skewness_condition(queries: int) -> str:
    """Say what a correction presumes of so few queries, which may hide skewness; or nothing."""
    if not 0 < queries < _FEW_QUERIES:
        return ""
    return f" (of fewer than {_FEW_QUERIES} queries, .05 presumes that differences are not skewed)"


def family_words(differences: Sequence[PairedDifference], noun: str = "") -> str:
    """Name the test of differences, what corrects their p-values, and how clusters count.

    ``noun`` names the members of the family, such as ``data sets``.
    """
    first = next(iter(differences), None)
    words = TEST
    if first is not None and (correction := correction_words(first.correction, first.family, noun)):
        words = f"{TEST}, {correction}"
    if any(difference.units for difference in differences):
        words += ", by clusters of queries"
    return words


def paired_difference(
    columns: Columns,
    *,
    task: str = "",
    metric: str = "",
    clusters: Mapping[str, str] | None = None,
    draws: int = DRAWS,
    seed: int,
) -> PairedDifference:
    """Return first - second of two systems, over the queries that both answered, uncorrected.

    The difference, interval and p-value that every page shows for two systems: the same scores
    and ``clusters`` (a cluster per query id) give the same numbers, whatever else is compared.

    Raises:
        ValueError: not two systems, no query that both answered, or a value that is not finite.
    """
    if len(columns) != 2:
        raise ValueError(f"expected two systems; got {list(columns)}")
    matrix = join(columns, task=task, metric=metric, clusters=clusters)
    (difference,) = paired_differences(matrix, draws=draws, seed=seed)
    return difference


def paired_differences(
    matrix: ScoreMatrix, *, pairs: Sequence[Pair] = (), draws: int = DRAWS, seed: int
) -> list[PairedDifference]:
    """Differences between ``pairs`` of the systems of a matrix, by default all, uncorrected."""
    names = pairs or list(itertools.combinations(matrix.systems, 2))
    p_values, _ = _p_values(matrix, names, draws=draws, seed=seed)
    return _described(matrix, names, [(p, p) for p in p_values], family=1)


def corrected(family: Sequence[PairedDifference]) -> list[PairedDifference]:
    """The same differences with p-values corrected over all of them, by Holm's method."""
    p_values = adjust([difference.p_value for difference in family], how=HOLM)
    return [
        replace(difference, corrected=p, family=len(family), correction=HOLM)
        for difference, p in zip(family, p_values, strict=True)
    ]


def _p_values(
    matrix: ScoreMatrix, pairs: Sequence[Pair], *, draws: int, seed: int
) -> tuple[list[float], list[float]]:
    """P-values of the test, uncorrected and by MaxT.

    Scores are rounded relative to the largest one (see `resampling`), or to 1, which makes the
    rounding of scores up to 1 independent of the other systems.
    """
    scores = matrix.units(matrix.scores, centred=False)
    largest = matrix.units(np.ones(len(matrix.queries)), centred=False).max()
    return max_t_p_values(
        scores.T,
        _rows(matrix, pairs).tolist(),
        n_resamples=draws,
        seed=draw_seed(seed, matrix.sampled),
        largest=float(largest),
    )


def _described(
    matrix: ScoreMatrix,
    pairs: Sequence[Pair],
    p_values: Sequence[tuple[float, float]],
    *,
    family: int,
    correction: str = "none",
) -> list[PairedDifference]:
    """The differences of pairs of systems, from their uncorrected and corrected p-values."""

    def describe(block: Array) -> Iterable[tuple[EffectSize, Interval | None]]:
        ends = intervals.difference_intervals(matrix.units(block), level=LEVEL)
        return zip(effect_sizes(block), ends, strict=True)

    means = dict(zip(matrix.systems, matrix.scores.mean(axis=1).tolist(), strict=True))
    unpaired = {system: len(ids) for system, ids in matrix.unpaired.items()}
    described = over_pairs(matrix, pairs, describe)
    differences = []
    for (minuend, subtrahend), (size, interval), (p_value, p_corrected) in zip(
        pairs, described, p_values, strict=True
    ):
        differences.append(
            PairedDifference(
                task=matrix.task,
                metric=matrix.metric,
                first=minuend,
                second=subtrahend,
                n=size.n,
                unpaired=unpaired.get(minuend, 0) + unpaired.get(subtrahend, 0),
                means=(means[minuend], means[subtrahend]),
                difference=size.difference,
                interval=interval,
                p_value=p_value,
                corrected=p_corrected,
                family=family,
                d_z=size.d_z,
                won=size.won,
                tied=size.tied,
                lost=size.lost,
                correction=correction,
                units=len(matrix.sampled) if matrix.clusters else 0,
            )
        )
    return differences


def _rows(matrix: ScoreMatrix, pairs: Sequence[Pair]) -> NDArray[np.intp]:
    """The pairs as rows of the matrix: (pairs, 2)."""
    rows = {system: row for row, system in enumerate(matrix.systems)}
    return np.array([(rows[a], rows[b]) for a, b in pairs], dtype=np.intp).reshape(-1, 2)


def _systems(pairs: Iterable[Pair]) -> dict[str, None]:
    return dict.fromkeys(name for pair in pairs for name in pair)


def over_pairs(
    matrix: ScoreMatrix, pairs: Sequence[Pair], function: Callable[[Array], Iterable[T]]
) -> list[T]:
    """Apply ``function``, which gives a value per pair, to blocks of differences (pairs, n)."""
    rows = _rows(matrix, pairs)
    size = max(1, _HELD // len(matrix.queries))

    def values_of_block(start: int) -> list[T]:  # in its thread, so that few are in memory at once
        block = rows[start : start + size]
        differences = matrix.scores[block[:, 0]]
        differences -= matrix.scores[block[:, 1]]
        return list(function(differences))

    with ThreadPoolExecutor(cores()) as pool:
        blocks = pool.map(values_of_block, range(0, len(rows), size))
        return list(itertools.chain.from_iterable(blocks))


def best_first(differences: Iterable[PairedDifference]) -> list[str]:
    """First systems of differences: those with most, then those with the largest mean.

    Differences in unlike metrics have no mean: their ranks on each task are averaged instead.
    """
    every = list(differences)
    has_one_metric = len({difference.metric for difference in every}) == 1
    by_task: dict[tuple[str, str], list[float]] = {}
    for difference in every:
        on_task = by_task.setdefault((difference.task, difference.metric), [])
        on_task.append(difference.difference)
    places: dict[str, list[float]] = {}
    for difference in every:
        place = -difference.difference
        if not has_one_metric:
            on_task = by_task[difference.task, difference.metric]
            place = sum(value > difference.difference for value in on_task)
        places.setdefault(difference.first, []).append(place)
    return sorted(places, key=lambda name: (-len(places[name]), fmean(places[name]), name))


@dataclass(frozen=True)
class Procedure:
    """How differences are tested."""

    alpha: float = ALPHA  # level of the tests
    margin: float = 0.05  # smallest difference that matters
    correction: str = MAX_T  # one of `multiple_testing.CORRECTIONS`
    draws: int = DRAWS  # number of sign flips
    level: float = LEVEL  # level of the intervals
    seed: int = 0  # seed of the sign flips
    clusters: bool = True  # whether queries of one cluster are treated as dependent


@dataclass(frozen=True, eq=False)
class TaskComparison:
    """Systems on one task and metric, each paired difference computed once."""

    task: str
    metric: str
    baseline: str  # name of the baseline; empty if it has no scores here
    # score per query id of each system, by name; each is a view of an array
    columns: Mapping[str, SystemScores]
    procedure: Procedure  # how differences are tested
    left_out: tuple[str, ...] = ()  # records that are not compared, each with the reason
    # cluster per query id; empty if queries were sampled one by one
    clusters: Mapping[str, str] = field(default_factory=dict)
    unranked: tuple[str, ...] = ()  # systems that lack a task of a mean

    @cached_property
    def with_baseline(self) -> tuple[PairedDifference, ...]:
        """Every system against the baseline, largest difference first."""
        return self.against(self.baseline)

    def against(self, baseline: str) -> tuple[PairedDifference, ...]:
        """Every other system against ``baseline``, largest first; none if it has no scores."""
        others = [name for name in self.columns if name != baseline in self.columns]
        differences = self._described([(name, baseline) for name in others])
        return tuple(sorted(differences, key=lambda each: (-each.difference, each.first)))

    @cached_property
    def family(self) -> int:
        """Number of pairs of systems that share a query: the size of the family of tests."""
        return sum(map(len, self._groups(self._pairs)))

    @property
    def draws(self) -> int:
        """Number of sign flips: the procedure's, or more if the number of pairs requires it."""
        how = self.procedure
        return enough_draws(self.family, draws=how.draws, alpha=how.alpha, how=self.correction)

    def among(self, systems: Container[str]) -> list[PairedDifference]:
        """Every pair of ``systems``; their family is still all pairs that are compared."""
        own = [name for name in self.columns if name in systems]
        return self._described(list(itertools.combinations(own, 2)))

    def difference(self, first: str, second: str) -> PairedDifference | None:
        """First − second; None if the two share no query or one has no scores on this task."""
        if first == second or not {first, second} <= self.columns.keys():
            return None
        return next(iter(self._described([(first, second)])), None)

    def matrix(self, *systems: str) -> ScoreMatrix:
        """Scores on the queries that all the systems answered.

        Raises:
            ValueError: they share no query.
        """
        columns = {name: self.columns[name] for name in systems}
        return join(columns, task=self.task, metric=self.metric, clusters=self.clusters)

    @property
    def clustered(self) -> str:
        """The number of clusters of the compared queries, in words; empty without clusters."""
        for pairs in self._groups(self._pairs)[:1] if self.clusters else ():
            if (matrix := self.matrix(*_systems(pairs))).clusters:
                return f"{len(matrix.sampled)} clusters of {len(matrix.queries)} queries"
        return ""

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what is not compared with the baseline: records, and unpaired queries."""
        notes = list(self.left_out)
        if self.baseline:
            theirs = self.columns[self.baseline].queries
            for name, each in self.columns.items():
                if each.queries == theirs:
                    continue
                if shared_queries([each.queries, theirs]):
                    notes += self.matrix(name, self.baseline).notes
                else:
                    notes.append(f"{self.task}: no query is shared by {name} and {self.baseline}")
        return tuple(dict.fromkeys(notes))

    @property
    def _pairs(self) -> list[Pair]:
        return list(itertools.combinations(self.columns, 2))

    @cached_property
    def _tests(self) -> dict[frozenset[str], tuple[float, float]]:
        """P-values of all pairs that share a query, from one set of draws per set of queries."""
        p_values: dict[frozenset[str], float] = {}
        adjusted: list[float] = []
        for pairs in self._groups(self._pairs):
            own, adjusted = self._drawn(pairs)
            p_values |= zip(map(frozenset, pairs), own, strict=True)
        if self.correction != MAX_T:
            adjusted = adjust(list(p_values.values()), how=self.correction)
        return dict(zip(p_values, zip(p_values.values(), adjusted, strict=True), strict=True))

    @cached_property
    def correction(self) -> str:
        """The procedure's correction, or Holm's method in place of MaxT; see `not_max_t`."""
        return HOLM if self.not_max_t else self.procedure.correction

    @cached_property
    def not_max_t(self) -> str:
        """Where MaxT is asked for and cannot be used, in words; empty if it can.

        Pairs have different queries, or their differences are `skewed`.
        """
        if self.procedure.correction != MAX_T:
            return ""
        groups = self._groups(self._pairs)
        if len(groups) > 1:
            return "where models answered different queries"
        if any(map(self._skewed, groups)):
            return f"where differences on fewer than {MANY_QUERIES} queries are skewed"
        return ""

    def _skewed(self, pairs: Sequence[Pair]) -> bool:
        """Whether differences of pairs that share queries are too skewed for MaxT."""
        queries = shared_queries([self.columns[name].queries for name in _systems(pairs)])
        clusters = {self.clusters.get(query, query) for query in queries}
        if len(clusters) >= MANY_QUERIES:
            return False  # without reading the scores
        matrix = self.matrix(*_systems(pairs))
        units = matrix.units(matrix.scores, centred=False)
        return skewed(units.T, _rows(matrix, pairs).tolist())

    @property
    def p_values(self) -> list[float]:
        """Corrected p-values of all pairs that share a query, in the order of their names."""
        return [p for _, p in self._tests.values()]

    def _drawn(self, pairs: Sequence[Pair]) -> tuple[list[float], list[float]]:
        """Uncorrected and MaxT p-values of pairs that share queries, from one set of draws."""
        matrix = self.matrix(*_systems(pairs))
        return _p_values(matrix, pairs, draws=self.draws, seed=self.procedure.seed)

    def _groups(self, pairs: Sequence[Pair]) -> list[list[Pair]]:
        """Pairs that share queries, grouped by the set of shared queries."""
        numbers: dict[tuple[str, ...], int] = {}  # of sets of queries
        own = {
            n: numbers.setdefault(each.queries, len(numbers)) for n, each in self.columns.items()
        }
        shared: dict[tuple[int, int], int | None] = {}
        groups: dict[int, list[Pair]] = {}
        for a, b in pairs:
            if (own[a], own[b]) not in shared:
                queries = shared_queries([self.columns[a].queries, self.columns[b].queries])
                number = numbers.setdefault(queries, len(numbers)) if queries else None
                shared[own[a], own[b]] = number
            if (number := shared[own[a], own[b]]) is not None:
                groups.setdefault(number, []).append((a, b))
        return list(groups.values())

    def _described(self, pairs: Sequence[Pair]) -> list[PairedDifference]:
        """Differences of the ``pairs`` that share a query, in order."""
        differences: dict[Pair, PairedDifference] = {}
        every = self._tests if pairs else {}  # before the scores are joined
        for group in self._groups(pairs):
            tests = [every[frozenset(pair)] for pair in group]
            matrix = self.matrix(*_systems(group))
            described = _described(
                matrix, group, tests, family=len(every), correction=self.correction
            )
            differences |= zip(group, described, strict=True)
        return [differences[pair] for pair in pairs if pair in differences]
