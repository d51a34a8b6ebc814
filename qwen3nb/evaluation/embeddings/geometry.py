"""How a set of vectors lies in its space: length, spread, how many directions it uses.

Everything but the lengths is taken after scaling every vector to length 1, so that a
threshold means the same for a model that normalises and one that does not. Nothing is
centred but the variances: a direction that all texts share is what one looks for.

Shapes: N texts, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["COLLAPSED_VARIANCE", "Geometry", "effective_rank", "isotropic", "vector_geometry"]

COLLAPSED_VARIANCE = 1e-6  # a dimension that varies less says nothing
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Geometry:
    """What `vector_geometry` found.

    Attributes:
        lengths: length of every vector as it came, (N,).
        variances: variance of every dimension over the texts, (D,).
        cosines: cosine of every pair of texts, (N (N - 1) / 2,).
        singular_values: of the (N, D) matrix, from large to small, (min(N, D),).
    """

    lengths: Array
    variances: Array
    cosines: Array
    singular_values: Array

    @property
    def texts(self) -> int:
        """N."""
        return len(self.lengths)

    @property
    def dimension(self) -> int:
        """D."""
        return len(self.variances)

    @property
    def collapsed(self) -> int:
        """How many dimensions vary by less than `COLLAPSED_VARIANCE`."""
        return int((self.variances < COLLAPSED_VARIANCE).sum())

    @property
    def mean_cosine(self) -> float:
        """Mean over all pairs: 0 for random directions, 1 for one direction."""
        return float(self.cosines.mean())

    @property
    def effective_rank(self) -> float:
        """How many directions the vectors use; see `effective_rank`."""
        return effective_rank(self.singular_values)


def vector_geometry(vectors: NDArray[np.floating]) -> Geometry:
    """Measure ``vectors`` (N, D).

    Raises:
        ValueError: fewer than two vectors, or one of length zero or not finite.
    """
    rows = np.asarray(vectors, dtype=np.float64)
    if rows.ndim != 2 or len(rows) < 2:
        raise ValueError(f"expected vectors (N, D) of at least two texts; got {rows.shape}")
    lengths = np.linalg.norm(rows, axis=1)
    if bad := np.flatnonzero(~np.isfinite(lengths) | (lengths == 0)).tolist():
        raise ValueError(f"vectors {bad[:8]} are zero or not finite and have no direction")
    unit = rows / lengths[:, None]
    return Geometry(
        lengths=lengths,
        variances=unit.var(axis=0),
        cosines=(unit @ unit.T)[np.triu_indices(len(unit), k=1)],
        singular_values=np.linalg.svd(unit, compute_uv=False),
    )


def effective_rank(singular_values: Array) -> float:
    """Exponential of the entropy of the singular values, normalised to sum 1.

    From 1 (one direction) to their number (all alike).

    References:
        Roy and Vetterli 2007, The effective rank, EUSIPCO, definition 1.

    Raises:
        ValueError: there is none, a negative one, or all are zero.
    """
    values = np.asarray(singular_values, dtype=np.float64)
    if values.size == 0 or (values < 0).any() or not values.sum() > 0:
        raise ValueError("expected singular values of 0 or more, one of them above 0")
    shares = values / values.sum()
    shares = shares[shares > 0]  # p log p goes to 0 with p
    return float(np.exp(-(shares * np.log(shares)).sum()))


def isotropic(texts: int, dimension: int, *, seed: int = 0) -> Geometry:
    """The same for ``texts`` random directions: what nothing but chance looks like."""
    return vector_geometry(np.random.default_rng(seed).normal(size=(texts, dimension)))
