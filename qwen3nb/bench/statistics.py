"""Benchmark of statistics: all pairs of many systems, and intervals against the bootstrap."""

from __future__ import annotations

import itertools
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

from qwen3nb.analysis.comparison.differences import corrected, paired_differences
from qwen3nb.analysis.stats.resampling import percentile_interval, resampled_means
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.metrics.intervals import INTERVALS, Array, Interval, difference_interval
from qwen3nb.utils.markdown import markdown_table

__all__ = [
    "IntervalTiming",
    "StatisticsTiming",
    "bench_intervals",
    "bench_statistics",
    "interval_table",
    "table",
]

_T = TypeVar("_T")
LEVEL = 0.95
_COARSEST = 2.0**-52


@dataclass(frozen=True)
class StatisticsTiming:
    """One method of comparing all pairs.

    Attributes:
        what: name of the method.
        pairs: number of comparisons: pairs of systems times tasks.
        seconds: for all of them; extrapolated if ``measured`` is smaller.
        measured: comparisons that were run.
        ratio: speed relative to the loop.
        peak_mib: peak memory allocated in addition to the scores, in MiB.
        deviation: largest difference of an interval's end from the loop's, in standard
            errors of the resampling; None for the loop itself.
    """

    what: str
    pairs: int
    seconds: float
    measured: int
    ratio: float
    peak_mib: float
    deviation: float | None


def bench_statistics(
    *,
    systems: int = 10,
    tasks: int = 20,
    queries: int = 6980,
    n_resamples: int = 10_000,
    loop_pairs: int = 6,
    seed: int = 0,
) -> tuple[StatisticsTiming, ...]:
    """Time both methods on synthetic scores; the loop on ``loop_pairs`` pairs, extrapolated.

    The loop runs before, between and after the other methods. It computes percentile intervals
    only; `paired_differences` has those of `difference_interval` and adds the permutation test,
    `corrected` Holm's correction.
    """
    matrices = [_scores(systems, queries, seed=seed + task) for task in range(tasks)]
    first = matrices[0]
    pairs = list(itertools.combinations(range(systems), 2))
    drawn = np.random.default_rng(seed).integers(0, len(pairs), loop_pairs)
    thirds = [[int(i) for i in drawn[part::3]] for part in range(3)]
    loop = partial(_timed_loop, first.scores, pairs, n_resamples=n_resamples, seed=seed)
    block = partial(_all_pairs, pairs=pairs, n_resamples=n_resamples, seed=seed)

    def full(given: Sequence[ScoreMatrix]) -> object:
        run = partial(paired_differences, draws=n_resamples, seed=seed)
        return corrected([each for matrix in given for each in run(matrix)])

    looped = loop(thirds[0])
    block_seconds, ends = _timed(lambda: [block(each.scores) for each in matrices])
    looped += loop(thirds[1])
    full_seconds, _ = _timed(lambda: full(matrices))
    looped += loop(thirds[2])

    total = len(pairs) * tasks
    loop_seconds = sum(seconds for seconds, _ in looped) / loop_pairs * total
    deviation = max(
        _deviation(ends[0][i], theirs, n_resamples)
        for i, (_, theirs) in zip(itertools.chain(*thirds), looped, strict=True)
    )
    # Peaks are those of one task: the tasks are processed one after the other.
    one_pair = partial(_loop, first.scores, pairs[0], min(n_resamples, 1000), seed=seed)
    rows: list[tuple[str, float, int, Callable[[], object], float | None]] = [
        ("numpy loop, pair by pair", loop_seconds, loop_pairs, one_pair, None),
        ("all pairs from one set of draws", block_seconds, total, partial(block, first.scores),
         deviation),
        ("intervals shown, permutation tests, Holm", full_seconds, total, lambda: full([first]),
         deviation),
    ]  # fmt: skip
    return tuple(
        StatisticsTiming(
            what, total, seconds, measured, loop_seconds / seconds, _peak(work), compared
        )
        for what, seconds, measured, work, compared in rows
    )


def table(rows: Sequence[StatisticsTiming]) -> str:
    """The rows as a Markdown table."""
    heads = ("method", "comparisons", "seconds", "times faster", "peak MiB", "deviation")
    cells = [
        (
            row.what,
            f"{row.pairs:,}" + (f" ({row.measured} run)" if row.measured < row.pairs else ""),
            f"{row.seconds:.1f}",
            f"{row.ratio:.1f}",
            f"{row.peak_mib:.0f}",
            "–" if row.deviation is None else f"{row.deviation:.1f} s.e.",
        )
        for row in rows
    ]
    return markdown_table(heads, cells)


@dataclass(frozen=True)
class IntervalTiming:
    """The interval of one statistic, by the method that is shown and by the bootstrap.

    Attributes:
        what: the statistic.
        method: name of the method that is shown.
        seconds: of that method; ``bootstrap`` is the percentile bootstrap's.
    """

    what: str
    method: str
    seconds: float
    bootstrap: float

    @property
    def ratio(self) -> float:
        """Time relative to the bootstrap's."""
        return self.seconds / self.bootstrap


