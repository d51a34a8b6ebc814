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
from typing import NamedTuple

import numpy as np
import scipy  # loads scipy.stats on first use, which takes a second
from numpy.typing import ArrayLike, NDArray

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
_FEWEST_LEVELS = 8  # of a factor, for tests of normality
_NOT_NORMAL, _FAR_FROM_NORMAL = 0.05, 1e-5  # p-values of these tests
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
    effects: list[Axes] = []  # axes of each factor and interaction, such as (0,), (1,), (0, 1)
    for size in range(1, values.ndim + 1):
        effects += itertools.combinations(range(values.ndim), size)
    degrees = {effect: math.prod(values.shape[axis] - 1 for axis in effect) for effect in effects}
    squares = {effect: _sum_of_squares(values, effect) / degrees[effect] for effect in effects}
    variances = {effect: float(_component(squares, effect, values.shape)) for effect in effects}
    # An estimate by the method of moments may be below 0, and then counts as 0.
    total = math.fsum(max(0.0, variance) for variance in variances.values())
    intervals = _share_intervals(values, squares, degrees, seed)
    components = []
    for effect in effects:
        share = 0.0
        if total:
            share = max(0.0, variances[effect]) / total
        components.append(
            Component(
                factors=tuple(factors[axis] for axis in effect),
                variance=variances[effect],
                share=share,
                interval=intervals.get(effect),
                df=degrees[effect],
            )
        )
    return components


def _share_intervals(
    values: Array, squares: Mapping[Axes, float], degrees: Mapping[Axes, int], seed: Seed
) -> dict[Axes, Interval]:
    """Return the interval of the share of each component; none if they cannot be trusted.

    ``squares``: the mean square of each effect.
    """
    usable_degrees = _usable_degrees(values, degrees)
    if usable_degrees is None:
        return {}
    # Generalised pivots (Weerahandi 1993).
    generator = np.random.default_rng(seed)
    drawn_squares = {}
    for effect, freedom in usable_degrees.items():
        # A mean square over the true one is a chi-squared variable over its degrees of freedom.
        chi_squared = generator.chisquare(freedom, DRAWS)
        drawn_squares[effect] = squares[effect] * freedom / chi_squared
    drawn_components = [_component(drawn_squares, effect, values.shape) for effect in degrees]
    components = np.maximum(np.stack(drawn_components), 0.0)  # (effects, draws)
    sums = components.sum(axis=0)
    shares = np.divide(components, sums, out=np.zeros_like(components), where=sums > 0)
    return {
        effect: resampling.percentile_interval(shares_of_effect, level=LEVEL)
        for effect, shares_of_effect in zip(degrees, shares, strict=True)
    }


def _usable_degrees(values: Array, degrees: Mapping[Axes, int]) -> dict[Axes, float] | None:
    """Return the degrees of freedom that kurtosis leaves; None if intervals cannot be trusted."""
    usable: dict[Axes, float] = dict(degrees)
    for axis in range(values.ndim):
        other_axes = tuple(other_axis for other_axis in range(values.ndim) if other_axis != axis)
        means = values.mean(axis=other_axes)  # of the levels of this factor
        p_value = _normality_p_value(means)
        if p_value >= _NOT_NORMAL:  # as in normal data
            continue
        # Heavy tails leave fewer degrees of freedom (Box 1953).
        share = _share_of_freedom(means)
        if share < _LEAST_FREEDOM and p_value < _FAR_FROM_NORMAL:
            return None
        effect = (axis,)
        usable[effect] = degrees[effect] * share
    return usable


def _normality_p_value(means: Array) -> float:
    """Return the lower p-value of tests of skewness and kurtosis; 1 for too few or equal means."""
    if len(means) < _FEWEST_LEVELS or np.ptp(means) <= _NEAR:
        return 1.0
    skewness = scipy.stats.skewtest(means)
    kurtosis = scipy.stats.kurtosistest(means)
    return float(min(skewness.pvalue, kurtosis.pvalue))


