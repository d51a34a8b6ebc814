"""Linear maps from one model's vectors to another's, fitted on documents that both have encoded.

::

    rotation    y ≈ s x R with orthonormal R: orthogonal Procrustes (Schönemann, Psychometrika 31,
                1966); vectors of different lengths are padded with zeros
    ridge       y ≈ x W + b by least squares with a penalty on W (Hoerl and Kennard, 1970)

Both follow from sums over documents, which are added up block by block, so that memory does not
grow with the documents.

Shapes: N documents; X (N, D) and Y (N, E) are vectors of the first and the second model.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from qwen3nb.models.search.exact import Doubles, Floats

# Ridge penalties to try, relative to the mean variance of a dimension of X.
PENALTIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


@dataclass(frozen=True)
class LinearMap:
    """A map of vectors: x ↦ x · matrix + offset."""

    kind: str  # ``rotation`` or ``ridge``
    matrix: Doubles  # (D, E)
    offset: Doubles  # (E,)
    penalty: float = 0.0  # of ridge, relative; see `PENALTIES`

    def apply(self, vectors: Floats) -> Floats:
        """Return mapped vectors (N, E) of vectors (N, D)."""
        mapped: Floats = (vectors @ self.matrix + self.offset).astype(np.float32)
        return mapped


@dataclass(frozen=True)
class Moments:
    """Sums over documents from which maps are fitted; two of them can be added."""

    count: int
    x_sum: Doubles  # (D,)
    y_sum: Doubles  # (E,)
    xx: Doubles  # Xᵀ X (D, D)
    xy: Doubles  # Xᵀ Y (D, E)
    yy: float  # sum of all squares of Y

    @classmethod
    def of(cls, x: Floats, y: Floats) -> Self:
        """Return the sums over vectors (n, D) and (n, E)."""
        first, second = x.astype(np.float64), y.astype(np.float64)
        return cls(
            count=len(first),
            x_sum=first.sum(axis=0),
            y_sum=second.sum(axis=0),
            xx=first.T @ first,
            xy=first.T @ second,
            yy=float((second**2).sum()),
        )

    def __add__(self, other: Moments) -> Moments:
        return Moments(
            self.count + other.count,
            self.x_sum + other.x_sum,
            self.y_sum + other.y_sum,
            self.xx + other.xx,
            self.xy + other.xy,
            self.yy + other.yy,
        )


def total_of(moments: Iterable[Moments]) -> Moments:
    """Return the sum of moments.

    Raises:
        ValueError: there are none.
    """
    total: Moments | None = None
    for part in moments:
        total = part if total is None else total + part
    if total is None:
        raise ValueError("expected the moments of at least one document")
    return total


def fit_rotation(moments: Moments) -> LinearMap:
    """Return the orthonormal map, with one scale, of the least squared error."""
    left, singular_values, right = np.linalg.svd(moments.xy, full_matrices=False)
    rotation = left @ right
    # A map to fewer dimensions loses length, which the fit must not count.
    mapped_square = float(np.sum((moments.xx @ rotation) * rotation))
    scale = float(singular_values.sum()) / max(mapped_square, 1e-300)
    return LinearMap("rotation", scale * rotation, np.zeros(rotation.shape[1]))


@dataclass(frozen=True)
class RidgeFit:
    """Ridge regression at any penalty, from one decomposition."""

    moments: Moments

    @property
    def _means(self) -> tuple[Doubles, Doubles]:
        """The means of X (D,) and Y (E,)."""
        count = self.moments.count
        return self.moments.x_sum / count, self.moments.y_sum / count

    @cached_property
    def _decomposed(self) -> tuple[Doubles, Doubles, Doubles]:
        """Eigenvalues and eigenvectors of the centred Xᵀ X, and the latter times Xᵀ Y."""
        x_mean, y_mean = self._means
        count = self.moments.count
        centred_xx = self.moments.xx - count * np.outer(x_mean, x_mean)
        centred_xy = self.moments.xy - count * np.outer(x_mean, y_mean)
        values, vectors = np.linalg.eigh(centred_xx)
        return np.maximum(values, 0), vectors, vectors.T @ centred_xy

    def absolute(self, penalty: float) -> float:
        """Return a relative penalty as the number that is added to each squared singular value."""
        values, _, _ = self._decomposed
        return penalty * max(float(values.mean()), 1e-300)

    def at(self, penalty: float) -> LinearMap:
        """Return the map with a relative penalty."""
        values, vectors, projected = self._decomposed
        x_mean, y_mean = self._means
        shrunk = projected / (values + self.absolute(penalty))[:, None]
        matrix = vectors @ shrunk
        return LinearMap("ridge", matrix, y_mean - x_mean @ matrix, penalty)


def squared_error(fitted: LinearMap, moments: Moments) -> float:
    """Return the sum of squared errors of a map over the documents of these moments."""
    matrix, offset = fitted.matrix, fitted.offset
    mapped_sum = moments.x_sum @ matrix + moments.count * offset
    products = float(np.sum(matrix * moments.xy)) + float(offset @ moments.y_sum)
    squares = float(np.sum((moments.xx @ matrix) * matrix))
    squares += float(offset @ (mapped_sum + moments.x_sum @ matrix))
    return max(0.0, moments.yy - 2 * products + squares)


def fit_ridge(
    fitting: Moments, checking: Moments, *, penalties: Sequence[float] = PENALTIES
) -> LinearMap:
    """Return the ridge map of all documents, with the penalty that predicts best.

    The penalty is the one by which the documents of ``fitting`` predict those of ``checking``.
    """
    fit = RidgeFit(fitting)
    errors = [squared_error(fit.at(penalty), checking) for penalty in penalties]
    best_penalty = penalties[int(np.argmin(errors))]
    return RidgeFit(fitting + checking).at(best_penalty)


def squared_errors(fitted: LinearMap, x: Floats, y: Floats) -> tuple[float, float]:
    """Return the summed squared error of mapped x (N, D) from y (N, E), and the squares of y.

    Mapped vectors get the length 1, as cosines compare them.
    """
    difference = with_unit_length(fitted.apply(x)).astype(np.float64) - y
    return float((difference**2).sum()), float((y.astype(np.float64) ** 2).sum())


def with_unit_length(vectors: Floats) -> Floats:
    """Return vectors (N, D) of length 1; a zero vector stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: Floats = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
    return scaled
