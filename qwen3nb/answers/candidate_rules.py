"""The verdict on each candidate against the model in use, and the choice of candidates.

A candidate matters if its difference from the model in use is significant (see `differences`)
**and** larger than ``margin``. `qwen3nb.answers.decision` chooses between those that
matter and the model in use.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qwen3nb.analysis.comparison.alignment import (
    Names,
    score_columns,
    system_name,
    system_names,
    without_result,
)
from qwen3nb.analysis.comparison.differences import (
    PairedDifference,
    TaskComparison,
    paired_differences,
)
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix, join, shared_queries
from qwen3nb.answers.comparison import Comparison
from qwen3nb.metrics.intervals import Interval, mean_interval
from qwen3nb.records.record import Result
from qwen3nb.records.results import from_oldest, newest
from qwen3nb.records.store import latest
from qwen3nb.utils.format import interval_text, p_value_text

CUSTOM_DATA = "domain-"  # prefix of the data sets of `qwen3nb domain`
OTHER = "(no category)"


class NothingFoundError(ValueError):
    """A model found nothing for any query, as if it never ran; there is nothing to compare."""


@dataclass(frozen=True)
class Recommendation:
    """The rule's verdict on one candidate."""

    model: str
    verdict: str  # see `differences.verdict`
    matters: bool  # whether the difference is significant and larger than the margin
    text: str  # the verdict with its reason


@dataclass(frozen=True)
class QueryChange:
    """A query on which a candidate and the model in use differ."""

    model: str  # name of the candidate
    query: str  # id of the query
    current: float  # score of the model in use
    score: float  # score of the candidate
    difference: float  # candidate - model in use


NO_VERDICT = "no verdict"


def recommend(
    difference: PairedDifference, *, comparison: Comparison, doubt: str = ""
) -> Recommendation:
    """Apply the rule to a candidate's difference from the model in use.

    With a ``doubt`` that could turn it, there is no verdict.
    """
    how, each = comparison.procedure, difference
    significant, large = each.significant(how.alpha), abs(each.difference) > how.margin
    word = comparison.verdict(each)
    text = (
        f"{word}: {each.metric} differs by {each.difference:+.3f} {interval_text(each.interval)} "
        f"(corrected p {p_value_text(each.corrected, relation=True)}, n = {each.n})"
    )
    if significant and not large:
        text += f": significant, but not larger than {how.margin:g}"
    if large and not significant:
        text += f": larger than {how.margin:g}, but not significant"
    if doubt:
        return Recommendation(each.first, NO_VERDICT, False, f"{NO_VERDICT}, as {doubt}; {text}")
    return Recommendation(each.first, word, significant and large, text)


def rule(comparison: Comparison, deciding: TaskComparison) -> str:
    """Describe the rule, with its parameters and the family of tests."""
    how = comparison.procedure
    return (
        f"Rule: a candidate is taken if it is better by {deciding.metric}, by more than "
        f"{how.margin:g}. Of candidates that cannot be told apart from the best, the cheapest is "
        f"taken. Better or worse: the corrected p-value is below {how.alpha:g} and the interval "
        f"excludes 0. Equivalent: the interval is within ±{how.margin:g}. Test: "
        f"{comparison.test} ({deciding.draws:,} sign flips), "
        f"{comparison.family(deciding.task)}, by that metric."
        + (f" Queries of a cluster count together: {of}." if (of := deciding.clustered) else "")
    )


def largest_changes(matrix: ScoreMatrix, *, most: int) -> list[QueryChange]:
    """Return up to ``most`` queries with the largest differences between two systems."""
    changes = [
        QueryChange(matrix.systems[0], query, current, score, score - current)
        for query, (score, current) in zip(matrix.queries, matrix.scores.T.tolist(), strict=True)
        if score != current
    ]
    return sorted(changes, key=lambda change: (-abs(change.difference), change.query))[:most]


@dataclass(frozen=True)
class _Selection:
    """What is selected from the records: which model is in use, on which data, by which metrics."""

    current: str  # name or label of the model in use
    task: str  # key or data set; empty for the model's only one
    models: Sequence[str]  # names or labels of candidates; empty for all
    tested: Sequence[str]  # metrics that a record must have per query
    names: Names

    def calls(self, record: Result, *models: str) -> bool:
        """Whether a record's model has one of these names or labels."""
        return not self.of(record).isdisjoint(models)

    def of(self, record: Result) -> set[str]:
        """Return the name and the label of a record's model."""
        return {record.model.label, system_name(record, self.names)}

    def missing_metrics(self, record: Result) -> list[str]:
        """Return the tested metrics that a record lacks."""
        return [metric for metric in self.tested if metric not in record.per_query]


