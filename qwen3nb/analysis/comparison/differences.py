"""Paired differences between systems on one task: interval, test, effect size.

Signs are flipped once for all pairs of a matrix (see `resampling`). The draws depend only on the
seed and the query ids, so a difference has the same values whichever other systems are compared.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qwen3nb.analysis.comparison.alignment import ScoreMatrix
from qwen3nb.analysis.stats.multiple_testing import adjust
from qwen3nb.analysis.stats.paired_tests import effect_size
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL, draw_seed, sign_flip_extremes
from qwen3nb.metrics.intervals import Array, Interval, difference_interval
from qwen3nb.utils.format import interval_text, p_value_text

__all__ = ["PairedDifference", "corrected", "paired_differences"]


@dataclass(frozen=True)
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
    return list(_differences(matrix, names, draws=draws, level=level, seed=seed))


def _differences(
    matrix: ScoreMatrix,
    names: Sequence[tuple[str, str]],
    *,
    draws: int,
    level: float,
    seed: int,
) -> Iterator[PairedDifference]:
    columns, drawn = _anchored(matrix.scores.T), draw_seed(seed, matrix.queries)
    pairs = [(matrix.systems.index(a), matrix.systems.index(b)) for a, b in names]
    extremes = sign_flip_extremes(columns, pairs, n_resamples=draws, seed=drawn)
    for (a, b), (i, j), extreme in zip(names, pairs, extremes, strict=True):
        ours, theirs = columns[:, i], columns[:, j]
        size = effect_size(ours, theirs)
        p = (extreme + 1) / (draws + 1)
        yield PairedDifference(
            task=matrix.task,
            metric=matrix.metric,
            first=a,
            second=b,
            n=size.n,
            unpaired=len(matrix.unpaired.get(a, ())) + len(matrix.unpaired.get(b, ())),
            means=(float(ours.mean()), float(theirs.mean())),
            difference=size.difference,
            interval=difference_interval(ours - theirs, level=level),
            p_value=p,
            corrected=p,
            family=1,
            d_z=size.d_z,
            won=size.won,
            tied=size.tied,
            lost=size.lost,
        )


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
