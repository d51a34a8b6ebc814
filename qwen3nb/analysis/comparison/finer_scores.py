"""A finer score of each query, which also moves where nDCG@10 stands still.

nDCG@10 of a query is 0 from rank 11 on: a document that falls from rank 15 to 90 changes nothing,
nor does one that is lost from there. The finer score of a query is

    log max(AP, 1 / 2k)

with the average precision AP of its first k = 100 documents: of one relevant document, 1 / rank.
Its mean is the logarithm of the geometric mean of AP (GMAP; Robertson 2006), so a change is a
factor. A query without a relevant document among the first k counts as one whose first stands at
rank 2k.

It decides what changed; nDCG@10 says how much that matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from qwen3nb.analysis.comparison.alignment import scores_by
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.metrics.intervals import Array
from qwen3nb.records.record import Result

SOURCE = "MAP@100"  # of a record
FINER = f"log {SOURCE}"
_LOWEST = 1 / 200  # of a query without a relevant document among the first hundred


def finer_scores(average_precisions: Array) -> Array:
    """Return the finer score of each query from its average precision.

    >>> np.exp(finer_scores(np.array([1.0, 0.02, 0.0])))
    array([1.   , 0.02 , 0.005])
    """
    return np.asarray(np.log(np.maximum(average_precisions, _LOWEST)))


def finer_matrix(matrix: ScoreMatrix, records: Mapping[str, Result]) -> ScoreMatrix | None:
    """Return the finer scores of all systems of a matrix; None if a record lacks them.

    Args:
        matrix: scores by another metric, whose queries, clusters and parts stay.
        records: the record of each system, by its name.
    """
    rows: list[Array] = []
    for system in matrix.systems:
        row = _scores_on(matrix.queries, records[system])
        if row is None:
            return None
        rows.append(row * matrix.weights)
    return replace(matrix, metric=FINER, scores=np.array(rows))


def _scores_on(queries: Sequence[str], record: Result) -> Array | None:
    """Return the finer scores of some queries; None if one of them has none."""
    if SOURCE not in record.per_query:
        return None
    scored = scores_by(SOURCE, record)
    if not set(queries) <= set(scored.queries):
        return None
    return finer_scores(scored.on(tuple(queries)))
