"""Groups of queries that a training forgot or learned: their own change, and that unlike the rest.

A group is named if it changed unlike the rest (`unlike_the_rest`), and if its own change is shown,
by an interval without 0, or that of all queries. Without either, a difference from the rest says
nothing of a training. Groups with a change of their own come first, as they are what others are
spared. The word says how:

    forgotten     scores fell, and unlike those of the rest
    learned       scores rose, and unlike those of the rest
    left behind   below what the rest changed by, without a fall of its own that is shown
    spared        above what the rest changed by, without a rise of its own that is shown
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from qwen3nb.analysis.comparison.differences import ALPHA, PairedDifference, paired_differences
from qwen3nb.analysis.comparison.group_changes import GroupTest, QueryGroup, unlike_the_rest
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.metrics.intervals import excludes_zero


class Verdict(StrEnum):
    """How a group changed, next to the rest."""

    FORGOTTEN = "forgotten"
    LEARNED = "learned"
    LEFT_BEHIND = "left behind"
    SPARED = "spared"
    AS_THE_REST = "as the rest"
    TOO_SMALL = "too small"


@dataclass(frozen=True)
class GroupChange:
    """How the scores of a group of queries changed."""

    change: PairedDifference  # after minus before, on its queries alone
    test: GroupTest  # against the rest

    @property
    def group(self) -> QueryGroup:
        """Its queries."""
        return self.test.group

    @property
    def verdict(self) -> Verdict:
        """What is shown of it."""
        if self.test.p_value is None:
            return Verdict.TOO_SMALL
        if not self.test.is_named:
            return Verdict.AS_THE_REST
        is_own = _is_shown(self.change)
        if (self.test.difference or 0.0) < 0:
            has_fallen = is_own and self.change.difference < 0
            return Verdict.FORGOTTEN if has_fallen else Verdict.LEFT_BEHIND
        has_risen = is_own and self.change.difference > 0
        return Verdict.LEARNED if has_risen else Verdict.SPARED

    @property
    def label(self) -> str:
        """What its group is, such as ``topic “heat, transfer, blunt”``."""
        return self.group.label


def _is_shown(change: PairedDifference) -> bool:
    """Whether the interval of a change excludes 0."""
    return change.interval is not None and excludes_zero(change.interval)


def compare_groups(
    matrix: ScoreMatrix,
    groups: Sequence[QueryGroup],
    *,
    before: str,
    after: str,
    alpha: float = ALPHA,
    n_resamples: int = DRAWS,
    seed: int = 0,
) -> tuple[PairedDifference, list[GroupChange]]:
    """Compare groups before and after, each on its own, and all together against the rest.

    Args:
        matrix: scores of both models.
        groups: of its queries, by position.
        before: the name of the earlier model.
        after: the name of the later model.
        alpha: the family-wise error rate of naming a group.
        n_resamples: number of shuffles, and of sign flips.
        seed: of both.

    Returns:
        The change over all queries, and those of the groups, the named ones first. Of groups
        that are not listed, only the named ones are returned.
    """

    @cache
    def change_of(group: QueryGroup) -> PairedDifference:
        return change_on(group.members)

    def change_on(members: Sequence[int]) -> PairedDifference:
        part = matrix.at(members)
        (change,) = paired_differences(part, pairs=[(after, before)], draws=n_resamples, seed=seed)
        return change

    overall = change_on(range(len(matrix.queries)))
    is_overall_shown = overall.significant(alpha)

    def turn_of(group: QueryGroup) -> int:
        if _is_shown(change_of(group)):
            return 1
        return 2 if is_overall_shown else 0

    tests = unlike_the_rest(
        matrix.column(after) - matrix.column(before),
        groups,
        clusters=matrix.clusters,
        turn_of=turn_of,
        alpha=alpha,
        n_resamples=n_resamples,
        seed=seed,
    )
    changes = []
    for test in tests:
        if test.group.is_listed or test.is_named:
            changes.append(GroupChange(change_of(test.group), test))
    return overall, changes
