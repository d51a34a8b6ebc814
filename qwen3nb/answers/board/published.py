"""Published scores of reference models on what was not measured here.

They stand below the measured models, in grey and in words: without a rank, an interval or a test,
and in no mean with measured ones. A score that was measured here takes the place of a published
one. Model and revision are exactly those of the registry.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qwen3nb.analysis.comparison.benchmark_means import MeanColumn, task_score
from qwen3nb.analysis.forecasting.published_models import PublishedScore, published_models, source
from qwen3nb.answers.board.grid import Grid
from qwen3nb.answers.board.references import REFERENCES, ReferenceModel
from qwen3nb.models.kinds.source import registry
from qwen3nb.records.record import Result
from qwen3nb.report.render.table import Cell, Table, plural
from qwen3nb.utils.format import number_text

PUBLISHED = "published, not measured here"
DIFFERS = "‡"
_METRIC_OF_SEARCH = "nDCG@10"  # MTEB's main score of searches
_OTHER_PROMPT, _OTHER_DATA = "other prompt", "other revision of the data"
_MEASURED, _NOT_PUBLISHED = "measured", "not published"
_DIGITS = 12  # of a revision that is shown


@dataclass(frozen=True)
class PublishedValue:
    """A published score, or a mean of published scores alone."""

    value: float
    differences: tuple[str, ...] = ()  # from how scores are measured here

    @property
    def words(self) -> str:
        """What a reader who sees no grey must know."""
        return ", ".join(("published", *self.differences))

    def text(self, digits: int) -> str:
        """The number, with a mark if it was measured in another way than here."""
        number = number_text(self.value, digits=digits)
        return f"{number}{DIFFERS}" if self.differences else number


@dataclass(frozen=True)
class PublishedModel:
    """A reference model with its published values by column: a task's key, or a mean's name."""

    name: str  # in the registry
    revision: str
    values: Mapping[str, PublishedValue]
    measured: frozenset[str]  # the columns that were measured here

    @property
    def origin(self) -> str:
        """Where its scores come from, with the revision of the model."""
        return f"MTEB's results, revision {self.revision[:_DIGITS]}"

    def absence(self, column: str) -> str:
        """Why there is no published value in a column."""
        return _MEASURED if column in self.measured else _NOT_PUBLISHED

    def reason(self, column: str) -> str:
        """Explain `absence` in a few words."""
        if column in self.measured:
            return "measured here: see its row above"
        return "not published of this revision of the model, by the measure of this column"


def published_on_tasks(grid: Grid, tasks: Iterable[str]) -> list[PublishedModel]:
    """Return the reference models with a published score on a task that they lack here."""
    columns = [(task, {task: 1.0}, None) for task in tasks]
    return _published(grid, columns)


def published_means(grid: Grid, columns: Iterable[MeanColumn]) -> list[PublishedModel]:
    """Return the reference models with all scores of a mean published that they lack here."""
    return _published(grid, [(column.name, column.weights, column.metric) for column in columns])


# The name of a column, the weights of its tasks, and the metric that is averaged: empty for MTEB's
# main score, None for the metric of the records.
_Column = tuple[str, Mapping[str, float], str | None]


def _published(grid: Grid, columns: Sequence[_Column]) -> list[PublishedModel]:
    models = []
    for reference in REFERENCES:
        scores = _scores_of(reference)
        if not scores:
            continue
        measured_tasks = _measured_tasks(reference, grid)
        values: dict[str, PublishedValue] = {}
        measured = set()
        for name, weights, metric in columns:
            if measured_tasks.issuperset(weights):
                measured.add(name)
                continue
            value = _value(scores, weights, metric, grid)
            if value is not None:
                values[name] = value
        if values:
            revision = str(registry()[reference.name]["revision"])
            models.append(PublishedModel(reference.name, revision, values, frozenset(measured)))
    return models


def _scores_of(reference: ReferenceModel) -> Mapping[str, PublishedScore]:
    """Return the published scores of exactly the registry's revision of a model, by task."""
    entry = registry()[reference.name]
    return published_models().get((entry["id"], entry["revision"]), {})


