"""Tests and intervals of paired scores that are simulated: ours, and a user's function."""

import runpy
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import TypeAlias

import numpy as np
from scipy import stats

from qwen3nb.analysis.stats import resampling
from qwen3nb.analysis.stats.resampling import LEVEL
from qwen3nb.metrics import intervals
from qwen3nb.metrics.intervals import INTERVALS, Array, Interval

DRAWS = 2000  # of a permutation test, a bootstrap
_NUMBERS = "fiu"  # kinds of numpy's types: floats, signed and unsigned integers
# P-values (count,) or ends of intervals (count, 2) of scores (queries, count) of two systems, given
# the seed of the method's draws.
Method: TypeAlias = Callable[[Array, Array, Sequence[int]], Array]
UserFunction: TypeAlias = Callable[[Array, Array], object]


def interval_ends(found: Iterable[Interval | None]) -> Array:
    """Return the ends of intervals (count, 2); NaN where there is none."""
    without_interval = (np.nan, np.nan)
    return np.array([interval or without_interval for interval in found])


def permutation_test(a: Array, b: Array, seed: Sequence[int]) -> Array:
    """P-values of the test of all pages."""
    count = a.shape[1]
    columns = np.column_stack([a - b, np.zeros(len(a))])
    pairs = [(column, count) for column in range(count)]
    p_values, _ = resampling.max_t_p_values(columns, pairs, n_resamples=DRAWS, seed=seed)
    return np.array(p_values)


def t_test(a: Array, b: Array, seed: Sequence[int]) -> Array:
    """P-values of the paired t-test; 1 where all differences are the same, which have none."""
    is_varied = np.ptp(a - b, axis=0) > 0
    return np.where(is_varied, stats.ttest_rel(a, b).pvalue, 1.0)


def wilcoxon(a: Array, b: Array, seed: Sequence[int] = ()) -> Array:
    """P-values by the normal approximation, with zeros left out: scipy's way with ties."""
    p_values = stats.wilcoxon(a, b, method="asymptotic").pvalue
    has_difference = (a != b).any(axis=0)
    return np.where(has_difference, p_values, 1.0)


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
    function = _imported_function(spec)

    def outcomes_of_samples(a: Array, b: Array, seed: Sequence[int]) -> Array:
        outcomes = []
        for sample_a, sample_b in zip(a.T, b.T, strict=True):
            outcomes.append(_outcome(function, sample_a, sample_b, spec))
        shapes = {outcome.shape for outcome in outcomes}
        if len(shapes) > 1:
            raise ValueError(f"{spec} returns now a p-value, now two ends; expected one of the two")
        return np.array(outcomes)

    return outcomes_of_samples


def _imported_function(spec: str) -> UserFunction:
    """Import a function."""
    module, _, name = spec.rpartition(":")  # such as ``tests.py:my_test``
    try:
        if module.endswith(".py"):
            names = runpy.run_path(module)
        else:
            names = vars(import_module(module))
        function: UserFunction = names[name]
    except (ImportError, OSError, KeyError, ValueError, SyntaxError) as error:
        raise ValueError(
            f"no function {spec!r}; expected module:name or file.py:name ({error})"
        ) from error
    return function


def _outcome(function: UserFunction, a: Array, b: Array, spec: str) -> Array:
    """Return what a user's function says of one sample: a p-value (), or two ends (2,)."""
    try:
        result = function(a.copy(), b.copy())  # which it may change
    except Exception as error:
        raise ValueError(f"{spec} failed on {len(a)} queries: {error!r}") from error
    value = np.asarray(getattr(result, "pvalue", result))  # tests of scipy return an object
    if _is_p_value(value) or _is_interval(value):
        return value
    text = " ".join(repr(result).split())
    raise ValueError(f"expected a p-value from 0 to 1, or two ends, of {spec}; got {text:.80}")


def _is_p_value(value: Array) -> bool:
    if value.dtype.kind not in _NUMBERS or value.shape != ():
        return False
    return bool(np.isnan(value) or 0 <= value <= 1)  # some tests return NaN for equal samples


def _is_interval(value: Array) -> bool:
    return value.dtype.kind in _NUMBERS and value.shape == (2,)
