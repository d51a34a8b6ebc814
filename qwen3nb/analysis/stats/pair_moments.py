"""Moments of the differences of all pairs of systems, from products of their scores.

Of 200 systems there are 19,900 pairs, whose differences take as many passes over all queries. Their
variances and third moments are sums of products instead, one matrix product each. These do not
tell how much of the variance is above the mean, and so bound the widened interval only; for nearly
equal systems, their digits cancel.

Shapes: S systems, n queries.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from qwen3nb.metrics import intervals
from qwen3nb.metrics.intervals import Array

_CANCELLING = 1e-4  # share of both variances below which that of a difference is not certain
_ROUNDING = 1e-6  # by which a length may be off, as a share of it
_QUERIES_AT_ONCE = 1 << 14


class SideBounds(NamedTuple):
    """Bounds of the lengths of an interval's side, for the difference of each pair (S, S)."""

    shortest: Array
    longest: Array


class IntervalBounds(NamedTuple):
    """Bounds of the intervals of the differences of all pairs: the first less the second."""

    means: Array  # (S, S)
    below: SideBounds
    above: SideBounds
    is_certain: NDArray[np.bool_]  # whether the bounds hold (S, S)


def interval_bounds(scores: Array, *, level: float) -> IntervalBounds:
    """Return bounds of `intervals.difference_interval` for all pairs of systems.

    Args:
        scores: of two or more queries (S, n).
        level: of the intervals.
    """
    n = scores.shape[1]
    moments, is_certain = _pair_moments(scores)
    # Differences are within this bound on each side, and within 1 if they are no larger.
    bound = max(1.0, float(np.ptp(scores, axis=0).max()))
    sides = []
    for sign in (-1.0, 1.0):
        # The bound of a pair may be smaller, but is at least 1.
        nearest, furthest = 1.0 - sign * moments.means, bound - sign * moments.means
        shortest, longest = intervals.side_length_bounds(
            moments, sign, furthest, level=level, queries=n
        )
        # An interval does not go beyond the bound.
        shortest = np.minimum(shortest, np.maximum(0.0, nearest)) * (1 - _ROUNDING)
        sides.append(SideBounds(shortest, longest * (1 + _ROUNDING)))
    below, above = sides
    return IntervalBounds(moments.means, below, above, is_certain)


def _pair_moments(scores: Array) -> tuple[intervals.Moments, NDArray[np.bool_]]:
    """Return moments of the differences of all pairs (S, S), and whether they are certain.

    The part of the variance above the mean is not known, and 0.
    """
    systems, n = scores.shape
    means = scores.mean(axis=1)
    products = np.zeros((systems, systems))  # means of a b, with a and b less their means
    with_squares = np.zeros((systems, systems))  # means of a² b
    for start in range(0, n, _QUERIES_AT_ONCE):
        deviations = scores[:, start : start + _QUERIES_AT_ONCE] - means[:, None]
        deviations -= deviations.mean(axis=0)  # which changes no difference
        products += deviations @ deviations.T / n
        with_squares += deviations**2 @ deviations.T / n
    squares, cubes = np.diag(products), np.diag(with_squares)
    sums_of_squares = squares[:, None] + squares
    variances = np.maximum(0.0, sums_of_squares - 2 * products)
    # (a - b)³ = a³ - 3 a² b + 3 a b² - b³
    cubes_of_pairs = cubes[:, None] - cubes - 3 * (with_squares - with_squares.T)
    moments = intervals.Moments(
        means=means[:, None] - means,
        variances=variances,
        to_sides=np.zeros((systems, systems)),
        cubes=cubes_of_pairs,
    )
    return moments, variances > _CANCELLING * sums_of_squares
