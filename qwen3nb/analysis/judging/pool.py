"""The documents that can be graded, and what a grade of each counts.

Two models differ only by documents that they rank differently. The gain of a document counts by the
difference of its discounts: that by the candidate's rank minus that by the rank of the model in
use. So DCG@10 of the candidate minus that of the model in use is a sum over documents of gain times
weight. A document of equal ranks has the weight 0, and need not be graded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from qwen3nb.metrics.intervals import Array

Ranking = Mapping[str, Sequence[str]]  # by query, ids of documents, the best first
Flags = NDArray[np.bool_]
DEPTH = 10  # ranks that count


@dataclass(frozen=True, eq=False)
class GradingPool:
    """The documents that models rank among the first of each query.

    A pair is a query with one of its documents. There are N pairs and K candidates.
    """

    current: str  # name of the model in use
    candidates: tuple[str, ...]  # K names
    queries: tuple[str, ...]  # N ids
    documents: tuple[str, ...]  # N ids
    weights: Array  # (K, N)
    best_ranks: Array  # (N,) integers from 0: the best rank by any model
    times_found: Array  # (N,) integers: how many models rank it among the first
    finders: Array  # (N,) integers from 0: the same number for pairs that the same models find

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def pairs(self) -> list[tuple[str, str]]:
        """The query and the document of each pair."""
        return list(zip(self.queries, self.documents, strict=True))

    @property
    def counts(self) -> Flags:
        """Whether each pair counts for any candidate (N,)."""
        return np.asarray(np.any(self.weights != 0, axis=0))


def grading_pool(
    rankings: Mapping[str, Ranking], *, current: str, depth: int = DEPTH
) -> GradingPool:
    """Return what can be graded to choose between the model in use and the others.

    Args:
        rankings: by model, the documents of each query, the best first. A query that a model lacks
            has no documents by it.
        current: the model in use.
        depth: how many of the first documents count.

    Raises:
        ValueError: no ranking of the model in use, or of no other model.
    """
    if current not in rankings:
        raise ValueError(f"no ranking of {current!r}; there are some of: {', '.join(rankings)}")
    candidates = [model for model in rankings if model != current]
    if not candidates:
        raise ValueError(f"only {current!r} has a ranking; a choice needs another model")
    places = {model: _places(ranking, depth) for model, ranking in rankings.items()}
    pairs = list(dict.fromkeys(pair for model in rankings for pair in places[model]))
    ranks = np.array(
        [[places[model].get(pair, depth) for pair in pairs] for model in rankings], dtype=int
    ).reshape(len(rankings), len(pairs))
    discounts = np.append(1 / np.log2(np.arange(depth) + 2), 0.0)  # of each rank; 0 below the last
    row_of_model = {model: row for row, model in enumerate(rankings)}
    current_discounts = discounts[ranks[row_of_model[current]]]
    weights = [discounts[ranks[row_of_model[name]]] - current_discounts for name in candidates]
    is_found = ranks < depth
    _, finders = np.unique(is_found, axis=1, return_inverse=True)
    return GradingPool(
        current=current,
        candidates=tuple(candidates),
        queries=tuple(query for query, _ in pairs),
        documents=tuple(document for _, document in pairs),
        weights=np.array(weights),
        best_ranks=ranks.min(axis=0),
        times_found=is_found.sum(axis=0),
        finders=np.asarray(finders, dtype=int).reshape(len(pairs)),
    )


def _places(ranking: Ranking, depth: int) -> dict[tuple[str, str], int]:
    """Return the rank of each of the first documents, from 0, by query and document."""
    places: dict[tuple[str, str], int] = {}
    for query, documents in ranking.items():
        for rank, document in enumerate(documents[:depth]):
            places.setdefault((query, document), rank)
    return places
