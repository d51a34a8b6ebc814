"""Exact search: the k best documents per query, in a corpus that need not fit in memory.

The corpus is read in blocks. In each block, a float32 matrix product screens the documents:
candidates are those whose score is within the rounding error of the k-th best. Candidates are
rescored in float64, rounded to float32 and ranked; equal scores rank in corpus order. Ids and
scores therefore depend neither on the block size nor on the backend that computes the
products, and memory does not grow with the corpus.

Scores are dot products, or cosines on request. A document may have several rows, one for each of
its chunks: its score is then that of its best one.

Shapes: Q queries, N documents, D dimensions, K columns of a result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qwen3nb.vectors.block_file import read_blocks, shard_blocks

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 8192  # documents
_QUERIES_AT_ONCE = 256  # per product: its scores take 8 MiB
_PAIRS_AT_ONCE = 1024  # rescored; their products stay in a processor's cache
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Ids = NDArray[np.int64]


class Pairs(NamedTuple):
    """Rows of queries and rows of a block, in pairs."""

    queries: Ids
    documents: Ids


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


class EncoderOptions(TypedDict):
    """Options of `search` that follow from an encoder."""

    device: str | None
    cosine: bool
    zeros: bool


class SearchOptions(TypedDict, total=False):
    """Options of `search`."""

    k: int
    device: str | None
    block: int
    cosine: bool
    boosts: Doubles | None
    keep_ties: bool
    rescore: bool
    zeros: bool
    owners: Ids | None


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
    owners: Ids | None = None,
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
        owners: the document of each row of the corpus (N,), rising, if rows are chunks; the
            hits are then documents, each scored by its best row.

    Raises:
        ValueError: ``k`` or ``block`` below 1, mismatched shapes, or a vector that is
            not finite (or, for cosines, zero without ``zeros``), with its index.
    """
    if device is not None and boosts is not None:
        raise ValueError(f"expected no device for a search with boosts; got {device}")
    for name, value in (("k", k), ("block", block)):
        if value < 1:
            raise ValueError(f"expected {name} of at least 1; got {value}")
    prepare = partial(_prepared, cosine=cosine, zeros=zeros, device=device)
    all_queries = prepare(queries, kind="query", first=0, dimension=None)
    dimension = all_queries.rough.shape[1]
    tiles = []
    for tile_queries in all_queries.tiles():  # a few hundred each: scores take little memory
        best = BestDocuments(len(tile_queries), k, keep_ties=keep_ties, repeats=owners is not None)
        tiles.append(_Tile(tile_queries, best, k, rescore=rescore))
    searched_count = 0  # documents so far, so the position of the next block's first one
    for vectors in _blocks(corpus, block):
        documents = prepare(vectors, kind="document", first=searched_count, dimension=dimension)
        end = searched_count + len(documents)
        block_boosts = None
        if boosts is not None:
            block_boosts = boosts[searched_count:end]
            _check_boosts(block_boosts, len(documents))
        ids = np.arange(searched_count, end)
        if owners is not None:
            ids = owners[searched_count:end]
        for tile in tiles:
            tile.update(documents, block_boosts, ids=ids)
        searched_count = end
    if boosts is not None:
        _check_boosts(boosts, searched_count)  # there may be more of them than documents
    number_of_documents = searched_count
    if owners is not None:
        number_of_documents = len(np.unique(owners))
    return _hits([tile.best for tile in tiles], least_width=min(k, number_of_documents))


def boosted(scores: NDArray[Any], factors: Doubles) -> Doubles:
    """Return scores (..., N) times factors (N,); a negative score is divided by its factor.

    A larger factor therefore never lowers a score.
    """
    product: Doubles = np.where(scores >= 0, scores * factors, scores / factors)
    return product


def _check_boosts(boosts: Doubles, documents: int) -> None:
    if len(boosts) != documents:
        raise ValueError(
            f"expected a boost per document; got {len(boosts)} for {documents} documents"
        )


def _blocks(corpus: Floats | Path | Iterable[Floats], size: int) -> Iterator[Floats]:
    if isinstance(corpus, Path):
        block_reader = shard_blocks if corpus.is_dir() else read_blocks
        yield from block_reader(corpus, size)
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
        """The rows in groups of at most `_QUERIES_AT_ONCE`."""
        tiles = []
        for start in range(0, len(self), _QUERIES_AT_ONCE):
            rows = slice(start, start + _QUERIES_AT_ONCE)
            tiles.append(replace(self, rough=self.rough[rows], exact=self.exact[rows]))
        return tiles

    @cached_property
    def tensor(self) -> Tensor:
        """The rough vectors on the device; they are moved there once."""
        import torch

        return torch.from_numpy(self.rough).to(self.device)


