"""Measure the geometry of a set of vectors: lengths, variances, cosines, effective rank.

Everything except the lengths is computed after scaling every vector to length 1, so that
thresholds mean the same for models with and without normalisation. Only the variances are
centred: a direction shared by all texts must remain visible.

Shapes: N texts, D dimensions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["COLLAPSED_VARIANCE", "Geometry", "effective_rank", "isotropic", "vector_geometry"]

COLLAPSED_VARIANCE = 1e-6  # a dimension with less variance carries no information
Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Geometry:
    """The geometry of a set of vectors.

    Attributes:
        lengths: length of every vector before scaling, (N,).
        variances: variance of every dimension over the texts, (D,).
        cosines: cosine of every pair of texts, (N (N - 1) / 2,).
        singular_values: of the (N, D) matrix, in descending order, (min(N, D),).
    """

    lengths: Array
    variances: Array
    cosines: Array
    singular_values: Array

    @property
    def texts(self) -> int:
        """Number of texts, N."""
        return len(self.lengths)

    @property
    def dimension(self) -> int:
        """Dimension of the vectors, D."""
        return len(self.variances)

    @property
    def collapsed(self) -> int:
        """Number of dimensions with a variance below `COLLAPSED_VARIANCE`."""
        return int((self.variances < COLLAPSED_VARIANCE).sum())

    @property
    def mean_cosine(self) -> float:
        """Mean cosine over all pairs: 0 for random directions, 1 for identical ones."""
        return float(self.cosines.mean())

    @property
    def effective_rank(self) -> float:
        """Effective number of directions in use; see `effective_rank`."""
        return effective_rank(self.singular_values)


def vector_geometry(vectors: NDArray[np.floating]) -> Geometry:
    """Measure the geometry of ``vectors`` (N, D).

    Raises:
        ValueError: fewer than two vectors, or one that is zero or not finite.
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
    """Exponential of the entropy of the singular values, normalised to sum to 1.

    It ranges from 1 (a single direction) to their number (all equal).

    References:
        Roy and Vetterli 2007, The effective rank, EUSIPCO, definition 1.

    Raises:
        ValueError: no values, a negative one, or all zero.
    """
    values = np.asarray(singular_values, dtype=np.float64)
    if values.size == 0 or (values < 0).any() or not values.sum() > 0:
        raise ValueError("expected singular values of 0 or more, at least one above 0")
    shares = values / values.sum()
    shares = shares[shares > 0]  # p log p goes to 0 with p
    return float(np.exp(-(shares * np.log(shares)).sum()))


def isotropic(texts: int, dimension: int, *, seed: int = 0) -> Geometry:
    """Return the geometry of ``texts`` random directions, as a reference."""
    return vector_geometry(np.random.default_rng(seed).normal(size=(texts, dimension)))
