"""Per-query scores from MTEB's predictions, checked against MTEB's own score.

Columns by task type:

    Retrieval, Reranking   metric name  -> query id -> value
    STS                    cosine, gold -> pair     -> value
    Classification         accuracy     -> text     -> share of repetitions that are correct
    Clustering             v_measure    -> draw     -> value

Of a search, the best documents of every query are kept too (`TaskScores.top`).

If a task has several splits or subsets, ids begin with ``split/subset/``, each metric is the
mean of its values on these parts, as in MTEB, and the value of every part is kept too.

The main metric is MTEB's main score. Where it does not follow from the columns (other types, or
a score such as ``p-MRR``), the record holds MTEB's value, without an interval.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from qwen3nb.evaluation.run import SEARCH_TYPES, EvaluationError
from qwen3nb.metrics.aggregate import REPORTED, Aggregate, aggregate, reported
from qwen3nb.metrics.retrieval import RECORDED, rank_documents, score_run
from qwen3nb.records.record import Part

AGREEMENT = 1e-5  # MTEB rounds some of its scores to five decimals
TOP = 10  # documents of each query that a record keeps
PerQuery = dict[str, dict[str, float]]
Named = dict[str, tuple[str, tuple[str, ...]]]  # metric -> aggregate, columns
# Metrics of the types that are not searched, and MTEB's name of the first.
_NAMED: dict[str, tuple[Named, str]] = {
    "STS": (
        {"Spearman": ("spearman", ("cosine", "gold")), "Pearson": ("pearson", ("cosine", "gold"))},
        "cosine_spearman",
    ),
    "Classification": ({"accuracy": ("mean", ("accuracy",))}, "accuracy"),
    "Clustering": ({"V-measure": ("mean", ("v_measure",))}, "v_measure"),
}
_SEARCH_NAMES = {"ndcg": "nDCG", "map": "MAP", "recall": "Recall", "precision": "P"}
_SEARCH_SCORE = re.compile(r"(?:max_over_subqueries_)?(ndcg|map|recall|precision)_at_(\d+)")
UNITS = {
    "Retrieval": "queries",
    "Reranking": "queries",
    "InstructionRetrieval": "queries",
    "InstructionReranking": "queries",
    "STS": "pairs",
    "PairClassification": "pairs",
    "BitextMining": "pairs",
    "Classification": "texts",
    "MultilabelClassification": "texts",
    "Regression": "texts",
    "Summarization": "texts",
    "Clustering": "draws",
}
UNIT = "items"  # of any other type


@dataclass(frozen=True)
class Slice:
    """The loaded data of one split of one subset.

    Attributes:
        split: name of the split.
        subset: name of the subset.
        prefix: what the ids of its queries begin with.
        data: its rows, or the corpus, queries and judgements of a search task.
    """

    split: str
    subset: str
    prefix: str
    data: Any


@dataclass(frozen=True)
class TaskScores:
    """The scores of one model on one task; see `qwen3nb.records.Result` for the fields.

    ``top`` holds the ids of each query's best documents, best first; empty if nothing is searched.
    """

    per_query: PerQuery
    metrics: dict[str, Aggregate]
    main: str
    unit: str
    size: dict[str, int]
    parts: tuple[Part, ...]
    top: dict[str, list[str]]


def metrics_of(kind: str) -> tuple[str, ...]:
    """Return the metrics that every record of a task of MTEB's type ``kind`` has."""
    return RECORDED["task"] if kind in SEARCH_TYPES else tuple(_NAMED.get(kind, ({}, ""))[0])


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


