"""Aggregate per-query values into one number with a confidence interval.

A record stores each aggregate with the names of its columns, from which `qwen3nb verify`
recomputes it.

Intervals are over queries (for STS: over pairs; for clustering: over the repeated draws); their
methods are in `qwen3nb.metrics.intervals`. The value of a task with several splits or subsets is
the mean over these parts, as in MTEB, and its interval combines theirs. Records written before
those methods have the percentile interval of a bootstrap (Efron and Tibshirani 1993, chapter 13),
which resamples within each part, and from which they are verified.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qwen3nb.metrics.intervals import (
    Array,
    Interval,
    correlation_interval,
    f1_interval,
    mean_interval,
    mean_of_intervals,
    wilson_interval,
)
from qwen3nb.utils.choices import one_of

__all__ = [
    "AGGREGATES",
    "PERCENTILE",
    "REPORTED",
    "RESAMPLES",
    "Aggregate",
    "Draws",
    "aggregate",
    "aggregate_samples",
    "reported",
    "sample_of",
]

RESAMPLES = 2000  # of a percentile interval
PERCENTILE = "percentile"  # the method of records that do not name one
# Columns whose values are draws of k-means, not queries.
DRAWN = {"v_measure", "V-measure", "ARI", "NMI", "homogeneity", "completeness"}
REPORTED = "reported"  # a value from another program, without per-query values
LEVEL = 0.95
_BLOCK = 4_000_000  # values resampled at once; limits the memory
_KEPT = 1 << 24  # positions that `Draws` keeps: 134 MB; 2,000 resamples of 8,388 queries

_Picks = NDArray[np.int64]


def _mean(values: Array) -> Array:
    """Mean of the first column of (R, n, 1): (R,)."""
    result: Array = values[..., 0].mean(axis=-1)
    return result


def _pearson(values: Array) -> Array:
    """Pearson correlation of the two columns of (R, n, 2): (R,); NaN where one is constant."""
    centred = values - values.mean(axis=-2, keepdims=True)
    covariance = (centred[..., 0] * centred[..., 1]).sum(axis=-1)
    spread = np.sqrt((centred**2).sum(axis=-2))
    with np.errstate(invalid="ignore", divide="ignore"):
        result: Array = covariance / (spread[..., 0] * spread[..., 1])
    # Centring a constant column leaves rounding errors, whose correlation is noise.
    constant = (np.ptp(values, axis=-2) == 0).any(axis=-1)
    return np.where(constant, np.nan, result)


def _spearman(values: Array) -> Array:
    """Pearson correlation of the ranks."""
    from scipy.stats import rankdata

    return _pearson(rankdata(values, axis=-2))


def _macro_f1(values: Array) -> Array:
    """Mean F1 over classes of (R, n, 2), true and predicted class numbers: (R,).

    As in scikit-learn, a class counts if it is true or predicted at least once.
    """
    truth, predicted = values[..., 0], values[..., 1]
    total, present = np.zeros(len(values)), np.zeros(len(values))
    for label in np.unique(values):
        actual, assigned = truth == label, predicted == label
        size = actual.sum(axis=-1) + assigned.sum(axis=-1)
        total += 2 * (actual & assigned).sum(axis=-1) / np.maximum(size, 1)
        present += size > 0
    result: Array = total / present
    return result


AGGREGATES: dict[str, Callable[[Array], Array]] = {
    "macro_f1": _macro_f1,
    "mean": _mean,
    "pearson": _pearson,
    "spearman": _spearman,
}


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of per-query values.

    Attributes:
        value: the value, or None if it is undefined.
        low: lower end of the 95 % interval, or None.
        high: upper end, or None.
        n: number of queries (pairs, draws).
        how: name in `AGGREGATES`, or ``reported``.
        columns: names of the per-query columns.
        undefined: why there is no value, or empty.
        parts: the beginning of the query ids of each part of which the value is the mean; empty
            if all queries are one sample.
        interval: the interval's method, a key of `qwen3nb.metrics.intervals.INTERVALS`; empty
            without an interval.
    """

    value: float | None
    low: float | None
    high: float | None
    n: int
    how: str
    columns: tuple[str, ...]
    undefined: str = ""
    parts: tuple[str, ...] = ()
    interval: str = PERCENTILE


