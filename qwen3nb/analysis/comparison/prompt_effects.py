"""What a choice of prompts changes: a model's place among its own scores, the order of two models.

``P(A > B)`` is the probability that A scores higher than B if each gets a prompt at random: the
share of all pairs of a prompt of A and a prompt of B in which A's mean score is higher, ties
counting half (Bouthillier et al. 2021). Its interval has two parts, whose lengths add up in
quadrature on each side: that of the prompts, a score interval for two small samples (Newcombe 2006,
method 5), and that of the queries, the percentiles of a bootstrap that draws queries, the same for
both models. A bootstrap of few prompts is too short: of three, it has no length in half of the
samples if one model is nearly always better.

The variance of scores is split for a crossed design: every query was answered with every prompt and
every seed, once. The model is random effects, ``y = m + q + p + s + qp + qs + ps + e``, whose
components are estimated from the mean squares by the method of moments (Searle, Casella and
McCulloch 1992, chapter 4), and their intervals by generalised pivots: each mean square is divided
by a draw of its chi-squared distribution (Weerahandi 1993), which assumes normally distributed
effects. Where the means of the levels of a factor are not normal, its degrees of freedom follow
from their kurtosis (Box 1953), and where this leaves less than a quarter of them, there are no
intervals: rare levels with large effects decide then, and a sample has too few.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy  # loads scipy.stats on first use, which takes a second
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import scores_by
from qwen3nb.analysis.stats import resampling
from qwen3nb.analysis.stats.resampling import DRAWS, LEVEL, Seed
from qwen3nb.analysis.stats.score_matrix import by_id, shared_queries
from qwen3nb.metrics.intervals import Array, Interval
from qwen3nb.models.kinds.prompts import QueryPrompt
from qwen3nb.records.details import DataFacts, RunFiles, SearchFacts, UsedPrompt
from qwen3nb.records.record import Environment, Result
from qwen3nb.records.results import from_oldest, newest
from qwen3nb.records.side_files import ResultError
from qwen3nb.records.store import PROMPTS, load_results, placed, result_files
from qwen3nb.records.verification import unchanged_record

Factors = tuple[str, ...]
Axes = tuple[int, ...]  # of the factors of an effect
_LEVELS_OF_TEST = 8  # fewest levels of a factor for tests of normality, and
_NORMAL, _FAR_FROM_NORMAL = 0.05, 1e-5  # their levels
_LEAST_FREEDOM = 0.25  # share of the degrees of freedom below which there are no intervals


@dataclass(frozen=True)
class Component:
    """The part of one factor, or of an interaction of several, in the variance of one score."""

    factors: Factors  # such as ``("query", "prompt")``; of all factors, also what is left over
    variance: float  # estimate; below 0 where the data show less than the others would cause
    share: float  # of the sum of all components, of which those below 0 count as 0
    interval: Interval | None  # of the share; None if levels with large effects are rare
    df: int  # degrees of freedom

    @property
    def name(self) -> str:
        """``query × prompt``."""
        return " × ".join(self.factors)


def variance_components(
    scores: ArrayLike, factors: Sequence[str], *, seed: Seed = 0
) -> list[Component]:
    """Split the variance of scores into those of crossed factors and of their interactions.

    Scores have an axis per factor, of two levels or more, such as (queries, prompts, seeds). Single
    factors come first, in their order; the last component is of all factors.
    """
    values = np.asarray(scores, dtype=np.float64)
    effects: list[Axes] = []
    for size in range(1, values.ndim + 1):
        effects += itertools.combinations(range(values.ndim), size)
    df = {effect: math.prod(values.shape[axis] - 1 for axis in effect) for effect in effects}
    squares = {effect: _sum_of_squares(values, effect) / df[effect] for effect in effects}
    estimates = {effect: float(_component(squares, effect, values.shape)) for effect in effects}
    total = math.fsum(max(0.0, estimate) for estimate in estimates.values())
    freedom, holds = _usable_degrees(values, df)
    generator = np.random.default_rng(seed)
    drawn = {
        effect: squares[effect] * degrees / generator.chisquare(degrees, DRAWS)
        for effect, degrees in freedom.items()
    }
    draws = np.stack([_component(drawn, effect, values.shape) for effect in effects])
    draws = np.maximum(draws, 0.0)
    sums = draws.sum(axis=0)
    shares = np.divide(draws, sums, out=np.zeros_like(draws), where=sums > 0)
    components = []
    for effect, drawn_shares in zip(effects, shares, strict=True):
        interval = None
        if holds:
            interval = resampling.percentile_interval(drawn_shares, level=LEVEL)
        share = max(0.0, estimates[effect]) / total if total else 0.0
        names = tuple(factors[axis] for axis in effect)
        components.append(Component(names, estimates[effect], share, interval, df[effect]))
    return components


def _usable_degrees(values: Array, df: Mapping[Axes, int]) -> tuple[dict[Axes, float], bool]:
    """Return the degrees of freedom that kurtosis leaves, and whether intervals can be trusted."""
    freedom: dict[Axes, float] = dict(df)
    holds = True
    for axis in range(values.ndim):
        others = tuple(other for other in range(values.ndim) if other != axis)
        share, is_far = _usable_freedom(values.mean(axis=others))
        freedom[axis,] = df[axis,] * share
        if is_far and share < _LEAST_FREEDOM:
            holds = False
    return freedom, holds


def _usable_freedom(means: Array) -> tuple[float, bool]:
    """The share of the degrees of freedom left by the kurtosis of the means (k,) of levels.

    1 unless a test finds that they are not normal; also whether they are far from that.
    """
    count = len(means)
    if count < _LEVELS_OF_TEST or np.ptp(means) <= _NEAR:
        return 1.0, False
    p_value = min(scipy.stats.skewtest(means).pvalue, scipy.stats.kurtosistest(means).pvalue)
    kurtosis = float(scipy.stats.kurtosis(means, bias=False))
    if p_value >= _NORMAL or kurtosis <= 0:
        return 1.0, False
    usual = 2 / (count - 1)  # of a relative variance of a mean square
    return usual / (usual + kurtosis / count), bool(p_value < _FAR_FROM_NORMAL)


def _sum_of_squares(values: Array, axes: tuple[int, ...]) -> float:
    """The sum of squares of an effect: means over the other axes, less those of parts of it."""
    effect = np.zeros(1)
    for size in range(len(axes) + 1):
        for part in itertools.combinations(axes, size):
            others = tuple(axis for axis in range(values.ndim) if axis not in part)
            effect = effect + (-1) ** (len(axes) - size) * values.mean(axis=others, keepdims=True)
    return float((effect**2).sum()) * values.size / effect.size


def _component(
    squares: Mapping[tuple[int, ...], Any], axes: tuple[int, ...], shape: tuple[int, ...]
) -> Array:
    """The component whose multiple is what a mean square has besides those of larger sets."""
    repeated = math.prod(size for axis, size in enumerate(shape) if axis not in axes)
    terms = [
        (-1) ** (len(other) - len(axes)) * np.asarray(value)
        for other, value in squares.items()
        if {*axes} <= {*other}
    ]
    return np.sum(terms, axis=0) / repeated


RESAMPLES = 2000
_NEAR = 1e-9  # to 0 or 1


@dataclass(frozen=True, eq=False)
class PromptScores:
    """The main metric of one model on one task, by prompt.

    Shapes: P prompts, n queries, S seeds.
    """

    model: str  # label
    task: str
    metric: str
    prompts: tuple[QueryPrompt, ...]
    default: float  # with the model's own prompts, the mean over seeds
    values: Array  # (P,), likewise
    queries: tuple[str, ...]  # sorted ids; none if the metric is not a mean over queries
    records: tuple[tuple[Result, ...], ...]  # (P, S)

    @property
    def scores(self) -> Array:
        """The scores (n, P, S), read each time: those of 200 models would take 6 GB."""
        return self.on(self.queries)

    def on(self, queries: tuple[str, ...]) -> Array:
        """Return the scores on some of the queries, in their order."""
        columns = [
            [scores_by(self.metric, each).on(queries) if queries else () for each in row]
            for row in self.records
        ]
        return np.moveaxis(np.array(columns, dtype=float), -1, 0)


def read_prompt_scores() -> list[PromptScores]:
    """Return the scores of every model and task that was evaluated with a set of prompts.

    A model's prompts are those of all sets. Of several contents of a model, as of a checkpoint that
    was overwritten, the newest counts. Prompts that a seed lacks are left out.
    """
    folder = paths.results()
    defaults = {
        (record.model.identity, record.seed, record.task.key): record
        for record in load_results(folder)
        if record.main.value is not None
    }
    # By label, task and seed: the records by the identity of the model without the prompt.
    by_use: dict[tuple[str, str, int], dict[str, list[Result]]] = {}
    for record in from_oldest(_prompt_records(folder / PROMPTS)):
        identity, task = prompt_of(record).of, record.task.key
        if (identity, record.seed, task) not in defaults or record.main.value is None:
            continue
        contents = by_use.setdefault((record.model.label, task, record.seed), {})
        # Put last: the content of the newest record is the last.
        contents[identity] = [*contents.pop(identity, []), record]
    runs: dict[tuple[str, str], list[tuple[Result, dict[str, Result]]]] = {}
    for (label, task, seed), contents in by_use.items():
        identity, records = list(contents.items())[-1]
        by_text = {prompt_of(record).text: record for record in records}
        runs.setdefault((label, task), []).append((defaults[identity, seed, task], by_text))
    return [_joined(label, of_task) for (label, _), of_task in sorted(runs.items())]


def _prompt_records(folder: Path) -> list[Result]:
    """Return the records of sets of prompts; those that cannot be read are left out."""
    records = {}
    for file in result_files(folder):
        with suppress(ResultError):  # `verify` and the status page name it
            records[file] = _without_details(unchanged_record(file))
    return placed(records, folder)


def prompt_of(result: Result) -> UsedPrompt:
    """Return the prompt of a record of a set.

    Raises:
        ResultError: it has none.
    """
    if result.prompt is None:
        raise ResultError(f"{result!r}: has no prompt of a set")
    return result.prompt


def _without_details(result: Result) -> Result:
    """Return what is needed of a record; 170,000 whole ones take 2.4 GB."""
    main = {result.task.main_metric: result.main}
    return replace(
        result,
        metrics=main,
        options={},
        data=DataFacts(),
        search=SearchFacts(),
        files=RunFiles(),
        top=None,
        environment=Environment(),
    )


def _joined(label: str, runs: Sequence[tuple[Result, dict[str, Result]]]) -> PromptScores:
    """Join seeds, each of which has the record of its default and those of prompts, by text."""
    (default, by_text), *others = runs
    texts = [text for text in by_text if all(text in other for _, other in others)]
    if not texts:  # of seeds without a common prompt, the newest counts
        last = newest(record for record, _ in runs)
        return _joined(label, [run for run in runs if run[0] is last])
    records = tuple(tuple(of_seed[text] for _, of_seed in runs) for text in texts)  # (P, S)
    metric = default.task.main_metric
    return PromptScores(
        label,
        default.task.key,
        metric,
        tuple(QueryPrompt(prompt_of(by_text[text]).name, text) for text in texts),
        _mean_value([record for record, _ in runs]),
        np.array([_mean_value(of_prompt) for of_prompt in records]),
        _common_queries(metric, list(itertools.chain(*records))),
        records,
    )


def _mean_value(records: Sequence[Result]) -> float:
    return float(np.mean([record.main.value for record in records]))


def _common_queries(metric: str, records: Sequence[Result]) -> tuple[str, ...]:
    """Return the queries with a score in all records; none if the metric is no mean of them."""
    for record in records:
        if record.main.how != "mean" or not record.scores.counts.get(metric):
            return ()
    return shared_queries([_answered(metric, record) for record in records])


def _answered(metric: str, result: Result) -> tuple[str, ...]:
    """Return the sorted ids of the queries with a score; scores are read if any has none."""
    queries, count = result.scores.queries, result.scores.counts[metric]
    return by_id(queries)[0] if count == len(queries) else scores_by(metric, result).queries


@dataclass(frozen=True, slots=True)
class PromptPair:
    """Two models on one task, the first of which has the higher score with its own prompts."""

    first: PromptScores
    second: PromptScores
    reversed_by: str  # prompt with which the second exceeds the first's own; empty if there is none
    probability: float  # P(first > second)
    seed: int = 0  # of the interval

    @property
    def difference(self) -> float:
        """The difference with their own prompts."""
        return self.first.default - self.second.default

    @property
    def interval(self) -> Interval | None:
        """That of P(first > second), computed each time; as of `superiority`."""
        return superiority(self.first, self.second, seed=self.seed)[1]


def place(scores: PromptScores) -> tuple[int, float]:
    """Return the rank of a model's own prompts among all, 1 for the best, and their quantile.

    This is the share of the others with a lower score, ties counting half.
    """
    is_higher, is_lower = _sides(scores.default, scores.values)
    higher, lower = int(is_higher.sum()), int(is_lower.sum())
    ties = len(scores.values) - higher - lower
    return higher + 1, (lower + ties / 2) / len(scores.values)


def _sides(value: float, others: Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which of the others are higher, and which lower, up to rounding."""
    return others > value + 1e-12, others < value - 1e-12


