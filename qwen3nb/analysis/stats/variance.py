"""How much of the variance of scores comes from queries, from prompts, from seeds.

Scores of a crossed design: every query was answered with every prompt and every seed, once. The
model is random effects, ``y = m + q + p + s + qp + qs + ps + e``, whose components are estimated
from the mean squares by the method of moments (Searle, Casella and McCulloch 1992, chapter 4), and
their intervals by generalised pivots: each mean square is divided by a draw of its chi-squared
distribution (Weerahandi 1993), which assumes effects that are normally distributed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL, Seed, percentile_interval
from qwen3nb.metrics.intervals import Array, Interval

Factors = tuple[str, ...]


@dataclass(frozen=True)
class Component:
    """The part of one factor, or of an interaction of several, in the variance of one score."""

    factors: Factors  # such as ``("query", "prompt")``; of all factors, also what is left over
    variance: float  # estimate; below 0 where the data show less than the others would cause
    share: float  # of the sum of all components, of which those below 0 count as 0
    interval: Interval  # of the share
    df: int  # degrees of freedom

    @property
    def name(self) -> str:
        """``query × prompt``."""
        return " × ".join(self.factors)


def variance_components(
    scores: ArrayLike, factors: Sequence[str], *, level: float = LEVEL, seed: Seed = 0
) -> list[Component]:
    """Split the variance of scores into those of crossed factors and of their interactions.

    Args:
        scores: an axis per factor, of two levels or more: (queries, prompts, seeds).
        factors: names of the axes.
        level: nominal coverage of the intervals.
        seed: of the draws of the intervals.

    Returns:
        The components: single factors first, in their order; the last is of all factors.

    Raises:
        ValueError: other axes than factors, one of a single level, or a value that is not finite.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != len(factors) or min(values.shape, default=0) < 2:
        raise ValueError(
            f"expected an axis of two levels or more for each of {', '.join(factors)}; got scores "
            f"of shape {values.shape}"
        )
    if not np.isfinite(values).all():
        raise ValueError("a score is not finite")
    sets = [each for size in range(1, values.ndim + 1) for each in _subsets(values.ndim, size)]
    df = {each: math.prod(values.shape[axis] - 1 for axis in each) for each in sets}
    squares = {each: _sum_of_squares(values, each) / df[each] for each in sets}
    generator = np.random.default_rng(seed)
    drawn = {each: squares[each] * df[each] / generator.chisquare(df[each], DRAWS) for each in sets}
    estimates = {each: _component(squares, each, values.shape) for each in sets}
    draws = np.maximum(np.stack([_component(drawn, each, values.shape) for each in sets]), 0.0)
    total = math.fsum(max(0.0, float(each)) for each in estimates.values())
    shares = np.divide(draws, draws.sum(axis=0), out=np.zeros_like(draws), where=draws.sum(0) > 0)
    return [
        Component(
            tuple(factors[axis] for axis in each),
            float(estimates[each]),
            max(0.0, float(estimates[each])) / total if total else 0.0,
            percentile_interval(share, level=level),
            df[each],
        )
        for each, share in zip(sets, shares, strict=True)
    ]


def _subsets(count: int, size: int) -> Iterator[tuple[int, ...]]:
    return itertools.combinations(range(count), size)


def _sum_of_squares(values: Array, axes: tuple[int, ...]) -> float:
    """The sum of squares of an effect: means over the other axes, less those of parts of it."""
    effect = np.zeros(1)
    for size in range(len(axes) + 1):
        for part in itertools.combinations(axes, size):
            others = tuple(axis for axis in range(values.ndim) if axis not in part)
            effect = effect + (-1) ** (len(axes) - size) * values.mean(axis=others, keepdims=True)
    return float((effect**2).sum()) * values.size / effect.size


def _component(
    squares: dict[tuple[int, ...], Array] | dict[tuple[int, ...], float],
    axes: tuple[int, ...],
    shape: tuple[int, ...],
) -> Array:
    """The component whose multiple is what a mean square has besides those of larger sets."""
    repeated = math.prod(size for axis, size in enumerate(shape) if axis not in axes)
    terms = [
        (-1) ** (len(other) - len(axes)) * np.asarray(value)
        for other, value in squares.items()
        if {*axes} <= {*other}
    ]
    return np.sum(terms, axis=0) / repeated
