"""Bootstrap resamples and sign flips, drawn once for all systems.

Tests flip signs. Intervals of scores and differences are not bootstrap intervals, which are too
narrow, but those of `qwen3nb.metrics.intervals`; only ``P(A > B)`` over prompts has a bootstrap
interval (`qwen3nb.analysis.comparison.prompt_effects`).

A resample is a vector of counts: how often each query was drawn. The means of all systems are
a single product of counts and scores. Resamples and pairs of systems are processed in blocks, so
memory does not depend on their numbers.

Scores are first rounded to multiples of a power of two, small enough that the sum over any
resample is exact in float64 (about n times 1e-16 relative to the largest score). Sums are then
independent of the order of summation: a seed gives identical results for any number of threads,
block size and processor.

Shapes: n queries, S columns (systems), R resamples.

References:
    Efron and Tibshirani 1993, chapters 13 (percentile), 14 (BCa), 15 (permutation).

Queries of one document, user or module are not independent: the sampling units are then clusters of
queries. All methods for means of independent values apply, given one value per cluster
(`cluster_values`) instead of one per query. The standard error is then the cluster-robust one
(Liang and Zeger 1986; Cameron and Miller 2015, with the correction G / (G − 1) and t with G − 1
degrees of freedom). If one cluster holds more than an eighth of the queries, it is that of Bell and
McCaffrey 2002 (CR2, with their degrees of freedom), if that is larger.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit
from threadpoolctl import ThreadpoolController

from qwen3nb.metrics.intervals import Array, Interval
from qwen3nb.utils.hardware import cores

Seed = int | Sequence[int]

DRAWS = 10_000  # resamples of a bootstrap, sign flips of a permutation test
LEVEL = 0.95  # of intervals

_BLOCK = 2_000_000  # counts held at once: 16 MB
_FLIPS = (256, 2048)  # minimum and maximum of sign flips in a block
_ALIKE = 1e-4  # share of the lengths of two columns below which their distance is not from products
_MOST_BITS = 32  # of a number that is a sign flip of all queries
_ROUNDED = 2.0  # units by which fixed-point scores that are equal may differ
_COUNTED_PAIRS = 1 << 14  # pairs whose differing queries are counted at once
_LARGE = 1 / 8  # share of the queries in one cluster
_COMPARED = 1 << 17  # differences of pairs held at once, to fit a cache of 2 MB


def draw_seed(seed: int, queries: Sequence[str]) -> tuple[int, int]:
    """Return a seed that depends on the queries: equal queries have equal draws everywhere.

    >>> draw_seed(0, ["a", "b"]) == draw_seed(0, ["a", "b"])
    True
    """
    return seed, zlib.crc32("\0".join(queries).encode("utf-8", "surrogatepass"))


def resampled_means(scores: Array, *, n_resamples: int, seed: Seed) -> tuple[Array, Array]:
    """Column means (S,) of ``scores`` (n, S), and those of bootstrap resamples (R, S).

    A resample equal to the sample has exactly its means.
    """
    (n, systems), scale = scores.shape, _scale(scores)
    exact = _fixed_point(scores, scale)
    generator = np.random.default_rng(seed)
    small = np.uint16 if n <= 1 << 16 else np.int64  # a third faster to draw
    sums, step = np.empty((n_resamples, systems)), max(1, _BLOCK // n)
    for start in range(0, n_resamples, step):
        counts = np.empty((min(step, n_resamples - start), n))
        for row in counts:
            row[:] = np.bincount(generator.integers(0, n, n, dtype=small), minlength=n)
        sums[start : start + step] = counts @ exact
    return np.ldexp(exact.sum(axis=0), -scale) / n, np.ldexp(sums, -scale) / n


def max_t_p_values(
    scores: Array,
    pairs: Sequence[tuple[int, int]],
    *,
    n_resamples: int,
    seed: Seed,
    largest: float = 0.0,
) -> tuple[list[float], list[float]]:
    """P-values of the two-sided paired permutation test of pairs of systems, raw and by MaxT.

    Of n queries, there are 2^n sign flips. If these are no more than R, all are taken, and a raw
    p-value is the share of those with a difference at least as large as the sample's, up to the
    rounding of scores. Otherwise b of R random ones have such a difference, and the p-value is
    (b + 1) / (R + 1), never 0 (Phipson and Smyth 2010), and no less than the smallest that is
    possible: 2 / 2^m, where m is the number of queries on which the two systems differ.

    For step-down MaxT over all pairs, the statistic of a pair is its difference over the root of
    its sum of squares, which sign flips do not change; pairs of large and small variance are thus
    treated alike. The adjusted p-value is the share of sign flips in which the largest statistic of
    all pairs, except more significant ones, is at least the pair's own, and no less than that of
    any more significant pair. For correlated pairs, this is more powerful than Holm's method,
    because all pairs share the flips. The family-wise error rate is at most alpha if the
    differences of all pairs without a true difference are jointly symmetric about 0 (Westfall and
    Young 1993, algorithm 4.1; Boytsov, Belova and Westfall 2013).

    Args:
        scores: (n, S).
        pairs: columns (i, j); the difference is ``|sum(scores[:, i] - scores[:, j])|``, in
            which exchanging the two systems on a query flips a sign.
        n_resamples: number of sign flips R.
        seed: seed of the random sign flips, shared by all pairs.
        largest: scores up to it are rounded alike, whatever the others are.

    Returns:
        Two lists, in the order of the pairs.
    """
    if n_resamples < 1:
        raise ValueError(f"expected at least one resample; got {n_resamples}")
    if not len(pairs):
        return [], []
    n = len(scores)
    flips = _SignFlips.of(n, n_resamples, seed)
    scale = _scale(scores, largest)
    ordered = _OrderedPairs.of(scores, scale, np.array(pairs, dtype=np.intp))
    counts = _count_extreme(ordered, flips, scores, scale)
    if flips.is_complete:
        p_values = counts / flips.count
    else:
        most = flips.count.bit_length() + 1
        differing = _differing(scores, scale, ordered.first, ordered.second, most=most)
        smallest = np.minimum(1.0, np.ldexp(2.0, -differing))
        p_values = np.maximum((counts + 1) / (flips.count + 1), smallest)
    raw, adjusted = p_values
    # No adjusted p-value is below that of a more significant pair.
    adjusted[::-1] = np.maximum.accumulate(adjusted[::-1])
    return ordered.unsorted(raw), ordered.unsorted(adjusted)


@dataclass(frozen=True)
class _SignFlips:
    """Sign flips of n queries: all of them, or random ones."""

    n: int
    count: int
    is_complete: bool
    seed: Seed  # of the random ones

    @classmethod
    def of(cls, n: int, n_resamples: int, seed: Seed) -> _SignFlips:
        """Return all sign flips if these are no more than ``n_resamples``."""
        is_complete = n <= _MOST_BITS and 1 << n <= n_resamples
        count = 1 << n if is_complete else n_resamples
        return cls(n, count, is_complete, seed)

    def coins(self, start: int, count: int) -> NDArray[np.uint8]:
        """Return flips from the ``start``-th on, as packed bits: 1 where the sign stays."""
        if self.is_complete:
            return _every_flip(start, count, self.n)
        return _coins(self.seed, start, count, self.n)


@dataclass(frozen=True)
class _OrderedPairs:
    """Pairs of systems, the most significant one last."""

    order: NDArray[np.intp]  # place of each pair in the caller's list
    first: NDArray[np.intp]  # columns of scores
    second: NDArray[np.intp]
    differences: Array  # absolute sums of the sample, less what rounding may add
    weights: Array  # 1 / root of the sum of squares; times a difference, the statistic
    statistics: Array  # those of the sample; such that differ only by rounding are tied
    total: Array  # sum of the scores of each system

    @classmethod
    def of(cls, scores: Array, scale: int, pairs: NDArray[np.intp]) -> _OrderedPairs:
        """Order the pairs (P, 2) of columns by their statistics."""
        n, (first, second) = len(scores), pairs.T
        total = _sums(np.full((1, n // 8 + 1), 255, np.uint8), scores, scale)[0]
        norms = _distances(scores, scale, first, second)
        weights = np.divide(1.0, norms, out=np.zeros(len(norms)), where=norms > 0)
        # Each of 2n scores was rounded by up to half a unit, on both sides.
        differences = np.abs(total[first] - total[second]) - 2.0 * n
        order = np.argsort(differences * weights, kind="stable")
        statistics = differences[order] * weights[order] * (1 - 1e-9)
        return cls(
            order,
            first[order],
            second[order],
            differences[order],
            weights[order],
            statistics,
            total,
        )

    def unsorted(self, values: Array) -> list[float]:
        """Return values of the pairs in the order of the caller's list."""
        by_pair = np.empty(len(values))
        by_pair[self.order] = values
        return by_pair.tolist()

    def count_extreme(self, sums: Array) -> NDArray[np.int64]:
        """Count flips that are as extreme as the sample, per pair and per family: (2, P).

        Args:
            sums: of the flipped scores of each system, (S, flips).
        """
        counts = np.zeros((2, len(self.first)), dtype=np.int64)
        # No pair is further apart than the extremes; where no flip can reach a pair, all are 0.
        reach = float(np.ptp(sums, axis=0).max()) * (1 + 1e-8)
        near = self.differences <= reach
        near |= self.statistics <= reach * self.weights[near].max(initial=0.0)
        largest = np.zeros(sums.shape[1])  # statistic of the pairs so far
        compared = max(1, _COMPARED // sums.shape[1])
        for pairs in np.split(np.flatnonzero(near), range(compared, near.sum(), compared)):
            if not len(pairs):
                continue
            flipped = sums[self.first[pairs]]
            flipped -= sums[self.second[pairs]]
            np.abs(flipped, out=flipped)
            counts[0, pairs] = _true(flipped >= self.differences[pairs, None])
            flipped *= self.weights[pairs, None]
            for row in flipped:  # many times as fast as `np.maximum.accumulate`
                np.maximum(largest, row, out=row)
                largest = row
            counts[1, pairs] = _true(flipped >= self.statistics[pairs, None])
        return counts


def _count_extreme(
    pairs: _OrderedPairs, flips: _SignFlips, scores: Array, scale: int
) -> NDArray[np.int64]:
    """Count the flips that are as extreme as the sample, in blocks on all cores."""
    step = min(max(_BLOCK // flips.n, _FLIPS[0]), _FLIPS[1])

    def count_block(start: int) -> NDArray[np.int64]:
        coins = flips.coins(start, min(step, flips.count - start))
        sums = 2 * _sums(coins, scores, scale) - pairs.total
        return pairs.count_extreme(np.ascontiguousarray(sums.T))

    # One thread per block: threads of a product within it would wait for each other.
    with ThreadPoolExecutor(cores()) as pool, _blas().limit(limits=1):
        counts = sum(pool.map(count_block, range(0, flips.count, step)))
    return np.asarray(counts)


def _differing(
    scores: Array, scale: int, first: NDArray[np.intp], second: NDArray[np.intp], *, most: int
) -> NDArray[np.intp]:
    """Count the queries on which each pair of systems differs, up to rounding.

    Counts above ``most`` may be too small, but are above it.
    """
    counts = np.zeros(len(first), dtype=np.intp)
    open_pairs = np.arange(len(first))
    for part in _parts(scores, scale, rows=_COUNTED_PAIRS):
        for start in range(0, len(open_pairs), _COUNTED_PAIRS):
            pairs = open_pairs[start : start + _COUNTED_PAIRS]
            differences = part[:, first[pairs]] - part[:, second[pairs]]
            counts[pairs] += np.count_nonzero(np.abs(differences) > _ROUNDED, axis=0)
        open_pairs = open_pairs[counts[open_pairs] <= most]
        if not len(open_pairs):
            break
    return counts


@cache
def _blas() -> Any:
    """Return the controller of the threads of numpy's library of linear algebra."""
    return ThreadpoolController().select(user_api="blas")


def _distances(
    scores: Array, scale: int, first: NDArray[np.intp], second: NDArray[np.intp]
) -> Array:
    """Return the Euclidean distance of each pair of columns of fixed-point scores (n, S)."""
    products = np.zeros((scores.shape[1], scores.shape[1]))
    for part in _parts(scores, scale, rows=scores.shape[1]):
        part -= part.mean(axis=1, keepdims=True)
        products += part.T @ part
    lengths = np.diag(products)[first] + np.diag(products)[second]
    squares = lengths - 2 * products[first, second]
    for pair in np.flatnonzero(squares < _ALIKE * lengths):  # where digits cancel
        apart = np.diff(_fixed_point(scores[:, [first[pair], second[pair]]], scale))
        squares[pair] = np.vdot(apart, apart)
    return np.sqrt(squares)


def _true(rows: NDArray[np.bool_]) -> list[int]:
    """Count the true values of each row, several times as fast as along an axis."""
    return [int(np.count_nonzero(row)) for row in rows]


def percentile_interval(means: Array, *, level: float) -> Interval:
    """Percentile interval of resampled means (R,)."""
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def _scale(scores: Array, largest: float = 0.0) -> int:
    """Return the exponent of the unit of fixed-point scores, in which sums are exact."""
    n = len(scores)
    largest = max(largest, float(scores.max(initial=0.0)), -float(scores.min(initial=0.0)))
    # n scores of at most 2^e / n each sum to less than 2^53 units.
    exponent = int(np.frexp(n * largest)[1]) if largest else 0
    return min(51 - exponent, 1000)


def _fixed_point(scores: Array, scale: int) -> Array:
    """Scores as integer multiples of 2^-scale."""
    exact: Array = np.ldexp(scores, scale)
    return np.rint(exact, out=exact)


def _parts(scores: Array, scale: int, *, rows: int) -> Iterator[Array]:
    """Yield fixed-point scores by multiples of 8 queries, of which ``rows`` counts are a block."""
    step = 8 * max(1, _BLOCK // (8 * rows))
    for start in range(0, len(scores), step):
        yield _fixed_point(scores[start : start + step], scale)


def _coins(seed: Seed, start: int, count: int, n: int) -> NDArray[np.uint8]:
    """Fair coins from the ``start``-th draw of a seed: packed bits (count, n / 8).

    A draw takes whole 64-bit words at a fixed position in the stream of the seed, independent of
    size and order of the blocks.
    """
    words = -(-n // 64)
    generator = np.random.PCG64(seed)
    generator.advance(start * words)
    raw = np.asarray(generator.random_raw(count * words), dtype="<u8")
    return raw.view(np.uint8).reshape(count, words * 8)


def _every_flip(start: int, count: int, n: int) -> NDArray[np.uint8]:
    """The sign flips of n ≤ 32 queries from the ``start``-th on: packed bits (count, 4)."""
    numbers = np.arange(start, start + count, dtype=np.uint64) << np.uint64(_MOST_BITS - n)
    return numbers.astype(">u4").view(np.uint8).reshape(count, 4)


def _sums(coins: NDArray[np.uint8], scores: Array, scale: int) -> Array:
    """Sums of the fixed-point scores whose coin is 1: (count, S), exact in any order."""
    sums, start = np.zeros((len(coins), scores.shape[1])), 0
    for part in _parts(scores, scale, rows=max(len(coins), scores.shape[1])):
        ones = np.unpackbits(coins[:, start // 8 :], axis=1, count=len(part))
        sums += ones.astype(np.float64) @ part
        start += len(part)
    return sums


def cluster_values(
    values: Array, cluster: ArrayLike | None, *, centred: bool = True, level: float = LEVEL
) -> Array:
    """Return one value per cluster (…, G), by name, with the same mean as the ``values`` (…, n).

    This is ``(G / n) sum(v − mean) + mean`` over a cluster; if not ``centred``, ``(G / n) sum(v)``:
    for sign flips, which change the sign of the sum of a cluster. For clusters of one query each,
    the values are the same; without clusters, they are returned unchanged.

    If one cluster holds more than an eighth of the queries, deviations from the mean are enlarged
    so that Student's interval of the values at this ``level`` is as long as that of Bell and
    McCaffrey (`large_cluster_error`). Sums of values are then not values of sums.

    Raises:
        ValueError: not one cluster per query.
    """
    if cluster is None:
        return values
    names, n = np.asarray(cluster), values.shape[-1]
    if names.shape != (n,):
        raise ValueError(f"expected a cluster for each of {n} queries; got shape {names.shape}")
    order = np.argsort(names, kind="stable")
    starts, sizes = np.unique(names[order], return_index=True, return_counts=True)[1:]
    mean = values.mean(axis=-1, keepdims=True) if centred else np.zeros(1)
    sums = np.add.reduceat((values - mean)[..., order], starts, axis=-1)
    deviations = sums * (len(starts) / n)
    if centred and has_large_cluster(sizes):
        deviations = deviations * _enlarged(deviations, sizes, level=level)
    return np.asarray(deviations + mean)


def has_large_cluster(sizes: NDArray[np.intp]) -> bool:
    """Whether one of several clusters of different sizes holds over an eighth of the queries."""
    return len(sizes) > 1 and sizes.max() > sizes.min() and sizes.max() > _LARGE * sizes.sum()


def _enlarged(deviations: Array, sizes: NDArray[np.intp], *, level: float) -> Array:
    """The factor (…, 1) by which deviations of clusters (…, G) are enlarged, at least 1."""
    count = len(sizes)
    error, freedom = large_cluster_error(deviations, sizes)
    usual = np.sqrt((deviations**2).sum(axis=-1) / (count * (count - 1)))
    quantile = (1 + level) / 2
    longer = error * stdtrit(freedom, quantile)
    shorter = usual * stdtrit(count - 1, quantile)
    ratio = np.divide(longer, shorter, out=np.ones_like(usual), where=shorter > 0)
    return np.asarray(np.maximum(1.0, ratio)[..., None])


def large_cluster_error(deviations: Array, sizes: NDArray[np.intp]) -> tuple[Array, float]:
    """Standard error (…,) of a mean by CR2, and its degrees of freedom.

    With h the share of the queries in a cluster, the square of its deviation (…, G), as of
    `cluster_values`, is divided by 1 − h; degrees of freedom are Satterthwaite's for independent
    queries (Bell and McCaffrey 2002). For clusters of equal size, it is the usual one, and G − 1.
    """
    n, count = sizes.sum(), len(sizes)
    weights = 1 / (1 - sizes / n)
    error = np.sqrt((deviations**2 * weights).sum(axis=-1)) / count
    squares = sizes.astype(np.float64) ** 2
    products = (weights @ squares) ** 2 - weights**2 @ squares**2
    return error, float(n**2 / (squares.sum() + products / n**2))
