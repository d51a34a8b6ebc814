"""Which groups of queries changed unlike the rest, between two models.

Each query has a difference: its score after less its score before. A group, such as a topic, is
compared with the queries outside it. An overall shift moves both, and is no effect of a group. The
statistic of a group is

    t = (mean in the group − mean outside) / error,
    error² = max(v, s² / n) · N / (N − n),

with n of N queries in the group, the variance s² of all differences, and the variance v of the
group's own mean. In v, queries of one cluster count together (Liang and Zeger 1986). The larger of
the two keeps a group whose differences vary more than others from being named for that alone
(studentised permutation; Janssen 1997; Chung and Romano 2013).

Under the null hypothesis, differences are exchangeable between queries. So they are shuffled, and
the largest absolute t of all groups is kept of each shuffle (Westfall and Young 1993). The p-value
of a group is the share of shuffles in which it is at least the group's own: with the sample as one
of them, (b + 1) / (R + 1). It holds for all groups together, which may overlap.

Groups are named one after the other, the most significant first, and of equal p-values the one of
the largest absolute t; if they have turns, one turn after the other. The queries of a named group
leave before the next is looked for. So no group is named for queries that it shares with one that
is named already, nor for not being as bad as these.

Hundreds of groups are compared in one shuffle: the sums of all clusters of all groups are one
product of a sparse matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import NDArray

from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.metrics.intervals import Array

if TYPE_CHECKING:
    from scipy.sparse import csr_array

FEWEST_QUERIES = 10  # of a group that is compared with the rest
FEWEST_CLUSTERS = 5  # that they come from
_BLOCK = 2_000_000  # differences that are shuffled at once, or sums of clusters: 16 MB
_ROUNDING = 1e-9  # by which equal statistics may differ


@dataclass(frozen=True)
class QueryGroup:
    """Queries that have something in common."""

    facet: str  # what they have in common, such as ``topic`` or ``length``
    name: str
    members: tuple[int, ...]  # positions of the queries
    is_listed: bool = True  # in a table, even if it is as the rest

    @property
    def label(self) -> str:
        """What it is, such as ``topic “heat, transfer”`` or ``queries with “heat”``."""
        if self.facet == "word":
            return f"queries with “{self.name}”"
        if self.facet == "beginning":
            return f"queries that begin with “{self.name}”"
        return f"{self.facet} “{self.name}”"


@dataclass(frozen=True)
class GroupTest:
    """A group of queries against the others."""

    group: QueryGroup
    rank: int  # in the order in which groups are named; 0 for one that is not
    compared: int  # its queries that were compared: those that no group above it has
    difference: float | None  # mean change in the group less that outside; None if it is too small
    p_value: float | None  # corrected over all groups
    statistic: float = 0.0  # t

    @property
    def is_named(self) -> bool:
        """Whether the group changed unlike the rest."""
        return self.rank > 0


def unlike_the_rest(
    differences: Array,
    groups: Sequence[QueryGroup],
    *,
    clusters: Sequence[str] = (),
    turn_of: Callable[[QueryGroup], int] | None = None,
    alpha: float = 0.05,
    n_resamples: int = DRAWS,
    seed: int = 0,
) -> list[GroupTest]:
    """Test which groups changed unlike the queries outside them.

    Args:
        differences: the change of each query (N,).
        groups: may overlap; too small ones are returned without a p-value.
        clusters: the cluster of each query; empty if queries were sampled one by one.
        turn_of: returns when a group may be named: 1 first, 2 once no group of turn 1 is
            significant, 0 never; by default 1. Only significant groups are asked for; all are
            corrected for.
        alpha: the family-wise error rate of naming a group.
        n_resamples: number of shuffles R.
        seed: of the shuffles.

    Returns:
        The tests: named groups in their order, then the others in the order of ``groups``.
    """
    cluster_codes = np.arange(len(differences))
    if clusters:
        _, cluster_codes = np.unique(np.asarray(clusters), return_inverse=True)
    left = np.ones(len(differences), dtype=bool)
    waiting = list(groups)
    named: list[GroupTest] = []
    while True:
        tests = _test_together(differences, waiting, cluster_codes, left, n_resamples, seed)
        strongest = _strongest(tests, turn_of or _first_turn, alpha)
        if strongest is None:
            return [*named, *tests]
        named.append(replace(tests[strongest], rank=len(named) + 1))
        left[list(tests[strongest].group.members)] = False
        del waiting[strongest]


def _first_turn(group: QueryGroup) -> int:
    del group
    return 1


def _strongest(
    tests: Sequence[GroupTest], turn_of: Callable[[QueryGroup], int], alpha: float
) -> int | None:
    """Return the position of the most significant group, by turn; None if none is significant."""
    significant = []
    for position, test in enumerate(tests):
        if test.p_value is None or test.p_value >= alpha:
            continue
        turn = turn_of(test.group)
        if turn:
            significant.append((turn, test.p_value, -abs(test.statistic), position))
    if not significant:
        return None
    *_, position = min(significant)
    return position


def _test_together(
    differences: Array,
    groups: Sequence[QueryGroup],
    clusters: NDArray[np.intp],
    left: NDArray[np.bool_],
    n_resamples: int,
    seed: int,
) -> list[GroupTest]:
    """Test groups on the queries that are left."""
    values = differences[left]
    clusters_left = clusters[left]
    place_of = np.cumsum(left) - 1  # among those left
    places_of_groups = []
    for group in groups:
        members = np.array(group.members, dtype=np.intp)
        places_of_groups.append(place_of[members[left[members]]])
    is_compared = [_is_large_enough(places, clusters_left) for places in places_of_groups]
    compared = []
    for places, is_enough in zip(places_of_groups, is_compared, strict=True):
        if is_enough:
            compared.append(places)
    found = iter(_compare(values, compared, clusters_left, n_resamples, seed))
    tests = []
    for group, places, is_enough in zip(groups, places_of_groups, is_compared, strict=True):
        if is_enough:
            difference, statistic, p_value = next(found)
            tests.append(GroupTest(group, 0, len(places), difference, p_value, statistic))
        else:
            tests.append(GroupTest(group, 0, len(places), None, None))
    return tests


def _is_large_enough(places: NDArray[np.intp], clusters: NDArray[np.intp]) -> bool:
    """Whether a group, its clusters and the queries outside it are enough to be compared."""
    smaller = min(len(places), len(clusters) - len(places))
    return smaller >= FEWEST_QUERIES and len(np.unique(clusters[places])) >= FEWEST_CLUSTERS


@dataclass(frozen=True)
class _Samples:
    """The queries of all groups (G) among those that are compared (N), by their clusters.

    A part is what one group has of one cluster.
    """

    parts: csr_array  # (P, N): 1 for the queries of each part
    of_groups: csr_array  # (G, P): 1 for the parts of each group
    sizes: csr_array  # (G, P): the number of queries of each part
    queries: Array  # (G, 1), number of each group
    clusters: Array  # (G, 1), number of each group

    @classmethod
    def of(cls, places_of_groups: Sequence[NDArray[np.intp]], clusters: NDArray[np.intp]) -> Self:
        """Join the places (n,) of each group's queries."""
        from scipy.sparse import csr_array

        columns, starts_of_parts = [], [np.zeros(1, dtype=np.intp)]
        starts_of_groups = [0]
        start = 0
        for places in places_of_groups:
            by_cluster = places[np.argsort(clusters[places], kind="stable")]
            _, counts = np.unique(clusters[by_cluster], return_counts=True)
            columns.append(by_cluster)
            starts_of_parts.append(start + np.cumsum(counts))
            start += len(places)
            starts_of_groups.append(starts_of_groups[-1] + len(counts))
        starts = np.concatenate(starts_of_parts)
        count = len(starts) - 1
        queries = np.concatenate(columns)
        parts = csr_array((np.ones(len(queries)), queries, starts), shape=(count, len(clusters)))
        shape = (len(places_of_groups), count)
        order = np.arange(count)
        of_groups = csr_array((np.ones(count), order, starts_of_groups), shape=shape)
        sizes = csr_array((np.diff(starts).astype(float), order, starts_of_groups), shape=shape)
        return cls(
            parts=parts,
            of_groups=of_groups,
            sizes=sizes,
            queries=np.array([len(places) for places in places_of_groups], dtype=float)[:, None],
            clusters=np.diff(starts_of_groups).astype(float)[:, None],
        )

    def differences_and_statistics(self, values: Array, variance: float) -> tuple[Array, Array]:
        """Return group minus rest, and t, of columns of differences (N, R): two arrays (G, R)."""
        total = len(values)
        outside = total / (total - self.queries)
        sums = self.parts @ values
        means = (self.of_groups @ sums) / self.queries
        # The mean over all is the same in each column: shuffles do not change it.
        differences = (means - values[:, 0].mean()) * outside
        # The sum over a group's clusters of (sum of the cluster - its size · mean)².
        squares = self.of_groups @ sums**2
        squares -= 2 * means * (self.sizes @ sums)
        squares += means**2 * self.sizes.power(2).sum(axis=1)[:, None]
        own_variances = np.maximum(squares, 0) / self.queries**2
        own_variances *= self.clusters / (self.clusters - 1)
        errors = np.sqrt(np.maximum(own_variances, variance / self.queries) * outside)
        return differences, differences / errors


