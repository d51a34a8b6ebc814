"""What may hide behind a paired difference on a search, and whether it could turn the verdict.

    nothing found    queries for which a model retrieved no document, and scored 0
    unjudged         first documents without a judgement; see `qwen3nb.answers.unjudged`
    saturated        queries on which every model has the highest score, or the lowest

A verdict rests on queries for which nothing was found if it is not shown without them. Then there
is none.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from qwen3nb.analysis.comparison.alignment import nothing_found
from qwen3nb.analysis.comparison.differences import (
    PairedDifference,
    TaskComparison,
    significant,
)
from qwen3nb.analysis.stats.score_matrix import shared_queries, system_scores
from qwen3nb.answers.comparison import Comparison
from qwen3nb.answers.unjudged import shown_direction
from qwen3nb.metrics.retrieval import JUDGED
from qwen3nb.records.record import Result

_SATURATED = 0.95  # share of queries from which a metric is at its ceiling or floor


@dataclass(frozen=True)
class Saturation:
    """A metric at its ceiling or floor for every model."""

    metric: str
    end: str  # ``ceiling`` or ``floor``
    queries: int  # on which every model has that score
    n: int  # of so many

    @property
    def text(self) -> str:
        """The finding in a sentence."""
        score = "1" if self.end == "ceiling" else "0"
        return (
            f"{self.metric} is at its {self.end}: every model has {score} on {self.queries} of "
            f"{self.n} queries, and more queries like these cannot tell models apart"
        )


def judged_share(result: Result) -> float | None:
    """Return the share of judged documents among the first ten; None if it is not recorded."""
    measured = result.metrics.get(JUDGED)
    return None if measured is None else measured.value


def not_found_doubts(
    difference: PairedDifference, comparison: Comparison, records: Mapping[str, Result]
) -> tuple[str, ...]:
    """Say which model found nothing for queries on which a verdict rests; empty if it does not.

    ``records`` are by name of the system.
    """
    doubts = []
    for model in (difference.first, difference.second):
        queries = nothing_found(records[model], difference.metric)
        if queries and _verdict_rests_on(queries, difference, comparison):
            doubts.append(f"{model} found nothing for {len(queries)} of {difference.n} queries")
    return tuple(doubts)


def _verdict_rests_on(
    queries: Collection[str], difference: PairedDifference, comparison: Comparison
) -> bool:
    """Return whether a verdict is shown only with queries for which a model found nothing.

    Without them, the difference must exceed the margin, and its own test, not corrected for the
    other pairs, must show it.
    """
    task = comparison.on(difference.task, difference.metric)
    direction = shown_direction(difference, comparison)
    # Only better and worse can rest on a few queries.
    if task is None or direction == 0:
        return False
    columns = {}
    for model in (difference.first, difference.second):
        column = task.columns[model]
        remaining = tuple(query for query in column.queries if query not in queries)
        columns[model] = system_scores(remaining, column.on(remaining))
    # No query is left for which both found something.
    if not shared_queries([column.queries for column in columns.values()]):
        return True
    task_without_them = replace(task, columns=columns)
    without_them = task_without_them.difference(difference.first, difference.second)
    if without_them is None:
        return True
    procedure = comparison.procedure
    if not significant(without_them.p_value, without_them.interval, alpha=procedure.alpha):
        return True
    # The difference must exceed the margin in the same direction as before.
    return direction * without_them.difference <= procedure.margin


def is_worse(difference: PairedDifference, comparison: Comparison) -> bool:
    """Return whether a candidate is shown to be worse by more than the margin."""
    return shown_direction(difference, comparison) < 0


def saturation(task: TaskComparison) -> Saturation | None:
    """Return that a metric is at its ceiling or floor for all models; None if it is not."""
    if not shared_queries([column.queries for column in task.columns.values()]):
        return None  # no query that all models answered
    matrix = task.matrix(*task.columns)
    n = len(matrix.queries)
    for end, extreme_score in (("ceiling", 1.0), ("floor", 0.0)):
        # The scores are a row per model and a column per query.
        is_extreme = (matrix.scores == extreme_score).all(axis=0)
        queries = int(is_extreme.sum())
        if queries >= _SATURATED * n:
            return Saturation(task.metric, end, queries, n)
    return None
