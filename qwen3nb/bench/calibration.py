"""Error rates of tests and intervals, simulated where the truth is known.

Scores of two systems are drawn from `PAIRS`, without a true difference and with one, those of one
system from `SCORES`, which are like those of tasks, and those of eight systems from `FAMILIES`. To
pairs and families come populations fitted to recorded scores: nDCG@10 of bm25, all-MiniLM-L6-v2 and
wordllama on 200 queries (PyDocs).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from warnings import catch_warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray
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
    DrawPair,
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


class _Key(NamedTuple):
    """What an outcome is of."""

    method: str
    kind: str
    process: str


# Of one simulation, or of each of a batch.
Outcomes: TypeAlias = dict[_Key, ArrayLike]


@dataclass(frozen=True)
class _Sample:
    """A population, and how many queries are drawn of it."""

    process: str  # its name
    draw: Any  # what draws from it
    truth: float
    n: int

    def key(self, method: str, kind: str) -> _Key:
        """Return the key of an outcome on this population."""
        return _Key(method, kind, self.process)


@dataclass(frozen=True)
class _Question:
    """What is simulated, and which random numbers are its own."""

    measure: Callable[[_Sample, Generator, Sequence[int]], Outcomes]
    populations: Mapping[str, Any]
    sizes: Sequence[int]
    batches: int
    truth: Callable[[Any, Generator], Any] = lambda draw, generator: 0.0  # its mean is the truth
    salt: int = 0
    first_number: int = 0  # of its populations
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
    matrices = _score_matrices(records)
    pairs, families = dict(PAIRS), dict(FAMILIES)
    for name, scores in matrices.items():
        pairs[name] = partial(fitted, scores)
        families[name] = partial(exchanged, scores)
    methods = {function: method_of(function)} if function else METHODS
    tests = _Question(
        measure=partial(_test_outcomes, methods),
        populations=pairs,
        sizes=sizes or SIZES,
        batches=math.ceil(simulations / _BATCH),
        truth=_mean_difference,
    )
    shares = _simulate(tests, seed)
    if function:
        return shares
    for question in _other_questions(families, sizes, simulations):
        shares += _simulate(question, seed)
    for outcome in conditions(simulations, seed):
        if len(outcome.held):  # empty if no simulation shows an interval
            key = _Key(outcome.method, outcome.kind, outcome.process)
            shares.append(_measured_share(key, str(outcome.n), outcome.held))
    return shares


def _score_matrices(records: Path | None) -> dict[str, Array]:
    """Return scores of systems (S, N), by name: those stored here, and those of a folder."""
    matrices = {"PyDocs": np.array(read_json(FITTED)["scores"])}
    if records:
        paired_tasks, _ = pair_results(load_results(records))
        for task in paired_tasks:
            matrices[f"{task.task} {task.metric}"] = task.scores
    return matrices


def _other_questions(
    families: Mapping[str, DrawScores], sizes: Sequence[int], simulations: int
) -> Iterator[_Question]:
    """Yield what is simulated besides the tests of two systems."""
    yield _Question(
        partial(_equivalence_outcomes, simulations), PAIRS, sizes or FEW_SIZES, batches=1, salt=1
    )
    two_fifths = _number_of_batches(0.4 * simulations)
    yield _Question(
        _mean_outcomes,
        SCORES,
        sizes or SCORE_SIZES,
        two_fifths,
        truth=lambda draw, generator: draw(generator, (_LARGE,)),
    )
    yield _Question(
        _correlation_outcomes,
        {"Spearman": ratings},
        sizes or SCORE_SIZES,
        batches=two_fifths * _BATCH // 4,  # of one sample each
        truth=_large_correlation,
        first_number=99,
    )
    noise = {f"noise {deviation:g}": deviation for deviation in (0.1, 0.01)}
    yield _Question(
        _training_outcomes,
        noise,
        SEEDS,
        batches=_number_of_batches(0.2 * simulations),
        of_seeds=True,
    )
    yield _Question(
        _family_outcomes,
        families,
        sizes or FAMILY_SIZES,
        batches=round(0.2 * simulations) or 1,  # of one sample each
        truth=_three_errors,
        salt=2,
    )


def _number_of_batches(simulations: float) -> int:
    """Return the number of batches with this many simulations, at least one."""
    return math.ceil(round(simulations) / _BATCH) or 1


def _simulate(question: _Question, seed: int) -> list[Share]:
    """Return the share, or mean, of each outcome over all simulations, per population and size."""
    shares = []
    populations = tqdm(question.populations.items(), desc="simulations", unit="population")
    # A population's number seeds its draws, which do not depend on the other populations.
    for number, (process, draw) in enumerate(populations, question.first_number):
        generator = np.random.default_rng((seed, number))
        truth = float(np.mean(question.truth(draw, generator)))
        for n in question.sizes:
            sample = _Sample(process, draw, truth, n)
            entropy: tuple[int, ...] = (seed, number, n)
            label = str(n)
            if question.of_seeds:  # all populations have the same draws
                entropy = (seed, n)
                label = f"{n} x {QUERIES}"  # seeds and queries
            for key, outcomes in _outcomes(question, sample, entropy).items():
                shares.append(_measured_share(key, label, np.hstack(outcomes)))
    return shares


def _outcomes(
    question: _Question, sample: _Sample, entropy: tuple[int, ...]
) -> Mapping[_Key, list[ArrayLike]]:
    """Return the outcomes of all batches; ``entropy`` seeds their random numbers."""
    seed = entropy
    if question.salt:  # so that two questions on one population draw differently
        seed = (*entropy, question.salt)
    generator = np.random.default_rng(seed)
    outcomes: dict[_Key, list[ArrayLike]] = defaultdict(list)
    # Of tied samples, a method may divide by 0; what it returns counts as it is.
    with np.errstate(all="ignore"), catch_warnings(action="ignore", category=RuntimeWarning):
        for batch in range(question.batches):
            measured = question.measure(sample, generator, (*entropy, batch))
            for key, outcome in measured.items():
                outcomes[key].append(outcome)
    return outcomes


def _measured_share(key: _Key, n: str, outcomes: Array) -> Share:
    """Return the share of simulations with an outcome, and the range of the nominal share."""
    count = len(outcomes)
    share = float(outcomes.sum() / count)
    nominal = _NOMINAL.get(key.kind, _NOMINAL.get(key.method))
    if not nominal:
        return Share(*key, n, count, share, expected=nominal, low=None, high=None)
    # How often the outcome is seen in 99 % of the simulations if the nominal share is right.
    low, high = stats.binom.interval(0.99, count, nominal)
    return Share(
        *key, n, count, share, expected=nominal, low=float(low / count), high=float(high / count)
    )


def _mean_difference(draw: DrawPair, generator: Generator) -> Array | float:
    """The true difference of a pair; of recorded scores, those of the pairs that are drawn."""
    _, _, truth = draw(generator, (1, _LARGE // 10), shift=True)
    return truth


def _large_correlation(draw: Any, generator: Generator) -> float:
    """Spearman's correlation in a large sample."""
    return float(stats.spearmanr(*draw(generator, _LARGE)).statistic)


