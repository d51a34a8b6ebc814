"""Per-query scores from MTEB's predictions, checked against MTEB's own score.

Columns by task type:

    Retrieval, Reranking   metric name  -> query id -> value
    STS                    cosine, gold -> pair     -> value
    Classification         accuracy     -> text     -> share of repetitions that are correct
    Clustering             v_measure    -> draw     -> value

For other types the record holds MTEB's value, without per-query scores or an interval. The
same applies to a correlation over several languages, which is a mean of correlations, not
the correlation of the pooled pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qwen3nb.evaluation.run import EvaluationError
from qwen3nb.metrics.aggregate import REPORTED, Aggregate
from qwen3nb.metrics.retrieval import score_run

__all__ = [
    "SEARCH_TYPES",
    "UNIT",
    "UNITS",
    "check_agreement",
    "extract_scores",
    "task_size",
]

AGREEMENT = 1e-5  # MTEB rounds some of its scores to five decimals
RETRIEVAL_METRICS = ("nDCG@10", "MRR@10", "Recall@10", "Recall@100", "MAP@100")
SEARCH_TYPES = ("Retrieval", "Reranking")
PerQuery = dict[str, dict[str, float]]


Named = dict[str, tuple[str, tuple[str, ...]]]  # metric -> aggregate, columns


def extract_scores(
    task: Any, predicted: dict[str, Any], scores: dict[str, Any]
) -> tuple[PerQuery, Named, str]:
    """Return per-query columns, how to aggregate them, and the main metric's name."""
    extractor = _EXTRACTORS.get(task.metadata.type)
    columns: PerQuery = {}
    parts = [(split, subset) for subset in task.hf_subsets for split in task.eval_splits]
    if extractor is None or (task.metadata.type == "STS" and len(parts) > 1):
        main = str(task.metadata.main_score)
        return columns, {main: (REPORTED, ())}, main
    for split, subset in parts:
        data = task.dataset.get(subset, task.dataset)
        prefix = "" if len(parts) == 1 else f"{split}/{subset}/"
        one = next(entry for entry in scores[split] if entry["hf_subset"] == subset)
        extracted = extractor(data, split, predicted[subset][split], one)
        for column, values in extracted.items():
            columns.setdefault(column, {}).update(
                {f"{prefix}{query}": float(value) for query, value in values.items()}
            )
    named, main = _NAMED[task.metadata.type]
    return columns, named, main


def _retrieval(data: Any, split: str, predicted: Any, scores: Any) -> PerQuery:
    return score_run(data[split]["relevant_docs"], predicted, RETRIEVAL_METRICS)


def _sts(data: Any, split: str, predicted: Any, scores: Any) -> PerQuery:
    names = [f"{index:05d}" for index in range(len(predicted["cosine_scores"]))]
    return {
        "cosine": dict(zip(names, predicted["cosine_scores"], strict=True)),
        "gold": dict(zip(names, data[split]["score"], strict=True)),
    }


def _classification(data: Any, split: str, predicted: Any, scores: Any) -> PerQuery:
    labels = list(data[split]["label"])
    hits = {
        f"{index:05d}": sum(row[index] == label for row in predicted) / len(predicted)
        for index, label in enumerate(labels)
    }
    return {"accuracy": hits}


def _clustering(data: Any, split: str, predicted: Any, scores: Any) -> PerQuery:
    levels = scores["v_measures"].values()
    draws = [value for level in levels for value in level]
    return {"v_measure": {f"{index:02d}": value for index, value in enumerate(draws)}}


_SEARCH_NAMED: Named = {name: ("mean", (name,)) for name in RETRIEVAL_METRICS}
_EXTRACTORS: dict[str, Callable[[Any, str, Any, Any], PerQuery]] = {
    "Retrieval": _retrieval,
    "Reranking": _retrieval,
    "STS": _sts,
    "Classification": _classification,
    "Clustering": _clustering,
}
_NAMED: dict[str, tuple[Named, str]] = {
    "Retrieval": (_SEARCH_NAMED, "nDCG@10"),
    "Reranking": (_SEARCH_NAMED, "nDCG@10"),
    "STS": (
        {"Spearman": ("spearman", ("cosine", "gold")), "Pearson": ("pearson", ("cosine", "gold"))},
        "Spearman",
    ),
    "Classification": ({"accuracy": ("mean", ("accuracy",))}, "accuracy"),
    "Clustering": ({"V-measure": ("mean", ("v_measure",))}, "V-measure"),
}
UNITS = {
    "Retrieval": "queries",
    "Reranking": "queries",
    "STS": "pairs",
    "Classification": "texts",
    "Clustering": "draws",
}
UNIT = "items"  # of any other type
# MTEB's name for the metric that is checked; its main score may be another one.
_THEIRS = {
    "Retrieval": "ndcg_at_10",
    "Reranking": "ndcg_at_10",
    "STS": "cosine_spearman",
    "Classification": "accuracy",
    "Clustering": "v_measure",
}


def check_agreement(task: Any, ours: Aggregate, outcome: Any) -> None:
    """Check that MTEB's score and the per-query scores agree.

    Raises:
        EvaluationError: they differ by more than `AGREEMENT`.
    """
    if ours.how == REPORTED:
        return
    key = _THEIRS[task.metadata.type]
    entries = [entry for split in outcome.scores.values() for entry in split]
    theirs = sum(entry[key] for entry in entries) / len(entries)
    if len(entries) > 1:
        return  # MTEB averages over subsets, a record pools their queries
    if ours.value is None or not abs(ours.value - theirs) <= AGREEMENT:
        raise EvaluationError(
            f"{task.metadata.name}: MTEB's {key} is {theirs}, the per-query scores give "
            f"{ours.value} ({ours.undefined or 'they differ by more than 1e-5'})"
        )


def task_size(task: Any) -> dict[str, int]:
    """Return the number of queries and documents, or of texts, in the task."""
    if task.metadata.type not in SEARCH_TYPES:
        splits = task.dataset if task.eval_splits[0] in task.dataset else {}
        return {"texts": sum(len(splits[split]) for split in task.eval_splits if split in splits)}
    parts = [subset[split] for subset in task.dataset.values() for split in subset]
    return {
        "documents": sum(len(part["corpus"]) for part in parts),
        "queries": sum(len(part["queries"]) for part in parts),
    }
