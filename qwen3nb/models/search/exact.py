"""Exact search: the k best documents per query, in a corpus that need not fit in memory.

The corpus is read in blocks. In each block, a float32 matrix product screens the documents:
candidates are those whose score is within the rounding error of the k-th best. Candidates are
rescored in float64, rounded to float32 and ranked; equal scores rank in corpus order. Ids and
scores therefore depend neither on the block size nor on the backend that computes the
products, and memory does not grow with the corpus.

Scores are dot products, or cosines on request.

Shapes: Q queries, N documents, D dimensions, K columns of a result.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from qwen3nb.vectors.block_file import read_blocks, shard_blocks

_BLOCK = 8192  # documents
_QUERIES = 256  # per product: its scores take 8 MiB
_RESCORED = 1024  # pairs at once: their products stay in a processor's cache
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ids = NDArray[np.int64]
Pairs = tuple[Ids, Ids]  # rows of queries, rows of a block
Screen = Callable[..., Pairs]
Score = Callable[..., Floats]


@dataclass(frozen=True)
class Hits:
    """The best documents of each query, best first."""

    ids: Ids  # positions in the corpus (Q, K), int64; -1 past the last hit
    scores: Floats  # their scores (Q, K), float32; minus infinity past the last hit

    def run(
        self, queries: Iterable[str], documents: Sequence[str] | Mapping[int, str]
    ) -> dict[str, dict[str, float]]:
        """Return the hits as a run: a score per query and document name.

        ``documents`` has the names of all documents, or by position of those among the hits.
        """
        run = {}
        rows = zip(queries, self.ids.tolist(), self.scores.tolist(), strict=True)
        for query, ids, scores in rows:
            hits = zip(ids, scores, strict=True)
            run[query] = {documents[number]: score for number, score in hits if number >= 0}
        return run


def search(
    queries: Floats,
    corpus: Floats | Path | Iterable[Floats],
    *,
    k: int,
    device: str | None = None,
    block: int = _BLOCK,
    cosine: bool = False,
    boosts: Doubles | None = None,
    keep_ties: bool = False,
    rescore: bool = True,
    zeros: bool = False,
) -> Hits:
    """Return the ``k`` best documents of each query; all of them if the corpus has fewer.

    Args:
        queries: (Q, D).
        corpus: (N, D) in memory, a .npy file of that shape, a folder of parts as written by
            ``encode --shards``, or blocks (n, D) in order.
        k: hits per query.
        device: where torch screens the documents, such as ``cuda:1``; each block is moved there
            once. None to screen them by NumPy.
        block: documents read and compared at once.
        cosine: score by cosine, computed in float64; otherwise by dot product.
        boosts: a positive factor per document (N,), see `boosted`; numpy only.
        keep_ties: return every document that ties with the k-th, so that K may exceed k.
        rescore: rescore candidates in float64; otherwise the float32 product is the score,
            as in an index, and its rounding decides near ties.
        zeros: a zero vector, as of a text without tokens, has the cosine 0 to every other;
            otherwise it is refused.

    Raises:
        ValueError: ``k`` or ``block`` below 1, mismatched shapes, or a vector that is
            not finite (or, for cosines, zero without ``zeros``), with its index.
    """
    if device is not None and boosts is not None:
        raise ValueError(f"expected no device for a search with boosts; got {device}")
    screen = _by_numpy if device is None else _by_torch
    for name, value in (("k", k), ("block", block)):
        if value < 1:
            raise ValueError(f"expected {name} of at least 1; got {value}")
    prepared = partial(_prepared, cosine=cosine, zeros=zeros, device=device)
    rows = prepared(queries, kind="query", first=0, dimension=None)
    dimension = rows.rough.shape[1]
    score = _rescored if rescore else _product
    tiles = []
    for part in rows.tiles():
        tiles.append(_Tile(part, BestDocuments(len(part), k, keep_ties=keep_ties), k, score))
    first = 0
    for vectors in _blocks(corpus, block):
        documents = prepared(vectors, kind="document", first=first, dimension=dimension)
        factors = None if boosts is None else boosts[first : first + len(documents)]
        _check_boosts(factors, len(documents))
        for tile in tiles:
            tile.update(documents, factors, first=first, screen=screen)
        first += len(documents)
    _check_boosts(boosts, first)
    return _hits([tile.best for tile in tiles], (len(rows), min(k, first)))


def boosted(scores: NDArray[Any], factors: Doubles) -> Doubles:
    """Return scores (..., N) times factors (N,); a negative score is divided by its factor.

    A larger factor therefore never lowers a score.
    """
    product: Doubles = np.where(scores >= 0, scores * factors, scores / factors)
    return product


def _check_boosts(boosts: Doubles | None, documents: int) -> None:
    if boosts is not None and len(boosts) != documents:
        raise ValueError(
            f"expected a boost per document; got {len(boosts)} for {documents} documents"
        )


def _blocks(corpus: Floats | Path | Iterable[Floats], size: int) -> Iterator[Floats]:
    if isinstance(corpus, Path):
        read = shard_blocks if corpus.is_dir() else read_blocks
        yield from read(corpus, size)
        return
    parts: Iterable[Floats] = corpus
    if isinstance(corpus, np.ndarray):
        parts = [corpus]
    for part in parts:
        for start in range(0, len(part), size):
            yield part[start : start + size]


@dataclass(frozen=True)
class _Operand:
    """Vectors (N, D): ``rough`` in float32 for screening, ``exact`` for the final scores."""

    rough: Floats
    exact: Floats | Doubles
    device: str | None  # where torch screens them

    def __len__(self) -> int:
        return len(self.rough)

    def tiles(self) -> list[Self]:
        """The rows in groups of at most `_QUERIES`."""
        tiles = []
        for start in range(0, len(self), _QUERIES):
            rows = slice(start, start + _QUERIES)
            tiles.append(replace(self, rough=self.rough[rows], exact=self.exact[rows]))
        return tiles

    @cached_property
    def tensor(self) -> Any:
        """The rough vectors on the device; they are moved there once."""
        import torch

        return torch.from_numpy(self.rough).to(self.device)


def _prepared(
    vectors: Any,
    *,
    kind: str,
    first: int,
    dimension: int | None,
    cosine: bool,
    zeros: bool,
    device: str | None,
) -> _Operand:
    """Check vectors and, for cosines, scale them to unit length in float64."""
    array: Floats = np.ascontiguousarray(vectors, dtype=np.float32)
    if array.ndim != 2 or dimension not in (None, array.shape[1]):
        raise ValueError(
            f"expected {kind} vectors of shape (N, {dimension or 'D'}); got {array.shape}"
        )
    _refuse(~np.isfinite(array).all(axis=1), f"the vector of {kind} {{}} is not finite", first)
    if not cosine:
        return _Operand(array, array, device)
    wide = array.astype(np.float64)
    lengths = np.linalg.norm(wide, axis=1, keepdims=True)
    empty = np.equal(lengths, 0)
    if not zeros:
        _refuse(empty[:, 0], f"the vector of {kind} {{}} is zero and has no cosine", first)
    unit: Doubles = wide / np.where(empty, 1, lengths)
    return _Operand(unit.astype(np.float32), unit, device)


def _refuse(bad: Any, message: str, first: int) -> None:
    """Raise ``message`` with the position of the first bad row, if there is one."""
    if bad.any():
        raise ValueError(message.format(first + int(np.flatnonzero(bad)[0])))


def _error(queries: Floats, documents: Floats, factors: Doubles | None) -> Doubles:
    """Bound twice the error of a screening score, per query (Q,).

    Higham, Accuracy and Stability of Numerical Algorithms (2002), section 3.1: at most
    ``D u |q| |d|`` up to second order, u = 2^-24, whatever the order of summation. Rounding
    unit vectors, boosts and the scores themselves adds a few u.

    Raises:
        ValueError: vectors so long that their product may overflow.
    """
    longest = float(np.sqrt(np.einsum("nd,nd->n", documents, documents, dtype=np.float64).max()))
    lengths = np.linalg.norm(queries.astype(np.float64), axis=1)
    largest = longest * lengths
    if len(largest) and largest.max() > np.finfo(np.float32).max:
        raise ValueError(f"vectors of length {longest:.3g} are too long to compare in float32")
    if factors is not None:
        largest = largest * max(factors.max(), 1 / factors.min())
    bound: Doubles = (2.1 * queries.shape[1] + 24) * 2.0**-24 * largest
    return bound


def _rescored(
    queries: _Operand, documents: _Operand, pairs: Pairs, factors: Doubles | None
) -> Floats:
    """Return scores of pairs of rows, computed in float64 and rounded to float32."""
    left, right = pairs
    scores = np.empty(len(left), dtype=np.float32)
    for start in range(0, len(left), _RESCORED):
        part = slice(start, start + _RESCORED)
        products = documents.exact[right[part]].astype(np.float64, copy=False)
        products *= queries.exact[left[part]]
        sums = products.sum(axis=1)
        scores[part] = sums if factors is None else boosted(sums, factors[right[part]])
    return scores


def _product(
    queries: _Operand, documents: _Operand, pairs: Pairs, factors: Doubles | None
) -> Floats:
    """Return scores of pairs of rows, as computed by the float32 matrix product."""
    scores: Floats = (queries.rough @ documents.rough.T)[pairs]
    return scores if factors is None else boosted(scores, factors[pairs[1]]).astype(np.float32)


def _rank_keys(rows: Ids, scores: Floats) -> NDArray[np.uint64]:
    """Return integers that sort like the rows, then like the scores from high to low.

    The bits of a positive float sort as it does, those of a negative one the other way round.
    """
    bits = (scores + np.float32(0)).view(np.uint32)  # -0 becomes 0
    falling = np.where(bits >> 31, bits, ~bits & np.uint32(0x7FFFFFFF))
    keys: NDArray[np.uint64] = rows.astype(np.uint64) << np.uint64(32) | falling
    return keys


class BestDocuments:
    """The best documents so far of Q queries: rows of the queries, ids and scores.

    Those of one query are in order of falling scores, equal ones in the order of the corpus.
    """

    def __init__(self, queries: int, k: int, *, keep_ties: bool = False) -> None:
        self._k = k
        self._keep_ties = keep_ties
        self.rows: Ids = np.empty(0, dtype=np.int64)
        self.ids: Ids = np.empty(0, dtype=np.int64)
        self.scores: Floats = np.empty(0, dtype=np.float32)
        # The k-th best score of each query, minus infinity while there are fewer.
        self.worst: Doubles = np.full(queries, -np.inf)

    def add(self, rows: Ids, ids: Ids, scores: Floats) -> None:
        """Take scores of documents by rows of queries, and keep the k best of each."""
        rows = np.concatenate([self.rows, rows])
        ids = np.concatenate([self.ids, ids])
        scores = np.concatenate([self.scores, scores])
        order = np.argsort(_rank_keys(rows, scores), kind="stable")  # equal ones stay in order
        rows, ids, scores = rows[order], ids[order], scores[order]
        rank = np.arange(len(rows)) - np.searchsorted(rows, rows)
        last = rank == self._k - 1
        self.worst[rows[last]] = scores[last]
        kept = rank < self._k
        if self._keep_ties:
            kept |= scores == self.worst[rows]
        self.rows, self.ids, self.scores = rows[kept], ids[kept], scores[kept]

    def add_block(self, scores: Floats, first: int) -> None:
        """Take the scores (Q, n) of a block that starts at document ``first``.

        Minus infinity is the score of a document that was not found.
        """
        good_enough = (scores >= self.worst[:, None]) & (scores > -np.inf)
        rows, columns = np.nonzero(good_enough)
        self.add(rows, columns + first, scores[rows, columns])

    def hits(self, width: int) -> Hits:
        """Return them as `Hits` with at least ``width`` columns."""
        return _hits([self], (len(self.worst), width))


class _Tile:
    """A tile of queries, and the best documents so far of each."""

    def __init__(self, queries: _Operand, best: BestDocuments, k: int, score: Score) -> None:
        self._queries = queries
        self.best = best
        self._k = k
        self._score = score

    def update(
        self, documents: _Operand, factors: Doubles | None, *, first: int, screen: Screen
    ) -> None:
        """Screen and score a block that starts at document ``first``, and keep the k best."""
        error = _error(self._queries.rough, documents.rough, factors)
        if factors is not None:
            screen = partial(screen, factors=factors)
        floor = self.best.worst - error
        rows, ids = screen(self._queries, documents, self._k, floor, error)
        scores = self._score(self._queries, documents, (rows, ids), factors)
        self.best.add(rows, ids + first, scores)


def _hits(tiles: Sequence[BestDocuments], shape: tuple[int, int]) -> Hits:
    """Return the hits of all tiles, padded to the query with the most, and to the ``shape``."""
    queries, width = shape
    for tile in tiles:
        width = max(width, int(np.bincount(tile.rows).max(initial=0)))
    ids = np.full((queries, width), -1)
    scores = np.full((queries, width), -np.inf, np.float32)
    first = 0
    for tile in tiles:
        columns = np.arange(len(tile.rows)) - tile.rows.searchsorted(tile.rows)
        ids[first + tile.rows, columns] = tile.ids
        scores[first + tile.rows, columns] = tile.scores
        first += len(tile.worst)
    return Hits(ids, scores)


# Each returns at least all pairs whose score is neither below the k-th best of the block
# minus the error, nor below ``floor``; those of one query in the order of the documents.


def _by_numpy(
    queries: _Operand,
    documents: _Operand,
    k: int,
    floor: Doubles,
    error: Doubles,
    factors: Doubles | None = None,
) -> Pairs:
    scores = queries.rough @ documents.rough.T
    if factors is not None:
        scores = boosted(scores, factors)
    kept = scores >= floor[:, None]
    many = np.count_nonzero(kept, axis=1) > k  # in few blocks but the first
    if many.any():
        best = np.partition(scores[many], len(documents) - k, axis=1)[:, len(documents) - k]
        kept[many] = scores[many] >= np.maximum(floor[many], best - error[many])[:, None]
    rows, ids = np.nonzero(kept)
    return rows, ids


def _by_torch(
    queries: _Operand, documents: _Operand, k: int, floor: Doubles, error: Doubles
) -> Pairs:
    import torch

    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # TF32 would err by more than the bound
    try:
        with torch.inference_mode():
            scores = queries.tensor @ documents.tensor.T
            least = torch.from_numpy(floor).to(scores.device)
            if k < len(documents):
                best = scores.topk(k, dim=1, sorted=False).values.amin(dim=1).double()
                least = torch.maximum(least, best - torch.from_numpy(error).to(scores.device))
            # Round down, so that no candidate is lost.
            bound = torch.nextafter(least.float(), torch.tensor(-torch.inf).to(scores.device))
            rows, ids = (scores >= bound[:, None]).nonzero(as_tuple=True)
            return rows.cpu().numpy(), ids.cpu().numpy()
    finally:
        torch.set_float32_matmul_precision(precision)
