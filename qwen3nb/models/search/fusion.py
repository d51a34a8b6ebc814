"""Reciprocal rank fusion of BM25 and encoders as one search model.

A spec joins the parts with plus signs: ``bm25+all-MiniLM-L6-v2``. Ranks are fused, not
scores, so no calibration is needed.

References:
    Cormack, Clarke and Buettcher 2009 (reciprocal rank fusion, k = 60).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb.metrics.retrieval import rank_documents
from qwen3nb.models.counters import Stats
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.mteb_meta import mteb_meta
from qwen3nb.models.search.bm25 import BM25
from qwen3nb.models.search.exact import search
from qwen3nb.models.search.mteb_rows import joined_document, joined_query
from qwen3nb.models.sources.source import Source
from qwen3nb.utils.atomic_files import sha256_json

if TYPE_CHECKING:
    from mteb.models.model_meta import ModelMeta

__all__ = ["FUSION", "Fusion", "fuse"]

FUSION = 60
_DEEPER = 2  # each part searches this much deeper, because fusion can lift lower-ranked documents


def fuse(runs: Sequence[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, float]]:
    """Fuse runs by reciprocal rank: sum 1 / (60 + rank) over the runs that contain a document.

    >>> fuse([{"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 9.0}}])["q"]["b"] == 1 / 62 + 1 / 61
    True
    """
    fused: dict[str, dict[str, float]] = {}
    for run in runs:
        for query, scores in run.items():
            sums = fused.setdefault(query, {})
            for rank, document in enumerate(rank_documents(scores), start=1):
                sums[document] = sums.get(document, 0.0) + 1 / (FUSION + rank)
    return fused


class _Dense:
    """An encoder with the interface of a search model; its search is exact."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._documents: list[str] = []
        self._vectors: NDArray[np.float32] = np.empty((0, 0), dtype=np.float32)

    @property
    def _cosine(self) -> bool:
        return self._encoder.similarity_name == "cosine"

    def index(self, corpus: Any, *, task_metadata: Any = None, **_: Any) -> None:
        self._documents = [str(row["id"]) for row in corpus]
        texts = [joined_document(row) for row in corpus]
        self._vectors = self._encoder.encode(texts, role="passage", task_metadata=task_metadata)

    def search(
        self,
        queries: Any,
        *,
        top_k: int,
        top_ranked: Any = None,
        task_metadata: Any = None,
        **_: Any,
    ) -> dict[str, dict[str, float]]:
        names = [str(row["id"]) for row in queries]
        texts = [joined_query(row) for row in queries]
        vectors = self._encoder.encode(texts, role="query", task_metadata=task_metadata)
        if top_ranked is None:
            hits = search(vectors, self._vectors, k=top_k, cosine=self._cosine, zeros=True)
            return hits.run(names, self._documents)
        return {
            name: self._among(vector, top_ranked[name])
            for name, vector in zip(names, vectors, strict=True)
        }

    def _among(self, query: NDArray[np.float32], allowed: Iterable[str]) -> dict[str, float]:
        """Return the scores of all ``allowed`` documents."""
        wanted = set(allowed)
        positions = [row for row, name in enumerate(self._documents) if name in wanted]
        names = [self._documents[row] for row in positions]
        hits = search(
            query[None],
            self._vectors[positions],
            k=max(1, len(names)),
            cosine=self._cosine,
            zeros=True,
        )
        return hits.run([""], names)[""]


class Fusion:
    """Several searches fused by rank into one MTEB search model, for retrieval and reranking."""

    searches_only = True

    def __init__(self, source: Source, parts: Sequence[Encoder | BM25]) -> None:
        self.label = source.label
        self.source = source
        self.parts = list(parts)
        self.settings: dict[str, Any] = {
            "model": {"kind": "fusion"},
            "k": FUSION,
            "depth": _DEEPER,
            "of": [part.settings for part in self.parts],
        }
        self._searches: list[Any] = [
            part if isinstance(part, BM25) else _Dense(part) for part in self.parts
        ]

    @property
    def device(self) -> str:
        """The device that the last part runs on."""
        return self.parts[-1].device

    @property
    def identity(self) -> str:
        """SHA-256 of the settings of the fusion and its parts."""
        return sha256_json(self.settings)

    @property
    def stats(self) -> Stats:
        """Work done by all parts so far."""
        total = Stats()
        for part in self.parts:
            for name, value in vars(part.stats).items():
                setattr(total, name, getattr(total, name) + value)
        return total

    def index(self, corpus: Any, **options: Any) -> None:
        """Index MTEB's corpus with every part."""
        for part in self._searches:
            part.index(corpus, **options)

    def search(self, queries: Any, *, top_k: int, **options: Any) -> dict[str, dict[str, float]]:
        """Return the ``top_k`` best documents per query by the sum of reciprocal ranks."""
        runs = [part.search(queries, top_k=_DEEPER * top_k, **options) for part in self._searches]
        fused = fuse([{q: dict(scores) for q, scores in run.items()} for run in runs])
        return {
            query: {document: scores[document] for document in rank_documents(scores)[:top_k]}
            for query, scores in fused.items()
        }

    @property
    def mteb_model_meta(self) -> ModelMeta:
        """MTEB's description, with a name and revision unique to this combination."""
        return mteb_meta(self, dimension=None, kinds=["dense"])
