"""Scores of several tasks as those of one, weighted where they are read.

The mean over tasks is a sum over queries, weighted by their task's share and the inverse of its
size. A weighted copy of the scores of 200 systems on 100,000 queries takes 170 MB.

Shapes: S systems, n queries, n_t of them of a task.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from qwen3nb.metrics.intervals import Array

_QUERIES_AT_ONCE = 1 << 13


@dataclass(frozen=True)
class WeightedTask:
    """The scores on a task, and what they are in the sum over tasks."""

    scores: Array  # (S, n_t)
    start: int  # of its queries among those of all tasks; tasks may share them
    share: float  # the weight of its mean

    @property
    def end(self) -> int:
        """Position after its last query."""
        return self.start + self.scores.shape[1]

    def add_to(self, rows: Array, first_query: int) -> None:
        """Add its weighted scores to those of some queries (n, S), from the first one on."""
        start = max(self.start, first_query)
        end = min(self.end, first_query + len(rows))
        if start < end:
            scores = self.scores[:, start - self.start : end - self.start].T
            rows[start - first_query : end - first_query] += (
                self.share * scores / self.scores.shape[1]
            )


@dataclass(frozen=True)
class WeightedScores:
    """Sums over tasks of their weighted scores, (n, S) in all."""

    tasks: Sequence[WeightedTask]

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of queries and of systems."""
        return max(task.end for task in self.tasks), len(self.tasks[0].scores)

    def rows(self, start: int, end: int) -> Array:
        """Return the sums of some queries, or of those that there are, (end − start, S)."""
        queries, systems = self.shape
        count = min(end, queries) - start
        # As of an array (S, n): the scores of a system stand together.
        rows = np.zeros((systems, count)).T
        for task in self.tasks:
            task.add_to(rows, start)
        return rows

    def columns(self, systems: Sequence[int]) -> Array:
        """Return the sums of some systems (n, systems)."""
        chosen = list(systems)
        return np.concatenate([rows[:, chosen] for rows in self._blocks()])

    def range(self) -> tuple[float, float]:
        """Return the lowest and the highest sum, 0 among them."""
        lowest, highest = 0.0, 0.0
        for rows in self._blocks():
            lowest = min(lowest, float(rows.min()))
            highest = max(highest, float(rows.max()))
        return lowest, highest

    def _blocks(self) -> Iterator[Array]:
        queries, _ = self.shape
        for start in range(0, queries, _QUERIES_AT_ONCE):
            yield self.rows(start, start + _QUERIES_AT_ONCE)


@dataclass(frozen=True)
class ScoreRows:
    """Scores (n, S) of an array, read as those of `WeightedScores`."""

    scores: Array

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of queries and of systems."""
        queries, systems = self.scores.shape
        return queries, systems

    def rows(self, start: int, end: int) -> Array:
        """Return the scores of some queries."""
        return self.scores[start:end]

    def columns(self, systems: Sequence[int]) -> Array:
        """Return the scores of some systems."""
        return self.scores[:, list(systems)]

    def range(self) -> tuple[float, float]:
        """Return the lowest and the highest score, 0 among them."""
        return float(self.scores.min(initial=0.0)), float(self.scores.max(initial=0.0))
