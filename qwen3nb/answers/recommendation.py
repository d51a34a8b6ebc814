"""Which model should we use? The decision as a value, and its one or two sentences.

The decision follows from the comparison that every page reads. The sentences say which model to
use, how sure that is, and on what; the numbers behind them are on other pages.
"""

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TypeAlias

from qwen3nb.analysis.comparison.alignment import is_floor
from qwen3nb.analysis.comparison.brackets import Ties, find_ties, ties_of_differences
from qwen3nb.analysis.comparison.differences import TaskComparison
from qwen3nb.answers.board.lead import find_lead
from qwen3nb.answers.comparison import Comparison
from qwen3nb.answers.decision import NO_VERDICT
from qwen3nb.answers.own_data import OwnData
from qwen3nb.records.data_used import counted_queries
from qwen3nb.records.record import Result, TaskInfo
from qwen3nb.report.render.table import short_task
from qwen3nb.utils.format import first_names, number_text

MOST_NAMED = 2  # models, or tasks, that a sentence names

Marks: TypeAlias = Mapping[str, str]  # text after the name of a model, such as that of a toy
NO_MARKS: Marks = MappingProxyType({})
NO_TIES = Ties((), (), ())


class Case(StrEnum):
    """What can be said about the best model."""

    NO_RECORDS = "no records"
    SINGLE = "single model"
    NOT_COMPARED = "no decision"  # no other model answered the same queries
    CLEAR_LEAD = "clear lead"
    TIE = "tie"  # other models are not told apart from it
    UNJUDGED = "unjudged"  # it leads clearly, but unjudged documents could turn that


@dataclass(frozen=True)
class RankedModels:
    """Models that can be compared with the best one, the best first."""

    names: tuple[str, ...] = ()
    records: tuple[Result, ...] = ()  # one per name
    ties: Ties = NO_TIES  # between them
    unpaired: int = 0  # number of further models, without scores on the same queries
    unjudged: str = ""  # how much is unjudged, if that could turn the lead; empty if not

    @property
    def best(self) -> str:
        """The best model."""
        return self.names[0]

    @property
    def rivals(self) -> tuple[str, ...]:
        """The models that are not told apart from the best."""
        return self.ties.best[1:]

    @property
    def behind(self) -> str:
        """The best of the models that are shown to be behind; empty without any."""
        for name in self.names:
            if name not in self.ties.best:
                return name
        return ""

    @property
    def chance(self) -> str:
        """The model with random vectors; empty without one."""
        for name, record in zip(self.names, self.records, strict=True):
            if is_floor(record):
                return name
        return ""

    @property
    def task(self) -> TaskInfo:
        """The task on which they are ranked."""
        return self.records[0].task

    @property
    def questions(self) -> str:
        """What the ranking rests on, such as ``200 questions``."""
        record = self.records[0]
        if self.task.is_generated:
            return counted_queries(record, record.main.n, "questions")
        return counted_questions(record.main.n, self.task.unit)

    @property
    def is_search(self) -> bool:
        """Whether the metric is one of search, which has a depth, such as ``nDCG@10``."""
        return "@" in self.task.main_metric


@dataclass(frozen=True)
class Recommendation:
    """The best model on a task or a mean, and what is shown about the others."""

    case: Case
    models: RankedModels = RankedModels()
    elsewhere: tuple[str, ...] = ()  # tasks with results, if there are none on this one


def counted_questions(count: int, unit: str) -> str:
    """Return a number of queries as questions, and of others by their name.

    >>> counted_questions(1200, "queries"), counted_questions(120, "pairs")
    ('1,200 questions', '120 pairs')
    """
    noun = "questions" if unit == "queries" else unit
    if count == 1:
        noun = noun.removesuffix("s")
    return f"{count:,} {noun}"


def recommend(
    comparison: Comparison, *, task: str, results: Iterable[Result] = ()
) -> Recommendation:
    """Return which model to use, from all models on a task or on the mean of a benchmark.

    Without a score on it, the tasks of ``results`` are named.
    """
    lead = find_lead(comparison, task=task)
    if lead is None:
        tasks = sorted({short_task(result.task.key) for result in results})
        return Recommendation(Case.NO_RECORDS, elsewhere=tuple(tasks))
    names = (lead.name, *[difference.second for difference in lead.leads])
    record_of = {comparison.name(record): record for record in comparison.scored(task)}
    models = RankedModels(
        names=names,
        records=tuple(record_of[name] for name in names),
        ties=_ties(comparison, comparison.on(lead.record.task.key), names),
        unpaired=lead.unpaired,
    )
    models = replace(models, unjudged=_unjudged(comparison, models))
    return Recommendation(_case(models), models)


