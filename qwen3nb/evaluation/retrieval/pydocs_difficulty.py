"""Measure the difficulty of PyDocs by one number that does not depend on the sample.

It uses the whole corpus and a fixed draw of queries; only a query's own document is relevant.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qwen3nb.datasets.pydocs.build import PyDocs
from qwen3nb.metrics.aggregate import Aggregate, aggregate
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.load import load_model
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.search.fusion import Fusion

DEPTH = 10


def pydocs_difficulty(
    pydocs: PyDocs, specs: Sequence[str] = ("bm25", "random")
) -> dict[str, Aggregate]:
    """Return `own_document_ndcg` of each model, by spec."""
    return {
        spec: own_document_ndcg(load_model(spec, show_progress=False), pydocs) for spec in specs
    }


def own_document_ndcg(
    model: Encoder | BM25 | Fusion, pydocs: PyDocs, *, queries: int = 500, seed: int = 0
) -> Aggregate:
    """Mean nDCG@10, with its interval, over ``queries`` queries drawn with ``seed``."""
    query_ids = sorted(
        np.random.default_rng(seed).choice(pydocs.query_names, size=queries, replace=False)
    )
    qrels = {query: {query: 1} for query in query_ids}
    texts = [pydocs.queries[query] for query in query_ids]
    if isinstance(model, BM25 | Fusion):
        model.index([{"id": name, "text": text} for name, text in pydocs.corpus.items()])
        rows = [{"id": query, "text": text} for query, text in zip(query_ids, texts, strict=True)]
        run = model.search(rows, top_k=DEPTH)
    else:
        document_ids = list(pydocs.corpus)
        corpus = model.encode(list(pydocs.corpus.values()), role="passage")
        scores = model.similarity(model.encode(texts, role="query"), corpus).numpy()
        run = {
            query: {document_ids[i]: float(row[i]) for i in np.argsort(row)[-DEPTH:]}
            for query, row in zip(query_ids, scores, strict=True)
        }
    values = score_run(qrels, run, ["nDCG@10"])
    return aggregate(values, how="mean", columns=["nDCG@10"], seed=seed)
