"""Result records with given scores."""

from __future__ import annotations

from dataclasses import replace

from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.records.record import Environment, ModelInfo, Result, RunCost, TaskInfo


def make(label="m", scores=(0.2, 0.4, 0.9), *, task="PyDocsSampleRetrieval",
                metric="nDCG@10", revision="r" * 12, identity=None, settings=None, seed=0,
                finished="2026-01-01", **fields):  # fmt: skip
    """A record of ``scores``, a value per query id, or values of q0, q1, …

    ``fields`` are those of `Result` for which nothing else stands here.
    """
    values = scores if isinstance(scores, dict) else {f"q{i}": s for i, s in enumerate(scores)}
    per_query = {metric: values}
    mean = aggregate(per_query, how="mean", columns=(metric,), seed=0)
    return Result(**{
        "model": ModelInfo(
            label=label, identity=identity or f"{label:0<64}"[:64], spec=label,
            settings=settings or {"model": {"kind": "encoder"}}, parameters=10,
        ),
        "task": TaskInfo(
            name=task, type="Retrieval", dataset="d", revision=revision, main_metric=metric
        ),
        "metrics": {metric: mean},
        "per_query": per_query,
        "seed": seed,
        "config": {},
        "run": f"run-{label}",
        "finished": finished,
        "environment": Environment(versions={"mteb": "2"}, python="3"),
        "cost": RunCost(seconds=1.0, texts=3, encoded=3, texts_per_second=9.0,
                        peak_memory_bytes=2**20),
        **fields,
    })  # fmt: skip


def amend(result, part, **changes):
    """Change the ``model``, ``task`` … of a frozen record in place, as only a test may."""
    object.__setattr__(result, part, replace(getattr(result, part), **changes))