def _measured_tasks(reference: ReferenceModel, grid: Grid) -> set[str]:
    specs = reference.specs
    tasks: set[str] = set()
    for record_by_task in grid.records.values():
        for task, record in record_by_task.items():
            if not specs.isdisjoint((record.model.spec, record.model.label)):
                tasks.add(task)
    return tasks


def _value(
    scores: Mapping[str, PublishedScore],
    weights: Mapping[str, float],
    metric: str | None,
    grid: Grid,
) -> PublishedValue | None:
    """Return the mean of published scores; None if one is missing, or not of the same measure."""
    if metric not in (None, "", _METRIC_OF_SEARCH):
        return None
    on_tasks = []
    for task in weights:
        if task not in scores or not _is_comparable(grid.on(task), metric):
            return None
        on_tasks.append(scores[task])
    value = sum(weights[score.task] * score.value for score in on_tasks)
    other_prompt = [score for score in on_tasks if score.has_other_prompt]
    other_data = [score for score in on_tasks if _is_on_other_data(score, grid.on(score.task))]
    differences = []
    for words, concerned in ((_OTHER_PROMPT, other_prompt), (_OTHER_DATA, other_data)):
        if not concerned:
            continue
        if len(on_tasks) > 1:
            words = f"{words} on {len(concerned)} of {plural(len(on_tasks), 'task')}"
        differences.append(words)
    return PublishedValue(value, tuple(differences))


def _is_comparable(records: Iterable[Result], metric: str | None) -> bool:
    """Return whether records are on MTEB's own data, and shown by its main score."""
    for record in records:
        if record.task.mteb is None or record.task.is_substitute or record.task.is_generated:
            return False
        # Without another metric, a table shows the main score of a record, which may be another.
        if metric is None and task_score(record) is not record.main:
            return False
    return True


def _is_on_other_data(score: PublishedScore, records: Sequence[Result]) -> bool:
    revisions = {record.task.revision for record in records}
    return bool(revisions) and score.data_revision not in revisions


def published_legend(models: Iterable[PublishedModel]) -> tuple[tuple[str, str], ...]:
    """Say what published scores are, and where they come from: source, date and licence."""
    origin = source()
    about = (
        "not measured here; no rank, interval or test. "
        f"Source: MTEB's results at {origin.commit[:_DIGITS]} of {origin.date}, {origin.licence}."
    )
    legend = [("Published (grey):", about)]
    if any(value.differences for model in models for value in model.values.values()):
        legend.append((DIFFERS, f"{_OTHER_PROMPT} or {_OTHER_DATA}"))
    return tuple(legend)


def published_note(models: Iterable[PublishedModel]) -> str:
    """Return the legend as sentences."""
    (title, about), *marks = published_legend(models)
    sentences = [f"{title} {about}", *[f"{mark}: {meaning}." for mark, meaning in marks]]
    return " ".join(sentences)


def published_rows(models: Iterable[PublishedModel], columns: Sequence[str]) -> list[list[Cell]]:
    """Return a row of cells per model; words say in each that a number is published."""
    rows = []
    for model in models:
        row = [Cell(f"{model.name} (published)", "not measured here", is_published=True)]
        for column in columns:
            value = model.values.get(column)
            if value is None:
                row.append(Cell(model.absence(column), is_published=True))
            else:
                row.append(Cell(value.text(3), value.words, is_published=True))
        rows.append(row)
    return rows


def with_published(table: Table, models: Sequence[PublishedModel], columns: Sequence[str]) -> Table:
    """Return a table of measured scores, with a row per published model below.

    A last column says where each row comes from. Published numbers have no value for sorting,
    ranks or averages.
    """
    if not models or not table.rows:
        return table
    rows = [(*row, Cell("measured here")) for row in table.rows]
    for model, row in zip(models, published_rows(models, columns), strict=True):
        rows.append((*row, Cell(model.origin, is_published=True)))
    return replace(
        table,
        columns=(*table.columns, "source"),
        rows=tuple(rows),
        legend=(*table.legend, *published_legend(models)),
    )
