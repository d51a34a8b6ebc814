"""Adjusted p-values for a declared family of tests.

The family consists of all comparisons behind one claim. Callers define it by the p-values they
pass, and report its size with the result.

MaxT presumes that the differences of all pairs are jointly symmetric. Of fewer than 200 queries,
skewed ones cost it its level (see `qwen3nb.analysis.stats.skewness`); Holm's method takes its place
there.

References:
    Holm 1979 (family-wise error rate at most alpha under any dependence); Benjamini and
    Hochberg 1995 (false discovery rate).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from qwen3nb.utils.choices import check_choice

if TYPE_CHECKING:
    from qwen3nb.metrics.columns import Column

MOST_DRAWS = 200_000  # limit of `enough_draws`


def holm(p_values: Column) -> list[float]:
    """Holm's adjusted p-values, in the order given.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]

    Raises:
        ValueError: a value outside 0 to 1.
    """
    values = _values(p_values)
    _check(values)
    adjusted_p_values = [0.0] * len(values)
    largest = 0.0
    ascending_indices = sorted(range(len(values)), key=values.__getitem__)
    for rank, index in enumerate(ascending_indices):
        # The smallest of m counts m times, the next m - 1 times; none is below an earlier one.
        largest = max(largest, min(1.0, (len(values) - rank) * values[index]))
        adjusted_p_values[index] = largest
    return adjusted_p_values


def benjamini_hochberg(p_values: Column) -> list[float]:
    """Benjamini and Hochberg's adjusted p-values (false discovery rate), in the order given.

    >>> benjamini_hochberg([0.01, 0.04, 0.03])
    [0.03, 0.04, 0.04]

    Raises:
        ValueError: a value outside 0 to 1.
    """
    from scipy.stats import false_discovery_control  # takes a second

    values = _values(p_values)
    _check(values)
    adjusted_p_values: list[float] = false_discovery_control(values).tolist()
    return adjusted_p_values


MAX_T = "max-t"
CORRECTIONS: dict[str, Callable[[Sequence[float]], list[float]]] = {
    MAX_T: holm,  # for p-values alone; with sign flips, see `resampling.max_t_p_values`
    "holm": holm,
    "benjamini-hochberg": benjamini_hochberg,
    "none": list,
}
# The corrections as named in running text.
NAMES = {
    MAX_T: "step-down MaxT",
    "holm": "Holm",
    "benjamini-hochberg": "Benjamini and Hochberg",
    "none": "no correction",
}


def adjust(p_values: Sequence[float], *, how: str = "holm") -> list[float]:
    """Adjust p-values by the named correction, one of `CORRECTIONS`.

    Raises:
        ValueError: an unknown correction, or a value outside 0 to 1.
    """
    _check(p_values)
    return CORRECTIONS[check_choice("correction", how, CORRECTIONS)](p_values)


def enough_draws(comparisons: int, *, draws: int, alpha: float = 0.05, how: str = "holm") -> int:
    """Return ``draws``, or more if no difference could be significant with them.

    The p-value of m random draws is at least 1 / (m + 1), and Holm multiplies the smallest by the
    number of comparisons. The result makes this at most ``alpha`` / 4, up to `MOST_DRAWS` draws.

    >>> enough_draws(66, draws=10_000), enough_draws(780, draws=10_000)
    (10000, 62400)
    """
    if how != "holm" or comparisons / (draws + 1) < alpha:
        return draws
    return max(draws, min(MOST_DRAWS, math.ceil(4 * comparisons / alpha)))


def _values(p_values: Column) -> list[float]:
    from qwen3nb.metrics.columns import numbers  # with NumPy, which commands' help does not need

    values: list[float] = numbers(p_values).tolist()
    return values


def _check(p_values: Sequence[float]) -> None:
    if any(not 0 <= p <= 1 for p in p_values):
        raise ValueError(f"expected p-values between 0 and 1; got {list(p_values)}")
