"""Aggregate per-query values into one number with a confidence interval.

A record stores each aggregate with the names of its columns, from which `qwen3nb verify`
recomputes it.

Intervals are over queries (for STS: over pairs; for clustering: over the repeated draws); their
methods are in `qwen3nb.metrics.intervals`. The value of a task with several splits or subsets is
the mean over these parts, as in MTEB, and its interval combines theirs. If the parts have the same
queries, such as the same sentences in several languages, and their values correlate, they are not
independent, and the correlations count.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import scipy  # loads scipy.stats on first use, which takes a second
from pydantic import ConfigDict

from qwen3nb.metrics import intervals
from qwen3nb.metrics.intervals import INTERVALS, Array, Interval
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.schema import Count, Names, Number, Text, choice

# Columns whose values are draws of k-means, not queries.
DRAWN = {"v_measure", "V-measure", "ARI", "NMI", "homogeneity", "completeness"}
REPORTED = "reported"  # a value from another program, without per-query values
LEVEL = 0.95
PARALLEL = "parallel"  # the method of intervals over parts with the same queries
_FEWEST_PARALLEL = 10  # queries
_CORRELATED = 3.0  # standard errors above which correlations of parts are not by chance


def _pearson(values: Array) -> Array:
    """Pearson correlation of the two columns of (R, n, 2): (R,); NaN where one is constant."""
    centred = values - values.mean(axis=-2, keepdims=True)
    covariance = (centred[..., 0] * centred[..., 1]).sum(axis=-1)
    spread = np.sqrt((centred**2).sum(axis=-2))
    with np.errstate(invalid="ignore", divide="ignore"):
        result = covariance / (spread[..., 0] * spread[..., 1])
    # Centring a constant column leaves rounding errors, whose correlation is noise.
    constant = (np.ptp(values, axis=-2) == 0).any(axis=-1)
    return np.where(constant, np.nan, result)


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
    return np.asarray(total / present)


AGGREGATES: dict[str, Callable[[Array], Array]] = {
    "macro_f1": _macro_f1,
    "mean": lambda values: values[..., 0].mean(axis=-1),
    "pearson": _pearson,
    "spearman": lambda values: _pearson(scipy.stats.rankdata(values, axis=-2)),
}


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of per-query values."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    value: Number | None  # the value, or None if it is undefined
    low: Number | None  # lower end of the 95 % interval, or None
    high: Number | None  # upper end, or None
    n: Count  # number of queries (pairs, draws)
    how: Annotated[str, choice(*AGGREGATES, REPORTED)]  # name in `AGGREGATES`, or ``reported``
    columns: Names  # names of the per-query columns
    undefined: Text = ""  # why there is no value, or empty
    # prefixes of query ids, one per part; the value is the mean over the parts; empty for a single
    # sample
    parts: tuple[Text, ...] = ()
    # the interval's method, a key of `qwen3nb.metrics.intervals.INTERVALS`; empty without an
    # interval
    interval: Annotated[str, choice("", *INTERVALS)] = ""

    def __float__(self) -> float:
        """Return the value, so that an aggregate compares with a number, and prints as one.

        >>> score = reported(0.8132, n=5)
        >>> score > 0.75, score <= 0.75, f"{score:.2f}"
        (True, False, '0.81')

        Raises:
            ValueError: it is undefined.
        """
        if self.value is None:
            raise ValueError(f"expected a score; it is undefined ({self.undefined})")
        return float(self.value)

    def __lt__(self, other: float) -> bool:
        return float(self) < float(other)

    def __le__(self, other: float) -> bool:
        return float(self) <= float(other)

    def __gt__(self, other: float) -> bool:
        return float(self) > float(other)

    def __ge__(self, other: float) -> bool:
        return float(self) >= float(other)

    def __format__(self, how: str) -> str:
        return format(float(self), how) if how else str(self)


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
    parts: Sequence[str] = (),
) -> Aggregate:
    """Aggregate columns of ``per_query`` (value per column and query id) as in `AGGREGATES`.

    Queries are sorted by id, so the same values always give the same interval. With ``parts``,
    prefixes of query ids such as ``test/en/``, the value is the mean of the aggregates of the
    parts, and the interval combines theirs.

    Raises:
        ValueError: unknown ``how``, columns that do not cover the same queries, or a
            value that is not finite.
    """
    samples = [sample_of(per_query, columns, part) for part in parts or ("",)]
    found = aggregate_samples(samples, how=how, columns=columns, parts=parts)
    if found.interval != "widened" or not _parallel(per_query[columns[0]], parts, samples):
        return found
    return aggregate_samples(samples, how=how, columns=columns, parts=parts, parallel=True)


def _parallel(queries: Iterable[str], parts: Sequence[str], samples: Sequence[Array]) -> bool:
    """Whether parts have the same queries, and their values correlate more than by chance."""
    if len(parts) < 2 or len({len(sample) for sample in samples}) > 1:
        return False
    names = [sorted(q.removeprefix(part) for q in queries if q.startswith(part)) for part in parts]
    if any(each != names[0] for each in names):
        return False
    correlations = _correlations(samples)
    n, pairs = len(samples[0]), len(parts) * (len(parts) - 1) / 2
    # The mean correlation of independent parts has this standard error.
    mean = (correlations.sum() - len(parts)) / (2 * pairs)
    return bool(n >= _FEWEST_PARALLEL and mean > _CORRELATED / math.sqrt(n * pairs))


def _correlations(samples: Sequence[Array]) -> Array:
    """Correlations (parts, parts) of the values of parts with the same queries; 0 if constant."""
    values = np.array([sample[:, 0] for sample in samples])
    varied = np.ptp(values, axis=1) > 0
    correlations = np.eye(len(values))
    if varied.sum() > 1:
        correlations[np.ix_(varied, varied)] = np.corrcoef(values[varied])
    return correlations


def numbered(values: Iterable[float], *, digits: int = 5) -> dict[str, float]:
    """Return a column with positions as ids, such as ``00042``."""
    return {f"{index:0{digits}d}": float(value) for index, value in enumerate(values)}


def means(per_query: Mapping[str, Mapping[str, float]]) -> dict[str, Aggregate]:
    """Mean of each column, with its confidence interval."""
    return {name: aggregate(per_query, how="mean", columns=(name,)) for name in per_query}


def aggregate_samples(
    samples: Sequence[Array],
    *,
    how: str,
    columns: Sequence[str],
    parts: Sequence[str] = (),
    parallel: bool = False,
) -> Aggregate:
    """Aggregate a sample (n, columns) per part, or one: finite values, sorted by query id.

    ``parallel``: whether the parts have the same queries, and are not independent.

    Raises:
        ValueError: unknown ``how``; lists the choices.
    """
    statistic = AGGREGATES[one_of("aggregate", how, AGGREGATES)]
    n = sum(map(len, samples))
    empty = Aggregate(None, None, None, n, how, tuple(columns), "", tuple(parts), "")
    if not all(map(len, samples)):
        return replace(empty, undefined="no queries")
    values = [float(statistic(sample[None])[0]) for sample in samples]
    value = float(np.mean(values))
    if math.isnan(value):
        return replace(empty, undefined="one of the columns is constant")
    found = [_interval(each, how, columns) for each in samples]
    ends = [each for _, each in found if each is not None]
    if len(ends) < len(samples):
        return replace(empty, value=value)
    correlations = _correlations(samples) if parallel else None
    low, high = intervals.mean_of_intervals(values, ends, correlations=correlations)
    method = PARALLEL if parallel else max(name for name, _ in found)
    return replace(empty, value=value, low=low, high=high, interval=method)


def sample_of(
    per_query: Mapping[str, Mapping[str, float]], columns: Sequence[str], part: str
) -> Array:
    """Return the values (n, columns) of the queries whose id begins with ``part``, sorted by id.

    Raises:
        ValueError: columns that do not cover the same queries, or a value that is not finite.
    """
    scores = [per_query[column] for column in columns]  # built anew on each access
    queries = sorted(query for query in scores[0] if query.startswith(part))
    for column, others in zip(columns[1:], scores[1:], strict=True):
        if sorted(query for query in others if query.startswith(part)) != queries:
            raise ValueError(f"columns {columns[0]!r} and {column!r} cover different queries")
    values = np.array([[each[query] for each in scores] for query in queries])
    if not np.isfinite(values).all():
        query = queries[int(np.argwhere(~np.isfinite(values))[0, 0])]
        raise ValueError(f"query {query!r} has a value that is not finite")
    return values


def _interval(values: Array, how: str, columns: Sequence[str]) -> tuple[str, Interval | None]:
    """Method and ends of the interval of a sample (n, columns)."""
    if how == "mean":
        return intervals.mean_interval(values[:, 0], level=LEVEL, drawn=columns[0] in DRAWN)
    first, second = values.T
    if how == "macro_f1":
        return "wilson", intervals.f1_interval(first, second, level=LEVEL)
    return "fisher", intervals.correlation_interval(first, second, how=how, level=LEVEL)
