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

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

from qwen3nb.datasets.mirror import load_here
from qwen3nb.evaluation.mteb.select import choose_tasks
from qwen3nb.evaluation.run import SEARCH_TYPES, EvaluationError
from qwen3nb.metrics.aggregate import REPORTED, Aggregate, aggregate, numbered, reported
from qwen3nb.metrics.query_scores import QueryScores
from qwen3nb.metrics.retrieval import rank_documents, recorded_measures, score_run
from qwen3nb.models.search.mteb_rows import joined_query
from qwen3nb.records.record import Part, TaskInfo

_AGREEMENT = 1e-5  # MTEB rounds some of its scores to five decimals
_TOP = 10  # documents per query in a record
Metrics = dict[str, tuple[str, tuple[str, ...]]]  # metric -> aggregate, columns
# Metrics of types other than search, and MTEB's name of the first.
_METRICS: dict[str, tuple[Metrics, str]] = {
    "STS": (
        {"Spearman": ("spearman", ("cosine", "gold")), "Pearson": ("pearson", ("cosine", "gold"))},
        "cosine_spearman",
    ),
    "Classification": ({"accuracy": ("mean", ("accuracy",))}, "accuracy"),
    "Clustering": ({"V-measure": ("mean", ("v_measure",))}, "v_measure"),
}
PREDICTED_TYPES = ("STS", "Classification")  # whose predictions are scored here, besides searches
_SEARCH_NAMES = {"ndcg": "nDCG", "map": "MAP", "recall": "Recall", "precision": "P"}
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
    run: dict[str, Any]

    @property
    def top(self) -> dict[str, list[str]]:
        """The best documents of each query; empty if nothing is searched."""
        return {query: rank_documents(scores)[:_TOP] for query, scores in self.run.items()}


def metrics_of(kind: str) -> tuple[str, ...]:
    """Return the metrics in records of tasks of MTEB's type ``kind``."""
    if kind in SEARCH_TYPES:
        return recorded_measures("task")
    metrics, _ = _METRICS.get(kind, ({}, ""))
    return tuple(metrics)


def task_slices(task: Any) -> list[Slice]:
    """Return the evaluated splits and subsets of a loaded task."""
    pairs = [(split, subset) for subset in task.hf_subsets for split in task.eval_splits]
    first_split, _ = pairs[0]
    is_whole = pairs == [(first_split, "default")]
    slices = []
    for split, subset in pairs:
        prefix = "" if is_whole else f"{split}/{subset}/"
        data = task.dataset.get(subset, task.dataset).get(split)
        slices.append(Slice(split, subset, prefix, data))
    return slices


def score_task(task: Any, predicted: Mapping[str, Any], outcome: Any) -> TaskScores:
    """Score a loaded MTEB task from its predictions, by subset and split, and its ``TaskResult``.

    Raises:
        EvaluationError: MTEB's main score differs from ours by more than 1e-5.
    """
    reported_scores = {
        (split, entry["hf_subset"]): entry
        for split, entries in outcome.scores.items()
        for entry in entries
    }
    slices = [part for part in task_slices(task) if (part.split, part.subset) in reported_scores]
    metrics, main = _metrics(task)
    columns: dict[str, dict[str, float]] = {}
    qrels: dict[str, Any] = {}
    run: dict[str, Any] = {}
    for part in slices:
        predictions = predicted.get(part.subset, {}).get(part.split)
        if task.metadata.type in SEARCH_TYPES:
            judgements, rankings = _judged_run(task, part, predictions)
            # As in MTEB: all judged queries; a query without a relevant document counts as 0.
            values = dict(score_run(judgements, rankings, metrics, zeros=True))
            for query, grades in judgements.items():
                qrels[part.prefix + query] = grades
                run[part.prefix + query] = rankings.get(query, {})
        else:
            values = _values(task, part, predictions, reported_scores[part.split, part.subset])
            if not values:  # a form that is not known here: MTEB's score stands alone
                metrics, main = {}, str(task.metadata.main_score)
        for column, scores in values.items():
            numbers = {part.prefix + query: float(score) for query, score in scores.items()}
            columns.setdefault(column, {}).update(numbers)
    if not metrics:
        columns = {}
    per_query = QueryScores.of(columns)
    aggregates, parts = _aggregates(task, slices, per_query, metrics, main, outcome)
    return TaskScores(
        per_query, aggregates, main, _unit(task), _size(task, slices), parts, qrels, run
    )


