"""Is the difference real? Paired tests over queries.

Two systems answered the same queries, so the queries are what is resampled, and the
difference is taken query by query. Every function takes two arrays of equal length, in
the same order of queries, and an explicit seed.

References:
    Efron and Tibshirani 1993, chapters 13 and 15; Phipson and Smyth 2010 (a p-value
    of a permutation test is never 0); Holm 1979.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["BootstrapResult", "PermutationResult", "holm", "paired_bootstrap", "permutation_test"]

_BLOCK = 4_000_000  # values drawn at once: bounds the memory


@dataclass(frozen=True)
class BootstrapResult:
    """A mean difference with its percentile interval.

    Attributes:
        difference: mean of a − b.
        interval: ends of the interval.
        level: its coverage, 0.95 by default.
        n: number of queries.
    """

    difference: float
    interval: tuple[float, float]
    level: float
    n: int


@dataclass(frozen=True)
class PermutationResult:
    """A mean difference and how often chance alone gives one as large.

    Attributes:
        difference: mean of a − b.
        p_value: two-sided, (b + 1) / (m + 1).
        n: number of queries.
    """

    difference: float
    p_value: float
    n: int


def paired_bootstrap(
    a: ArrayLike,
    b: ArrayLike,
    *,
    n_resamples: int = 10_000,
    level: float = 0.95,
    seed: int,
) -> BootstrapResult:
    """Percentile bootstrap interval of the mean of a − b over queries.

    Equal systems have a difference of 0 and the interval (0, 0).

    Raises:
        ValueError: arrays of different or zero length, or a value that is not finite.
    """
    differences = _differences(a, b)
    n = len(differences)
    generator = np.random.default_rng(seed)
    means = [
        differences[generator.integers(0, n, size=(count, n))].mean(axis=1)
        for count in _counts(n_resamples, n)
    ]
    tail = (1 - level) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail])
    return BootstrapResult(float(differences.mean()), (float(low), float(high)), level, n)


def permutation_test(
    a: ArrayLike, b: ArrayLike, *, n_resamples: int = 10_000, seed: int
) -> PermutationResult:
    """Two-sided paired permutation test of the mean of a − b (random sign flips).

    Equal systems have p = 1.

    Raises:
        ValueError: as in `paired_bootstrap`.
    """
    differences = _differences(a, b)
    n = len(differences)
    observed = abs(differences.sum())
    generator = np.random.default_rng(seed)
    extreme = 0
    for count in _counts(n_resamples, n):
        signs = generator.integers(0, 2, size=(count, n), dtype=np.int8) * 2 - 1
        # The tolerance counts a permutation that equals the observed one in exact
        # arithmetic, whatever the order of summation made of it.
        extreme += int((np.abs(signs @ differences) >= observed - 1e-12 * n).sum())
    return PermutationResult(float(differences.mean()), (extreme + 1) / (n_resamples + 1), n)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]

    Raises:
        ValueError: a value outside 0 to 1.
    """
    if any(not 0 <= p <= 1 for p in p_values):
        raise ValueError(f"expected p-values between 0 and 1; got {list(p_values)}")
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted


def _differences(a: ArrayLike, b: ArrayLike) -> NDArray[np.float64]:
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.ndim != 1 or first.shape != second.shape or len(first) == 0:
        raise ValueError(
            f"expected two arrays of the same queries; got shapes {first.shape}, {second.shape}"
        )
    differences: NDArray[np.float64] = first - second
    if not np.isfinite(differences).all():
        index = int(np.flatnonzero(~np.isfinite(differences))[0])
        raise ValueError(f"query {index} has a value that is not finite")
    return differences


def _counts(total: int, n: int) -> list[int]:
    """``total`` resamples of ``n`` values in blocks of bounded size."""
    if total < 1:
        raise ValueError(f"expected at least one resample; got {total}")
    step = max(1, _BLOCK // n)
    return [min(step, total - start) for start in range(0, total, step)]
