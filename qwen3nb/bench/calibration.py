"""Error rates of tests and intervals, simulated where the truth is known.

Scores of two systems are drawn from `PAIRS`, without a true difference and with one, those of one
system from `SCORES`, which are like those of tasks, and those of eight systems from `FAMILIES`. To
pairs and families come populations fitted to recorded scores: nDCG@10 of bm25, all-MiniLM-L6-v2 and
wordllama on 200 queries (PyDocs).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, TypeAlias
from warnings import catch_warnings

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from qwen3nb.analysis.calibration import Share
from qwen3nb.analysis.comparison.alignment import pair_results
from qwen3nb.analysis.stats import resampling
from qwen3nb.analysis.stats.interference_ratio import DataSetScores, Gate, QueryScores, estimate
from qwen3nb.analysis.stats.multiple_testing import benjamini_hochberg, holm
from qwen3nb.analysis.stats.paired_tests import minimum_detectable_effect
from qwen3nb.analysis.stats.resampling import LEVEL
from qwen3nb.bench.conditions import COVERAGE, ERRORS, POWER, conditions
from qwen3nb.bench.methods import (
    DRAWS,
    METHODS,
    Method,
    interval_ends,
    method_of,
    percentile,
    student,
    wilcoxon,
)
from qwen3nb.bench.populations import (
    FAMILIES,
    PAIRS,
    SCORES,
    SYSTEMS,
    DrawScores,
    Generator,
    exchanged,
    fitted,
    ratings,
)
from qwen3nb.metrics import intervals
from qwen3nb.metrics.aggregate import AGGREGATES
from qwen3nb.metrics.intervals import INTERVALS, Array
from qwen3nb.records.store import load_results
from qwen3nb.utils.atomic_files import read_json
from qwen3nb.utils.progress import tqdm

SIZES = (10, 20, 50, 200, 1000)
FEW_SIZES = (3, 5, 10, 20, 50, 200)  # of equivalence
SCORE_SIZES = (10, 20, 50, 200)
FAMILY_SIZES = (20, 50, 200)
SEEDS = (1, 2, 3, 5, 9)
QUERIES = 300  # of each seed
ALPHA = 0.05  # 1 - LEVEL
TRUE_TIR = 0.03
FITTED = Path(__file__).with_name("pydocs_scores.json")
_BATCH = 100  # simulations that share one set of draws
_LARGE = 1_000_000  # draws by which the true value is computed
_MDE = "minimum detectable effect"
# Nominal shares, by kind or method.
_NOMINAL = {
    "coverage": LEVEL,
    "score coverage": LEVEL,
    _MDE: 0.8,
    COVERAGE: LEVEL,
    ERRORS: ALPHA,
    POWER: 0.8,
    "false positives": ALPHA,
    "false equivalence": ALPHA,
    "family-wise error": ALPHA,
}

Booleans: TypeAlias = NDArray[np.bool_]
# Outcomes of simulations, by method, kind and process.
Outcomes: TypeAlias = dict[tuple[str, str, str], Any]


@dataclass(frozen=True)
class _Sample:
    """A population, and how many queries are drawn of it."""

    process: str  # its name
    draw: Any  # what draws from it
    truth: float
    n: int


@dataclass(frozen=True)
class _Question:
    """What is simulated, and which random numbers are its own."""

    measure: Callable[[_Sample, Generator, Sequence[int]], Outcomes]
    truth: Callable[[Any, Generator], Any] = lambda draw, generator: 0.0  # its mean is the truth
    salt: int = 0
    first: int = 0  # number of its first population
    of_seeds: bool = False  # whether a size is a number of seeds, with `QUERIES` each


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
            for scores, a fifth for families and seeds, a tenth for correlations, and for most of
            what `qwen3nb.bench.conditions` simulates.
        records: folder of records; each task with two or more systems is a further population.
        seed: of the samples.

    Raises:
        ValueError: a function that is not found or fails, or a result of another kind.
    """
    matrices = {"PyDocs": np.array(read_json(FITTED)["scores"])}
    if records:
        paired_tasks, _ = pair_results(load_results(records))
        for task in paired_tasks:
            matrices[f"{task.task} {task.metric}"] = task.scores
    pairs = PAIRS | {name: partial(fitted, scores) for name, scores in matrices.items()}
    families = FAMILIES | {name: partial(exchanged, scores) for name, scores in matrices.items()}
    methods = METHODS
    if function:
        methods = {function: method_of(function)}
    run = partial(_simulate, seed=seed)
    tests = _Question(partial(_test_outcomes, methods), truth=_mean_difference)
    shares = run(tests, pairs, sizes or SIZES, math.ceil(simulations / _BATCH))
    if function:
        return shares
    two_fifths = _batches(0.4 * simulations)
    a_fifth = _batches(0.2 * simulations)
    equivalence = _Question(partial(_equivalence_outcomes, simulations), salt=1)
    shares += run(equivalence, PAIRS, sizes or FEW_SIZES, 1)
    means = _Question(_mean_outcomes, truth=lambda draw, generator: draw(generator, (_LARGE,)))
    shares += run(means, SCORES, sizes or SCORE_SIZES, two_fifths)
    correlations = _Question(_correlation_outcomes, truth=_large_correlation, first=99)
    rated = {"Spearman": ratings}
    shares += run(correlations, rated, sizes or SCORE_SIZES, two_fifths * _BATCH // 4)
    trainings = _Question(_training_outcomes, of_seeds=True)
    for noise in (0.1, 0.01):
        shares += run(trainings, {f"noise {noise:g}": noise}, SEEDS, a_fifth)
    corrections = _Question(_family_outcomes, truth=_three_errors, salt=2)
    shares += run(corrections, families, sizes or FAMILY_SIZES, round(0.2 * simulations) or 1)
    for outcome in conditions(simulations, seed):
        if len(outcome.held):
            name = (outcome.method, outcome.kind, outcome.process)
            shares.append(_share(*name, str(outcome.n), outcome.held))
    return shares


def _batches(simulations: float) -> int:
    """Return the number of batches with this many simulations, at least one."""
    return math.ceil(round(simulations) / _BATCH) or 1


def _simulate(
    question: _Question,
    populations: Mapping[str, Any],
    sizes: Sequence[int],
    batches: int,
    *,
    seed: int,
) -> list[Share]:
    """Return the share, or mean, of each outcome over all simulations, per population and size."""
    shares = []
    bar = tqdm(populations.items(), desc="simulations", unit="population")
    for index, (process, draw) in enumerate(bar, question.first):
        truth = float(np.mean(question.truth(draw, np.random.default_rng((seed, index)))))
        for n in sizes:
            sample = _Sample(process, draw, truth, n)
            key: tuple[int, ...] = (seed, index, n)
            label = str(n)
            if question.of_seeds:
                key = (seed, n)
                label = f"{n} x {QUERIES}"
            for name, outcomes in _outcomes(question, sample, key, batches).items():
                shares.append(_share(*name, label, np.hstack(outcomes)))
    return shares


def _outcomes(
    question: _Question, sample: _Sample, key: tuple[int, ...], batches: int
) -> Mapping[tuple[str, str, str], list[Any]]:
    """Return the outcomes of all batches; ``key`` seeds their random numbers."""
    generator = np.random.default_rng((*key, question.salt) if question.salt else key)
    outcomes: dict[tuple[str, str, str], list[Any]] = defaultdict(list)
    # Of tied samples, a method may divide by 0; what it returns counts as it is.
    with np.errstate(all="ignore"), catch_warnings(action="ignore", category=RuntimeWarning):
        for batch in range(batches):
            for name, outcome in question.measure(sample, generator, (*key, batch)).items():
                outcomes[name].append(outcome)
    return outcomes


def _share(method: str, kind: str, process: str, n: str, outcomes: Array) -> Share:
    """Return the share of simulations with an outcome, and the range of the nominal share."""
    count = len(outcomes)
    share = float(outcomes.sum() / count)
    nominal = _NOMINAL.get(kind, _NOMINAL.get(method))
    if not nominal:
        return Share(method, kind, process, n, count, share, nominal, None, None)
    low, high = stats.binom.interval(0.99, count, nominal)
    return Share(
        method, kind, process, n, count, share, nominal, float(low / count), float(high / count)
    )


def _mean_difference(draw: Any, generator: Generator) -> Any:
    """The true difference of a pair; of recorded scores, those of the pairs that are drawn."""
    _, _, truth = draw(generator, (1, _LARGE // 10), True)
    return truth


def _large_correlation(draw: Any, generator: Generator) -> float:
    """Spearman's correlation in a large sample."""
    return float(stats.spearmanr(*draw(generator, _LARGE)).statistic)


def _three_errors(draw: DrawScores, generator: Generator) -> float:
    """Three standard errors of the difference of two systems, on a single query."""
    scores = draw(generator, (_LARGE // 10, SYSTEMS))
    return 3.0 * float((scores[:, 0] - scores[:, -1]).std())


# Outcomes of a batch of simulations.


def _test_outcomes(
    methods: Mapping[str, Method], sample: _Sample, generator: Generator, seed: Sequence[int]
) -> Outcomes:
    """False positives and power of tests, coverage of intervals."""
    shape = (sample.n, _BATCH)
    equal_a, equal_b, _ = sample.draw(generator, shape, False)
    better, other, truth = sample.draw(generator, shape, True)
    outcomes: Outcomes = {}
    for name, method in methods.items():
        result = method(better, other, seed)
        if result.ndim == 2:
            outcomes[name, "coverage", sample.process] = _contain(result, truth)
            continue
        outcomes[name, "false positives", sample.process] = method(equal_a, equal_b, seed) < ALPHA
        outcomes[name, "power", f"{sample.process}, {sample.truth:.3f}"] = result < ALPHA
    if sample.process == "normal" and methods is METHODS:
        outcomes[_MDE, "power", sample.process] = _detected(sample.n, generator)
    return outcomes


def _detected(n: int, generator: Generator) -> Booleans:
    """Whether a t-test finds an effect of the size that n queries are said to show."""
    unit = stats.zscore(np.arange(n), ddof=1)
    effect = minimum_detectable_effect(unit, np.zeros(n)) or 0.0
    test = stats.ttest_1samp(generator.normal(effect, 1.0, size=(n, _BATCH)), 0.0)
    detected: Booleans = test.pvalue < ALPHA
    return detected


def _equivalence_outcomes(
    count: int, sample: _Sample, generator: Generator, seed: Sequence[int]
) -> Outcomes:
    """Whether two systems are called equivalent whose true difference is the margin."""
    a, b, truth = sample.draw(generator, (sample.n, count), True)
    differences = a - b
    margin = float(truth) * (1 - 1e-9)
    half_width = stats.t.ppf(1 - ALPHA, sample.n - 1) * stats.sem(differences)
    ends = intervals.difference_intervals(differences.T, level=LEVEL)
    within = [intervals.within(interval, margin) for interval in ends]
    kind = "false equivalence"
    return {
        (INTERVALS["widened"], kind, sample.process): within,
        ("two one-sided t-tests", kind, sample.process): (
            half_width < margin - abs(differences.mean(axis=0))
        ),
    }


def _mean_outcomes(sample: _Sample, generator: Generator, seed: Sequence[int]) -> Outcomes:
    """Coverage of the intervals of scores."""
    values = sample.draw(generator, (sample.n, _BATCH))
    zero = np.zeros((1, 1))
    ends = {}
    if sample.process != "V-measure":  # whose draws lack no rare queries
        ends["widened"] = interval_ends(
            intervals.mean_interval(column, level=LEVEL)[1] for column in values.T
        )
    ends["student"] = student(values, zero)
    ends["percentile"] = percentile(values, zero, seed)
    return _coverage(sample, ends)


def _correlation_outcomes(sample: _Sample, generator: Generator, seed: Sequence[int]) -> Outcomes:
    """Coverage of the intervals of Spearman's correlation, of one sample."""
    first, second = sample.draw(generator, sample.n)
    picks = generator.integers(0, sample.n, size=(DRAWS // 4, sample.n))
    drawn = AGGREGATES["spearman"](np.stack([first[picks], second[picks]], axis=-1))
    fisher = intervals.correlation_interval(first, second, how="spearman", level=LEVEL)
    bootstrap = resampling.percentile_interval(drawn[np.isfinite(drawn)], level=LEVEL)
    ends = {"fisher": interval_ends([fisher]), "percentile": interval_ends([bootstrap])}
    return _coverage(sample, ends)


def _coverage(sample: _Sample, ends: Mapping[str, Array]) -> Outcomes:
    """Whether intervals by several methods contain the true value."""
    outcomes: Outcomes = {}
    for name, ends_of_method in ends.items():
        key = (INTERVALS[name], "score coverage", sample.process)
        outcomes[key] = _contain(ends_of_method, sample.truth)
    return outcomes


def _training_outcomes(sample: _Sample, generator: Generator, seed: Sequence[int]) -> Outcomes:
    """Coverage of the TIR's interval over seeds and queries.

    A score is the sum of the query's difficulty, the seed's effect on the system (standard
    deviation 0.01) and noise. With little noise, most of the variance is between seeds, and a few
    seeds estimate it poorly.
    """
    shape = (2, sample.n, _BATCH)  # of specialist and joint runs
    level = np.array([0.5, 0.5 * (1 - TRUE_TIR)])[:, None, None]
    difficulty = generator.normal(0, 0.3, size=(QUERIES, 1, 1, _BATCH))
    effect = generator.normal(0, 0.01, size=shape)
    noise = generator.normal(0, sample.draw, size=(QUERIES, *shape))
    all_scores = level + effect + difficulty + noise
    queries = tuple(str(query) for query in range(QUERIES))
    found = []
    for scores in np.moveaxis(all_scores, -1, 0):
        data = DataSetScores(scores.mean(axis=0), QueryScores(queries, scores))
        interference = estimate("simulated", range(sample.n), [data], gate=Gate())
        found.append(interference.estimate.interval)
    key = ("TIR over seeds and queries", "coverage", sample.process)
    return {key: _contain(interval_ends(found), TRUE_TIR)}


_PAIRS = list(combinations(range(SYSTEMS), 2))
_FIRST, _SECOND = np.array(_PAIRS).T
_DIFFER = (_FIRST < SYSTEMS // 2) & (_SECOND >= SYSTEMS // 2)


def _family_outcomes(sample: _Sample, generator: Generator, seed: Sequence[int]) -> Outcomes:
    """Errors and power of tests of all pairs of eight systems, by correction, of one sample.

    Under the complete null hypothesis no two systems differ; under the partial one, each of the
    second four is better than each of the first by three standard errors of the difference.
    """
    scores = sample.draw(generator, (sample.n, SYSTEMS))
    outcomes: Outcomes = {}
    for method, rejected in _rejected(scores, seed).items():
        process = f"{sample.process}, complete"
        outcomes[method, "family-wise error", process] = rejected.any()
    scores[:, SYSTEMS // 2 :] += sample.truth / np.sqrt(sample.n)
    for method, rejected in _rejected(scores, seed).items():
        process = f"{sample.process}, partial"
        errors = rejected & ~_DIFFER
        outcomes[method, "family-wise error", process] = errors.any()
        outcomes[method, "family power", process] = rejected[_DIFFER].mean()
        outcomes[method, "false discoveries", process] = errors.sum() / max(1, rejected.sum())
    return outcomes


def _rejected(scores: Array, seed: Sequence[int]) -> dict[str, Booleans]:
    """Return which pairs of systems are called different, by correction."""
    raw, max_t = resampling.max_t_p_values(scores, _PAIRS, n_resamples=DRAWS, seed=seed)
    ranks = wilcoxon(scores[:, _FIRST], scores[:, _SECOND])
    return {
        "MaxT": np.array(max_t) < ALPHA,
        "Holm": np.array(holm(raw)) < ALPHA,
        "Wilcoxon, BH": np.array(benjamini_hochberg(ranks.tolist())) < ALPHA,
    }


def _contain(ends: Array, truth: Array | float) -> Booleans:
    """Whether intervals (count, 2) contain the true value, to rounding."""
    contain: Booleans = (ends[:, 0] - 1e-9 <= truth) & (truth <= ends[:, 1] + 1e-9)
    return contain
