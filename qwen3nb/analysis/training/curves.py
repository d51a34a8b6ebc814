"""Curves of score against steps or tokens, fitted by least squares.

No single shape is known to be true, so many are fitted: exponential, power and logarithmic curves,
and S-shaped ones, at many scales. These saturate, or slow down. Others are not held to that: a
saturating curve with a drift, one with a second rise, and one with a bend.

A curve is the sum of fixed terms, such as a constant, and one shape. Its coefficients are those of
generalised least squares, for errors that are correlated between neighbouring checkpoints (Seber
and Wild 2003, "Nonlinear Regression", chapter 6). Levels are therefore linear in the scores, and
their error follows from two parts: the covariance of the means by their queries, and what the means
scatter beyond it.

Shapes: m checkpoints, p places at which curves are wanted, N curves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy  # loads scipy.special on first use
from numpy.typing import NDArray

from qwen3nb.analysis.stats.resampling import LEVEL
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.metrics.intervals import Array, Interval

_CORRELATIONS = (0.0, 0.5)  # of the errors of neighbouring checkpoints
_SCALES = 48  # of saturating shapes
_EXPONENTS = (0.25, 0.5, 1.0, 2.0)  # of power curves
_MIDDLES = 60  # of S-shaped curves
_WIDTHS = (0.03, 0.045, 0.07, 0.1, 0.15, 0.22)  # of S-shaped curves, as shares of the training
_BENDS = 36  # places where a curve may bend
_LARGEST_LEVERAGE = 0.9  # share of a shape's squares that the last checkpoint may have
_FASTEST = 1.25  # how much faster than ever before a shape may change beyond the last checkpoint
_CHOSEN = 1  # parameters besides the coefficients that cost a degree of freedom: the scale
_LEAST_LEFT = 1e-8  # share of a shape's squares that its fixed terms must leave
_RESOLUTION = 5e-4  # errors of a checkpoint that the grid of scales does not resolve


@dataclass(frozen=True)
class Course:
    """The mean scores of a training's checkpoints."""

    places: Array  # (m,) steps or tokens
    means: Array  # (m,) over queries, and over tasks
    covariance: Array  # (m, m) of the means, by the queries; without their different hardness

    @classmethod
    def of(cls, matrices: Sequence[ScoreMatrix], places: Sequence[float]) -> Course:
        """Return the course of the mean over tasks, each with equal weight.

        Args:
            matrices: a task each, with the checkpoints as systems.
            places: of the checkpoints.
        """
        means = np.zeros(len(places))
        covariance = np.zeros((len(places), len(places)))
        for matrix in matrices:
            values = matrix.unit_values(matrix.scores)  # (m, queries or clusters)
            means += values.mean(axis=1) / len(matrices)
            # A query that is hard at every checkpoint changes no gain.
            changes = values - values.mean(axis=0)
            units = values.shape[1]
            if units < 2:  # one query does not show its error; forecasts refuse it
                continue
            covariance += np.atleast_2d(np.cov(changes)) / units / len(matrices) ** 2
        return cls(np.asarray(places, dtype=float), means, covariance)

    def __len__(self) -> int:
        return len(self.places)

    def first(self, count: int) -> Course:
        """Return the course of the first checkpoints."""
        return Course(self.places[:count], self.means[:count], self.covariance[:count, :count])


@dataclass(frozen=True)
class _Family:
    """Curves with the same fixed terms."""

    fixed: Array  # (terms, m + p)
    shapes: Array  # (N, m + p)
    saturates: bool


def _families(course: Course, places: Array, *, only_saturating: bool) -> list[_Family]:
    """Return the shapes of all families, at the checkpoints and at the places."""
    checkpoints = course.places
    everywhere = np.concatenate([checkpoints, places])
    share = everywhere / checkpoints[-1]
    constant = np.ones_like(everywhere)
    saturating = _saturating_shapes(checkpoints, everywhere)
    late_rises = _late_rises(checkpoints, everywhere)
    families = [_Family(constant[None], np.concatenate([saturating, late_rises]), saturates=True)]
    if not only_saturating:
        bends = _bends(checkpoints, everywhere)
        drift = np.stack([constant, share])
        families.append(_Family(drift, np.concatenate([saturating, late_rises, bends]), False))
        # After a fast or a slow start, a second rise or a bend.
        for start in (1 - np.exp(-5 * share), np.log1p(10 * share)):
            fixed = np.stack([constant, start])
            families.append(_Family(fixed, np.concatenate([late_rises, bends]), False))
    return [_without_sudden(family, everywhere, len(course)) for family in families]


