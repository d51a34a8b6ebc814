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
from typing import Any, NamedTuple

import numpy as np
import scipy  # loads scipy.special on first use
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import ThreadpoolController

from qwen3nb.analysis.stats.extreme_flips import PairThresholds, count_extreme
from qwen3nb.analysis.stats.weighted_scores import ScoreRows, WeightedScores
from qwen3nb.metrics.intervals import Array, Interval
from qwen3nb.utils.hardware import cores

Seed = int | Sequence[int]
Scores = ScoreRows | WeightedScores  # (n, S)

DRAWS = 10_000  # resamples of a bootstrap, sign flips of a permutation test
LEVEL = 0.95  # of intervals

_BLOCK = 2_000_000  # counts held at once: 16 MB
_MOST_FLIPS = 2048  # in a block
_MOST_INT16 = 1 << 16
_BITS_OF_SUMS = 51  # of the 53 of a float64: sums and their differences are exact
_MOST_FRACTION_BITS = 1000  # so that the smallest scores do not overflow
# Share of the lengths of two columns below which their distance is not from products.
_CANCELLING = 1e-4
_MOST_BITS = 32  # of a number that is a sign flip of all queries
_ROUNDING_UNITS = 2.0  # by which fixed-point scores that are equal may differ
_COUNTED_PAIRS = 1 << 14  # pairs whose differing queries are counted at once
_LARGE_SHARE = 1 / 8  # of the queries in one cluster


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
    n, systems = scores.shape
    fraction_bits = _fraction_bits(ScoreRows(scores))
    exact_scores = _fixed_point(scores, fraction_bits)  # whole numbers, whose sums are exact
    generator = np.random.default_rng(seed)
    sums = np.empty((n_resamples, systems))
    resamples_at_once = max(1, _BLOCK // n)
    for start in range(0, n_resamples, resamples_at_once):
        block = sums[start : start + resamples_at_once]
        counts = _draw_counts(generator, len(block), n)
        block[:] = counts @ exact_scores  # (resamples, n) by (n, S)
    sample_means = _from_fixed_point(exact_scores.sum(axis=0), fraction_bits) / n
    means = _from_fixed_point(sums, fraction_bits) / n
    return sample_means, means


def _draw_counts(generator: np.random.Generator, resamples: int, n: int) -> Array:
    """Return how often each of n queries is drawn: (resamples, n)."""
    dtype = np.uint16 if n <= _MOST_INT16 else np.int64  # 16 bits are a third faster to draw
    counts = np.empty((resamples, n))
    for row in counts:
        drawn_queries = generator.integers(0, n, n, dtype=dtype)
        row[:] = np.bincount(drawn_queries, minlength=n)
    return counts


def max_t_p_values(
    scores: Array | WeightedScores,
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
        scores: (n, S), or those of several tasks.
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
    rows = scores if isinstance(scores, WeightedScores) else ScoreRows(scores)
    queries, _ = rows.shape
    flips = _SignFlips.of(queries, n_resamples, seed)
    fraction_bits = _fraction_bits(rows, largest)
    ordered_pairs = _OrderedPairs.of(rows, fraction_bits, np.array(pairs, dtype=np.intp))
    counts = _count_extreme(ordered_pairs, flips, rows, fraction_bits)
    if flips.is_complete:
        p_values = counts / flips.count
    else:
        smallest = _smallest_p_values(ordered_pairs, rows, fraction_bits, flips.count)
        # The sample itself is one more flip, so that no p-value is 0 (Phipson and Smyth 2010).
        with_sample = (counts + 1) / (flips.count + 1)
        p_values = np.maximum(with_sample, smallest)  # (2, pairs)
    raw_p_values, adjusted_p_values = p_values
    # No adjusted p-value is below that of a more significant pair, which comes later.
    from_most_significant = adjusted_p_values[::-1]
    np.maximum.accumulate(from_most_significant, out=from_most_significant)
    return ordered_pairs.unsorted(raw_p_values), ordered_pairs.unsorted(adjusted_p_values)


class FlippedDifferences(NamedTuple):
    """The mean differences of two systems with signs flipped at random: arrays (R,)."""

    means: Array  # of the first minus the second
    is_extreme: NDArray[np.bool_]  # whether it is as far from 0 as that of the sample


def flipped_differences(
    scores: Array, *, n_resamples: int, seed: Seed, largest: float = 0.0
) -> FlippedDifferences:
    """Return what `max_t_p_values` counts for two systems, with scores (n, 2): a value per flip.

    The arguments are those of `max_t_p_values`, and so are the flips.
    """
    rows = ScoreRows(scores)
    flips = _SignFlips.of(len(scores), n_resamples, seed)
    fraction_bits = _fraction_bits(rows, largest)
    pair = _OrderedPairs.of(rows, fraction_bits, np.array([(0, 1)], dtype=np.intp))
    sums = np.empty(flips.count)
    for start in range(0, flips.count, _MOST_FLIPS):
        count = min(_MOST_FLIPS, flips.count - start)
        stays = flips.coins(start, count)
        # The sum with flipped signs is that of the scores that stay, less that of the others.
        flipped_sums = 2 * _sums(stays, rows, fraction_bits) - pair.total
        sums[start : start + count] = flipped_sums[:, 0] - flipped_sums[:, 1]
    is_extreme = np.abs(sums) >= pair.differences[0]
    means = _from_fixed_point(sums, fraction_bits) / len(scores)
    return FlippedDifferences(means, is_extreme)


def _smallest_p_values(
    pairs: _OrderedPairs, scores: Scores, fraction_bits: int, flips: int
) -> Array:
    """Return the smallest p-value that each pair can have: 2 / 2^m, if it differs on m queries."""
    sufficient_count = flips.bit_length() + 1  # of more queries, the smallest is below 1 / flips
    differing_counts = _count_differing(
        scores, fraction_bits, pairs.first, pairs.second, enough=sufficient_count
    )
    return np.minimum(1.0, np.ldexp(2.0, -differing_counts))


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
        if n <= _MOST_BITS and 2**n <= n_resamples:
            return cls(n, count=2**n, is_complete=True, seed=seed)
        return cls(n, count=n_resamples, is_complete=False, seed=seed)

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
    def of(cls, scores: Scores, fraction_bits: int, pairs: NDArray[np.intp]) -> _OrderedPairs:
        """Order the pairs (P, 2) of columns by their statistics."""
        n, _ = scores.shape
        first_columns, second_columns = pairs.T  # of scores
        every_query = np.full((1, n // 8 + 1), 255, np.uint8)  # packed bits, all 1
        (total,) = _sums(every_query, scores, fraction_bits)
        # Each of 2n scores was rounded by up to half a unit, on both sides.
        most_rounding = 2.0 * n
        differences = np.abs(total[first_columns] - total[second_columns]) - most_rounding
        distances = _distances(scores, fraction_bits, first_columns, second_columns)
        # The statistic is the difference over the root of its sum of squares; 0 if it has none.
        weights = np.divide(1.0, distances, out=np.zeros(len(distances)), where=distances > 0)
        statistics = differences * weights
        order = np.argsort(statistics, kind="stable")
        return cls(
            order=order,
            first=first_columns[order],
            second=second_columns[order],
            differences=differences[order],
            weights=weights[order],
            # A little less, so that a flip with the same statistic reaches it despite rounding.
            statistics=statistics[order] * (1 - 1e-9),
            total=total,
        )

    def unsorted(self, values: Array) -> list[float]:
        """Return values of the pairs in the order of the caller's list."""
        by_pair = np.empty(len(values))
        by_pair[self.order] = values
        return by_pair.tolist()


def _count_extreme(
    pairs: _OrderedPairs, flips: _SignFlips, scores: Scores, fraction_bits: int
) -> NDArray[np.int64]:
    """Count the flips that are as extreme as the sample, in blocks on all cores."""
    # The most significant pair is last.
    tested_pairs = PairThresholds(
        pairs.first, pairs.second, pairs.differences, pairs.weights, pairs.statistics
    )

    def count_block(start: int) -> NDArray[np.int64]:
        count = min(_MOST_FLIPS, flips.count - start)
        stays = flips.coins(start, count)
        # The sum with flipped signs is that of the scores that stay, less that of the others.
        flipped_sums = 2 * _sums(stays, scores, fraction_bits) - pairs.total
        # One row per system, contiguous, because pairs subtract whole rows.
        counts = count_extreme(tested_pairs, np.ascontiguousarray(flipped_sums.T))
        return np.stack(counts)

    starts = range(0, flips.count, _MOST_FLIPS)
    # One thread per block: threads of a product within it would wait for each other.
    with ThreadPoolExecutor(cores()) as pool, _blas().limit(limits=1):
        counts = sum(pool.map(count_block, starts))
    return np.asarray(counts)


def _count_differing(
    scores: Scores,
    fraction_bits: int,
    first: NDArray[np.intp],
    second: NDArray[np.intp],
    *,
    enough: int,
) -> NDArray[np.intp]:
    """Count the queries on which each pair of systems differs, up to rounding.

    Counts above ``enough`` may be too small, but are above it.
    """
    counts = np.zeros(len(first), dtype=np.intp)  # by pair
    pairs_to_count = np.arange(len(first))  # those that differ on no more than enough so far
    for score_rows in _fixed_point_blocks(scores, fraction_bits, values_per_query=_COUNTED_PAIRS):
        for start in range(0, len(pairs_to_count), _COUNTED_PAIRS):
            pairs = pairs_to_count[start : start + _COUNTED_PAIRS]
            differences = score_rows[:, first[pairs]] - score_rows[:, second[pairs]]
            is_different = np.abs(differences) > _ROUNDING_UNITS
            counts[pairs] += np.count_nonzero(is_different, axis=0)
        pairs_to_count = pairs_to_count[counts[pairs_to_count] <= enough]
        if not len(pairs_to_count):
            break
    return counts


@cache
def _blas() -> Any:
    """Return the controller of the threads of numpy's library of linear algebra."""
    return ThreadpoolController().select(user_api="blas")


def _distances(
    scores: Scores, fraction_bits: int, first: NDArray[np.intp], second: NDArray[np.intp]
) -> Array:
    """Return the Euclidean distance of each pair of columns of fixed-point scores (n, S)."""
    _, systems = scores.shape
    products = np.zeros((systems, systems))
    for score_rows in _fixed_point_blocks(scores, fraction_bits, values_per_query=systems):
        score_rows -= score_rows.mean(axis=1, keepdims=True)  # which changes no distance
        products += score_rows.T @ score_rows
    # |a - b|² = |a|² + |b|² - 2 ab
    squared_lengths = np.diag(products)
    sums_of_squares = squared_lengths[first] + squared_lengths[second]
    squared_distances = sums_of_squares - 2 * products[first, second]
    # Of nearly equal columns, the digits cancel: these are subtracted first, then squared.
    for pair in np.flatnonzero(squared_distances < _CANCELLING * sums_of_squares):
        both_columns = _fixed_point(scores.columns([first[pair], second[pair]]), fraction_bits)
        differences = np.diff(both_columns)
        squared_distances[pair] = np.vdot(differences, differences)
    return np.sqrt(squared_distances)


def percentile_interval(means: Array, *, level: float) -> Interval:
    """Percentile interval of resampled means (R,)."""
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return float(low), float(high)


def _fraction_bits(scores: Scores, largest: float = 0.0) -> int:
    """Return the exponent of the unit of fixed-point scores, in which sums are exact."""
    queries, _ = scores.shape
    lowest, highest = scores.range()
    largest_sum = queries * max(largest, highest, -lowest)
    if not largest_sum:
        return _BITS_OF_SUMS
    _, exponent = np.frexp(largest_sum)  # the sum is below 2^exponent
    return min(_BITS_OF_SUMS - int(exponent), _MOST_FRACTION_BITS)


def _fixed_point(scores: Array, fraction_bits: int) -> Array:
    """Scores as integer multiples of ``2^-fraction_bits``."""
    exact: Array = np.ldexp(scores, fraction_bits)
    return np.rint(exact, out=exact)


def _from_fixed_point(values: Array, fraction_bits: int) -> Array:
    return np.asarray(np.ldexp(values, -fraction_bits))


def _fixed_point_blocks(
    scores: Scores, fraction_bits: int, *, values_per_query: int
) -> Iterator[Array]:
    """Yield fixed-point scores by multiples of 8 queries, so many that their values fit a block."""
    step = 8 * max(1, _BLOCK // (8 * values_per_query))
    queries, _ = scores.shape
    for start in range(0, queries, step):
        yield _fixed_point(scores.rows(start, start + step), fraction_bits)


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


def _sums(coins: NDArray[np.uint8], scores: Scores, fraction_bits: int) -> Array:
    """Sums of the fixed-point scores whose coin is 1: (count, S), exact in any order."""
    _, systems = scores.shape
    sums = np.zeros((len(coins), systems))
    first_query = 0
    for score_rows in _fixed_point_blocks(
        scores, fraction_bits, values_per_query=max(len(coins), systems)
    ):
        first_byte = first_query // 8  # a byte has the coins of 8 queries
        coins_of_rows = np.unpackbits(coins[:, first_byte:], axis=1, count=len(score_rows))
        sums += coins_of_rows.astype(np.float64) @ score_rows  # (flips, rows) by (rows, S)
        first_query += len(score_rows)
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
    by_name = np.argsort(names, kind="stable")  # puts those of one cluster next to each other
    _, starts, sizes = np.unique(names[by_name], return_index=True, return_counts=True)
    means = np.zeros(1)
    if centred:
        means = values.mean(axis=-1, keepdims=True)
    deviations = (values - means)[..., by_name]
    sums = np.add.reduceat(deviations, starts, axis=-1)  # of each cluster
    clusters = len(starts)
    # The mean over clusters of sums is n / G times that over queries.
    scaled_sums = sums * (clusters / n)
    if centred and has_large_cluster(sizes):
        scaled_sums = scaled_sums * _enlargement(scaled_sums, sizes, level=level)
    return np.asarray(scaled_sums + means)


def has_large_cluster(sizes: NDArray[np.intp]) -> bool:
    """Whether one of several clusters of different sizes holds over an eighth of the queries."""
    if len(sizes) < 2 or sizes.max() == sizes.min():
        return False
    return bool(sizes.max() > _LARGE_SHARE * sizes.sum())


def _enlargement(deviations: Array, sizes: NDArray[np.intp], *, level: float) -> Array:
    """The factor (…, 1) by which deviations of clusters (…, G) are enlarged, at least 1."""
    clusters = len(sizes)
    quantile = (1 + level) / 2
    error, freedom = large_cluster_error(deviations, sizes)
    half_width = error * scipy.special.stdtrit(freedom, quantile)  # by Bell and McCaffrey
    usual_error = np.sqrt((deviations**2).sum(axis=-1) / (clusters * (clusters - 1)))
    usual_half_width = usual_error * scipy.special.stdtrit(clusters - 1, quantile)  # by Student
    ratio = np.ones_like(usual_error)  # 1 where values do not vary
    np.divide(half_width, usual_half_width, out=ratio, where=usual_half_width > 0)
    at_least_one = np.maximum(1.0, ratio)
    return np.asarray(at_least_one[..., None])


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
