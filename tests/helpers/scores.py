"""Records of one task with given scores per query."""

from __future__ import annotations

from qwen3nb.analysis.comparison.alignment import join
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


def table(*rows, task="task"):
    """A matrix of systems s0, s1, … with these rows of scores."""
    columns = {
        f"s{i}": {f"q{j:04d}": float(v) for j, v in enumerate(row)} for i, row in enumerate(rows)
    }
    return join(columns, task=task, metric="nDCG@10")
