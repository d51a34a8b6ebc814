"""The k best documents per query, exactly, over a corpus that need not fit in memory.

The corpus comes in blocks. In each, a matrix product in float32 names the candidates:
all whose score is within the product's possible error of the k-th best. Candidates are
scored again in float64, rounded to float32, and ranked; documents of equal score rank in
the order of the corpus. So ids and scores depend neither on the size of the blocks nor on
what does the products, and memory not on the length of the corpus.

Scores are dot products: cosines, where vectors have length 1.

Shapes: Q queries, N documents, D dimensions.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb.utils.choices import one_of

__all__ = ["BACKENDS", "Found", "nearest", "npy_shape", "read_blocks", "search"]

BACKENDS = ("numpy", "torch", "faiss")
_BLOCK = 8192  # documents
_QUERIES = 256  # per product: its scores take 8 MiB
_RESCORED = 4096  # pairs at once
_SPARE = 32  # candidates FAISS is asked for beyond k
Floats = NDArray[np.float32]
Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]  # rows of queries, rows of a block
Candidates = Callable[[Floats, Floats, int, NDArray[np.float64], NDArray[np.float64]], Pairs]


@dataclass(frozen=True)
class Found:
    """What was found, the best first.

    Attributes:
        ids: places in the corpus (Q, min(k, N)), int64.
        scores: dot products (Q, min(k, N)), float32.
    """

    ids: NDArray[np.int64]
    scores: Floats


def search(
    queries: Floats,
    corpus: Floats | Path | Iterable[Floats],
    *,
    k: int,
    backend: str = "numpy",
    block: int = _BLOCK,
) -> Found:
    """The ``k`` best documents of each query; all of them where the corpus has fewer.

    Args:
        queries: (Q, D).
        corpus: (N, D) in memory, a .npy file of that shape, or blocks (n, D) in order.
        k: how many.
        backend: what names the candidates: ``numpy``, ``torch`` or ``faiss``.
        block: documents read and compared at once.

    Raises:
        ValueError: ``k`` or ``block`` below 1, shapes that disagree, or a vector that is
            not finite, with its index.
        ImportError: ``faiss`` is not installed.
    """
    one_of("backend", backend, BACKENDS)
    for name, value in (("k", k), ("block", block)):
        if value < 1:
            raise ValueError(f"expected {name} of at least 1; got {value}")
    queries = _checked(queries, what="query", first=0, dimension=None)
    candidates = _backend(backend)
    tiles = [queries[start : start + _QUERIES] for start in range(0, len(queries), _QUERIES)]
    best = [_Best(len(tile), k) for tile in tiles]
    first = 0
    for part in _blocks(corpus, block):
        documents = _checked(part, what="document", first=first, dimension=queries.shape[1])
        for tile, so_far in zip(tiles, best, strict=True):
            error = _error(tile, documents)
            rows, ids = candidates(tile, documents, k, so_far.worst - error, error)
            so_far.add(rows, ids + first, _rescored(tile, documents, (rows, ids)))
        first += len(documents)
    return _joined(best, min(k, first))


def nearest(
    queries: Mapping[str, Floats], documents: Sequence[str], corpus: Floats, *, k: int
) -> dict[str, dict[str, float]]:
    """The ``k`` best documents per query by name, with their scores: a run.

    Args:
        queries: vector (D,) per name.
        documents: names of the N documents.
        corpus: their vectors (N, D), of length 1 if scores are to be cosines.
        k: how many.
    """
    if not queries or not documents:
        return {name: {} for name in queries}
    found = search(np.stack(list(queries.values())), corpus, k=k)
    return {
        name: {documents[i]: float(score) for i, score in zip(ids, scores, strict=True)}
        for name, ids, scores in zip(queries, found.ids, found.scores, strict=True)
    }


def _blocks(corpus: Floats | Path | Iterable[Floats], size: int) -> Iterator[Floats]:
    if isinstance(corpus, Path):
        yield from read_blocks(corpus, size)
        return
    for part in [corpus] if isinstance(corpus, np.ndarray) else corpus:
        for start in range(0, len(part), size):
            yield part[start : start + size]


def read_blocks(file: Path, size: int = _BLOCK) -> Iterator[Floats]:
    """Blocks (size, D) of a .npy file of float32 (N, D), read and not mapped.

    A mapped file that is cut short kills the process; a read one raises.

    Raises:
        ValueError: it holds something else, or less than it says.
    """
    rows, dimension, offset = npy_shape(file)
    with file.open("rb", buffering=0) as handle:
        handle.seek(offset)
        for start in range(0, rows, size):
            part = np.empty((min(size, rows - start), dimension), dtype=np.float32)
            if not _filled(part.view(np.uint8).reshape(-1), handle):
                raise ValueError(f"{file} is cut: expected {rows} rows of {dimension} float32")
            yield part


def _filled(target: NDArray[np.uint8], handle: FileIO) -> bool:
    """Read until ``target`` is full; whether the file had as much."""
    done = 0
    while done < len(target):
        count = handle.readinto(target[done:].data)
        if not count:
            return False
        done += count
    return True


def npy_shape(file: Path) -> tuple[int, int, int]:
    """Rows, dimension and where the data begin in a .npy file of float32 (N, D).

    Raises:
        ValueError: it is something else.
    """
    readers: dict[tuple[int, int], Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    with file.open("rb") as handle:
        try:
            shape, column_major, dtype = readers[np.lib.format.read_magic(handle)](handle)
        except (ValueError, KeyError) as error:
            raise ValueError(f"{file} is no .npy file ({error})") from None
        offset = handle.tell()
    if len(shape) != 2 or column_major or dtype != np.dtype("<f4"):
        raise ValueError(f"{file}: expected float32 (N, D) in C order; got {dtype} {shape}")
    return shape[0], shape[1], offset


def _checked(vectors: Any, *, what: str, first: int, dimension: int | None) -> Floats:
    array: Floats = np.ascontiguousarray(vectors, dtype=np.float32)
    if array.ndim != 2 or dimension not in (None, array.shape[1]):
        raise ValueError(
            f"expected {what} vectors of shape (N, {dimension or 'D'}); got {array.shape}"
        )
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        index = first + int(np.flatnonzero(~finite)[0])
        raise ValueError(f"the vector of {what} {index} is not finite")
    return array


def _error(queries: Floats, documents: Floats) -> NDArray[np.float64]:
    """How far a float32 product may be from the truth, twice, per query (Q,).

    Higham, Accuracy and Stability of Numerical Algorithms (2002), section 3.1: at most
    D u |q| |d| up to second order, u = 2^-24, in whatever order it is summed. Rounding
    the scores themselves adds a few u.

    Raises:
        ValueError: vectors so long that their product may overflow.
    """
    longest = float(np.sqrt(np.einsum("nd,nd->n", documents, documents, dtype=np.float64).max()))
    lengths = np.linalg.norm(queries.astype(np.float64), axis=1)
    largest = longest * lengths
    if len(largest) and largest.max() > np.finfo(np.float32).max:
        raise ValueError(f"vectors of length {longest:.3g} are too long to compare in float32")
    bound: NDArray[np.float64] = (2.1 * queries.shape[1] + 8) * 2.0**-24 * largest
    return bound


def _rescored(queries: Floats, documents: Floats, pairs: Pairs) -> Floats:
    """Dot products of pairs of rows in float64, rounded to float32."""
    left, right = pairs
    scores = np.empty(len(left), dtype=np.float32)
    for start in range(0, len(left), _RESCORED):
        part = slice(start, start + _RESCORED)
        products = queries[left[part]].astype(np.float64)
        products *= documents[right[part]]
        scores[part] = products.sum(axis=1)
    return scores


class _Best:
    """The best so far, per query.

    Attributes:
        worst: the k-th best score (Q,), minus infinity while there are fewer.
    """

    def __init__(self, queries: int, k: int) -> None:
        self._k = k
        self._rows = np.empty(0, dtype=np.int64)
        self._ids = np.empty(0, dtype=np.int64)
        self._scores = np.empty(0, dtype=np.float32)
        self.worst = np.full(queries, -np.inf)

    def add(self, rows: NDArray[np.int64], ids: NDArray[np.int64], scores: Floats) -> None:
        """Take in candidates, and keep the k best of each query."""
        rows, ids = np.concatenate([self._rows, rows]), np.concatenate([self._ids, ids])
        scores = np.concatenate([self._scores, scores])
        order = np.lexsort((ids, -scores, rows))
        rows, ids, scores = rows[order], ids[order], scores[order]
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
        kept = rank < self._k
        last = rank == self._k - 1
        self.worst[rows[last]] = scores[last]
        self._rows, self._ids, self._scores = rows[kept], ids[kept], scores[kept]

    def found(self, k: int) -> Found:
        """The result, every query having ``k``."""
        shape = (len(self.worst), k)
        return Found(ids=self._ids.reshape(shape), scores=self._scores.reshape(shape))


def _joined(parts: Sequence[_Best], k: int) -> Found:
    found = [part.found(k) for part in parts]
    return Found(
        ids=np.concatenate([np.empty((0, k), dtype=np.int64), *(each.ids for each in found)]),
        scores=np.concatenate([np.empty((0, k), dtype=np.float32), *(f.scores for f in found)]),
    )


def _backend(name: str) -> Candidates:
    if name == "faiss" and importlib.util.find_spec("faiss") is None:
        raise ImportError("faiss is not installed: pip install 'qwen3nb[cpu]', or choose torch")
    return {"torch": _by_torch, "faiss": _by_faiss, "numpy": _by_numpy}[name]


# Each gives all pairs of a score not below the k-th best of the block less the error,
# nor below ``floor``: with whatever else it likes.


def _by_numpy(
    queries: Floats,
    documents: Floats,
    k: int,
    floor: NDArray[np.float64],
    error: NDArray[np.float64],
) -> Pairs:
    scores = queries @ documents.T
    if k < len(documents):
        best = np.partition(scores, len(documents) - k, axis=1)[:, len(documents) - k]
        floor = np.maximum(floor, best - error)
    rows, ids = np.nonzero(scores >= floor[:, None])
    return rows, ids


def _by_torch(
    queries: Floats,
    documents: Floats,
    k: int,
    floor: NDArray[np.float64],
    error: NDArray[np.float64],
) -> Pairs:
    import torch

    with torch.inference_mode():
        scores = torch.from_numpy(queries) @ torch.from_numpy(documents).T
        least = torch.from_numpy(floor)
        if k < len(documents):
            best = scores.topk(k, dim=1, sorted=False).values.amin(dim=1)
            least = torch.maximum(least, best.double() - torch.from_numpy(error))
        # Rounded down, so that rounding loses none.
        bound = torch.nextafter(least.float(), torch.tensor(-torch.inf))
        rows, ids = (scores >= bound[:, None]).nonzero(as_tuple=True)
    return rows.numpy(), ids.numpy()


def _by_faiss(
    queries: Floats,
    documents: Floats,
    k: int,
    floor: NDArray[np.float64],
    error: NDArray[np.float64],
) -> Pairs:
    import faiss

    asked = k + _SPARE
    if asked >= len(documents):
        return _by_numpy(queries, documents, k, floor, error)
    scores, ids = faiss.knn(queries, documents, asked, metric=faiss.METRIC_INNER_PRODUCT)
    floor = np.maximum(floor, scores[:, k - 1] - error)
    # Where even the last one qualifies, more may: those queries are done in full.
    full = np.flatnonzero(scores[:, -1] >= floor)
    inside = scores >= floor[:, None]
    inside[full] = False
    rows = np.nonzero(inside)[0]
    more_rows, more_ids = _by_numpy(queries[full], documents, k, floor[full], error[full])
    return (
        np.concatenate([rows, full[more_rows]]),
        np.concatenate([ids[inside], more_ids]).astype(np.int64),
    )
