"""Systems compared on one task and metric, each paired difference computed once.

Signs are flipped once for all pairs of systems that answered the same queries.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from qwen3nb.analysis.comparison.differences import (
    PairedDifference,
    PairTest,
    described_pairs,
    mean_differences,
    permutation_p_values,
)
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, SystemScores, join, shared_queries

__all__ = ["PairOutcome", "Procedure", "TaskComparison"]

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


class PairOutcome(NamedTuple):
    """What came of comparing two systems: first − second, and the corrected p-value."""

    first: str
    second: str
    difference: float
    corrected: float


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
        differences = self._described(self._pairs_with_baseline)
        return tuple(sorted(differences, key=lambda each: (-each.difference, each.first)))

    @cached_property
    def among_others(self) -> tuple[PairedDifference, ...]:
        """Every pair of systems without the baseline; the other family of tests."""
        return tuple(self._described(self._other_pairs))

    @property
    def compared_count(self) -> int:
        """Number of systems that share a query with the baseline."""
        theirs = self.columns[self.baseline].queries if self.baseline else ()
        own = [each.queries for name, each in self.columns.items() if name != self.baseline]
        return sum(bool(shared_queries([queries, theirs])) for queries in own)

    @cached_property
    def outcomes(self) -> tuple[PairOutcome, ...]:
        """Difference and corrected p-value of the pairs of both families, and nothing else."""
        means: dict[Pair, float] = {}
        for matrix, pairs in self._joined(list(self._tests)):
            means |= zip(pairs, mean_differences(matrix, pairs), strict=True)
        outcomes = [
            PairOutcome(*pair, means[pair], test.corrected) for pair, test in self._tests.items()
        ]
        count = len(outcomes) - sum(pair in self._tests for pair in self._other_pairs)
        against = sorted(outcomes[:count], key=lambda each: (-each.difference, each.first))
        return (*against, *outcomes[count:])

    def difference(self, first: str, second: str) -> PairedDifference | None:
        """First − second; None if the two share no query or one has no scores on this task."""
        for pair in ((first, second), (second, first)):
            if test := self._tests.get(pair):
                (each,) = described_pairs(
                    self.matrix(*pair), [pair], [test], level=self.procedure.level
                )
                return each if each.first == first else each.reversed()
        return None

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
    def _tests(self) -> dict[Pair, PairTest]:
        """Tests of all pairs that share a query, from one set of draws per set of queries."""
        how, families = self.procedure, (self._pairs_with_baseline, self._other_pairs)
        p_values: dict[Pair, float] = {}
        for matrix, pairs in self._joined([pair for family in families for pair in family]):
            drawn = permutation_p_values(matrix, pairs, draws=how.draws, seed=how.seed)
            p_values |= zip(pairs, drawn, strict=True)
        tests: dict[Pair, PairTest] = {}
        for family in families:
            own = {pair: p_values[pair] for pair in family if pair in p_values}
            adjusted = adjust(list(own.values()), how=how.correction)
            for (pair, p), corrected in zip(own.items(), adjusted, strict=True):
                tests[pair] = PairTest(p, corrected, len(own))
        return tests

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

    def _described(self, pairs: Sequence[Pair]) -> list[PairedDifference]:
        """Differences of the ``pairs`` that share a query."""
        tested = [pair for pair in pairs if pair in self._tests]
        differences: dict[Pair, PairedDifference] = {}
        for matrix, group in self._joined(tested):
            tests = [self._tests[pair] for pair in group]
            described = described_pairs(matrix, group, tests, level=self.procedure.level)
            differences |= zip(group, described, strict=True)
        return [differences[pair] for pair in tested]