def _saturating_shapes(checkpoints: Array, everywhere: Array) -> Array:
    """Return exponential, power and logarithmic shapes, at scales from tiny to endless."""
    closest = np.diff(checkpoints).min()
    scales = np.geomspace(closest / 8, 10 * checkpoints[-1], _SCALES)[:, None]
    relative = everywhere / scales
    shapes = [1 - np.exp(-relative), np.log1p(relative)]
    for exponent in _EXPONENTS:
        shapes.append(1 - (1 + relative) ** -exponent)
    return np.concatenate(shapes)


def _late_rises(checkpoints: Array, everywhere: Array) -> Array:
    """Return S-shaped curves (logistic), whose middle is before the last checkpoint."""
    middles = np.linspace(checkpoints[0], checkpoints[-2], _MIDDLES)[:, None]
    shapes = []
    for share in _WIDTHS:
        width = share * checkpoints[-1]
        shapes.append(scipy.special.expit((everywhere - middles) / width))
    return np.concatenate(shapes)


def _bends(checkpoints: Array, everywhere: Array) -> Array:
    """Return lines that start at a bend, with three checkpoints or more on them, and a parabola."""
    starts = np.linspace(checkpoints[1], checkpoints[-3], _BENDS)[:, None]
    length = checkpoints[-1]
    lines = np.maximum(everywhere - starts, 0) / length
    parabola = (everywhere / length) ** 2
    return np.concatenate([lines, parabola[None]])


def _without_sudden(family: _Family, everywhere: Array, count: int) -> _Family:
    """Leave out shapes that change faster beyond the last checkpoint than ever before it."""
    slopes = np.diff(family.shapes[:, :count], axis=1) / np.diff(everywhere[:count])
    fastest = np.abs(slopes).max(axis=1, keepdims=True)
    distances = np.abs(everywhere[count:] - everywhere[count - 1])
    changes = np.abs(family.shapes[:, count:] - family.shapes[:, count - 1 : count])
    is_beyond = everywhere[count:] > everywhere[count - 1]
    is_sudden = (changes > _FASTEST * fastest * distances) & is_beyond
    return replace(family, shapes=family.shapes[~is_sudden.any(axis=1)])


def correlations(count: int, neighbours: float) -> Array:
    """Return the correlations of errors (count, count): powers of that of neighbours."""
    ranks = np.arange(count)
    return np.asarray(neighbours ** np.abs(ranks[:, None] - ranks), dtype=float)


@dataclass(frozen=True)
class _Group:
    """The fits of a family's curves, for one correlation of the errors."""

    family: _Family
    correlation: float
    fixed_weights: Array  # (terms, m): scores to the coefficients of the fixed terms alone
    residual_maker: Array  # (m, m): scores to what the fixed terms leave, with independent errors
    leftovers: Array  # (N, m): what the fixed terms leave of each shape
    squares: Array  # (N,) of the leftovers
    error_squares: Array  # (N,): what each curve leaves of the scores
    misfits: Array  # (N,): -2 log-likelihood, but for a constant

    @property
    def parameters(self) -> int:
        """What a fit chooses: coefficients, and the scale."""
        return len(self.family.fixed) + 1 + _CHOSEN


