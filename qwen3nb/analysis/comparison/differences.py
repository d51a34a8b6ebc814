"""Paired differences between systems on one task: interval, test, effect size.

Signs are flipped once for all pairs of a matrix (see `resampling`). The draws depend only on the
seed and the query ids, so a difference has the same values whichever other systems are compared.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.paired_tests import EffectSize, effect_sizes
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL, draw_seed, sign_flip_extremes
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.metrics.intervals import (
    Array,
    Interval,
    difference_intervals,
    excludes_zero,
    no_worse,
    within,
)
from qwen3nb.utils.format import interval_text, p_value_text
from qwen3nb.utils.hardware import cores

__all__ = [
    "PairTest",
    "PairedDifference",
    "corrected",
    "described_pairs",
    "mean_differences",
    "paired_differences",
    "permutation_p_values",
    "shown_by_interval",
    "significant",
    "verdict",
]

Pairs = Sequence[tuple[str, str]]  # names of two systems

_HELD = 500_000  # differences of scores held at once, which bounds the memory
_LARGEST = 2000  # thousandths of the largest difference
ALPHA = 0.05  # level of the tests where none is given


def significant(p: float | None, interval: Interval | None, *, alpha: float = ALPHA) -> bool:
    """Whether a difference is significant: what every page, figure, card and command means by it.

    Args:
        p: its p-value, corrected over the family that is named beside it; None if it has none.
        interval: the interval that is shown, which has to leave out 0; None for a single query.
        alpha: level of the test.
    """
    return p is not None and p < alpha and (interval is None or excludes_zero(interval))


def verdict(
    difference: float,
    p: float | None,
    interval: Interval | None,
    *,
    alpha: float = ALPHA,
    margin: float,
) -> str:
    """Say what is shown of a difference, in words that its interval and p-value bear out.

    ``better`` or ``worse`` if it is `significant`, ``better, by less than`` the margin if its
    interval lies within ±``margin``; else ``equivalent`` if that lies there, ``no worse`` if it
    ends above −margin, and otherwise ``not shown``.
    """
    near = within(interval, margin)
    if significant(p, interval, alpha=alpha):
        word = "better" if difference > 0 else "worse"
        return f"{word}, by less than {margin:g}" if near else word
    return "equivalent" if near else "no worse" if no_worse(interval, margin) else "not shown"


def shown_by_interval(differences: Array, *, level: float, power: float = 0.8) -> float | None:
    """The smallest true difference whose interval leaves out 0 in a share ``power`` of samples.

    Of samples of n queries whose differences spread like these (n,), to three digits; None if
    there is none.
    """
    n = len(differences)
    if n < 2:
        return None
    below = float(ndtri(power)) * float(differences.std(ddof=1)) / math.sqrt(n)
    rest = differences - differences.mean() - below

    def shown(thousandths: int) -> bool:
        ends = difference_intervals(rest[None] + thousandths / 1000, level=level)[0]
        return ends is not None and ends[0] > 0

    least = bisect_left(range(_LARGEST), True, key=shown)
    return least / 1000 if least < _LARGEST else None


class PairTest(NamedTuple):
    """The test of a pair: p-value, corrected over its family, number of comparisons in that."""

    p_value: float
    corrected: float
    family: int


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """The mean difference of two systems over the queries that both answered.

    Attributes:
        task: name of the task.
        metric: name of the metric.
        first: name of system a.
        second: name of system b.
        n: number of shared queries.
        unpaired: number of queries that only one of the two answered.
        means: mean of a and mean of b.
        difference: mean of a − b.
        interval: see `metrics.intervals.difference_interval`; None for a single query.
        p_value: two-sided paired permutation test, uncorrected.
        corrected: p-value corrected over its family.
        family: number of comparisons in that family.
        d_z: Cohen's d_z, or None.
        won: queries on which a is above b; ``tied`` and ``lost`` likewise.
    """

    task: str
    metric: str
    first: str
    second: str
    n: int
    unpaired: int
    means: tuple[float, float]
    difference: float
    interval: Interval | None
    p_value: float
    corrected: float
    family: int
    d_z: float | None
    won: int
    tied: int
    lost: int

    def significant(self, alpha: float) -> bool:
        """Whether it is `significant`."""
        return significant(self.corrected, self.interval, alpha=alpha)

    def reversed(self) -> PairedDifference:
        """The same difference as b − a."""
        ends = self.interval
        return replace(
            self,
            first=self.second,
            second=self.first,
            means=(self.means[1], self.means[0]),
            difference=-self.difference,
            interval=None if ends is None else (-ends[1], -ends[0]),
            d_z=None if self.d_z is None else -self.d_z,
            won=self.lost,
            lost=self.won,
        )

    def __str__(self) -> str:
        ends = interval_text(self.interval, absent="(a single query)")
        return (
            f"{self.difference:+.3f} {ends}, p {p_value_text(self.p_value, relation=True)}, "
            f"corrected {p_value_text(self.corrected, relation=True)}, n = {self.n}"
        )


def paired_differences(
    matrix: ScoreMatrix,
    *,
    pairs: Sequence[tuple[str, str]] | None = None,
    draws: int = DRAWS,
    level: float = LEVEL,
    seed: int,
) -> list[PairedDifference]:
    """Differences between the systems of a matrix, uncorrected.

    Args:
        matrix: scores on the shared queries.
        pairs: names of the systems to compare, first − second; every pair by default.
        draws: number of sign flips.
        level: of the intervals.
        seed: of the draws, combined with the query ids.
    """
    names = list(itertools.combinations(matrix.systems, 2)) if pairs is None else list(pairs)
    p_values = permutation_p_values(matrix, names, draws=draws, seed=seed)
    tests = [PairTest(p, p, 1) for p in p_values]
    return list(described_pairs(matrix, names, tests, level=level))


def permutation_p_values(
    matrix: ScoreMatrix, pairs: Pairs, *, draws: int = DRAWS, seed: int
) -> list[float]:
    """P-values of the two-sided paired permutation test, uncorrected; one set of draws for all.

    Args:
        matrix: scores on the shared queries.
        pairs: names of the systems to compare.
        draws: number of sign flips.
        seed: of the draws, combined with the query ids.
    """
    extremes = sign_flip_extremes(
        _anchored(matrix.scores.T), _numbers(matrix, pairs).tolist(), n_resamples=draws,
        seed=draw_seed(seed, matrix.queries),
    )  # fmt: skip
    return [(extreme + 1) / (draws + 1) for extreme in extremes]


def described_pairs(
    matrix: ScoreMatrix, pairs: Pairs, tests: Sequence[PairTest], *, level: float = LEVEL
) -> Iterator[PairedDifference]:
    """Yield the differences of pairs of systems, given their tests.

    Args:
        matrix: scores on the shared queries.
        pairs: names of the systems, first − second.
        tests: of the pairs.
        level: of the intervals.
    """
    means = matrix.scores.mean(axis=1).tolist()
    unpaired = {system: len(ids) for system, ids in matrix.unpaired.items()}
    numbers = _numbers(matrix, pairs)

    def described(rows: NDArray[np.intp]) -> tuple[list[EffectSize], list[Interval | None]]:
        differences = _subtracted(matrix, rows)
        return effect_sizes(differences), difference_intervals(differences, level=level)

    with ThreadPoolExecutor(cores()) as pool:
        blocks = pool.map(described, _blocks(matrix, numbers))
        each = itertools.chain.from_iterable(zip(*block, strict=True) for block in blocks)
        rows = zip(pairs, numbers.tolist(), each, tests, strict=True)
        for (a, b), (i, j), (size, interval), (p, corrected_p, family) in rows:
            yield PairedDifference(
                task=matrix.task, metric=matrix.metric, first=a, second=b, n=size.n,
                unpaired=unpaired.get(a, 0) + unpaired.get(b, 0), means=(means[i], means[j]),
                difference=size.difference, interval=interval, p_value=p, corrected=corrected_p,
                family=family, d_z=size.d_z, won=size.won, tied=size.tied, lost=size.lost,
            )  # fmt: skip


def mean_differences(matrix: ScoreMatrix, pairs: Pairs) -> list[float]:
    """Mean differences of pairs of systems, first − second, and nothing else of them."""
    blocks = _blocks(matrix, _numbers(matrix, pairs))
    return [mean for rows in blocks for mean in _subtracted(matrix, rows).mean(axis=1).tolist()]


def _numbers(matrix: ScoreMatrix, pairs: Pairs) -> NDArray[np.intp]:
    """Return the pairs as rows of the matrix: (pairs, 2)."""
    rows = {system: row for row, system in enumerate(matrix.systems)}
    return np.array([(rows[a], rows[b]) for a, b in pairs], dtype=np.intp).reshape(-1, 2)


def _blocks(matrix: ScoreMatrix, numbers: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Yield pairs in blocks, so that the memory does not depend on their number."""
    step = max(1, _HELD // len(matrix.queries))
    for start in range(0, len(numbers), step):
        yield numbers[start : start + step]


def _subtracted(matrix: ScoreMatrix, rows: NDArray[np.intp]) -> Array:
    """Differences of the scores of pairs: (pairs, n)."""
    differences = matrix.scores[rows[:, 0]]
    differences -= matrix.scores[rows[:, 1]]
    return differences


def _anchored(columns: Array) -> Array:
    """Scores (n, S) with an additional column of ones.

    Scores are rounded relative to the largest one (see `resampling`); with the ones, scores up
    to 1 are rounded the same whichever other systems are compared.
    """
    return np.hstack([columns, np.ones((len(columns), 1))])


def corrected(
    family: Sequence[PairedDifference], *, correction: str = "holm"
) -> list[PairedDifference]:
    """The same differences with p-values corrected over all of them.

    Raises:
        ValueError: an unknown correction; lists those available.
    """
    values = adjust([each.p_value for each in family], how=correction)
    return [
        replace(each, corrected=p, family=len(family))
        for each, p in zip(family, values, strict=True)
    ]