def _share_of_freedom(means: Array) -> float:
    """Return the share of the degrees of freedom that the kurtosis of means leaves (Box 1953)."""
    count = len(means)
    kurtosis = float(scipy.stats.kurtosis(means, bias=False))
    if kurtosis <= 0:
        return 1.0
    normal_variance = 2 / (count - 1)  # of a mean square, relative to its square
    return normal_variance / (normal_variance + kurtosis / count)


def _sum_of_squares(values: Array, axes: Axes) -> float:
    """The sum of squares of an effect: means over the other axes, less those of parts of it."""
    # Means over the other axes, less those of every smaller set of factors: inclusion and
    # exclusion, with alternating signs.
    effect = np.zeros(1)
    for size in range(len(axes) + 1):
        sign = (-1) ** (len(axes) - size)
        for part in itertools.combinations(axes, size):
            other_axes = tuple(axis for axis in range(values.ndim) if axis not in part)
            effect = effect + sign * values.mean(axis=other_axes, keepdims=True)
    return float((effect**2).sum()) * values.size / effect.size  # each is that of so many scores


def _component(squares: Mapping[Axes, float | Array], axes: Axes, shape: tuple[int, ...]) -> Array:
    """The component whose multiple is what a mean square has besides those of larger sets."""
    # A mean square is expected to be the sum of the components of all sets with these axes, each
    # times its repetitions; alternating signs leave the component of the set itself.
    repetitions = math.prod(size for axis, size in enumerate(shape) if axis not in axes)
    terms = []
    for larger, square in squares.items():
        if set(axes) <= set(larger):
            sign = (-1) ** (len(larger) - len(axes))
            terms.append(sign * np.asarray(square))
    return np.sum(terms, axis=0) / repetitions


RESAMPLES = 2000
_NEAR = 1e-9  # to 0 or 1
_ROUNDING = 1e-12


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
        scores = []
        for records_of_prompt in self.records:
            columns = [np.empty(0) for _ in records_of_prompt]
            if queries:  # else no scores have to be read
                columns = [
                    scores_by(self.metric, record).on(queries) for record in records_of_prompt
                ]
            scores.append(columns)
        # From (P, S, n) to (n, P, S).
        return np.moveaxis(np.array(scores, dtype=float), -1, 0)


def read_prompt_scores() -> list[PromptScores]:
    """Return the scores of every model and task that was evaluated with a set of prompts.

    A model's prompts are those of all sets. Of several contents of a model, as of a checkpoint that
    was overwritten, the newest counts. Prompts that a seed lacks are left out.
    """
    folder = paths.results()
    defaults: dict[_Default, Result] = {}
    for record in load_results(folder):
        if record.main.value is not None:
            # The record with a model's own prompts, which those of sets are compared with.
            default = _Default(record.model.identity, record.seed, record.task.key)
            defaults[default] = record
    records_by_seed: dict[tuple[str, str, int], list[Result]] = {}
    for record in from_oldest(read_prompt_records(folder)):
        if record.main.value is not None and _default_of(record) in defaults:
            key = (record.model.label, record.task.key, record.seed)
            records_by_seed.setdefault(key, []).append(record)
    records_of_seeds: dict[tuple[str, str], list[_SeedRecords]] = {}
    for (label, task, _), records in records_by_seed.items():
        # Of a checkpoint that was overwritten, the newest content counts.
        by_text = _records_of_newest(records)
        default_record = defaults[_default_of(records[-1])]
        records_of_seeds.setdefault((label, task), []).append(_SeedRecords(default_record, by_text))
    return [
        _prompt_scores(label, records_of_seeds[label, task])
        for label, task in sorted(records_of_seeds)
    ]


class _Default(NamedTuple):
    """What a record with a model's own prompts is of."""

    identity: str
    seed: int
    task: str


def _default_of(record: Result) -> _Default:
    """Return what a record with a prompt of a set is compared with."""
    return _Default(prompt_of(record).of, record.seed, record.task.key)


def _records_of_newest(records: Sequence[Result]) -> dict[str, Result]:
    """Return, by the text of the prompt, the records of the newest of several contents."""
    newest_identity = prompt_of(records[-1]).of  # records come from the oldest
    by_text = {}
    for record in records:
        prompt = prompt_of(record)
        if prompt.of == newest_identity:
            by_text[prompt.text] = record
    return by_text


