"""Two systems whose score is a correlation: no value per pair, so no mean to resample.

Semantic similarity is scored by the correlation of a system's similarities with people's.
The pairs are resampled with both systems' similarities, and the difference of the two
correlations is taken in each resample. For the test, the systems are exchanged on every
pair with probability 1/2, after their similarities were ranked (Spearman) or standardised
(Pearson), because their scales differ and say nothing of the score.

References:
    Wilcox 2017, section 9.5 (bootstrap of dependent correlations).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from qwen3nb.analysis.comparison.alignment import join
from qwen3nb.analysis.stats.resampling import (
    DRAWS,
    LEVEL,
    Array,
    Interval,
    draw_seed,
    percentile_interval,
)
from qwen3nb.metrics.aggregate import AGGREGATES
from qwen3nb.utils.choices import one_of

__all__ = ["CorrelationDifference", "compare_correlations"]

_BLOCK = 1_000_000  # values resampled at once: bounds the memory


@dataclass(frozen=True)
class CorrelationDifference:
    """Two systems' correlations with the same gold scores.

    Attributes:
        how: ``spearman`` or ``pearson``.
        first: correlation of a; ``second`` of b; None where one is undefined.
        difference: first − second, or None.
        interval: percentile bootstrap interval of it, or None.
        p_value: two-sided permutation test, (b + 1) / (m + 1), or None.
        n: pairs of texts that both scored.
        notes: pairs that do not pair.
        undefined: why there is no difference, or empty.
    """

    how: str
    first: float | None
    second: float | None
    difference: float | None
    interval: Interval | None
    p_value: float | None
    n: int
    notes: tuple[str, ...] = ()
    undefined: str = ""


def compare_correlations(
    first: Mapping[str, float],
    second: Mapping[str, float],
    gold: Mapping[str, float],
    *,
    how: str = "spearman",
    names: tuple[str, str] = ("a", "b"),
    n_resamples: int = DRAWS,
    level: float = LEVEL,
    seed: int,
) -> CorrelationDifference:
    """Compare two systems' correlations with gold scores, pair by pair.

    Args:
        first: similarity per pair id of a.
        second: of b.
        gold: people's score per pair id.
        how: ``spearman`` or ``pearson``.
        names: of the systems.
        n_resamples: of bootstrap and permutation.
        level: of the interval.
        seed: of the draws.

    Raises:
        ValueError: an unknown ``how``, no pair in common, or a value that is not finite.
    """
    one_of("correlation", how, ("spearman", "pearson"))
    matrix = join({names[0]: first, names[1]: second, "gold": gold})
    a, b, truth = matrix.scores
    n = len(truth)
    values = [_correlations(np.stack([x, truth], axis=-1)[None], how)[0] for x in (a, b)]
    known = [None if np.isnan(value) else float(value) for value in values]
    if known[0] is None or known[1] is None:
        reason = "the gold scores, or a system's similarities, are constant"
        return CorrelationDifference(
            how, known[0], known[1], None, None, None, n, matrix.notes, reason
        )
    difference = known[0] - known[1]
    generator = np.random.default_rng(draw_seed(seed, matrix.queries))
    columns = np.stack([_scaled(a, how), _scaled(b, how), truth], axis=-1)
    drawn, extreme = [], 0
    for count in _counts(n_resamples, n):
        drawn.append(_differences(columns[generator.integers(0, n, size=(count, n))], how))
        swap = generator.random((count, n)) < 0.5
        pair = np.where(swap[..., None], columns[None, :, [1, 0]], columns[None, :, :2])
        gold_too = np.broadcast_to(truth[None, :, None], (count, n, 1))
        found = _differences(np.concatenate([pair, gold_too], axis=-1), how)
        # A permutation without a correlation is counted as extreme: the cautious way.
        extreme += int((~(np.abs(found) < abs(difference) - 1e-12)).sum())
    resampled = np.concatenate(drawn)
    fine = resampled[np.isfinite(resampled)]
    interval = percentile_interval(fine, level=level) if len(fine) else None
    p = (extreme + 1) / (n_resamples + 1)
    return CorrelationDifference(how, known[0], known[1], difference, interval, p, n, matrix.notes)


def _scaled(values: Array, how: str) -> Array:
    """Ranks, or standard scores: what the correlation sees of them."""
    if how == "spearman":
        return np.asarray(rankdata(values), dtype=np.float64)
    scaled: Array = (values - values.mean()) / values.std()
    return scaled


def _differences(columns: Array, how: str) -> Array:
    """Correlation of the first column with the third minus that of the second (R,)."""
    return _correlations(columns[..., [0, 2]], how) - _correlations(columns[..., [1, 2]], how)


def _correlations(columns: Array, how: str) -> Array:
    return AGGREGATES[how](columns)


def _counts(total: int, n: int) -> Sequence[int]:
    step = max(1, _BLOCK // n)
    return [min(step, total - start) for start in range(0, total, step)]
