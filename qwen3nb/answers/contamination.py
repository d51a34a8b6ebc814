"""Was the test in the training data? Texts of tasks in it, and scores without them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from qwen3nb.answers.answer import Answer
from qwen3nb.answers.comparison import Comparison, compare
from qwen3nb.records.store import latest
from qwen3nb.report.render.table import Cell, Conclusion, Table, number, plural
from qwen3nb.utils.format import json_text
from qwen3nb.utils.imports import DataFrame

if TYPE_CHECKING:
    from qwen3nb.analysis.comparison.differences import PairedDifference
    from qwen3nb.datasets.training_data import TrainingData
    from qwen3nb.evaluation.contamination import Contamination
    from qwen3nb.metrics.aggregate import Aggregate
    from qwen3nb.records.record import Result

_MOST_TASKS = 3  # in the conclusion
_SCORE_COLUMNS = (
    "task",
    "model",
    "score",
    "without hits",
    "to baseline",
    "to baseline, without hits",
)


@dataclass(frozen=True)
class CleanScore:
    """The score of a model on all queries of a task, and on those that were not found."""

    task: str
    model: str
    score: Aggregate
    clean: Aggregate | None  # None without scores per query
    difference: PairedDifference | None  # from the baseline, on all queries
    clean_difference: PairedDifference | None


@dataclass(frozen=True, repr=False)
class ContaminationAnswer(Answer):
    """Texts of tasks that are in training data, and scores without them."""

    texts: tuple[Contamination, ...]  # queries and documents of each task
    scores: tuple[CleanScore, ...]  # on tasks of which queries were found
    training: TrainingData  # what was read

    @property
    def contaminated(self) -> tuple[Contamination, ...]:
        """The tasks of which queries were found."""
        return tuple(texts for texts in self.texts if texts.texts == "queries" and texts.hits)

    def scored(self, results: Iterable[Result]) -> ContaminationAnswer:
        """Return this answer with the scores of records on the contaminated tasks."""
        records = latest(results)
        scores: list[CleanScore] = []
        for texts in self.contaminated:
            scores += _clean_scores(texts, records)
        return replace(self, scores=tuple(scores))

    @property
    def conclusion(self) -> Conclusion:
        """Of which tasks queries are in the training data."""
        if not self.contaminated:
            return Conclusion("No query of these tasks is in the training data that was read.")
        most_first = sorted(self.contaminated, key=lambda texts: -texts.share)
        parts = [
            f"{len(texts.hits):,} of {texts.number:,} of {texts.task}"
            for texts in most_first[:_MOST_TASKS]
        ]
        text = f"Queries that are in the training data: {', '.join(parts)}."
        more_tasks = len(most_first) - _MOST_TASKS
        if more_tasks > 0:
            text += f" So are some of {plural(more_tasks, 'more task')}, see the table."
        return Conclusion(text)

    def table(self) -> Table:
        """A row per task and kind of text: how many were found, and by what."""
        from qwen3nb.evaluation.contamination import KINDS

        # Last, the number of texts found of each kind.
        rows = [
            (texts.task, texts.texts, texts.number, f"{texts.share:.1%}", *texts.found.values())
            for texts in self.texts
        ]
        sentences = [self.training.summary()]
        # 4 if one of four sequences of words is looked up, as there are too many.
        sampled = max((texts.sampled for texts in self.texts), default=1)
        if sampled > 1:
            sentences.append(f"One of {sampled} sequences of documents was looked up.")
        without_words = sum(texts.wordless for texts in self.texts)
        if without_words:
            sentences.append(f"{without_words:,} texts without a word cannot be found.")
        return Table.of(
            rows,
            ("task", "texts", "number", "found", *KINDS),
            note=" ".join(sentences),
            name="contamination",
            caption="Texts of tasks that are in the training data.",
        )

    def scores_table(self) -> Table:
        """A row per model and task: the scores with and without the queries that were found."""
        rows = []
        for score in self.scores:
            row = (
                score.task,
                score.model,
                score.score,
                score.clean or "no scores per query",
                _difference_cell(score.difference),
                _difference_cell(score.clean_difference),
            )
            rows.append(row)
        return Table.of(
            rows,
            _SCORE_COLUMNS,
            empty="No records of a task of which queries were found.",
            name="clean-scores",
            caption="Scores on all queries, and without those in the training data.",
        )

    def to_frame(self) -> DataFrame:
        """Return a row per task and kind of text."""
        import pandas as pd

        rows = [
            (texts.task, texts.texts, texts.number, len(texts.hits), texts.share)
            for texts in self.texts
        ]
        return pd.DataFrame(rows, columns=["task", "texts", "number", "found", "share"])

    def to_json(self) -> str:
        """Return what was read, what was found, and the scores, as strict JSON."""
        training = self.training
        files_read = {
            "files": len(training.sources),
            "rows": training.rows,
            "texts": training.texts,
            "about": [str(file) for file in training.about],
            "without_text": dict(training.without_text),
        }
        scores = []
        for score in self.scores:
            # The fields of a score are in the order of the columns.
            values = vars(score).values()
            scores.append(dict(zip(_SCORE_COLUMNS, values, strict=True)))
        texts = [asdict(texts_of_task) for texts_of_task in self.texts]
        return json_text({"training": files_read, "texts": texts, "scores": scores})


def contamination(
    training: object,
    *,
    tier: str = "smoke",
    tasks: str = "",
    results: Iterable[Result] = (),
) -> ContaminationAnswer:
    """Look for the queries and documents of tasks in training data.

    Args:
        training: a file, a folder, a data frame or a ``datasets.Dataset``; or several.
        tier: the tier whose texts are looked up.
        tasks: comma-separated names of tasks, instead of the tier's.
        results: records whose scores are computed again without the queries that were found.

    Raises:
        DataError: a file that cannot be read; nothing is said of data not read.
    """
    from qwen3nb.datasets.in_memory import is_table
    from qwen3nb.datasets.training_data import find_training_data
    from qwen3nb.evaluation.contamination import look_up, task_texts
    from qwen3nb.evaluation.mteb.select import choose_tasks

    inputs = [training]
    if isinstance(training, Iterable) and not (isinstance(training, str) or is_table(training)):
        inputs = list(training)
    training_data = find_training_data(inputs)
    texts = []
    for task in choose_tasks(tier=tier, tasks=tasks):
        texts += task_texts(task)
    matches = look_up(training_data, texts)
    answer = ContaminationAnswer(texts=tuple(matches), scores=(), training=training_data)
    return answer.scored(results)


def _clean_scores(found: Contamination, records: Sequence[Result]) -> list[CleanScore]:
    """Return the scores on a task; none of a clustering, which is scored in draws of rows."""
    from qwen3nb.evaluation.contamination import without

    task = found.task
    # A clustering is scored in random draws, which have no queries to leave out.
    on_task = [
        record for record in records if record.task.key == task and record.task.unit != "draws"
    ]
    clean_records = [without(record, found.hits) for record in on_task]
    comparison = compare(on_task)
    clean_comparison = compare(clean_records)
    scores = []
    for record, clean_record in zip(on_task, clean_records, strict=True):
        has_scores_per_query = bool(record.main.columns)
        score = CleanScore(
            task=task,
            model=record.model.label,
            score=record.main,
            clean=clean_record.main if has_scores_per_query else None,
            difference=_to_baseline(comparison, record, task),
            clean_difference=_to_baseline(clean_comparison, record, task),
        )
        scores.append(score)
    return scores


def _to_baseline(comparison: Comparison, record: Result, task: str) -> PairedDifference | None:
    return comparison.difference(comparison.name(record), comparison.baseline, task=task)


def _difference_cell(difference: PairedDifference | None) -> Cell | None:
    if difference is None:
        return None
    return number(difference.difference, "+.3f", interval=difference.interval)
