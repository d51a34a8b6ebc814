"""Search an index of which only a share of the documents has new vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from qwen3nb.analysis.migration.mixed_index import (
    MixedIndex,
    Strategy,
    encoded_first,
    orders_of_encoding,
    score_moments,
)
from qwen3nb.analysis.migration.thresholds import Compared
from qwen3nb.evaluation.migration.data import MigrationData
from qwen3nb.evaluation.migration.sides import KEPT, Side, kept_depth, searched
from qwen3nb.models.search.exact import Hits
from qwen3nb.utils.progress import tqdm

SHARES = (0.1, 0.5, 0.9)
DRAWS = 10


@dataclass(frozen=True)
class MixedPoint:
    """A way to search the index when a share of its documents has new vectors."""

    strategy: Strategy
    share: float
    by_query: dict[str, float]  # nDCG@10 of each query, or overlap@10 without grades: mean of draws
    draws: tuple[float, ...]  # the mean over queries of each random order of encoding

    @property
    def mean(self) -> float:
        """The mean over queries and draws."""
        return fmean(self.draws)


def quality(hits: Hits, new: Side, data: MigrationData) -> dict[str, float]:
    """Return nDCG@10 of each query; without grades the overlap@10 with the new model."""
    if data.domain is not None:
        return data.ndcg(hits)
    return data.by_query(new.overlap(hits))


def mixed_points(
    old: Side,
    new: Side,
    data: MigrationData,
    *,
    shares: Sequence[float] = SHARES,
    draws: int = DRAWS,
    seed: int = 0,
) -> tuple[MixedPoint, ...]:
    """Search the mixed index at each share, for several random orders of encoding.

    Empty if a model has no vectors.
    """
    if old.vectors is None or new.vectors is None:
        return ()
    index = _mixed_index(old, new, old.vectors, new.vectors, data)
    scores: dict[tuple[Strategy, float], list[dict[str, float]]] = {}
    orders = orders_of_encoding(len(data.documents), draws, seed=seed)
    for order in tqdm(orders, total=draws, desc="mixed index", unit=" orders", leave=False):
        for share in shares:
            is_new = encoded_first(order, share)
            for strategy in index.strategies:
                hits = index.searched(is_new, strategy, k=KEPT)
                scores.setdefault((strategy, share), []).append(quality(hits, new, data))
    return tuple(
        MixedPoint(strategy, share, _mean_by_query(by_draw), _mean_by_draw(by_draw))
        for (strategy, share), by_draw in scores.items()
    )


def _mixed_index(
    old: Side, new: Side, old_vectors: Compared, new_vectors: Compared, data: MigrationData
) -> MixedIndex:
    """Search with each query vector that has the length of the documents'."""
    old_on_new = new_on_old = None
    if old.costs.dimension == new.costs.dimension:
        depth = kept_depth(data)
        old_on_new = searched(old_vectors.queries, new_vectors.documents, data, k=depth)
        new_on_old = searched(new_vectors.queries, old_vectors.documents, data, k=depth)
    return MixedIndex(
        old=old.hits,
        new=new.hits,
        old_moments=score_moments(old_vectors.queries, old_vectors.documents),
        new_moments=score_moments(new_vectors.queries, new_vectors.documents),
        old_on_new=old_on_new,
        new_on_old=new_on_old,
    )


def _mean_by_query(by_draw: Sequence[dict[str, float]]) -> dict[str, float]:
    return {query: fmean(scores[query] for scores in by_draw) for query in by_draw[0]}


def _mean_by_draw(by_draw: Sequence[dict[str, float]]) -> tuple[float, ...]:
    return tuple(fmean(scores.values()) for scores in by_draw)
