"""Tests and intervals of paired scores that are simulated: ours, and a user's function."""

import runpy
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
from scipy import stats

from qwen3nb.analysis.stats import resampling
from qwen3nb.analysis.stats.resampling import LEVEL
from qwen3nb.metrics import intervals
from qwen3nb.metrics.intervals import INTERVALS, Array, Interval

DRAWS = 2000  # of a permutation test, a bootstrap
# P-values (count,) or ends of intervals (count, 2) of scores (queries, count) of two systems, given
# the seed of the method's draws.
Method: TypeAlias = Callable[[Array, Array, Sequence[int]], Array]


def interval_ends(found: Iterable[Interval | None]) -> Array:
    """Return the ends of intervals (count, 2); NaN where there is none."""
    return np.array([interval or (np.nan, np.nan) for interval in found])


def permutation_test(a: Array, b: Array, seed: Sequence[int]) -> Array:
    """P-values of the test of all pages."""
    count = a.shape[1]
    columns = np.column_stack([a - b, np.zeros(len(a))])
    pairs = [(column, count) for column in range(count)]
    p_values, _ = resampling.max_t_p_values(columns, pairs, n_resamples=DRAWS, seed=seed)
    return np.array(p_values)


def t_test(a: Array, b: Array, seed: Sequence[int]) -> Array:
    """P-values of the paired t-test; 1 where all differences are the same, which have none."""
    return np.where(np.ptp(a - b, axis=0) > 0, stats.ttest_rel(a, b).pvalue, 1.0)


def wilcoxon(a: Array, b: Array, seed: Sequence[int] = ()) -> Array:
    """P-values by the normal approximation, with zeros left out: scipy's way with ties."""
    p_values = stats.wilcoxon(a, b, method="asymptotic").pvalue
    return np.where((a != b).any(axis=0), p_values, 1.0)


def widened_student(a: Array, b: Array, seed: Sequence[int]) -> Array:
    """Ends of the intervals of all pages."""
    return interval_ends(intervals.difference_intervals((a - b).T, level=LEVEL))


def student(a: Array, b: Array, seed: Sequence[int] = ()) -> Array:
    """Ends of Student's intervals."""
    return interval_ends(intervals.student_interval(row, level=LEVEL) for row in (a - b).T)


def percentile(a: Array, b: Array, seed: Sequence[int]) -> Array:
    """Ends of the percentile bootstrap's intervals."""
    _, means = resampling.resampled_means(a - b, n_resamples=DRAWS, seed=seed)
    return interval_ends(resampling.percentile_interval(row, level=LEVEL) for row in means.T)


METHODS: dict[str, Method] = {
    "permutation test": permutation_test,
    "t-test": t_test,
    "Wilcoxon": wilcoxon,
    INTERVALS["widened"]: widened_student,
    INTERVALS["student"]: student,
    INTERVALS["percentile"]: percentile,
}


def method_of(spec: str) -> Method:
    """Return a user's function as a method.

    Args:
        spec: ``module:name`` or ``file.py:name`` of a function of two arrays of paired scores (n,).

    Raises:
        ValueError: no such function; the method raises it if the function fails, or returns neither
            a p-value nor two ends.
    """
    function = _imported(spec)

    def method(a: Array, b: Array, seed: Sequence[int]) -> Array:
        outcomes = []
        for first, second in zip(a.T, b.T, strict=True):
            outcomes.append(_outcome(function, first, second, spec))
        if len({outcome.shape for outcome in outcomes}) > 1:
            raise ValueError(f"{spec} returns now a p-value, now two ends; expected one of the two")
        return np.array(outcomes)

    return method


def _imported(spec: str) -> Callable[[Array, Array], Any]:
    """Import a function."""
    home, _, name = spec.rpartition(":")
    try:
        if home.endswith(".py"):
            names = runpy.run_path(home)
        else:
            names = vars(import_module(home))
        function: Callable[[Array, Array], Any] = names[name]
    except (ImportError, OSError, KeyError, ValueError, SyntaxError) as error:
        raise ValueError(
            f"no function {spec!r}; expected module:name or file.py:name ({error})"
        ) from error
    return function


def _outcome(function: Callable[[Array, Array], Any], a: Array, b: Array, spec: str) -> Array:
    """Return what a user's function says of one sample: a p-value (), or two ends (2,)."""
    try:
        result = function(a.copy(), b.copy())
    except Exception as error:
        raise ValueError(f"{spec} failed on {len(a)} queries: {error!r}") from error
    value = np.asarray(getattr(result, "pvalue", result))
    is_number = value.dtype.kind in "fiu"
    is_p_value = is_number and value.shape == () and not (value < 0 or value > 1)
    is_interval = is_number and value.shape == (2,)
    if not is_p_value and not is_interval:
        text = " ".join(repr(result).split())
        raise ValueError(f"expected a p-value from 0 to 1, or two ends, of {spec}; got {text:.80}")
    return value
