"""How hard PyDocs is: one number that does not depend on the sample.

The whole corpus, a fixed draw of queries, and the query's own document alone relevant.
"""

from __future__ import annotations

import numpy as np

from qwen3nb.datasets.pydocs.build import PyDocs
from qwen3nb.metrics.aggregate import Aggregate, aggregate
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.search.exact import search
from qwen3nb.models.search.fusion import Fusion

__all__ = ["own_document_ndcg"]

DEPTH = 10


def own_document_ndcg(
    model: Encoder | BM25 | Fusion, pydocs: PyDocs, *, queries: int = 500, seed: int = 0
) -> Aggregate:
    """Mean nDCG@10 with its interval over ``queries`` drawn with ``seed``."""
    drawn = sorted(np.random.default_rng(seed).choice(pydocs.asked, size=queries, replace=False))
    qrels = {query: {query: 1} for query in drawn}
    texts = [pydocs.queries[query] for query in drawn]
    if isinstance(model, BM25 | Fusion):
        model.index([{"id": name, "text": text} for name, text in pydocs.corpus.items()])
        rows = [{"id": query, "text": text} for query, text in zip(drawn, texts, strict=True)]
        run = model.search(rows, top_k=DEPTH)
    else:
        corpus = model.encode(list(pydocs.corpus.values()), role="passage")
        hits = search(model.encode(texts, role="query"), corpus, k=DEPTH)
        run = hits.run(drawn, list(pydocs.corpus))
    values = score_run(qrels, run, ["nDCG@10"])
    return aggregate(values, how="mean", columns=["nDCG@10"], seed=seed)
