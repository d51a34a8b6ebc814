"""What the grades of unjudged documents could do to a difference, or to a score.

They may have any grade (see `qwen3nb.metrics.unjudged`). A verdict holds if the paired test gives
it also where every query has the grades that are worst for it. Else there is none: somebody has
to judge first, or to say that what has no grade is not relevant.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from qwen3nb.analysis.comparison.differences import (
    PairedDifference,
    Procedure,
    TaskComparison,
    Verdict,
)
from qwen3nb.analysis.stats.score_matrix import system_scores
from qwen3nb.metrics.intervals import Array
from qwen3nb.metrics.retrieval import METRICS, UNJUDGED, Measure, find_measure
from qwen3nb.metrics.unjudged import NOTHING, GradedDocuments, extremes, has_range
from qwen3nb.records.details import TOP_DEPTH
from qwen3nb.records.record import Result
from qwen3nb.utils.format import first_names, interval_text, number_text

ADVICE = "`qwen3nb judge` asks for the grades that matter"
_MAIN = "nDCG@10"  # stands in for a metric whose range is not known
_MOST_NAMED = 3  # documents to judge first; more are counted


class ComparedModels(Protocol):
    """What is read of a `qwen3nb.answers.comparison.Comparison`."""

    @property
    def records(self) -> Mapping[tuple[str, str], Result]:
        """The records by task and name of the model."""

    @property
    def procedure(self) -> Procedure:
        """How differences are tested."""

    def on(self, task: str, metric: str = "") -> TaskComparison | None:
        """The comparison on a task by a metric."""

    def find_verdict(self, difference: PairedDifference) -> Verdict:
        """What a difference shows."""


@dataclass(frozen=True)
class UnjudgedRange:
    """The range of a difference, first - second, over the grades of unjudged documents."""

    metric: str  # of the range; another one than the difference's if that has no range
    unjudged: int  # results without a judgement: documents of a query, each once
    results: int  # all results: the first ten documents of both models
    lowest: float  # mean difference where every query has the lowest
    highest: float
    worst: PairedDifference | None  # where grades are worst for the verdict; None without one
    turns: bool  # whether the verdict is then another one
    to_judge: tuple[str, ...]  # documents whose grades could do that, as ``document for query``

    @property
    def share_text(self) -> str:
        """How much is unjudged, such as ``53 of 200 results are unjudged``."""
        verb = "is" if self.unjudged == 1 else "are"
        return f"{self.unjudged:,} of {self.results:,} results {verb} unjudged"

    @property
    def text(self) -> str:
        """The range of the difference, such as ``-0.120 to +0.340``."""
        return range_text((self.lowest, self.highest), sign=True)

    @property
    def reason(self) -> str:
        """Why there is no verdict: what the worst grades would make of it, and what to judge."""
        text = f"{self.share_text}, and their grades could turn it"
        if self.worst is not None:
            text += (
                f". At worst, {self.metric} would differ by {self.worst.difference:+.3f} "
                f"{interval_text(self.worst.interval)}"
            )
        if self.to_judge:
            text += f". Judge first {first_names(self.to_judge, most=_MOST_NAMED)}"
        return text


@dataclass(frozen=True)
class ScoreRange:
    """The range of one model's mean score over the grades of its unjudged documents."""

    metric: str
    recorded: float  # what is unjudged is not relevant
    lowest: float
    highest: float

    @property
    def text(self) -> str:
        """The range, such as ``0.120 to 0.340``."""
        return range_text((self.lowest, self.highest))


def range_text(ends: tuple[float, float], *, sign: bool = False) -> str:
    """Return a range that is no interval of a sample, such as ``0.120 to 0.340``."""
    low, high = (number_text(end, sign=sign) for end in ends)
    return f"{low} to {high}"


def metric_with_range(metric: str) -> str:
    """Return a metric whose range records give: the metric, or the one that stands in for it.

    Records have the grades of ten documents. A metric of judged documents has no range, as it
    leaves out the others. Empty for what is no metric of rankings.

    >>> metric_with_range("MRR@10"), metric_with_range("Recall@20"), metric_with_range("bpref")
    ('MRR@10', 'Recall@10', 'nDCG@10')
    """
    measure = find_measure(metric)
    if measure is None or measure.metric == "Judged":
        return ""
    name = measure.metric.removeprefix("condensed_").removeprefix("tie_averaged_")
    if not METRICS[name].has_depth:
        return _MAIN
    if measure.threshold is not None:
        name += f"(rel={measure.threshold:g})"
    bounded = Measure(f"{name}@{min(measure.depth, TOP_DEPTH)}")
    return str(bounded) if has_range(bounded) else _MAIN


