"""Scores of several systems on the same queries, as arrays aligned by query id.

Systems that answered the same queries share one tuple of ids, so they are aligned without comparing
ids.

The score of a task in parts, such as languages, is the mean over its parts of the means over their
queries, whatever their sizes. So a score of a part with n of N queries, one of P, has the weight
N / (P n): then the mean over all queries is that score. The parts are those of the task, and no
sample of others: they are strata. An interval is of deviations within the parts, and how far the
parts are from each other does not widen it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from qwen3nb.analysis.stats.resampling import cluster_values, has_large_cluster
from qwen3nb.metrics.intervals import Array
from qwen3nb.metrics.query_scores import sorted_rows
from qwen3nb.utils.format import first_names
from qwen3nb.utils.imports import DataFrame

_MOST_SHOWN = 5  # ids of queries in a note
# The scores of each system, or a score per query id.
Columns = Mapping[str, "SystemScores | Mapping[str, float]"]


class SystemScores(NamedTuple):
    """One system's scores on a task."""

    # n ids, sorted; systems that answered the same queries share one tuple
    queries: tuple[str, ...]
    read: Callable[[], Array]  # returns the scores

    @property
    def scores(self) -> Array:
        """The scores (n,), in the order of the ids."""
        return self.read()

    def on(self, queries: tuple[str, ...]) -> Array:
        """Return the scores on some of the queries, in their order."""
        if queries == self.queries:
            return self.scores
        rows = {query: row for row, query in enumerate(self.queries)}
        return np.asarray(self.scores[[rows[query] for query in queries]])

    def not_in(self, queries: tuple[str, ...]) -> tuple[str, ...]:
        """Return the other queries, sorted."""
        if queries == self.queries:
            return ()
        return tuple(sorted(set(self.queries).difference(queries)))


@lru_cache(maxsize=1024)
def by_id(queries: tuple[str, ...]) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    """Return the ids, sorted, and their rows; one tuple for all systems with the same queries."""
    rows = sorted_rows(queries)
    return tuple(queries[row] for row in rows), rows


def system_scores(queries: tuple[str, ...], scores: Array) -> SystemScores:
    """Return the scores (n,) of queries in any order."""
    ids, rows = by_id(queries)
    return SystemScores(ids, partial(np.asarray, scores[rows]))


@dataclass(frozen=True)
class ScoreMatrix:
    """Scores of several systems on the queries that all of them answered."""

    task: str
    metric: str
    systems: tuple[str, ...]  # S names
    queries: tuple[str, ...]  # n ids, sorted
    scores: Array  # (S, n)
    # per system, query ids that are not shared by all systems
    unpaired: dict[str, tuple[str, ...]]
    # the cluster of each query, in their order; empty if queries were sampled one by one
    clusters: tuple[str, ...] = ()
    # the part of each query of a task in parts, whose scores are weighted; empty for others
    parts: tuple[str, ...] = ()

    @property
    def weights(self) -> Array:
        """The weight of each query (n,): 1, unless the task has parts."""
        return part_weights(self.parts) if self.parts else np.ones(len(self.queries))

    @property
    def unit_names(self) -> tuple[str, ...]:
        """Names of the sampling units: G clusters, or the queries."""
        return tuple(sorted({*self.clusters})) or self.queries

    @property
    def has_large_cluster(self) -> bool:
        """Whether a cluster is so large that deviations are enlarged; see `cluster_values`."""
        _, sizes = np.unique(self.clusters, return_counts=True)
        return bool(self.clusters) and has_large_cluster(sizes)

    def unit_values(self, values: Array, *, centred: bool = True) -> Array:
        """Convert values of queries (…, n) to values of sampling units (…, G), with the same mean.

        Values of clusters are for intervals if ``centred``, else for sign flips (`cluster_values`).
        Those for intervals deviate from their mean as queries do from the mean of their part.
        """
        if self.parts and centred:
            values = centred_in_parts(values, self.parts)
        return cluster_values(values, self.clusters or None, centred=centred)

    def sample(self, system: str) -> Array:
        """Values with the mean and the interval of one system's score: its scores, or of units."""
        scores = self.column(system)
        return self.unit_values(scores) if self.parts else scores

    def at(self, members: Sequence[int]) -> Self:
        """Return the scores on the queries at some positions, with their clusters."""
        rows = list(members)
        clusters: tuple[str, ...] = ()
        if self.clusters:
            clusters = tuple(self.clusters[row] for row in rows)
        if len(set(clusters)) == len(clusters):  # no two queries share one
            clusters = ()
        scores = self.scores[:, rows]
        parts: tuple[str, ...] = ()
        if self.parts:
            parts = tuple(self.parts[row] for row in rows)
            scores = scores / self.weights[rows] * part_weights(parts)
        return replace(
            self,
            queries=tuple(self.queries[row] for row in rows),
            scores=scores,
            clusters=clusters,
            parts=parts,
        )

    def column(self, system: str) -> Array:
        """One system's scores (n,).

        Raises:
            ValueError: an unknown system; lists the available ones.
        """
        if system not in self.systems:
            raise ValueError(
                f"no system {system!r} on {self.task}; available: {', '.join(self.systems)}"
            )
        return np.asarray(self.scores[self.systems.index(system)])

    def scores_of(self, systems: Iterable[str]) -> Array:
        """The scores of some systems (S, n)."""
        names = tuple(systems)
        if names == self.systems:
            return self.scores
        return np.array([self.column(name) for name in names])

    def to_frame(self) -> DataFrame:
        """Return a row per query and a column per system; for two systems, also the difference.

        The scores are those of the queries, without weights of parts.
        """
        import pandas as pd

        index = pd.Index(self.queries, name="query")
        scores = self.scores / self.weights if self.parts else self.scores
        frame = pd.DataFrame(scores.T, index=index, columns=list(self.systems))
        if len(self.systems) != 2:
            return frame
        system_a, system_b = self.systems
        return frame.assign(difference=frame[system_a] - frame[system_b]).sort_values("difference")

    @property
    def notes(self) -> tuple[str, ...]:
        """One line per system with unpaired queries."""
        lines = []
        for system, ids in self.unpaired.items():
            if not ids:
                continue
            names = first_names(ids, most=_MOST_SHOWN)
            lines.append(f"{self.task}: {len(ids)} queries of {system} do not pair ({names})")
        return tuple(lines)


