"""Simulated false-positive rates, coverage and power of the tests and intervals.

Differences are drawn in worlds in which the truth is known:

    search      nDCG-like: the rank of one relevant document, many queries tied
    normal      normally distributed differences
    rare wins   nDCG-like: one of eight queries is won, by a third on average, and none is lost
    accuracy    15 % of the queries are won and 5 % lost, by 1 each
    large wins  under the null hypothesis, 5 % of the queries are won by .95 and the others lost by
                .05; else all of these differences are .05 larger
    noisy wins  the same, with a standard deviation of .01

and the intervals of scores in those of `qwen3nb.analysis.calibration.coverage`.

Under the null hypothesis, 0.05 of the p-values should be below 0.05; intervals of level 0.95
should contain the true difference in 0.95 of the cases. Each measured share comes with the
range in which the share of an exact method falls with probability 0.99, given the number of
simulations.

The shares of the last full run are stored in ``calibration.json`` (`read_calibration`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from qwen3nb.analysis.calibration.coverage import holds, score_coverage
from qwen3nb.analysis.stats.paired_tests import minimum_detectable_effect
from qwen3nb.analysis.stats.resampling import (
    bca_interval,
    percentile_interval,
    resampled_means,
    sign_flip_extremes,
)
from qwen3nb.analysis.training.tir_estimate import Gate, estimate
from qwen3nb.metrics.intervals import (
    INTERVALS,
    Array,
    Interval,
    difference_intervals,
    student_interval,
    within,
)
from qwen3nb.utils.atomic_files import read_json, write_json
from qwen3nb.utils.markdown import markdown_table

__all__ = [
    "STORED",
    "Share",
    "calibrate",
    "calibrate_equivalence",
    "calibrate_scores",
    "calibrate_seeds",
    "calibration_markdown",
    "read_calibration",
    "simulate",
]

STORED = Path(__file__).with_name("calibration.json")
SIZES = (10, 20, 50, 200, 1000)
SCORE_SIZES = (10, 20, 50, 200)
FEW_SIZES = (3, 5, 10, 20, 50, 200)
ALPHA = 0.05
_BATCH = 100  # simulations that share one set of draws
_GAINS = np.array([0.0, *(1 / np.log2(np.arange(11, 1, -1)))])
_TIED = 0.4


@dataclass(frozen=True)
class Share:
    """One measured share.

    Attributes:
        method: the test or interval that is simulated.
        kind: ``false positives``, ``false equivalence``, ``coverage`` (of differences), ``score
            coverage`` or ``power``.
        world: the distribution the data are drawn from.
        n: number of queries, or ``seeds x queries``.
        simulations: number of simulations.
        share: the measured share.
        expected: the share of an exact method.
        low: with probability 0.99, the share of an exact method lies between this and
            ``high``.
    """

    method: str
    kind: str
    world: str
    n: str
    simulations: int
    share: float
    expected: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """``holds``, ``cautious`` (fewer errors than nominal) or ``too bold`` (more)."""
        if self.low <= self.share <= self.high:
            return "holds"
        cautious = (
            self.share < self.low if self.kind.startswith("false") else self.share > self.high
        )
        return "cautious" if cautious else "too bold"


def calibrate(
    *,
    sizes: Sequence[int] = SIZES,
    simulations: int = 10_000,
    n_resamples: int = 2000,
    seed: int,
) -> list[Share]:
    """False positives, coverage and power, per world and number of queries."""
    shares = []
    for index, (world, draw) in enumerate(_WORLDS.items()):
        for n in sizes:
            generator = np.random.default_rng((seed, index, n))
            counts: dict[tuple[str, str], int] = {}
            for batch in range(-(-simulations // _BATCH)):
                drawn_by = (seed, index, n, batch)
                for key, hits in _batch(draw, n, n_resamples, generator, drawn_by):
                    counts[key] = counts.get(key, 0) + hits
            total = -(-simulations // _BATCH) * _BATCH
            shares += [
                _share(method, kind, world, str(n), hits, total)
                for (kind, method), hits in counts.items()
            ]
    return shares


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
    differences = np.where(drawn < won, 1.0, np.where(drawn < 0.2, -1.0, 0.0))
    return differences, 2 * won - 0.2


def _large_wins(
    generator: np.random.Generator, n: int, count: int, shift: bool, *, noise: float = 0.0
) -> tuple[Array, float]:
    truth = 0.05 if shift else 0.0
    wins = np.where(generator.random((n, count)) < 0.05, 0.95, -0.05)
    return wins + truth + (generator.normal(0, noise, (n, count)) if noise else 0.0), truth


_World = Callable[[np.random.Generator, int, int, bool], tuple[Array, float]]
_WORLDS: dict[str, _World] = {
    "search": _search,
    "normal": _normal,
    "rare wins": _rare,
    "accuracy": _accuracy,
    "large wins": _large_wins,
    "noisy wins": partial(_large_wins, noise=0.01),
}


def _batch(
    draw: _World, n: int, n_resamples: int, generator: np.random.Generator, drawn_by: Sequence[int]
) -> Iterator[tuple[tuple[str, str], int]]:
    """Yield the number of hits of each method in `_BATCH` simulations."""
    null, _ = draw(generator, n, _BATCH, False)
    columns = np.concatenate([null, np.zeros((n, 1))], axis=1)
    extremes = sign_flip_extremes(
        columns, [(i, _BATCH) for i in range(_BATCH)], n_resamples=n_resamples, seed=drawn_by
    )
    p_values = (np.array(extremes) + 1) / (n_resamples + 1)
    yield ("false positives", "permutation test"), int((p_values < ALPHA).sum())
    varied = null[:, np.ptp(null, axis=0) > 0]
    t_p = stats.ttest_1samp(varied, 0.0).pvalue if varied.size else np.ones(0)
    yield ("false positives", "t-test"), int((t_p < ALPHA).sum())

    shifted, truth = draw(generator, n, _BATCH, True)
    observed, means = resampled_means(shifted, n_resamples=n_resamples, seed=drawn_by)
    level = 1 - ALPHA
    rows = list(zip(shifted.T, means.T, observed.tolist(), strict=True))
    intervals: dict[str, Iterable[Interval | None]] = {
        INTERVALS["widened"]: difference_intervals(shifted.T, level=level),
        INTERVALS["student"]: (student_interval(row, level=level) for row, _, _ in rows),
        INTERVALS["percentile"]: (percentile_interval(drawn, level=level) for _, drawn, _ in rows),
        "BCa bootstrap": (bca_interval(m, row, observed=o, level=level) for row, m, o in rows),
    }
    for method, each in intervals.items():
        yield ("coverage", method), sum(holds(ends, truth) for ends in each)
    if draw is _normal:
        yield ("power", "minimum detectable effect"), _detected(generator, n)


def _detected(generator: np.random.Generator, n: int) -> int:
    """Count the samples in which the t-test detects the minimum detectable effect."""
    unit = np.tile([-1.0, 1.0], -(-n // 2))[:n]
    unit = (unit - unit.mean()) / unit.std(ddof=1)
    effect = minimum_detectable_effect(unit, np.zeros(n)) or 0.0
    sample = generator.normal(effect, 1.0, size=(n, _BATCH))
    return int((stats.ttest_1samp(sample, 0.0).pvalue < ALPHA).sum())


def calibrate_equivalence(
    *, sizes: Sequence[int] = FEW_SIZES, simulations: int = 10_000, seed: int
) -> list[Share]:
    """How often two systems are called equivalent whose true difference is the margin.

    By the interval that is shown, and by two one-sided t-tests.
    """
    shares = []
    for index, (world, draw) in enumerate(_WORLDS.items()):
        for n in sizes:
            generator = np.random.default_rng((seed, index, n, 1))
            sample, truth = draw(generator, n, simulations, True)
            margin = truth * (1 - 1e-9)
            shown = sum(within(e, margin) for e in difference_intervals(sample.T, level=1 - ALPHA))
            half = stats.t.ppf(1 - ALPHA, n - 1) * sample.std(axis=0, ddof=1) / np.sqrt(n)
            tests = int((half < margin - np.abs(sample.mean(axis=0))).sum())
            for method, hits in ((INTERVALS["widened"], shown), ("two one-sided t-tests", tests)):
                shares.append(_share(method, "false equivalence", world, str(n), hits, simulations))
    return shares


def calibrate_scores(
    *,
    sizes: Sequence[int] = SCORE_SIZES,
    simulations: int = 4000,
    n_resamples: int = 2000,
    seed: int,
) -> list[Share]:
    """Coverage of the intervals of scores, per distribution and number of queries."""
    hits = score_coverage(sizes=sizes, simulations=simulations, n_resamples=n_resamples, seed=seed)
    return [
        _share(method, "score coverage", world, str(n), held, total)
        for method, world, n, held, total in hits
    ]


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
    shares = []
    world = f"noise {noise:g}"
    total = -(-simulations // _BATCH) * _BATCH
    for count in seeds:
        generator = np.random.default_rng((seed, count))
        hits = 0
        for _ in range(total // _BATCH):
            hits += _held(_trainings(generator, count, queries, noise))
        size = f"{count} x {queries}"
        shares.append(_share("TIR over seeds and queries", "coverage", world, size, hits, total))
    return shares


def _held(values: Array) -> int:
    """Count the intervals of a batch that contain the true TIR."""
    queries, _, seeds, _ = values.shape
    names = tuple(map(str, range(queries)))
    hits = 0
    for scores in np.moveaxis(values, -1, 0):
        measured = estimate(
            "simulated",
            range(seeds),
            scores.mean(axis=0),
            [(names, scores)],
            gate=Gate(),
            level=1 - ALPHA,
        )
        low, high = measured.estimate.interval or (1.0, 1.0)
        hits += low <= _TRUE_TIR <= high
    return hits


_TRUE_TIR = 0.03
_MEAN = 0.5


def _trainings(generator: np.random.Generator, seeds: int, queries: int, spread: float) -> Array:
    """Simulate scores (queries, 2, seeds, batch) of specialist and joint runs."""
    shape = (2, seeds, _BATCH)
    level = np.array([_MEAN, _MEAN * (1 - _TRUE_TIR)])[:, None, None]
    difficulty = generator.normal(0, 0.3, size=(queries, 1, 1, _BATCH))
    effect = generator.normal(0, 0.01, size=shape)
    noise = generator.normal(0, spread, size=(queries, *shape))
    scores: Array = level + effect + difficulty + noise
    return scores


def _share(method: str, kind: str, world: str, n: str, hits: int, total: int) -> Share:
    expected = {"false positives": ALPHA, "false equivalence": ALPHA, "power": 0.8}.get(
        kind, 1 - ALPHA
    )
    low, high = stats.binom.interval(0.99, total, expected)
    return Share(
        method, kind, world, n, total, hits / total, expected, float(low / total),
        float(high / total),
    )  # fmt: skip


def simulate(*, seed: int = 0, simulations: int = 0, output: Path | None = None) -> list[Share]:
    """Run all simulations, about ten minutes.

    Args:
        seed: of the simulations.
        simulations: how many of each kind; 0 for as many as the methods page shows.
        output: file to write the shares to.
    """
    size: dict[str, Any] = {"simulations": simulations} if simulations else {}
    shares = [*calibrate(seed=seed, **size), *calibrate_equivalence(seed=seed, **size)]
    shares += calibrate_scores(seed=seed, **size)
    for noise in (0.1, 0.01):
        shares += calibrate_seeds(noise=noise, seed=seed, **size)
    if output is not None:
        write_json(
            output, {"seed": seed, "shares": [asdict(share) for share in shares]}, indent=None
        )
    return shares


def read_calibration(file: Path = STORED) -> list[Share]:
    """Read the shares of the last full run."""
    return [Share(**each) for each in read_json(file)["shares"]]


def calibration_markdown(shares: Sequence[Share]) -> str:
    """Format shares as a Markdown table."""
    heads = ("method", "what", "world", "n", "measured", "expected", "verdict")
    rows = [
        (
            share.method,
            share.kind,
            share.world,
            share.n,
            f"{share.share:.4f}",
            f"{share.expected:g} [{share.low:.4f}, {share.high:.4f}]",
            share.verdict,
        )
        for share in shares
    ]
    return markdown_table(heads, rows)
