"""The verdict on each candidate against the model in use, and the choice of candidates.

A candidate matters if its difference from the model in use is significant (see `differences`)
**and** larger than ``margin``. `qwen3nb.answers.decision` chooses between those that
matter and the model in use.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from qwen3nb.analysis.comparison.alignment import (
    Names,
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
from qwen3nb.analysis.stats.resampling import DRAWS
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.answers.comparison import Comparison
from qwen3nb.metrics.intervals import Interval
from qwen3nb.metrics.retrieval import find_measure
from qwen3nb.records.record import Result
from qwen3nb.records.results import newest
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
    procedure = comparison.procedure
    candidate = difference.first
    is_significant = difference.significant(procedure.alpha)
    is_large = abs(difference.difference) > procedure.margin
    verdict = comparison.verdict(difference)
    text = (
        f"{verdict}: {difference.metric} differs by {difference.difference:+.3f} "
        f"{interval_text(difference.interval)} (corrected p "
        f"{p_value_text(difference.corrected, relation=True)}, n = {difference.n})"
    )
    if is_significant and not is_large:
        text += f": significant, but not larger than {procedure.margin:g}"
    if is_large and not is_significant:
        text += f": larger than {procedure.margin:g}, but not significant"
    if doubt:
        reason = f"{NO_VERDICT}, as {doubt}; {text}"
        return Recommendation(candidate, NO_VERDICT, matters=False, text=reason)
    return Recommendation(candidate, verdict, matters=is_significant and is_large, text=text)


def rule(comparison: Comparison, deciding: TaskComparison) -> str:
    """Describe the rule, with its parameters and the family of tests."""
    procedure = comparison.procedure
    text = (
        f"Rule: a candidate is taken if it is better by {deciding.metric}, by more than "
        f"{procedure.margin:g}. Of candidates that cannot be told apart from the best, the "
        "cheapest is taken. Better or worse: the corrected p-value is below "
        f"{procedure.alpha:g} and the interval excludes 0. Equivalent: the interval is within "
        f"±{procedure.margin:g}. Test: {comparison.test} ({deciding.draws:,} sign flips), "
        f"{comparison.family(deciding.task)}, by that metric."
    )
    clusters = deciding.clustered
    if clusters:
        text += f" Queries of a cluster count together: {clusters}."
    return text


def largest_changes(matrix: ScoreMatrix, *, most: int) -> list[QueryChange]:
    """Return up to ``most`` queries with the largest differences between two systems."""
    candidate = matrix.systems[0]
    changes = []
    # The scores (2, n) become a pair of numbers per query.
    for query, (score, current) in zip(matrix.queries, matrix.scores.T.tolist(), strict=True):
        if score != current:
            change = QueryChange(
                model=candidate,
                query=query,
                current=current,
                score=score,
                difference=score - current,
            )
            changes.append(change)
    changes.sort(key=lambda change: (-abs(change.difference), change.query))
    return changes[:most]


@dataclass(frozen=True)
class _Selection:
    """What is selected from the records: which model is in use, on which data, by which metrics."""

    current: str  # name or label of the model in use
    task: str  # key or data set; empty for the model's only one
    models: Sequence[str]  # names or labels of candidates; empty for all
    metrics: Sequence[str]  # that a record must have per query
    names: Names

    def is_current(self, record: Result) -> bool:
        """Whether a record is of the model in use."""
        return self.current in self.names_of(record)

    def is_wanted(self, record: Result) -> bool:
        """Whether a record is of the model in use, or of a candidate."""
        return not self.models or not self.names_of(record).isdisjoint([self.current, *self.models])

    def names_of(self, record: Result) -> set[str]:
        """Return the name and the label of a record's model."""
        return {record.model.label, system_name(record, self.names)}

    def missing_metrics(self, record: Result) -> list[str]:
        """Return the required metrics that a record lacks."""
        return [metric for metric in self.metrics if metric not in record.per_query]


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
    selection = _Selection(
        current=current, task=task, models=models, metrics=tested, names=system_names(on_task)
    )
    in_use = _model_in_use(on_task, selection)
    key = in_use.task.key
    deciding_metric = tested[0] if tested else in_use.task.main_metric
    reason = without_result(in_use, deciding_metric)
    if reason:
        raise NothingFoundError(f"{current}, the model in use, {reason} on {key}: no verdict")
    candidates = [record for record in on_task if record.task.key == key and record is not in_use]
    # Raises if a name is unknown, before candidates that are not wanted are dropped.
    _check_models(candidates, selection, key)
    candidates = [record for record in candidates if selection.is_wanted(record)]
    compared = []
    left_out = []
    for record in candidates:
        reason = _why_left_out(record, in_use, deciding_metric, selection)
        if reason:
            left_out.append(reason)
        else:
            compared.append(record)
    if not compared:
        text = f"no model to compare with {current!r} on {key}: "
        text += "; ".join(left_out) or "no record"
        # Callers show that nothing was found as an answer, and any other reason as an error.
        if _any_found_nothing(candidates, in_use, deciding_metric):
            raise NothingFoundError(text)
        raise ValueError(text)
    return [in_use, *compared], left_out


def _any_found_nothing(candidates: Sequence[Result], in_use: Result, deciding_metric: str) -> bool:
    """Return whether a candidate found nothing on the data of the model in use."""
    same_data = [record for record in candidates if _has_same_revision(record, in_use)]
    return any(without_result(record, deciding_metric) for record in same_data)