def part_weights(parts: Sequence[str]) -> Array:
    """Return the weight of each query (n,), with which parts of any size count alike.

    >>> part_weights(["de", "de", "de", "en"])
    array([0.66666667, 0.66666667, 0.66666667, 2.        ])
    """
    _, part_of_query, sizes = np.unique(parts, return_inverse=True, return_counts=True)
    return np.asarray(len(parts) / (len(sizes) * sizes[part_of_query]))


def centred_in_parts(values: Array, parts: Sequence[str]) -> Array:
    """Return values (…, n) that deviate from the mean of all as each does from that of its part."""
    _, part_of_query, sizes = np.unique(parts, return_inverse=True, return_counts=True)
    by_part = np.argsort(part_of_query, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    means_of_parts = np.add.reduceat(values[..., by_part], starts, axis=-1) / sizes
    mean = values.mean(axis=-1, keepdims=True)
    return np.asarray(values - means_of_parts[..., part_of_query] + mean)


def join(
    columns: Columns,
    *,
    task: str = "",
    metric: str = "",
    clusters: Mapping[str, str] | None = None,
    part_of: Mapping[str, str] | None = None,
) -> ScoreMatrix:
    """Join systems by query id.

    ``clusters`` (a cluster per query id) are used if all shared queries have one and some share it.
    ``part_of`` (a part per query id) is of a task whose score is the mean over its parts.

    >>> join({"a": {"q1": 1.0, "q2": 0.5}, "b": {"q1": 0.0}}).unpaired
    {'a': ('q2',), 'b': ()}

    Raises:
        ValueError: fewer than two systems, no query shared by all, or a value that is not
            finite; names the system and the query.
    """
    if len(columns) < 2:
        raise ValueError(f"{task}: expected two or more systems; got {list(columns)}")
    systems = {system: _as_scores(values) for system, values in columns.items()}
    queries = shared_queries([column.queries for column in systems.values()])
    if not queries:  # the numbers show which system has other queries
        sizes = ", ".join(f"{name} has {len(column.queries)}" for name, column in systems.items())
        raise ValueError(f"{task}: no query is shared by all systems ({sizes})")
    scores = np.empty((len(systems), len(queries)))
    for row, (system, column) in enumerate(systems.items()):  # one at a time in memory
        scores[row] = column.on(queries)
        is_finite = np.isfinite(scores[row])
        if not is_finite.all():
            query = queries[is_finite.argmin()]  # the first that is not
            raise ValueError(f"{task}: {system} has no finite value on query {query!r}")
    parts: tuple[str, ...] = ()
    if part_of:
        parts = tuple(part_of[query] for query in queries)
        scores *= part_weights(parts)
    return ScoreMatrix(
        task=task,
        metric=metric,
        systems=tuple(columns),
        queries=queries,
        scores=scores,
        parts=parts,
        unpaired={system: column.not_in(queries) for system, column in systems.items()},
        clusters=_shared_clusters(queries, clusters or {}),
    )


def _as_scores(values: SystemScores | Mapping[str, float]) -> SystemScores:
    if isinstance(values, SystemScores):
        return values
    return system_scores(tuple(values), np.array(list(values.values()), dtype=float))


def _shared_clusters(queries: Sequence[str], clusters: Mapping[str, str]) -> tuple[str, ...]:
    """Return the cluster of each query; none if a query lacks one, or none is shared."""
    names = tuple(clusters[query] for query in queries if query in clusters)
    lacks_some = len(names) < len(queries)
    is_none_shared = len(set(names)) == len(names)
    if lacks_some or is_none_shared:
        return ()
    return names


def shared_queries(several: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the query ids, sorted, that are in all of several sorted tuples."""
    first_queries, *queries_of_others = several
    if all(queries == first_queries for queries in queries_of_others):
        return first_queries
    return tuple(sorted(set(first_queries).intersection(*queries_of_others)))
