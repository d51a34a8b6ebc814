"""Queries that belong together: of one document, one reader, one module.

Such queries are not independent: what helps on one of them helps on the others. The units that were
sampled are then clusters of queries, not queries. Every method for independent values whose mean is
the difference serves, given one value per cluster (`cluster_values`) in place of one per query. Its
standard error is the cluster-robust one of a mean (Liang and Zeger 1986; Cameron and Miller 2015,
with the correction G / (G − 1) and t of G − 1 degrees of freedom).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qwen3nb.metrics.intervals import Array


def cluster_numbers(cluster: Sequence[object] | ArrayLike, n: int) -> NDArray[np.intp]:
    """Number the clusters of n queries: 0 to G − 1, in the order of their names.

    Raises:
        ValueError: not one cluster per query.
    """
    names = np.asarray(cluster)
    if names.shape != (n,):
        raise ValueError(f"expected a cluster for each of {n} queries; got shape {names.shape}")
    return np.unique(names, return_inverse=True)[1]


def cluster_values(values: Array, numbers: NDArray[np.intp], *, centred: bool = True) -> Array:
    """One value per cluster (…, G), whose mean is that of the ``values`` (…, n) of queries.

    ``(G / n) sum(v − mean) + mean``, summed over a cluster. Not ``centred``, it is
    ``(G / n) sum(v)``: for sign flips, under which the sum of a cluster changes its sign.
    Clusters of one query each give the values themselves.
    """
    n, count = values.shape[-1], int(numbers.max(initial=-1)) + 1
    mean = values.mean(axis=-1, keepdims=True) if centred else np.zeros(1)
    order = np.argsort(numbers, kind="stable")
    starts = np.searchsorted(numbers[order], np.arange(count))
    summed: Array = np.add.reduceat((values - mean)[..., order], starts, axis=-1)
    return summed * (count / n) + mean
