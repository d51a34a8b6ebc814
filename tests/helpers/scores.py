"""Records of one task with given scores per query."""

from __future__ import annotations

from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.records.record import ModelInfo, Result, TaskInfo


def record(label, scores, *, identity=None, seed=0, task="T", revision="r1", finished="1", **more):
    metric = more.get("metric", "nDCG@10")
    per_query = {metric: scores}
    return Result(
        model=ModelInfo(label=label, identity=identity or label * 8, spec=label),
        task=TaskInfo(name=task, type="Retrieval", revision=revision, main_metric=metric),
        metrics={metric: aggregate(per_query, how="mean", columns=(metric,), seed=0, resamples=9)},
        per_query=per_query,
        seed=seed,
        finished=finished,
    )