def reported(value: float, *, n: int) -> Aggregate:
    """Return a value from another program; without per-query values it has no interval.

    Raises:
        ValueError: the value is not finite.
    """
    if not math.isfinite(value):
        raise ValueError(f"expected a finite value; got {value}")
    return Aggregate(float(value), None, None, n, REPORTED, (), interval="")


def aggregate(
    per_query: Mapping[str, Mapping[str, float]],
    *,
    how: str,
    columns: Sequence[str],
    seed: int,
    percentile: bool = False,
    resamples: int = RESAMPLES,
    parts: Sequence[str] = (),
) -> Aggregate:
    """Aggregate columns of ``per_query`` (value per column and query id).

    Queries are sorted by id, so the same values always give the same interval.

    Args:
        per_query: value per column and query id.
        how: name in `AGGREGATES`.
        columns: the columns to aggregate.
        seed: of the bootstrap of a percentile interval; the other methods draw nothing.
        percentile: whether to compute the percentile interval of older records.
        resamples: number of draws of a percentile interval.
        parts: the beginnings of query ids, such as ``test/en/``; the value is the mean of the
            aggregates of these parts, and the interval combines theirs.

    Raises:
        ValueError: unknown ``how``, columns that do not cover the same queries, or a
            value that is not finite.
    """
    one_of("aggregate", how, AGGREGATES)
    samples = [sample_of(per_query, columns, part) for part in parts or ("",)]
    return aggregate_samples(
        samples, how=how, columns=columns, seed=seed, percentile=percentile,
        resamples=resamples, parts=parts,
    )  # fmt: skip


def aggregate_samples(
    samples: Sequence[Array],
    *,
    how: str,
    columns: Sequence[str],
    seed: int,
    percentile: bool = False,
    wilson: bool = False,
    resamples: int = RESAMPLES,
    parts: Sequence[str] = (),
    draws: Draws | None = None,
) -> Aggregate:
    """Aggregate a sample (n, columns) per part, or one; see `aggregate`.

    Args:
        samples: the values, finite and sorted by query id.
        how: name in `AGGREGATES`.
        columns: names of the columns.
        seed: of the bootstrap of a percentile interval.
        percentile: whether to compute the percentile interval of older records.
        wilson: whether to compute Wilson's interval of scores, of other older records.
        resamples: number of draws of a percentile interval.
        parts: the parts that the samples are of, if there are several.
        draws: where several percentile intervals share what they draw.
    """
    n = sum(map(len, samples))
    empty = Aggregate(None, None, None, n, how, tuple(columns), "", tuple(parts), "")
    if not all(map(len, samples)):
        return replace(empty, undefined="no queries")
    value = float(np.mean([AGGREGATES[how](sample[None])[0] for sample in samples]))
    if math.isnan(value):
        return replace(empty, undefined="one of the columns is constant")
    if percentile:
        ends = _percentile(
            samples, AGGREGATES[how], seed=seed, resamples=resamples, draws=draws or Draws()
        )
        method = PERCENTILE
    else:
        method, ends = _interval(samples, how, columns, wilson=wilson)
    low, high = ends or (None, None)
    return replace(empty, value=value, low=low, high=high, interval=method if ends else "")


def sample_of(
    per_query: Mapping[str, Mapping[str, float]], columns: Sequence[str], part: str
) -> Array:
    """Return the values (n, columns) of the queries whose id begins with ``part``, sorted by id.

    Raises:
        ValueError: columns that do not cover the same queries, or a value that is not finite.
    """
    queries = sorted(query for query in per_query[columns[0]] if query.startswith(part))
    for column in columns[1:]:
        if sorted(query for query in per_query[column] if query.startswith(part)) != queries:
            raise ValueError(f"columns {columns[0]!r} and {column!r} cover different queries")
    values = np.array([[per_query[column][query] for column in columns] for query in queries])
    if not np.isfinite(values).all():
        query = queries[int(np.argwhere(~np.isfinite(values))[0, 0])]
        raise ValueError(f"query {query!r} has a value that is not finite")
    return values


