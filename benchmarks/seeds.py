"""How often a difference of two trainings is claimed for new seeds and new queries, and wrongly.

Two arms of several seeds answer the same queries. A score depends on the query, on what the
training and the seed make of it, and on how good the seed is. In each world the true difference is
known. Printed is the share of worlds without a difference in which one is claimed at 0.05
(``level``), and how often the 95 % interval covers a true difference (``cover``):

    queries   the means of each query over the seeds, as if they were one model
    seeds     Welch's t-test of the seeds' means
    sum       one variance of seeds and queries, with Satterthwaite's degrees of freedom
    both      what `qwen3nb compare --seeds` does

Of each population, numbers of seeds and of queries, the worst world is printed. Worlds differ in
the ratio of the variance of one seed's mean to that of the mean difference by the queries. In one
of them, the seeds of the first arm vary twice as much as those of the second.

    python -m benchmarks.seeds --runs 1000
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit
from tqdm import tqdm

from benchmarks.options import command
from qwen3nb.analysis.stats.crossed_differences import (
    crossed_interval,
    seed_spreads,
    spread_of_mean,
)
from qwen3nb.analysis.stats.resampling import LEVEL
from qwen3nb.metrics.intervals import difference_interval, excludes_zero

Array = np.ndarray
Generator = np.random.Generator
SEEDS = ("2 2", "3 3", "5 5", "10 10", "2 5", "3 1")  # models of the two arms
QUERIES = (20, 100, 500)
RATIOS = (0.0, 0.1, 1.0, 10.0)
GAIN = 0.3  # of the better arm, on the scale of its population
METHODS = ("queries", "seeds", "sum", "both")
_GAINS = np.array([0.0, *(1 / np.log2(np.arange(11, 1, -1)))])  # of no hit, and ranks 10 to 1
_PLACES = np.linspace(-0.6, 1.2, len(_GAINS) - 1)  # qualities from which on the next rank is met
_LARGE = 200_000  # queries that give the true difference


class Arms(NamedTuple):
    """Scores of two arms: (models, queries) each."""

    first: Array
    second: Array


def _search(generator: Generator, hardness: Array, models: int, gain: float) -> Array:
    """Gains like nDCG of one relevant document: many are 0, and some 1."""
    of_training = generator.normal(0, 0.6, len(hardness))
    of_seed = generator.normal(0, 0.4, (models, len(hardness)))
    return _GAINS[np.searchsorted(_PLACES, hardness + of_training + of_seed + gain)]


def _normal(generator: Generator, hardness: Array, models: int, gain: float) -> Array:
    """Scores with normal deviations."""
    of_training = generator.normal(0.2 * gain, 0.2, len(hardness))
    of_seed = generator.normal(0, 0.1, (models, len(hardness)))
    return 0.5 + 0.1 * hardness + of_training + of_seed


def _rare(generator: Generator, hardness: Array, models: int, gain: float) -> Array:
    """One query in eight is won by a third, more with a gain."""
    is_won = generator.random(len(hardness)) < 1 / 8
    wins = np.where(is_won, generator.beta(1, 2, len(hardness)), 0.0)
    of_seed = generator.normal(0, 0.06, (models, len(hardness)))
    return 0.3 + 0.1 * hardness + (1 + gain) * wins + of_seed


def _even(generator: Generator, hardness: Array, models: int, gain: float) -> Array:
    """The rival of rare wins: a little more on every query, which gives the same mean."""
    of_seed = generator.normal(0, 0.06, (models, len(hardness)))
    return 0.3 + 0.1 * hardness + 1 / 24 + of_seed


Draw = Callable[[Generator, Array, int, float], Array]
# How the first and the second arm score.
POPULATIONS: dict[str, tuple[Draw, Draw]] = {
    "search": (_search, _search),
    "normal": (_normal, _normal),
    "rare wins": (_rare, _even),  # skewed differences, also where the means are equal
}


@dataclass(frozen=True)
class World:
    """A kind of world."""

    population: str
    models: tuple[int, int]  # of the two arms
    queries: int
    ratio: float
    spread: float  # how much more the seeds of the first arm vary

    def draw(self, generator: Generator, *, gain: float, deviation: float) -> Arms:
        """Draw the scores; ``deviation`` is that of a query's difference."""
        arms = _scores(generator, self.population, self.models, self.queries, gain)
        deviation_of_seed = deviation * math.sqrt(self.ratio / self.queries)
        first_count, second_count = self.models
        of_first = generator.normal(0, self.spread * deviation_of_seed, (first_count, 1))
        of_second = np.zeros((1, 1))
        if second_count > 1:  # a single model is what the claim is about: as good as it is
            of_second = generator.normal(0, deviation_of_seed, (second_count, 1))
        return Arms(arms.first + of_first, arms.second + of_second)


def _scores(
    generator: Generator, population: str, models: tuple[int, int], queries: int, gain: float
) -> Arms:
    """Draw the scores of two arms on the same queries, without the qualities of seeds."""
    draw_first, draw_second = POPULATIONS[population]
    hardness = generator.normal(0, 1, queries)
    first_count, second_count = models
    return Arms(
        draw_first(generator, hardness, first_count, gain),
        draw_second(generator, hardness, second_count, 0.0),
    )