def _on_task(records: Sequence[Result], task: str) -> list[Result]:
    """Return the records of a task by its key, else of a data set; without either, all."""
    if not task:
        return list(records)
    of_key = [record for record in records if record.task.key == task]
    if of_key:
        return of_key
    return [record for record in records if task in (record.task.dataset, _own_data(record))]


def _how_to_measure(records: Sequence[Result], selection: _Selection) -> str:
    """Say how the model in use gets metrics that its own data lack; empty if that is no cause."""
    for record in records:
        missing = selection.missing_metrics(record)
        is_on_own_data = selection.is_current(record) and _own_data(record)
        if is_on_own_data and all(find_measure(metric) for metric in missing):
            options = " ".join(f"--metric '{metric}'" for metric in missing)
            return f". Measure it: qwen3nb domain … {options}"
    return ""


def _model_in_use(records: Sequence[Result], selection: _Selection) -> Result:
    """Return the newest record of the model in use, on own data if a task is not named.

    Raises:
        ValueError: none has the metrics, or they are of several tasks.
    """
    usable = [
        record
        for record in records
        if selection.is_current(record) and not selection.missing_metrics(record)
    ]
    if not usable:
        available = ", ".join(sorted(selection.names.values())) or "no model"
        wanted = f"no record of {selection.current!r}"
        if selection.metrics:
            wanted += f" with {' and '.join(selection.metrics)} per query"
        if selection.task:
            wanted += f" on {selection.task!r}"
        advice = _how_to_measure(records, selection)
        raise ValueError(f"{wanted}; available: {available}{advice}")
    # Own data come first, unless a task is named.
    on_own_data = [record for record in usable if _own_data(record)]
    if on_own_data and not selection.task:
        usable = on_own_data
    # Versions of one data set are the same data; the newest record is used.
    data = {(_data_set(record), record.task.type) for record in usable}
    if len(data) > 1:
        tasks = sorted({record.task.key for record in usable})
        raise ValueError(f"choose a task: {', '.join(tasks)}")
    return newest(usable)


def _check_models(candidates: Sequence[Result], selection: _Selection, task: str) -> None:
    """Refuse names of candidates that no record has."""
    available = {selection.current}
    for record in candidates:
        available |= selection.names_of(record)
    for model in selection.models:
        if model not in available:
            names = ", ".join(sorted(available))
            raise ValueError(f"no record of {model!r} on {task}; available: {names}")


def _why_left_out(
    record: Result, in_use: Result, deciding_metric: str, selection: _Selection
) -> str:
    """Return why a record is no candidate; empty if it is one."""
    name = system_name(record, selection.names)
    if not _has_same_revision(record, in_use):
        return f"{name} was run on another revision of the data"
    missing_metrics = selection.missing_metrics(record)
    if missing_metrics:
        return f"{name} has no {missing_metrics[0]} per query"
    reason = without_result(record, deciding_metric)
    if reason:
        return f"no verdict on {name}, which {reason}"
    if (record.model.identity, record.seed) == (in_use.model.identity, in_use.seed):
        return f"{name} is the same model as {selection.current}"
    return ""


def _has_same_revision(record: Result, in_use: Result) -> bool:
    return record.task.revision == in_use.task.revision


def _own_data(result: Result) -> str:
    """Return the name of a record's own data set without its prefix; empty for other data."""
    dataset = result.task.dataset or ""
    if not dataset.startswith(CUSTOM_DATA):
        return ""
    return dataset.removeprefix(CUSTOM_DATA)


def _data_set(result: Result) -> str:
    return result.task.dataset or result.task.key


def same_data(results: Iterable[Result], records: Sequence[Result]) -> list[Result]:
    """Return all runs of the models of ``records`` on their data set, in any of its revisions."""
    # All records are of one task.
    record = records[0]
    labels = {compared.model.label for compared in records}
    return [
        result
        for result in results
        if result.model.label in labels
        and result.task.type == record.task.type
        and _data_set(result) == _data_set(record)
    ]


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
    rows_of_category: dict[str, list[int]] = {}
    for row, query in enumerate(matrix.queries):
        category = categories.get(query, OTHER)
        rows_of_category.setdefault(category, []).append(row)
    categories_compared = []
    for category in sorted(rows_of_category):
        of_category = matrix.at(rows_of_category[category])
        categories_compared.append(_category_row(category, of_category, draws=draws, seed=seed))
    # Holm's correction over the categories; all queries together are no further test.
    adjusted = adjust([row.p_value for row in categories_compared])
    corrected = [
        replace(row, p_value=p_value)
        for row, p_value in zip(categories_compared, adjusted, strict=True)
    ]
    all_queries = matrix.at(range(len(matrix.queries)))
    overall = _category_row("all", all_queries, draws=draws, seed=seed)
    first_system, second_system = matrix.systems
    return Breakdown(first_system, second_system, overall, tuple(corrected), matrix.notes)


def _category_row(category: str, matrix: ScoreMatrix, *, draws: int, seed: int) -> CategoryRow:
    """Compare two systems on the queries of a matrix; the p-value is not adjusted yet."""
    # Two systems make a single pair.
    (difference,) = paired_differences(matrix, draws=draws, seed=seed)
    first_mean, second_mean = difference.means
    return CategoryRow(
        category=category,
        n=difference.n,
        first=first_mean,
        second=second_mean,
        difference=difference.difference,
        interval=difference.interval,
        p_value=difference.p_value,
    )
