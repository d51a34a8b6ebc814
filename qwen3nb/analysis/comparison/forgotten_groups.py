"""Groups of queries that a training forgot or learned: their own change, and that unlike the rest.

A group is named if it changed unlike the rest (`unlike_the_rest`), and if its own change is shown,
by an interval without 0, or that of all queries. Without either, a difference from the rest says
nothing of a training. Groups with a change of their own come first, as they are what others are
spared. The word says how:

    forgotten     scores fell, and unlike those of the rest
    learned       scores rose, and unlike those of the rest
    left behind   below what the rest changed by, without a fall of its own that is shown
    spared        above what the rest changed by, without a rise of its own that is shown

Where records have them, finer scores decide all of this (`finer_scores`): they also see what falls
from rank 20 to 90. The change that is shown is that of the main metric.
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

    change: PairedDifference  # after minus before, on its queries alone, in the main metric
    test: GroupTest  # against the rest
    finer: PairedDifference | None = None  # the change in the finer scores, if these decide

    @property
    def decisive(self) -> PairedDifference:
        """The change that decides: in the finer scores, if there are any."""
        return self.finer or self.change

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
        is_own = _is_shown(self.decisive)
        if (self.test.difference or 0.0) < 0:
            has_fallen = is_own and self.decisive.difference < 0
            return Verdict.FORGOTTEN if has_fallen else Verdict.LEFT_BEHIND
        has_risen = is_own and self.decisive.difference > 0
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
    finer: ScoreMatrix | None = None,
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
        finer: finer scores on the same queries, which then decide; by default, ``matrix`` does.
        alpha: the family-wise error rate of naming a group.
        n_resamples: number of shuffles, and of sign flips.
        seed: of both.

    Returns:
        The change over all queries, and those of the groups, the named ones first. Of groups
        that are not listed, only the named ones are returned.
    """
    decisive = finer or matrix

    @cache
    def decisive_change_of(group: QueryGroup) -> PairedDifference:
        return change_on(decisive, group.members)

    def change_on(scores: ScoreMatrix, members: Sequence[int]) -> PairedDifference:
        part = scores.at(members)
        (change,) = paired_differences(part, pairs=[(after, before)], draws=n_resamples, seed=seed)
        return change

    every_query = range(len(matrix.queries))
    is_overall_shown = change_on(decisive, every_query).significant(alpha)

    def turn_of(group: QueryGroup) -> int:
        if _is_shown(decisive_change_of(group)):
            return 1
        return 2 if is_overall_shown else 0

    tests = unlike_the_rest(
        decisive.column(after) - decisive.column(before),
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
            change = change_on(matrix, test.group.members)
            in_finer = None if finer is None else decisive_change_of(test.group)
            changes.append(GroupChange(change, test, in_finer))
    return change_on(matrix, every_query), changes
