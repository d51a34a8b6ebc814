"""Search in any collection, by any model, scored query by query.

MTEB runs its own tasks (`evaluate`); here is the same for a BEIR folder, MS MARCO's dev
set, or documents, queries and judgements of one's own, and for what MTEB has no place
for: BM25 and an encoder fused, a run that another program made.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from qwen3nb.datasets.collection import Collection
from qwen3nb.evaluation.recording import Work, finished, means, model_info
from qwen3nb.evaluation.retrieval.first_stage import First, describe, first_stage
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.records.record import Environment, ModelInfo, Result, TaskInfo
from qwen3nb.utils.atomic_files import sha256_json

__all__ = ["METRICS", "custom_collection", "evaluate_collection", "subset"]

METRICS = (
    "nDCG@10", "MRR@10", "Recall@1", "Recall@10", "Recall@100", "P@10", "MAP@100",
)  # fmt: skip
_DEPTH = 100


def custom_collection(
    queries: Mapping[str, str],
    documents: Mapping[str, str],
    relevant: Mapping[str, Mapping[str, int] | Iterable[str]],
    *,
    name: str = "custom",
) -> Collection:
    """A collection of one's own.

    Args:
        queries: text per id.
        documents: text per id.
        relevant: per query a grade per document, or just the relevant documents.
        name: fit for files and tables.

    Raises:
        ValueError: a judged query or document that is not there, an id that is no Unicode
            text (a lone surrogate), or no relevant document.
    """
    for each in (*queries, *documents):
        if not each.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in each):
            raise ValueError(f"the id {each!r} has a lone surrogate, which no file can hold")
    qrels = {
        query: dict(found) if isinstance(found, Mapping) else dict.fromkeys(found, 1)
        for query, found in relevant.items()
    }
    if lost := sorted(qrels.keys() - queries.keys()):
        raise ValueError(f"query {lost[0]!r} is judged but has no text ({len(lost)} such)")
    judged = {document for grades in qrels.values() for document in grades}
    if lost := sorted(judged - documents.keys()):
        raise ValueError(f"document {lost[0]!r} is judged but has no text ({len(lost)} such)")
    qrels = {q: grades for q, grades in qrels.items() if any(g > 0 for g in grades.values())}
    if not qrels:
        raise ValueError("no query has a relevant document")
    kept = {query: queries[query] for query in sorted(qrels)}
    return Collection(name, dict(documents), kept, qrels)


def subset(collection: Collection, *, documents: int, seed: int = 0) -> Collection:
    """The collection with fewer documents: all judged ones stay, the rest is drawn.

    A subset makes search easier, whoever searches: scores on it compare with others on
    the same subset only. Its name says the size.

    Raises:
        ValueError: fewer documents than are judged.
    """
    judged = {d for grades in collection.qrels.values() for d in grades} & set(collection.documents)
    if documents < len(judged):
        raise ValueError(
            f"{collection.name}: {len(judged)} documents are judged and all must stay; "
            f"got a limit of {documents}"
        )
    if documents >= len(collection.documents):
        return collection
    others = sorted(set(collection.documents) - judged)
    drawn = np.random.default_rng(seed).choice(
        len(others), size=documents - len(judged), replace=False
    )
    keep = judged | {others[place] for place in drawn}
    texts = {name: text for name, text in collection.documents.items() if name in keep}
    return replace(collection, name=f"{collection.name}-{len(texts)}", documents=texts)


def evaluate_collection(
    first: First,
    collection: Collection,
    *,
    metrics: Sequence[str] = METRICS,
    depth: int = _DEPTH,
    seed: int = 0,
) -> Result:
    """Search, and score every query; the run is kept, so that a second time costs nothing.

    Args:
        first: an encoder, ``bm25``, the file of a TREC run, or a list of these, fused by
            reciprocal rank.
        collection: what to search in.
        metrics: names as `qwen3nb.score_run` has them; the first is the main one.
        depth: documents per query.
        seed: of the intervals.

    Returns:
        A record, not saved yet; `Result.save` does.
    """
    encoder = first if isinstance(first, Encoder) else None
    work = Work(encoder)
    found = first_stage(collection, first, depth=depth)
    per_query = score_run(collection.qrels, found.run, metrics)
    return Result(
        model=model_info(encoder) if encoder else _search_info(first),
        task=_task(collection, main=metrics[0]),
        metrics=means(per_query, seed=seed),
        per_query=per_query,
        seed=seed,
        config={"depth": depth},
        environment=Environment.current(
            device=encoder.device if encoder else "cpu",
            precision=str(encoder.settings.get("dtype", "float32")) if encoder else "float32",
        ),
        cost=work.cost(),
        run=uuid.uuid4().hex[:12],
        finished=finished(),
    )


def _search_info(first: First) -> ModelInfo:
    """Whose record it is, where no single encoder searched."""
    label, recipe = describe(first)
    return ModelInfo(
        label=label,
        identity=sha256_json(recipe),
        spec=label,
        settings={"model": {"kind": "bm25"}, **recipe},
    )


def _task(collection: Collection, *, main: str) -> TaskInfo:
    return TaskInfo(
        name=collection.name,
        type="Retrieval",
        dataset=collection.name,
        revision=collection.revision,
        main_metric=main,
        group=collection.group,
        size={"documents": len(collection.documents), "queries": len(collection.queries)},
    )