def score_task(task: Any, predicted: Mapping[str, Any], outcome: Any, *, seed: int) -> TaskScores:
    """Score a loaded task from MTEB's predictions and result.

    Args:
        task: the MTEB task.
        predicted: MTEB's predictions, by subset and split.
        outcome: MTEB's ``TaskResult``.
        seed: seed of the intervals.

    Raises:
        EvaluationError: MTEB's main score differs from ours by more than `AGREEMENT`.
    """
    evaluated = _evaluated(task, outcome)
    columns = _columns(task, predicted, evaluated)
    named, main = _named(task)
    prefixes = tuple(each.prefix for each, _ in evaluated) if len(evaluated) > 1 else ()

    def measured(name: str, parts: tuple[str, ...]) -> Aggregate:
        how, used = named[name]
        return aggregate(columns, how=how, columns=used, seed=seed, parts=parts)

    metrics = {name: measured(name, prefixes) for name in named}
    count = sum(_count(task, each.data) for each, _ in evaluated)
    if main not in metrics:
        metrics = {main: reported(float(outcome.get_score()), n=count)} | metrics
    parts = [
        Part(
            each.split,
            each.subset,
            tuple(entry["languages"]),
            measured(main, (each.prefix,))
            if main in named
            else reported(entry["main_score"], n=_count(task, each.data)),
            float(entry["main_score"]),
        )
        for each, entry in (evaluated if prefixes else [])
    ]
    _check_agreement(task, metrics[main], float(outcome.get_score()))
    for part in parts:
        _check_agreement(task, part.score, part.mteb, on=f" on {part.split}/{part.subset}")
    return TaskScores(
        columns,
        metrics,
        main,
        "readers" if _by_reader(task) else UNITS.get(task.metadata.type, UNIT),
        _size(task, [each.data for each, _ in evaluated]),
        tuple(parts),
        _top(task, predicted, outcome),
    )


def _evaluated(task: Any, outcome: Any) -> list[tuple[Slice, dict[str, Any]]]:
    """Return the parts that MTEB has scored, each with its scores."""
    entries = {
        (split, entry["hf_subset"]): entry
        for split, each in outcome.scores.items()
        for entry in each
    }
    return [
        (each, entries[each.split, each.subset])
        for each in task_slices(task)
        if (each.split, each.subset) in entries
    ]


def _columns(
    task: Any, predicted: Mapping[str, Any], evaluated: list[tuple[Slice, dict[str, Any]]]
) -> PerQuery:
    columns: PerQuery = {}
    extract = _EXTRACTORS.get(task.metadata.type)
    if extract is None:
        return columns
    for each, entry in evaluated:
        extracted = extract(task, each, predicted[each.subset][each.split], entry)
        for column, values in extracted.items():
            columns.setdefault(column, {}).update(
                {f"{each.prefix}{query}": float(value) for query, value in values.items()}
            )
    return columns


def _search(task: Any, part: Slice, predicted: Any, scores: Any) -> PerQuery:
    """Score rankings as MTEB does.

    It scores the queries that were judged at all; one without a relevant document counts as 0.
    """
    judged, run = _judged_run(task, part, predicted)
    return score_run(judged, run, _search_metrics(task), zeros=True)


def _sts(task: Any, part: Slice, predicted: Any, scores: Any) -> PerQuery:
    names = [f"{index:05d}" for index in range(len(predicted["cosine_scores"]))]
    return {
        "cosine": dict(zip(names, predicted["cosine_scores"], strict=True)),
        "gold": dict(zip(names, part.data["score"], strict=True)),
    }


def _classification(task: Any, part: Slice, predicted: Any, scores: Any) -> PerQuery:
    hits = {
        f"{index:05d}": sum(row[index] == label for row in predicted) / len(predicted)
        for index, label in enumerate(part.data[task.label_column_name])
    }
    return {"accuracy": hits}


def _clustering(task: Any, part: Slice, predicted: Any, scores: Any) -> PerQuery:
    draws = [value for level in scores["v_measures"].values() for value in level]
    return {"v_measure": {f"{index:02d}": value for index, value in enumerate(draws)}}


_EXTRACTORS: dict[str, Callable[[Any, Slice, Any, Any], PerQuery]] = {
    "Retrieval": _search,
    "Reranking": _search,
    "STS": _sts,
    "Classification": _classification,
    "Clustering": _clustering,
}


def scored_run(task: Any, predicted: Mapping[str, Any], outcome: Any) -> tuple[Any, Any]:
    """Return the judgements and the rankings of a search, by the query ids of its columns.

    For the arguments see `score_task`.
    """
    qrels: dict[str, Any] = {}
    run: dict[str, Any] = {}
    for each, _ in _evaluated(task, outcome):
        judged, ranked = _judged_run(task, each, predicted[each.subset][each.split])
        for query, grades in judged.items():
            qrels[f"{each.prefix}{query}"] = grades
            run[f"{each.prefix}{query}"] = ranked.get(query, {})
    return qrels, run


