"""A leaderboard per category of tasks, and reversals of the order between categories."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from qwen3nb.analysis.comparison.by_category import Reversal
from qwen3nb.analysis.comparison.ranking import Ranking, rank_systems
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.utils.format import json_text, number_text
from qwen3nb.utils.markdown import escaped, markdown_table

__all__ = ["CategoryBoards", "category_leaderboards"]


@dataclass(frozen=True)
class CategoryBoards:
    """Rankings over all tasks and within each category.

    Attributes:
        overall: all tasks, weighted equally.
        boards: one ranking per category.
        balanced: systems with their means over categories, weighted equally, from best to
            worst.
        reversals: pairs of systems whose order is reversed: ``weighting`` between weighting
            tasks and weighting categories equally; ``opposed`` in a category in which they
            differ significantly.
        notes: categories without a ranking, with the reason.
    """

    overall: Ranking
    boards: dict[str, Ranking]
    balanced: tuple[tuple[str, float], ...]
    reversals: tuple[Reversal, ...]
    notes: tuple[str, ...]

    def to_json(self) -> str:
        """As strict JSON."""
        return json_text(self)

    def to_markdown(self) -> str:
        """Means and ranks by category, followed by the reversals."""
        heads = ("system", "all tasks", *self.boards, "categories weighted equally")
        balanced = dict(self.balanced)
        standings = [
            {s.system: f"{s.mean:.3f} ({s.rank})" for s in board.standings}
            for board in (self.overall, *self.boards.values())
        ]
        rows = [
            (
                standing.system,
                *(board.get(standing.system, "–") for board in standings),
                number_text(balanced.get(standing.system)),
            )
            for standing in self.overall.standings
        ]
        lines = [f"- {escaped(text)}" for text in (*(r.text for r in self.reversals), *self.notes)]
        return "\n".join([markdown_table(heads, rows), "", "Means, ranks in brackets.", *lines])


def category_leaderboards(
    matrices: Sequence[ScoreMatrix],
    categories: Mapping[str, str],
    *,
    n_resamples: int = DRAWS,
    alpha: float = 0.05,
    seed: int,
) -> CategoryBoards:
    """Rank systems over all tasks and within each category of tasks.

    Args:
        matrices: one per task.
        categories: category per task, such as its type; a task without one forms its own
            category.
        n_resamples: number of sign flips.
        alpha: level of the tests behind tie groups and rank intervals.
        seed: of the sign flips.

    Raises:
        ValueError: as in `rank_systems`, over all tasks.
    """
    groups: dict[str, list[ScoreMatrix]] = {}
    for matrix in matrices:
        groups.setdefault(categories.get(matrix.task, matrix.task), []).append(matrix)
    rank = partial(rank_systems, n_resamples=n_resamples, alpha=alpha, seed=seed)
    overall = rank(matrices)
    boards, notes = {}, []
    for name, group in groups.items():
        try:
            boards[name] = rank(group)
        except ValueError as error:
            notes.append(f"{name}: {error}")
    balanced = _balanced(overall, boards)
    reversals = [*_weighting(overall, balanced), *_opposed(overall, boards)]
    return CategoryBoards(overall, boards, balanced, tuple(reversals), tuple(notes))


def _means(board: Ranking) -> dict[str, float]:
    return {each.system: each.mean for each in board.standings}


def _balanced(overall: Ranking, boards: Mapping[str, Ranking]) -> tuple[tuple[str, float], ...]:
    tables = [_means(board) for board in boards.values()]
    means = {
        each.system: sum(table[each.system] for table in tables) / len(tables)
        for each in overall.standings
        if tables and all(each.system in table for table in tables)
    }
    return tuple(sorted(means.items(), key=lambda item: -item[1]))


def _weighting(overall: Ranking, balanced: tuple[tuple[str, float], ...]) -> list[Reversal]:
    means, other = _means(overall), dict(balanced)
    return [
        Reversal(
            "weighting",
            f"{a} is above {b} by {means[a] - means[b]:.3f} with tasks weighted equally, below it "
            f"by {other[b] - other[a]:.3f} with categories weighted equally",
        )
        for a, b in itertools.combinations(means, 2)
        if a in other and b in other and means[a] > means[b] and other[a] < other[b]
    ]


def _opposed(overall: Ranking, boards: Mapping[str, Ranking]) -> list[Reversal]:
    means = _means(overall)
    reversals = []
    for name, board in boards.items():
        table = _means(board)
        for a, b in itertools.combinations(means, 2):
            turned = a in table and b in table and means[a] > means[b] and table[a] < table[b]
            if turned and not any({a, b} <= set(group) for group in board.groups):
                text = (
                    f"{a} is above {b} over all tasks ({means[a]:.3f}, {means[b]:.3f}), and "
                    f"significantly below it in {name} ({table[a]:.3f}, {table[b]:.3f})"
                )
                reversals.append(Reversal("opposed", text))
    return reversals
