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
    ALPHA,
    PairedDifference,
    PairTest,
    described_pairs,
    mean_differences,
    permutation_p_values,
)
from qwen3nb.analysis.stats.multiple_testing import adjust, enough_draws
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

    alpha: float = ALPHA
    minimum: float = 0.05
    correction: str = "holm"
    draws: int = DRAWS
    level: float = LEVEL
    seed: int = 0

    def decides_at(self, family: int) -> float:
        """The level at which one of a family of tests decides, before any other has.

        That is Holm's first step, so it holds for every pair, whatever comes of the others.
        """
        return self.alpha if self.correction == "none" else self.alpha / max(1, family)


class PairOutcome(NamedTuple):
    """What came of comparing two systems: first − second, and whether that is significant."""

    first: str
    second: str
    difference: float
    significant: bool


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
        """Every system against the baseline, largest difference first."""
        others = [name for name in self.columns if name != self.baseline and self.baseline]
        differences = self._described([(name, self.baseline) for name in others])
        return tuple(sorted(differences, key=lambda each: (-each.difference, each.first)))

    @property
    def family(self) -> int:
        """Number of pairs of systems that share a query, all of which are one family of tests."""
        return sum(map(len, self._groups(self._pairs)))

    @property
    def draws(self) -> int:
        """Number of sign flips: the procedure's, or as many as so many pairs need."""
        how = self.procedure
        return enough_draws(self.family, draws=how.draws, alpha=how.alpha, how=how.correction)

    @cached_property
    def outcomes(self) -> tuple[PairOutcome, ...]:
        """Difference and significance of every pair, and nothing else."""
        alpha, outcomes = self.procedure.alpha, []
        for matrix, pairs in self._joined(self._pairs):
            low = [pair for pair in pairs if self._tests[frozenset(pair)].corrected < alpha]
            shown = {
                (each.first, each.second)
                for each in self._described(low)
                if each.significant(alpha)
            }
            means = zip(pairs, mean_differences(matrix, pairs), strict=True)
            outcomes += [PairOutcome(*pair, mean, pair in shown) for pair, mean in means]
        return tuple(outcomes)

    def difference(self, first: str, second: str) -> PairedDifference | None:
        """First − second; None if the two share no query or one has no scores on this task."""
        if first == second or not {first, second} <= self.columns.keys():
            return None
        return next(iter(self._described([(first, second)])), None)

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
    def _pairs(self) -> list[Pair]:
        return list(itertools.combinations(self.columns, 2))

    @cached_property
    def _tests(self) -> dict[frozenset[str], PairTest]:
        """Tests of all pairs that share a query, from one set of draws per set of queries."""
        p_values: dict[frozenset[str], float] = {}
        for matrix, pairs in self._joined(self._pairs):
            p_values |= zip(map(frozenset, pairs), self._drawn(matrix, pairs), strict=True)
        adjusted = adjust(list(p_values.values()), how=self.procedure.correction)
        return {
            pair: PairTest(p, corrected, len(p_values))
            for (pair, p), corrected in zip(p_values.items(), adjusted, strict=True)
        }

    def _drawn(self, matrix: ScoreMatrix, pairs: Sequence[Pair]) -> list[float]:
        """P-values of pairs of systems, uncorrected, from one set of draws."""
        return permutation_p_values(matrix, pairs, draws=self.draws, seed=self.procedure.seed)

    def _groups(self, pairs: Sequence[Pair]) -> list[list[Pair]]:
        """The pairs that share a query, by the set of queries that they share."""
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
        return list(groups.values())

    def _joined(self, pairs: Sequence[Pair]) -> Iterator[tuple[ScoreMatrix, list[Pair]]]:
        """Yield the pairs that share the same queries, with the scores of their systems."""
        for group in self._groups(pairs):
            systems = dict.fromkeys(name for pair in group for name in pair)
            columns = {name: self.columns[name] for name in systems}
            yield join(columns, task=self.task, metric=self.metric), group

    def _described(self, pairs: Sequence[Pair]) -> list[PairedDifference]:
        """Differences of the ``pairs`` that share a query, in their order."""
        differences: dict[Pair, PairedDifference] = {}
        for matrix, group in self._joined(pairs):
            tests = [self._tests[frozenset(pair)] for pair in group]
            described = described_pairs(matrix, group, tests, level=self.procedure.level)
            differences |= zip(group, described, strict=True)
        return [differences[pair] for pair in pairs if pair in differences]
