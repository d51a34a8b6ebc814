"""The rule that decides whether a candidate should replace the model in use.

A candidate is called better (or worse) than the model in use if the corrected p-value is below
``alpha`` **and** the difference is larger than ``minimum``; otherwise there is no significant
difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qwen3nb.analysis.comparison.compare import Comparison
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.analysis.comparison.task_comparison import Procedure, TaskComparison
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.utils.format import p_value_text

__all__ = ["QueryChange", "Recommendation", "largest_changes", "recommend", "rule"]

NO_DIFFERENCE = "no significant difference"


@dataclass(frozen=True)
class Recommendation:
    """The rule's verdict on one candidate.

    Attributes:
        model: its name.
        verdict: ``better``, ``worse`` or ``no significant difference``.
        text: the verdict with its reason.
    """

    model: str
    verdict: str
    text: str


@dataclass(frozen=True)
class QueryChange:
    """A query on which a candidate and the model in use differ.

    Attributes:
        model: name of the candidate.
        query: id of the query.
        current: score of the model in use.
        score: score of the candidate.
        difference: candidate − model in use.
    """

    model: str
    query: str
    current: float
    score: float
    difference: float


def recommend(difference: PairedDifference, *, procedure: Procedure) -> Recommendation:
    """Apply the rule to a candidate's difference from the model in use."""
    significant = difference.corrected < procedure.alpha
    large = abs(difference.difference) > procedure.minimum
    verdict = NO_DIFFERENCE
    if significant and large:
        verdict = "better" if difference.difference > 0 else "worse"
    text = (
        f"{verdict}: {difference.metric} differs by {difference.difference:+.3f} "
        f"(corrected p {p_value_text(difference.corrected, relation=True)}, n = {difference.n})"
    )
    if significant and not large:
        text += f": significant, but not larger than {procedure.minimum:g}"
    if large and not significant:
        text += f": larger than {procedure.minimum:g}, but not significant"
    return Recommendation(difference.first, verdict, text)


def rule(comparison: Comparison, deciding: TaskComparison) -> str:
    """The rule in words, with its parameters and the family of tests."""
    how = comparison.procedure
    return (
        f"Rule: better or worse if the corrected p-value of {deciding.metric} is below "
        f"{how.alpha:g} and the difference is larger than {how.minimum:g}; otherwise no "
        f"significant difference. Two-sided paired permutation test ({how.draws:,} sign flips), "
        f"{comparison.family()}."
    )


def largest_changes(matrix: ScoreMatrix, *, most: int) -> list[QueryChange]:
    """The queries on which the two systems differ most, largest change first.

    Args:
        matrix: scores of the candidate and the model in use, in this order.
        most: maximum number of queries; unchanged queries are never listed.
    """
    ours, theirs = matrix.scores
    changes: Sequence[QueryChange] = [
        QueryChange(matrix.systems[0], query, float(b), float(a), float(a - b))
        for query, a, b in zip(matrix.queries, ours, theirs, strict=True)
        if a != b
    ]
    return sorted(changes, key=lambda change: (-abs(change.difference), change.query))[:most]
