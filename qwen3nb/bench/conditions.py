"""Error rates where an assumption of a method fails, and of the method that takes its place.

What is simulated, by process::

    skewed scores           eight systems with gamma-distributed scores of the same mean and shapes
                            from .3 to 3: no difference of a pair is symmetric
    one large cluster       of 240 queries, a sixth or half in one of G clusters; 90 % of the
                            variance is between clusters
    P(A > B) = .983         means of prompts that are three standard deviations apart
    query effects           exponential or lognormal, of which a few queries hold much
    tasks that tie          half or four fifths of the differences on T tasks are 0
    one in eight wins       the others tie: what a plan and the number of queries promise
"""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from qwen3nb.analysis.comparison.plan import Plan
from qwen3nb.analysis.comparison.prompt_effects import score_interval, variance_components
from qwen3nb.analysis.comparison.ranking import on_tasks_like_these
from qwen3nb.analysis.stats import resampling
from qwen3nb.analysis.stats.multiple_testing import holm
from qwen3nb.analysis.stats.paired_tests import queries_to_show
from qwen3nb.analysis.stats.resampling import LEVEL
from qwen3nb.analysis.stats.skewness import skewed
from qwen3nb.metrics import intervals
from qwen3nb.metrics.intervals import Array, Interval

ERRORS, COVERAGE, POWER = "condition errors", "condition coverage", "condition power"
ALPHA = 1 - LEVEL
_SYSTEMS = 8
_SHAPES = np.geomspace(0.3, 3, _SYSTEMS)
_PAIRS = [*combinations(range(_SYSTEMS), 2)]
_FLIPS = 2000
_QUERIES = 240  # in clusters
_BETWEEN = 0.9  # share of the variance between clusters
_RESAMPLES = 400  # of the bootstrap of prompts
_PROMPT_SPREAD = 0.05
_TRUE_P = float(stats.norm.cdf(3 / np.sqrt(2)))
_FEWEST_OF_VARIANCE, _FEWEST_OF_TASKS = 8, 1000  # simulations, so that some have an interval
_LOGNORMAL_DEVIATION = np.sqrt((np.e - 1) * np.e)
# Shares of tasks that tie, and of queries in one cluster, with the names of the processes.
_TIES = {0.5: "half of the tasks tie", 0.8: "four fifths of the tasks tie"}
_LARGE_CLUSTERS = {1 / 6: "a sixth in one cluster", 1 / 2: "half in one cluster"}
_WIN_CHANCE = 1 / 8  # whose sizes have the distribution beta(1, 2)
_MARGIN = _WIN_CHANCE / 3  # the mean of the wins
_MEAN_SQUARE = _WIN_CHANCE / 6  # of the wins
_TOLERANCE = 1e-3  # of an end of an interval, to three digits
# Scores of which some are far from the others, all with the same deviation.
_FAR_SHARE, _FAR_MEAN, _NEAR_MEAN, _FAR_DEVIATION = 0.06, 0.9, 0.2, 0.06

Generator = np.random.Generator


class Outcome(NamedTuple):
    """Whether a method held, or erred, in each of some simulations."""

    kind: str
    method: str
    process: str
    n: int  # of queries, clusters, prompts or tasks
    held: Array  # (simulations,)