def _three_errors(draw: DrawScores, generator: Generator) -> float:
    """Three standard errors of the difference of two systems, on a single query."""
    scores = draw(generator, (_LARGE // 10, SYSTEMS))
    first_scores, last_scores = scores[:, 0], scores[:, -1]
    return 3.0 * float((first_scores - last_scores).std())


# Outcomes of a batch of simulations.


def _test_outcomes(
    methods: Mapping[str, Method], sample: _Sample, generator: Generator, seed: Sequence[int]
) -> Outcomes:
    """False positives and power of tests, coverage of intervals."""
    shape = (sample.n, _BATCH)
    equal_a, equal_b, _ = sample.draw(generator, shape, shift=False)
    better, worse, truth = sample.draw(generator, shape, shift=True)
    outcomes: Outcomes = {}
    for name, method in methods.items():
        result = method(better, worse, seed)  # p-values (count,), or ends of intervals (count, 2)
        is_interval = result.ndim == 2
        if is_interval:
            outcomes[sample.key(name, "coverage")] = _contain_truth(result, truth)
        else:
            p_values_of_equal = method(equal_a, equal_b, seed)
            outcomes[sample.key(name, "false positives")] = p_values_of_equal < ALPHA
            # Power is of a certain difference, which the name therefore states.
            process = f"{sample.process}, {sample.truth:.3f}"
            outcomes[_Key(name, "power", process)] = result < ALPHA
    # Once per size, and not with a user's function.
    if sample.process == "normal" and methods is METHODS:
        outcomes[sample.key(_MDE, "power")] = _detected(sample.n, generator)
    return outcomes


def _detected(n: int, generator: Generator) -> Booleans:
    """Whether a t-test finds an effect of the size that n queries are said to show."""
    of_deviation_one = stats.zscore(np.arange(n), ddof=1)
    effect = minimum_detectable_effect(of_deviation_one, np.zeros(n)) or 0.0
    differences = generator.normal(effect, 1.0, size=(n, _BATCH))
    test = stats.ttest_1samp(differences, 0.0)
    return np.asarray(test.pvalue < ALPHA)


def _equivalence_outcomes(
    count: int, sample: _Sample, generator: Generator, seed: Sequence[int]
) -> Outcomes:
    """Whether two systems are called equivalent whose true difference is the margin."""
    a, b, truth = sample.draw(generator, (sample.n, count), shift=True)
    differences = a - b
    # A little below the true difference, so that to find equivalence is an error.
    margin = float(truth) * (1 - 1e-9)
    ends = intervals.difference_intervals(differences.T, level=LEVEL)
    is_within = [intervals.within(interval, margin) for interval in ends]
    # Schuirmann 1987: both one-sided tests reject if the interval of level 0.90 is within.
    half_width = stats.t.ppf(1 - ALPHA, sample.n - 1) * stats.sem(differences)
    is_rejected = half_width < margin - abs(differences.mean(axis=0))
    kind = "false equivalence"
    return {
        sample.key(INTERVALS["widened"], kind): is_within,
        sample.key("two one-sided t-tests", kind): is_rejected,
    }


def _mean_outcomes(sample: _Sample, generator: Generator, seed: Sequence[int]) -> Outcomes:
    """Coverage of the intervals of scores."""
    values = sample.draw(generator, (sample.n, _BATCH))
    zero = np.zeros((1, 1))  # a mean is its difference from 0
    ends = {}
    # Values of a V-measure are repeated draws of k-means, which are shown with Student's.
    if sample.process != "V-measure":
        widened_intervals = [intervals.mean_interval(column, level=LEVEL) for column in values.T]
        ends["widened"] = interval_ends(interval for _, interval in widened_intervals)
    ends["student"] = student(values, zero)
    ends["percentile"] = percentile(values, zero, seed)
    return _coverage(sample, ends)


def _correlation_outcomes(sample: _Sample, generator: Generator, seed: Sequence[int]) -> Outcomes:
    """Coverage of the intervals of Spearman's correlation, of one sample."""
    first_scores, second_scores = sample.draw(generator, sample.n)
    # Fewer draws than of means, because every resample has to be ranked.
    rows = generator.integers(0, sample.n, size=(DRAWS // 4, sample.n))
    resamples = np.stack([first_scores[rows], second_scores[rows]], axis=-1)  # (draws, n, 2)
    correlations = AGGREGATES["spearman"](resamples)
    is_defined = np.isfinite(correlations)  # not where all drawn values are the same
    bootstrap = resampling.percentile_interval(correlations[is_defined], level=LEVEL)
    fisher = intervals.correlation_interval(
        first_scores, second_scores, how="spearman", level=LEVEL
    )
    ends = {"fisher": interval_ends([fisher]), "percentile": interval_ends([bootstrap])}
    return _coverage(sample, ends)


def _coverage(sample: _Sample, ends: Mapping[str, Array]) -> Outcomes:
    """Whether intervals by several methods contain the true value."""
    outcomes: Outcomes = {}
    for method, ends_of_method in ends.items():
        key = sample.key(INTERVALS[method], "score coverage")
        outcomes[key] = _contain_truth(ends_of_method, sample.truth)
    return outcomes


def _training_outcomes(sample: _Sample, generator: Generator, seed: Sequence[int]) -> Outcomes:
    """Coverage of the TIR's interval over seeds and queries.

    A score is the sum of the query's difficulty, the seed's effect on the system (standard
    deviation 0.01) and noise. With little noise, most of the variance is between seeds, and a few
    seeds estimate it poorly.
    """
    # Here a size is a number of seeds, and a population the deviation of the noise.
    seeds, noise_deviation = sample.n, sample.draw
    shape_of_runs = (2, seeds, _BATCH)  # specialists and joint runs
    # Mean scores of both, with TIR = (specialist - joint) / specialist.
    levels = np.array([0.5, 0.5 * (1 - TRUE_TIR)]).reshape(2, 1, 1)
    difficulties = generator.normal(0, 0.3, size=(QUERIES, 1, 1, _BATCH))
    seed_effects = generator.normal(0, 0.01, size=shape_of_runs)
    noise = generator.normal(0, noise_deviation, size=(QUERIES, *shape_of_runs))
    all_scores = levels + seed_effects + difficulties + noise
    queries = tuple(str(query) for query in range(QUERIES))
    ratio_intervals = []
    for scores in np.moveaxis(all_scores, -1, 0):  # of each simulation: (queries, 2, seeds)
        data = DataSetScores(scores.mean(axis=0), QueryScores(queries, scores))
        interference = estimate("simulated", range(seeds), [data], gate=Gate())
        ratio_intervals.append(interference.estimate.interval)
    key = sample.key("TIR over seeds and queries", "coverage")
    return {key: _contain_truth(interval_ends(ratio_intervals), TRUE_TIR)}


_PAIRS = list(combinations(range(SYSTEMS), 2))
_FIRST, _SECOND = np.array(_PAIRS).T
# Pairs of one of the first four systems and one of the second, which are better.
_TRULY_DIFFERENT = (_FIRST < SYSTEMS // 2) & (_SECOND >= SYSTEMS // 2)


def _family_outcomes(sample: _Sample, generator: Generator, seed: Sequence[int]) -> Outcomes:
    """Errors and power of tests of all pairs of eight systems, by correction, of one sample.

    Under the complete null hypothesis no two systems differ; under the partial one, each of the
    second four is better than each of the first by three standard errors of the difference.
    """
    scores = sample.draw(generator, (sample.n, SYSTEMS))
    outcomes: Outcomes = {}
    # The complete null hypothesis: no two systems differ, and every rejection is an error.
    process = f"{sample.process}, complete"
    for method, is_rejected in _rejected_pairs(scores, seed).items():
        outcomes[_Key(method, "family-wise error", process)] = is_rejected.any()
    three_standard_errors = sample.truth / np.sqrt(sample.n)  # the truth is of one query
    # The partial one: the second half of the systems is better than the first.
    scores[:, SYSTEMS // 2 :] += three_standard_errors
    process = f"{sample.process}, partial"
    for method, is_rejected in _rejected_pairs(scores, seed).items():
        is_error = is_rejected & ~_TRULY_DIFFERENT
        # The false discovery rate; 0 if nothing is rejected.
        share_of_errors = is_error.sum() / max(1, is_rejected.sum())
        outcomes[_Key(method, "family-wise error", process)] = is_error.any()
        outcomes[_Key(method, "family power", process)] = is_rejected[_TRULY_DIFFERENT].mean()
        outcomes[_Key(method, "false discoveries", process)] = share_of_errors
    return outcomes


def _rejected_pairs(scores: Array, seed: Sequence[int]) -> dict[str, Booleans]:
    """Return which pairs of systems are called different, by correction."""
    raw, max_t = resampling.max_t_p_values(scores, _PAIRS, n_resamples=DRAWS, seed=seed)
    ranks = wilcoxon(scores[:, _FIRST], scores[:, _SECOND])
    return {
        "MaxT": np.array(max_t) < ALPHA,
        "Holm": np.array(holm(raw)) < ALPHA,
        "Wilcoxon, BH": np.array(benjamini_hochberg(ranks.tolist())) < ALPHA,
    }


def _contain_truth(ends: Array, truth: Array | float) -> Booleans:
    """Whether intervals (count, 2) contain the true value, to rounding."""
    contain: Booleans = (ends[:, 0] - 1e-9 <= truth) & (truth <= ends[:, 1] + 1e-9)
    return contain
