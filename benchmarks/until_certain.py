"""Races of published models: how often is the answer wrong, and what does it cost?

Each model's forecasts are of a fit that has not seen its family. Models run the tasks of
MTEB(eng, v2) in one order. A pair of models of two families is decided when one is ahead for
certain. The best, and the best three, are found among ten models drawn at random; a model within
0.002 of the best counts as the best.

Models of one family stand for checkpoints of one training, which have no published scores. So do
ten models that differ from a published one by a tenth of what published models differ by.

    python -m benchmarks.until_certain --races 600
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tqdm import tqdm

from benchmarks.options import command
from qwen3nb.analysis.forecasting.forecast import Calibration, forecast_mean, telling_order
from qwen3nb.analysis.forecasting.moments import Array, Moments
from qwen3nb.analysis.forecasting.published import published_benchmarks, published_scores
from qwen3nb.analysis.forecasting.race import Goal, Race, Standing
from qwen3nb.analysis.forecasting.replay import FieldScores

_EDGES = (0.0, 0.005, 0.01, 0.02, 0.05, 1.0)  # of true differences of pairs
_ALIKE = 0.002  # a mean this close to the best one counts as best
_MODELS = 10  # of a race
_TENTH = 0.1  # by how much models that are alike differ, as a share of what published ones do
_TRAININGS = 8  # published models around which models that are alike are drawn


@dataclass(frozen=True)
class Cost:
    """What races of one kind cost, and how often they were wrong."""

    question: str
    races: int
    wrong: float  # share
    cost: float  # median share of running all tasks of all models


@dataclass(frozen=True)
class Field:
    """Models whose scores on all tasks are known, with their forecasts after each task."""

    families: Sequence[str]
    means: Sequence[float]  # true means
    standings: Sequence[Sequence[Standing]]  # of each model, after each task
    costs: Sequence[float]  # of each task, as shares of all


class Replay:
    """The published scores of a benchmark, its order of tasks, and fits without one family."""

    def __init__(self, name: str) -> None:
        self.benchmark = published_benchmarks()[name]
        self.published = FieldScores.of(published_scores(), self.benchmark)
        self.count = len(self.benchmark.tasks)
        moments = self.published.fit()
        order = telling_order(moments, self.benchmark.costs, mean_tasks=self.benchmark.tasks)
        self.order = [task for task in order if task in self.benchmark.tasks]
        self.covariance = moments.covariance
        scores = self.published.scores[:, : self.count]
        self.complete = np.flatnonzero(~np.isnan(scores).any(axis=1)).tolist()
        self._fits: dict[str, Moments] = {}

    def fit(self, family: str) -> Moments:
        """Return the fit without a family; each is made once."""
        if family not in self._fits:
            self._fits[family] = self.published.fit(family)
        return self._fits[family]

    def standings(self, family: str, scores: Array) -> list[Standing]:
        """Return the forecast of a model after each task, by the fit without its family."""
        by_task = dict(zip(self.benchmark.columns, scores.tolist(), strict=True))
        after_tasks = []
        for number in range(1, len(self.order) + 1):
            forecast = forecast_mean(
                self.fit(family),
                {task: by_task[task] for task in self.order[:number]},
                mean_tasks=self.benchmark.tasks,
                calibration=Calibration(),
            )
            after_tasks.append(Standing(forecast.mean, forecast.fit_deviation))
        return after_tasks

    def field(self, families: Sequence[str], models: Sequence[Array]) -> Field:
        """Return models, by their families and scores of shape (tasks,), with their forecasts."""
        standings = []
        bar = tqdm(families, desc="forecasts", unit="model")
        for family, scores in zip(bar, models, strict=True):
            standings.append(self.standings(family, scores))
        return Field(
            families=families,
            means=[float(scores[: self.count].mean()) for scores in models],
            standings=standings,
            costs=[self.benchmark.costs[task] for task in self.order],
        )

    def published_field(self) -> Field:
        """Return the complete models, each forecast without its family."""
        families = [self.published.families[row] for row in self.complete]
        return self.field(families, list(self.published.scores[self.complete]))

    def alike(self, row: int, generator: np.random.Generator) -> Field:
        """Return ten models that differ from a published one by a tenth of what others do."""
        scores = self.published.scores[row]
        # A Cholesky factor is unique, so that the draws are the same on every processor.
        draws = generator.multivariate_normal(
            np.zeros(len(scores)), self.covariance, _MODELS, method="cholesky"
        )
        models = list(np.clip(scores + _TENTH * draws, 0, 1))
        return self.field([self.published.families[row]] * _MODELS, models)


def run_race(field: Field, rows: Sequence[int], goal: Goal) -> tuple[tuple[int, ...], float]:
    """Return the models that a race finds, and its cost as a share of running all."""
    names = {str(row): row for row in rows}
    race = Race(tuple(names), goal)
    spent = 0.0
    for task, cost in enumerate(field.costs):
        running = race.running
        if not running:
            break
        spent += cost * len(running)
        race.advance({name: field.standings[names[name]][task] for name in running})
    return tuple(names[name] for name in race.best), spent / len(rows)


def until_certain(races: int = 600, benchmark: str = "MTEB(eng, v2)", seed: int = 0) -> list[Cost]:
    """Replay races of published models; see the top of the file."""
    replay = Replay(benchmark)
    field = replay.published_field()
    return [
        *_pairs(field),
        *_best_of_ten(field, races, seed),
        *_pairs(field, of_one_family=True),
        *_checkpoints(replay, seed),
    ]


def _pairs(field: Field, *, of_one_family: bool = False) -> list[Cost]:
    """Race every pair of models of two families, or of one; a row per range of differences."""
    outcomes = []
    for first, second in itertools.combinations(range(len(field.means)), 2):
        if (field.families[first] == field.families[second]) != of_one_family:
            continue
        (found,), cost = run_race(field, (first, second), Goal())
        difference = field.means[first] - field.means[second]
        better = first if difference > 0 else second
        outcomes.append((abs(difference), found != better, cost))
    noun = "pairs of one family" if of_one_family else "pairs"
    rows = [_cost(f"{noun}, all", outcomes)]
    for low, high in itertools.pairwise(_EDGES):
        within = [outcome for outcome in outcomes if low <= outcome[0] < high]
        rows.append(_cost(f"{noun}, {low:g} to {high:g} apart", within))
    return rows


def _checkpoints(replay: Replay, seed: int) -> list[Cost]:
    """Race ten models that are alike for the best, and all pairs of them."""
    generator = np.random.default_rng([seed, _MODELS])
    best = []
    pairs = []
    for row in generator.choice(replay.complete, _TRAININGS, replace=False).tolist():
        field = replay.alike(row, generator)
        (found,), cost = run_race(field, range(_MODELS), Goal())
        best.append((0.0, field.means[found] < max(field.means) - _ALIKE, cost))
        for pair in itertools.combinations(range(_MODELS), 2):
            (better,), cost = run_race(field, pair, Goal())
            is_wrong = field.means[better] < max(field.means[model] for model in pair)
            difference = abs(field.means[pair[0]] - field.means[pair[1]])
            pairs.append((difference, is_wrong, cost))
    rows = [_cost(f"best 1 of {_MODELS} that are alike", best)]
    for low, high in itertools.pairwise(_EDGES):
        within = [outcome for outcome in pairs if low <= outcome[0] < high]
        if within:
            rows.append(_cost(f"pairs that are alike, {low:g} to {high:g} apart", within))
    return rows


def _best_of_ten(field: Field, races: int, seed: int) -> list[Cost]:
    """Race ten models drawn at random for the best, and for the best three."""
    rows = []
    for top in (1, 3):
        generator = np.random.default_rng([seed, top])
        outcomes = []
        for _ in tqdm(range(races), desc=f"best {top}", unit="race"):
            drawn = generator.choice(len(field.means), _MODELS, replace=False).tolist()
            found, cost = run_race(field, drawn, Goal(top=top))
            bar = sorted((field.means[row] for row in drawn), reverse=True)[top - 1] - _ALIKE
            outcomes.append((0.0, any(field.means[row] < bar for row in found), cost))
        rows.append(_cost(f"best {top} of {_MODELS}", outcomes))
    return rows


def _cost(question: str, outcomes: Sequence[tuple[float, bool, float]]) -> Cost:
    wrong = float(np.mean([is_wrong for _, is_wrong, _ in outcomes]))
    cost = float(np.median([cost for _, _, cost in outcomes]))
    return Cost(question, len(outcomes), wrong, cost)


def shown(rows: list[Cost]) -> str:
    """Return the table."""
    lines = ["| question | races | wrong | median cost |", "|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row.question} | {row.races} | {row.wrong:.2%} | {row.cost:.2%} |")
    return "\n".join(lines)


if __name__ == "__main__":
    command(until_certain, shown)
