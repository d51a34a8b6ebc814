"""The best hits of several searches over disjoint parts of one corpus.

Shapes: Q queries, K columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from qwen3nb.models.search.exact import Hits

__all__ = ["merge_hits"]


def merge_hits(parts: Sequence[Hits], k: int) -> Hits:
    """Return the ``k`` best of all hits of each query, as one search over all parts would.

    Equal scores rank in corpus order. Merging in any order, or merging what was merged, gives
    the same, as long as every part has its ``k`` best.

    Args:
        parts: hits (Q, K) of the same queries, with positions in the whole corpus.
        k: hits per query; fewer if the parts have fewer.
    """
    ids = np.concatenate([part.ids for part in parts], axis=1)
    scores = np.concatenate([part.scores for part in parts], axis=1)
    order = np.lexsort((ids, -scores, ids < 0), axis=1)[:, :k]
    return Hits(
        ids=np.take_along_axis(ids, order, axis=1),
        scores=np.take_along_axis(scores, order, axis=1),
    )
