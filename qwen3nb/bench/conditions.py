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

from collections.abc import Callable, Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy import stats

from qwen3nb.analysis.comparison.plan import Plan
from qwen3nb.analysis.comparison.prompt_effects import score_interval, variance_components
from qwen3nb.analysis.comparison.ranking import on_tasks_like_these
from qwen3nb.analysis.stats import resampling
from qwen3nb.analysis.stats.multiple_testing import holm
from qwen3nb.analysis.stats.paired_tests import queries_to_show
from qwen3nb.analysis.stats.skewness import skewed
from qwen3nb.metrics import intervals
from qwen3nb.metrics.intervals import Array, Interval

ERRORS, COVERAGE, POWER = "condition errors", "condition coverage", "condition power"
_SYSTEMS = 8
_SHAPES = np.geomspace(0.3, 3, _SYSTEMS)
_PAIRS = [*combinations(range(_SYSTEMS), 2)]
_FLIPS = 2000
_QUERIES = 240  # in clusters
_BETWEEN = 0.9  # share of the variance between clusters
_RESAMPLES = 400  # of the bootstrap of prompts
_PROMPT_SPREAD = 0.05
_TRUE_P = float(stats.norm.cdf(3 / np.sqrt(2)))
_LEAST_SHOWN, _LEAST_TASKS = 8, 1000  # simulations, so that some have an interval
_MARGIN = 1 / 24  # mean of one win in eight of mean size 1 / 3

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
    generator = np.random.default_rng((seed, 0xC0))
    few = -(-simulations // 10)
    for n in (10, 20, 50, 200):
        yield from _skewed_families(generator, n, few, seed)
    for share, name in ((1 / 6, "a sixth in one cluster"), (1 / 2, "half in one cluster")):
        for count in (10, 20, 40):
            yield from _large_cluster(generator, share, name, count, simulations)
    for count in (3, 5, 8, 15):
        yield from _prompts(generator, count, few)
    for n in (50, 200):
        yield from _variances(generator, n, max(_LEAST_SHOWN, few // 4))
    for count in (5, 10, 15):
        for share, name in ((0.5, "half of the tasks tie"), (0.8, "four fifths of the tasks tie")):
            yield from _tied_tasks(generator, share, name, count, max(_LEAST_TASKS, simulations))
    yield from _rare_wins(generator, few)
    yield from _far_scores(generator, simulations)


def _skewed_families(
    generator: Generator, n: int, simulations: int, seed: int
) -> Iterator[Outcome]:
    """Families of which no two systems differ: is one called different?"""
    errors: dict[str, list[bool]] = {"MaxT": [], "Holm": [], "MaxT or Holm (shown)": []}
    for number in range(simulations):
        scores = 0.1 * generator.gamma(_SHAPES, 1 / _SHAPES, (n, _SYSTEMS))
        raw, max_t = resampling.max_t_p_values(
            scores, _PAIRS, n_resamples=_FLIPS, seed=(seed, n, number)
        )
        by_holm = holm(raw)
        chosen = by_holm if skewed(scores, _PAIRS) else max_t
        for found, p_values in zip(errors.values(), (max_t, by_holm, chosen), strict=True):
            found.append(min(p_values) < 1 - resampling.LEVEL)
    for method, found in errors.items():
        yield Outcome(ERRORS, method, "skewed scores", n, np.array(found, dtype=float))


def _large_cluster(
    generator: Generator, share: float, name: str, count: int, simulations: int
) -> Iterator[Outcome]:
    """Intervals of a mean of 0."""
    large = round(share * _QUERIES)
    sizes = np.full(count, (_QUERIES - large) // (count - 1))
    sizes[0] = _QUERIES - sizes[1:].sum()
    cluster = np.repeat(np.arange(count), sizes)
    shared = generator.normal(0, np.sqrt(_BETWEEN), (simulations, count))
    alone = generator.normal(0, np.sqrt(1 - _BETWEEN), (simulations, _QUERIES))
    differences = 0.2 * (shared[:, cluster] + alone)
    usual = resampling.cluster_values(differences, cluster, centred=False)
    usual += differences.mean(axis=1, keepdims=True) * (1 - count * sizes / _QUERIES)
    shown = resampling.cluster_values(differences, cluster)
    for method, units in (("usual cluster-robust", usual), ("Bell and McCaffrey (shown)", shown)):
        ends = intervals.difference_intervals(units, level=resampling.LEVEL)
        yield Outcome(COVERAGE, method, name, count, _hold(ends, 0.0))


def _prompts(generator: Generator, count: int, simulations: int) -> Iterator[Outcome]:
    """The probability that one of two models is better if each gets a prompt at random."""
    ends: dict[str, list[Interval]] = {"bootstrap": [], "Newcombe (shown)": []}
    for _ in range(simulations):
        first = generator.normal(3 * _PROMPT_SPREAD, _PROMPT_SPREAD, count)
        second = generator.normal(0, _PROMPT_SPREAD, count)
        probability = float(np.mean(first[:, None] > second))
        picks = generator.integers(0, count, (2, _RESAMPLES, count))
        drawn = (first[picks[0]][:, :, None] > second[picks[1]][:, None, :]).mean(axis=(1, 2))
        ends["bootstrap"].append(resampling.percentile_interval(drawn, level=resampling.LEVEL))
        ends["Newcombe (shown)"].append(score_interval(probability, count, count))
    for method, found in ends.items():
        yield Outcome(COVERAGE, method, "P(A > B) = .983", count, _hold(found, _TRUE_P))


def _variances(generator: Generator, n: int, simulations: int) -> Iterator[Outcome]:
    """The share of queries in the variance of scores with ten prompts; of intervals shown."""
    draws: dict[str, Callable[[], Array]] = {
        "normal query effects": lambda: generator.normal(size=(n, 1)),
        "exponential query effects": lambda: generator.exponential(size=(n, 1)),
        "lognormal query effects": lambda: generator.lognormal(size=(n, 1)),
    }
    deviations = {"lognormal query effects": np.sqrt((np.e - 1) * np.e)}
    for process, draw in draws.items():
        found: list[Interval | None] = []
        for number in range(simulations):
            queries = draw() / deviations.get(process, 1.0)
            prompts = generator.normal(0, 0.2, (1, 10))
            scores = queries + prompts + generator.normal(0, 0.3, (n, 10))
            share, *_ = variance_components(scores, ("query", "prompt"), seed=number)
            found.append(share.interval)
        shown = [each for each in found if each is not None]
        truth = 1 / (1 + 0.2**2 + 0.3**2)
        yield Outcome(COVERAGE, "share of variance, where shown", process, n, _hold(shown, truth))
        given = np.array([each is not None for each in found], dtype=float)
        yield Outcome("condition shown", "share of variance", process, n, given)


def _tied_tasks(
    generator: Generator, share: float, name: str, count: int, simulations: int
) -> Iterator[Outcome]:
    """The mean difference over tasks that are drawn as a sample; of intervals shown."""
    tied = generator.random((simulations, count)) < share
    values = np.where(tied, 0.0, generator.exponential(0.1, (simulations, count)))
    truth = (1 - share) * 0.1
    every = [intervals.student_interval(row, level=resampling.LEVEL) for row in values]
    yield Outcome(COVERAGE, "Student's over tasks", name, count, _hold(every, truth))
    found = [on_tasks_like_these(row) for row in values]
    shown = [interval for interval in found if interval is not None]
    method = "Student's over tasks, where shown"
    yield Outcome(COVERAGE, method, name, count, _hold(shown, truth))
    given = np.array([interval is not None for interval in found], dtype=float)
    yield Outcome("condition shown", "Student's over tasks", name, count, given)


def _rare_wins(generator: Generator, simulations: int) -> Iterator[Outcome]:
    """What is promised of a number of queries: 80 % of samples show it."""
    plan = Plan(baseline="b", models=("a",), tasks=("T",), margin=_MARGIN)
    deviation = float(np.sqrt(1 / 48 - _MARGIN**2))  # of one win in eight, by beta(1, 2)
    needed = plan.needed(deviation) or 0
    wins = generator.random((needed, simulations)) < 1 / 8
    differences = np.where(wins, generator.beta(1, 2, wins.shape), 0.0)
    columns = np.column_stack([differences, np.zeros(needed)])
    pairs = [(column, simulations) for column in range(simulations)]
    p_values, _ = resampling.max_t_p_values(columns, pairs, n_resamples=_FLIPS, seed=0)
    ends = intervals.difference_intervals(differences.T, level=resampling.LEVEL)
    lower = np.array([each[0] if each else -1.0 for each in ends])
    significant = (np.array(p_values) < 1 - resampling.LEVEL) & (lower > 0)
    yield Outcome(POWER, "plan", "one in eight wins", needed, significant.astype(float))
    sample = generator.normal(0, 0.2, 40)
    number = queries_to_show(sample, margin=0.05) or 0
    again = generator.choice(sample, (simulations, number))
    found = intervals.difference_intervals(again, level=resampling.LEVEL)
    shown = np.array([intervals.within(each, 0.05) for each in found], dtype=float)
    yield Outcome(POWER, "queries needed for equivalence", "like a sample of 40", number, shown)


def _far_scores(generator: Generator, simulations: int) -> Iterator[Outcome]:
    """Scores of which 6 % are far from the others, whose spread hides that they may lack."""
    for n in (20, 50, 200):
        far = generator.random((simulations, n)) < 0.06
        near = generator.normal(0.2, 0.06, (simulations, n))
        scores = np.where(far, generator.normal(0.9, 0.06, near.shape), near).clip(0, 1)
        truth = 0.94 * 0.2 + 0.06 * 0.9
        ends = [intervals.mean_interval(row, level=resampling.LEVEL)[1] for row in scores]
        process = "6 % of the scores are far from the others"
        yield Outcome(COVERAGE, "widened Student's, of a score", process, n, _hold(ends, truth))


def _hold(ends: list[Interval] | list[Interval | None], truth: float) -> Array:
    """Whether intervals contain the true value, to three digits."""
    return np.array(
        [each is not None and each[0] - 1e-3 <= truth <= each[1] + 1e-3 for each in ends],
        dtype=float,
    )
