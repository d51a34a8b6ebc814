"""What a model in training is scored on: one number per set, from an encoder in memory.

Retrieval data of one's own are scored by nDCG@10, sentence pairs by Spearman's correlation, tasks
of a tier by their main metric: the numbers that `qwen3nb.evaluate` and `evaluate_sts` give. No
vector, run or record is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.collection_formats import find_collections
from qwen3nb.evaluation.embeddings.sts import STSPairs, evaluate_sts, read_pairs
from qwen3nb.evaluation.mteb.evaluate import evaluate_task
from qwen3nb.evaluation.mteb.select import suite_tasks, task_key
from qwen3nb.evaluation.recording import means
from qwen3nb.evaluation.retrieval.evaluate import DEPTH, METRICS
from qwen3nb.evaluation.retrieval.first_stage import search_collection
from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.utils.strict_json import first_duplicate

__all__ = ["Data", "Measure", "find_measures"]

Data = TestCollection | STSPairs | Path | str


@dataclass(frozen=True)
class Measure:
    """A set of data and the metric on it.

    Attributes:
        name: name of the set.
        aggregate: returns the metric of an encoder.
    """

    name: str
    aggregate: Callable[[Encoder], Aggregate]


def find_measures(
    data: Data | Iterable[Data] | None,
    *,
    tier: str,
    tasks: Iterable[Any] | str | None,
    limit: int,
    batch_size: int,
) -> list[Measure]:
    """Return a measure per set; the arguments are those of `TrainingEvaluator`.

    Raises:
        ValueError: both ``data`` and ``tasks`` or ``limit``, two sets of one name, or no set.
        DataError: data that cannot be read.
    """
    if data is None:
        listed = [
            Measure(
                task_key(task, limit=limit),
                partial(_of_task, task, limit=limit, batch_size=batch_size),
            )
            for task in suite_tasks(tier=tier, tasks=tasks)
        ]
    elif tasks is not None or limit:
        raise ValueError("expected either data, or tasks with an optional limit; got both")
    else:
        parts = [data] if isinstance(data, TestCollection | STSPairs | Path | str) else data
        listed = [each for part in parts for each in _of_data(part)]
    if not listed:
        raise ValueError("expected data to score a model on; got none")
    if (name := first_duplicate(each.name for each in listed)) is not None:
        raise ValueError(f"two sets are called {name!r}; give one of them another name")
    return listed


def _of_data(data: Any) -> Iterator[Measure]:
    if isinstance(data, str | Path) and Path(data).expanduser().is_file():
        data = read_pairs(Path(data).expanduser())
    if isinstance(data, STSPairs):
        yield Measure(data.name, partial(_of_pairs, data))
        return
    for collection in find_collections(data):
        yield Measure(collection.name, partial(_of_collection, collection))


def _of_task(task: Any, encoder: Encoder, *, limit: int, batch_size: int) -> Aggregate:
    return evaluate_task(encoder, task, limit=limit, batch_size=batch_size).main


def _of_pairs(pairs: STSPairs, encoder: Encoder) -> Aggregate:
    return evaluate_sts(encoder, pairs).spearman


def _of_collection(collection: TestCollection, encoder: Encoder) -> Aggregate:
    run = search_collection(collection, encoder, depth=DEPTH)
    per_query = score_run(collection.qrels, run, METRICS[:1], zeros=True)
    return means(per_query, seed=0)[METRICS[0]]
