"""Train FAISS indexes on a sample, and fill and measure them without a second copy in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb.models.search.vector_store import VectorStore

__all__ = ["add", "extremes", "serialized_size", "train"]

Floats = NDArray[np.float32]


def train(faiss: Any, index: Any, family: str, vectors: VectorStore) -> None:
    """Train an index as FAISS does when it is given all ``vectors`` (N, D).

    IVF and PQ cluster a sample that FAISS draws from all vectors, of at most 256 per centroid:
    the same sample is drawn here, and only it is read. SQ8 needs the extremes of each
    dimension. The other families are not trained.
    """
    if family == "ivf":
        index.train(_sample(faiss, vectors, index.nlist, index.cp))
    elif family == "pq":
        index.train(_sample(faiss, vectors, index.pq.ksub, index.pq.cp))
    elif family == "sq8":
        index.train(np.stack(extremes(vectors)))


def extremes(vectors: VectorStore) -> tuple[Floats, Floats]:
    """Return the minimum and the maximum of each dimension (D,)."""
    parts = [(part.min(axis=0), part.max(axis=0)) for part in vectors.blocks()]
    lows, highs = zip(*parts, strict=True)
    low: Floats = np.min(lows, axis=0)
    high: Floats = np.max(highs, axis=0)
    return low, high


def _sample(faiss: Any, vectors: VectorStore, centroids: int, settings: Any) -> Floats:
    """Return the vectors that FAISS's k-means draws from ``vectors``."""
    most = centroids * settings.max_points_per_centroid
    if len(vectors) <= most:
        return vectors.everything()
    order = np.empty(len(vectors), dtype=np.int32)
    faiss.rand_perm(faiss.swig_ptr(order), len(order), settings.seed)
    return vectors.rows(order[:most].astype(np.int64))


def add(index: Any, family: str, vectors: VectorStore) -> None:
    """Add ``vectors`` in blocks; of a binary index their signs."""
    for part in vectors.blocks():
        index.add(np.packbits(part > 0, axis=1) if family == "binary" else part)


def serialized_size(faiss: Any, index: Any, family: str) -> int:
    """Return the bytes of the serialised index, which is not held."""
    sizes: list[int] = []
    write = faiss.write_index_binary if family == "binary" else faiss.write_index
    write(index, faiss.PyCallbackIOWriter(lambda part: sizes.append(len(part))))
    return sum(sizes)
