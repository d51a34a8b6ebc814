"""Weights of a fusion, chosen on some queries for others.

A fusion adds up the scores of its parts with weights that are not negative and sum to 1. The
weights of a query are those that score highest on the queries of all other folds. So no query has
a say in its own weights, and the mean over queries is an honest, held-out score. Weights that are
chosen on all queries are for other queries; their score on the same ones flatters.

Queries of one cluster, and near-copies, stay in one fold, as one would tell the weight of the
other.

Shapes: Q queries, K folds, P parts of a fusion, G combinations of weights.

References:
    Stone 1974 (cross-validation); Bruch et al., ACM TOIS 42 (2023), arXiv:2210.11934 (weights of a
    fusion that are fitted to a few queries).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from qwen3nb.metrics.near_copies import with_near_copies

Floats = NDArray[np.float64]
Numbers = NDArray[np.int64]

FOLDS = 10
FEWEST = 20  # clusters of queries: with fewer, all weights are equal
# Weights are multiples of 1 / steps, by the number of parts; equal weights are among them. Few
# queries do not tell finer ones apart, so a choice among these would follow their noise.
STEPS = {2: 20, 3: 12, 4: 8, 5: 5}
MOST_PARTS = max(STEPS)
DIGITS = 9  # of a total, which is stored: choices are made by what is stored


def weight_grid(parts: int) -> Floats:
    """Return all combinations (G, P) of weights that are tried.

    >>> weight_grid(2)[:3].tolist()
    [[0.0, 1.0], [0.05, 0.95], [0.1, 0.9]]

    Raises:
        KeyError: fewer than two parts, or more than `MOST_PARTS`.
    """
    steps = STEPS[parts]
    rows: list[list[int]] = [[]]
    for _ in range(parts - 1):
        longer_rows = []
        for row in rows:
            for count in range(steps - sum(row) + 1):
                longer_rows.append([*row, count])
        rows = longer_rows
    whole_rows = [[*row, steps - sum(row)] for row in rows]
    return np.array(whole_rows, dtype=np.float64) / steps


def equal_weights(parts: int) -> Floats:
    """Return equal weights (P,)."""
    return np.full(parts, 1 / parts)


def folds_of_queries(
    texts: Mapping[str, str], clusters: Mapping[str, str], *, seed: int = 0
) -> Numbers:
    """Return the fold (Q,) of each query; all are 0 if there are too few to choose by.

    Clusters are dealt out in a random order, which depends on their names and the seed alone.

    Args:
        texts: the text of each query by its id.
        clusters: the cluster of a query, if others depend on it.
        seed: of the order.
    """
    units = with_near_copies(clusters, texts)
    names = sorted(set(units.values()))
    if len(names) < FEWEST:
        return np.zeros(len(texts), dtype=np.int64)
    order = np.random.default_rng(seed).permutation(len(names))
    fold_by_unit = {}
    for place, number in enumerate(order.tolist()):
        fold_by_unit[names[number]] = place % FOLDS
    return np.array([fold_by_unit[units[query]] for query in texts], dtype=np.int64)


def totals_by_fold(scores: Floats, folds: Numbers) -> Floats:
    """Return the sum (K, G) over the queries of each fold of their scores (Q, G)."""
    totals = np.zeros((FOLDS, scores.shape[1]))
    np.add.at(totals, folds, scores)
    return totals.round(DIGITS)


def rows_for_folds(totals: Floats, grid: Floats) -> list[int]:
    """Return the row of the grid for the queries of each fold: the best one on all others."""
    sum_of_all = totals.sum(axis=0)
    return [best_row(sum_of_all - fold_totals, grid) for fold_totals in totals]


def best_row(sums: Floats, grid: Floats) -> int:
    """Return the row of the grid with the highest of the sums (G,).

    Of several, the one that is nearest to equal weights, and of these the first.
    """
    # Sums that differ by rounding alone are equal.
    is_best = sums >= sums.max() - 10.0 ** (2 - DIGITS)
    distances = np.abs(grid - 1 / grid.shape[1]).sum(axis=1).round(DIGITS)
    return int(np.argmin(np.where(is_best, distances, np.inf)))
