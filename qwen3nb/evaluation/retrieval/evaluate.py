"""Search a test collection with any model and score every query.

MTEB runs its own tasks; this module covers BEIR folders, the MS MARCO dev set, custom
documents, queries and qrels, and first stages that MTEB does not support: a fusion of BM25
and an encoder, or the run of another program.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

from qwen3nb.datasets.collection import TestCollection
from qwen3nb.evaluation.recording import Work, assemble, model_info
from qwen3nb.evaluation.retrieval.first_stage import First, describe, first_stage
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.metrics.run_arrays import RunArrays
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.search.fusion import Fusion
from qwen3nb.records.record import ModelInfo, Result, TaskInfo
from qwen3nb.utils.atomic_files import sha256_json

__all__ = ["DEPTH", "METRICS", "evaluate_collection", "searched_run"]

METRICS = (
    "nDCG@10", "MRR@10", "Recall@1", "Recall@10", "Recall@100", "P@10", "MAP@100",
)  # fmt: skip
DEPTH = 100


def evaluate_collection(
    first: First,
    collection: TestCollection,
    *,
    metrics: Sequence[str] = METRICS,
    depth: int = DEPTH,
    seed: int = 0,
    config: dict[str, Any] | None = None,
    run: str = "",
) -> Result:
    """Search ``collection`` and score every query; the run is cached.

    Args:
        first: a loaded encoder or search model, ``bm25``, the file of a TREC run, or a list
            of these, fused by reciprocal rank.
        collection: test collection to search.
        metrics: names accepted by `qwen3nb.metrics.retrieval.score_run`; the first is the
            main metric.
        depth: documents per query.
        seed: seed of the confidence intervals.
        config: parameters to store in the record.
        run: id of the evaluation; by default a new one.

    Returns:
        The record, which is not saved; call `Result.save` to save it.
    """
    model = first if isinstance(first, Encoder | BM25 | Fusion) else None
    work = Work(model)
    stage = first_stage(collection, _as_first_stage(first), depth=depth)
    return assemble(
        model=model_info(model) if model else _search_info(first),
        task=TaskInfo(
            name=collection.name,
            type="Retrieval",
            dataset=collection.name,
            revision=collection.revision,
            main_metric=metrics[0],
            size={"documents": len(collection.documents), "queries": len(collection.queries)},
            group=collection.group,
            counts={**collection.counts, **stage.counts, **work.counts()},
        ),
        per_query=score_run(collection.qrels, stage.run, metrics, zeros=True),
        work=work,
        seed=seed,
        run=run or uuid.uuid4().hex[:12],
        config={**(config or {}), "depth": depth},
        device=model.device if model else "cpu",
        precision=str(model.settings.get("dtype", "float32")) if model else "float32",
    )


def searched_run(model: Any, collection: TestCollection, *, depth: int = DEPTH) -> RunArrays:
    """Return the run that `evaluate_collection` scores, which is kept in the cache."""
    return first_stage(collection, _as_first_stage(model), depth=depth).run


def _as_first_stage(model: Any) -> First:
    """Express a loaded model as a first stage: itself, BM25, or the parts of a fusion."""
    if isinstance(model, Fusion):
        return [_as_first_stage(part) for part in model.parts]
    return "bm25" if isinstance(model, BM25) else model


def _search_info(first: First) -> ModelInfo:
    """Describe, as `model_info` does, a first stage that is not a loaded model."""
    label, recipe = describe(first)
    settings = {"model": {"kind": "bm25"}, **recipe}
    return ModelInfo(label, sha256_json(settings), spec=label, settings=settings)
