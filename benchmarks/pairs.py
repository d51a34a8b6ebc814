"""What do shared draws gain, for all pairs of many systems? And closed-form intervals?

    python -m benchmarks.pairs --systems 10 --tasks 20 --queries 6980

All pairs are compared with one set of draws per task, and with a numpy loop pair by pair, timed on
a few pairs before, between and after the others and extrapolated. The loop computes percentile
intervals only; `paired_differences` has those of `difference_interval`, and adds the permutation
test and Holm's correction. Then the interval of one score and one difference is timed. No simple
limit: random draws, counting and sorting.
"""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from benchmarks.options import command
from qwen3nb.analysis.comparison.differences import corrected, paired_differences
from qwen3nb.analysis.stats.resampling import percentile_interval, resampled_means
from qwen3nb.analysis.stats.score_matrix import ScoreMatrix
from qwen3nb.bench.harness import table, timed
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.metrics.intervals import Array, Interval, difference_interval

LEVEL = 0.95
_COARSEST = 2.0**-52


@dataclass(frozen=True)
class PairsTiming:
    """One method of comparing all pairs."""

    what: str
    pairs: int  # number of comparisons: pairs of systems times tasks
    seconds: float  # for all of them; extrapolated if ``measured`` is smaller
    measured: int  # comparisons that were run
    ratio: float  # speed relative to the loop
    peak_mib: float  # peak memory allocated in addition to the scores of a task, in MiB
    # largest difference of an interval's end from the loop's, in standard errors of the
    # resampling; NaN for the loop itself
    deviation: float


@dataclass(frozen=True)
class StatisticsBench:
    """Methods of comparing all pairs, and seconds of the intervals shown."""

    pairs: tuple[PairsTiming, ...]
    intervals: dict[str, float]

    def table(self) -> str:
        """The timings as plain text."""
        rows = [
            {
                "method": each.what,
                "comparisons": f"{each.pairs:,}",
                "run": f"{each.measured:,}",
                "seconds": f"{each.seconds:.1f}",
                "times faster": f"{each.ratio:.1f}",
                "peak MiB": f"{each.peak_mib:.0f}",
                "deviation, s.e.": f"{each.deviation:.1f}",
            }
            for each in self.pairs
        ]
        intervals = [
            {"interval of a": what, "ms": f"{1000 * seconds:.2f}"}
            for what, seconds in self.intervals.items()
        ]
        return table(rows=rows, notes=["", table(rows=intervals)])


def bench_statistics(
    *,
    systems: int = 10,
    tasks: int = 20,
    queries: int = 6980,
    resamples: int = 10_000,
    loop_pairs: int = 6,
    seed: int = 0,
) -> StatisticsBench:
    """Time both methods on synthetic scores, and the intervals."""
    matrices = [_scores(systems, queries, seed=seed + task) for task in range(tasks)]
    first = matrices[0]
    pairs = list(itertools.combinations(range(systems), 2))
    drawn = np.random.default_rng(seed).integers(0, len(pairs), loop_pairs).tolist()
    looped: dict[int, tuple[Interval, float]] = {}

    def loop(part: int) -> None:
        for number in range(part, loop_pairs, 3):
            run = partial(_loop, first.scores, pairs[drawn[number]], resamples, seed=seed)
            ends, took = timed(run)
            looped[number] = ends, took.seconds

    def block(scores: Array) -> list[Interval]:
        return _all_pairs(scores, pairs, resamples, seed=seed)

    def full(given: Sequence[ScoreMatrix]) -> object:
        run = partial(paired_differences, draws=resamples, seed=seed)
        return corrected([each for matrix in given for each in run(matrix)])

    loop(0)
    ends, block_took = timed(lambda: [block(each.scores) for each in matrices])
    loop(1)
    _, full_took = timed(lambda: full(matrices))
    loop(2)
    total = len(pairs) * tasks
    seconds = sum(each for _, each in looped.values()) / loop_pairs * total
    deviation = max(
        _deviation(ends[0][drawn[number]], theirs, resamples)
        for number, (theirs, _) in looped.items()
    )
    one = partial(_loop, first.scores, pairs[0], min(resamples, 1000), seed=seed)
    nan = float("nan")
    rows: list[tuple[str, float, int, Callable[[], object], float]] = [
        ("numpy loop, pair by pair", seconds, loop_pairs, one, nan),
        (
            "all pairs from one set of draws",
            block_took.seconds,
            total,
            lambda: block(first.scores),
            deviation,
        ),
        (
            "intervals shown, permutation tests, Holm",
            full_took.seconds,
            total,
            lambda: full([first]),
            nan,
        ),
    ]
    return StatisticsBench(
        tuple(
            PairsTiming(what, total, took, measured, seconds / took, _peak(work), compared)
            for what, took, measured, work, compared in rows
        ),
        time_intervals(queries=queries, seed=seed),
    )


def time_intervals(*, queries: int, repeats: int = 5, seed: int = 0) -> dict[str, float]:
    """Seconds of the interval of a statistic, as it is shown."""
    scores = _scores(2, queries, seed=seed).scores
    columns = {
        name: dict(zip(map(str, range(queries)), values.tolist(), strict=True))
        for name, values in zip("ab", scores, strict=True)
    }
    calls: dict[str, Callable[[], object]] = {
        "mean of scores": partial(aggregate, columns, how="mean", columns=["a"]),
        "Spearman correlation": partial(aggregate, columns, how="spearman", columns=["a", "b"]),
        "paired difference": partial(difference_interval, scores[0] - scores[1], level=LEVEL),
    }
    return {
        what: min(timed(shown)[1].seconds for _ in range(repeats)) for what, shown in calls.items()
    }


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


def _loop(scores: Array, pair: tuple[int, int], resamples: int, *, seed: int) -> Interval:
    """The textbook loop: draw queries, take the mean, repeat."""
    differences = scores[pair[0]] - scores[pair[1]]
    n, generator = len(differences), np.random.default_rng((seed, *pair))
    means = np.array([differences[generator.integers(0, n, n)].mean() for _ in range(resamples)])
    return percentile_interval(means, level=LEVEL)


def _all_pairs(
    scores: Array, pairs: Sequence[tuple[int, int]], resamples: int, *, seed: int
) -> list[Interval]:
    _, means = resampled_means(scores.T, n_resamples=resamples, seed=seed)
    return [percentile_interval(means[:, i] - means[:, j], level=LEVEL) for i, j in pairs]


def _deviation(ours: Interval, theirs: Interval, resamples: int) -> float:
    """Largest difference of two intervals' ends, in standard errors of their quantiles.

    For a normal distribution with standard deviation s, the 2.5 % quantile of R draws has
    the standard error s sqrt(0.025 · 0.975 / R) / φ(1.96) (Kendall and Stuart 1977, 10.10).
    """
    spread = max((theirs[1] - theirs[0]) / (2 * 1.96), _COARSEST)
    error = spread * np.sqrt(2 * 0.025 * 0.975 / resamples) / 0.05845
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / float(error)


def _peak(run: Callable[[], object]) -> float:
    """Peak memory allocated while running, in MiB."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


if __name__ == "__main__":
    command(bench_statistics, StatisticsBench.table)