def select_candidates(
    results: Iterable[Result],
    *,
    current: str,
    task: str = "",
    models: Sequence[str] = (),
    tested: Sequence[str] = (),
) -> tuple[list[Result], list[str]]:
    """Return the newest record per model, the model in use first, and notes on those left out.

    The newest of several versions of a data set is used, and ``tested`` metrics are required per
    query. Arguments and errors are those of `compare_candidates`.
    """
    on_task = _on_task(latest(results), task)
    selection = _Selection(current, task, models, tested, system_names(on_task))
    used = _model_in_use(on_task, selection)
    key = used.task.key
    deciding = tested[0] if tested else used.task.main_metric
    reason = without_result(used, deciding)
    if reason:
        raise NothingFoundError(f"{current}, the model in use, {reason} on {key}: no verdict")
    others = [record for record in on_task if record.task.key == key and record is not used]
    _check_models(others, selection, key)
    if models:
        others = [record for record in others if selection.calls(record, current, *models)]
    records, left_out = [used], []
    for record in others:
        reason = _why_left_out(record, used, deciding, selection)
        if reason:
            left_out.append(reason)
        else:
            records.append(record)
    if len(records) < 2:
        same_data = [record for record in others if record.task.revision == used.task.revision]
        found_nothing = any(without_result(record, deciding) for record in same_data)
        error = NothingFoundError if found_nothing else ValueError
        raise error(
            f"no model to compare with {current!r} on {key}: {'; '.join(left_out) or 'no record'}"
        )
    return records, left_out


def _on_task(records: Sequence[Result], task: str) -> list[Result]:
    """Return the records of a task by its key, else of a data set; without either, all."""
    if not task:
        return list(records)
    of_key = [record for record in records if record.task.key == task]
    of_data = [record for record in records if task in (record.task.dataset, _custom_data(record))]
    return of_key or of_data


def _model_in_use(records: Sequence[Result], selection: _Selection) -> Result:
    """Return the newest record of the model in use, on own data if a task is not named.

    Raises:
        ValueError: none has the metrics, or they are of several tasks.
    """
    own = [
        record
        for record in records
        if selection.calls(record, selection.current) and not selection.missing_metrics(record)
    ]
    if not own:
        available = ", ".join(sorted(selection.names.values())) or "no model"
        place = f" on {selection.task!r}" if selection.task else ""
        raise ValueError(
            f"no record of {selection.current!r} with {' and '.join(selection.tested)} per query"
            f"{place}; available: {available}"
        )
    if not selection.task:
        own = [record for record in own if _custom_data(record)] or own
    if len({(record.task.dataset or record.task.key, record.task.type) for record in own}) > 1:
        tasks = sorted({record.task.key for record in own})
        raise ValueError(f"choose a task: {', '.join(tasks)}")
    return newest(own)


def _check_models(others: Sequence[Result], selection: _Selection, task: str) -> None:
    """Refuse names of candidates that no record has."""
    available = {selection.current}.union(*(selection.of(record) for record in others))
    for model in selection.models:
        if model not in available:
            names = ", ".join(sorted(available))
            raise ValueError(f"no record of {model!r} on {task}; available: {names}")


def _why_left_out(record: Result, used: Result, deciding: str, selection: _Selection) -> str:
    """Return why a record is no candidate; empty if it is one."""
    name = system_name(record, selection.names)
    if record.task.revision != used.task.revision:
        return f"{name} was run on another revision of the data"
    missing = selection.missing_metrics(record)
    if missing:
        return f"{name} has no {missing[0]} per query"
    reason = without_result(record, deciding)
    if reason:
        return f"no verdict on {name}, which {reason}"
    if (record.model.identity, record.seed) == (used.model.identity, used.seed):
        return f"{name} is the same model as {selection.current}"
    return ""


