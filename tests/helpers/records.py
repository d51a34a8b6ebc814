"""Result records with given scores, and notes of failed runs."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.records.details import typed_details
from qwen3nb.records.failures import FailedRun
from qwen3nb.records.record import (
    Environment,
    ModelInfo,
    MTEBScore,
    Result,
    RunCost,
    TaskInfo,
    checksum,
)
from qwen3nb.tiers import BENCHMARKS, GROUPS, TIERS
from qwen3nb.utils.atomic_files import sha256_json

BASE = np.random.default_rng(3).uniform(0.3, 0.6, 40)
# Types of the tasks of the benchmarks, by key.
TYPES = {
    part: kind
    for benchmark in BENCHMARKS.values()
    for kind, tasks in benchmark.types.items()
    for task in tasks
    for part in GROUPS.get(task, (task,))
}
RETRIEVAL, RERANKING = "PyDocsSampleRetrieval", "PyDocsSampleReranking"


def make(
    label="m",
    scores=(0.2, 0.4, 0.9),
    *,
    task="PyDocsSampleRetrieval",
    metric="nDCG@10",
    revision="r" * 12,
    identity=None,
    settings=None,
    seed=0,
    finished="2026-01-01",
    **fields,
):
    """A record of ``scores``, a value per query id, or values of q0, q1, …

    ``fields`` are those of `Result` for which nothing else stands here.
    """
    values = scores if isinstance(scores, dict) else {f"q{i}": s for i, s in enumerate(scores)}
    per_query = {metric: values}
    used = settings or {"model": {"kind": "encoder"}, "label": label}
    mean = aggregate(per_query, how="mean", columns=(metric,))
    values = {
        "model": ModelInfo(label, identity or sha256_json(used), label, used, parameters=10),
        "task": TaskInfo(task, "Retrieval", metric, dataset="d", revision=revision),
        "metrics": {metric: mean},
        "per_query": per_query,
        "seed": seed,
        "run": f"run-{label}",
        "finished": finished,
        "environment": Environment(versions={"mteb": "2"}, python="3"),
        "cost": RunCost(1.0, texts=3, encoded=3, texts_per_second=9.0, peak_memory_bytes=2**20),
    }
    values |= typed_details(fields.pop("config", {}))
    return Result(**{**values, **fields})


def amend(result, part, **changes):
    """Change the ``model``, ``task`` … of a frozen record in place, as only a test may."""
    object.__setattr__(result, part, replace(getattr(result, part), **changes))


def state(result, **details):
    """Change details of a frozen record in place, named as in older records; None removes one."""
    config = {name: value for name, value in (result.config | details).items() if value is not None}
    for name, value in typed_details(config).items():
        object.__setattr__(result, name, value)


def signed(value):
    """The JSON of a record that was changed, with the checksum of what it is now."""
    try:
        return value | {"checksum": checksum(value)}
    except (ValueError, RecursionError):  # what no record can hold
        return value | {"checksum": ""}


def noisy(mean, *, spread=0.02, seed=0):
    """Scores of 40 queries around a mean, of the same difficulty for every model."""
    return BASE - BASE.mean() + mean + np.random.default_rng(seed).normal(0, spread, len(BASE))


def own(label, mean, *, finished="2026-01-01", identity=None, seed=0):
    """A record as `qwen3nb domain` leaves it: two metrics, texts, the best documents."""
    scores = noisy(mean, seed=seed)
    result = make(
        label, task="mine-1a", scores=scores, finished=finished, metric="MRR@10", identity=identity
    )
    amend(result, "task", dataset="mine")
    result.per_query["nDCG@10"] = {q: v / 2 for q, v in result.per_query["MRR@10"].items()}
    result.metrics["nDCG@10"] = aggregate(result.per_query, how="mean", columns=("nDCG@10",))
    queries = list(result.per_query["MRR@10"])
    amend(result, "task", categories={q: "even" if i % 2 else "odd" for i, q in enumerate(queries)})
    texts = {q: f"text of {q}" for q in queries}
    state(result, queries=texts, top={q: [f"{label}-{i}" for i in range(9)] for q in queries})
    return result


def benchmark_record(label, key, *, mean=0.5, seed=0, n=40):
    """A record of one task of a benchmark, with scores per query except for STS and the like."""
    kind = TYPES.get(key, "Retrieval")
    rng = np.random.default_rng([seed, *key.encode()])
    difficulty = rng.uniform(0, 0.4, n)
    scores = np.clip(mean - 0.2 + difficulty + rng.normal(0, 0.05, n), 0, 1)
    metric = {"Retrieval": "nDCG@10", "Reranking": "nDCG@10", "Classification": "accuracy"}.get(
        kind, "score"
    )
    result = make(label, scores.tolist(), task=key, metric=metric)
    value = result.metrics[metric].value
    amend(result, "task", type=kind, mteb=MTEBScore("main", value))
    if kind == "Retrieval":
        result.per_query["MRR@10"] = {q: v / 2 for q, v in result.per_query[metric].items()}
        mrr = aggregate(result.per_query, how="mean", columns=("MRR@10",))
        result.metrics["MRR@10"] = mrr
    return result


def tier_records(label, *, tier="full", mean=0.5, seed=0, without=()):
    """Records of a model on every task of a tier, except those ``without``."""
    return [
        benchmark_record(label, key, mean=mean, seed=seed)
        for key in TIERS[tier].task_keys
        if key not in without
    ]


def moment(seconds):
    return (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).isoformat()


def failure(**changes):
    """The note of a run that failed after ten seconds."""
    values = {
        "page": "eval-bm25-smoke",
        "notebook": "eval",
        "parameters": {"checkpoint": "bm25", "tier": "smoke", "output_dir": ""},
        "error": "ValueError",
        "message": "one\ntwo\n",
        "started": moment(10),
        "failed": moment(20),
        "seconds": 10.0,
    }
    return FailedRun(**{**values, **changes})
