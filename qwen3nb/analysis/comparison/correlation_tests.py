"""Comparison of two systems that are scored by a correlation, which has no value per pair.

Semantic similarity is scored by the correlation of a system's similarities with human ratings.
The interval is Student's over the differences of the pairs' influence values, by which each pair
moves the two correlations. The permutation test exchanges the systems on each pair with
probability 1/2, after their similarities are ranked (Spearman) or standardised (Pearson), because
the systems' scales differ without affecting the score.

References:
    Efron and Tibshirani 1993, chapter 11 (jackknife); Croux and Dehon 2010 (influence functions).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL, draw_seed
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.metrics.aggregate import AGGREGATES
from qwen3nb.metrics.intervals import Array, Interval, correlation_difference_interval
from qwen3nb.utils.choices import one_of

__all__ = ["CorrelationDifference", "compare_correlations"]

_BLOCK = 1_000_000  # values resampled at once, to bound memory


@dataclass(frozen=True)
class CorrelationDifference:
    """Two systems' correlations with the same gold scores.

    Attributes:
        how: ``spearman`` or ``pearson``.
        first: correlation of a; ``second`` is that of b; None if undefined.
        difference: first − second, or None.
        interval: Student's interval of the difference, over influence values, or None.
        p_value: two-sided permutation test, (b + 1) / (m + 1), or None.
        n: number of pairs of texts that both systems scored.
        notes: pairs of texts that only one system scored.
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
        first: similarity per pair id, of a.
        second: the same of b.
        gold: human rating per pair id.
        how: ``spearman`` or ``pearson``.
        names: of the systems.
        n_resamples: number of permutations.
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
    extreme = 0
    for count in _counts(n_resamples, n):
        swap = generator.random((count, n)) < 0.5
        pair = np.where(swap[..., None], columns[None, :, [1, 0]], columns[None, :, :2])
        gold_too = np.broadcast_to(truth[None, :, None], (count, n, 1))
        permuted = _differences(np.concatenate([pair, gold_too], axis=-1), how)
        # A permutation without a correlation counts as extreme, which is conservative.
        extreme += int((~(np.abs(permuted) < abs(difference) - 1e-12)).sum())
    interval = correlation_difference_interval((a, b), truth, how=how, level=level)
    p = (extreme + 1) / (n_resamples + 1)
    return CorrelationDifference(how, known[0], known[1], difference, interval, p, n, matrix.notes)


def _scaled(values: Array, how: str) -> Array:
    """Ranks (Spearman) or standard scores (Pearson), on which the correlation depends."""
    if how == "spearman":
        from scipy.stats import rankdata

        return np.asarray(rankdata(values), dtype=np.float64)
    scaled: Array = (values - values.mean()) / values.std()
    return scaled


def _differences(columns: Array, how: str) -> Array:
    """Correlation of column 1 with column 3, minus that of column 2 with column 3 (R,)."""
    return _correlations(columns[..., [0, 2]], how) - _correlations(columns[..., [1, 2]], how)


def _correlations(columns: Array, how: str) -> Array:
    return AGGREGATES[how](columns)


def _counts(total: int, n: int) -> Sequence[int]:
    step = max(1, _BLOCK // n)
    return [min(step, total - start) for start in range(0, total, step)]