def _ties(comparison: Comparison, compared: TaskComparison | None, names: Sequence[str]) -> Ties:
    differences = [] if compared is None else compared.among(names)
    return ties_of_differences(names, differences, alpha=comparison.procedure.alpha)


def _unjudged(comparison: Comparison, models: RankedModels) -> str:
    """Return how much is unjudged, if that could turn the lead of the best model; else empty."""
    compared = comparison.on(models.task.key)
    if compared is None or not models.behind:
        return ""
    difference = compared.difference(models.best, models.behind)
    found = None if difference is None else comparison.turned_by_grades(difference)
    return "" if found is None else found.share_text


def _case(models: RankedModels) -> Case:
    if len(models.names) == 1:
        return Case.NOT_COMPARED if models.unpaired else Case.SINGLE
    if models.unjudged:
        return Case.UNJUDGED
    return Case.TIE if models.rivals else Case.CLEAR_LEAD


def ranked_own(own: OwnData) -> RankedModels:
    """Return the models on one's own data by the metric that decides, the best first."""
    if own.candidates is None:
        records = sorted(own.records, key=lambda record: -(record.main.value or 0.0))
        names = tuple(record.model.label for record in records)
        return RankedModels(names, tuple(records), find_ties(names, ()))
    comparison, deciding = own.candidates.comparison, own.candidates.deciding
    record_of = own.candidates.records
    names = tuple(sorted(record_of, key=lambda name: -(record_of[name].main.value or 0.0)))
    records_in_order = tuple(record_of[name] for name in names)
    ties = comparison.ties_of(names, deciding.among(names))
    return RankedModels(names, records_in_order, ties)


def sentences(recommendation: Recommendation, *, toys: Iterable[str] = ()) -> list[str]:
    """Return the decision in one or two sentences of HTML; names of ``toys`` have a mark."""
    marks = dict.fromkeys(toys, " (a toy)")
    wording = _WORDINGS[recommendation.case]
    return wording(recommendation, marks)


def _no_records(recommendation: Recommendation, marks: Marks) -> list[str]:
    if not recommendation.elsewhere:
        return [
            "No model has been evaluated on whole tasks yet.",
            "<code>qwen3nb eval</code> measures the first one, without <code>--limit</code>.",
        ]
    tasks = first_names(recommendation.elsewhere, most=MOST_NAMED)
    return [
        "No model has results on the tasks of this page.",
        f"There are some on {html.escape(tasks)}: see the pages below.",
    ]


def _single(recommendation: Recommendation, marks: Marks) -> list[str]:
    best = strong(recommendation.models.best, marks)
    return [
        f"{best} is the only model so far, measured on {recommendation.models.questions}.",
        "To choose, evaluate another: <code>qwen3nb eval --model</code> and its name.",
    ]


def _not_compared(recommendation: Recommendation, marks: Marks) -> list[str]:
    models = recommendation.models
    best = strong(models.best, marks)
    reason = "No other model has scores on the same ones."
    record = models.records[0]
    if record.per_query and models.task.main_metric not in record.per_query:
        reason = f"{models.task.main_metric} is of all {models.task.unit} together: no test here."
    return [f"No decision: {best} scores highest, on {models.questions}.", reason]


def _unjudged_lead(recommendation: Recommendation, marks: Marks) -> list[str]:
    models = recommendation.models
    return [
        f"No decision: {strong(models.best, marks)} scores highest, on {models.questions}.",
        f"{models.unjudged}, and their grades could turn it: "
        "<code>qwen3nb judge</code> asks for the grades that matter.",
    ]


def _clear_lead(recommendation: Recommendation, marks: Marks) -> list[str]:
    first = _first_sentence(recommendation, marks)
    return [f"{first}, the next best, on {recommendation.models.questions}."]