def _interval(
    samples: Sequence[Array], how: str, columns: Sequence[str], *, wilson: bool
) -> tuple[str, Interval | None]:
    """Method and ends of the interval of the mean of aggregates of samples (n, columns)."""
    outcomes = [_sample_interval(each, how, columns, wilson=wilson) for each in samples]
    method = max(name for name, _ in outcomes)
    ends = [each for _, each in outcomes if each is not None]
    if len(ends) < len(samples):
        return method, None
    values = [float(AGGREGATES[how](each[None])[0]) for each in samples]
    return method, mean_of_intervals(values, ends)


def _sample_interval(
    values: Array, how: str, columns: Sequence[str], *, wilson: bool
) -> tuple[str, Interval | None]:
    if how == "mean":
        if wilson:
            return "wilson", wilson_interval(values[:, 0], level=LEVEL)
        return mean_interval(values[:, 0], level=LEVEL, drawn=columns[0] in DRAWN)
    first, second = values.T
    if how == "macro_f1":
        return "wilson", f1_interval(first, second, level=LEVEL)
    return "fisher", correlation_interval(first, second, how=how, level=LEVEL)


class Draws:
    """The positions of the values in each resample, which samples of equal sizes share.

    They are drawn once for all columns of a record, and for the next record of as many queries,
    unless they are too many to keep.
    """

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._kept: tuple[tuple[int, _Picks], ...] = ()

    def of(
        self, sizes: tuple[int, ...], *, width: int, seed: int, resamples: int
    ) -> Iterable[tuple[int, _Picks]]:
        """Return blocks (resamples, size) of positions, each with the number of its sample.

        Args:
            sizes: number of queries of each sample.
            width: number of columns, on which the blocks' size depends.
            seed: of the generator.
            resamples: number of resamples of each sample.
        """
        key = (sizes, width, seed, resamples)
        if key == self._key:
            return self._kept
        drawn = _drawn(sizes, width=width, seed=seed, resamples=resamples)
        if sum(sizes) * resamples > _KEPT:
            return drawn
        self._key, self._kept = (), ()  # free them before the next are drawn
        self._kept = tuple(drawn)
        self._key = key
        return self._kept


def _drawn(
    sizes: tuple[int, ...], *, width: int, seed: int, resamples: int
) -> Iterator[tuple[int, _Picks]]:
    generator = np.random.default_rng(seed)
    for number, n in enumerate(sizes):
        step = max(1, _BLOCK // (n * width))
        for start in range(0, resamples, step):
            yield number, generator.integers(0, n, size=(min(step, resamples - start), n))


def _percentile(
    samples: Sequence[Array],
    statistic: Callable[[Array], Array],
    *,
    seed: int,
    resamples: int,
    draws: Draws,
) -> Interval | None:
    """Ends of the percentile interval; None if a sample is a single query."""
    if min(map(len, samples)) < 2:
        return None
    outcomes: list[list[Array]] = [[] for _ in samples]
    sizes, width = tuple(map(len, samples)), samples[0].shape[1]
    for number, picks in draws.of(sizes, width=width, seed=seed, resamples=resamples):
        outcomes[number].append(statistic(_picked(samples[number], picks)))
    drawn = np.mean([np.concatenate(each) for each in outcomes], axis=0)
    drawn = drawn[np.isfinite(drawn)]  # a resample may hold one value only
    if len(drawn) == 0:
        return None
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail])
    return float(low), float(high)


def _picked(values: Array, picks: _Picks) -> Array:
    """Return the values (n, columns) at positions (resamples, n): (resamples, n, columns)."""
    if values.shape[1] == 1:  # twice as fast as rows of one
        return values[:, 0][picks][..., None]
    return values[picks]