def prompt_pairs(every: Sequence[PromptScores], *, seed: int = 0) -> list[PromptPair]:
    """Compare every two models on each task; with equal scores, the first by name is the first."""
    by_task: dict[tuple[str, str], list[int]] = {}
    for position, scores in enumerate(every):
        by_task.setdefault((scores.task, scores.metric), []).append(position)
    pairs = {}
    for positions in by_task.values():
        means = {position: _means(every[position]) for position in positions}  # read once
        for i, j in itertools.combinations(positions, 2):
            better, worse = (j, i) if every[j].default > every[i].default else (i, j)
            pairs[i, j] = _compared(every[better], every[worse], means[better], means[worse], seed)
    return [pairs[positions] for positions in sorted(pairs)]


def _compared(
    first: PromptScores, second: PromptScores, first_means: Array, second_means: Array, seed: int
) -> PromptPair:
    """Compare two models of which the first has the higher score with its own prompts."""
    best = int(np.argmax(second.values))
    is_higher, _ = _sides(first.default, second.values)
    reversed_by = second.prompts[best].name if is_higher[best] else ""
    if first.queries is second.queries or first.queries == second.queries:
        probability = float(_share(first_means, second_means)[0])
    else:
        probability, _ = superiority(first, second, seed=seed)
    return PromptPair(first, second, reversed_by, probability, seed)