def _custom_data(result: Result) -> str:
    """Return the name of a record's custom data set without its prefix; empty for other data."""
    dataset = result.task.dataset or ""
    return dataset.removeprefix(CUSTOM_DATA) if dataset.startswith(CUSTOM_DATA) else ""


@dataclass(frozen=True)
class CategoryRow:
    """Two systems on one category."""

    category: str
    n: int  # number of queries that both answered
    first: float  # mean of a; ``second`` is that of b
    second: float
    difference: float  # mean of a - b
    interval: Interval | None  # of the difference, or None for a single query
    p_value: float  # paired permutation test, adjusted by Holm over the categories


@dataclass(frozen=True)
class Breakdown:
    """Two systems by category."""

    first: str  # name of a; ``second`` is that of b
    second: str
    overall: CategoryRow  # the difference over all queries
    rows: tuple[CategoryRow, ...]  # one per category, ordered by name
    notes: tuple[str, ...]  # queries that do not pair


def breakdown(
    matrix: ScoreMatrix, categories: Mapping[str, str], *, draws: int = DRAWS, seed: int
) -> Breakdown:
    """Compare two systems within each category of queries.

    ``categories`` are by query id; queries without one form their own category.
    """
    groups: dict[str, list[int]] = {}
    for index, query in enumerate(matrix.queries):
        groups.setdefault(categories.get(query, OTHER), []).append(index)

    def row(name: str, members: Sequence[int]) -> CategoryRow:
        (each,) = paired_differences(matrix.at(members), draws=draws, seed=seed)
        return CategoryRow(name, each.n, *each.means, each.difference, each.interval, each.p_value)

    rows = [row(name, members) for name, members in sorted(groups.items())]
    adjusted = adjust([each.p_value for each in rows])
    rows = [replace(each, p_value=p) for each, p in zip(rows, adjusted, strict=True)]
    overall = row("all", range(len(matrix.queries)))
    first, second = matrix.systems
    return Breakdown(first, second, overall, tuple(rows), matrix.notes)


@dataclass(frozen=True)
class TrendPoint:
    """One run in a trend."""

    label: str  # of the model
    finished: str  # time, ISO 8601
    identity: str  # of the model's weights and settings
    revision: str  # of the data
    # over queries; ``interval`` is its widened or Student's interval, or None for a single query
    mean: float
    interval: Interval | None
    n: int
    # mean paired difference from the previous run; None for the first run and where the data
    # changed
    change: float | None = None
    change_interval: Interval | None = None  # of the change
    p_value: float | None = None  # paired permutation test, Holm-corrected over all changes


def trend(
    results: Iterable[Result], *, metric: str, n_resamples: int = DRAWS, seed: int
) -> tuple[TrendPoint, ...]:
    """Successive runs of models, ordered by label and time; labels with one run are left out.

    A run is a record; consecutive ones on the same revision of the data are compared by query.
    """
    runs: dict[str, list[Result]] = {}
    for result in from_oldest(results):
        if metric in result.per_query:
            runs.setdefault(result.model.label, []).append(result)
    points = []
    for records in runs.values():
        if len(records) > 1:
            for before, result in zip([None, *records], records, strict=False):
                points.append(_point(before, result, metric, n_resamples, seed))
    values = iter(adjust([p.p_value for p in points if p.p_value is not None]))
    return tuple(p if p.p_value is None else replace(p, p_value=next(values)) for p in points)


def _point(before: Result | None, result: Result, metric: str, draws: int, seed: int) -> TrendPoint:
    """Return a run, with its paired difference from the previous one if on the same data."""
    values = result.scores.sample([metric])[:, 0]
    point = TrendPoint(
        label=result.model.label,
        finished=result.finished,
        identity=result.model.identity,
        revision=str(result.task.revision),
        mean=float(values.mean()),
        interval=mean_interval(values, level=LEVEL)[1],
        n=len(values),
    )
    if before is None:
        return point
    names, task = system_names([result, before]), before.task
    columns, _ = score_columns(task.key, [result, before], names, metric, str(task.revision))
    if len(columns) < 2 or not shared_queries([each.queries for each in columns.values()]):
        return point
    matrix = join(columns, task=task.key, metric=metric, clusters=result.task.clusters)
    (each,) = paired_differences(matrix, draws=draws, seed=seed)
    return replace(
        point, change=each.difference, change_interval=each.interval, p_value=each.p_value
    )