def _aggregates(
    task: Any,
    slices: Sequence[Slice],
    per_query: QueryScores,
    metrics: Metrics,
    main: str,
    outcome: Any,
) -> tuple[dict[str, Aggregate], tuple[Part, ...]]:
    """Return the aggregates of a task, and the parts if there are several.

    Raises:
        EvaluationError: MTEB's main score, of the task or a part, is another.
    """
    prefixes: tuple[str, ...] = ()
    if len(slices) > 1:
        prefixes = tuple(part.prefix for part in slices)
    aggregates = {}
    theirs = float(outcome.get_score())
    if main not in metrics:
        count = sum(_count(task, part.data) for part in slices)
        aggregates[main] = reported(theirs, n=count)
    for name, (how, columns) in metrics.items():
        aggregates[name] = aggregate(per_query, how=how, columns=columns, parts=prefixes)
    _check_agreement(task, aggregates[main], theirs)
    if not prefixes:
        return aggregates, ()
    entries = {
        (split, entry["hf_subset"]): entry
        for split, split_entries in outcome.scores.items()
        for entry in split_entries
    }
    parts = []
    for part in slices:
        entry = entries[part.split, part.subset]
        value = float(entry["main_score"])
        score = reported(value, n=_count(task, part.data))
        if main in metrics:
            how, columns = metrics[main]
            score = aggregate(per_query, how=how, columns=columns, parts=(part.prefix,))
        _check_agreement(task, score, value, on=f" on {part.split}/{part.subset}")
        parts.append(Part(part.split, part.subset, tuple(entry["languages"]), score, value))
    return aggregates, tuple(parts)


def _unit(task: Any) -> str:
    """Return what the scores of a task are counted in."""
    if by_reader(task):
        return "readers"
    for unit, kinds in _UNITS.items():
        if task.metadata.type in kinds:
            return unit
    return "items"


def _size(task: Any, slices: Sequence[Slice]) -> dict[str, int]:
    """Return the numbers of documents and queries, of pairs or of texts."""
    if all(_is_search(part.data) for part in slices):
        return {
            "documents": sum(len(part.data["corpus"]) for part in slices),
            "queries": sum(len(part.data["queries"]) for part in slices),
        }
    unit = "pairs" if task.metadata.type in _UNITS["pairs"] else "texts"
    return {unit: sum(_count(task, part.data) for part in slices)}


def _values(task: Any, part: Slice, predictions: Any, scores: Any) -> dict[str, dict[str, float]]:
    """Return the columns of a task that is not a search; none if only MTEB can score it."""
    match task.metadata.type:
        case "STS" if predictions and "score" in part.data.column_names:
            return {
                "cosine": numbered(predictions["cosine_scores"]),
                "gold": numbered(part.data["score"]),
            }
        case "Classification" if predictions and task.label_column_name in part.data.column_names:
            shares = []
            for row, label in enumerate(part.data[task.label_column_name]):
                correct = sum(repetition[row] == label for repetition in predictions)
                shares.append(correct / len(predictions))
            return {"accuracy": numbered(shares)}
        case "Clustering":
            values = list(_numbers(scores.get("v_measures")))
            if values:
                return {"v_measure": numbered(values, digits=2)}
    return {}


def _numbers(values: Any) -> Iterator[float]:
    """Yield the numbers in lists: of each level of labels, or in older tasks of each set."""
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, Sequence):
        for inner in values:
            yield from _numbers(inner)
    elif values is not None:
        yield float(values)