def _means(scores: PromptScores) -> Array:
    """Return the means (1, P) over queries and seeds; the values if there are no queries."""
    if not scores.queries:
        return scores.values[None]
    return scores.scores.mean(axis=2).mean(axis=0)[None]


def superiority(
    first: PromptScores, second: PromptScores, *, seed: int = 0
) -> tuple[float, Interval | None]:
    """Return P(first > second) over prompts, and its interval over prompts and queries.

    Means are over the queries that both answered, and over seeds. Without scores per query, there
    is no interval.
    """
    shared = shared_queries([first.queries, second.queries])
    if not shared:
        return float(_share(first.values[None], second.values[None])[0]), None
    columns = [each.on(shared).mean(axis=2) for each in (first, second)]
    drawn = resampling.draw_seed(seed, shared)
    means, resampled = resampling.resampled_means(
        np.concatenate(columns, axis=1), n_resamples=RESAMPLES, seed=drawn
    )
    count = columns[0].shape[1]
    probability = float(_share(means[None, :count], means[None, count:])[0])
    of_queries = resampling.percentile_interval(
        _share(resampled[:, :count], resampled[:, count:]), level=LEVEL
    )
    of_prompts = score_interval(probability, count, columns[1].shape[1])
    below = math.hypot(probability - of_queries[0], probability - of_prompts[0])
    above = math.hypot(of_queries[1] - probability, of_prompts[1] - probability)
    return probability, (max(0.0, probability - below), min(1.0, probability + above))