def _compare(
    values: Array,
    places_of_groups: Sequence[NDArray[np.intp]],
    clusters: NDArray[np.intp],
    n_resamples: int,
    seed: int,
) -> list[tuple[float, float, float]]:
    """Return group minus rest, t, and the corrected p-value, of each group."""
    if not places_of_groups:
        return []
    if np.ptp(values) == 0:  # all queries changed alike
        return [(0.0, 0.0, 1.0)] * len(places_of_groups)
    samples = _Samples.of(places_of_groups, clusters)
    # From their mean, squares of sums lose fewest digits; it is subtracted from all alike.
    values = values - values.mean()
    variance = float(values.var(ddof=1))
    differences, statistics = samples.differences_and_statistics(values[:, None], variance)
    thresholds = np.abs(statistics) * (1 - _ROUNDING)
    counts = np.zeros(len(places_of_groups), dtype=np.int64)
    most = max(len(values), samples.parts.shape[0])
    for shuffled in _shuffles(values, n_resamples, seed, at_once=max(1, _BLOCK // most)):
        _, of_shuffles = samples.differences_and_statistics(shuffled.T, variance)
        largest = np.abs(of_shuffles).max(axis=0)
        counts += np.count_nonzero(largest >= thresholds, axis=1)
    p_values = (counts + 1) / (n_resamples + 1)
    columns = differences[:, 0].tolist(), statistics[:, 0].tolist(), p_values.tolist()
    return list(zip(*columns, strict=True))


def _shuffles(values: Array, n_resamples: int, seed: int, *, at_once: int) -> Iterator[Array]:
    """Yield shuffled copies of the differences in blocks (rows, N)."""
    generator = np.random.default_rng(seed)
    for start in range(0, n_resamples, at_once):
        rows = min(at_once, n_resamples - start)
        yield generator.permuted(np.tile(values, (rows, 1)), axis=1)
