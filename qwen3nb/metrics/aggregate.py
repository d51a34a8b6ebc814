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
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import scipy  # loads scipy.stats on first use, which takes a second
from pydantic import ConfigDict

from qwen3nb.metrics import intervals
from qwen3nb.metrics.intervals import INTERVALS, Array, Interval
from qwen3nb.metrics.query_scores import QueryScores, rows_of_parts
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.schema import Count, Names, Number, Text, choice

# Columns whose values are draws of k-means, not queries.
DRAWN = {"v_measure", "V-measure", "ARI", "NMI", "homogeneity", "completeness"}
REPORTED = "reported"  # a value from another program, without per-query values
LEVEL = 0.95
# The method of intervals over parts with the same queries, by that of independent parts.
PARALLEL = {"widened": "parallel", "fisher": "parallel fisher", "wilson": "parallel wilson"}
_FEWEST_PARALLEL = 10  # queries
_CORRELATED = 3.0  # standard errors above which correlations of parts are not by chance


def _pearson(values: Array) -> Array:
    """Pearson correlation of the two columns of (R, n, 2): (R,); NaN where one is constant."""
    deviations = values - values.mean(axis=-2, keepdims=True)  # (R, n, 2)
    first_deviations, second_deviations = deviations[..., 0], deviations[..., 1]
    product_sums = (first_deviations * second_deviations).sum(axis=-1)
    norms = np.sqrt((deviations**2).sum(axis=-2))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = product_sums / (norms[..., 0] * norms[..., 1])
    # Centring a constant column leaves rounding errors, whose correlation is noise.
    ranges = np.ptp(values, axis=-2)
    has_constant = (ranges == 0).any(axis=-1)
    return np.where(has_constant, np.nan, correlations)


def _macro_f1(values: Array) -> Array:
    """Mean F1 over classes of (R, n, 2), true and predicted class numbers: (R,).

    As in scikit-learn, a class counts if it is true or predicted at least once.
    """
    f1_sums = np.zeros(len(values))
    class_counts = np.zeros(len(values))
    for label in np.unique(values):
        is_label = values == label  # (R, n, 2): of the true and of the predicted class
        true_or_predicted = is_label.sum(axis=(1, 2))  # a hit counts twice
        hits = is_label.all(axis=2).sum(axis=1)
        # F1 = 2 hits / (true + predicted)
        f1_sums += 2 * hits / np.maximum(true_or_predicted, 1)
        class_counts += true_or_predicted > 0  # another class has no F1 in this sample
    return np.asarray(f1_sums / class_counts)


def _mean(values: Array) -> Array:
    """Mean of the only column of (R, n, 1): (R,)."""
    return np.asarray(values[..., 0].mean(axis=-1))


def _spearman(values: Array) -> Array:
    """Spearman correlation of the two columns of (R, n, 2): (R,)."""
    return _pearson(scipy.stats.rankdata(values, axis=-2))