def _fitted(course: Course, family: _Family, correlation: float) -> _Group:
    """Fit the curves of a family."""
    count = len(course)
    root = np.linalg.cholesky(correlations(count, correlation))
    whiten = np.linalg.inv(root)
    fixed = whiten @ family.fixed[:, :count].T
    fixed_weights: Array = np.asarray(np.linalg.pinv(fixed) @ whiten, dtype=np.float64)
    residual_maker = whiten - fixed @ fixed_weights
    leftovers = family.shapes[:, :count] @ residual_maker.T
    squares = (leftovers**2).sum(axis=1)
    # A shape must not be a sum of the fixed terms, and not rest on the last checkpoint alone.
    own_squares = (family.shapes[:, :count] ** 2).sum(axis=1)
    is_other = squares > _LEAST_LEFT * own_squares
    is_supported = leftovers[:, -1] ** 2 <= _LARGEST_LEVERAGE * squares
    usable = is_other & is_supported
    leftovers, squares = leftovers[usable], squares[usable]
    score_leftovers = residual_maker @ course.means
    slopes = leftovers @ score_leftovers / squares
    errors = score_leftovers - slopes[:, None] * leftovers
    error_squares = np.maximum((errors**2).sum(axis=1), count * _RESOLUTION**2)
    log_determinant = 2 * np.log(np.diag(root)).sum()
    return _Group(
        replace(family, shapes=family.shapes[usable]),
        correlation,
        fixed_weights,
        residual_maker,
        leftovers,
        squares,
        error_squares,
        count * np.log(error_squares) + log_determinant,
    )


@dataclass(frozen=True)
class Curves:
    """N fitted curves, each as weights of the scores."""

    course: Course
    weights: Array  # (N, 1 + p, m): the level at the last checkpoint, and at each place
    correlation: Array  # (N,) of the errors of neighbouring checkpoints
    freedom: Array  # (N,) degrees of freedom of the errors
    variance: Array  # (N,) of a checkpoint's mean around the curve
    scatter: Array  # (N,): the part of the variance that is not of the queries
    misfits: Array  # (N,): -2 log-likelihood, but for a constant
    saturates: NDArray[np.bool_]  # (N,)

    @property
    def best(self) -> int:
        """The curve that fits best."""
        return int(self.misfits.argmin())

    def adequate(self, level: float) -> Curves:
        """Return those that a test of this level does not reject against the best."""
        cutoff = _cutoff(len(self.course), level)
        chosen = np.zeros(len(self.misfits), dtype=bool)
        for correlation in np.unique(self.correlation):
            alike = self.correlation == correlation
            chosen |= alike & (self.misfits <= self.misfits[alike].min() + cutoff)
        return self._at(chosen)

    def _at(self, rows: NDArray[np.bool_]) -> Curves:
        return Curves(
            self.course,
            self.weights[rows],
            self.correlation[rows],
            self.freedom[rows],
            self.variance[rows],
            self.scatter[rows],
            self.misfits[rows],
            self.saturates[rows],
        )

    @property
    def levels(self) -> Array:
        """The level of each curve at each place (N, p)."""
        return np.asarray(self.weights[:, 1:] @ self.course.means)

    @property
    def gains(self) -> Array:
        """The change of each curve from the last checkpoint to each place (N, p)."""
        return np.asarray(self._gain_weights @ self.course.means)

    @property
    def _gain_weights(self) -> Array:
        return np.asarray(self.weights[:, 1:] - self.weights[:, :1])

    def intervals_of_gains(self) -> list[Interval]:
        """At each place, the union of the intervals of all curves' gains."""
        return self._unions(self.gains, self._errors(self._gain_weights))

    def intervals_of_levels(self) -> list[Interval]:
        """At each place, the union of the intervals of all curves' levels."""
        return self._unions(self.levels, self._errors(self.weights[:, 1:]))

    def intervals_of_scores(self) -> list[Interval]:
        """At each place, the union of the intervals of what a checkpoint there would score."""
        level_errors = self._errors(self.weights[:, 1:])
        errors = np.hypot(level_errors, np.sqrt(self.variance)[:, None])
        return self._unions(self.levels, errors)

    def _errors(self, weights: Array) -> Array:
        """Return the standard errors (N, p) of sums of scores, by queries and by scatter."""
        by_queries = _quadratic_forms(weights, self.course.covariance)
        by_scatter = np.empty_like(by_queries)
        for correlation in np.unique(self.correlation):
            rows = self.correlation == correlation
            matrix = correlations(len(self.course), float(correlation))
            by_scatter[rows] = _quadratic_forms(weights[rows], matrix)
        return np.sqrt(by_queries + self.scatter[:, None] * by_scatter)

    def _unions(self, values: Array, errors: Array) -> list[Interval]:
        lengths = scipy.special.stdtrit(self.freedom, (1 + LEVEL) / 2)[:, None] * errors
        lows = (values - lengths).min(axis=0)
        highs = (values + lengths).max(axis=0)
        return list(zip(lows.tolist(), highs.tolist(), strict=True))

    def covariance_of_scores(self, curve: int) -> Array:
        """Return the covariance (p, p) of what later checkpoints score, less what a curve foresees.

        The places are those of the checkpoints that follow.
        """
        weights = self.weights[curve, 1:]
        count, later = len(self.course), len(weights)
        # Errors of the later checkpoints, less the weighted errors of those that were seen.
        differences = np.concatenate([-weights, np.eye(later)], axis=1)
        matrix = correlations(count + later, float(self.correlation[curve]))
        return np.asarray(self.variance[curve] * (differences @ matrix @ differences.T))