def read_prompt_records(results: Path) -> list[Result]:
    """Return the records of sets of prompts below a folder of results.

    Those that cannot be read are left out.
    """
    folder = results / PROMPTS
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
    # There may be 170,000 records; only what a page on prompts reads stays in memory.
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


@dataclass(frozen=True)
class _SeedRecords:
    """The records of one model on one task with one seed."""

    default: Result  # with the model's own prompts
    by_text: dict[str, Result]  # by the text of the prompt


def _prompt_scores(label: str, seeds: Sequence[_SeedRecords]) -> PromptScores:
    """Join the seeds of a model on a task, on the prompts that all have."""
    texts = _common_texts(seeds)
    if not texts:  # of seeds without a common prompt, the newest counts
        newest_default = newest(seed.default for seed in seeds)
        seeds = [seed for seed in seeds if seed.default is newest_default]
        texts = _common_texts(seeds)
    first_seed = seeds[0]
    task = first_seed.default.task
    records = tuple(tuple(seed.by_text[text] for seed in seeds) for text in texts)  # (P, S)
    names = [prompt_of(first_seed.by_text[text]).name for text in texts]
    return PromptScores(
        model=label,
        task=task.key,
        metric=task.main_metric,
        prompts=tuple(map(QueryPrompt, names, texts)),
        default=_mean_value([seed.default for seed in seeds]),
        values=np.array([_mean_value(records_of_prompt) for records_of_prompt in records]),
        queries=_common_queries(task.main_metric, list(itertools.chain(*records))),
        records=records,
    )


def _common_texts(seeds: Sequence[_SeedRecords]) -> list[str]:
    return [text for text in seeds[0].by_text if all(text in seed.by_text for seed in seeds)]


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
    queries = result.scores.queries
    if result.scores.counts[metric] < len(queries):
        return scores_by(metric, result).queries
    ids, _ = by_id(queries)
    return ids


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
    count = len(scores.values)
    higher = int(_is_higher(scores.values, scores.default).sum())
    lower = int(_is_lower(scores.values, scores.default).sum())
    ties = count - higher - lower
    return higher + 1, (lower + ties / 2) / count


def _is_higher(values: Array | float, other: float) -> NDArray[np.bool_]:
    """Return which values are higher than another, beyond rounding."""
    return np.asarray(values > other + _ROUNDING)


def _is_lower(values: Array | float, other: float) -> NDArray[np.bool_]:
    return np.asarray(values < other - _ROUNDING)


def prompt_pairs(every: Sequence[PromptScores], *, seed: int = 0) -> list[PromptPair]:
    """Compare every two models on each task; with equal scores, the first by name is the first."""
    measures = [(scores.task, scores.metric) for scores in every]
    means = [_means(scores) for scores in every]  # read once
    pairs = []
    for first_index, second_index in itertools.combinations(range(len(every)), 2):
        if measures[first_index] != measures[second_index]:
            continue
        better, worse = first_index, second_index
        if every[second_index].default > every[first_index].default:
            better, worse = second_index, first_index
        pairs.append(_pair(every[better], every[worse], means[better], means[worse], seed))
    return pairs


