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
from qwen3nb.metrics.retrieval import rank_documents, recorded_measures, score_run
from qwen3nb.models.search.mteb_rows import joined_query
from qwen3nb.records.record import Part, TaskInfo

_AGREEMENT = 1e-5  # MTEB rounds some of its scores to five decimals
_TOP = 10  # documents per query in a record
PerQuery = dict[str, dict[str, float]]
Named = dict[str, tuple[str, tuple[str, ...]]]  # metric -> aggregate, columns
# Metrics of types other than search, and MTEB's name of the first.
_NAMED: dict[str, tuple[Named, str]] = {
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

    per_query: PerQuery
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
    named, _ = _NAMED.get(kind, ({}, ""))
    return tuple(named)


def task_slices(task: Any) -> list[Slice]:
    """Return the evaluated splits and subsets of a loaded task."""
    pairs = [(split, subset) for subset in task.hf_subsets for split in task.eval_splits]
    whole = pairs == [(pairs[0][0], "default")]
    return [
        Slice(
            split,
            subset,
            "" if whole else f"{split}/{subset}/",
            task.dataset.get(subset, task.dataset).get(split),
        )
        for split, subset in pairs
    ]


def score_task(task: Any, predicted: Mapping[str, Any], outcome: Any) -> TaskScores:
    """Score a loaded MTEB task from its predictions, by subset and split, and its ``TaskResult``.

    Raises:
        EvaluationError: MTEB's main score differs from ours by more than 1e-5.
    """
    kind, searched = task.metadata.type, task.metadata.type in SEARCH_TYPES
    entries = {
        (split, entry["hf_subset"]): entry
        for split, each in outcome.scores.items()
        for entry in each
    }
    slices = [part for part in task_slices(task) if (part.split, part.subset) in entries]
    named, main = _named(task)
    columns: PerQuery = {}
    qrels: dict[str, Any] = {}
    run: dict[str, Any] = {}
    for part in slices:
        own: Mapping[str, Mapping[str, float]] = {}
        if searched:
            judged, ranked = _judged_run(task, part, predicted[part.subset][part.split])
            # As in MTEB: all judged queries; a query without a relevant document counts as 0.
            own = score_run(judged, ranked, named, zeros=True)
            qrels |= {f"{part.prefix}{query}": grades for query, grades in judged.items()}
            run |= {f"{part.prefix}{query}": ranked.get(query, {}) for query in judged}
        elif kind in _NAMED:
            entry = entries[part.split, part.subset]
            part_predicted = predicted.get(part.subset, {}).get(part.split)
            own = _values(task, part, part_predicted, entry)
            if not own:  # a form that is not known here: MTEB's score stands alone
                named, main, columns = {}, str(task.metadata.main_score), {}
        for column, values in own.items() if named else ():
            columns.setdefault(column, {}).update(
                {f"{part.prefix}{query}": float(value) for query, value in values.items()}
            )

    def measured(name: str, prefixes: tuple[str, ...]) -> Aggregate:
        how, used = named[name]
        return aggregate(columns, how=how, columns=used, parts=prefixes)

    prefixes = tuple(part.prefix for part in slices) if len(slices) > 1 else ()
    metrics = {name: measured(name, prefixes) for name in named}
    theirs = float(outcome.get_score())
    if main not in metrics:
        count = sum(_count(task, part.data) for part in slices)
        metrics = {main: reported(theirs, n=count)} | metrics
    _check_agreement(task, metrics[main], theirs)
    parts = []
    for part in slices if prefixes else []:
        entry = entries[part.split, part.subset]
        value = float(entry["main_score"])
        score = (
            measured(main, (part.prefix,))
            if main in named
            else reported(value, n=_count(task, part.data))
        )
        _check_agreement(task, score, value, on=f" on {part.split}/{part.subset}")
        parts.append(Part(part.split, part.subset, tuple(entry["languages"]), score, value))
    unit = next((unit for unit, kinds in _UNITS.items() if kind in kinds), "items")
    data = [part.data for part in slices]
    if all(map(_is_search, data)):
        documents, queries = (sum(len(each[of]) for each in data) for of in ("corpus", "queries"))
        size = {"documents": documents, "queries": queries}
    else:
        size = {"pairs" if unit == "pairs" else "texts": sum(_count(task, each) for each in data)}
    unit = "readers" if by_reader(task) else unit
    return TaskScores(columns, metrics, main, unit, size, tuple(parts), qrels, run)


def _values(task: Any, part: Slice, predicted: Any, scores: Any) -> PerQuery:
    """Return the columns of a task that is not a search; none if only MTEB can score it."""
    match task.metadata.type:
        case "STS" if predicted and "score" in part.data.column_names:
            pairs = {"cosine": predicted["cosine_scores"], "gold": part.data["score"]}
            return {name: numbered(values) for name, values in pairs.items()}
        case "Classification" if predicted and task.label_column_name in part.data.column_names:
            count, labels = len(predicted), part.data[task.label_column_name]
            right = (sum(row[i] == label for row in predicted) for i, label in enumerate(labels))
            return {"accuracy": numbered(each / count for each in right)}
        case "Clustering":
            values = list(_numbers(scores.get("v_measures")))
            return {"v_measure": numbered(values, digits=2)} if values else {}
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


def _judged_run(task: Any, part: Slice, predicted: Any) -> tuple[Any, Any]:
    """Return the judgements and rankings scored by MTEB.

    Some tasks exclude the document with the query's own id. Others merge the queries of one user:
    with the best score of every document, and their (equal) judgements.
    """
    queries = set(part.data["queries"]["id"])
    judged = {query: each for query, each in part.data["relevant_docs"].items() if query in queries}
    run = predicted
    if task.ignore_identical_ids:
        run = {
            query: {document: score for document, score in ranked.items() if document != query}
            for query, ranked in predicted.items()
        }
    if not by_reader(task):
        return judged, run
    documents: dict[str, dict[str, float]] = {}
    judgements: dict[str, Any] = {}
    for query, grades in judged.items():
        reader = query.rpartition("_")[0]
        best = documents.setdefault(reader, {})
        for document, score in run.get(query, {}).items():
            best[document] = max(score, best.get(document, score))
        judgements[reader] = grades
    return judgements, documents


def by_reader(task: Any) -> bool:
    """Return whether the queries of one user, such as ``7_0`` and ``7_1``, are merged."""
    return str(task.metadata.main_score).startswith("max_over_subqueries_")


def _named(task: Any) -> tuple[Named, str]:
    """Return the metrics computed from the columns, and the name of the main metric.

    For a search, the main metric is ours if available, such as ``MAP@1000``.
    """
    theirs = str(task.metadata.main_score)
    if task.metadata.type not in SEARCH_TYPES:
        named, first = _NAMED.get(task.metadata.type, ({}, ""))
        return named, next(iter(named)) if theirs == first else theirs
    match = _SEARCH_SCORE.fullmatch(theirs)
    measures = [str(measure) for measure in recorded_measures("task")]
    main = theirs
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
    lists = task.metadata.type == "PairClassification" and len(data) == 1
    column = task.label_column_name if lists else getattr(task, "input_column_name", None)
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
        judged = {} if part is None else part.data["relevant_docs"].get(name, {})
        return {str(document): int(grade) for document, grade in judged.items()}

    def documents(
        self, wanted: Mapping[str, Collection[str]]
    ) -> dict[str, dict[str, DocumentText]]:
        """Return the ``wanted`` documents of each query, in one pass over the corpus.

        Documents that are not in the corpus are left out.
        """
        read: dict[str, dict[str, DocumentText]] = {query: {} for query in wanted}
        for part in self._slices:
            own = [query for query in wanted if self._located(query)[0] is part]
            ids = {document for query in own for document in wanted[query]}
            if not ids:
                continue
            corpus = part.data["corpus"]  # only the ids of other rows are read
            indices = [index for index, name in enumerate(corpus["id"]) if str(name) in ids]
            rows = {
                str(row["id"]): DocumentText(str(row.get("title") or ""), str(row["text"] or ""))
                for row in corpus.select(indices)
            }
            for query in own:
                read[query] = {name: rows[name] for name in wanted[query] if name in rows}
        return read

    def _located(self, query: str) -> tuple[Slice | None, str]:
        """Return the slice of a query, and its id in it."""
        for part in self._slices:
            if query.startswith(part.prefix):
                return part, query.removeprefix(part.prefix)
        return None, query

    @cached_property
    def _queries(self) -> dict[str, str]:
        rows = ((part.prefix, row) for part in self._slices for row in part.data["queries"])
        return {f"{prefix}{row['id']}": joined_query(row) for prefix, row in rows}
