"""The front matter of a card: what the hub reads, sorts and filters models by."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.records.record import Result
from qwen3nb.report.card.hub_rules import HUB_ID, license_problem, not_a_language

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

__all__ = ["eval_results", "front_matter", "mteb_name"]

_TAGS = ("sentence-transformers", "feature-extraction", "sentence-similarity", "qwen3", "encoder")
_AT = {"nDCG": "ndcg", "MRR": "mrr", "Recall": "recall", "MAP": "map", "P": "precision"}
_NAMES = {"Spearman": "cosine_spearman", "Pearson": "cosine_pearson", "V-measure": "v_measure"}
# What the hub's widget compares in the browser.
_WIDGET = {
    "source_sentence": "How do I sort a list?",
    "sentences": [
        "Ordering the items of a list",
        "Return a new sorted list from the items in an iterable.",
        "The weather is fine today.",
    ],
}


def mteb_name(metric: str) -> str:
    """Return MTEB's name of a metric; one that MTEB itself has reported stays as it is.

    >>> mteb_name("nDCG@10"), mteb_name("Spearman"), mteb_name("max_ap")
    ('ndcg_at_10', 'cosine_spearman', 'max_ap')
    """
    match = re.fullmatch(r"(\w+)@(\d+)", metric)
    if match and match[1] in _AT:
        return f"{_AT[match[1]]}_at_{match[2]}"
    return _NAMES.get(metric, metric)


def front_matter(
    folder: Path, results: Sequence[Result], stated: Mapping[str, Any], *, name: str
) -> str:
    """Return the front matter as YAML.

    A licence, language, base model or data set that the hub would refuse is left out.

    Args:
        folder: the model.
        results: its records.
        stated: facts by key; see `FACTS`.
        name: of the model in the index of results.
    """
    from huggingface_hub import ModelCardData

    evaluated = list(eval_results(results))
    modular = (folder / "modules.json").is_file()
    own = {key: stated[key] for key in ("license_name", "license_link") if stated.get(key)}
    data = ModelCardData(
        model_name=name,
        library_name="sentence-transformers" if modular else "transformers",
        pipeline_tag="sentence-similarity" if modular else "feature-extraction",
        tags=[*_TAGS, *(["mteb"] if evaluated else [])],
        license=None if license_problem(stated.get("license", "")) else stated["license"],
        language=[each for each in stated.get("language", ()) if not not_a_language(each)] or None,
        datasets=_hub_ids(stated.get("datasets", ())) or None,
        base_model=next(iter(_hub_ids([stated.get("base_model") or ""])), None),
        eval_results=evaluated or None,
        widget=[_WIDGET] if modular else None,
        **own,
    )
    return str(data.to_yaml())


def _hub_ids(names: Sequence[str]) -> list[str]:
    return [name for name in names if HUB_ID.fullmatch(name)]


def eval_results(results: Sequence[Result]) -> Iterator[EvalResult]:
    """Yield what the hub's index of results lists, an entry per split, subset and metric."""
    for result in results:
        if result.parts:
            main = result.task.main_metric
            for part in result.parts:
                yield from _entries(result, {main: part.score}, part.subset, part.split)
        else:
            subset, split = (_only(each) for each in (result.task.subsets, result.task.splits))
            yield from _entries(result, _main_first(result), subset, split)


def _main_first(result: Result) -> dict[str, Aggregate]:
    return {result.task.main_metric: result.main} | result.metrics


def _entries(
    result: Result, metrics: Mapping[str, Aggregate], subset: str | None, split: str | None
) -> Iterator[EvalResult]:
    from huggingface_hub import EvalResult

    task = result.task
    for metric, value in metrics.items():
        if value.value is None:
            continue
        theirs = task.mteb.metric if task.mteb and metric == task.main_metric else mteb_name(metric)
        yield EvalResult(
            task_type=task.type,
            task_name=task.type,
            dataset_type=task.dataset,
            dataset_name=task.name if subset in (None, "default") else f"{task.name} ({subset})",
            dataset_config=subset,
            dataset_split=split,
            dataset_revision=task.revision,
            metric_type=theirs,
            metric_name=theirs,
            metric_value=value.value,
            source_name="MTEB" if task.mteb else None,
            source_url="https://github.com/embeddings-benchmark/mteb" if task.mteb else None,
        )


def _only(values: Sequence[str]) -> str | None:
    return values[0] if len(values) == 1 else None