def conditions(simulations: int, seed: int) -> Iterator[Outcome]:
    """Yield the outcomes under every condition; ``simulations`` are those of the cheap ones."""
    # One generator for all: the order of the conditions decides what each draws.
    generator = np.random.default_rng((seed, 0xC0))  # a stream that no other question has
    tenth = math.ceil(simulations / 10)
    for queries in (10, 20, 50, 200):
        yield from _skewed_families(generator, queries, tenth, seed)
    for share, process in _LARGE_CLUSTERS.items():
        for clusters in (10, 20, 40):
            yield from _large_cluster(generator, share, process, clusters, simulations)
    for prompts in (3, 5, 8, 15):
        yield from _prompts(generator, prompts, tenth)
    for queries in (50, 200):
        simulations_of_variance = max(_FEWEST_OF_VARIANCE, tenth // 4)
        yield from _variances(generator, queries, simulations_of_variance)
    for tasks in (5, 10, 15):
        for share, process in _TIES.items():
            simulations_of_tasks = max(_FEWEST_OF_TASKS, simulations)
            yield from _tied_tasks(generator, share, process, tasks, simulations_of_tasks)
    yield _planned_queries(generator, tenth)
    yield _queries_for_equivalence(generator, tenth)
    for queries in (20, 50, 200):
        yield _far_scores(generator, queries, simulations)


def _skewed_families(
    generator: Generator, n: int, simulations: int, seed: int
) -> Iterator[Outcome]:
    """Families of which no two systems differ: is one called different?"""
    by_max_t, by_holm, by_shown_method = [], [], []  # the lowest p-value of each family
    for number in range(simulations):
        # Gamma distributions of several shapes, all with the mean shape · (1 / shape) · 0.1.
        scores = 0.1 * generator.gamma(_SHAPES, 1 / _SHAPES, (n, _SYSTEMS))
        raw, max_t = resampling.max_t_p_values(
            scores, _PAIRS, n_resamples=_FLIPS, seed=(seed, n, number)
        )
        by_max_t.append(min(max_t))
        by_holm.append(min(holm(raw)))
        by_shown_method.append(by_holm[-1] if skewed(scores, _PAIRS) else by_max_t[-1])
    lowest = {"MaxT": by_max_t, "Holm": by_holm, "MaxT or Holm (shown)": by_shown_method}
    for method, p_values in lowest.items():
        is_error = np.array(p_values) < ALPHA
        errors = is_error.astype(float)  # in a kind of errors, whether it erred
        yield Outcome(ERRORS, method, process="skewed scores", n=n, held=errors)


def _large_cluster(
    generator: Generator, share: float, process: str, count: int, simulations: int
) -> Iterator[Outcome]:
    """Intervals of a mean of 0."""
    sizes = _cluster_sizes(share, count)
    cluster_of_query = np.repeat(np.arange(count), sizes)
    cluster_effects = generator.normal(0, np.sqrt(_BETWEEN), (simulations, count))
    query_effects = generator.normal(0, np.sqrt(1 - _BETWEEN), (simulations, _QUERIES))
    # Of variance 1 together; scaled to be like differences of scores, from -1 to 1.
    differences = 0.2 * (cluster_effects[:, cluster_of_query] + query_effects)
    # Centred, (G / n) sum(v - mean) + mean, without what enlarges those of large clusters.
    sums = resampling.cluster_values(differences, cluster_of_query, centred=False)
    means = differences.mean(axis=1, keepdims=True)
    usual = sums + means * (1 - count * sizes / _QUERIES)
    bell_mccaffrey = resampling.cluster_values(differences, cluster_of_query)
    methods = {"usual cluster-robust": usual, "Bell and McCaffrey (shown)": bell_mccaffrey}
    for method, values in methods.items():
        ends = intervals.difference_intervals(values, level=LEVEL)
        yield Outcome(COVERAGE, method, process, count, _contain_truth(ends, 0.0))


def _cluster_sizes(share: float, count: int) -> NDArray[np.intp]:
    """Return the sizes of clusters, the first of which has a share of the queries."""
    largest = round(share * _QUERIES)
    sizes = np.full(count, (_QUERIES - largest) // (count - 1))
    sizes[0] = _QUERIES - sizes[1:].sum()  # with what is left over
    return sizes


def _prompts(generator: Generator, count: int, simulations: int) -> Iterator[Outcome]:
    """The probability that one of two models is better if each gets a prompt at random."""
    bootstrap: list[Interval] = []
    newcombe: list[Interval] = []
    for _ in range(simulations):
        # Three deviations apart: P(A > B) = Φ(3 / sqrt(2)) = .983.
        first_scores = generator.normal(3 * _PROMPT_SPREAD, _PROMPT_SPREAD, count)
        second_scores = generator.normal(0, _PROMPT_SPREAD, count)
        # Of one row of prompts.
        probability = float(_shares_won(first_scores[None], second_scores[None])[0])
        # Each row draws prompts with replacement: (resamples, prompts).
        first_rows, second_rows = generator.integers(0, count, (2, _RESAMPLES, count))
        probabilities = _shares_won(first_scores[first_rows], second_scores[second_rows])
        bootstrap.append(resampling.percentile_interval(probabilities, level=LEVEL))
        newcombe.append(score_interval(probability, count, count))
    process = "P(A > B) = .983"
    yield Outcome(COVERAGE, "bootstrap", process, count, _contain_truth(bootstrap, _TRUE_P))
    yield Outcome(COVERAGE, "Newcombe (shown)", process, count, _contain_truth(newcombe, _TRUE_P))


def _shares_won(first: Array, second: Array) -> Array:
    """Return the share of pairs of prompts in which the first is higher: (R, P), (R, P) to (R,)."""
    is_won = first[:, :, None] > second[:, None, :]
    return np.asarray(is_won.mean(axis=(1, 2)))


def _variances(generator: Generator, n: int, simulations: int) -> Iterator[Outcome]:
    """The share of queries in the variance of scores with ten prompts; of intervals shown."""
    # Effects of queries, (n, 1), all with variance 1.
    draws: dict[str, Callable[[], Array]] = {
        "normal query effects": lambda: generator.normal(size=(n, 1)),
        "exponential query effects": lambda: generator.exponential(size=(n, 1)),
        "lognormal query effects": lambda: generator.lognormal(size=(n, 1)) / _LOGNORMAL_DEVIATION,
    }
    prompts = 10
    prompt_deviation, noise_deviation = 0.2, 0.3
    query_variance = 1.0
    true_share = query_variance / (query_variance + prompt_deviation**2 + noise_deviation**2)
    for process, draw_query_effects in draws.items():
        share_intervals: list[Interval | None] = []
        for number in range(simulations):
            scores = draw_query_effects()
            scores = scores + generator.normal(0, prompt_deviation, (1, prompts))
            scores = scores + generator.normal(0, noise_deviation, (n, prompts))
            query_share, *_ = variance_components(scores, ("query", "prompt"), seed=number)
            share_intervals.append(query_share.interval)
        yield from _where_shown("share of variance", process, n, share_intervals, true_share)


def _tied_tasks(
    generator: Generator, share: float, process: str, count: int, simulations: int
) -> Iterator[Outcome]:
    """The mean difference over tasks that are drawn as a sample; of intervals shown."""
    mean_of_others = 0.1
    is_tied = generator.random((simulations, count)) < share  # a row per simulation
    untied_differences = generator.exponential(mean_of_others, (simulations, count))
    differences = np.where(is_tied, 0.0, untied_differences)
    truth = (1 - share) * mean_of_others
    method = "Student's over tasks"
    student = [intervals.student_interval(row, level=LEVEL) for row in differences]
    yield Outcome(COVERAGE, method, process, count, _contain_truth(student, truth))
    task_intervals = [on_tasks_like_these(row) for row in differences]
    yield from _where_shown(method, process, count, task_intervals, truth)


def _where_shown(
    method: str, process: str, n: int, found: Sequence[Interval | None], truth: float
) -> Iterator[Outcome]:
    """Coverage of the intervals that pages show, and how often they show one."""
    shown_intervals = [interval for interval in found if interval is not None]
    is_shown = [interval is not None for interval in found]
    yield Outcome(
        COVERAGE, f"{method}, where shown", process, n, _contain_truth(shown_intervals, truth)
    )
    yield Outcome("condition shown", method, process, n, np.array(is_shown, dtype=float))


def _planned_queries(generator: Generator, simulations: int) -> Outcome:
    """What a plan promises of a number of queries: 80 % of samples show the difference."""
    plan = Plan(baseline="b", models=("a",), tasks=("T",), margin=_MARGIN)
    deviation = float(np.sqrt(_MEAN_SQUARE - _MARGIN**2))  # variance: E(x²) - E(x)²
    queries_needed = plan.needed(deviation)
    if queries_needed is None:  # no number is enough, so that none is simulated
        queries_needed = 0
    is_won = generator.random((queries_needed, simulations)) < _WIN_CHANCE
    sizes = generator.beta(1, 2, is_won.shape)  # of wins: mean 1/3, mean square 1/6
    differences = np.where(is_won, sizes, 0.0)
    # Each simulation is a system, compared with the last column, of zeros.
    columns = np.column_stack([differences, np.zeros(queries_needed)])
    pairs = [(column, simulations) for column in range(simulations)]
    p_values, _ = resampling.max_t_p_values(columns, pairs, n_resamples=_FLIPS, seed=0)
    ends = intervals.difference_intervals(differences.T, level=LEVEL)
    is_significant = [
        p_value < ALPHA and interval is not None and interval[0] > 0
        for p_value, interval in zip(p_values, ends, strict=True)
    ]
    successes = np.array(is_significant, dtype=float)
    return Outcome(
        POWER, method="plan", process="one in eight wins", n=queries_needed, held=successes
    )


def _queries_for_equivalence(generator: Generator, simulations: int) -> Outcome:
    """What is promised of a number of queries like those of a sample: 80 % show equivalence."""
    margin = 0.05
    sample = generator.normal(0, 0.2, 40)
    queries_needed = queries_to_show(sample, margin=margin)
    if queries_needed is None:  # no number is enough, so that none is simulated
        queries_needed = 0
    resamples = generator.choice(sample, (simulations, queries_needed))
    ends = intervals.difference_intervals(resamples, level=LEVEL)
    is_within = [intervals.within(interval, margin) for interval in ends]
    return Outcome(
        POWER,
        method="queries needed for equivalence",
        process="like a sample of 40",
        n=queries_needed,
        held=np.array(is_within, dtype=float),
    )


def _far_scores(generator: Generator, n: int, simulations: int) -> Outcome:
    """Scores of which 6 % are far from the others, whose spread hides that they may lack."""
    shape = (simulations, n)
    is_far = generator.random(shape) < _FAR_SHARE
    near_scores = generator.normal(_NEAR_MEAN, _FAR_DEVIATION, shape)
    far_scores = generator.normal(_FAR_MEAN, _FAR_DEVIATION, shape)
    scores = np.where(is_far, far_scores, near_scores).clip(0, 1)
    truth = (1 - _FAR_SHARE) * _NEAR_MEAN + _FAR_SHARE * _FAR_MEAN
    ends = []
    for sample in scores:
        _, interval = intervals.mean_interval(sample, level=LEVEL)
        ends.append(interval)
    process = "6 % of the scores are far from the others"
    method = "widened Student's, of a score"
    return Outcome(COVERAGE, method, process, n, _contain_truth(ends, truth))


def _contain_truth(ends: Sequence[Interval | None], truth: float) -> Array:
    """Whether intervals contain the true value, to three digits; a missing one does not."""
    contain = []
    for interval in ends:
        if interval is None:
            contain.append(False)
        else:
            low, high = interval
            contain.append(low - _TOLERANCE <= truth <= high + _TOLERANCE)
    return np.array(contain, dtype=float)
