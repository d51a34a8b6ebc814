"""How long one query takes, one at a time, as a search would meet it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.search.fusion import Fusion

__all__ = ["seconds_per_query"]

_MOST = 20  # queries that are timed
_BUDGET = 1.0  # seconds after which no further query is timed
_DEPTH = 100  # documents that BM25 retrieves


def seconds_per_query(model: Encoder | BM25 | Fusion, queries: Sequence[str]) -> float:
    """Return the median time of a query in seconds.

    Of an encoder, from a text to its vector, without the cache: what an index adds is the same for
    all encoders of one dimension. Of BM25, from a text to its ranking. Of a fusion, the sum.

    Args:
        model: an encoder, or a search model whose documents are indexed.
        queries: texts, at least one; the first is a warm-up.
    """
    if isinstance(model, Fusion):
        return sum(seconds_per_query(part, queries) for part in model.parts)
    if isinstance(model, BM25):
        return _median(
            lambda text: model.search([{"id": "q", "text": text}], top_k=_DEPTH), queries
        )
    with model.uncached():
        return _median(
            lambda text: model.encode(text, role="query", show_progress_bar=False), queries
        )


def _median(search: Callable[[str], object], queries: Sequence[str]) -> float:
    search(queries[0])
    samples: list[float] = []
    started = time.perf_counter()
    for text in queries[:_MOST]:
        before = time.perf_counter()
        search(text)
        samples.append(time.perf_counter() - before)
        if time.perf_counter() - started > _BUDGET:
            break
    return statistics.median(samples)