def _prepared(
    vectors: ArrayLike,
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
    is_finite = np.isfinite(array).all(axis=1)
    # The {{}} of a message becomes the position of the first such vector.
    _refuse_rows(~is_finite, f"the vector of {kind} {{}} is not finite", first)
    if not cosine:
        return _Operand(array, array, device)
    in_doubles = array.astype(np.float64)
    lengths = np.linalg.norm(in_doubles, axis=1, keepdims=True)
    is_zero = np.equal(lengths, 0)
    if not zeros:
        _refuse_rows(is_zero[:, 0], f"the vector of {kind} {{}} is zero and has no cosine", first)
    unit_vectors: Doubles = in_doubles / np.where(is_zero, 1, lengths)  # a zero stays zero
    return _Operand(unit_vectors.astype(np.float32), unit_vectors, device)


def _refuse_rows(is_wrong: NDArray[np.bool_] | np.bool_, message: str, first: int) -> None:
    """Raise ``message`` with the position of the first wrong row, if there is one."""
    if is_wrong.any():
        row = int(np.flatnonzero(is_wrong)[0])
        raise ValueError(message.format(first + row))


def _screening_error(queries: Floats, documents: Floats, boosts: Doubles | None) -> Doubles:
    """Bound twice the error of a screening score, per query (Q,).

    Higham, Accuracy and Stability of Numerical Algorithms (2002), section 3.1: at most
    ``D u |q| |d|`` up to second order, u = 2^-24, whatever the order of summation. Rounding
    unit vectors, boosts and the scores themselves adds a few u.

    Raises:
        ValueError: vectors so long that their product may overflow.
    """
    # Of each document, the sum of its squares.
    squares = np.einsum("nd,nd->n", documents, documents, dtype=np.float64)
    longest = float(np.sqrt(squares.max()))
    query_lengths = np.linalg.norm(queries.astype(np.float64), axis=1)
    largest_scores = longest * query_lengths  # no dot product exceeds the product of lengths
    if len(largest_scores) and largest_scores.max() > np.finfo(np.float32).max:
        raise ValueError(f"vectors of length {longest:.3g} are too long to compare in float32")
    if boosts is not None:  # negative scores are divided by their boosts
        largest_scores = largest_scores * max(boosts.max(), 1 / boosts.min())
    # A sum of D products has D roundings of 2^-24 at most; twice, and a few of single numbers.
    dimensions = queries.shape[1]
    roundings = 2.1 * dimensions + 24
    bound: Doubles = roundings * 2.0**-24 * largest_scores
    return bound


def _rescored(
    queries: _Operand, documents: _Operand, pairs: Pairs, boosts: Doubles | None
) -> Floats:
    """Return scores of pairs of rows, computed in float64 and rounded to float32."""
    scores = np.empty(len(pairs.queries), dtype=np.float32)
    for start in range(0, len(pairs.queries), _PAIRS_AT_ONCE):
        part = slice(start, start + _PAIRS_AT_ONCE)
        query_rows = pairs.queries[part]
        document_rows = pairs.documents[part]
        # (pairs, D); a selection by rows is a copy, so it may be overwritten.
        products = documents.exact[document_rows].astype(np.float64, copy=False)
        products *= queries.exact[query_rows]
        part_scores = products.sum(axis=1)
        if boosts is not None:
            part_scores = boosted(part_scores, boosts[document_rows])
        scores[part] = part_scores
    return scores


def _product(
    queries: _Operand, documents: _Operand, pairs: Pairs, boosts: Doubles | None
) -> Floats:
    """Return scores of pairs of rows, as computed by the float32 matrix product."""
    products = queries.rough @ documents.rough.T
    scores: Floats = products[pairs.queries, pairs.documents]
    if boosts is None:
        return scores
    return boosted(scores, boosts[pairs.documents]).astype(np.float32)


def _sort_keys(rows: Ids, scores: Floats) -> NDArray[np.uint64]:
    """Return integers that sort like the rows, then like the scores from high to low.

    The bits of a positive float sort as it does, those of a negative one the other way round.
    """
    bits = (scores + np.float32(0)).view(np.uint32)  # -0 becomes 0
    is_negative = bits >> 31
    flipped_bits = ~bits & np.uint32(0x7FFFFFFF)  # all but the sign
    falling = np.where(is_negative, bits, flipped_bits)
    keys: NDArray[np.uint64] = rows.astype(np.uint64) << np.uint64(32) | falling
    return keys


class BestDocuments:
    """The best documents so far of Q queries: rows of the queries, ids and scores.

    Those of one query are in order of falling scores, equal ones in the order of the corpus.
    """

    def __init__(
        self, queries: int, k: int, *, keep_ties: bool = False, repeats: bool = False
    ) -> None:
        """Begin without documents.

        Args:
            queries: Q.
            k: documents per query.
            keep_ties: whether every document that ties with the k-th is kept.
            repeats: whether a document may come again, by its chunks; its best score counts.
        """
        self._k = k
        self._keep_ties = keep_ties
        self._repeats = repeats
        self.rows: Ids = np.empty(0, dtype=np.int64)
        self.ids: Ids = np.empty(0, dtype=np.int64)
        self.scores: Floats = np.empty(0, dtype=np.float32)
        # The k-th best score of each query, minus infinity while there are fewer.
        self.worst: Doubles = np.full(queries, -np.inf)

    def add(self, rows: Ids, ids: Ids, scores: Floats) -> None:
        """Take scores of documents by rows of queries, and keep the k best of each."""
        # Three columns of one table: a query's row, a document's id and their score.
        rows = np.concatenate([self.rows, rows])
        ids = np.concatenate([self.ids, ids])
        scores = np.concatenate([self.scores, scores])
        # By row, then from high to low; equal ones stay in order.
        order = np.argsort(_sort_keys(rows, scores), kind="stable")
        rows, ids, scores = rows[order], ids[order], scores[order]
        if self._repeats:
            is_best = _first_of_each(rows, ids)
            rows, ids, scores = rows[is_best], ids[is_best], scores[is_best]
        ranks = _ranks_in_row(rows)  # 0 for the best of each query
        is_kth = ranks == self._k - 1
        self.worst[rows[is_kth]] = scores[is_kth]  # of queries with at least k documents
        is_kept = ranks < self._k
        if self._keep_ties:
            is_kept |= scores == self.worst[rows]
        self.rows, self.ids, self.scores = rows[is_kept], ids[is_kept], scores[is_kept]

    def add_block(self, scores: Floats, block_ids: Ids) -> None:
        """Take the scores (Q, n) of a block of documents with these ids (n,).

        Minus infinity is the score of a document that was not found.
        """
        is_found = scores > -np.inf
        is_good_enough = scores >= self.worst[:, None]
        rows, columns = np.nonzero(is_found & is_good_enough)
        self.add(rows, block_ids[columns], scores[rows, columns])

    def hits(self, width: int) -> Hits:
        """Return them as `Hits` with at least ``width`` columns."""
        return _hits([self], least_width=width)


class _Tile:
    """A tile of queries, and the best documents so far of each."""

    def __init__(self, queries: _Operand, best: BestDocuments, k: int, *, rescore: bool) -> None:
        self._queries = queries
        self.best = best
        self._k = k
        self._rescore = rescore

    def update(self, documents: _Operand, boosts: Doubles | None, *, ids: Ids) -> None:
        """Screen and score a block of rows of the documents ``ids``, and keep the k best."""
        error = _screening_error(self._queries.rough, documents.rough, boosts)
        # (Q,): a screening score below it is too low for the k best, however it was rounded.
        floor = self.best.worst - error
        # A row of each document: its first, where documents have several.
        starts = np.flatnonzero(np.diff(ids, prepend=-1))
        if documents.device is None:
            pairs = _candidates_by_numpy(
                self._queries, documents, self._k, floor, error, boosts, starts=starts
            )
        else:
            pairs = _candidates_by_torch(
                self._queries, documents, self._k, floor, error, starts=starts
            )
        score = _rescored if self._rescore else _product
        scores = score(self._queries, documents, pairs, boosts)
        self.best.add(pairs.queries, ids[pairs.documents], scores)


def _hits(tiles: Sequence[BestDocuments], *, least_width: int) -> Hits:
    """Return the hits of all tiles, padded to the query with the most, and to ``least_width``."""
    queries = sum(len(tile.worst) for tile in tiles)  # there is one k-th best score per query
    width = least_width
    for tile in tiles:
        hits_per_query = np.bincount(tile.rows)  # ties with the k-th may make them more than k
        width = max(width, int(hits_per_query.max(initial=0)))
    # Of a query with fewer hits, the last columns stay -1 and minus infinity.
    ids = np.full((queries, width), -1)
    scores = np.full((queries, width), -np.inf, np.float32)
    first_query = 0
    for tile in tiles:
        rows = first_query + tile.rows
        columns = _ranks_in_row(tile.rows)
        ids[rows, columns] = tile.ids
        scores[rows, columns] = tile.scores
        first_query += len(tile.worst)
    return Hits(ids, scores)


def _ranks_in_row(rows: Ids) -> Ids:
    """Return the rank of each entry among those of its row, from 0; ``rows`` are sorted.

    >>> _ranks_in_row(np.array([3, 3, 3, 7, 7]))
    array([0, 1, 2, 0, 1])
    """
    first_entries = np.searchsorted(rows, rows)
    ranks: Ids = np.arange(len(rows)) - first_entries
    return ranks


def _first_of_each(rows: Ids, ids: Ids) -> NDArray[np.bool_]:
    """Return which entries are the first of their row and id.

    >>> _first_of_each(np.array([0, 0, 0, 1]), np.array([5, 4, 5, 5]))
    array([ True,  True, False,  True])
    """
    order = np.lexsort((ids, rows))  # equal pairs side by side, in their order
    is_new = np.diff(rows[order], prepend=-1) != 0
    is_new |= np.diff(ids[order], prepend=-1) != 0
    is_first = np.zeros(len(rows), dtype=bool)
    is_first[order[is_new]] = True
    return is_first


# Each returns at least all pairs whose score is neither below the k-th best of the block
# minus the error, nor below ``floor``; those of one query in the order of the documents. Where
# documents have several rows, the k-th best is a document by its best row; ``starts`` has the
# first row of each.


def _candidates_by_numpy(
    queries: _Operand,
    documents: _Operand,
    k: int,
    floor: Doubles,
    error: Doubles,
    boosts: Doubles | None,
    *,
    starts: Ids,
) -> Pairs:
    scores = queries.rough @ documents.rough.T  # (Q, n)
    if boosts is not None:
        scores = boosted(scores, boosts)
    is_candidate = scores >= floor[:, None]
    has_many = np.count_nonzero(is_candidate, axis=1) > k  # in few blocks but the first
    if has_many.any():
        # Those below the k-th best of the block by more than the error are not among the best.
        many_scores = scores[has_many]
        best_scores = many_scores  # of each document
        if len(starts) < len(documents):
            best_scores = np.maximum.reduceat(many_scores, starts, axis=1)
        from_end = best_scores.shape[1] - k
        if from_end >= 0:
            kth_best = np.partition(best_scores, from_end, axis=1)[:, from_end]
            higher_floor = np.maximum(floor[has_many], kth_best - error[has_many])
            is_candidate[has_many] = many_scores >= higher_floor[:, None]
    query_rows, document_rows = np.nonzero(is_candidate)
    return Pairs(query_rows, document_rows)


def _candidates_by_torch(
    queries: _Operand,
    documents: _Operand,
    k: int,
    floor: Doubles,
    error: Doubles,
    *,
    starts: Ids,
) -> Pairs:
    import torch

    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")  # TF32 would err by more than the bound
    try:
        with torch.inference_mode():
            scores = queries.tensor @ documents.tensor.T  # (Q, n)
            thresholds = torch.from_numpy(floor).to(scores.device)  # (Q,)
            if k < len(starts):
                best_scores = scores  # of each document
                if len(starts) < len(documents):
                    best_scores = _best_rows_by_torch(scores, starts)
                k_scores = best_scores.topk(k, dim=1, sorted=False).values
                kth_best = k_scores.amin(dim=1).double()
                errors = torch.from_numpy(error).to(scores.device)
                thresholds = torch.maximum(thresholds, kth_best - errors)
            # Round down, so that no candidate is lost.
            minus_infinity = torch.tensor(-torch.inf).to(scores.device)
            rounded_down = torch.nextafter(thresholds.float(), minus_infinity)
            is_candidate = scores >= rounded_down[:, None]
            query_rows, document_rows = is_candidate.nonzero(as_tuple=True)
            return Pairs(query_rows.cpu().numpy(), document_rows.cpu().numpy())
    finally:
        torch.set_float32_matmul_precision(precision)


def _best_rows_by_torch(scores: Tensor, starts: Ids) -> Tensor:
    """Return the best score (Q, documents) of the rows of each document, from those (Q, n)."""
    import torch

    is_start = np.zeros(scores.shape[1], dtype=np.int64)
    is_start[starts] = 1
    documents = torch.from_numpy(is_start.cumsum() - 1).to(scores.device)  # by row
    best = torch.full((len(scores), len(starts)), -torch.inf, device=scores.device)
    return best.scatter_reduce(1, documents.expand(len(scores), -1), scores, "amax")