def _tie(recommendation: Recommendation, marks: Marks) -> list[str]:
    models = recommendation.models
    first = f"{_first_sentence(recommendation, marks)}."
    if not models.behind:
        first = f"{strong(models.best, marks)} scores highest, but not clearly."
    if models.chance in models.rivals:
        return [first, f"On {models.questions}, it is not shown to be better than chance."]
    as_good = _as_good(models.rivals, marks)
    return [first, f"{as_good}, as far as {models.questions} can tell."]


_WORDINGS: Mapping[Case, Callable[[Recommendation, Marks], list[str]]] = {
    Case.NO_RECORDS: _no_records,
    Case.SINGLE: _single,
    Case.NOT_COMPARED: _not_compared,
    Case.CLEAR_LEAD: _clear_lead,
    Case.TIE: _tie,
    Case.UNJUDGED: _unjudged_lead,
}


def _first_sentence(recommendation: Recommendation, marks: Marks) -> str:
    """Name the best model, and the best of those that are shown to be behind."""
    models = recommendation.models
    verb = "scores highest, clearly above"
    if models.is_search:
        verb = "finds the most, clearly more than"
    behind = html.escape(models.behind) + marks.get(models.behind, "")
    return f"{strong(models.best, marks)} {verb} {behind}"


def _as_good(rivals: Sequence[str], marks: Marks) -> str:
    """Say which models are as good: one, two, or the first and how many more."""
    first = strong(rivals[0], marks)
    if len(rivals) == 1:
        return f"{first} is as good"
    if len(rivals) == MOST_NAMED:
        return f"{first} and {strong(rivals[1], marks)} are as good"
    return f"{first} and {len(rivals) - 1} more are as good"


def strong(name: str, marks: Marks = NO_MARKS) -> str:
    """Return a model's name in bold, with its mark."""
    return f"<strong>{html.escape(name)}</strong>{marks.get(name, '')}"


def own_sentences(own: OwnData) -> list[str]:
    """Return the decision on own data in short sentences of HTML, the first without a subject.

    They follow words such as ``On your own 30 queries:``.
    """
    if len(own.records) == 1:
        (record,) = own.records
        score = number_text(record.main.value, digits=2)
        return [
            f"{strong(record.model.label)} has {record.task.main_metric} {score}.",
            "Evaluate another model with <code>qwen3nb domain</code> to compare the two.",
        ]
    if own.candidates is None:
        return ["no decision.", "The models cannot be compared."]
    decision = own.candidates.decision
    if decision.outcome == NO_VERDICT:
        reason = "Documents that nobody has judged, or found, could turn it."
        if decision.unjudged:
            reason = (
                f"{decision.unjudged}, and their grades could turn it: <code>qwen3nb judge</code> "
                "asks for those that matter."
            )
        if own.judged is not None and own.judged.is_final:
            reason = f"<code>qwen3nb judge</code> has decided: {html.escape(own.judged.text)}"
        return [f"no decision, {strong(decision.current)} stays.", reason]
    candidate, current = near_scores(decision.best.means)
    if decision.use == decision.current:
        best = html.escape(decision.best.first)
        return [
            f"keep {strong(decision.current)}.",
            f"No candidate is clearly better: the best, {best}, has {candidate} against {current}.",
        ]
    instead = html.escape(decision.current)
    taken = f"take {strong(decision.use)} instead of {instead}: {candidate} against {current}."
    rivals = [rival.second for rival in decision.rivals]
    if not rivals:
        return [taken]
    return [taken, f"{_as_good(rivals, NO_MARKS)}, as far as these queries can tell."]


def own_limits(own: OwnData) -> bool:
    """Whether something limits the decision on own data, such as metrics that disagree."""
    if own.candidates is None:
        return False
    decision = own.candidates.decision
    return bool(decision.remarks or decision.undecided)


def near_scores(scores: tuple[float, float]) -> tuple[str, str]:
    """Return two scores with two decimals, or with three if they would look equal.

    >>> near_scores((0.921, 0.633)), near_scores((0.921, 0.923))
    (('0.92', '0.63'), ('0.921', '0.923'))
    """
    first, second = [number_text(score, digits=2) for score in scores]
    if first == second:
        first, second = [number_text(score) for score in scores]
    return first, second
