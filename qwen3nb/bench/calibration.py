"""Error rates of tests and intervals, simulated where the truth is known.

Scores of two systems are drawn from these populations, without a true difference and with one:

    search      nDCG-like: the rank of one relevant document, many queries tied
    normal      normally distributed differences
    rare wins   nDCG-like: one of eight queries is won, by a third on average, and none is lost
    accuracy    15 % of the queries are won and 5 % lost, by 1 each
    large wins  under the null hypothesis, 5 % of the queries are won by .95 and the others lost by
                .05; else all of these differences are .05 larger
    noisy wins  the same, with a standard deviation of .01
    PyDocs      fitted to recorded scores (`fitted`): nDCG@10 of bm25, all-MiniLM-L6-v2 and
                wordllama on 200 queries

Scores of one system are drawn from distributions like those of the tasks:

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

Families of eight systems are in `FAMILIES`.
"""

from __future__ import annotations

import importlib
import runpy
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from qwen3nb.analysis.calibration import Share
from qwen3nb.analysis.comparison.alignment import pair_results
from qwen3nb.analysis.stats.paired_tests import benjamini_hochberg, holm, minimum_detectable_effect
from qwen3nb.analysis.stats.resampling import (
    LEVEL,
    max_t_p_values,
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
from qwen3nb.records.store import load_results
from qwen3nb.utils.atomic_files import read_json

SIZES = (10, 20, 50, 200, 1000)
FEW_SIZES = (3, 5, 10, 20, 50, 200)  # of equivalence
SCORE_SIZES = (10, 20, 50, 200)
FAMILY_SIZES = (20, 50, 200)
ALPHA = 0.05  # 1 - LEVEL
SYSTEMS = 8  # of a family; under a partial null, the second half is better than the first
TRUE_TIR = 0.03
FITTED = Path(__file__).with_name("pydocs_scores.json")
_STANDARD_ERRORS = 3.0  # by which it is better
_BATCH = 100  # simulations that share one set of draws
_DRAWS = 2000  # of a permutation test, a bootstrap
_LARGE = 1_000_000  # draws by which the true value is computed
_GAINS = np.array([0.0, *(1 / np.log2(np.arange(11, 1, -1)))])
_TIED = 0.4
_EXPECTED = {"false positives": ALPHA, "false equivalence": ALPHA, "family-wise error": ALPHA}
_EXPECTED |= {"coverage": LEVEL, "score coverage": LEVEL, "detectable effect": 0.8}

# Scores (n, count) of two systems on n queries, and their true difference, in `count` simulations.
Pair = tuple[Array, Array, "Array | float"]
Draw = Callable[[np.random.Generator, int, int, bool], Pair]  # n, count, whether there is one
# P-values (count,) or ends of intervals (count, 2) of such scores, given the seed of its draws.
Method = Callable[[Array, Array, Sequence[int]], Array]


def calibrate(
    function: str = "",
    *,
    sizes: Sequence[int] = (),
    simulations: int = 1000,
    records: Path | None = None,
    seed: int = 0,
) -> list[Share]:
    """Simulate how often tests and intervals err, and how often tests find a difference.

    Args:
        function: ``module:name`` or ``file.py:name`` of a function of two arrays of paired scores
            (n,) that returns a p-value, or an object with ``pvalue``, or the ends of an interval of
            the mean difference at level 0.95. By default all that pages use, which takes twenty
            minutes with the 10,000 simulations of the calibration page.
        sizes: numbers of queries; by default those of the page.
        simulations: number of samples per population and size, in batches of 100; two fifths of it
            for scores, a fifth for families and seeds, a tenth for correlations.
        records: folder of records; each task with two or more systems is a further population.
        seed: of the samples.

    Raises:
        ValueError: a function that is not found, or a result of another kind.
    """
    matrices = {"PyDocs": np.array(read_json(FITTED)["scores"])}
    if records:
        paired, _ = pair_results(load_results(records))
        matrices |= {f"{each.task} {each.metric}": each.scores for each in paired}
    populations = PAIRS | {name: fitted(scores) for name, scores in matrices.items()}
    methods = {function: _of_function(function)} if function else METHODS

    def size(part: float, usual: Sequence[int]) -> dict[str, Any]:
        return {"sizes": sizes or usual, "simulations": round(simulations * part), "seed": seed}

    shares = calibrate_pairs(methods, populations, **size(1, SIZES))
    if not function:
        shares += calibrate_equivalence(**size(1, FEW_SIZES))
        shares += calibrate_scores(**size(0.4, SCORE_SIZES))
        for noise in (0.1, 0.01):
            shares += calibrate_seeds(noise=noise, simulations=round(simulations / 5), seed=seed)
        families = FAMILIES | {name: _exchanged(scores) for name, scores in matrices.items()}
        shares += calibrate_families(families, **size(0.2, FAMILY_SIZES))
    return shares


def _share(method: str, kind: str, process: str, n: int | str, hits: float, total: int) -> Share:
    expected = _EXPECTED.get(kind)
    ends = stats.binom.interval(0.99, total, expected) if expected else (None, None)
    low, high = (None if end is None else float(end / total) for end in ends)
    kind = kind.replace("detectable effect", "power")
    return Share(method, kind, process, str(n), total, hits / total, expected, low, high)


def _holds(ends: Interval | None, truth: float) -> bool:
    """Whether an interval contains the true value, to rounding."""
    return ends is not None and ends[0] - 1e-9 <= truth <= ends[1] + 1e-9


def _ranks(generator: np.random.Generator, shape: tuple[int, ...], steep: float) -> Array:
    """Gains at ranks 1 to 10, or of no hit: the steeper, the better."""
    gains: Array = _GAINS[
        np.searchsorted(np.cumsum(_chances(steep))[:-1], generator.random(shape), side="right")
    ]
    return gains


def _chances(steep: float) -> Array:
    weights = np.append(steep, np.geomspace(0.05, 0.3, 10))
    return weights / weights.sum()


def _search(generator: np.random.Generator, n: int, count: int, shift: bool) -> Pair:
    steeps = (0.3, 0.5) if shift else (0.5, 0.5)
    a, b = (_ranks(generator, (n, count), steep) for steep in steeps)
    tied = generator.random((n, count)) < _TIED
    truth = (1 - _TIED) * float((_chances(steeps[0]) - _chances(steeps[1])) @ _GAINS)
    return np.where(tied, b, a), b, truth


def _of_differences(values: Array, truth: float) -> Pair:
    """Scores with these differences, exactly; the lower of two is 0."""
    return np.maximum(values, 0.0), np.maximum(-values, 0.0), truth


def _normal(generator: np.random.Generator, n: int, count: int, shift: bool) -> Pair:
    truth = 0.1 if shift else 0.0
    return _of_differences(generator.normal(truth, 0.3, size=(n, count)), truth)


def _rare(generator: np.random.Generator, n: int, count: int, shift: bool) -> Pair:
    shape = (n, count)
    sizes = np.where(generator.random(shape) < 1 / 8, generator.beta(1, 2, shape), 0.0)
    if shift:
        return _of_differences(sizes, 1 / 24)
    return _of_differences(np.where(generator.random(shape) < 0.5, sizes, -sizes), 0.0)


def _accuracy(generator: np.random.Generator, n: int, count: int, shift: bool) -> Pair:
    won = 0.15 if shift else 0.1
    drawn = generator.random((n, count))
    values = np.where(drawn < won, 1.0, np.where(drawn < 0.2, -1.0, 0.0))
    return _of_differences(values, 2 * won - 0.2)


def _large_wins(
    generator: np.random.Generator, n: int, count: int, shift: bool, *, noise: float = 0.0
) -> Pair:
    truth = 0.05 if shift else 0.0
    wins = np.where(generator.random((n, count)) < 0.05, 0.95, -0.05)
    noises = generator.normal(0, noise, (n, count)) if noise else 0.0
    return _of_differences(wins + truth + noises, truth)


PAIRS: dict[str, Draw] = {
    "search": _search,
    "normal": _normal,
    "rare wins": _rare,
    "accuracy": _accuracy,
    "large wins": _large_wins,
    "noisy wins": partial(_large_wins, noise=0.01),
}


def fitted(scores: Array) -> Draw:
    """The population of a score matrix (S systems, N queries): a bootstrap of its queries.

    Each simulation compares two systems at random, the better one first, so that the true
    difference is that of their means. Under the null hypothesis, each query's two scores are
    exchanged with probability 1/2, which makes the differences symmetric about 0 and keeps
    their sizes and ties, and how hard the queries are.
    """
    ordered = scores[np.argsort(-scores.mean(axis=1))]
    pairs = np.array([*combinations(range(len(ordered)), 2)])

    def draw(generator: np.random.Generator, n: int, count: int, shift: bool) -> Pair:
        better, worse = pairs[generator.integers(len(pairs), size=count)].T
        queries = generator.integers(ordered.shape[1], size=(n, count))
        a, b = ordered[better, queries], ordered[worse, queries]
        if shift:
            return a, b, ordered[better].mean(axis=1) - ordered[worse].mean(axis=1)
        swapped = generator.random((n, count)) < 0.5
        return np.where(swapped, b, a), np.where(swapped, a, b), 0.0

    return draw


def _permutation(a: Array, b: Array, seed: Sequence[int]) -> Array:
    columns = np.concatenate([a - b, np.zeros((len(a), 1))], axis=1)
    pairs = [(i, a.shape[1]) for i in range(a.shape[1])]
    return np.array(sign_flip_p_values(columns, pairs, n_resamples=_DRAWS, seed=seed))


def _t_test(a: Array, b: Array, seed: Sequence[int]) -> Array:
    return _p_values(a - b, np.ptp(a - b, axis=0) > 0, partial(stats.ttest_1samp, popmean=0.0))


def _wilcoxon(a: Array, b: Array, seed: Sequence[int]) -> Array:
    """By the normal approximation, with zeros left out: scipy's way with ties."""
    test = partial(stats.wilcoxon, method="asymptotic", axis=0)
    return _p_values(a - b, (a != b).any(axis=0), test)


def _p_values(values: Array, defined: Array, test: Callable[[Array], Any]) -> Array:
    """P-values of columns; 1 where the test is not defined."""
    p_values = np.ones(values.shape[1])
    if defined.any():
        p_values[defined] = test(values[:, defined]).pvalue
    return p_values


def _ends(intervals: Iterable[Interval | None]) -> Array:
    return np.array([ends or (np.nan, np.nan) for ends in intervals])


def _percentile(a: Array, b: Array, seed: Sequence[int]) -> Array:
    _, means = resampled_means(a - b, n_resamples=_DRAWS, seed=seed)
    return _ends(percentile_interval(drawn, level=LEVEL) for drawn in means.T)


METHODS: dict[str, Method] = {
    "permutation test": _permutation,
    "t-test": _t_test,
    "Wilcoxon": _wilcoxon,
    INTERVALS["widened"]: lambda a, b, _: _ends(difference_intervals((a - b).T, level=LEVEL)),
    INTERVALS["student"]: lambda a, b, _: _ends(
        student_interval(row, level=LEVEL) for row in (a - b).T
    ),
    INTERVALS["percentile"]: _percentile,
}


def _of_function(spec: str) -> Method:
    """Import ``module:name`` or ``file.py:name``; of an array per system, it makes a method."""
    home, _, name = spec.rpartition(":")
    try:
        found = (
            runpy.run_path(home) if home.endswith(".py") else vars(importlib.import_module(home))
        )
        function: Callable[[Array, Array], Any] = found[name]
    except (ImportError, OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"no function {spec!r}; expected module:name or file.py:name ({error})"
        ) from error

    def outcome(a: Array, b: Array) -> Any:
        result = function(a, b)
        result = getattr(result, "pvalue", result)
        if np.shape(result) not in {(), (2,)}:
            raise ValueError(
                f"expected a p-value or two ends of {spec}; got shape {np.shape(result)}"
            )
        return result

    def method(a: Array, b: Array, seed: Sequence[int]) -> Array:
        return np.array(
            [outcome(*map(np.copy, pair)) for pair in zip(a.T, b.T, strict=True)], float
        )

    return method


def calibrate_pairs(
    methods: Mapping[str, Method],
    populations: Mapping[str, Draw],
    *,
    sizes: Sequence[int] = SIZES,
    simulations: int = 10_000,
    seed: int,
) -> list[Share]:
    """False positives and power of tests, coverage of intervals, per population and size."""
    shares, batches = [], _batches(simulations)
    for index, (process, draw) in enumerate(populations.items()):
        difference = np.mean(draw(np.random.default_rng((seed, index)), 1, _LARGE // 10, True)[2])
        for n in sizes:
            generator = np.random.default_rng((seed, index, n))
            hits: Counter[tuple[str, str]] = Counter()
            for batch in range(batches):
                null, shifted = (draw(generator, n, _BATCH, shift) for shift in (False, True))
                for name, method in methods.items():
                    result = method(*shifted[:2], (seed, index, n, batch))
                    if result.ndim == 2:
                        held = result[:, 0] - 1e-9 <= shifted[2]
                        held &= shifted[2] <= result[:, 1] + 1e-9
                        hits["coverage", name] += int(held.sum())
                        continue
                    errors = method(*null[:2], (seed, index, n, batch)) < ALPHA
                    hits["false positives", name] += int(errors.sum())
                    hits["power", name] += int((result < ALPHA).sum())
                if process == "normal" and methods is METHODS:
                    hits["detectable effect", "minimum detectable effect"] += _detected(
                        generator, n
                    )
            for (kind, method_name), count in hits.items():
                name = f"{process}, {difference:.3f}" if kind == "power" else process
                shares.append(_share(method_name, kind, name, n, count, batches * _BATCH))
    return shares


def _batches(simulations: int) -> int:
    return max(1, -(-simulations // _BATCH))


def _detected(generator: np.random.Generator, n: int) -> int:
    """How often the t-test detects the minimum detectable effect in a batch."""
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
    for index, (process, draw) in enumerate(PAIRS.items()):
        for n in sizes:
            generator = np.random.default_rng((seed, index, n, 1))
            a, b, truth = draw(generator, n, simulations, True)
            sample, margin = a - b, float(truth) * (1 - 1e-9)
            shown = sum(within(e, margin) for e in difference_intervals(sample.T, level=LEVEL))
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
    seed: int,
) -> list[Share]:
    """Coverage of the intervals of scores, per distribution and number of queries.

    ``simulations`` is rounded up to whole batches; correlations take a quarter.
    """
    shares, batches = [], _batches(simulations)
    for index, (process, draw) in enumerate(SCORES.items()):
        truth = float(draw(np.random.default_rng((seed, index)), (_LARGE,)).mean())
        for n in sizes:
            generator = np.random.default_rng((seed, index, n))
            hits: Counter[str] = Counter()
            for batch in range(batches):
                values = draw(generator, (n, _BATCH))
                drawn_by = (seed, index, n, batch)
                _, means = resampled_means(values, n_resamples=_DRAWS, seed=drawn_by)
                for column, drawn in zip(values.T, means.T, strict=True):
                    if process != "V-measure":  # whose draws lack no rare queries
                        hits["widened"] += _holds(mean_interval(column, level=LEVEL)[1], truth)
                    hits["student"] += _holds(student_interval(column, level=LEVEL), truth)
                    hits["percentile"] += _holds(percentile_interval(drawn, level=LEVEL), truth)
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
            picks = generator.integers(0, n, size=(_DRAWS // 4, n))
            drawn = AGGREGATES["spearman"](np.stack([first[picks], second[picks]], axis=-1))
            ends = correlation_interval(first, second, how="spearman", level=LEVEL)
            hits["fisher"] += _holds(ends, truth)
            fine = percentile_interval(drawn[np.isfinite(drawn)], level=LEVEL)
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
    shares, batches = [], _batches(simulations)
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


def _two_groups(generator: np.random.Generator, rows: int) -> Array:
    groups = generator.normal(size=(rows, 2)).repeat(SYSTEMS // 2, axis=1)
    return groups + generator.normal(0, 0.3, (rows, SYSTEMS))


def _twins(generator: np.random.Generator, rows: int) -> Array:
    systems = generator.normal(size=(rows, SYSTEMS // 2)).repeat(2, axis=1)
    return systems + generator.normal(0, 0.05, (rows, SYSTEMS))


def _tied(generator: np.random.Generator, scores: Array, share: float) -> Array:
    """Give all systems the score of the first on a share of the queries."""
    return np.where(generator.random((len(scores), 1)) < share, scores[:, :1], scores)


def _exchanged(matrix: Array) -> Callable[[np.random.Generator, int], Array]:
    """Each system answers each query as one of a score matrix (S, N), drawn at random."""

    def draw(generator: np.random.Generator, rows: int) -> Array:
        systems = generator.integers(len(matrix), size=(rows, SYSTEMS))
        scores: Array = matrix[systems, generator.integers(matrix.shape[1], size=(rows, 1))]
        return scores

    return draw


# Scores (rows, SYSTEMS) of systems without a true difference, whose differences are symmetric about
# 0, per pair; jointly, but for search and those fitted to records.
FAMILIES: dict[str, Callable[[np.random.Generator, int], Array]] = {
    "search": lambda draw, rows: _tied(draw, _ranks(draw, (rows, SYSTEMS), 0.5), _TIED),
    "normal": lambda draw, rows: draw.normal(size=(rows, SYSTEMS)),
    "rare wins": lambda draw, rows: (
        np.where(draw.random((rows, SYSTEMS)) < 1 / 16, draw.beta(1, 2, (rows, SYSTEMS)), 0.0)
        * draw.choice((-1, 1), size=(rows, SYSTEMS))
    ),
    "accuracy": lambda draw, rows: _tied(draw, np.rint(draw.random((rows, SYSTEMS))), 0.6),
    "correlated": _two_groups,  # the differences between two groups of four are nearly the same
    "twins": _twins,  # four pairs of systems that hardly differ
}


def calibrate_families(
    families: Mapping[str, Callable[[np.random.Generator, int], Array]],
    *,
    sizes: Sequence[int] = FAMILY_SIZES,
    simulations: int = 2000,
    seed: int,
) -> list[Share]:
    """Errors and power of tests of all pairs of eight systems, by correction.

    Under the complete null hypothesis no two systems differ; under the partial one, each of the
    second four is better than each of the first by three standard errors of the difference.
    """
    pairs = [*combinations(range(SYSTEMS), 2)]
    first, second = np.array(pairs).T
    differ = (first < SYSTEMS // 2) & (second >= SYSTEMS // 2)
    shares, total = [], max(1, simulations)
    for index, (process, draw) in enumerate(families.items()):
        large = draw(np.random.default_rng((seed, index)), _LARGE // 10)
        step = _STANDARD_ERRORS * float((large[:, 0] - large[:, -1]).std())
        for n, null in product(sizes, ("complete", "partial")):
            generator = np.random.default_rng((seed, index, n, 2))
            found: defaultdict[str, list[list[float]]] = defaultdict(list)
            for number in range(total):
                scores = draw(generator, n)
                if null == "partial":
                    scores[:, SYSTEMS // 2 :] += step / np.sqrt(n)
                drawn_by = (seed, index, n, number)
                raw, max_t = max_t_p_values(scores, pairs, n_resamples=_DRAWS, seed=drawn_by)
                ranks = _wilcoxon(scores[:, first], scores[:, second], drawn_by)
                found["MaxT"].append(max_t)
                found["Holm"].append(holm(raw))
                found["Wilcoxon, BH"].append(benjamini_hochberg(ranks.tolist()))
            for method, each in found.items():
                rejected = np.array(each) < ALPHA
                errors = rejected & ~differ if null == "partial" else rejected
                hits = {"family-wise error": errors.any(axis=1).sum()}
                if null == "partial":
                    hits["family power"] = rejected[:, differ].mean(axis=1).sum()
                    discoveries = np.maximum(1, rejected.sum(axis=1))
                    hits["false discoveries"] = (errors.sum(axis=1) / discoveries).sum()
                for kind, count in hits.items():
                    name = f"{process}, {null}"
                    shares.append(_share(method, kind, name, n, float(count), total))
    return shares