def _judged_run(task: Any, part: Slice, rankings: Any) -> tuple[Any, Any]:
    """Return the judgements and rankings scored by MTEB.

    Some tasks exclude the document with the query's own id. Others merge the queries of one user:
    with the best score of every document, and their (equal) judgements.
    """
    queries = set(part.data["queries"]["id"])
    judgements = {
        query: grades for query, grades in part.data["relevant_docs"].items() if query in queries
    }
    if task.ignore_identical_ids:
        rankings = {query: _without(query, scores) for query, scores in rankings.items()}
    if not by_reader(task):
        return judgements, rankings
    judgements_by_reader: dict[str, Any] = {}
    best_by_reader: dict[str, dict[str, float]] = {}
    for query, grades in judgements.items():
        reader = query.rpartition("_")[0]
        judgements_by_reader[reader] = grades
        best = best_by_reader.setdefault(reader, {})
        for document, score in rankings.get(query, {}).items():
            best[document] = max(score, best.get(document, score))
    return judgements_by_reader, best_by_reader


def _without(document: str, scores: Mapping[str, float]) -> dict[str, float]:
    return {name: score for name, score in scores.items() if name != document}


def by_reader(task: Any) -> bool:
    """Return whether the queries of one user, such as ``7_0`` and ``7_1``, are merged."""
    return str(task.metadata.main_score).startswith("max_over_subqueries_")


def _metrics(task: Any) -> tuple[Metrics, str]:
    """Return the metrics computed from the columns, and the name of the main metric.

    For a search, the main metric is ours if available, such as ``MAP@1000``.
    """
    theirs = str(task.metadata.main_score)
    if task.metadata.type not in SEARCH_TYPES:
        metrics, first = _METRICS.get(task.metadata.type, ({}, ""))
        if theirs == first:
            return metrics, next(iter(metrics))
        return metrics, theirs
    measures = [str(measure) for measure in recorded_measures("task")]
    main = theirs
    match = _SEARCH_SCORE.fullmatch(theirs)
    if match:
        main = f"{_SEARCH_NAMES[match[1]]}@{match[2]}"
        measures = [main, *measures]
    return {name: ("mean", (name,)) for name in measures}, main


def _check_agreement(task: Any, ours: Aggregate, theirs: float, *, on: str = "") -> None:
    if ours.how != REPORTED and (ours.value is None or not abs(ours.value - theirs) <= _AGREEMENT):
        raise EvaluationError(
            f"{task.metadata.name}{on}: MTEB's {task.metadata.main_score} is {theirs}, the "
            f"per-query scores give {ours.value} "
            f"({ours.undefined or 'they differ by more than 1e-5'})"
        )


def _is_search(data: Any) -> bool:
    return isinstance(data, Mapping) and "corpus" in data


def _count(task: Any, data: Any) -> int:
    """Return the number of queries, or of rows; lists in a row count by their items."""
    if _is_search(data):
        return len(data["queries"])
    column = getattr(task, "input_column_name", None)
    if task.metadata.type == "PairClassification" and len(data) == 1:
        column = task.label_column_name
    if isinstance(column, str) and len(data) and isinstance(data[0].get(column), list):
        return sum(len(value) for value in data[column])
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
        part, name = self._located(query)
        if part is None:
            return {}
        judgements = part.data["relevant_docs"].get(name, {})
        return {str(document): int(grade) for document, grade in judgements.items()}

    def documents(
        self, wanted: Mapping[str, Collection[str]]
    ) -> dict[str, dict[str, DocumentText]]:
        """Return the ``wanted`` documents of each query, in one pass over the corpus.

        Documents that are not in the corpus are left out.
        """
        texts: dict[str, dict[str, DocumentText]] = {query: {} for query in wanted}
        for part in self._slices:
            queries = [query for query in wanted if self._located(query)[0] is part]
            names: set[str] = set()
            for query in queries:
                names.update(wanted[query])
            rows = _document_texts(part.data["corpus"], names)
            for query in queries:
                texts[query] = {name: rows[name] for name in wanted[query] if name in rows}
        return texts

    def _located(self, query: str) -> tuple[Slice | None, str]:
        """Return the slice of a query, and its id in it."""
        for part in self._slices:
            if query.startswith(part.prefix):
                return part, query.removeprefix(part.prefix)
        return None, query

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
    positions = [row for row, name in enumerate(corpus["id"]) if str(name) in names]
    texts = {}
    for row in corpus.select(positions):
        text = DocumentText(str(row.get("title") or ""), str(row["text"] or ""))
        texts[str(row["id"])] = text
    return texts
