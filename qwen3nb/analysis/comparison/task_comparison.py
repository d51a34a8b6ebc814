"""Systems compared on one task and metric, each paired difference computed once.

Signs are flipped once for all pairs of systems that answered the same queries.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from qwen3nb.analysis.comparison.differences import (
    PairedDifference,
    described_pairs,
    permutation_p_values,
)
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, SystemScores, join, shared_queries

__all__ = ["Procedure", "TaskComparison"]

Pair = tuple[str, str]  # names of two systems


@dataclass(frozen=True)
class Procedure:
    """How differences are tested.

    Attributes:
        alpha: level of the tests.
        minimum: smallest difference that matters.
        correction: one of `multiple_testing.CORRECTIONS`.
        draws: number of sign flips.
        level: of the intervals.
        seed: of the draws.
    """

    alpha: float = 0.05
    minimum: float = 0.05
    correction: str = "holm"
    draws: int = DRAWS
    level: float = LEVEL
    seed: int = 0


@dataclass(frozen=True, eq=False)
class TaskComparison:
    """Systems on one task and metric.

    Attributes:
        task: name of the task.
        metric: name of the metric.
        baseline: name of the baseline; empty if it has no scores here.
        columns: score per query id of each system, by name; each is a view of an array.
        procedure: how differences are tested.
        left_out: records that are not compared, each with the reason.
    """

    task: str
    metric: str
    baseline: str
    columns: Mapping[str, SystemScores]
    procedure: Procedure
    left_out: tuple[str, ...] = ()

    @cached_property
    def with_baseline(self) -> tuple[PairedDifference, ...]:
        """Every system against the baseline, largest difference first; one family of tests."""
        differences = self._family(self._pairs_with_baseline)
        return tuple(sorted(differences, key=lambda each: (-each.difference, each.first)))

    @cached_property
    def among_others(self) -> tuple[PairedDifference, ...]:
        """Every pair of systems without the baseline; the other family of tests."""
        return tuple(self._family(self._other_pairs))

    @property
    def all_pairs(self) -> tuple[PairedDifference, ...]:
        """Both families."""
        return self.with_baseline + self.among_others

    def difference(self, first: str, second: str) -> PairedDifference | None:
        """First − second; None if the two share no query or one has no scores on this task."""
        known = self._against if self.baseline in (first, second) else self._others
        if (first, second) in known:
            return known[first, second]
        turned = known.get((second, first))
        return None if turned is None else turned.reversed()

    def matrix(self, first: str, second: str) -> ScoreMatrix:
        """The scores behind a difference, on the queries that both systems answered.

        Raises:
            ValueError: the two share no query.
        """
        columns = {name: self.columns[name] for name in (first, second)}
        return join(columns, task=self.task, metric=self.metric)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is not compared with the baseline: records, and queries of one system only."""
        notes = list(self.left_out)
        if self.baseline:
            theirs = self.columns[self.baseline].queries
            others = [name for name, each in self.columns.items() if each.queries != theirs]
            for name in others:
                shared = shared_queries([self.columns[name].queries, theirs])
                notes += (
                    self.matrix(name, self.baseline).notes
                    if shared
                    else [f"{self.task}: no query is shared by {name} and {self.baseline}"]
                )
        return tuple(dict.fromkeys(notes))

    @property
    def _pairs_with_baseline(self) -> list[Pair]:
        others = [name for name in self.columns if name != self.baseline]
        return [(name, self.baseline) for name in others if self.baseline]

    @property
    def _other_pairs(self) -> list[Pair]:
        others = [name for name in self.columns if name != self.baseline]
        return list(itertools.combinations(others, 2))

    @cached_property
    def _against(self) -> dict[Pair, PairedDifference]:
        return {(each.first, each.second): each for each in self.with_baseline}

    @cached_property
    def _others(self) -> dict[Pair, PairedDifference]:
        return {(each.first, each.second): each for each in self.among_others}

    @cached_property
    def _p_values(self) -> dict[Pair, float]:
        """P-values of all pairs that share a query, from one set of draws per set of queries."""
        how = self.procedure
        p_values: dict[Pair, float] = {}
        for matrix, pairs in self._joined([*self._pairs_with_baseline, *self._other_pairs]):
            tested = permutation_p_values(matrix, pairs, draws=how.draws, seed=how.seed)
            p_values |= zip(pairs, tested, strict=True)
        return p_values

    def _joined(self, pairs: Sequence[Pair]) -> Iterator[tuple[ScoreMatrix, list[Pair]]]:
        """Yield the pairs that share the same queries, with the scores of their systems."""
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
            number = shared[own[a], own[b]]
            if number is not None:
                groups.setdefault(number, []).append((a, b))
        for group in groups.values():
            systems = dict.fromkeys(name for pair in group for name in pair)
            columns = {name: self.columns[name] for name in systems}
            yield join(columns, task=self.task, metric=self.metric), group

    def _family(self, pairs: Sequence[Pair]) -> list[PairedDifference]:
        """Differences of the ``pairs`` that share a query, corrected over all of them."""
        tested = [pair for pair in pairs if pair in self._p_values]
        values = [self._p_values[pair] for pair in tested]
        adjusted = dict(zip(tested, adjust(values, how=self.procedure.correction), strict=True))
        differences: dict[tuple[str, str], PairedDifference] = {}
        for matrix, group in self._joined(tested):
            described = described_pairs(
                matrix, group, [self._p_values[pair] for pair in group],
                [adjusted[pair] for pair in group], family=len(tested),
                level=self.procedure.level,
            )  # fmt: skip
            differences |= zip(group, described, strict=True)
        return [differences[pair] for pair in tested]