def bench_intervals(
    *, queries: int = 6980, n_resamples: int = 2000, repeats: int = 5, seed: int = 0
) -> tuple[IntervalTiming, ...]:
    """Time `aggregate` and `difference_interval` against percentile bootstraps, in turn.

    Records had 2,000 resamples, which is the default.
    """
    scores = _scores(2, queries, seed=seed).scores
    per_query = {
        name: dict(zip(map(str, range(queries)), values.tolist(), strict=True))
        for name, values in zip("ab", scores, strict=True)
    }

    def one(how: str, *columns: str, percentile: bool) -> object:
        return aggregate(
            per_query, how=how, columns=columns, seed=seed, percentile=percentile,
            resamples=n_resamples,
        )  # fmt: skip

    differences = scores[0] - scores[1]
    rows: list[tuple[str, str, Callable[[], object], Callable[[], object]]] = [
        ("mean of scores", "widened", partial(one, "mean", "a", percentile=False),
         partial(one, "mean", "a", percentile=True)),
        ("Spearman correlation", "fisher", partial(one, "spearman", "a", "b", percentile=False),
         partial(one, "spearman", "a", "b", percentile=True)),
        ("paired difference", "widened", partial(difference_interval, differences, level=LEVEL),
         partial(_all_pairs, scores, [(0, 1)], n_resamples, seed=seed)),
    ]  # fmt: skip
    return tuple(
        IntervalTiming(
            what,
            INTERVALS[method],
            min(_timed(shown)[0] for _ in range(repeats)),
            _timed(bootstrap)[0],
        )
        for what, method, shown, bootstrap in rows
    )


def interval_table(rows: Sequence[IntervalTiming]) -> str:
    """The timings of intervals as a Markdown table."""
    heads = ("interval of a", "method", "ms", "percentile bootstrap, ms", "time relative to it")
    cells = [
        (
            row.what,
            row.method,
            f"{1000 * row.seconds:.2f}",
            f"{1000 * row.bootstrap:.0f}",
            f"{row.ratio:.1g}",
        )
        for row in rows
    ]
    return markdown_table(heads, cells)


def _scores(systems: int, queries: int, *, seed: int) -> ScoreMatrix:
    """Synthetic scores of systems that agree on most of a query's difficulty."""
    generator = np.random.default_rng(seed)
    difficulty = generator.beta(0.5, 0.7, size=queries)
    noise = generator.normal(0, 0.15, size=(systems, queries))
    shift = np.linspace(0, 0.02, systems)[:, None]
    names = tuple(f"system {i}" for i in range(systems))
    ids = tuple(f"task {seed} query {i:05d}" for i in range(queries))
    scores = np.clip(difficulty + noise + shift, 0, 1)
    return ScoreMatrix(f"task {seed}", "nDCG@10", names, ids, scores, {})


def _loop(scores: Array, pair: tuple[int, int], n_resamples: int, *, seed: int) -> Interval:
    """The textbook loop: draw queries, take the mean, repeat."""
    differences = scores[pair[0]] - scores[pair[1]]
    n = len(differences)
    generator = np.random.default_rng((seed, *pair))
    means = np.array([differences[generator.integers(0, n, n)].mean() for _ in range(n_resamples)])
    return percentile_interval(means, level=LEVEL)


def _timed_loop(
    scores: Array,
    pairs: Sequence[tuple[int, int]],
    indices: Sequence[int],
    *,
    n_resamples: int,
    seed: int,
) -> list[tuple[float, Interval]]:
    """Seconds and interval of each pair among ``indices``."""
    return [
        _timed(partial(_loop, scores, pairs[index], n_resamples, seed=seed)) for index in indices
    ]


def _all_pairs(
    scores: Array, pairs: Sequence[tuple[int, int]], n_resamples: int, *, seed: int
) -> list[Interval]:
    _, means = resampled_means(scores.T, n_resamples=n_resamples, seed=seed)
    return [percentile_interval(means[:, i] - means[:, j], level=LEVEL) for i, j in pairs]


def _deviation(ours: Interval, theirs: Interval, n_resamples: int) -> float:
    """Largest difference of two intervals' ends, in standard errors of their quantiles.

    For a normal distribution with standard deviation s, the 2.5 % quantile of R draws has
    the standard error s sqrt(0.025 · 0.975 / R) / φ(1.96) (Kendall and Stuart 1977, 10.10).
    """
    spread = max((theirs[1] - theirs[0]) / (2 * 1.96), _COARSEST)
    error = spread * np.sqrt(2 * 0.025 * 0.975 / n_resamples) / 0.05845
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / float(error)


def _timed(run: Callable[[], _T]) -> tuple[float, _T]:
    started = time.perf_counter()
    result = run()
    return time.perf_counter() - started, result


def _peak(run: Callable[[], object]) -> float:
    """Peak memory allocated while running, in MiB."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()
