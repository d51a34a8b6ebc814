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
from qwen3nb.records.details import Judgements
from qwen3nb.records.record import Result

_MOST_NAMED = 3  # documents to judge first; more are counted
_JUDGED_DOCUMENTS = 10  # first documents of a query whose grades a record has
_SATURATED = 0.95  # share of queries from which a metric is at its ceiling or floor


@dataclass(frozen=True)
class Doubts:
    """Why the verdict on a difference could turn, in words: causes with the model they are of."""

    nothing_found: tuple[str, ...]  # without these queries, the verdict is not shown
    unjudged: tuple[str, ...]  # the verdict is another one if these documents are relevant


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
    name = metric.partition("@")[0]  # nDCG of nDCG@10
    # Judged@10 says how much is judged, not how good it is.
    if judgements is None or name not in METRICS or name == "Judged":
        return {}
    measure = Measure(metric)
    if measure.depth > _JUDGED_DOCUMENTS:
        return {}
    scores = dict(result.per_query.get(metric, {}))
    threshold = result.data.relevance_threshold or 1  # lowest grade of a relevant document
    for query, grades in judgements.items():
        if query in scores and UNJUDGED in grades["first"]:
            raised_score = _score_if_relevant(measure, grades, threshold)
            # More relevant documents raise the ideal, too, which can lower a score.
            scores[query] = max(scores[query], raised_score)
    return scores


def _score_if_relevant(measure: Measure, grades: Judgements, threshold: int) -> float:
    """Return the score of a query if its documents without a judgement had the best grade."""
    ranking = grades["first"]
    ideal_ranking = grades["ideal"]
    # Measures without grades only tell relevant (1) from not relevant (0).
    if not measure.graded:
        ranking = [relevance(grade, threshold) for grade in ranking]
        ideal_ranking = [1 for grade in ideal_ranking if grade >= threshold]
    best_grade = max(ideal_ranking)
    raised_ranking = [best_grade if grade == UNJUDGED else grade for grade in ranking]
    # The ideal ranking would start with these documents, too.
    grades_of_unjudged = [best_grade] * ranking.count(UNJUDGED)
    return measure.score(raised_ranking, grades_of_unjudged + ideal_ranking)


def doubts_of(
    difference: PairedDifference, comparison: Comparison, records: Mapping[str, Result]
) -> Doubts:
    """Return what a verdict rests on that was not found, and what is unjudged and could turn it.

    ``records`` are by name of the system.
    """
    not_found, unjudged = [], []
    metric = difference.metric
    for model in (difference.first, difference.second):
        record = records[model]
        queries = nothing_found(record, metric)
        if queries and _verdict_rests_on(queries, difference, comparison):
            text = f"{model} found nothing for {len(queries)} of {difference.n} queries"
            not_found.append(text)
        raised_scores = scores_if_relevant(record, metric)
        if raised_scores and _verdict_turns_with(raised_scores, model, difference, comparison):
            unjudged.append(_unjudged_text(model, _documents_to_judge(record, metric)))
    return Doubts(nothing_found=tuple(not_found), unjudged=tuple(unjudged))


def _documents_to_judge(result: Result, metric: str) -> dict[str, str]:
    """Return the first document without a judgement of each query whose score it could raise.

    The name of a document is empty if the record has no rankings.
    """
    recorded_scores = result.per_query.get(metric, {})
    judgements = result.data.judgements or {}
    rankings = result.top or {}
    documents = {}
    for query, raised_score in scores_if_relevant(result, metric).items():
        # Judging the documents of this query could not raise its score.
        if raised_score == recorded_scores[query]:
            continue
        # Of its first document without a judgement.
        position = judgements[query]["first"].index(UNJUDGED)
        ranking = rankings.get(query, ())
        if position < len(ranking):  # a record may lack rankings
            documents[query] = ranking[position]
        else:
            documents[query] = ""
    return documents


def _unjudged_text(model: str, documents: Mapping[str, str]) -> str:
    """Name the documents to judge first, which are by query."""
    text = f"documents without a judgement that {model} found for {len(documents)} queries"
    to_judge = [f"{document} for {query}" for query, document in documents.items() if document]
    if not to_judge:
        return text
    names = ", ".join(to_judge[:_MOST_NAMED])
    if len(to_judge) > _MOST_NAMED:
        names += f" and {len(to_judge) - _MOST_NAMED} more"
    return f"{text} (judge first {names})"


def _verdict_rests_on(
    queries: Collection[str], difference: PairedDifference, comparison: Comparison
) -> bool:
    """Return whether a verdict is shown only with queries for which a model found nothing.

    Without them, the difference must exceed the margin, and its own test, not corrected for the
    other pairs, must show it.
    """
    task = comparison.on(difference.task, difference.metric)
    direction = _shown_direction(difference, comparison)
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


def _verdict_turns_with(
    raised_scores: Mapping[str, float],
    model: str,
    difference: PairedDifference,
    comparison: Comparison,
) -> bool:
    """Return whether the verdict on a difference fails with raised scores of one of its models.

    Better and worse must stay what they are. A candidate that is no worse may become better, but
    an equivalent one may not.
    """
    task = comparison.on(difference.task, difference.metric)
    if task is None:
        return False
    column = task.columns[model]
    scores = np.array(column.scores, dtype=float)  # a copy, to be changed
    for row, query in enumerate(column.queries):
        if query in raised_scores:
            scores[row] = raised_scores[query]
    columns = {**task.columns, model: system_scores(column.queries, scores)}
    with_raised_scores = replace(task, columns=columns)
    raised = with_raised_scores.difference(difference.first, difference.second)
    if raised is None:
        return False
    verdict = comparison.find_verdict(difference)
    raised_verdict = comparison.find_verdict(raised)
    # A candidate that is no worse may turn out better or equivalent.
    if verdict is Verdict.NO_WORSE:
        return raised_verdict in (Verdict.NOT_SHOWN, Verdict.WORSE)
    if verdict is Verdict.EQUIVALENT:
        return raised_verdict is not Verdict.EQUIVALENT
    # Better and worse must stay what they are.
    return _shown_direction(raised, comparison) != _shown_direction(difference, comparison)


def is_worse(difference: PairedDifference, comparison: Comparison) -> bool:
    """Return whether a candidate is shown to be worse by more than the margin."""
    return _shown_direction(difference, comparison) < 0


def _shown_direction(difference: PairedDifference, comparison: Comparison) -> int:
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
