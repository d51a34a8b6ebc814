"""Count the sign flips in which pairs of systems are as far apart as in the sample.

Of 200 systems there are 19,900 pairs, with 10,000 flips each, and few flips are near the sample's
difference. Differences are first compared in 16 bits, of which 16 fit a vector register. A flip
whose difference in 16 bits does not decide is compared in float64, where sums are exact: the
counts are those of comparing all flips in float64.

For MaxT, a flip counts for a pair if the largest statistic of all pairs, except more significant
ones, reaches the pair's own. A flip of a pair matters there only if its statistic reaches the
pair's own, since those of more significant pairs are no smaller, and if it is larger than those of
all pairs before it. Such flips are collected, and counted together.

Shapes: S systems, P pairs, F flips.
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from qwen3nb.metrics.intervals import Array

_LARGEST = 16_000  # of the sums in 16 bits, so that differences fit as well
# Two rounded sums are each off by up to half; the rest is for the rounding of a threshold.
_UNDECIDED = 1.01
_MOST_GAPS = 1 << 19  # compared at once, to fit a cache
_FIRST_PAIRS = 8  # compared at once at first, when no flip has a large statistic yet


class PairThresholds(NamedTuple):
    """Pairs of systems with what a flip has to reach, by their statistics, the largest last."""

    first: NDArray[np.intp]  # rows of the sums (P,)
    second: NDArray[np.intp]
    differences: Array  # absolute sums of the sample (P,), less what rounding may add
    weights: Array  # from a difference to its statistic (P,)
    statistics: Array  # of the sample (P,); ascending

    def at(self, pairs: NDArray[np.intp]) -> "PairThresholds":
        """Return some of the pairs."""
        return PairThresholds(
            self.first[pairs],
            self.second[pairs],
            self.differences[pairs],
            self.weights[pairs],
            self.statistics[pairs],
        )


class ExtremeCounts(NamedTuple):
    """Numbers of flips per pair (P,)."""

    raw: NDArray[np.int64]  # flips in which the pair is as far apart as in the sample
    by_family: NDArray[np.int64]  # flips in which it or a less significant one is


def count_extreme(pairs: PairThresholds, sums: Array) -> ExtremeCounts:
    """Count the flips that are as extreme as the sample, of each pair and of its family.

    Args:
        pairs: the pairs, in the order of their statistics.
        sums: whole numbers, the sum of the flipped scores of each system (S, F), for fewer than
            65,536 flips.
    """
    search = _Search.over(sums)
    counts = np.zeros(len(pairs.first), dtype=np.int64)
    reachable = _reachable(pairs, sums)
    # The statistic of equal systems is 0 in every flip, and does not matter for others.
    searched = reachable[pairs.weights[reachable] > 0]
    start, pairs_at_once = 0, _FIRST_PAIRS
    most_pairs = max(_FIRST_PAIRS, _MOST_GAPS // sums.shape[1])
    while start < len(searched):
        places = searched[start : start + pairs_at_once]
        counts[places] = search.count(pairs.at(places), places)
        start += pairs_at_once
        pairs_at_once = min(2 * pairs_at_once, most_pairs)
    by_family = search.count_by_family(pairs.statistics)
    # A statistic of 0 is reached by every flip.
    is_reached = pairs.statistics <= 0
    counts[is_reached] = sums.shape[1]
    by_family[is_reached] = sums.shape[1]
    return ExtremeCounts(counts, by_family)


def _reachable(pairs: PairThresholds, sums: Array) -> NDArray[np.intp]:
    """Return the pairs that a flip may reach: of the others, no flip is as extreme."""
    # In no flip is a pair further apart than the highest and the lowest system.
    reach = float(np.ptp(sums, axis=0).max()) * (1 + 1e-8)
    is_near = pairs.differences <= reach
    largest_weight = pairs.weights[is_near].max(initial=0.0)
    is_near |= pairs.statistics <= reach * largest_weight
    return np.flatnonzero(is_near)


class _Records(NamedTuple):
    """Statistics that are larger than those of all pairs before in the same flip."""

    flips: NDArray[np.uint16]
    places: NDArray[np.intp]  # of the pairs, among all
    statistics: Array


class _Extremes(NamedTuple):
    """Flips of some pairs, compared in float64."""

    rows: NDArray[np.intp]  # which of the pairs
    flips: NDArray[np.intp]
    differences: Array  # absolute


@dataclass(frozen=True)
class _Search:
    """Looks for extreme flips, some pairs at a time, in the order of their statistics."""

    sums: Array  # (S, F)
    rounded_sums: NDArray[np.int16]  # (S, F)
    scale: float  # from sums to those in 16 bits
    largest: Array  # largest statistic of each flip so far (F,), as far as it matters
    records: list[_Records]

    @classmethod
    def over(cls, sums: Array) -> Self:
        """Return a search that has seen no pair."""
        # Whole numbers, so that each sum less the middle is exact.
        middle = np.rint((sums.max(axis=0) + sums.min(axis=0)) / 2)
        centred_sums = sums - middle
        furthest = float(np.abs(centred_sums).max(initial=0.0))
        scale = _LARGEST / furthest if furthest else 1.0
        centred_sums *= scale
        rounded_sums = np.rint(centred_sums, out=centred_sums).astype(np.int16)
        return cls(sums, rounded_sums, scale, largest=np.zeros(sums.shape[1]), records=[])

    def count(self, pairs: PairThresholds, places: NDArray[np.intp]) -> NDArray[np.intp]:
        """Count the extreme flips of the next pairs, which have these places among all."""
        gaps = self.rounded_sums[pairs.first]  # (pairs, flips), changed in place
        gaps -= self.rounded_sums[pairs.second]
        np.abs(gaps, out=gaps)
        may_be_extreme = gaps >= self._thresholds(pairs.differences, -_UNDECIDED)
        smallest = float(self.largest.min())
        if pairs.statistics[-1] >= smallest:
            extremes = self._extremes(pairs, may_be_extreme)
            self._add_records(extremes, pairs, places)
            return _count_reached(extremes, pairs)
        # Many flips are extreme: most are counted in 16 bits, and few statistics matter.
        is_extreme = gaps >= self._thresholds(pairs.differences, _UNDECIDED)
        decided_counts = np.array([np.count_nonzero(row) for row in is_extreme])
        undecided = self._extremes(pairs, may_be_extreme ^ is_extreme)
        matters = gaps >= self._thresholds(smallest / pairs.weights, -_UNDECIDED)
        self._add_records(self._extremes(pairs, matters), pairs, places)
        return decided_counts + _count_reached(undecided, pairs)

    def _thresholds(self, differences: Array, shift: float) -> NDArray[np.int16]:
        """Return differences (pairs,) in 16 bits, moved by ``shift``: (pairs, 1)."""
        unreached = np.iinfo(np.int16).max
        thresholds = np.ceil(differences * self.scale + shift).clip(0, unreached)
        return thresholds.astype(np.int16)[:, None]

    def _extremes(self, pairs: PairThresholds, is_found: NDArray[np.bool_]) -> _Extremes:
        """Return the differences of pairs in the flips that were found (pairs, flips)."""
        count = self.sums.shape[1]
        rows, flips = np.divmod(np.flatnonzero(is_found), count)
        every_sum = self.sums.ravel()  # a view: positions of one axis are many times as fast
        differences = every_sum[pairs.first[rows] * count + flips]
        differences -= every_sum[pairs.second[rows] * count + flips]
        return _Extremes(rows, flips, np.abs(differences, out=differences))

    def _add_records(
        self, extremes: _Extremes, pairs: PairThresholds, places: NDArray[np.intp]
    ) -> None:
        """Add the statistics that are larger than those of all pairs before in their flip."""
        statistics = extremes.differences * pairs.weights[extremes.rows]
        is_larger = statistics > self.largest[extremes.flips]
        flips = extremes.flips[is_larger]
        statistics = statistics[is_larger]
        self.records.append(
            _Records(flips.astype(np.uint16), places[extremes.rows[is_larger]], statistics)
        )
        np.maximum.at(self.largest, flips, statistics)

    def count_by_family(self, thresholds: Array) -> NDArray[np.int64]:
        """Count the flips in which a pair, or one before it, reaches its threshold (P,)."""
        pairs = len(thresholds)
        if not self.records:
            return np.zeros(pairs, dtype=np.int64)
        flips, places, statistics = map(np.concatenate, zip(*self.records, strict=True))
        by_flip = np.argsort(flips, kind="stable")  # in each, the places ascend
        flips, places = flips[by_flip].astype(np.intp), places[by_flip]
        # A record counts for its pair and those after it, up to the first with a larger threshold.
        ends = np.searchsorted(thresholds, statistics[by_flip], side="right")
        # Of each flip, the furthest end so far: flips are apart by more than any end.
        offsets = flips * (pairs + 1)
        furthest_ends = np.maximum.accumulate(offsets + ends) - offsets
        ends_before = np.zeros_like(ends)
        is_same_flip = flips[1:] == flips[:-1]
        ends_before[1:][is_same_flip] = furthest_ends[:-1][is_same_flip]
        starts = np.maximum(places, ends_before)  # of what no record before it covers
        is_new = starts < furthest_ends
        begun = np.bincount(starts[is_new], minlength=pairs + 1)
        ended = np.bincount(furthest_ends[is_new], minlength=pairs + 1)
        return np.cumsum(begun - ended)[:pairs]


def _count_reached(extremes: _Extremes, pairs: PairThresholds) -> NDArray[np.intp]:
    """Count the flips of each pair in which it is as far apart as in the sample."""
    is_reached = extremes.differences >= pairs.differences[extremes.rows]
    return np.bincount(extremes.rows[is_reached], minlength=len(pairs.first))
