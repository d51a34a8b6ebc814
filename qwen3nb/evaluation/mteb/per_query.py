"""Per-query scores from MTEB's predictions, checked against MTEB's own score.

Columns by task type:

    Retrieval, Reranking   metric name  -> query id -> value
    STS                    cosine, gold -> pair     -> value
    Classification         accuracy     -> text     -> share of repetitions that are correct
    Clustering             v_measure    -> draw     -> value

If a task has several splits or subsets, ids begin with ``split/subset/``, and each metric is the
mean over these parts, as in MTEB; the value of every part is kept, too.

A record contains only ids. `SearchTexts` provides queries, judgements and documents, if the data
are in the package, the mirror or the hub's cache.

The main metric is MTEB's main score. If it cannot be computed from the columns (other types, or a
score such as ``p-MRR``), the record has MTEB's value, without an interval.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from qwen3nb.datasets.mirror import load_here
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.evaluation.run import SEARCH_TYPES, EvaluationError
from qwen3nb.metrics.aggregate import REPORTED, Aggregate, aggregate, numbered, reported
from qwen3nb.metrics.query_scores import QueryScores
from qwen3nb.metrics.retrieval import Run, ranking, recorded_measures, score_run
from qwen3nb.metrics.run_arrays import RunBuilder
from qwen3nb.models.search.mteb_rows import ColumnValues, joined_query
from qwen3nb.records.details import TOP_DEPTH
from qwen3nb.records.record import Part, TaskInfo

if TYPE_CHECKING:
    from mteb import AbsTask

_AGREEMENT = 1e-5  # MTEB rounds some of its scores to five decimals


class Metric(NamedTuple):
    """How a metric follows from columns."""

    how: str  # see `aggregate`
    columns: tuple[str, ...]


Metrics = dict[str, Metric]  # by name
# Metrics of types other than search, and MTEB's name of the first.
_METRICS: dict[str, tuple[Metrics, str]] = {
    "STS": (
        {
            "Spearman": Metric("spearman", ("cosine", "gold")),
            "Pearson": Metric("pearson", ("cosine", "gold")),
        },
        "cosine_spearman",
    ),
    "Classification": ({"accuracy": Metric("mean", ("accuracy",))}, "accuracy"),
    "Clustering": ({"V-measure": Metric("mean", ("v_measure",))}, "v_measure"),
}
PREDICTED_TYPES = ("STS", "Classification")  # whose predictions are scored here, besides searches
_SEARCH_NAMES = {"ndcg": "nDCG", "map": "MAP", "recall": "Recall", "precision": "P"}
# Such as ``ndcg_at_10``.
_SEARCH_SCORE = re.compile(r"(?:max_over_subqueries_)?(ndcg|map|recall|precision)_at_(\d+)")
_UNITS = {
    "queries": ("Retrieval", "Reranking", "InstructionRetrieval", "InstructionReranking"),
    "pairs": ("STS", "PairClassification", "BitextMining"),
    "texts": ("Classification", "MultilabelClassification", "Regression", "Summarization"),
    "draws": ("Clustering",),
}


@dataclass(frozen=True)
class Slice:
    """One split of one subset: loaded rows, or corpus, queries and judgements.

    The ids of its queries begin with ``prefix``.
    """

    split: str
    subset: str
    prefix: str
    data: Any


@dataclass(frozen=True)
class TaskScores:
    """The scores of one model on one task; see `qwen3nb.records.Result` for the first fields.

    ``qrels`` and ``run`` are the judgements and rankings of a search, with the query ids of the
    columns; ``top`` has the ids of each query's best documents, best first.
    """

    per_query: QueryScores
    metrics: dict[str, Aggregate]
    main: str
    unit: str
    size: dict[str, int]
    parts: tuple[Part, ...]
    qrels: dict[str, Any]
    run: Run

    @property
    def top(self) -> dict[str, list[str]]:
        """The best documents of each query; empty if nothing is searched."""
        return {query: ranking(self.run, query, TOP_DEPTH) for query in self.run}


def metrics_of(kind: str) -> tuple[str, ...]:
    """Return the metrics in records of tasks of MTEB's type ``kind``."""
    if kind in SEARCH_TYPES:
        return recorded_measures("task")
    metrics, _ = _METRICS.get(kind, ({}, ""))
    return tuple(metrics)


def task_slices(task: AbsTask) -> list[Slice]:
    """Return the evaluated splits and subsets of a loaded task."""
    has_one_slice = len(task.eval_splits) == 1 and list(task.hf_subsets) == ["default"]
    slices = []
    for subset in task.hf_subsets:
        for split in task.eval_splits:
            prefix = f"{split}/{subset}/"
            if has_one_slice:
                prefix = ""
            # Data of a single subset may have no level of subsets.
            data = task.dataset.get(subset, task.dataset).get(split)
            slices.append(Slice(split, subset, prefix, data))
    return slices


