"""What may hide behind a paired difference on a search, and whether it could turn the verdict.

    nothing found    queries for which a model retrieved no document, and scored 0
    unjudged         first documents without a judgement, which count as not relevant
    saturated        queries on which every model has the highest score, or the lowest

A verdict rests on queries for which nothing was found if it is not shown without them. It could
turn if it is another one once one of the two models has the scores that it would have if all its
first documents without a judgement were relevant, and those of the other model were not: the best
case of the one against the worst of the other. In both cases there is no verdict.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from qwen3nb.analysis.comparison.alignment import nothing_found
from qwen3nb.analysis.comparison.differences import (
    PairedDifference,
    TaskComparison,
    Verdict,
    significant,
)
from qwen3nb.analysis.stats.score_matrix import shared_queries, system_scores
from qwen3nb.answers.comparison import Comparison
from qwen3nb.metrics.retrieval import JUDGED, METRICS, UNJUDGED, Measure, relevance
from qwen3nb.records.record import Result

_NAMED = 3  # documents to judge that are named
_SATURATED = 0.95  # share of queries from which a metric is at its ceiling or floor


@dataclass(frozen=True)
class Doubt:
    """A cause for which the verdict on a difference could turn, in words."""

    model: str  # whose score may be too low
    text: str


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


def scores_if_relevant(result: Result, metric: str) -> dict[str, float]:
    """Return the scores of queries if every first document without a judgement were relevant.

    No score is lower than the recorded one. Empty if the record has no judgements, or the metric
    counts more documents than it has.
    """
    judgements = result.data.judgements
    name = metric.partition("@")[0]
    if judgements is None or name not in METRICS or name == "Judged":
        return {}
    measure, scores = Measure(metric), dict(result.per_query.get(metric, {}))
    threshold = result.data.relevance_threshold or 1
    for query, judged in judgements.items():
        first, ideal = judged["first"], judged["ideal"]
        if query not in scores or UNJUDGED not in first or measure.depth > 10:
            continue
        if not measure.graded:
            first = [relevance(grade, threshold) for grade in first]
            ideal = [1 for grade in ideal if grade >= threshold]
        best = max(ideal)
        raised = [best if grade == UNJUDGED else grade for grade in first]
        every = sorted([*ideal, *[best] * first.count(UNJUDGED)], reverse=True)
        scores[query] = max(scores[query], measure.score(raised, every))
    return scores


def doubts_of(
    difference: PairedDifference, comparison: Comparison, records: Mapping[str, Result]
) -> tuple[list[Doubt], list[Doubt]]:
    """Return what a verdict rests on that was not found, and what is unjudged and could turn it.

    ``records`` are by name of the system.
    """
    empty, unjudged = [], []
    metric = difference.metric
    for model in (difference.first, difference.second):
        record = records[model]
        queries = nothing_found(record, metric)
        if queries and rests_on(queries, difference, comparison):
            empty.append(
                Doubt(model, f"{model} found nothing for {len(queries)} of {difference.n} queries")
            )
        scores = scores_if_relevant(record, metric)
        if scores and turns_with(scores, model, difference, comparison):
            unjudged.append(Doubt(model, _unjudged_text(model, to_judge(record, metric))))
    return empty, unjudged


def to_judge(result: Result, metric: str) -> dict[str, str]:
    """Return the first document without a judgement of each query whose score it could raise.

    The name of a document is empty if the record has no rankings.
    """
    recorded = result.per_query.get(metric, {})
    judgements = result.data.judgements or {}
    rankings = result.top or {}
    documents = {}
    for query, score in scores_if_relevant(result, metric).items():
        if score > recorded[query]:
            rank = judgements[query]["first"].index(UNJUDGED)
            ranking = rankings.get(query, ())
            documents[query] = ""
            if rank < len(ranking):
                documents[query] = ranking[rank]
    return documents


def _unjudged_text(model: str, documents: Mapping[str, str]) -> str:
    """Name the documents to judge first."""
    named = [f"{name} for {query}" for query, name in documents.items() if name]
    text = f"documents without a judgement that {model} found for {len(documents)} queries"
    if named:
        text += f" (judge first {', '.join(named[:_NAMED])}"
        if len(named) > _NAMED:
            text += f" and {len(named) - _NAMED} more"
        text += ")"
    return text


def rests_on(
    queries: Collection[str], difference: PairedDifference, comparison: Comparison
) -> bool:
    """Return whether a verdict is shown only with queries for which a model found nothing.

    Without them, the difference must exceed the margin, and its own test, not corrected for the
    other pairs, must show it.
    """
    task = comparison.on(difference.task, difference.metric)
    side = _side(difference, comparison)
    if task is None or side == 0:
        return False
    columns = {}
    for model in (difference.first, difference.second):
        column = task.columns[model]
        others = tuple(query for query in column.queries if query not in queries)
        columns[model] = system_scores(others, column.on(others))
    if not shared_queries([column.queries for column in columns.values()]):
        return True
    other = replace(task, columns=columns).difference(difference.first, difference.second)
    if other is None:
        return True
    procedure = comparison.procedure
    shown = significant(other.p_value, other.interval, alpha=procedure.alpha)
    return not shown or side * other.difference <= procedure.margin


def turns_with(
    scores: Mapping[str, float], model: str, difference: PairedDifference, comparison: Comparison
) -> bool:
    """Return whether the verdict on a difference fails with other scores of a model.

    Better and worse must stay what they are. A candidate that is no worse may become better, but
    an equivalent one may not.
    """
    task = comparison.on(difference.task, difference.metric)
    if task is None:
        return False
    column = task.columns[model]
    values = np.array(column.scores, dtype=float)
    for row, query in enumerate(column.queries):
        values[row] = scores.get(query, values[row])
    columns = {**task.columns, model: system_scores(column.queries, values)}
    other = replace(task, columns=columns).difference(difference.first, difference.second)
    if other is None:
        return False
    before, after = comparison.find_verdict(difference), comparison.find_verdict(other)
    if before is Verdict.NO_WORSE:
        return after in (Verdict.NOT_SHOWN, Verdict.WORSE)
    if before is Verdict.EQUIVALENT:
        return after is not Verdict.EQUIVALENT
    return _side(other, comparison) != _side(difference, comparison)


def is_claim(difference: PairedDifference, comparison: Comparison) -> bool:
    """Return whether the verdict on a difference says more than that none is shown."""
    return comparison.find_verdict(difference) is not Verdict.NOT_SHOWN


def is_worse(difference: PairedDifference, comparison: Comparison) -> bool:
    """Return whether a candidate is shown to be worse by more than the margin."""
    return _side(difference, comparison) < 0


def _side(difference: PairedDifference, comparison: Comparison) -> int:
    """Return 1 for better by more than the margin, -1 for worse, 0 if neither is shown."""
    procedure = comparison.procedure
    if not difference.significant(procedure.alpha):
        return 0
    if abs(difference.difference) <= procedure.margin:
        return 0
    return 1 if difference.difference > 0 else -1


def saturation(task: TaskComparison) -> Saturation | None:
    """Return that a metric is at its ceiling or floor for all models; None if it is not."""
    if not shared_queries([column.queries for column in task.columns.values()]):
        return None
    matrix = task.matrix(*task.columns)
    n = len(matrix.queries)
    for end, score in (("ceiling", 1.0), ("floor", 0.0)):
        queries = int((matrix.scores == score).all(axis=0).sum())
        if queries >= _SATURATED * n:
            return Saturation(task.metric, end, queries, n)
    return None
