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
_LEAST_SHOWN, _LEAST_TASKS = 8, 1000  # simulations, so that some have an interval
_LOGNORMAL_DEVIATION = np.sqrt((np.e - 1) * np.e)
_TIES = ((0.5, "half of the tasks tie"), (0.8, "four fifths of the tasks tie"))
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
    tenth = math.ceil(simulations / 10)
    for n in (10, 20, 50, 200):
        yield from _skewed_families(generator, n, tenth, seed)
    for share, process in ((1 / 6, "a sixth in one cluster"), (1 / 2, "half in one cluster")):
        for clusters in (10, 20, 40):
            yield from _large_cluster(generator, share, process, clusters, simulations)
    for prompts in (3, 5, 8, 15):
        yield from _prompts(generator, prompts, tenth)
    for n in (50, 200):
        yield from _variances(generator, n, max(_LEAST_SHOWN, tenth // 4))
    for tasks in (5, 10, 15):
        for share, process in _TIES:
            yield from _tied_tasks(generator, share, process, tasks, max(_LEAST_TASKS, simulations))
    yield _planned_queries(generator, tenth)
    yield _queries_for_equivalence(generator, tenth)
    for n in (20, 50, 200):
        yield _far_scores(generator, n, simulations)


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
        adjusted = holm(raw)
        of_pages = adjusted if skewed(scores, _PAIRS) else max_t
        errors["MaxT"].append(min(max_t) < ALPHA)
        errors["Holm"].append(min(adjusted) < ALPHA)
        errors["MaxT or Holm (shown)"].append(min(of_pages) < ALPHA)
    for method, outcomes in errors.items():
        yield Outcome(ERRORS, method, "skewed scores", n, np.array(outcomes, dtype=float))


def _large_cluster(
    generator: Generator, share: float, process: str, count: int, simulations: int
) -> Iterator[Outcome]:
    """Intervals of a mean of 0."""
    large = round(share * _QUERIES)
    sizes = np.full(count, (_QUERIES - large) // (count - 1))
    sizes[0] = _QUERIES - sizes[1:].sum()
    cluster = np.repeat(np.arange(count), sizes)
    of_clusters = generator.normal(0, np.sqrt(_BETWEEN), (simulations, count))
    of_queries = generator.normal(0, np.sqrt(1 - _BETWEEN), (simulations, _QUERIES))
    differences = 0.2 * (of_clusters[:, cluster] + of_queries)
    robust = resampling.cluster_values(differences, cluster, centred=False)
    robust += differences.mean(axis=1, keepdims=True) * (1 - count * sizes / _QUERIES)
    bell_mccaffrey = resampling.cluster_values(differences, cluster)
    methods = {"usual cluster-robust": robust, "Bell and McCaffrey (shown)": bell_mccaffrey}
    for method, values in methods.items():
        ends = intervals.difference_intervals(values, level=LEVEL)
        yield Outcome(COVERAGE, method, process, count, _contain(ends, 0.0))


def _prompts(generator: Generator, count: int, simulations: int) -> Iterator[Outcome]:
    """The probability that one of two models is better if each gets a prompt at random."""
    bootstrap: list[Interval] = []
    newcombe: list[Interval] = []
    for _ in range(simulations):
        first = generator.normal(3 * _PROMPT_SPREAD, _PROMPT_SPREAD, count)
        second = generator.normal(0, _PROMPT_SPREAD, count)
        probability = float(np.mean(first[:, None] > second))
        picks = generator.integers(0, count, (2, _RESAMPLES, count))
        wins = first[picks[0]][:, :, None] > second[picks[1]][:, None, :]
        drawn = wins.mean(axis=(1, 2))
        bootstrap.append(resampling.percentile_interval(drawn, level=LEVEL))
        newcombe.append(score_interval(probability, count, count))
    process = "P(A > B) = .983"
    yield Outcome(COVERAGE, "bootstrap", process, count, _contain(bootstrap, _TRUE_P))
    yield Outcome(COVERAGE, "Newcombe (shown)", process, count, _contain(newcombe, _TRUE_P))


def _variances(generator: Generator, n: int, simulations: int) -> Iterator[Outcome]:
    """The share of queries in the variance of scores with ten prompts; of intervals shown."""
    draws: dict[str, Callable[[], Array]] = {
        "normal query effects": lambda: generator.normal(size=(n, 1)),
        "exponential query effects": lambda: generator.exponential(size=(n, 1)),
        "lognormal query effects": lambda: generator.lognormal(size=(n, 1)) / _LOGNORMAL_DEVIATION,
    }
    truth = 1 / (1 + 0.2**2 + 0.3**2)
    for process, draw in draws.items():
        found: list[Interval | None] = []
        for number in range(simulations):
            queries = draw()
            prompts = generator.normal(0, 0.2, (1, 10))
            scores = queries + prompts + generator.normal(0, 0.3, (n, 10))
            query_share, *_ = variance_components(scores, ("query", "prompt"), seed=number)
            found.append(query_share.interval)
        yield from _where_shown("share of variance", process, n, found, truth)


def _tied_tasks(
    generator: Generator, share: float, process: str, count: int, simulations: int
) -> Iterator[Outcome]:
    """The mean difference over tasks that are drawn as a sample; of intervals shown."""
    tied = generator.random((simulations, count)) < share
    values = np.where(tied, 0.0, generator.exponential(0.1, (simulations, count)))
    truth = (1 - share) * 0.1
    student = [intervals.student_interval(row, level=LEVEL) for row in values]
    yield Outcome(COVERAGE, "Student's over tasks", process, count, _contain(student, truth))
    found = [on_tasks_like_these(row) for row in values]
    yield from _where_shown("Student's over tasks", process, count, found, truth)


def _where_shown(
    method: str, process: str, n: int, found: Sequence[Interval | None], truth: float
) -> Iterator[Outcome]:
    """Coverage of the intervals that pages show, and how often they show one."""
    intervals_shown = [interval for interval in found if interval is not None]
    held = _contain(intervals_shown, truth)
    yield Outcome(COVERAGE, f"{method}, where shown", process, n, held)
    is_shown = np.array([interval is not None for interval in found], dtype=float)
    yield Outcome("condition shown", method, process, n, is_shown)


def _planned_queries(generator: Generator, simulations: int) -> Outcome:
    """What a plan promises of a number of queries: 80 % of samples show the difference."""
    plan = Plan(baseline="b", models=("a",), tasks=("T",), margin=_MARGIN)
    deviation = float(np.sqrt(1 / 48 - _MARGIN**2))  # of one win in eight, by beta(1, 2)
    needed = plan.needed(deviation) or 0
    wins = generator.random((needed, simulations)) < 1 / 8
    differences = np.where(wins, generator.beta(1, 2, wins.shape), 0.0)
    columns = np.column_stack([differences, np.zeros(needed)])
    pairs = [(column, simulations) for column in range(simulations)]
    p_values, _ = resampling.max_t_p_values(columns, pairs, n_resamples=_FLIPS, seed=0)
    ends = intervals.difference_intervals(differences.T, level=LEVEL)
    lower_ends = np.array([interval[0] if interval else -1.0 for interval in ends])
    significant = (np.array(p_values) < ALPHA) & (lower_ends > 0)
    return Outcome(POWER, "plan", "one in eight wins", needed, significant.astype(float))


def _queries_for_equivalence(generator: Generator, simulations: int) -> Outcome:
    """What is promised of a number of queries like those of a sample: 80 % show equivalence."""
    sample = generator.normal(0, 0.2, 40)
    needed = queries_to_show(sample, margin=0.05) or 0
    resamples = generator.choice(sample, (simulations, needed))
    ends = intervals.difference_intervals(resamples, level=LEVEL)
    within = np.array([intervals.within(interval, 0.05) for interval in ends], dtype=float)
    method = "queries needed for equivalence"
    return Outcome(POWER, method, "like a sample of 40", needed, within)


def _far_scores(generator: Generator, n: int, simulations: int) -> Outcome:
    """Scores of which 6 % are far from the others, whose spread hides that they may lack."""
    is_far = generator.random((simulations, n)) < 0.06
    near = generator.normal(0.2, 0.06, (simulations, n))
    scores = np.where(is_far, generator.normal(0.9, 0.06, near.shape), near).clip(0, 1)
    truth = 0.94 * 0.2 + 0.06 * 0.9
    ends = [intervals.mean_interval(row, level=LEVEL)[1] for row in scores]
    process = "6 % of the scores are far from the others"
    method = "widened Student's, of a score"
    return Outcome(COVERAGE, method, process, n, _contain(ends, truth))


def _contain(ends: Sequence[Interval | None], truth: float) -> Array:
    """Whether intervals contain the true value, to three digits; a missing one does not."""
    contain = []
    for interval in ends:
        if interval is None:
            contain.append(False)
        else:
            low, high = interval
            contain.append(low - 1e-3 <= truth <= high + 1e-3)
    return np.array(contain, dtype=float)
