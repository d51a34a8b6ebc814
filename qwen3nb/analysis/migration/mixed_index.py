"""An index during a migration: some documents have new vectors, the others still old ones.

A query is encoded by the old model, by the new one, or by both. With both, each part of the index
is searched by its own query vector, and the two lists are merged: by raw scores; by scores in
standard deviations from the mean of the query's scores over all documents of that model; or by
reciprocal ranks (Cormack, Clarke and Büttcher, SIGIR 2009).

Shapes: Q queries, N documents, D dimensions, K kept documents.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from qwen3nb.models.search.exact import Doubles, Floats, Hits, Ids
from qwen3nb.vectors.vector_store import VectorStore

_RANK_OFFSET = 60  # of reciprocal ranks


class Strategy(StrEnum):
    """How a mixed index is searched."""

    OLD_QUERIES = "old queries search all"
    NEW_QUERIES = "new queries search all"
    RAW = "each part, merged by score"
    NORMALISED = "each part, by normalised score"
    RANKS = "each part, merged by rank"


@dataclass(frozen=True)
class ScoreMoments:
    """Mean and standard deviation of each query's scores over all documents (Q,)."""

    means: Doubles
    deviations: Doubles

    def normalised(self, scores: Floats) -> Doubles:
        """Return scores (Q, K) in standard deviations from the mean of their query."""
        normalised: Doubles = (scores - self.means[:, None]) / self.deviations[:, None]
        return normalised


def score_moments(queries: Floats, documents: VectorStore) -> ScoreMoments:
    """Return the moments of the products of queries (Q, D) with all documents (N, D).

    They follow from the mean m and the covariance C of the documents: q·m, and the root of q·C·q.
    """
    dimension = documents.shape[1]
    total = np.zeros(dimension)
    products = np.zeros((dimension, dimension))
    for block in documents.blocks():
        vectors = block.astype(np.float64)
        total += vectors.sum(axis=0)
        products += vectors.T @ vectors
    mean = total / len(documents)
    covariance = products / len(documents) - np.outer(mean, mean)
    in_doubles = queries.astype(np.float64)
    variances = np.einsum("qd,de,qe->q", in_doubles, covariance, in_doubles, optimize=True)
    deviations = np.sqrt(np.maximum(variances, 0))
    # Where all scores are equal, any divisor does.
    return ScoreMoments(in_doubles @ mean, np.where(deviations > 1e-12, deviations, 1.0))


@dataclass(frozen=True)
class MixedIndex:
    """The best documents by each pair of query and document vectors, before documents are mixed."""

    old: Hits  # old queries on old documents
    new: Hits  # new queries on new documents
    old_moments: ScoreMoments
    new_moments: ScoreMoments
    old_on_new: Hits | None = None  # old queries on new documents; None if dimensions differ
    new_on_old: Hits | None = None

    @property
    def strategies(self) -> list[Strategy]:
        """Those that are possible: a query vector needs documents of its own length."""
        if self.old_on_new is None or self.new_on_old is None:
            return [Strategy.RAW, Strategy.NORMALISED, Strategy.RANKS]
        return list(Strategy)

    def searched(self, is_new: NDArray[np.bool_], strategy: Strategy, *, k: int) -> Hits:
        """Return the best documents when those of ``is_new`` (N,) have new vectors."""
        if strategy is Strategy.OLD_QUERIES:
            return _merged(first_kept(self.old, ~is_new, k), _kept(self.old_on_new, is_new, k), k)
        if strategy is Strategy.NEW_QUERIES:
            return _merged(_kept(self.new_on_old, ~is_new, k), first_kept(self.new, is_new, k), k)
        old = first_kept(self.old, ~is_new, k)
        new = first_kept(self.new, is_new, k)
        if strategy is Strategy.NORMALISED:
            old = Hits(old.ids, self.old_moments.normalised(old.scores).astype(np.float32))
            new = Hits(new.ids, self.new_moments.normalised(new.scores).astype(np.float32))
        if strategy is Strategy.RANKS:
            old, new = _by_rank(old), _by_rank(new)
        return _merged(old, new, k)


def _kept(hits: Hits | None, is_kept: NDArray[np.bool_], k: int) -> Hits:
    if hits is None:
        raise ValueError("the two models have vectors of different lengths: search each part")
    return first_kept(hits, is_kept, k)


def first_kept(hits: Hits, is_kept: NDArray[np.bool_], k: int) -> Hits:
    """Return the ``k`` best hits of each query among the documents of ``is_kept`` (N,).

    >>> hits = Hits(np.array([[2, 0, 1]]), np.array([[3.0, 2.0, 1.0]], dtype=np.float32))
    >>> first_kept(hits, np.array([True, True, False]), 1).ids
    array([[0]])
    """
    is_found = hits.ids >= 0
    is_taken = is_found & is_kept[np.maximum(hits.ids, 0)]
    ranks = np.cumsum(is_taken, axis=1)  # from 1, of those that are taken
    is_taken &= ranks <= k
    rows, columns = np.nonzero(is_taken)
    places = ranks[rows, columns] - 1
    ids = np.full((len(hits.ids), k), -1)
    scores = np.full((len(hits.ids), k), -np.inf, dtype=np.float32)
    ids[rows, places] = hits.ids[rows, columns]
    scores[rows, places] = hits.scores[rows, columns]
    return Hits(ids, scores)


def _by_rank(hits: Hits) -> Hits:
    """Return hits with reciprocal ranks as scores."""
    ranks = np.arange(1, hits.ids.shape[1] + 1)
    scores = np.where(hits.ids >= 0, 1 / (_RANK_OFFSET + ranks), -np.inf)
    return Hits(hits.ids, scores.astype(np.float32))


def _merged(old: Hits, new: Hits, k: int) -> Hits:
    """Return the ``k`` best of two lists without shared documents."""
    ids = np.concatenate([old.ids, new.ids], axis=1)
    scores = np.concatenate([old.scores, new.scores], axis=1)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return Hits(np.take_along_axis(ids, order, axis=1), np.take_along_axis(scores, order, axis=1))


def orders_of_encoding(documents: int, draws: int, *, seed: int) -> Iterator[Ids]:
    """Yield random orders (N,) in which documents may be encoded anew."""
    random = np.random.default_rng(seed)
    for _ in range(draws):
        yield random.permutation(documents)


def encoded_first(order: Ids, share: float) -> NDArray[np.bool_]:
    """Return which documents (N,) are done when a share of them is.

    >>> encoded_first(np.array([2, 0, 1, 3]), 0.5)
    array([ True, False,  True, False])
    """
    is_new = np.zeros(len(order), dtype=bool)
    is_new[order[: round(share * len(order))]] = True
    return is_new
