"""Which checkpoint, or which mixture, to ship? Chosen on one half of the queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

from qwen3nb.analysis.comparison.differences import negated
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.analysis.training.choosing import Candidate, Choice, Halves
from qwen3nb.answers.answer import Answer
from qwen3nb.metrics.intervals import Interval
from qwen3nb.models.options import ModelOptions
from qwen3nb.records.data_used import DataUsed
from qwen3nb.report.render.figure import (
    ACCENT,
    GREY,
    QUIET,
    Figure,
    MplFigure,
    grid,
    name_rows,
    panels,
    plain,
    row_height,
)
from qwen3nb.report.render.table import (
    Cell,
    Conclusion,
    Table,
    number,
    plural,
    short_task,
)
from qwen3nb.utils.format import first_names, number_text, p_value_text
from qwen3nb.utils.imports import DataFrame

if TYPE_CHECKING:
    from qwen3nb.answers.soup import Soup
    from qwen3nb.evaluation.studies.choosing import EvaluationOptions

_HARDLY = 0.0005  # below it, a flattery is 0.000 as shown
_MOST_DRAWN = 30  # candidates in the figure, the best by the selecting half


@dataclass(frozen=True, repr=False)
class Choosing(Answer):
    """A model chosen on one half of the queries, and its score on the other half."""

    choice: Choice
    matrices: tuple[ScoreMatrix, ...]
    halves: Halves
    data: DataUsed
    soup: Soup | None = None
    failures: Mapping[str, str] = field(default_factory=dict)  # why a candidate has no scores

    @property
    def chosen(self) -> str:
        """The name of the chosen model."""
        return self.choice.chosen.name

    @property
    def conclusion(self) -> Conclusion:
        """The chosen model with its honest score, the equally good ones, and the flattery."""
        choice = self.choice
        score = number_text(choice.chosen.reporting)
        low, high = (number_text(end) for end in choice.interval)
        sentences = [
            f"Take {self.chosen}: {score} [{low}, {high}] on queries that took no part in the "
            "choice.",
            self._ties(),
            self._flattery(),
        ]
        if self.failures:
            sentences.append(f"Without a score, and so left out: {first_names([*self.failures])}.")
        return Conclusion(" ".join(sentences), data=self.data, strong=(self.chosen,))

    def _ties(self) -> str:
        """Name the models that cannot be told apart from the chosen one."""
        equal = [candidate.name for candidate in self.choice.equally_good]
        others = len(self.choice.others)
        if not equal:
            return f"It is better than {plural(others, 'other')}."
        if len(equal) == others and others > 1:
            return f"None of {others} others can be told apart from it: any may be as good."
        return f"{first_names(equal)} cannot be told apart from it."

    def _flattery(self) -> str:
        """Say by how much a choice flatters, on average over many splits."""
        flattery = self.choice.flattery
        if flattery < _HARDLY:
            return "The queries that choose hardly flatter."
        return (
            f"On the queries that choose, a score is {number_text(flattery)} too high on average."
        )

    def _failures(self) -> str:
        """Say why candidates have no scores; empty if all have."""
        reasons = [f"{name} ({reason:.200})" for name, reason in self.failures.items()]
        if not reasons:
            return ""
        return f" Left out, as the evaluation failed: {first_names(reasons, separator='; ')}."

    def _method_of_flattery(self) -> str:
        """Say what the mean flattery is of."""
        if self.soup is None or not self.soup.name:
            return ""
        return (
            " By how much a choice flatters is averaged without the soup, which this half has "
            "shaped."
        )

    def table(self) -> Table:
        """The candidates, best first: both scores, and how they compare with the chosen one."""
        rows = [self._row(self.choice.chosen)]
        rows += [self._row(candidate) for candidate in self.choice.others]
        selecting, reporting = self.choice.queries
        tasks = ", ".join(short_task(task) for task in self.choice.tasks)
        return Table.of(
            rows,
            note=f"{self.choice.metric} on {tasks}: {selecting} queries choose, {reporting} others "
            "report. Bold: the chosen model. Only the second column is a score to publish."
            + self._failures(),
            method="p: two-sided paired permutation test on the reporting half, corrected by "
            f"step-down MaxT over {plural(len(self.choice.others), 'comparison')}. Halves are "
            f"drawn with seed {self.choice.seed}; clusters of queries stay together."
            + self._method_of_flattery(),
            name="choice",
            caption=f"{plural(len(rows), 'candidate')}, chosen on one half of the queries and "
            "reported on the other.",
            data=self.data,
        )

    def _row(self, candidate: Candidate) -> dict[str, object]:
        """Return a row of the table."""
        is_chosen = candidate.name == self.chosen
        interval: Interval | None = None
        behind: object = "chosen"
        p_value = Cell("")
        if is_chosen:
            interval = self.choice.interval
        else:
            # How far the candidate is behind, with the ends of the interval turned likewise.
            behind = number(-candidate.difference, "+.3f", interval=negated(candidate.interval))
            if candidate.p_value is not None:
                p_value = Cell(p_value_text(candidate.p_value), strong=candidate.is_significant)
        return {
            "candidate": Cell(candidate.name, strong=is_chosen),
            "on the half\nthat chose": number(candidate.selecting),
            "on the\nother half": number(candidate.reporting, interval=interval, strong=is_chosen),
            "less the\nchosen": behind,
            "p\ncorrected": p_value,
        }

    def soup_table(self) -> Table | None:
        """The trials of the greedy soup, in their order; None if there was none."""
        if self.soup is None:
            return None
        rows = []
        for step in self.soup.steps:
            row = {
                "added": self.soup.candidates[step.added],
                "models in the mean": str(len(step.members)),
                "on the half\nthat chose": number(step.score),
                "kept": Cell("yes" if step.is_kept else "no", strong=step.is_kept),
            }
            rows.append(row)
        return Table.of(
            rows,
            note="Each model is tried in the order of its own score on the half that chose. It "
            "stays in the mean if the score there does not fall.",
            method="Greedy soup (Wortsman and others 2022, recipe 1). The weights are averaged "
            "equally.",
            name="soup",
            caption="A greedy soup: which models were averaged, and what each trial scored.",
            data=self.data,
        )

    def figure(self) -> Figure:
        """Both scores of the best candidates: what a choice loses on other queries."""
        shown = [self.choice.chosen, *self.choice.others][:_MOST_DRAWN]
        words = "; ".join(
            f"{candidate.name}: {candidate.selecting:.3f}, then {candidate.reporting:.3f}"
            for candidate in shown
        )
        return Figure(
            draw=partial(_draw, shown, self.choice.interval, self.choice.metric),
            name="choice",
            caption="Each candidate's score on the half that chose (open) and on the other half "
            "(filled). The interval is that of the chosen model.",
            alt=f"Scores of candidates on both halves. {words}.",
            data=self.data,
        )

    def to_frame(self) -> DataFrame:
        """Return a row per task, query and candidate: the half, and the score."""
        import pandas as pd

        frames = []
        for matrix in self.matrices:
            frame = matrix.to_frame()[list(matrix.systems)]
            halves = []
            for query in frame.index:
                is_selecting = query in self.halves.selecting[matrix.task]
                halves.append("selecting" if is_selecting else "reporting")
            frames.append(frame.assign(task=matrix.task, half=halves))
        together = pd.concat(frames).reset_index()
        return together.melt(
            id_vars=["task", "query", "half"], var_name="candidate", value_name="score"
        )


def _draw(
    candidates: Sequence[Candidate], interval: Interval, metric: str, width: float
) -> MplFigure:
    """Draw a row per candidate, with an open mark, a filled one, and the line between them."""
    names = [plain(candidate.name) for candidate in candidates]
    height = 0.8 + len(names) * row_height(names)
    figure, (axis,), _ = panels(1, width=width, height=height)
    axis.plot(interval, [0, 0], color=ACCENT, lw=5, alpha=0.25, solid_capstyle="butt")
    for row, candidate in enumerate(candidates):
        color = ACCENT if row == 0 else GREY
        axis.plot([candidate.selecting, candidate.reporting], [row, row], color=QUIET, lw=1)
        axis.plot([candidate.selecting], [row], "o", color=color, markerfacecolor="none")
        axis.plot([candidate.reporting], [row], "o", color=color)
    axis.set_xlabel(f"mean {metric}")
    name_rows(axis, names)
    axis.invert_yaxis()  # the chosen model on top
    grid(axis)
    return figure


def choose(
    models: Sequence[str],
    *,
    soup: bool = False,
    seed: int = 0,
    show_progress: bool = True,
    model_options: Mapping[str, Any] | None = None,
    **evaluation: Unpack[EvaluationOptions],
) -> Choosing:
    """Choose among models on one half of the queries, and report on the other.

    Args:
        models: specs, such as folders of checkpoints or exports. A folder with ``checkpoint-N``
            folders, or ``newest-training``, stands for its checkpoints.
        soup: whether the mean of some of them, a greedy soup, is one more candidate.
        seed: of the halves and the draws.
        show_progress: whether to show a bar.
        model_options: how each model is used, such as ``{"pooling": "mean"}``.
        evaluation: ``tier``, ``tasks`` and ``types``, or ``data``, and ``output``; see
            `qwen3nb.evaluation.studies.choosing.evaluate_candidates`.

    Raises:
        ValueError: fewer than two models, unlike metrics, or too few queries for two halves.
        EvaluationError: fewer than two models have scores.
        CheckpointError: models that have no mean, for a soup.
    """
    from qwen3nb.analysis.training import choosing
    from qwen3nb.answers.soup import score_matrices, soup_of
    from qwen3nb.evaluation.studies.choosing import evaluate_candidates, expanded

    options = ModelOptions(**(model_options or {}))
    evaluated = evaluate_candidates(
        expanded(models), options=options, seed=seed, show_progress=show_progress, **evaluation
    )
    records = evaluated.records
    halves = choosing.split(score_matrices(records), seed=seed)
    found: Soup | None = None
    shaped: list[str] = []
    if soup:
        specs = list(evaluated.specs.values())
        found = soup_of(
            specs,
            records,
            halves,
            options=options,
            seed=seed,
            show_progress=show_progress,
            **evaluation,
        )
        if found.name:
            records = records | {found.name: list(found.results)}
            shaped.append(found.name)
    matrices = score_matrices(records)
    results = [result for records_of_model in records.values() for result in records_of_model]
    return Choosing(
        choice=choosing.choose(matrices, halves=halves, seed=seed, shaped=shaped),
        matrices=tuple(matrices),
        halves=halves,
        data=DataUsed.of(results),
        soup=found,
        failures=evaluated.failures,
    )
