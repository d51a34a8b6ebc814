"""Error rates of tests and intervals, simulated where the truth is known.

Scores of two systems are drawn from `PAIRS`, without a true difference and with one, those of one
system from `SCORES`, which are like those of tasks, and those of eight systems from `FAMILIES`. To
pairs and families come populations fitted to recorded scores: nDCG@10 of bm25, all-MiniLM-L6-v2 and
wordllama on 200 queries (PyDocs).
"""

from __future__ import annotations

import importlib
import runpy
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from qwen3nb.analysis.calibration import Share
from qwen3nb.analysis.comparison.alignment import pair_results
from qwen3nb.analysis.stats.multiple_testing import benjamini_hochberg, holm
from qwen3nb.analysis.stats.paired_tests import minimum_detectable_effect
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
SEEDS = (1, 2, 3, 5, 9)
QUERIES = 300  # of each seed
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

Generator = np.random.Generator
Shape = tuple[int, ...]
Pair = tuple[Array, Array, "Array | float"]  # scores of two systems, and their true difference
# Scores of pairs, in the shape (queries, simulations), given whether there is a difference.
Draw = Callable[[Generator, Shape, bool], Pair]
Scores = Callable[[Generator, Shape], Array]
# P-values (count,) or ends of intervals (count, 2) of such scores, given the seed of its draws.
Method = Callable[[Array, Array, Sequence[int]], Array]
# Outcomes of simulations, by method, kind and process.
Outcomes = dict[tuple[str, str, str], Any]


class _Cell(NamedTuple):
    """A population, and how many queries are drawn of it."""

    process: str
    draw: Any
    truth: float
    n: int