def score_range(record: Result, metric: str) -> ScoreRange | None:
    """Return the range of a model's score; None if all is judged, or the record does not say."""
    metric = metric_with_range(metric)
    scores = record.per_query.get(metric, {})
    if not metric or not _has_judgements(record) or not scores:
        return None
    queries = _judged_queries(scores, metric, record)
    rankings = [_graded_documents(record, query) for query in queries]
    if not any(UNJUDGED in ranking.grades for ranking in rankings):
        return None
    nothing = [NOTHING] * len(queries)
    found = extremes(Measure(metric), rankings, nothing, threshold=_threshold(record, metric))
    mean = float(np.mean(list(scores.values())))
    lowest_change = float((found.lowest - found.recorded)[:, 0].sum()) / len(scores)
    highest_change = float((found.highest - found.recorded)[:, 0].sum()) / len(scores)
    return ScoreRange(metric, mean, mean + lowest_change, mean + highest_change)


def unjudged_range(
    difference: PairedDifference, comparison: ComparedModels
) -> UnjudgedRange | None:
    """Return the range of a difference; None if all is judged, or the records do not say."""
    pair = (difference.first, difference.second)
    first, second = (comparison.records.get((difference.task, name)) for name in pair)
    if first is None or second is None:
        return None
    if not (_has_judgements(first) and _has_judgements(second)):  # most records have none
        return None
    metric = metric_with_range(difference.metric)
    task = comparison.on(difference.task, difference.metric)
    if task is None or not metric:
        return None
    task = _by_metric(task, metric, comparison)
    if not set(pair) <= task.columns.keys():
        return None
    matrix = task.matrix(*pair)
    queries = _judged_queries(matrix.queries, metric, first, second)
    rankings = (
        [_graded_documents(first, query) for query in queries],
        [_graded_documents(second, query) for query in queries],
    )
    count, unjudged = _count_results(*rankings)
    if not unjudged:
        return None
    found = extremes(Measure(metric), *rankings, threshold=_threshold(first, metric))
    case = _Changes(task, pair, queries, found.lowest - found.recorded)
    cases = (case, replace(case, changes=found.highest - found.recorded))
    worst, worst_case, turns = _worst(difference, comparison, cases)
    to_judge: list[str] = []
    if worst_case is not None and turns:
        to_judge = _documents_to_judge(worst_case, rankings)
    recorded = float((matrix.scores[0] - matrix.scores[1]).mean())
    lowest, highest = (recorded + case.mean_change(len(matrix.queries)) for case in cases)
    return UnjudgedRange(
        metric=metric,
        unjudged=unjudged,
        results=count,
        lowest=lowest,
        highest=highest,
        worst=worst,
        turns=turns,
        to_judge=tuple(to_judge),
    )


@dataclass(frozen=True, eq=False)
class _Changes:
    """What grades of unjudged documents would add to the scores of two models on a task."""

    task: TaskComparison
    pair: tuple[str, str]  # names of the models
    queries: Sequence[str]  # n
    changes: Array  # of both scores (n, 2)

    @property
    def differences(self) -> Array:
        """What is added to first - second (n,)."""
        return np.asarray(self.changes[:, 0] - self.changes[:, 1])

    def mean_change(self, count: int) -> float:
        """Return what is added to the mean difference of ``count`` queries."""
        return float(self.differences.sum()) / count

    def tested(self) -> PairedDifference | None:
        """Return the difference of the changed scores, with its test."""
        columns = dict(self.task.columns)
        for position, name in enumerate(self.pair):
            column = columns[name]
            row_of = {query: row for row, query in enumerate(column.queries)}
            scores = np.array(column.scores, dtype=float)  # a copy, to be changed
            scores[[row_of[query] for query in self.queries]] += self.changes[:, position]
            columns[name] = system_scores(column.queries, scores)
        return replace(self.task, columns=columns).difference(*self.pair)


def _worst(
    difference: PairedDifference,
    comparison: ComparedModels,
    cases: tuple[_Changes, _Changes],
) -> tuple[PairedDifference | None, _Changes | None, bool]:
    """Return the difference with the grades that are worst for its verdict, and if they turn it.

    ``cases`` are the lowest differences of all queries, and the highest. None where nothing is
    shown, and so nothing can turn.
    """
    verdict = comparison.find_verdict(difference)
    lowest, highest = cases
    if verdict is Verdict.NOT_SHOWN:
        return None, None, False
    if verdict is Verdict.EQUIVALENT:  # may be lost at both ends
        tried = [lowest, highest]
    elif verdict is Verdict.WORSE:
        tried = [highest]
    else:
        tried = [lowest]
    for case in tried:
        tested = case.tested()
        if tested is None or _is_turned(difference, tested, comparison):
            return tested, case, True
    return tested, case, False