def intervals(arms: Arms) -> dict[str, tuple[float, float]]:
    """Return the 95 % interval of the mean difference by each method."""
    differences = arms.first.mean(axis=0) - arms.second.mean(axis=0)
    mean = float(differences.mean())
    means = [scores.mean(axis=1) for scores in arms]
    spreads = seed_spreads(*means)
    # Of equally many seeds there is one spread, Welch's; else one of each arm with several.
    variances = [spread.variance for spread in spreads]
    freedoms = [spread.freedom for spread in spreads]
    half_of_seeds = _half_of_sum(variances, freedoms)
    over_queries = spread_of_mean(differences)
    half_of_sum = _half_of_sum(
        [*variances, over_queries.variance], [*freedoms, over_queries.freedom]
    )
    absent = (-math.inf, math.inf)
    return {
        "queries": difference_interval(differences, level=LEVEL) or absent,
        "seeds": (mean - half_of_seeds, mean + half_of_seeds),
        "sum": (mean - half_of_sum, mean + half_of_sum),
        "both": crossed_interval(differences, spreads, level=LEVEL) or absent,
    }


def _half_of_sum(variances: list[float], freedoms: list[float]) -> float:
    """Return half of Student's interval of a sum (Satterthwaite)."""
    total = sum(variances)
    squares = [variance**2 / freedom for variance, freedom in zip(variances, freedoms, strict=True)]
    return float(stdtrit(total**2 / sum(squares), (1 + LEVEL) / 2)) * math.sqrt(total)


@dataclass(frozen=True)
class Row:
    """What the methods did in worlds of one kind; shares by method."""

    world: World
    level: dict[str, float]  # of worlds without a difference in which one was claimed
    cover: dict[str, float]  # of worlds with one whose interval contains it


def measure(world: World, *, runs: int) -> Row:
    """Count claims and covering intervals in many worlds of one kind."""
    large = _scores(np.random.default_rng(0), world.population, (1, 1), _LARGE, 0.0)
    deviation = float((large.first - large.second).std())
    claimed: dict[str, list[bool]] = {method: [] for method in METHODS}
    covered: dict[str, list[bool]] = {method: [] for method in METHODS}
    truth = true_difference(world.population)
    for run in range(runs):
        generator = np.random.default_rng([run, world.queries, *world.models])
        equal = intervals(world.draw(generator, gain=0.0, deviation=deviation))
        better = intervals(world.draw(generator, gain=GAIN, deviation=deviation))
        for method in METHODS:
            claimed[method].append(excludes_zero(equal[method]))
            low, high = better[method]
            covered[method].append(low <= truth <= high)
    return Row(
        world,
        level={method: float(np.mean(claimed[method])) for method in METHODS},
        cover={method: float(np.mean(covered[method])) for method in METHODS},
    )


def true_difference(population: str) -> float:
    """Return the mean difference of a population with a gain."""
    if population == "normal":
        return 0.2 * GAIN
    if population == "rare wins":
        return GAIN / 24
    qualities = np.linspace(-8, 8, 160_001)
    deviation = math.sqrt(1 + 0.6**2 + 0.4**2)
    density = np.exp(-0.5 * (qualities / deviation) ** 2)
    gains = [_GAINS[np.searchsorted(_PLACES, qualities + gain)] for gain in (0.0, GAIN)]
    equal, better = (float(np.average(scores, weights=density)) for scores in gains)
    return better - equal


def _worlds(seeds: tuple[str, ...], queries: tuple[int, ...]) -> Iterator[World]:
    kinds = [(ratio, 1.0) for ratio in RATIOS]
    kinds.append((RATIOS[-1], 2.0))  # of unlike arms
    for population in POPULATIONS:
        for numbers in seeds:
            first_count, second_count = (int(number) for number in numbers.split())
            for count in queries:
                for ratio, spread in kinds:
                    yield World(population, (first_count, second_count), count, ratio, spread)


def bench(
    *, runs: int = 1000, seeds: tuple[str, ...] = SEEDS, queries: tuple[int, ...] = QUERIES
) -> list[Row]:
    """Measure how often methods claim a difference of trainings, and cover the true one."""
    worlds = list(_worlds(seeds, queries))
    return [measure(world, runs=runs) for world in tqdm(worlds, unit="world")]


def shown(rows: list[Row]) -> str:
    """Return a line per population, numbers of seeds and queries: the worst over the ratios."""
    heads = " ".join(f"{method:>7}" for method in METHODS)
    lines = [f"{'':30} level, the largest{'':12} cover, the smallest"]
    lines.append(f"{'population':10} {'seeds':>8} {'queries':>8}    {heads}  {heads}")
    alike_rows: dict[tuple[str, tuple[int, int], int], list[Row]] = {}
    for row in rows:
        world = row.world
        alike_rows.setdefault((world.population, world.models, world.queries), []).append(row)
    for (population, models, queries), alike in alike_rows.items():
        levels = [max(row.level[method] for row in alike) for method in METHODS]
        covers = [min(row.cover[method] for row in alike) for method in METHODS]
        level_columns = " ".join(f"{level:7.3f}" for level in levels)
        cover_columns = " ".join(f"{cover:7.3f}" for cover in covers)
        first_count, second_count = models
        lines.append(
            f"{population:10} {first_count:>5}+{second_count:<2} {queries:>8}    "
            f"{level_columns}  {cover_columns}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    command(bench, shown)
