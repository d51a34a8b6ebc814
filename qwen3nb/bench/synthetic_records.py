"""Synthetic records, as many as wanted, written as those of an evaluation are.

Each query has one relevant document, as in MS MARCO; its rank is drawn from the difficulty of the
query and the skill of the model, and the scores follow from the rank. The aggregates follow from
the scores, so that `qwen3nb verify` holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt

from qwen3nb.evaluation.recording import means
from qwen3nb.records.query_scores import QueryScores
from qwen3nb.records.record import (
    Environment,
    ModelInfo,
    MTEBScore,
    Result,
    RunCost,
    TaskInfo,
)
from qwen3nb.tiers import TIERS, is_search
from qwen3nb.utils.atomic_files import sha256_json
from qwen3nb.utils.hardware import cores

__all__ = ["RecordSet", "write_records"]

_MAIN = "nDCG@10"
_TOP = 10


@dataclass(frozen=True)
class RecordSet:
    """The records to write: each model on each task with each seed.

    Attributes:
        models: number of models.
        tasks: number of tasks; the first are the searches of the tier ``full``.
        seeds: number of seeds.
        queries: queries of each task.
        top: whether records keep the ids of each query's best documents, as those of `eval` do.
        seed: of the draws.
    """

    models: int = 50
    tasks: int = 20
    seeds: int = 3
    queries: int = 6980
    top: bool = True
    seed: int = 0

    def __len__(self) -> int:
        """Number of records."""
        return self.models * self.tasks * self.seeds

    def task_keys(self) -> list[str]:
        """Return the names of the tasks."""
        real = [key for key in TIERS["full"].task_keys if is_search(key)]
        return [*real, *(f"Synthetic{i:03d}" for i in range(self.tasks))][: self.tasks]


def write_records(folder: Path, records: RecordSet, *, processes: int = 0) -> int:
    """Write the records to ``folder`` and return how many there are.

    Args:
        folder: where `load_results` finds them.
        records: what to write.
        processes: number of processes; 0 for one per core.
    """
    groups = list(product(range(records.tasks), range(records.seeds)))
    write = partial(_write_group, folder, records)
    processes = min(processes or cores(), len(groups))
    if processes == 1:
        return sum(map(write, groups))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return sum(pool.map(write, groups))


def _write_group(folder: Path, records: RecordSet, group: tuple[int, int]) -> int:
    """Write the records of all models on one task with one seed."""
    task, seed = group
    for result in _results(records, task, seed):
        result.save(folder)
    return records.models


def _results(records: RecordSet, task: int, seed: int) -> Iterator[Result]:
    rng = np.random.default_rng([records.seed, task])  # the same data for every seed
    queries = tuple(str(each) for each in rng.permutation(10 * records.queries)[: records.queries])
    difficulty = rng.normal(0, 1.5, records.queries)
    environment = Environment.current()
    for model in range(records.models):
        own = np.random.default_rng([records.seed, task, seed, model])
        skill = 1 - model / records.models / 2
        ranks = np.ceil(np.exp(difficulty + own.normal(1.5 - skill, 1, records.queries)))
        yield _result(
            QueryScores(queries, _scores(ranks)),
            top=_top(queries, own) if records.top else {},
            model=model,
            key=records.task_keys()[task],
            seed=seed,
            environment=environment,
        )


def _scores(ranks: npt.NDArray[np.float64]) -> dict[str, npt.NDArray[np.float64]]:
    """The metrics of searches whose relevant document has these ranks."""
    return {
        _MAIN: np.where(ranks <= 10, 1 / np.log2(1 + ranks), 0.0),
        "MRR@10": np.where(ranks <= 10, 1 / ranks, 0.0),
        "MAP@100": np.where(ranks <= 100, 1 / ranks, 0.0),
        "Recall@10": (ranks <= 10).astype(float),
        "Recall@100": (ranks <= 100).astype(float),
    }


def _top(queries: tuple[str, ...], rng: np.random.Generator) -> dict[str, list[str]]:
    documents = rng.integers(0, 1000 * len(queries), (len(queries), _TOP)).astype(str).tolist()
    return dict(zip(queries, documents, strict=True))


def _model(number: int, spec: str) -> ModelInfo:
    settings = {
        "model": {"kind": "synthetic", "weights": sha256_json(number)},
        "prompts": {},
        "max_length": 512,
        "normalize": True,
        "dtype": "float32",
    }
    label = f"synthetic-checkpoint-{number}"
    return ModelInfo(label, sha256_json(settings), spec, settings, parameters=1000)


def _result(
    scores: QueryScores,
    *,
    top: dict[str, list[str]],
    model: int,
    key: str,
    seed: int,
    environment: Environment,
) -> Result:
    n = len(scores.queries)
    spec = f"runs/synthetic/checkpoint-{model}"
    metrics = means(scores.plain(), seed=seed)
    value = metrics[_MAIN].value
    return Result(
        model=_model(model, spec),
        task=TaskInfo(
            name=key,
            type="Retrieval",
            main_metric=_MAIN,
            dataset=f"synthetic/{key}",
            revision=sha256_json([key, n])[:12],
            size={"documents": 1000 * n, "queries": n},
            mteb=None if value is None else MTEBScore("ndcg_at_10", value),
            splits=("test",),
            subsets=("default",),
            languages=("eng-Latn",),
        ),
        metrics=metrics,
        per_query=scores,
        seed=seed,
        config={"checkpoint": spec, "tier": "full", "seed": seed} | ({"top": top} if top else {}),
        environment=environment,
        cost=RunCost(seconds=1.0, texts=n, encoded=n, texts_per_second=float(n)),
        run=f"synthetic-{model}-{seed}",
        finished="2026-01-01T00:00:00+00:00",
    )
