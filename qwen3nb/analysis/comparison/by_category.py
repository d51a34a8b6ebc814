"""Paired differences by category of queries, and reversals of the order.

The mean difference over all queries is a weighted mean of the differences within categories,
so it cannot lie outside their range. The order of two systems can still be reversed in three
ways, each of which is flagged:

    opposed     a category differs significantly in the opposite direction
    weighting   weighting queries equally and weighting categories equally disagree
    coverage    means over each system's own queries and means over the shared queries
                disagree (Simpson 1951: unequal mixtures)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qwen3nb.analysis.comparison.differences import significant
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.paired_tests import mean_difference, permutation_test
from qwen3nb.analysis.stats.resampling import DRAWS, draw_seed
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.metrics.intervals import Interval

OTHER = "(no category)"


@dataclass(frozen=True)
class CategoryRow:
    """Two systems on one category."""

    category: str
    n: int  # number of queries that both answered
    first: float  # mean of a; ``second`` is that of b
    second: float
    difference: float  # mean of a - b
    interval: Interval | None  # of the difference, or None for a single query
    p_value: float  # paired permutation test, adjusted by Holm over the categories


@dataclass(frozen=True)
class Reversal:
    """A reversal of the order of two systems."""

    kind: str  # ``opposed``, ``weighting`` or ``coverage``
    text: str  # description with the numbers


@dataclass(frozen=True)
class Breakdown:
    """Two systems by category."""

    first: str  # name of a; ``second`` is that of b
    second: str
    overall: CategoryRow  # the difference over all queries
    rows: tuple[CategoryRow, ...]  # one per category, ordered by name
    reversals: tuple[Reversal, ...]  # reversals of the order; may be empty
    notes: tuple[str, ...]  # queries that do not pair


def breakdown(
    first: Mapping[str, float],
    second: Mapping[str, float],
    categories: Mapping[str, str],
    *,
    names: tuple[str, str] = ("a", "b"),
    n_resamples: int = DRAWS,
    alpha: float = 0.05,
    seed: int,
) -> Breakdown:
    """Compare two systems within each category of queries.

    Args:
        first: score per query id of a.
        second: of b.
        categories: category per query id; queries without one form a category together.
        names: of the two systems.
        n_resamples: number of sign flips.
        alpha: level at which a category counts as opposed, after Holm's correction over the
            categories.
        seed: of the draws.

    Raises:
        ValueError: no query in common, or a value that is not finite.
    """
    matrix = join({names[0]: first, names[1]: second})
    groups: dict[str, list[int]] = {}
    for index, query in enumerate(matrix.queries):
        groups.setdefault(categories.get(query, OTHER), []).append(index)

    def row(name: str, members: Sequence[int]) -> CategoryRow:
        a, b = matrix.scores[:, members]
        drawn = draw_seed(seed, [matrix.queries[index] for index in members])
        estimate = mean_difference(a, b)
        p = permutation_test(a, b, n_resamples=n_resamples, seed=drawn).p_value
        means = float(a.mean()), float(b.mean())
        return CategoryRow(name, estimate.n, *means, estimate.difference, estimate.interval, p)

    rows = [row(name, members) for name, members in sorted(groups.items())]
    adjusted = adjust([each.p_value for each in rows])
    rows = [replace(each, p_value=p) for each, p in zip(rows, adjusted, strict=True)]
    overall = row("all", range(len(matrix.queries)))
    own = [
        (name, list(scores.values())) for name, scores in zip(names, (first, second), strict=True)
    ]
    reversals = tuple(_reversals(overall, rows, own, alpha))
    return Breakdown(*names, overall, tuple(rows), reversals, matrix.notes)


def _reversals(
    overall: CategoryRow,
    rows: Sequence[CategoryRow],
    own: Sequence[tuple[str, Sequence[float]]],
    alpha: float,
) -> Iterator[Reversal]:
    """Yield the reversals; ``own`` are the names of the systems and the scores that each has."""
    for each in rows:
        opposed = each.difference * overall.difference < 0
        if opposed and significant(each.p_value, each.interval, alpha=alpha):
            yield Reversal(
                "opposed",
                f"{each.category}: {each.difference:+.3f} on {each.n} queries "
                f"(p = {each.p_value:.4f}), against {overall.difference:+.3f} on all {overall.n}",
            )
    by_category = float(np.mean([each.difference for each in rows]))
    if by_category * overall.difference < 0:
        yield Reversal(
            "weighting",
            f"{overall.difference:+.3f} with queries weighted equally, {by_category:+.3f} with "
            "categories weighted equally",
        )
    (a, ours), (b, theirs) = own
    apart = float(np.mean(ours) - np.mean(theirs))
    if apart * overall.difference < 0:
        yield Reversal(
            "coverage",
            f"the means over each system's own queries differ by {apart:+.3f} "
            f"({a}: {len(ours)}, {b}: {len(theirs)} queries), the means over the "
            f"{overall.n} shared queries by {overall.difference:+.3f}",
        )
