"""The scores of the models that are compared, the best first: a table, and a figure of one task."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from qwen3nb.analysis.comparison.alignment import in_words
from qwen3nb.analysis.comparison.brackets import Ties
from qwen3nb.analysis.comparison.differences import TaskComparison, Verdict, verdict_words
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.records.data_used import DataUsed
from qwen3nb.report.render.figure import Figure
from qwen3nb.report.render.scores import ScoreRow, Tone, score_figure
from qwen3nb.report.render.table import Cell, Head, number, short_task

NO_SCORE = Cell("–")


@dataclass(frozen=True)
class TaskScores:
    """The scores of models on one task, with those that cannot be told apart."""

    compared: TaskComparison
    scores: Mapping[str, Aggregate]  # by name of the model
    ties: Ties  # of all these models, the best first
    unit: str  # what the scores are of, such as ``queries``
    floor: str = ""  # the model with random vectors; empty without one

    @property
    def models(self) -> tuple[str, ...]:
        """The models, the best first."""
        return self.ties.models

    def cell(self, model: str) -> Cell:
        """Return a model's score, in bold among the best; below it, what is shown."""
        if model not in self.scores:
            return NO_SCORE
        cell = number(self.scores[model], strong=model in self.ties.best)
        return replace(cell, detail=self._verdict(model))

    def _verdict(self, model: str) -> str:
        """Say whether a model is shown to be better or worse than the baseline."""
        procedure = self.compared.procedure
        if model == self.compared.baseline:
            return "baseline"
        difference = self.compared.difference(model, self.compared.baseline)
        if difference is None:
            return "not paired"
        if not difference.significant(procedure.alpha):
            return ""
        verdict = Verdict.BETTER if difference.difference > 0 else Verdict.WORSE
        return verdict_words(verdict, difference.interval, margin=procedure.margin)

    @property
    def queries(self) -> int:
        """The number of queries, or texts, on which models are compared with the baseline."""
        return max(difference.n for difference in self.compared.with_baseline)

    def head(self, *, names_baseline: bool) -> Head:
        """Return the head of a column: the task, its metric and n, and the baseline if asked."""
        text = f"{short_task(self.compared.task)}\n{self.compared.metric}, n = {self.queries:,}"
        if names_baseline:
            text += f", to {in_words(self.compared.baseline)}"
        return Head(text, self.queries)


def ranked_figure(task: TaskScores, *, most: int, left_out: str, data: DataUsed) -> Figure:
    """Draw the scores on one task, joined by brackets where no difference is shown.

    At most the best ``most`` models and the baseline are drawn; ``left_out`` counts the others.
    """
    shown = _models_shown(task, most)
    ties = task.ties.among(shown)
    at_chance: set[str] = set()
    if task.floor:
        at_chance = {task.floor, *task.ties.not_separated(task.floor)}
    rows = [_score_row(task, model, at_chance) for model in ties.models]
    measure = f"{short_task(task.compared.task)}, by {task.compared.metric}"
    caption = (
        f"Scores on {measure}, n = {task.queries:,}, with 95 % intervals. A bracket joins models "
        f"between which no difference is shown. Grey: shown to be worse than the best.{left_out}"
    )
    return score_figure(rows, ties, measure=measure, name="scores", caption=caption, data=data)


def _models_shown(task: TaskScores, most: int) -> list[str]:
    """Return the best models, and the baseline in any case."""
    shown = list(task.models[:most])
    baseline = task.compared.baseline
    if baseline in task.models and baseline not in shown:
        shown[-1] = baseline
    return shown


def _score_row(task: TaskScores, model: str, at_chance: Collection[str]) -> ScoreRow:
    score = task.scores[model]
    interval = None
    if score.low is not None and score.high is not None:
        interval = (score.low, score.high)
    tone = Tone.BEHIND
    if model in task.ties.best:
        tone = Tone.BEST
    elif model in at_chance:
        tone = Tone.CHANCE
    mark = " (baseline)" if model == task.compared.baseline else ""
    return ScoreRow(model, score.value or 0.0, interval, tone, mark)