def _pair(
    better: PromptScores, worse: PromptScores, better_means: Array, worse_means: Array, seed: int
) -> PromptPair:
    """Compare two models of which the first has the higher score with its own prompts."""
    # Would the best prompt of the worse model turn the order around?
    best_prompt = int(np.argmax(worse.values))
    reversed_by = ""
    if _is_higher(worse.values[best_prompt], better.default):
        reversed_by = worse.prompts[best_prompt].name
    # Systems that answered the same queries share one tuple, which is fast to compare.
    if better.queries is worse.queries or better.queries == worse.queries:
        probability = float(_share_higher(better_means, worse_means)[0])
    else:
        probability, _ = superiority(better, worse, seed=seed)
    return PromptPair(better, worse, reversed_by, probability, seed)


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
    common_queries = shared_queries([first.queries, second.queries])
    if not common_queries:  # only the value of each prompt is known: a row (1, P) of each model
        return float(_share_higher(first.values[None], second.values[None])[0]), None
    first_scores = first.on(common_queries).mean(axis=2)  # (n, P), over seeds
    second_scores = second.on(common_queries).mean(axis=2)
    first_count, second_count = first_scores.shape[1], second_scores.shape[1]
    # Both models' prompts are columns of one table: each resample draws the same queries for all.
    means, resampled_means = resampling.resampled_means(
        np.concatenate([first_scores, second_scores], axis=1),
        n_resamples=RESAMPLES,
        seed=resampling.draw_seed(seed, common_queries),
    )

    def share_of_first(rows: Array) -> Array:
        """Of rows of means with the first's prompts, then those of the second."""
        return _share_higher(rows[:, :first_count], rows[:, first_count:])

    probability = float(share_of_first(means[None])[0])
    over_queries = resampling.percentile_interval(share_of_first(resampled_means), level=LEVEL)
    over_prompts = score_interval(probability, first_count, second_count)
    return probability, _in_quadrature(probability, over_queries, over_prompts)


def _in_quadrature(probability: float, first: Interval, second: Interval) -> Interval:
    """Return the interval whose sides are the roots of the sums of squares of those of two."""
    first_low, first_high = first
    second_low, second_high = second
    length_below = math.hypot(probability - first_low, probability - second_low)
    length_above = math.hypot(first_high - probability, second_high - probability)
    return max(0.0, probability - length_below), min(1.0, probability + length_above)


def score_interval(
    probability: float, first: int, second: int, *, level: float = LEVEL
) -> Interval:
    """Interval of P(A > B) from samples of these sizes, without assumptions on their spread.

    Ends t of ``(p − t)² = z² V(t)``, where V is the variance of Hanley and McNeil 1982, with the
    mean of the two sizes in place of each (Newcombe 2006, method 5).
    """
    z = float(scipy.special.ndtri((1 + level) / 2))
    low = _lower_end(probability, first, second, z)
    high = 1 - _lower_end(1 - probability, first, second, z)
    return low, high


def _lower_end(estimate: float, first: int, second: int, z: float) -> float:
    """Return the end below an estimate that is z standard errors, of that end, away from it."""
    if estimate <= _NEAR:
        return 0.0

    # A score interval: the root of (p - t)² = z² V(t), with the variance at the end t itself.
    def excess(end: float) -> float:
        squared_distance = (estimate - end) ** 2
        return squared_distance - z**2 * _probability_variance(end, first, second)

    highest = min(estimate, 1 - _NEAR)
    return float(scipy.optimize.brentq(excess, 0.0, highest))


def _probability_variance(probability: float, first: int, second: int) -> float:
    """Return the variance of an estimate of P(A > B) from samples of these sizes."""
    complement = 1 - probability
    of_shared = complement / (2 - probability) + probability / (1 + probability)
    mean_size = (first + second) / 2
    return probability * complement * (1 + (mean_size - 1) * of_shared) / first / second


def _share_higher(first: Array, second: Array) -> Array:
    """Share of pairs of columns in which the first is higher: (R, P), (R, Q) to (R,)."""
    differences = first[:, :, None] - second[:, None, :]  # of every pair: (R, P, Q)
    higher = _is_higher(differences, 0.0).mean(axis=(1, 2))
    lower = _is_lower(differences, 0.0).mean(axis=(1, 2))
    return np.asarray(0.5 + (higher - lower) / 2)


def prompt_variance(scores: PromptScores, *, seed: int = 0) -> list[Component]:
    """Split the variance of a score of one query: query, prompt, seed if several, and both.

    Empty for fewer than two prompts, and for a metric that is not a mean over two queries or more.
    """
    values = scores.scores  # (n, P, S)
    factors = ["query", "prompt", "seed"]
    if values.shape[2] == 1:  # one seed
        values = values[:, :, 0]
        factors = ["query", "prompt"]
    if min(values.shape) < 2:
        return []
    return variance_components(values, factors, seed=seed)
