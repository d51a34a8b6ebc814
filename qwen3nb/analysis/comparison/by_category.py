"""Where a difference comes from: categories of queries, and reversals of the order.

The mean of paired differences over all queries is a weighted mean of those over the
categories, so it cannot lie outside them. The order can still be reversed, and each way is
flagged:

    opposed     one category is significantly against the whole
    weighting   every query counting once, and every category counting once, disagree
    coverage    each system's mean over the queries it has orders them otherwise than the
                queries both have (Simpson 1951: unequal mixtures)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from qwen3nb.analysis.comparison.alignment import join
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.paired_tests import paired_bootstrap, permutation_test
from qwen3nb.analysis.stats.resampling import DRAWS, Interval, draw_seed
from qwen3nb.utils.format import interval_text, json_text, number_text
from qwen3nb.utils.markdown import escaped, markdown_table

__all__ = ["Breakdown", "CategoryRow", "Reversal", "breakdown"]

OTHER = "(no category)"


@dataclass(frozen=True)
class CategoryRow:
    """Two systems on one category.

    Attributes:
        category: its name.
        n: queries both answered.
        first: mean of a; ``second`` is b's.
        difference: mean of a − b.
        interval: percentile bootstrap interval, or None for a single query.
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
        text: the reversal in words, with the numbers.
    """

    kind: str
    text: str


@dataclass(frozen=True)
class Breakdown:
    """Two systems by category.

    Attributes:
        first: name of a; ``second`` of b.
        overall: all queries.
        rows: one per category, by name.
        reversals: reversals of the order; may be empty.
        notes: queries that do not pair, or have no category.
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
        """As a Markdown table, with the reversals below it."""
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
        categories: category per query id; queries without one are a category of their own.
        names: of the two systems.
        n_resamples: of bootstrap and permutation.
        alpha: level at which a category counts as opposed to the whole, after Holm over
            the categories.
        seed: of the draws.

    Raises:
        ValueError: no query in common, or a value that is not finite.
    """
    matrix = join({names[0]: first, names[1]: second})
    groups: dict[str, list[int]] = {}
    for index, query in enumerate(matrix.queries):
        groups.setdefault(categories.get(query, OTHER), []).append(index)

    def row(name: str, chosen: list[int]) -> CategoryRow:
        a, b = matrix.scores[:, chosen]
        drawn = draw_seed(seed, [matrix.queries[index] for index in chosen])
        found = paired_bootstrap(a, b, n_resamples=n_resamples, seed=drawn)
        p = permutation_test(a, b, n_resamples=n_resamples, seed=drawn).p_value
        return CategoryRow(
            name, len(chosen), float(a.mean()), float(b.mean()), found.difference, found.interval, p
        )

    rows = [row(name, chosen) for name, chosen in sorted(groups.items())]
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
        if row.difference * overall.difference < 0 and row.p_value < alpha
    ]


def _weighting(overall: CategoryRow, rows: list[CategoryRow]) -> list[Reversal]:
    by_category = float(np.mean([row.difference for row in rows]))
    if by_category * overall.difference >= 0:
        return []
    return [
        Reversal(
            "weighting",
            f"every query counting once gives {overall.difference:+.3f}, every category "
            f"counting once {by_category:+.3f}",
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
            f"the means over the queries each system has differ by {own:+.3f} "
            f"({names[0]}: {len(first)}, {names[1]}: {len(second)} queries), those over the "
            f"{overall.n} queries both have by {overall.difference:+.3f}",
        )
    ]