def _is_turned(
    difference: PairedDifference, changed: PairedDifference, comparison: ComparedModels
) -> bool:
    """Return whether changed scores take away the verdict on a difference.

    Better and worse must stay what they are. A candidate that is no worse may become better, but
    an equivalent one may not.
    """
    verdict = comparison.find_verdict(difference)
    changed_verdict = comparison.find_verdict(changed)
    if verdict is Verdict.NO_WORSE:
        return changed_verdict in (Verdict.NOT_SHOWN, Verdict.WORSE)
    if verdict is Verdict.EQUIVALENT:
        return changed_verdict is not Verdict.EQUIVALENT
    is_as_large = shown_direction(changed, comparison) == shown_direction(difference, comparison)
    return changed_verdict is not verdict or not is_as_large


def shown_direction(difference: PairedDifference, comparison: ComparedModels) -> int:
    """Return 1 for better by more than the margin, -1 for worse, 0 if neither is shown."""
    procedure = comparison.procedure
    if not difference.significant(procedure.alpha):
        return 0
    if abs(difference.difference) <= procedure.margin:
        return 0
    return 1 if difference.difference > 0 else -1


def _by_metric(task: TaskComparison, metric: str, comparison: ComparedModels) -> TaskComparison:
    """Return the comparison by a metric, of the models whose records have it."""
    if task.metric == metric:
        return task
    by_metric = comparison.on(task.task, metric)
    if by_metric is not None:
        return by_metric
    columns = {}
    for name in task.columns:
        scores = comparison.records[task.task, name].per_query.get(metric)
        if scores:
            values = np.array(list(scores.values()), dtype=float)
            columns[name] = system_scores(tuple(scores), values)
    return replace(task, metric=metric, columns=columns)


def _has_judgements(record: Result) -> bool:
    return record.data.judgements is not None


def _judged_queries(queries: Iterable[str], metric: str, *records: Result) -> list[str]:
    """Return the queries whose grades all records have, with a relevant document."""
    judged = list(queries)
    for record in records:
        threshold = _threshold(record, metric)
        judged = [query for query in judged if _highest_grade(record, query) >= threshold]
    return judged


def _highest_grade(record: Result, query: str) -> float:
    """Return the highest grade of a query; 0 if the record does not have it."""
    judgements = (record.data.judgements or {}).get(query)
    if judgements is None:
        return 0
    return max(judgements["ideal"], default=0)


def _threshold(record: Result, metric: str) -> float:
    """Return the lowest relevant grade of a metric on a record's data."""
    return Measure(metric).threshold or record.data.relevance_threshold or 1


def _graded_documents(record: Result, query: str) -> GradedDocuments:
    """Return the first documents of a query; those that the record does not name get own names."""
    judgements = (record.data.judgements or {})[query]
    grades = judgements["first"]
    ranking = list((record.top or {}).get(query, ()))[: len(grades)]
    for position in range(len(ranking), len(grades)):
        ranking.append(f"{record.model.label}\n{position}")  # no id has a line break
    return GradedDocuments(ranking, grades, judgements["ideal"])


def _count_results(
    first: Sequence[GradedDocuments], second: Sequence[GradedDocuments]
) -> tuple[int, int]:
    """Return the number of documents of both rankings, each once, and of those unjudged."""
    count, unjudged = 0, 0
    for rankings in zip(first, second, strict=True):
        grades: dict[str, float] = {}
        for ranking in rankings:
            grades.update(zip(ranking.documents, ranking.grades, strict=True))
        count += len(grades)
        unjudged += sum(grade == UNJUDGED for grade in grades.values())
    return count, unjudged


def _documents_to_judge(
    case: _Changes, rankings: tuple[Sequence[GradedDocuments], Sequence[GradedDocuments]]
) -> list[str]:
    """Return a document to judge of each query whose difference changes, as ``document for query``.

    It is the first unjudged one of the model that gains, or else of the other.
    """
    documents = []
    for query, change, pair in zip(
        case.queries, case.differences.tolist(), zip(*rankings, strict=True), strict=True
    ):
        if change == 0:
            continue
        gaining_first = pair if change > 0 else pair[::-1]
        document = _first_unjudged(gaining_first)
        if document:
            documents.append(f"{document} for {query}")
    return documents


def _first_unjudged(rankings: Sequence[GradedDocuments]) -> str:
    """Return the first unjudged document of the first ranking that has one; empty if unnamed."""
    for ranking in rankings:
        for document, grade in zip(ranking.documents, ranking.grades, strict=True):
            if grade == UNJUDGED:
                return "" if "\n" in document else document
    return ""
