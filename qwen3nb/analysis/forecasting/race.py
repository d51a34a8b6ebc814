"""Which models can still win: stop measuring those that cannot, by forecasts of their means.

Models run the same tasks in the same order. After each, a model beats another for certain if its
forecast mean is ahead by three standard deviations of the difference. Forecasts of two models are
taken as independent: for models that err alike, that asks for more than is needed.

Replayed on published models, with families left out of the fit, the answer is wrong in less than
1 of 100 races: see `benchmarks.until_certain`. It is no test, and has no p-value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

CERTAIN = 3.0  # standard deviations of a difference of forecasts
FEWEST_TASKS = 3  # before any model is dropped


@dataclass(frozen=True)
class Standing:
    """The forecast mean of one model."""

    mean: float
    deviation: float  # standard deviation; 0 if all tasks are measured

    def beats(self, other: Standing, *, by: float = 0.0) -> bool:
        """Return whether this mean is higher for certain, by more than ``by``."""
        lead = self.mean - other.mean - by
        return lead > CERTAIN * math.hypot(self.deviation, other.deviation)


@dataclass(frozen=True)
class Goal:
    """What is wanted of a race."""

    top: int = 1  # how many models are to be found
    baseline: str = ""  # instead, the model that others are to beat or not
    margin: float = 0.0  # by how much they are to beat it

    def __str__(self) -> str:
        if self.baseline:
            by = f" by {self.margin:g}" if self.margin else ""
            return f"which models beat {self.baseline}{by}"
        return "which model is best" if self.top == 1 else f"which {self.top} models are best"


@dataclass
class Race:
    """Models that run a benchmark task by task, until the goal is decided."""

    models: tuple[str, ...]
    goal: Goal
    standings: dict[str, Standing] = field(default_factory=dict)  # the last of each model
    winners: list[str] = field(default_factory=list)  # those that belong to the best for certain
    losers: list[str] = field(default_factory=list)  # those that do not, for certain
    tasks: int = 0  # that all models still running have run

    @property
    def running(self) -> tuple[str, ...]:
        """The models whose place is not decided; none once the goal is."""
        decided = {*self.winners, *self.losers}
        open_models = tuple(model for model in self.models if model not in decided)
        if self.goal.baseline:
            others = tuple(model for model in open_models if model != self.goal.baseline)
            return (self.goal.baseline, *others) if others else ()
        places_left = self.goal.top - len(self.winners)
        if places_left <= 0 or len(open_models) <= places_left:
            return ()
        return open_models

    @property
    def best(self) -> tuple[str, ...]:
        """The models that the race has found, or would find by its forecasts; the best first."""
        ahead = sorted(self.models, key=lambda model: -self._mean(model))
        if self.goal.baseline:
            return tuple(model for model in ahead if model in self.winners)
        places_left = self.goal.top - len(self.winners)
        candidates = [
            model for model in ahead if model not in self.winners and model not in self.losers
        ]
        found = {*self.winners, *candidates[: max(0, places_left)]}
        return tuple(model for model in ahead if model in found)

    def _mean(self, model: str) -> float:
        return self.standings[model].mean if model in self.standings else -math.inf

    def advance(self, standings: Mapping[str, Standing]) -> list[str]:
        """Take the forecasts after one more task; return the models decided by it.

        Args:
            standings: of each running model. Those of decided models stay as they were.
        """
        running = self.running
        self.standings |= {model: standings[model] for model in running}
        self.tasks += 1
        if self.tasks < FEWEST_TASKS:
            return []
        won, lost = self._decided(running)
        self.winners += won
        self.losers += lost
        return [*won, *lost]

    def _decided(self, running: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return the running models that are certain to be among the best, and not to be."""
        won: list[str] = []
        lost: list[str] = []
        for model in running:
            if self.goal.baseline:
                if model != self.goal.baseline:
                    self._decide_against_baseline(model, won, lost)
                continue
            ahead = sum(self.standings[other].beats(self.standings[model]) for other in self.models)
            behind = sum(
                self.standings[model].beats(self.standings[other]) for other in self.models
            )
            if ahead >= self.goal.top:
                lost.append(model)
            elif behind >= len(self.models) - self.goal.top:
                won.append(model)
        return won, lost

    def _decide_against_baseline(self, model: str, won: list[str], lost: list[str]) -> None:
        """Add a model to those that beat the baseline by the margin, or to those that do not."""
        baseline = self.standings[self.goal.baseline]
        standing = self.standings[model]
        if standing.beats(baseline, by=self.goal.margin):
            won.append(model)
        elif baseline.beats(standing, by=-self.goal.margin):
            lost.append(model)
