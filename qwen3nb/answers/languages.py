"""How good is each model in each language? Means over the tasks of a study, by language.

A language counts on every task that has it: with the subsets in it if the task has several, else
with the task's score. A mean needs a score on each of these tasks, as on MTEB's leaderboard.
"""

from collections.abc import Iterable, Mapping
from statistics import fmean

from qwen3nb.analysis.comparison.alignment import model_names
from qwen3nb.answers.board.grid import by_model
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.store import latest
from qwen3nb.report.render.table import Cell, Head, Table, number, plural


def scores_by_language(record: Result) -> dict[str, float]:
    """Return the score of a record in each of its languages; empty if it does not say which.

    Subsets of two languages, such as translations, count as ``deu-eng``.
    """
    scores: dict[str, list[float]] = {}
    for part in record.parts:
        if part.languages and part.score.value is not None:
            scores.setdefault(_name(part.languages), []).append(part.score.value)
    if not record.parts and record.task.languages and record.main.value is not None:
        scores[_name(record.task.languages)] = [record.main.value]
    return {language: fmean(values) for language, values in scores.items()}


def _name(languages: Iterable[str]) -> str:
    """Return the name of one or more languages, without their scripts: ``deu-eng``."""
    names = {language.partition("-")[0] for language in languages}
    return "-".join(sorted(names))


def language_table(results: Iterable[Result]) -> Table | None:
    """Return a row per model and a column per language; None for fewer than two languages."""
    records = latest(results)
    names = model_names(records)
    scores_of_model: dict[str, dict[str, dict[str, float]]] = {}  # by language, then by task
    tasks: dict[str, set[str]] = {}  # by language
    for identity, record_by_task in by_model(records).items():
        by_language = scores_of_model.setdefault(names[identity], {})
        for task, record in record_by_task.items():
            for language, score in scores_by_language(record).items():
                by_language.setdefault(language, {})[task] = score
                tasks.setdefault(language, set()).add(task)
    if len(tasks) < 2:
        return None
    # The language with most tasks first.
    languages = sorted(tasks, key=lambda language: (-len(tasks[language]), language))
    heads = ["model"]
    for language in languages:
        count = len(tasks[language])
        heads.append(Head(f"{language}\n{plural(count, 'task')}", count))
    rows = []
    for model in sorted(scores_of_model):
        cells = [
            _cell(scores_of_model[model].get(language, {}), len(tasks[language]))
            for language in languages
        ]
        rows.append([model, *cells])
    return Table.of(
        rows,
        heads,
        best=True,
        name="languages",
        caption="Means of the main scores by language, over the tasks of this study.",
        note="Best of each language in bold. A mean needs a score on each of its tasks.",
        data=DataUsed.of(records),
    )


def _cell(scores: Mapping[str, float], tasks: int) -> Cell:
    """Return the mean over the tasks of a language, or how many of them have a score."""
    if len(scores) == tasks:
        return number(fmean(scores.values()))
    if not scores:
        return Cell("not run")
    return Cell(f"{len(scores)} of {tasks}", "incomplete")