AGGREGATES: dict[str, Callable[[Array], Array]] = {
    "macro_f1": _macro_f1,
    "mean": _mean,
    "pearson": _pearson,
    "spearman": _spearman,
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

    def __format__(self, form: str) -> str:
        if not form:
            return str(self)
        return format(float(self), form)


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
    scores = QueryScores.of(per_query)
    # A part is a prefix of query ids, such as ``test/en/``; the empty one is of all queries.
    samples = scores.samples(columns, parts or ("",))
    outcome = aggregate_samples(samples, how=how, columns=columns, parts=parts)
    if outcome.interval not in PARALLEL:  # no method for parts with the same queries
        return outcome
    if not _have_same_queries(scores.queries, parts, samples):
        return outcome
    if not _are_correlated(samples, how):
        return outcome
    return aggregate_samples(samples, how=how, columns=columns, parts=parts, parallel=True)


def _are_correlated(samples: Sequence[Array], how: str) -> bool:
    """Whether the values of parts with the same queries correlate more than by chance."""
    parts = len(samples)
    queries = len(samples[0])
    if queries < _FEWEST_PARALLEL:
        return False
    pairs = parts * (parts - 1) / 2
    # The matrix has the correlation of each pair twice, and that of each part with itself, 1.
    sum_over_pairs = _correlations(samples, how).sum() - parts
    mean_correlation = sum_over_pairs / (2 * pairs)
    # The standard error of a mean of m correlations of n independent values is 1 / sqrt(n m).
    error_if_independent = 1 / math.sqrt(queries * pairs)
    return bool(mean_correlation > _CORRELATED * error_if_independent)


def _have_same_queries(
    queries: tuple[str, ...], prefixes: Sequence[str], samples: Sequence[Array]
) -> bool:
    """Whether there are parts whose queries have the same ids after the part's prefix."""
    sample_sizes = {len(sample) for sample in samples}
    if len(prefixes) < 2 or len(sample_sizes) > 1:
        return False
    # With the prefixes ``test/en/`` and ``test/de/``, ``test/en/12`` is the same as ``test/de/12``.
    ids_by_prefix: dict[str, set[str]] = {}
    for prefix, rows in rows_of_parts(queries, prefixes).items():
        ids_by_prefix[prefix] = {queries[row].removeprefix(prefix) for row in rows}
    return all(ids_by_prefix[prefix] == ids_by_prefix[prefixes[0]] for prefix in prefixes)


def _influence(sample: Array, how: str) -> Array:
    """What each query of a sample (n, columns) adds to the aggregate, but for a factor."""
    if how == "mean":
        return sample[:, 0]
    if how == "macro_f1":
        return (sample[:, 0] == sample[:, 1]).astype(float)
    first_values, second_values = sample.T
    return intervals.correlation_influence(first_values, second_values, how=how)[1]


def _correlations(samples: Sequence[Array], how: str) -> Array:
    """Correlations (parts, parts) of the values of parts with the same queries; 0 if constant."""
    values = np.array([_influence(sample, how) for sample in samples])
    is_varied = np.ptp(values, axis=1) > 0
    correlations = np.eye(len(values))
    if is_varied.sum() > 1:
        correlations[np.ix_(is_varied, is_varied)] = np.corrcoef(values[is_varied])
    return correlations


def numbered(values: Iterable[float], *, digits: int = 5) -> dict[str, float]:
    """Return a column with positions as ids, such as ``00042``."""
    return {f"{index:0{digits}d}": float(value) for index, value in enumerate(values)}


def means(per_query: Mapping[str, Mapping[str, float]]) -> dict[str, Aggregate]:
    """Mean of each column, with its confidence interval."""
    scores = QueryScores.of(per_query)
    return {
        name: aggregate_samples([scores.sample((name,))], how="mean", columns=(name,))
        for name in scores
    }


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
    statistic = AGGREGATES[check_choice("aggregate", how, AGGREGATES)]
    size = sum(len(sample) for sample in samples)

    def outcome(
        value: float | None = None,
        interval: Interval | None = None,
        *,
        method: str = "",
        undefined: str = "",
    ) -> Aggregate:
        low, high = interval or (None, None)
        return Aggregate(
            value=value,
            low=low,
            high=high,
            n=size,
            how=how,
            columns=tuple(columns),
            undefined=undefined,
            parts=tuple(parts),
            interval=method,
        )

    if not all(len(sample) for sample in samples):
        return outcome(undefined="no queries")
    values = [float(statistic(sample[None])[0]) for sample in samples]
    value = float(np.mean(values))
    if math.isnan(value):
        return outcome(undefined="one of the columns is constant")
    methods: list[str] = []
    intervals_of_parts: list[Interval] = []
    for sample in samples:
        method, interval = _interval(sample, how, columns)
        if interval is None:
            return outcome(value)
        methods.append(method)
        intervals_of_parts.append(interval)
    if not parallel:
        interval = intervals.mean_of_intervals(values, intervals_of_parts)
        return outcome(value, interval, method=max(methods))
    correlations = _correlations(samples, how)
    interval = intervals.mean_of_intervals(values, intervals_of_parts, correlations=correlations)
    return outcome(value, interval, method=PARALLEL[max(methods)])


def _interval(values: Array, how: str, columns: Sequence[str]) -> tuple[str, Interval | None]:
    """Method and ends of the interval of a sample (n, columns)."""
    if how == "mean":
        return intervals.mean_interval(values[:, 0], level=LEVEL, drawn=columns[0] in DRAWN)
    first_values, second_values = values.T
    if how == "macro_f1":
        return "wilson", intervals.f1_interval(first_values, second_values, level=LEVEL)
    return "fisher", intervals.correlation_interval(
        first_values, second_values, how=how, level=LEVEL
    )
