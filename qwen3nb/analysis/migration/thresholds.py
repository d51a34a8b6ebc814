"""Thresholds of one model's similarities carried over to another model.

A program that shows a result "from 0.62 on" has to show it from another number on with another
model. Two such numbers are found: the one that keeps the number of results, and, with grades, the
lowest one that keeps the precision.

Shapes: Q queries, N documents, D dimensions, M kept scores per query, J judged pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # loads scipy.special on first use
from numpy.typing import NDArray

from qwen3nb.metrics.intervals import Interval
from qwen3nb.models.search.exact import Doubles, Floats, Ids
from qwen3nb.vectors.vector_store import VectorStore

MOST_SCORES = 20_000_000  # kept at once of each model: 80 MB
_QUERIES_AT_ONCE = 256
_BLOCK = 8192  # documents compared at once
_BISECTIONS = 40
_RESAMPLES = 1000
_MOST_CANDIDATES = 400  # thresholds whose precision is computed
_ROUNDING = 1e-6  # of similarities
_LEVEL = 0.95


@dataclass(frozen=True)
class CarriedThreshold:
    """A threshold of the old model, and those of the new model that stand for it."""

    old: float
    results: int  # pairs of a query and a document from it on, by the old model
    results_unchanged: int  # the same by the new model, if the number stays as it is
    new: float | None  # keeps the number of results; None if there are none, or too many to count
    interval: Interval | None  # 95 %, over queries; None for a single one
    left: int = 0  # pairs that the old model has from the old threshold on, the new one does not
    came: int = 0  # pairs that only the new model has from the new threshold on
    by_precision: CarriedPrecision | None = None  # None without grades


@dataclass(frozen=True)
class TopScores:
    """The highest similarities of each query."""

    scores: Floats  # (Q, M), highest first
    is_whole: bool  # whether every document is among them

    def counts(self, threshold: float) -> Ids:
        """Return how many documents of each query reach the threshold (Q,)."""
        counts: Ids = (self.scores >= threshold).sum(axis=1)
        return counts

    def is_too_low(self, threshold: float) -> bool:
        """Return whether documents that were not kept may reach the threshold."""
        if self.is_whole:
            return False
        return bool((self.scores[:, -1] >= threshold).any())


def top_scores(queries: Floats, documents: VectorStore, *, most: int = MOST_SCORES) -> TopScores:
    """Return the highest products of queries (Q, D) with documents (N, D), at most ``most``."""
    kept = min(len(documents), max(1, most // max(1, len(queries))))
    highest = np.full((len(queries), kept), -np.inf, dtype=np.float32)
    for block in documents.blocks(_BLOCK):
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            rows = slice(start, start + _QUERIES_AT_ONCE)
            scores = np.concatenate([highest[rows], queries[rows] @ block.T], axis=1)
            highest[rows] = np.partition(scores, -kept, axis=1)[:, -kept:]
    return TopScores(-np.sort(-highest, axis=1), is_whole=kept == len(documents))


def carried_threshold(threshold: float, old: TopScores, new: TopScores) -> CarriedThreshold:
    """Return the threshold of the new model that keeps the number of results.

    Of all such thresholds, the old one if it is among them, else the middle. The interval has the
    thresholds whose number of results per query does not differ from the old one's by a paired
    t-test (an interval by inversion, as of Woodruff, JASA 47, 1952).
    """
    old_counts = old.counts(threshold)
    results = int(old_counts.sum())
    unchanged = int(new.counts(threshold).sum())
    if results == 0 or old.is_too_low(threshold):
        return CarriedThreshold(threshold, results, unchanged, None, None)
    carried = _threshold_of_count(new.scores.ravel(), results, near=threshold)
    if new.is_too_low(carried):
        return CarriedThreshold(threshold, results, unchanged, None, None)
    interval = None
    if len(old_counts) > 1:
        interval = _interval_of_count(carried, old_counts, new)
    return CarriedThreshold(threshold, results, unchanged, carried, interval)


def _threshold_of_count(scores: NDArray[np.floating], count: int, *, near: float) -> float:
    """Return a threshold that ``count`` of the scores reach: ``near`` if it does, else the middle.

    With ties at the count, more of them reach it.
    """
    if count >= len(scores):
        return min(near, float(scores.min()))
    descending = -np.partition(-scores, [count - 1, count])
    last_in, first_out = float(descending[count - 1]), float(descending[count])
    if first_out < near <= last_in:
        return near
    middle = (last_in + first_out) / 2
    # Of two neighbouring floats, the middle may round down to the one that must stay out.
    return middle if middle > first_out else last_in


def _interval_of_count(carried: float, old_counts: Ids, new: TopScores) -> Interval:
    quantile = float(scipy.special.stdtrit(len(old_counts) - 1, (1 + _LEVEL) / 2))

    def is_alike(threshold: float) -> bool:
        differences = new.counts(threshold) - old_counts
        error = float(differences.std(ddof=1)) / np.sqrt(len(differences))
        return abs(float(differences.mean())) <= quantile * error

    lowest = float(new.scores.min())
    highest = float(new.scores.max())
    return (
        _last_alike(is_alike, inside=carried, outside=lowest),
        _last_alike(is_alike, inside=carried, outside=highest),
    )


def _last_alike(is_alike: Callable[[float], bool], *, inside: float, outside: float) -> float:
    """Return by bisection the threshold farthest from ``inside`` that is still alike."""
    if is_alike(outside):
        return outside
    for _ in range(_BISECTIONS):
        middle = (inside + outside) / 2
        if is_alike(middle):
            inside = middle
        else:
            outside = middle
    return inside


@dataclass(frozen=True)
class Compared:
    """The vectors of one model, whose products are similarities."""

    queries: Floats  # (Q, D)
    documents: VectorStore  # (N, D)


def changed_sides(
    old: Compared, new: Compared, thresholds: Sequence[tuple[float, float]]
) -> list[tuple[int, int]]:
    """Count the pairs that an old and a new threshold place on different sides.

    Args:
        old: vectors of the old model.
        new: vectors of the new model, in the same order.
        thresholds: pairs of an old and a new threshold.

    Returns:
        for each of them, the pairs that left and those that came.
    """
    left = np.zeros(len(thresholds), dtype=np.int64)
    came = np.zeros(len(thresholds), dtype=np.int64)
    blocks = zip(old.documents.blocks(_BLOCK), new.documents.blocks(_BLOCK), strict=True)
    for old_block, new_block in blocks:
        for start in range(0, len(old.queries), _QUERIES_AT_ONCE):
            rows = slice(start, start + _QUERIES_AT_ONCE)
            old_scores = old.queries[rows] @ old_block.T
            new_scores = new.queries[rows] @ new_block.T
            for number, (old_threshold, new_threshold) in enumerate(thresholds):
                was_in = old_scores >= old_threshold
                is_in = new_scores >= new_threshold
                left[number] += np.count_nonzero(was_in & ~is_in)
                came[number] += np.count_nonzero(is_in & ~was_in)
    return list(zip(left.tolist(), came.tolist(), strict=True))


@dataclass(frozen=True)
class RelevantPairs:
    """The relevant pairs of a query and a document, with their similarities."""

    queries: Ids  # row of the query (J,)
    old: Floats  # similarity by the old model (J,)
    new: Floats  # likewise by the new model


@dataclass(frozen=True)
class CarriedPrecision:
    """The threshold of the new model that keeps the precision of the old one."""

    precision: float  # of the old model, at its threshold
    new: float
    interval: Interval | None  # 95 %, over queries; None for a single one
    results: int  # pairs from the new threshold on


def threshold_of_precision(
    threshold: float,
    old: TopScores,
    new: TopScores,
    relevant: RelevantPairs,
    *,
    seed: int = 0,
) -> CarriedPrecision | None:
    """Return the lowest new threshold with at least the precision of the old one.

    The precision is the share of relevant pairs among all that reach a threshold; a document
    without a grade counts as not relevant. New thresholds are the similarities of relevant pairs,
    at most 400 of them. The interval is the percentile bootstrap over queries. None if the old
    precision is not known, as nothing reaches the threshold, or too much.
    """
    old_counts = old.counts(threshold)
    if old_counts.sum() == 0 or old.is_too_low(threshold) or len(relevant.new) == 0:
        return None
    queries = len(old_counts)
    old_relevant = np.bincount(
        relevant.queries, weights=relevant.old >= threshold, minlength=queries
    )
    curve = _PrecisionCurve.of(new, relevant)
    whole = np.ones((1, queries))
    precision = float(old_relevant.sum() / old_counts.sum())
    column = int(curve.columns_of(np.array([precision]), whole)[0])
    interval = None
    if queries > 1:
        random = np.random.default_rng(seed)
        weights = random.multinomial(queries, np.full(queries, 1 / queries), size=_RESAMPLES)
        weights = weights[weights @ old_counts > 0]
        precisions = (weights @ old_relevant) / (weights @ old_counts)
        drawn = curve.thresholds[curve.columns_of(precisions, weights)]
        low, high = np.quantile(drawn, [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]).tolist()
        interval = (low, high)
    return CarriedPrecision(
        precision,
        new=float(curve.thresholds[column]),
        interval=interval,
        results=int(curve.counts[:, column].sum()),
    )


@dataclass(frozen=True)
class _PrecisionCurve:
    """Results and relevant ones of each query at thresholds of the new model, lowest first."""

    thresholds: Doubles  # (G,)
    counts: Ids  # (Q, G)
    relevant: Ids  # (Q, G)

    @classmethod
    def of(cls, scores: TopScores, pairs: RelevantPairs) -> _PrecisionCurve:
        # Just below the similarity of a pair, so that rounding cannot leave it out.
        candidates = np.unique(pairs.new.astype(np.float64) - _ROUNDING)
        if len(candidates) > _MOST_CANDIDATES:
            shares = np.linspace(0, 1, _MOST_CANDIDATES)
            candidates = np.quantile(candidates, shares)
        queries = len(scores.scores)
        counts = np.empty((queries, len(candidates)), dtype=np.int64)
        relevant = np.empty_like(counts)
        for row, of_query in enumerate(scores.scores):
            counts[row] = len(of_query) - np.searchsorted(of_query[::-1], candidates)
            similarities = np.sort(pairs.new[pairs.queries == row])
            relevant[row] = len(similarities) - np.searchsorted(similarities, candidates)
        return cls(candidates, counts, relevant)

    def columns_of(self, precisions: Doubles, weights: NDArray[np.number[Any]]) -> Ids:
        """Return the lowest threshold of each precision (B,), with weights of queries (B, Q).

        The highest threshold if none has the precision.
        """
        counts = weights @ self.counts  # (B, G)
        relevant = weights @ self.relevant
        is_enough = (counts > 0) & (relevant >= (precisions[:, None] - _ROUNDING) * counts)
        last = len(self.thresholds) - 1
        columns: Ids = np.where(is_enough.any(axis=1), is_enough.argmax(axis=1), last)
        return columns