def _top(task: Any, predicted: Mapping[str, Any], outcome: Any) -> dict[str, list[str]]:
    """Return the best documents of each query that is scored."""
    if task.metadata.type not in SEARCH_TYPES:
        return {}
    _, run = scored_run(task, predicted, outcome)
    return {query: rank_documents(scores)[:TOP] for query, scores in run.items()}


def _judged_run(task: Any, part: Slice, predicted: Any) -> tuple[Any, Any]:
    """Return the judgements and the rankings that MTEB scores.

    Some tasks do not count the document with the query's own id.
    """
    queries = set(part.data["queries"]["id"])
    judged = {query: each for query, each in part.data["relevant_docs"].items() if query in queries}
    run = predicted
    if task.ignore_identical_ids:
        run = {
            query: {document: score for document, score in ranked.items() if document != query}
            for query, ranked in predicted.items()
        }
    return _merged(judged, run) if _by_reader(task) else (judged, run)


def _by_reader(task: Any) -> bool:
    """Whether the queries of one reader, such as ``7_0`` and ``7_1``, are scored as one."""
    return str(task.metadata.main_score).startswith("max_over_subqueries_")


def _merged(judged: Mapping[str, Any], run: Mapping[str, Mapping[str, float]]) -> tuple[Any, Any]:
    """Merge the queries of each reader: the best score of every document, their judgements."""
    documents: dict[str, dict[str, float]] = {}
    judgements: dict[str, Any] = {}
    for query, grades in judged.items():
        reader = query.rpartition("_")[0]
        best = documents.setdefault(reader, {})
        for document, score in run.get(query, {}).items():
            best[document] = max(score, best.get(document, score))
        judgements[reader] = grades  # equal for all queries of a reader
    return judgements, documents


def _named(task: Any) -> tuple[Named, str]:
    """Return the metrics that follow from the columns, and the name of the main metric."""
    theirs = str(task.metadata.main_score)
    if task.metadata.type in SEARCH_TYPES:
        named: Named = {name: ("mean", (name,)) for name in _search_metrics(task)}
        return named, _search_main(task) or theirs
    named, first = _NAMED.get(task.metadata.type, ({}, ""))
    return named, next(iter(named)) if theirs == first else theirs


def _search_main(task: Any) -> str | None:
    """Return our name of MTEB's main score, such as ``MAP@1000``; None if we do not have it."""
    match = _SEARCH_SCORE.fullmatch(str(task.metadata.main_score))
    return f"{_SEARCH_NAMES[match[1]]}@{match[2]}" if match else None


def _search_metrics(task: Any) -> list[str]:
    """Return the main metric, then the others."""
    return list(dict.fromkeys(filter(None, [_search_main(task), *RECORDED["task"]])))


def _check_agreement(task: Any, ours: Aggregate, theirs: float, *, on: str = "") -> None:
    if ours.how != REPORTED and (ours.value is None or not abs(ours.value - theirs) <= AGREEMENT):
        raise EvaluationError(
            f"{task.metadata.name}{on}: MTEB's {task.metadata.main_score} is {theirs}, the "
            f"per-query scores give {ours.value} "
            f"({ours.undefined or 'they differ by more than 1e-5'})"
        )


def _size(task: Any, data: list[Any]) -> dict[str, int]:
    """Return the number of queries and documents, of pairs, or of texts."""
    if all(_is_search(each) for each in data):
        return {
            "documents": sum(len(each["corpus"]) for each in data),
            "queries": sum(len(each["queries"]) for each in data),
        }
    unit = "pairs" if UNITS.get(task.metadata.type) == "pairs" else "texts"
    return {unit: sum(_count(task, each) for each in data)}


def _is_search(data: Any) -> bool:
    return isinstance(data, Mapping) and "corpus" in data


def _count(task: Any, data: Any) -> int:
    """Return the number of queries, or of rows; a row that is a list of items counts as many."""
    if _is_search(data):
        return len(data["queries"])
    lists = task.metadata.type == "PairClassification" and len(data) == 1
    column = task.label_column_name if lists else getattr(task, "input_column_name", None)
    if isinstance(column, str) and len(data) and isinstance(data[0].get(column), list):
        return sum(len(value) for value in data[column])
    return len(data)