def _quadratic_forms(weights: Array, matrix: Array) -> Array:
    """Return w' M w for each vector w: (N, p, m) to (N, p)."""
    return np.asarray(((weights @ matrix) * weights).sum(axis=-1))


def adequate_curves(
    course: Course, places: Array, *, level: float, only_saturating: bool = False
) -> Curves:
    """Return the curves that a likelihood-ratio test does not reject against the best of all.

    Args:
        course: of six or more checkpoints.
        places: at which the curves are wanted.
        level: of the test, such as 0.95.
        only_saturating: whether others are left out.
    """
    groups = []
    for family in _families(course, places, only_saturating=only_saturating):
        for correlation in _CORRELATIONS:
            groups.append(_fitted(course, family, correlation))
    parts = []
    for correlation in _CORRELATIONS:
        alike = [group for group in groups if group.correlation == correlation]
        # Few checkpoints hardly show how their errors correlate, so each correlation has its best.
        best = min(float(group.misfits.min()) for group in alike if len(group.misfits))
        largest = best + _cutoff(len(course), level)
        parts += [_chosen(course, group, largest) for group in alike]
    return Curves(
        course,
        np.concatenate([part.weights for part in parts]),
        np.concatenate([part.correlation for part in parts]),
        np.concatenate([part.freedom for part in parts]),
        np.concatenate([part.variance for part in parts]),
        np.concatenate([part.scatter for part in parts]),
        np.concatenate([part.misfits for part in parts]),
        np.concatenate([part.saturates for part in parts]),
    )


def _cutoff(count: int, level: float) -> float:
    """Return by how much -2 log-likelihood may exceed the smallest.

    With few checkpoints, the ratio of likelihoods follows from an F quantile, not from chi-squared.
    """
    freedom = count - 5
    return count * math.log1p(scipy.special.fdtri(1, freedom, level) / freedom)


def _chosen(course: Course, group: _Group, largest_misfit: float) -> Curves:
    """Return the curves of a group that fit well enough."""
    count = len(course)
    chosen = group.misfits <= largest_misfit
    # Scores to the coefficient of the shape.
    slope_weights = group.leftovers[chosen] @ group.residual_maker
    slope_weights /= group.squares[chosen, None]
    fixed_part = group.family.fixed.T @ group.fixed_weights  # (m + p, m)
    shapes = group.family.shapes[chosen]
    shapes_left = shapes - shapes[:, :count] @ fixed_part.T
    later = slice(count - 1, None)  # from the last checkpoint on
    weights = fixed_part[later] + shapes_left[:, later, None] * slope_weights[:, None, :]
    freedom = count - group.parameters
    # What the queries alone would leave: a trace, less the share of the shape's own coefficient.
    by_queries = np.trace(group.residual_maker @ course.covariance @ group.residual_maker.T)
    by_queries = by_queries - group.squares[chosen] * _quadratic_forms(
        slope_weights, course.covariance
    )
    error_squares = group.error_squares[chosen]
    return Curves(
        course,
        weights,
        np.full(len(shapes), group.correlation),
        np.full(len(shapes), freedom),
        np.maximum(error_squares, by_queries) / freedom,
        np.maximum(error_squares - by_queries, 0) / freedom,
        group.misfits[chosen],
        np.full(len(shapes), group.family.saturates),
    )