# What a batch of simulations comes to, given the seed of its draws.
Measure = Callable[[_Cell, Generator, Sequence[int]], Outcomes]


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
    pairs = PAIRS | {name: fitted(scores) for name, scores in matrices.items()}
    methods = {function: _of_function(function)} if function else METHODS
    run = partial(_simulate, sizes=sizes, seed=seed)
    shares = run(
        partial(_tested, methods),
        pairs,
        SIZES,
        _batches(simulations),
        truth=lambda draw, by: float(np.mean(draw(by, (1, _LARGE // 10), True)[2])),
    )
    if function:
        return shares
    shares += run(partial(_equivalent, simulations), PAIRS, FEW_SIZES, 1, salt=1)
    batches = _batches(round(simulations * 0.4))
    shares += run(
        _covered,
        SCORES,
        SCORE_SIZES,
        batches,
        truth=lambda draw, by: float(draw(by, (_LARGE,)).mean()),
    )
    few = batches * _BATCH // 4
    shares += run(_correlated, {"Spearman": _ratings}, SCORE_SIZES, few, truth=_rho, first=99)
    batches = _batches(round(simulations / 5))
    for noise in (0.1, 0.01):
        shares += _simulate(_trained, {f"noise {noise:g}": noise}, SEEDS, batches, seed=seed)
    families = FAMILIES | {name: _exchanged(scores) for name, scores in matrices.items()}
    simulations = max(1, round(simulations * 0.2))
    return shares + calibrate_families(
        families, sizes=sizes or FAMILY_SIZES, simulations=simulations, seed=seed
    )


def calibrate_families(
    families: Mapping[str, Scores], *, sizes: Sequence[int], simulations: int, seed: int
) -> list[Share]:
    """Errors and power of tests of all pairs of eight systems, by correction.

    Under the complete null hypothesis no two systems differ; under the partial one, each of the
    second four is better than each of the first by three standard errors of the difference.
    """

    def step(draw: Scores, generator: Generator) -> float:
        large = draw(generator, (_LARGE // 10, SYSTEMS))
        return _STANDARD_ERRORS * float((large[:, 0] - large[:, -1]).std())

    return _simulate(_family, families, sizes, simulations, seed=seed, truth=step, salt=2)


def _batches(simulations: int) -> int:
    return max(1, -(-simulations // _BATCH))


def _simulate(
    measure: Measure,
    populations: Mapping[str, Any],
    usual: Sequence[int],
    batches: int,
    *,
    sizes: Sequence[int] = (),
    seed: int,
    truth: Callable[[Any, Generator], float] = lambda *_: 0.0,
    salt: int = 0,
    first: int = 0,
) -> list[Share]:
    """Return the share, or mean, of each outcome over all simulations, per population and size."""
    shares = []
    for index, (process, draw) in enumerate(populations.items(), first):
        known = truth(draw, np.random.default_rng((seed, index)))
        for n in sizes or usual:
            cell = _Cell(process, draw, known, n)
            key = (seed, n) if measure is _trained else (seed, index, n)
            generator = np.random.default_rng((*key, salt) if salt else key)
            outcomes: defaultdict[tuple[str, str, str], list[Any]] = defaultdict(list)
            for batch in range(batches):
                for named, each in measure(cell, generator, (*key, batch)).items():
                    outcomes[named].append(each)
            label = f"{n} x {QUERIES}" if measure is _trained else str(n)
            for (method, kind, name), each in outcomes.items():
                every, expected = np.hstack(each), _EXPECTED.get(kind)
                total, kind = len(every), kind.replace("detectable effect", "power")
                ends = stats.binom.interval(0.99, total, expected) if expected else (None, None)
                low, high = (None if end is None else float(end / total) for end in ends)
                share = float(every.sum() / total)
                shares.append(Share(method, kind, name, label, total, share, expected, low, high))
    return shares


# What a batch of simulations comes to.


def _tested(
    methods: Mapping[str, Method], cell: _Cell, generator: Generator, drawn_by: Sequence[int]
) -> Outcomes:
    """False positives and power of tests, coverage of intervals."""
    process, draw, difference, n = cell
    (*null, _), (*shifted, truth) = (draw(generator, (n, _BATCH), shift) for shift in (False, True))
    outcomes: Outcomes = {}
    for name, method in methods.items():
        result = method(shifted[0], shifted[1], drawn_by)
        if result.ndim == 2:
            outcomes[name, "coverage", process] = _hold(result, truth)
        else:
            errors = method(null[0], null[1], drawn_by) < ALPHA
            outcomes[name, "false positives", process] = errors
            outcomes[name, "power", f"{process}, {difference:.3f}"] = result < ALPHA
    if process == "normal" and methods is METHODS:
        unit = np.tile([-1.0, 1.0], -(-n // 2))[:n]
        unit = (unit - unit.mean()) / unit.std(ddof=1)
        effect = minimum_detectable_effect(unit, np.zeros(n)) or 0.0
        found = stats.ttest_1samp(generator.normal(effect, 1.0, size=(n, _BATCH)), 0.0)
        outcomes["minimum detectable effect", "detectable effect", process] = found.pvalue < ALPHA
    return outcomes


def _equivalent(count: int, cell: _Cell, generator: Generator, _: Sequence[int]) -> Outcomes:
    """Whether two systems are called equivalent whose true difference is the margin."""
    a, b, truth = cell.draw(generator, (cell.n, count), True)
    sample, margin = a - b, float(truth) * (1 - 1e-9)
    half = stats.t.ppf(1 - ALPHA, len(a) - 1) * sample.std(axis=0, ddof=1) / np.sqrt(len(a))
    by = {
        INTERVALS["widened"]: [
            within(ends, margin) for ends in difference_intervals(sample.T, level=LEVEL)
        ],
        "two one-sided t-tests": half < margin - np.abs(sample.mean(axis=0)),
    }
    return {(method, "false equivalence", cell.process): each for method, each in by.items()}


def _covered(cell: _Cell, generator: Generator, drawn_by: Sequence[int]) -> Outcomes:
    """Coverage of the intervals of scores."""
    values = cell.draw(generator, (cell.n, _BATCH))
    by = {
        "widened": _ends(mean_interval(each, level=LEVEL)[1] for each in values.T),
        "student": _intervals(student_interval, values.T),
        "percentile": _intervals(percentile_interval, _means(values, drawn_by)),
    }
    if cell.process == "V-measure":  # whose draws lack no rare queries
        del by["widened"]
    return _coverage(cell, by)


def _correlated(cell: _Cell, generator: Generator, _: Sequence[int]) -> Outcomes:
    """Coverage of the intervals of Spearman's correlation, of one sample."""
    first, second = cell.draw(generator, cell.n)
    picks = generator.integers(0, cell.n, size=(_DRAWS // 4, cell.n))
    drawn = AGGREGATES["spearman"](np.stack([first[picks], second[picks]], axis=-1))
    fisher = correlation_interval(first, second, how="spearman", level=LEVEL)
    fine = percentile_interval(drawn[np.isfinite(drawn)], level=LEVEL)
    return _coverage(cell, {"fisher": _ends([fisher]), "percentile": _ends([fine])})


def _coverage(cell: _Cell, ends: Mapping[str, Array]) -> Outcomes:
    return {
        (INTERVALS[name], "score coverage", cell.process): _hold(each, cell.truth)
        for name, each in ends.items()
    }


def _trained(cell: _Cell, generator: Generator, _: Sequence[int]) -> Outcomes:
    """Coverage of the TIR's interval over seeds and queries.

    A score is the sum of the query's difficulty, the seed's effect on the system (standard
    deviation 0.01) and noise. With little noise, most of the variance is between seeds, and a few
    seeds estimate it poorly.
    """
    shape = (2, cell.n, _BATCH)  # of specialist and joint runs
    level = np.array([0.5, 0.5 * (1 - TRUE_TIR)])[:, None, None]
    difficulty = generator.normal(0, 0.3, size=(QUERIES, 1, 1, _BATCH))
    effect = generator.normal(0, 0.01, size=shape)
    every = level + effect + difficulty + generator.normal(0, cell.draw, size=(QUERIES, *shape))
    names, held = tuple(map(str, range(QUERIES))), []
    for scores in np.moveaxis(every, -1, 0):
        data = DataSetScores(scores.mean(axis=0), (names, scores))
        one = estimate("simulated", range(cell.n), [data], gate=Gate()).estimate
        low, high = one.interval or (1.0, 1.0)
        held.append(low <= TRUE_TIR <= high)
    return {("TIR over seeds and queries", "coverage", cell.process): held}


_PAIRS = [*combinations(range(SYSTEMS), 2)]
_FIRST, _SECOND = np.array(_PAIRS).T
_DIFFER = (_FIRST < SYSTEMS // 2) & (_SECOND >= SYSTEMS // 2)


def _family(cell: _Cell, generator: Generator, drawn_by: Sequence[int]) -> Outcomes:
    """Errors and power of tests of all pairs, of one sample."""
    outcomes: Outcomes = {}
    process, draw, step, n = cell
    scores = draw(generator, (n, SYSTEMS))
    for null in ("complete", "partial"):
        if null == "partial":
            scores[:, SYSTEMS // 2 :] += step / np.sqrt(n)
        raw, max_t = max_t_p_values(scores, _PAIRS, n_resamples=_DRAWS, seed=drawn_by)
        ranks = _wilcoxon(scores[:, _FIRST], scores[:, _SECOND], drawn_by)
        by = {"MaxT": max_t, "Holm": holm(raw), "Wilcoxon, BH": benjamini_hochberg(ranks.tolist())}
        for method, p_values in by.items():
            rejected, name = np.array(p_values) < ALPHA, f"{process}, {null}"
            errors = rejected & ~_DIFFER if null == "partial" else rejected
            outcomes[method, "family-wise error", name] = errors.any()
            if null == "partial":
                outcomes[method, "family power", name] = rejected[_DIFFER].mean()
                false = errors.sum() / max(1, rejected.sum())
                outcomes[method, "false discoveries", name] = false
    return outcomes


def _ends(intervals: Iterable[Interval | None]) -> Array:
    return np.array([ends or (np.nan, np.nan) for ends in intervals])


def _hold(ends: Array, truth: Array | float) -> Any:
    """Whether intervals (count, 2) contain the true value, to rounding."""
    return (ends[:, 0] - 1e-9 <= truth) & (truth <= ends[:, 1] + 1e-9)


# Tests and intervals of paired scores.


def _permutation(a: Array, b: Array, seed: Sequence[int]) -> Array:
    columns = np.concatenate([a - b, np.zeros((len(a), 1))], axis=1)
    pairs = [(i, a.shape[1]) for i in range(a.shape[1])]
    return np.array(sign_flip_p_values(columns, pairs, n_resamples=_DRAWS, seed=seed))


def _t_test(a: Array, b: Array, _: Sequence[int]) -> Array:
    return _p_values(a - b, np.ptp(a - b, axis=0) > 0, partial(stats.ttest_1samp, popmean=0.0))


def _wilcoxon(a: Array, b: Array, _: Sequence[int]) -> Array:
    """By the normal approximation, with zeros left out: scipy's way with ties."""
    test = partial(stats.wilcoxon, method="asymptotic", axis=0)
    return _p_values(a - b, (a != b).any(axis=0), test)


def _p_values(values: Array, defined: Array, test: Callable[[Array], Any]) -> Array:
    """P-values of columns; 1 where the test is not defined."""
    p_values = np.ones(values.shape[1])
    if defined.any():
        p_values[defined] = test(values[:, defined]).pvalue
    return p_values


def _means(values: Array, seed: Sequence[int]) -> Array:
    return resampled_means(values, n_resamples=_DRAWS, seed=seed)[1].T


def _intervals(interval: Callable[..., Interval | None], rows: Array) -> Array:
    return _ends(interval(row, level=LEVEL) for row in rows)


METHODS: dict[str, Method] = {
    "permutation test": _permutation,
    "t-test": _t_test,
    "Wilcoxon": _wilcoxon,
    INTERVALS["widened"]: lambda a, b, _: _ends(difference_intervals((a - b).T, level=LEVEL)),
    INTERVALS["student"]: lambda a, b, _: _intervals(student_interval, (a - b).T),
    INTERVALS["percentile"]: lambda a, b, seed: _intervals(
        percentile_interval, _means(a - b, seed)
    ),
}


def _of_function(spec: str) -> Method:
    """Import ``module:name`` or ``file.py:name``; of an array per system, it makes a method."""
    home, _, name = spec.rpartition(":")
    try:
        module = (
            runpy.run_path(home) if home.endswith(".py") else vars(importlib.import_module(home))
        )
        function: Callable[[Array, Array], Any] = module[name]
    except (ImportError, OSError, KeyError, ValueError) as error:
        raise ValueError(
            f"no function {spec!r}; expected module:name or file.py:name ({error})"
        ) from error

    def method(a: Array, b: Array, _: Sequence[int]) -> Array:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            # Of tied samples, a method may divide by 0; what it returns counts as it is.
            warnings.simplefilter("ignore", RuntimeWarning)
            results = [function(*map(np.copy, pair)) for pair in zip(a.T, b.T, strict=True)]
        outcomes = np.array([getattr(each, "pvalue", each) for each in results], float)
        if outcomes.shape[1:] not in {(), (2,)}:
            raise ValueError(
                f"expected a p-value or two ends of {spec}; got shape {outcomes.shape[1:]}"
            )
        return outcomes

    return method


# Populations.


def _rho(_: Any, generator: Generator) -> float:
    a, b = _ratings(generator, _LARGE)
    return float(np.corrcoef(stats.rankdata(a), stats.rankdata(b))[0, 1])


def _ratings(generator: Generator, n: int) -> tuple[Array, Array]:
    """Similarities (n,), with noise that depends on the rating, and ratings in halves."""
    rating = generator.beta(1.2, 1, n)
    similarity = 0.4 + 0.5 * rating**1.5 + generator.normal(0, 0.12, n) * (1.3 - rating)
    return similarity, np.round(10 * rating) / 2


def _ranks(generator: Generator, shape: Shape, steep: float) -> Array:
    """Gains at ranks 1 to 10, or of no hit: the steeper, the better."""
    drawn = generator.random(shape)
    gains: Array = _GAINS[np.searchsorted(np.cumsum(_chances(steep))[:-1], drawn, side="right")]
    return gains


def _chances(steep: float) -> Array:
    weights = np.append(steep, np.geomspace(0.05, 0.3, 10))
    return weights / weights.sum()


def _search(generator: Generator, shape: Shape, shift: bool) -> Pair:
    steeps = (0.3, 0.5) if shift else (0.5, 0.5)
    a, b = (_ranks(generator, shape, steep) for steep in steeps)
    truth = (1 - _TIED) * float((_chances(steeps[0]) - _chances(steeps[1])) @ _GAINS)
    return np.where(generator.random(shape) < _TIED, b, a), b, truth


def _differ(values: Array, truth: float) -> Pair:
    """Scores with these differences, exactly; the lower of two is 0."""
    return np.maximum(values, 0.0), np.maximum(-values, 0.0), truth


def _rare(generator: Generator, shape: Shape, shift: bool) -> Pair:
    sizes = np.where(generator.random(shape) < 1 / 8, generator.beta(1, 2, shape), 0.0)
    if shift:
        return _differ(sizes, 1 / 24)
    return _differ(np.where(generator.random(shape) < 0.5, sizes, -sizes), 0.0)


def _accuracy(generator: Generator, shape: Shape, shift: bool) -> Pair:
    won, drawn = 0.15 if shift else 0.1, generator.random(shape)
    values = np.where(drawn < won, 1.0, np.where(drawn < 0.2, -1.0, 0.0))
    return _differ(values, 2 * won - 0.2)


def _large_wins(generator: Generator, shape: Shape, shift: bool, *, noise: float = 0.0) -> Pair:
    truth = 0.05 if shift else 0.0
    wins = np.where(generator.random(shape) < 0.05, 0.95, -0.05)
    return _differ(wins + truth + (generator.normal(0, noise, shape) if noise else 0.0), truth)


PAIRS: dict[str, Draw] = {
    "search": _search,  # nDCG-like: the rank of one relevant document, many queries tied
    "normal": lambda draw, shape, shift: _differ(draw.normal(0.1 * shift, 0.3, shape), 0.1 * shift),
    # nDCG-like: one of eight queries is won, by a third on average, and none is lost
    "rare wins": _rare,
    "accuracy": _accuracy,  # 15 % of the queries are won and 5 % lost, by 1 each
    # Under the null hypothesis, 5 % of the queries are won by .95 and the others lost by .05; else
    # all of these differences are .05 larger.
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

    def draw(generator: Generator, shape: Shape, shift: bool) -> Pair:
        better, worse = pairs[generator.integers(len(pairs), size=shape[1])].T
        queries = generator.integers(ordered.shape[1], size=shape)
        a, b = ordered[better, queries], ordered[worse, queries]
        if shift:
            return a, b, ordered[better].mean(axis=1) - ordered[worse].mean(axis=1)
        swapped = generator.random(shape) < 0.5
        return np.where(swapped, b, a), np.where(swapped, a, b), 0.0

    return draw


def _ndcg(none: float, hit: float, a: float, b: float) -> Scores:
    """A share of zeros, ones up to the share ``hit``, and else a beta distribution."""

    def draw(generator: Generator, shape: Shape) -> Array:
        share = generator.random(shape)
        rest = np.where(share < hit, 1, generator.beta(a, b, shape))
        return np.where(share < none, 0, rest)

    return draw


def _mrr(generator: Generator, shape: Shape) -> Array:
    rank = generator.geometric(0.25, shape)
    return np.where((rank > 10) | (generator.random(shape) < 0.4), 0, 1 / rank)


def _either(share: float, rare: float, often: float) -> Scores:
    return lambda draw, shape: np.where(draw.random(shape) < share, rare, often)


SCORES: dict[str, Scores] = {
    "nDCG@10": _ndcg(0.25, 0.5, 1.2, 1.2),  # a quarter of the queries has 0, a quarter 1
    "hard nDCG@10": _ndcg(0.75, 0.8, 1, 2),
    "MRR@10": _mrr,  # nearly half of the queries without a hit
    "accuracy .9": _either(0.9, 1.0, 0.0),
    "tied": _either(0.05, 1.0, 0.5),
    "nearly equal": lambda draw, shape: np.where(
        draw.random(shape) < 0.05, 1.0, draw.normal(0.5, 0.01, shape)
    ),
    "two kinds": _either(0.1, 0.1, 0.9),
    "skewed": lambda draw, shape: draw.beta(0.5, 5, shape),
    "AP": lambda draw, shape: np.where(draw.random(shape) < 0.1, 0.0, draw.beta(0.6, 1.5, shape)),
    "V-measure": lambda draw, shape: np.clip(draw.normal(0.45, 0.02, shape), 0, 1),
}


def _groups(each: int, *, of: float) -> Scores:
    """Groups of systems that differ by noise with the standard deviation ``of``."""

    def draw(generator: Generator, shape: Shape) -> Array:
        groups = generator.normal(size=(shape[0], shape[1] // each)).repeat(each, axis=1)
        return groups + generator.normal(0, of, shape)

    return draw


def _tied(generator: Generator, scores: Array, share: float) -> Array:
    """Give all systems the score of the first on a share of the queries."""
    return np.where(generator.random((len(scores), 1)) < share, scores[:, :1], scores)


def _exchanged(matrix: Array) -> Scores:
    """Each system answers each query as one of a score matrix (S, N), drawn at random."""

    def draw(generator: Generator, shape: Shape) -> Array:
        systems = generator.integers(len(matrix), size=shape)
        scores: Array = matrix[systems, generator.integers(matrix.shape[1], size=(shape[0], 1))]
        return scores

    return draw


# Scores (rows, SYSTEMS) of systems without a true difference, whose differences are symmetric about
# 0, per pair; jointly, but for search and those fitted to records.
FAMILIES: dict[str, Scores] = {
    "search": lambda draw, shape: _tied(draw, _ranks(draw, shape, 0.5), _TIED),
    "normal": lambda draw, shape: draw.normal(size=shape),
    "rare wins": lambda draw, shape: (
        np.where(draw.random(shape) < 1 / 16, draw.beta(1, 2, shape), 0.0)
        * draw.choice((-1, 1), size=shape)
    ),
    "accuracy": lambda draw, shape: _tied(draw, np.rint(draw.random(shape)), 0.6),
    "correlated": _groups(SYSTEMS // 2, of=0.3),  # between two groups, nearly the same differences
    "twins": _groups(2, of=0.05),  # four pairs of systems that hardly differ
}
