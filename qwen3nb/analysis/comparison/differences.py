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
from typing import NamedTuple, Self, TypeVar

import numpy as np
import scipy  # loads scipy.special on first use
from numpy.typing import NDArray

from qwen3nb.analysis.stats.multiple_testing import MAX_T, NAMES, adjust, enough_draws
from qwen3nb.analysis.stats.paired_tests import EffectSize, effect_sizes
from qwen3nb.analysis.stats.resampling import (
    DRAWS,
    LEVEL,
    FlippedDifferences,
    draw_seed,
    flipped_differences,
    max_t_p_values,
)
from qwen3nb.analysis.stats.score_matrix import (
    Columns,
    ScoreMatrix,
    SystemScores,
    join,
    part_weights,
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
_MOST_HELD = 500_000  # score differences at once, to bound memory
_LARGEST_DIFFERENCE = 2000  # that is considered, in thousandths
_SHARE_OF_SAMPLES = 0.8  # that show a difference


def significant(p: float | None, interval: Interval | None, *, alpha: float = ALPHA) -> bool:
    """Return whether a difference is significant, as shown on every page, figure and card.

    Args:
        p: its corrected p-value; None if it has none.
        interval: the interval shown, which must exclude 0; None for a single query.
        alpha: level of the test.
    """
    if p is None or p >= alpha:
        return False
    return interval is None or intervals.excludes_zero(interval)


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
    supported_verdict = find_verdict(difference, p, interval, alpha=alpha, margin=margin)
    return verdict_words(supported_verdict, interval, margin=margin)


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
    deviation = float(differences.std(ddof=1))
    # In four of five samples, the mean is no more than this below the true difference:
    # the normal quantile of 0.8, in standard errors.
    most_below = float(scipy.special.ndtri(_SHARE_OF_SAMPLES)) * deviation / math.sqrt(n)
    unlucky = differences - differences.mean() - most_below  # if the true difference is 0

    # Such a sample if the true difference is so many thousandths.
    def is_shown(thousandths: int) -> bool:
        sample = unlucky + thousandths / 1000
        interval = intervals.difference_interval(sample, level=LEVEL)
        return interval is not None and interval[0] > 0

    smallest = bisect_left(range(_LARGEST_DIFFERENCE), True, key=is_shown)
    if smallest == _LARGEST_DIFFERENCE:
        return None
    return smallest / 1000


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
        first_mean, second_mean = self.means
        return replace(
            self,
            first=self.second,
            second=self.first,
            means=(second_mean, first_mean),
            difference=-self.difference,
            interval=negated(self.interval),
            like_these=negated(self.like_these),
            d_z=None if self.d_z is None else -self.d_z,
            won=self.lost,
            lost=self.won,
        )

    def __str__(self) -> str:
        text = f"{number_text(self.difference, sign=True)} {self.interval_text}"
        text += f", p {p_value_text(self.p_value, relation=True)}"
        if self.family > 1:
            corrected_text = p_value_text(self.corrected, relation=True)
            text += f", corrected over {self.family}: {corrected_text}"
        return f"{text}, n = {self.n}"

    @property
    def interval_text(self) -> str:
        """The interval as pages show it: in words for equal scores, or for a single query."""
        if self.identical and self.n > 1:
            return f"(identical scores on all {self.n:,})"
        return interval_text(self.interval, absent="(a single query)")


def negated(interval: Interval | None) -> Interval | None:
    """Return the interval of a difference the other way round."""
    if interval is None:
        return None
    low, high = interval
    return -high, -low


def method_words(correction: str, family: int) -> str:
    """Name the test of paired differences, and the correction over a family of p-values.

    >>> method_words("holm", 3), method_words("holm", 1)
    ('two-sided paired permutation test, Holm over 3', 'two-sided paired permutation test')
    """
    words = correction_words(correction, family)
    if not words:
        return TEST
    return f"{TEST}, {words}"


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
    return f" (of fewer than {_FEW_QUERIES} queries, 0.05 presumes that differences are not skewed)"


def family_words(differences: Sequence[PairedDifference], noun: str = "") -> str:
    """Name the test of differences, what corrects their p-values, and how clusters count.

    ``noun`` names the members of the family, such as ``data sets``.
    """
    words = TEST
    if differences:
        correction = correction_words(differences[0].correction, differences[0].family, noun)
        if correction:
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
    tests = [_PairTest(p_value, p_value) for p_value in p_values]
    return _tested_differences(matrix, names, tests, family=1)


class _PairTest(NamedTuple):
    """The p-values of one difference."""

    p_value: float
    corrected: float


class _PairTests(NamedTuple):
    """The p-values of many pairs, which take less memory than a test each."""

    rows: Mapping[str, int]  # of the systems (S)
    places: NDArray[np.int32]  # of each pair among the p-values (S, S), in either order
    p_values: Array  # (pairs,)
    corrected: Array

    @classmethod
    def of(
        cls,
        systems: Iterable[str],
        pairs: Sequence[Pair],
        p_values: Sequence[float],
        corrected: Sequence[float],
    ) -> "_PairTests":
        """Return the p-values of some pairs of the systems, in the order of the pairs."""
        rows = {system: row for row, system in enumerate(systems)}
        places = np.full((len(rows), len(rows)), -1, dtype=np.int32)
        for place, (first_system, second_system) in enumerate(pairs):
            places[rows[first_system], rows[second_system]] = place
            places[rows[second_system], rows[first_system]] = place
        return cls(rows, places, np.array(p_values), np.array(corrected))

    def test(self, first: str, second: str) -> _PairTest:
        """Return the p-values of a pair that was tested."""
        place = self.places[self.rows[first], self.rows[second]]
        return _PairTest(float(self.p_values[place]), float(self.corrected[place]))


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
    scores = matrix.unit_values(matrix.scores, centred=False)
    return max_t_p_values(
        scores.T,
        _rows_of_pairs(matrix, pairs).tolist(),
        n_resamples=draws,
        seed=draw_seed(seed, matrix.unit_names),
        largest=_largest_score(matrix),
    )


def _largest_score(matrix: ScoreMatrix) -> float:
    """What a sampling unit has if all its queries score 1: 1, or more for a cluster."""
    units_of_ones = matrix.unit_values(matrix.weights, centred=False)
    return float(units_of_ones.max())


def _tested_differences(
    matrix: ScoreMatrix,
    pairs: Sequence[Pair],
    tests: Sequence[_PairTest],
    *,
    family: int,
    correction: str = "none",
) -> list[PairedDifference]:
    """Return the differences of pairs of systems, with their tests."""

    def sizes_and_intervals(block: Array) -> Iterable[tuple[EffectSize, Interval | None]]:
        ends = intervals.difference_intervals(matrix.unit_values(block), level=LEVEL)
        return zip(effect_sizes(block), ends, strict=True)

    means = dict(zip(matrix.systems, matrix.scores.mean(axis=1).tolist(), strict=True))
    unpaired = {system: len(ids) for system, ids in matrix.unpaired.items()}
    units = len(matrix.unit_names) if matrix.clusters else 0
    sizes_with_intervals = over_pairs(matrix, pairs, sizes_and_intervals)
    differences = []
    for pair, test, (size, interval) in zip(pairs, tests, sizes_with_intervals, strict=True):
        first_system, second_system = pair
        differences.append(
            PairedDifference(
                task=matrix.task,
                metric=matrix.metric,
                first=first_system,
                second=second_system,
                n=size.n,
                unpaired=unpaired.get(first_system, 0) + unpaired.get(second_system, 0),
                means=(means[first_system], means[second_system]),
                difference=size.difference,
                interval=interval,
                p_value=test.p_value,
                corrected=test.corrected,
                family=family,
                d_z=size.d_z,
                won=size.won,
                tied=size.tied,
                lost=size.lost,
                correction=correction,
                units=units,
            )
        )
    return differences


def _rows_of_pairs(matrix: ScoreMatrix, pairs: Sequence[Pair]) -> NDArray[np.intp]:
    """The pairs as rows of the matrix: (pairs, 2)."""
    row_of = {system: row for row, system in enumerate(matrix.systems)}
    rows = [(row_of[first_system], row_of[second_system]) for first_system, second_system in pairs]
    return np.array(rows, dtype=np.intp).reshape(-1, 2)


def _systems_of(pairs: Iterable[Pair]) -> list[str]:
    return list(dict.fromkeys(itertools.chain.from_iterable(pairs)))


def over_pairs(
    matrix: ScoreMatrix, pairs: Sequence[Pair], function: Callable[[Array], Iterable[T]]
) -> list[T]:
    """Apply ``function``, which gives a value per pair, to blocks of differences (pairs, n)."""
    first_rows, second_rows = _rows_of_pairs(matrix, pairs).T
    block_size = max(1, _MOST_HELD // len(matrix.queries))

    def values_of_block(start: int) -> list[T]:  # in its thread, so that few are in memory at once
        block = slice(start, start + block_size)
        differences = matrix.scores[first_rows[block]]  # a copy (pairs, n), changed in place
        differences -= matrix.scores[second_rows[block]]
        return list(function(differences))

    starts = range(0, len(pairs), block_size)
    with ThreadPoolExecutor(cores()) as pool:
        values_by_block = pool.map(values_of_block, starts)
        return list(itertools.chain.from_iterable(values_by_block))


def best_first(differences: Iterable[PairedDifference]) -> list[str]:
    """First systems of differences: those with most, then those with the largest mean.

    Differences in unlike metrics have no mean: their ranks on each task are averaged instead.
    """
    every = list(differences)
    metrics = {difference.metric for difference in every}
    on_task: dict[tuple[str, str], list[float]] = {}
    for difference in every:
        on_task.setdefault((difference.task, difference.metric), []).append(difference.difference)
    places: dict[str, list[float]] = {}  # of each system, a place per task; the lowest is best
    for difference in every:
        if len(metrics) == 1:
            place = -difference.difference  # the largest is first
        else:  # values of several metrics do not average, but ranks do
            differences_on_task = on_task[difference.task, difference.metric]
            place = sum(value > difference.difference for value in differences_on_task)
        # The system that is compared; `second` is what it is compared with.
        places.setdefault(difference.first, []).append(place)

    def most_tasks_first(name: str) -> tuple[int, float, str]:
        return -len(places[name]), fmean(places[name]), name

    return sorted(places, key=most_tasks_first)


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
    # part per query id, of a whole task whose score is the mean over its parts
    part_of: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_parts(self) -> bool:
        """Whether the score is a mean over the parts of a task."""
        return bool(self.part_of)

    @cached_property
    def with_baseline(self) -> tuple[PairedDifference, ...]:
        """Every system against the baseline, largest difference first."""
        return self.against(self.baseline)

    def against(self, baseline: str) -> tuple[PairedDifference, ...]:
        """Every other system against ``baseline``, largest first; none if it has no scores."""
        if baseline not in self.columns:
            return ()
        pairs = [(name, baseline) for name in self.columns if name != baseline]
        differences = self._differences(pairs)
        return tuple(sorted(differences, key=lambda each: (-each.difference, each.first)))

    @cached_property
    def family(self) -> int:
        """Number of pairs of systems that share a query: the size of the family of tests."""
        return sum(len(pairs) for pairs in self._by_shared_queries(self._all_pairs))

    @property
    def draws(self) -> int:
        """Number of sign flips: the procedure's, or more if the number of pairs requires it."""
        procedure = self.procedure
        return enough_draws(
            self.family, draws=procedure.draws, alpha=procedure.alpha, how=self.correction
        )

    def among(self, systems: Container[str]) -> list[PairedDifference]:
        """Every pair of ``systems``; their family is still all pairs that are compared."""
        present = [name for name in self.columns if name in systems]
        return self._differences(list(itertools.combinations(present, 2)))

    def difference(self, first: str, second: str) -> PairedDifference | None:
        """First − second; None if the two share no query or one has no scores on this task."""
        if first == second or first not in self.columns or second not in self.columns:
            return None
        differences = self._differences([(first, second)])
        return differences[0] if differences else None

    def matrix(self, *systems: str) -> ScoreMatrix:
        """Scores on the queries that all the systems answered.

        Raises:
            ValueError: they share no query.
        """
        columns = {name: self.columns[name] for name in systems}
        return join(
            columns,
            task=self.task,
            metric=self.metric,
            clusters=self.clusters,
            part_of=self.part_of,
        )

    def mean_of(self, system: str) -> float:
        """The score of a system on all queries that it answered."""
        column = self.columns[system]
        scores = column.scores
        if self.part_of:
            scores = scores * part_weights([self.part_of[query] for query in column.queries])
        return float(scores.mean())

    def flipped_differences(self, first: str, second: str) -> FlippedDifferences:
        """First − second in each of the sign flips that its p-value counts.

        Raises:
            ValueError: they share no query.
        """
        matrix = self.matrix(first, second)
        scores = matrix.unit_values(matrix.scores, centred=False)
        return flipped_differences(
            scores.T,
            n_resamples=self.draws,
            seed=draw_seed(self.procedure.seed, matrix.unit_names),
            largest=_largest_score(matrix),
        )

    @property
    def clustered(self) -> str:
        """The number of clusters of the compared queries, in words; empty without clusters."""
        groups = self._by_shared_queries(self._all_pairs)
        if not self.clusters or not groups:
            return ""
        matrix = self.matrix(*_systems_of(groups[0]))
        if not matrix.clusters:
            return ""
        return f"{len(matrix.unit_names)} clusters of {len(matrix.queries)} queries"

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what is not compared with the baseline: records, and unpaired queries."""
        if not self.baseline:
            return tuple(dict.fromkeys(self.left_out))
        notes = list(self.left_out)
        queries_of_baseline = self.columns[self.baseline].queries
        for name, column in self.columns.items():
            if column.queries == queries_of_baseline:  # all pair, which needs no note
                continue
            if shared_queries([column.queries, queries_of_baseline]):
                notes += self.matrix(name, self.baseline).notes
            else:
                notes.append(f"{self.task}: no query is shared by {name} and {self.baseline}")
        return tuple(dict.fromkeys(notes))

    @property
    def _all_pairs(self) -> list[Pair]:
        return list(itertools.combinations(self.columns, 2))

    @cached_property
    def _tests(self) -> _PairTests:
        """P-values of all pairs that share a query, from one set of draws per set of queries."""
        tested_pairs: list[Pair] = []
        p_values: list[float] = []
        corrected_p_values: list[float] = []
        for pairs in self._by_shared_queries(self._all_pairs):
            p_values_of_pairs, corrected_p_values = self._permutation_p_values(pairs)
            tested_pairs += pairs
            p_values += p_values_of_pairs
        # MaxT stays the correction only if all pairs share their queries, and are a single group.
        if self.correction != MAX_T:
            corrected_p_values = adjust(p_values, how=self.correction)
        return _PairTests.of(self.columns, tested_pairs, p_values, corrected_p_values)

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
        groups = self._by_shared_queries(self._all_pairs)
        if len(groups) > 1:
            return "where models answered different queries"
        if any(self._are_skewed(pairs) for pairs in groups):
            return f"where differences on fewer than {MANY_QUERIES} queries are skewed"
        return ""

    def _are_skewed(self, pairs: Sequence[Pair]) -> bool:
        """Whether differences of pairs that share queries are too skewed for MaxT."""
        systems = _systems_of(pairs)
        queries = shared_queries([self.columns[name].queries for name in systems])
        # A query without a cluster is one of its own.
        clusters = {self.clusters.get(query, query) for query in queries}
        if len(clusters) >= MANY_QUERIES:
            return False  # without reading the scores
        matrix = self.matrix(*systems)
        units = matrix.unit_values(matrix.scores, centred=False)
        return skewed(units.T, _rows_of_pairs(matrix, pairs).tolist())

    @property
    def p_values(self) -> list[float]:
        """Corrected p-values of all pairs that share a query, in the order of their names."""
        return self._tests.corrected.tolist()

    def _permutation_p_values(self, pairs: Sequence[Pair]) -> tuple[list[float], list[float]]:
        """Uncorrected and MaxT p-values of pairs that share queries, from one set of draws."""
        matrix = self.matrix(*_systems_of(pairs))
        return _p_values(matrix, pairs, draws=self.draws, seed=self.procedure.seed)

    @property
    def _have_one_set(self) -> bool:
        """Whether all systems have the same tuple of queries, which is not empty."""
        queries = [column.queries for column in self.columns.values()]
        return bool(queries[0]) and all(others is queries[0] for others in queries)

    def _by_shared_queries(self, pairs: Sequence[Pair]) -> list[list[Pair]]:
        """Pairs that share queries, grouped by the set of shared queries."""
        if pairs and self._have_one_set:
            return [list(pairs)]
        # Sets of queries have numbers, so that two sets are compared once, not once per pair.
        number_of_set: dict[tuple[str, ...], int] = {}

        def number_of(queries: tuple[str, ...]) -> int:
            return number_of_set.setdefault(queries, len(number_of_set))

        queries_of = {name: column.queries for name, column in self.columns.items()}
        number_of_system = {name: number_of(queries) for name, queries in queries_of.items()}
        number_of_shared: dict[tuple[int, int], int] = {}
        groups: dict[int, list[Pair]] = {}
        for first_system, second_system in pairs:
            set_numbers = (number_of_system[first_system], number_of_system[second_system])
            if set_numbers not in number_of_shared:
                queries = shared_queries([queries_of[first_system], queries_of[second_system]])
                number_of_shared[set_numbers] = number_of(queries)
            groups.setdefault(number_of_shared[set_numbers], []).append(
                (first_system, second_system)
            )
        groups.pop(number_of(()), None)  # the empty set: pairs that share no query
        return list(groups.values())

    def _differences(self, pairs: Sequence[Pair]) -> list[PairedDifference]:
        """Differences of the ``pairs`` that share a query, in order."""
        if not pairs:
            return []
        tests = self._tests  # before the scores are joined, which takes memory
        by_pair: dict[Pair, PairedDifference] = {}
        for group in self._by_shared_queries(pairs):
            differences = _tested_differences(
                self.matrix(*_systems_of(group)),
                group,
                [tests.test(*pair) for pair in group],
                family=len(tests.p_values),
                correction=self.correction,
            )
            by_pair.update(zip(group, differences, strict=True))
        return [by_pair[pair] for pair in pairs if pair in by_pair]
