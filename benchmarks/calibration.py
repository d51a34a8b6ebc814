"""Simulated error rates of tests and intervals: how often do they err, where the truth is known?

    python -m benchmarks.calibration --out qwen3nb/analysis/calibration.json    (ten minutes)

Differences are drawn from these data-generating processes:

    search      nDCG-like: the rank of one relevant document, many queries tied
    normal      normally distributed differences
    rare wins   nDCG-like: one of eight queries is won, by a third on average, and none is lost
    accuracy    15 % of the queries are won and 5 % lost, by 1 each
    large wins  under the null hypothesis, 5 % of the queries are won by .95 and the others lost by
                .05; else all of these differences are .05 larger
    noisy wins  the same, with a standard deviation of .01

Scores are drawn from distributions like those of the tasks:

    nDCG@10         a quarter of the queries has 0, a quarter 1
    hard nDCG@10    three quarters have 0
    MRR@10          reciprocal ranks, nearly half of the queries without a hit
    accuracy .9     nine of ten are right
    tied            nineteen of twenty are .5, the others 1
    nearly equal    the same, with a standard deviation of .01 about .5
    two kinds       nine of ten are .9, the others .1
    skewed          beta(.5, 5)
    AP              average precisions, of which a tenth is 0
    V-measure       draws that are close together
    Spearman        similarities of sentence pairs and their ratings, with noise that depends on
                    the rating, and ties
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from scipy.special import ndtr, ndtri

from benchmarks.options import command
from qwen3nb.analysis.calibration import Share
from qwen3nb.analysis.stats.paired_tests import minimum_detectable_effect
from qwen3nb.analysis.stats.resampling import (
    percentile_interval,
    resampled_means,
    sign_flip_p_values,
)
from qwen3nb.analysis.training.interference import DataSetScores, Gate, estimate
from qwen3nb.metrics.aggregate import AGGREGATES
from qwen3nb.metrics.intervals import (
    INTERVALS,
    Array,
    Interval,
    correlation_interval,
    difference_intervals,
    mean_interval,
    student_interval,
    within,
)
from qwen3nb.utils.atomic_files import write_json
from qwen3nb.utils.markdown import markdown_table

SIZES = (10, 20, 50, 200, 1000)
SCORE_SIZES = (10, 20, 50, 200)
FEW_SIZES = (3, 5, 10, 20, 50, 200)
ALPHA = 0.05
TRUE_TIR = 0.03
_BATCH = 100  # simulations that share one set of draws
_LARGE = 1_000_000  # draws by which the true value is computed
_GAINS = np.array([0.0, *(1 / np.log2(np.arange(11, 1, -1)))])
_TIED = 0.4
_EXPECTED = {"false positives": ALPHA, "false equivalence": ALPHA, "power": 0.8}


def simulate(*, seed: int = 0, simulations: int = 0, out: str = "") -> list[Share]:
    """Run all simulations, about ten minutes.

    Args:
        seed: of the simulations.
        simulations: how many of each kind; 0 for as many as the methods page shows.
        out: file to write the shares to.
    """
    size: dict[str, Any] = {"simulations": simulations} if simulations else {}
    shares = [*calibrate(seed=seed, **size), *calibrate_equivalence(seed=seed, **size)]
    shares += calibrate_scores(seed=seed, **size)
    for noise in (0.1, 0.01):
        shares += calibrate_seeds(noise=noise, seed=seed, **size)
    if out:
        content = {"seed": seed, "shares": [asdict(share) for share in shares]}
        write_json(Path(out), content, indent=None)
    return shares


def table(shares: Sequence[Share]) -> str:
    """Format shares as a Markdown table."""
    heads = ("method", "what", "process", "n", "measured", "expected", "verdict")
    rows = [
        (
            share.method,
            share.kind,
            share.process,
            share.n,
            f"{share.share:.4f}",
            f"{share.expected:g} [{share.low:.4f}, {share.high:.4f}]",
            share.verdict,
        )
        for share in shares
    ]
    return markdown_table(heads, rows)


def _share(method: str, kind: str, process: str, n: int | str, hits: int, total: int) -> Share:
    expected = _EXPECTED.get(kind, 1 - ALPHA)
    low, high = (float(end / total) for end in stats.binom.interval(0.99, total, expected))
    return Share(method, kind, process, str(n), total, hits / total, expected, low, high)


def _holds(ends: Interval | None, truth: float) -> bool:
    """Whether an interval contains the true value, to rounding."""
    return ends is not None and ends[0] - 1e-9 <= truth <= ends[1] + 1e-9


def bca_interval(means: Array, values: Array, *, observed: float, level: float) -> Interval | None:
    """Bias-corrected and accelerated interval of a mean (Efron 1987; E&T 1993, 14.3).

    Args:
        means: resampled means (R,).
        values: the sample (n,); for a mean, the jackknife's acceleration is
            ``sum(v³) / (6 sum(v²)^1.5)`` of the centred values v.
        observed: the sample's mean, in the same arithmetic as ``means``.
        level: nominal coverage.

    Returns:
        The interval, or None if all resamples lie on one side of the sample.
    """
    centred = values - values.mean()
    spread = float((centred**2).sum())
    if spread == 0 or np.ptp(means) == 0:
        return percentile_interval(means, level=level)
    below = ((means < observed).mean() + (means <= observed).mean()) / 2
    if not 0 < below < 1:
        return None
    bias = ndtri(below)
    acceleration = (centred**3).sum() / (6 * spread**1.5)
    z = bias + ndtri(np.array([(1 - level) / 2, (1 + level) / 2]))
    low, high = np.quantile(means, ndtr(bias + z / (1 - acceleration * z)))
    return float(low), float(high)


def _search(generator: np.random.Generator, n: int, count: int, shift: bool) -> tuple[Array, float]:
    """Differences (n, count) of gains at the rank of one relevant document."""
    # Probabilities of ranks 1 to 10 and of no hit: decreasing, more steeply for the better one.
    weights = [np.append(steep, np.geomspace(0.05, 0.3, 10)) for steep in (0.5, 0.3)]
    chances = [each / each.sum() for each in weights]
    first, second = (chances[1], chances[0]) if shift else (chances[0], chances[0])
    a, b = (
        _GAINS[np.searchsorted(np.cumsum(p)[:-1], generator.random((n, count)), side="right")]
        for p in (first, second)
    )
    tied = generator.random((n, count)) < _TIED
    truth = (1 - _TIED) * float((first - second) @ _GAINS)
    return np.where(tied, 0.0, a - b), truth


def _normal(generator: np.random.Generator, n: int, count: int, shift: bool) -> tuple[Array, float]:
    truth = 0.1 if shift else 0.0
    return generator.normal(truth, 0.3, size=(n, count)), truth


def _rare(generator: np.random.Generator, n: int, count: int, shift: bool) -> tuple[Array, float]:
    shape = (n, count)
    sizes = np.where(generator.random(shape) < 1 / 8, generator.beta(1, 2, shape), 0.0)
    if shift:
        return sizes, 1 / 24
    return np.where(generator.random(shape) < 0.5, sizes, -sizes), 0.0


def _accuracy(
    generator: np.random.Generator, n: int, count: int, shift: bool
) -> tuple[Array, float]:
    won = 0.15 if shift else 0.1
    drawn = generator.random((n, count))
    return np.where(drawn < won, 1.0, np.where(drawn < 0.2, -1.0, 0.0)), 2 * won - 0.2


def _large_wins(
    generator: np.random.Generator, n: int, count: int, shift: bool, *, noise: float = 0.0
) -> tuple[Array, float]:
    truth = 0.05 if shift else 0.0
    wins = np.where(generator.random((n, count)) < 0.05, 0.95, -0.05)
    return wins + truth + (generator.normal(0, noise, (n, count)) if noise else 0.0), truth


Process = Callable[[np.random.Generator, int, int, bool], tuple[Array, float]]
PROCESSES: dict[str, Process] = {
    "search": _search,
    "normal": _normal,
    "rare wins": _rare,
    "accuracy": _accuracy,
    "large wins": _large_wins,
    "noisy wins": partial(_large_wins, noise=0.01),
}


def calibrate(
    *,
    sizes: Sequence[int] = SIZES,
    simulations: int = 10_000,
    n_resamples: int = 2000,
    seed: int,
) -> list[Share]:
    """False positives, coverage and power, per process and number of queries."""
    shares, batches = [], -(-simulations // _BATCH)
    for index, (process, draw) in enumerate(PROCESSES.items()):
        for n in sizes:
            generator = np.random.default_rng((seed, index, n))
            hits: Counter[tuple[str, str]] = Counter()
            for batch in range(batches):
                for key, count in _batch(draw, n, n_resamples, generator, (seed, index, n, batch)):
                    hits[key] += count
            shares += [
                _share(method, kind, process, n, count, batches * _BATCH)
                for (kind, method), count in hits.items()
            ]
    return shares


def _batch(
    draw: Process, n: int, n_resamples: int, generator: np.random.Generator, seed: Sequence[int]
) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield the number of hits of each method in `_BATCH` simulations."""
    null, _ = draw(generator, n, _BATCH, False)
    columns = np.concatenate([null, np.zeros((n, 1))], axis=1)
    pairs = [(i, _BATCH) for i in range(_BATCH)]
    p_values = sign_flip_p_values(columns, pairs, n_resamples=n_resamples, seed=seed)
    yield ("false positives", "permutation test"), int((np.array(p_values) < ALPHA).sum())
    varied = null[:, np.ptp(null, axis=0) > 0]
    t_p = stats.ttest_1samp(varied, 0.0).pvalue if varied.size else np.ones(0)
    yield ("false positives", "t-test"), int((t_p < ALPHA).sum())

    shifted, truth = draw(generator, n, _BATCH, True)
    observed, means = resampled_means(shifted, n_resamples=n_resamples, seed=seed)
    level = 1 - ALPHA
    rows = list(zip(shifted.T, means.T, observed.tolist(), strict=True))
    intervals: dict[str, Iterable[Interval | None]] = {
        INTERVALS["widened"]: difference_intervals(shifted.T, level=level),
        INTERVALS["student"]: (student_interval(row, level=level) for row, _, _ in rows),
        INTERVALS["percentile"]: (percentile_interval(drawn, level=level) for _, drawn, _ in rows),
        "BCa bootstrap": (bca_interval(m, row, observed=o, level=level) for row, m, o in rows),
    }
    for method, each in intervals.items():
        yield ("coverage", method), sum(_holds(ends, truth) for ends in each)
    if draw is _normal:
        unit = np.tile([-1.0, 1.0], -(-n // 2))[:n]
        unit = (unit - unit.mean()) / unit.std(ddof=1)
        effect = minimum_detectable_effect(unit, np.zeros(n)) or 0.0
        sample = generator.normal(effect, 1.0, size=(n, _BATCH))
        detected = stats.ttest_1samp(sample, 0.0).pvalue < ALPHA
        yield ("power", "minimum detectable effect"), int(detected.sum())


def calibrate_equivalence(
    *, sizes: Sequence[int] = FEW_SIZES, simulations: int = 10_000, seed: int
) -> list[Share]:
    """How often two systems are called equivalent whose true difference is the margin.

    By the interval that is shown, and by two one-sided t-tests.
    """
    shares = []
    for index, (process, draw) in enumerate(PROCESSES.items()):
        for n in sizes:
            generator = np.random.default_rng((seed, index, n, 1))
            sample, truth = draw(generator, n, simulations, True)
            margin = truth * (1 - 1e-9)
            shown = sum(within(e, margin) for e in difference_intervals(sample.T, level=1 - ALPHA))
            half = stats.t.ppf(1 - ALPHA, n - 1) * sample.std(axis=0, ddof=1) / np.sqrt(n)
            tests = int((half < margin - np.abs(sample.mean(axis=0))).sum())
            for method, hits in ((INTERVALS["widened"], shown), ("two one-sided t-tests", tests)):
                shares.append(_share(method, "false equivalence", process, n, hits, simulations))
    return shares


def _ndcg(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    share = generator.random(shape)
    return np.where(share < 0.25, 0, np.where(share < 0.5, 1, generator.beta(1.2, 1.2, shape)))


def _hard_ndcg(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    share = generator.random(shape)
    return np.where(share < 0.75, 0, np.where(share < 0.8, 1, generator.beta(1, 2, shape)))


def _mrr(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    rank = generator.geometric(0.25, shape)
    return np.where((rank > 10) | (generator.random(shape) < 0.4), 0, 1 / rank)


SCORES: dict[str, Callable[[np.random.Generator, tuple[int, ...]], Array]] = {
    "nDCG@10": _ndcg,
    "hard nDCG@10": _hard_ndcg,
    "MRR@10": _mrr,
    "accuracy .9": lambda draw, shape: np.where(draw.random(shape) < 0.9, 1.0, 0.0),
    "tied": lambda draw, shape: np.where(draw.random(shape) < 0.05, 1.0, 0.5),
    "nearly equal": lambda draw, shape: np.where(
        draw.random(shape) < 0.05, 1.0, draw.normal(0.5, 0.01, shape)
    ),
    "two kinds": lambda draw, shape: np.where(draw.random(shape) < 0.1, 0.1, 0.9),
    "skewed": lambda draw, shape: draw.beta(0.5, 5, shape),
    "AP": lambda draw, shape: np.where(draw.random(shape) < 0.1, 0.0, draw.beta(0.6, 1.5, shape)),
    "V-measure": lambda draw, shape: np.clip(draw.normal(0.45, 0.02, shape), 0, 1),
}


def calibrate_scores(
    *,
    sizes: Sequence[int] = SCORE_SIZES,
    simulations: int = 4000,
    n_resamples: int = 2000,
    seed: int,
) -> list[Share]:
    """Coverage of the intervals of scores, per distribution and number of queries.

    ``simulations`` is rounded up to whole batches; correlations take a quarter.
    """
    shares, batches = [], -(-simulations // _BATCH)
    for index, (process, draw) in enumerate(SCORES.items()):
        truth = float(draw(np.random.default_rng((seed, index)), (_LARGE,)).mean())
        for n in sizes:
            generator = np.random.default_rng((seed, index, n))
            hits: Counter[str] = Counter()
            for batch in range(batches):
                values = draw(generator, (n, _BATCH))
                drawn_by = (seed, index, n, batch)
                _, means = resampled_means(values, n_resamples=n_resamples, seed=drawn_by)
                for column, drawn in zip(values.T, means.T, strict=True):
                    if process != "V-measure":  # whose draws lack no rare queries
                        hits["widened"] += _holds(mean_interval(column, level=0.95)[1], truth)
                    hits["student"] += _holds(student_interval(column, level=0.95), truth)
                    hits["percentile"] += _holds(percentile_interval(drawn, level=0.95), truth)
            total = batches * _BATCH
            shares += [
                _share(INTERVALS[method], "score coverage", process, n, held, total)
                for method, held in hits.items()
            ]
    a, b = _ratings(np.random.default_rng((seed, 99)), _LARGE)
    truth = float(np.corrcoef(stats.rankdata(a), stats.rankdata(b))[0, 1])
    for n in sizes:
        generator, total = np.random.default_rng((seed, 99, n)), batches * _BATCH // 4
        hits = Counter()
        for _ in range(total):
            first, second = _ratings(generator, n)
            picks = generator.integers(0, n, size=(n_resamples // 4, n))
            drawn = AGGREGATES["spearman"](np.stack([first[picks], second[picks]], axis=-1))
            ends = correlation_interval(first, second, how="spearman", level=0.95)
            hits["fisher"] += _holds(ends, truth)
            fine = percentile_interval(drawn[np.isfinite(drawn)], level=0.95)
            hits["percentile"] += _holds(fine, truth)
        shares += [
            _share(INTERVALS[method], "score coverage", "Spearman", n, held, total)
            for method, held in hits.items()
        ]
    return shares


def _ratings(generator: np.random.Generator, n: int) -> tuple[Array, Array]:
    """Similarities (n,) and ratings from 0 to 5 in halves."""
    rating = generator.beta(1.2, 1, n)
    similarity = 0.4 + 0.5 * rating**1.5 + generator.normal(0, 0.12, n) * (1.3 - rating)
    return similarity, np.round(10 * rating) / 2


def calibrate_seeds(
    *,
    seeds: Sequence[int] = (1, 2, 3, 5, 9),
    queries: int = 300,
    noise: float = 0.1,
    simulations: int = 2000,
    seed: int,
) -> list[Share]:
    """Coverage of the TIR's interval over seeds and queries, per number of seeds.

    A score is the sum of the query's difficulty, the seed's effect on the system (standard
    deviation 0.01) and noise (standard deviation ``noise``); the true TIR is 0.03. With little
    noise, most of the variance is between seeds, and a few seeds estimate it poorly.
    """
    shares, batches = [], -(-simulations // _BATCH)
    names = tuple(map(str, range(queries)))
    for count in seeds:
        generator, hits = np.random.default_rng((seed, count)), 0
        for _ in range(batches):
            for scores in np.moveaxis(_trainings(generator, count, queries, noise), -1, 0):
                data = DataSetScores(scores.mean(axis=0), (names, scores))
                one = estimate("simulated", range(count), [data], gate=Gate()).estimate
                low, high = one.interval or (1.0, 1.0)
                hits += low <= TRUE_TIR <= high
        process, size = f"noise {noise:g}", f"{count} x {queries}"
        method, total = "TIR over seeds and queries", batches * _BATCH
        shares.append(_share(method, "coverage", process, size, hits, total))
    return shares


def _trainings(generator: np.random.Generator, seeds: int, queries: int, spread: float) -> Array:
    """Simulate scores (queries, 2, seeds, batch) of specialist and joint runs."""
    shape = (2, seeds, _BATCH)
    level = np.array([0.5, 0.5 * (1 - TRUE_TIR)])[:, None, None]
    difficulty = generator.normal(0, 0.3, size=(queries, 1, 1, _BATCH))
    effect = generator.normal(0, 0.01, size=shape)
    noise = generator.normal(0, spread, size=(queries, *shape))
    scores: Array = level + effect + difficulty + noise
    return scores


if __name__ == "__main__":
    command(simulate, table)