def score_task(task: AbsTask, predicted: Mapping[str, Any], outcome: Any) -> TaskScores:
    """Score a loaded MTEB task from its predictions, by subset and split, and its ``TaskResult``.

    Raises:
        EvaluationError: MTEB's main score differs from ours by more than 1e-5.
    """
    entries = _entries(outcome)
    slices = [part for part in task_slices(task) if (part.split, part.subset) in entries]
    metrics, main = _metrics(task)
    columns: dict[str, dict[str, float]] = {}
    qrels: dict[str, Any] = {}
    run: dict[str, Mapping[str, float]] = {}  # of a task in one part
    whole_run = RunBuilder()  # of one in many, in a tenth of the memory
    for part in slices:
        predictions = predicted.get(part.subset, {}).get(part.split)
        if task.metadata.type in SEARCH_TYPES:
            judgements, rankings = _judged_run(task, part, predictions)
            # As in MTEB: all judged queries; a query without a relevant document counts as 0.
            values = dict(score_run(judgements, rankings, metrics, zeros=True))
            for query, grades in judgements.items():
                qrels[part.prefix + query] = grades
                if len(slices) == 1:
                    run[part.prefix + query] = rankings.get(query, {})
                else:
                    whole_run.add(part.prefix + query, rankings.get(query, {}))
        else:
            values = _values(task, part, predictions, entries[part.split, part.subset])
            if not values:  # a form that is not known here: MTEB's score stands alone
                metrics, main = {}, str(task.metadata.main_score)
        for column, scores in values.items():
            numbers = {part.prefix + query: float(score) for query, score in scores.items()}
            columns.setdefault(column, {}).update(numbers)
    if not metrics:
        columns = {}
    per_query = QueryScores.of(columns)
    return TaskScores(
        per_query,
        _aggregates(task, slices, per_query, metrics, main, outcome),
        main,
        _unit(task),
        _size(task, slices),
        _parts(task, slices, per_query, metrics.get(main), entries),
        qrels,
        whole_run.run() if qrels and len(slices) > 1 else run,
    )