def score_interval(
    probability: float, first: int, second: int, *, level: float = LEVEL
) -> Interval:
    """Interval of P(A > B) from samples of these sizes, without assumptions on their spread.

    Ends t of ``(p − t)² = z² V(t)``, where V is the variance of Hanley and McNeil 1982, with the
    mean of the two sizes in place of each (Newcombe 2006, method 5).
    """
    z = float(ndtri((1 + level) / 2))

    def lower(estimate: float) -> float:
        def excess(end: float) -> float:
            ties = (1 - end) / (2 - end) + end / (1 + end)
            variance = end * (1 - end) * (1 + ((first + second) / 2 - 1) * ties) / first / second
            return (estimate - end) ** 2 - z**2 * variance

        if estimate <= _NEAR:
            return 0.0
        return float(scipy.optimize.brentq(excess, 0.0, min(estimate, 1 - _NEAR)))

    return lower(probability), 1 - lower(1 - probability)


def _share(first: Array, second: Array) -> Array:
    """Share of pairs of columns in which the first is higher: (R, P), (R, Q) to (R,)."""
    difference = first[:, :, None] - second[:, None, :]
    higher, lower = _sides(0.0, difference)
    return np.asarray(0.5 + (higher.mean(axis=(1, 2)) - lower.mean(axis=(1, 2))) / 2)


def prompt_variance(scores: PromptScores, *, seed: int = 0) -> list[Component]:
    """Split the variance of a score of one query: query, prompt, seed if several, and both.

    Empty for fewer than two prompts, and for a metric that is not a mean over two queries or more.
    """
    values, factors = scores.scores, ["query", "prompt", "seed"]
    if values.shape[2] == 1:
        values, factors = values[:, :, 0], factors[:2]
    return variance_components(values, factors, seed=seed) if min(values.shape) > 1 else []
