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

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qwen3nb.analysis.comparison.differences import significant
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.paired_tests import mean_difference, permutation_test
from qwen3nb.analysis.stats.resampling import DRAWS, draw_seed
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.metrics.intervals import Interval
from qwen3nb.utils.format import interval_text, json_text, number_text
from qwen3nb.utils.markdown import escaped, markdown_table

__all__ = ["Breakdown", "CategoryRow", "Reversal", "breakdown"]

OTHER = "(no category)"


@dataclass(frozen=True)
class CategoryRow:
    """Two systems on one category.

    Attributes:
        category: its name.
        n: number of queries that both answered.
        first: mean of a; ``second`` is that of b.
        difference: mean of a − b.
        interval: of the difference, or None for a single query.
        p_value: paired permutation test, adjusted by Holm over the categories.
    """

    category: str
    n: int
    first: float
    second: float
    difference: float
    interval: Interval | None
    p_value: float


@dataclass(frozen=True)
class Reversal:
    """A reversal of the order of two systems.

    Attributes:
        kind: ``opposed``, ``weighting`` or ``coverage``.
        text: description with the numbers.
    """

    kind: str
    text: str


@dataclass(frozen=True)
class Breakdown:
    """Two systems by category.

    Attributes:
        first: name of a; ``second`` is that of b.
        overall: the difference over all queries.
        rows: one per category, ordered by name.
        reversals: reversals of the order; may be empty.
        notes: queries that do not pair.
    """

    first: str
    second: str
    overall: CategoryRow
    rows: tuple[CategoryRow, ...]
    reversals: tuple[Reversal, ...]
    notes: tuple[str, ...]

    def to_json(self) -> str:
        """As strict JSON."""
        return json_text(self)

    def to_markdown(self) -> str:
        """As a Markdown table followed by the reversals."""
        heads = ("category", "queries", self.first, self.second, "difference", "interval", "p")
        rows = [
            (
                row.category,
                str(row.n),
                number_text(row.first),
                number_text(row.second),
                number_text(row.difference, sign=True),
                interval_text(row.interval),
                f"{row.p_value:.4f}",
            )
            for row in (*self.rows, self.overall)
        ]
        lines = [f"- {escaped(each.text)}" for each in self.reversals]
        lines += [f"- {escaped(note)}" for note in self.notes]
        return "\n".join([markdown_table(heads, rows), "", *lines])


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

    def row(name: str, members: list[int]) -> CategoryRow:
        a, b = matrix.scores[:, members]
        drawn = draw_seed(seed, [matrix.queries[index] for index in members])
        estimate = mean_difference(a, b)
        p = permutation_test(a, b, n_resamples=n_resamples, seed=drawn).p_value
        return CategoryRow(
            name,
            len(members),
            float(a.mean()),
            float(b.mean()),
            estimate.difference,
            estimate.interval,
            p,
        )

    rows = [row(name, members) for name, members in sorted(groups.items())]
    adjusted = adjust([each.p_value for each in rows])
    rows = [
        CategoryRow(r.category, r.n, r.first, r.second, r.difference, r.interval, p)
        for r, p in zip(rows, adjusted, strict=True)
    ]
    overall = row("all", list(range(len(matrix.queries))))
    reversals = [
        *_opposed(overall, rows, alpha),
        *_weighting(overall, rows),
        *_coverage(overall, first, second, names),
    ]
    return Breakdown(*names, overall, tuple(rows), tuple(reversals), matrix.notes)


def _opposed(overall: CategoryRow, rows: list[CategoryRow], alpha: float) -> list[Reversal]:
    return [
        Reversal(
            "opposed",
            f"{row.category}: {row.difference:+.3f} on {row.n} queries (p = {row.p_value:.4f}), "
            f"against {overall.difference:+.3f} on all {overall.n}",
        )
        for row in rows
        if row.difference * overall.difference < 0
        and significant(row.p_value, row.interval, alpha=alpha)
    ]


def _weighting(overall: CategoryRow, rows: list[CategoryRow]) -> list[Reversal]:
    by_category = float(np.mean([row.difference for row in rows]))
    if by_category * overall.difference >= 0:
        return []
    return [
        Reversal(
            "weighting",
            f"{overall.difference:+.3f} with queries weighted equally, {by_category:+.3f} with "
            "categories weighted equally",
        )
    ]


def _coverage(
    overall: CategoryRow,
    first: Mapping[str, float],
    second: Mapping[str, float],
    names: tuple[str, str],
) -> list[Reversal]:
    own = float(np.mean(list(first.values())) - np.mean(list(second.values())))
    if own * overall.difference >= 0:
        return []
    return [
        Reversal(
            "coverage",
            f"the means over each system's own queries differ by {own:+.3f} "
            f"({names[0]}: {len(first)}, {names[1]}: {len(second)} queries), the means over the "
            f"{overall.n} shared queries by {overall.difference:+.3f}",
        )
    ]