def _entries(outcome: Any) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Return the scores that MTEB reports, by split and subset."""
    entries = {}
    for split, scores in outcome.scores.items():
        for entry in scores:
            entries[split, entry["hf_subset"]] = entry
    return entries


def _aggregates(
    task: AbsTask,
    slices: Sequence[Slice],
    per_query: QueryScores,
    metrics: Metrics,
    main: str,
    outcome: Any,
) -> dict[str, Aggregate]:
    """Return the aggregates of a task.

    Raises:
        EvaluationError: MTEB's main score is another.
    """
    prefixes: tuple[str, ...] = ()
    if len(slices) > 1:
        prefixes = tuple(part.prefix for part in slices)
    score_of_mteb = float(outcome.get_score())
    aggregates = {}
    if main not in metrics:
        # A score that only MTEB computes, such as ``p-MRR``, has no values per query.
        count = sum(_number_of_items(task, part.data) for part in slices)
        aggregates[main] = reported(score_of_mteb, n=count)
    for name, metric in metrics.items():
        aggregates[name] = aggregate(
            per_query, how=metric.how, columns=metric.columns, parts=prefixes
        )
    _check_agreement(task, aggregates[main], score_of_mteb)
    return aggregates


def _parts(
    task: AbsTask,
    slices: Sequence[Slice],
    per_query: QueryScores,
    metric: Metric | None,
    entries: Mapping[tuple[str, str], Mapping[str, Any]],
) -> tuple[Part, ...]:
    """Return the main score of each part, if there are several; MTEB's own without ``metric``.

    Raises:
        EvaluationError: MTEB's main score of a part is another.
    """
    if len(slices) == 1:
        return ()
    parts = []
    for part in slices:
        entry = entries[part.split, part.subset]
        score_of_mteb = float(entry["main_score"])
        if metric is None:
            score = reported(score_of_mteb, n=_number_of_items(task, part.data))
        else:
            score = aggregate(
                per_query, how=metric.how, columns=metric.columns, parts=(part.prefix,)
            )
        _check_agreement(task, score, score_of_mteb, on=f" on {part.split}/{part.subset}")
        languages = tuple(entry["languages"])
        parts.append(Part(part.split, part.subset, languages, score=score, mteb=score_of_mteb))
    return tuple(parts)


def _unit(task: AbsTask) -> str:
    """Return what the scores of a task are counted in."""
    if by_reader(task):
        return "readers"
    for unit, kinds in _UNITS.items():
        if task.metadata.type in kinds:
            return unit
    return "items"


def _size(task: AbsTask, slices: Sequence[Slice]) -> dict[str, int]:
    """Return the numbers of documents and queries, of pairs or of texts."""
    if all(_is_search(part.data) for part in slices):
        return {
            "documents": sum(len(part.data["corpus"]) for part in slices),
            "queries": sum(len(part.data["queries"]) for part in slices),
        }
    unit = "texts"
    # The types that are counted in pairs.
    if task.metadata.type in _UNITS["pairs"]:
        unit = "pairs"
    return {unit: sum(_number_of_items(task, part.data) for part in slices)}


def _values(
    task: AbsTask, part: Slice, predictions: Any, scores: Any
) -> dict[str, dict[str, float]]:
    """Return the columns of a task that is not a search; none if only MTEB can score it."""
    kind = task.metadata.type
    if kind == "Clustering":
        values = list(_numbers(scores.get("v_measures")))
        if not values:
            return {}
        # By draw: ``00``, ``01`` and so on.
        return {"v_measure": numbered(values, digits=2)}
    if kind not in PREDICTED_TYPES or not predictions:
        return {}
    rows = part.data
    if kind == "STS" and "score" in rows.column_names:
        cosines = numbered(predictions["cosine_scores"])
        return {"cosine": cosines, "gold": numbered(rows["score"])}
    if kind == "Classification" and task.label_column_name in rows.column_names:
        labels = rows[task.label_column_name]
        return {"accuracy": numbered(_shares_correct(predictions, labels))}
    return {}


def _shares_correct(repetitions: Sequence[Any], labels: Iterable[Any]) -> list[float]:
    """Return the share of repetitions that predict the label of each row."""
    shares = []
    for row, label in enumerate(labels):
        correct = sum(predictions[row] == label for predictions in repetitions)
        shares.append(correct / len(repetitions))
    return shares


def _numbers(values: Any) -> Iterator[float]:
    """Yield the numbers in lists: of each level of labels, or in older tasks of each set."""
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, Sequence):
        for inner in values:
            yield from _numbers(inner)
    elif values is not None:
        yield float(values)


def _judged_run(task: AbsTask, part: Slice, rankings: Any) -> tuple[Any, Any]:
    """Return the judgements and rankings scored by MTEB.

    Some tasks exclude the document with the query's own id. Others merge the queries of one user:
    with the best score of every document, and their (equal) judgements.
    """
    all_judgements = part.data["relevant_docs"]
    # In the order of the queries: MTEB has judgements in another one each time.
    judgements = {
        query: all_judgements[query]
        for query in ColumnValues(part.data["queries"], "id")
        if query in all_judgements
    }
    if task.ignore_identical_ids:
        rankings = {query: _without_document(query, scores) for query, scores in rankings.items()}
    # Such as the queries ``7_0`` and ``7_1`` of the reader 7.
    if by_reader(task):
        return _merged_by_reader(judgements, rankings)
    return judgements, rankings


def _merged_by_reader(
    judgements: Mapping[str, Any], rankings: Mapping[str, Mapping[str, float]]
) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """Merge the queries of each reader, such as ``7_0`` and ``7_1`` of the reader ``7``."""
    judgements_by_reader: dict[str, Any] = {}
    best_by_reader: dict[str, dict[str, float]] = {}
    for query, grades in judgements.items():
        reader, _, _ = query.rpartition("_")  # of ``7_1``, it is ``7``
        judgements_by_reader[reader] = grades  # the same for all of a reader's queries
        best_scores = best_by_reader.setdefault(reader, {})
        for document, score in rankings.get(query, {}).items():
            best_scores[document] = max(score, best_scores.get(document, score))
    return judgements_by_reader, best_by_reader


def _without_document(document: str, scores: Mapping[str, float]) -> dict[str, float]:
    return {name: score for name, score in scores.items() if name != document}


def by_reader(task: AbsTask) -> bool:
    """Return whether the queries of one user, such as ``7_0`` and ``7_1``, are merged."""
    return str(task.metadata.main_score).startswith("max_over_subqueries_")


def _metrics(task: AbsTask) -> tuple[Metrics, str]:
    """Return the metrics computed from the columns, and the name of the main metric.

    For a search, the main metric is ours if available, such as ``MAP@1000``.
    """
    score_of_mteb = str(task.metadata.main_score)
    if task.metadata.type not in SEARCH_TYPES:
        metrics, first_in_mteb = _METRICS.get(task.metadata.type, ({}, ""))
        if score_of_mteb == first_in_mteb:  # such as ``cosine_spearman``, our ``Spearman``
            first_metric = next(iter(metrics))
            return metrics, first_metric
        return metrics, score_of_mteb
    measures = [str(measure) for measure in recorded_measures("task")]
    main = score_of_mteb
    # MTEB's ``map_at_1000`` is our ``MAP@1000``.
    match = _SEARCH_SCORE.fullmatch(score_of_mteb)
    if match:
        name, depth = match.groups()
        main = f"{_SEARCH_NAMES[name]}@{depth}"
        measures = [main, *measures]
    return {measure: Metric("mean", (measure,)) for measure in measures}, main


def _check_agreement(
    task: AbsTask, score: Aggregate, score_of_mteb: float, *, on: str = ""
) -> None:
    if score.how == REPORTED:
        return
    agrees = score.value is not None and abs(score.value - score_of_mteb) <= _AGREEMENT
    if not agrees:
        raise EvaluationError(
            f"{task.metadata.name}{on}: MTEB's {task.metadata.main_score} is {score_of_mteb}, the "
            f"per-query scores give {score.value} "
            f"({score.undefined or 'they differ by more than 1e-5'})"
        )


def _is_search(data: Any) -> bool:
    return isinstance(data, Mapping) and "corpus" in data


def _number_of_items(task: AbsTask, data: Any) -> int:
    """Return the number of queries, or of rows; lists in a row count by their items."""
    if _is_search(data):
        return len(data["queries"])
    column = getattr(task, "input_column_name", None)
    # All pairs may be in one row, with a list per column.
    is_row_of_pairs = task.metadata.type == "PairClassification" and len(data) == 1
    if is_row_of_pairs:
        column = task.label_column_name
    if not isinstance(column, str) or len(data) == 0:
        return len(data)
    has_lists = isinstance(data[0].get(column), list)
    if has_lists:
        return sum(len(items) for items in data[column])
    return len(data)


class DocumentText(NamedTuple):
    """A document of a corpus; its title may be empty."""

    title: str
    text: str


class SearchTexts:
    """Texts and judgements by the ids of a record."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._slices = tuple(slices)

    @classmethod
    def of_task(cls, task: TaskInfo) -> Self:
        """Read the splits and subsets of a record's task.

        Raises:
            ValueError: an unknown task, a task of another type, or data that are not available
                locally.
            OSError: the data cannot be read.
        """
        (selected,) = choose_tasks(tasks=[task.name], splits=task.splits, subsets=task.subsets)
        if selected.metadata.type not in SEARCH_TYPES:
            raise ValueError(f"{task.name} is of type {selected.metadata.type} and has no queries")
        load_here(selected)
        selected.convert_v1_dataset_format_to_v2(num_proc=None)
        return cls(task_slices(selected))

    def text(self, query: str) -> str:
        """Return the text of a query; empty for an unknown id."""
        return self._queries.get(query, "")

    def grades(self, query: str) -> dict[str, int]:
        """Return the judged documents of a query with their grades."""
        part = self._slice_of(query)
        if part is None:
            return {}
        judgements = part.data["relevant_docs"].get(query.removeprefix(part.prefix), {})
        return {str(document): int(grade) for document, grade in judgements.items()}

    def documents(
        self, wanted: Mapping[str, Collection[str]]
    ) -> dict[str, dict[str, DocumentText]]:
        """Return the ``wanted`` documents of each query, in one pass over the corpus.

        Documents that are not in the corpus are left out.
        """
        texts: dict[str, dict[str, DocumentText]] = {query: {} for query in wanted}
        for part in self._slices:
            # Ids of queries begin with the prefix of their part.
            queries = [query for query in wanted if self._slice_of(query) is part]
            names: set[str] = set()
            for query in queries:
                names.update(wanted[query])
            rows = _document_texts(part.data["corpus"], names)
            for query in queries:
                texts[query] = {name: rows[name] for name in wanted[query] if name in rows}
        return texts

    def _slice_of(self, query: str) -> Slice | None:
        """Return the split and subset that has a query."""
        for part in self._slices:
            if query.startswith(part.prefix):
                return part
        return None

    @cached_property
    def _queries(self) -> dict[str, str]:
        texts = {}
        for part in self._slices:
            for row in part.data["queries"]:
                texts[f"{part.prefix}{row['id']}"] = joined_query(row)
        return texts


def _document_texts(corpus: Any, names: Collection[str]) -> dict[str, DocumentText]:
    """Return the documents of these names; only the ids of other rows are read."""
    if not names:
        return {}
    positions = [row for row, name in enumerate(ColumnValues(corpus, "id")) if str(name) in names]
    texts = {}
    for row in corpus.select(positions):
        text = DocumentText(str(row.get("title") or ""), str(row["text"] or ""))
        texts[str(row["id"])] = text
    return texts
