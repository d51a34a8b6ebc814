"""What will the mean of a benchmark be? Forecast from the tasks that were run, with an interval."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from numbers import Real
from typing import Any

from qwen3nb.analysis.comparison.benchmark_means import MeanColumn, task_score
from qwen3nb.analysis.forecasting.fitted import fitted_calibration, fitted_moments
from qwen3nb.analysis.forecasting.forecast import (
    Calibration,
    MeanForecast,
    Residual,
    ScoreForecast,
    forecast_mean,
    telling_order,
)
from qwen3nb.analysis.forecasting.published import (
    PublishedBenchmark,
    published_benchmarks,
    source,
)
from qwen3nb.answers.answer import Answer
from qwen3nb.metrics.intervals import Interval
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.report.render.table import Cell, Conclusion, Table, number, plural
from qwen3nb.tiers import BENCHMARKS, GROUPS
from qwen3nb.utils.format import first_names, number_text
from qwen3nb.utils.imports import DataFrame

DEFAULT = "MTEB(eng, v2)"
_FEWEST_TASKS = 3  # of a forecast on a leaderboard


@dataclass(frozen=True, repr=False)
class Forecast(Answer):
    """The mean of a benchmark of which some tasks were run; the others are forecast."""

    benchmark: PublishedBenchmark
    forecast: MeanForecast
    calibration: Calibration
    data: DataUsed = field(
        default_factory=DataUsed
    )  # of the measured scores, where they come from records

    @property
    def mean(self) -> float:
        """The mean over the benchmark's tasks, each with equal weight."""
        return self.forecast.mean

    @property
    def interval(self) -> Interval:
        """The interval of level 0.95 of the mean; the mean twice if all tasks were run."""
        return self.forecast.interval

    @property
    def tasks(self) -> Mapping[str, ScoreForecast]:
        """The forecast of each task that was not run."""
        return self.forecast.missing

    @property
    def measured(self) -> Mapping[str, float]:
        """The scores that the forecast rests on."""
        return self.forecast.measured

    @property
    def cost(self) -> float:
        """The cost of the measured tasks, as a share of the benchmark's; see ``benchmark.unit``."""
        return sum(self.benchmark.costs[task] for task in self.measured)

    @property
    def is_usual(self) -> bool:
        """Whether the model is like the published ones, so that a forecast applies."""
        return self.forecast.distance <= self.calibration.usual_distance

    @cached_property
    def next_tasks(self) -> tuple[str, ...]:
        """The tasks still to run, in the order that tells most of the mean per cost."""
        order = telling_order(
            fitted_moments(self.benchmark.name),
            self.benchmark.costs,
            mean_tasks=self.benchmark.tasks,
            measured=tuple(self.measured),
        )
        return tuple(order)

    @property
    def implausible(self) -> tuple[Residual, ...]:
        """Measured scores that 1 of 100 published ones would be as far from the model's others."""
        limit = self.calibration.unusual_residual
        return tuple(
            residual for residual in self.forecast.residuals if abs(residual.deviations) > limit
        )

    @property
    def conclusion(self) -> Conclusion:
        """The mean with its interval, and whether the forecast applies."""
        name = self.benchmark.name
        if not self.tasks:
            text = f"{name}: {number_text(self.mean)}, measured on all tasks."
            return Conclusion(text, data=self.data)
        low, high = (number_text(end) for end in self.interval)
        run = sum(task in self.measured for task in self.benchmark.tasks)
        sentences = [
            f"{name}: about {number_text(self.mean)}, 95 % interval {low} to {high}. "
            f"That is a forecast from {run} of {plural(len(self.benchmark.tasks), 'task')}, "
            f"{share_text(self.cost)} of the benchmark's {self.benchmark.unit}."
        ]
        if not self.is_usual:
            sentences.append(
                "This model is unlike the published ones: the forecast may not apply "
                f"(distance {self.forecast.distance:.1f}; 99 % are within "
                f"{self.calibration.usual_distance:.1f})."
            )
        return Conclusion(" ".join(sentences), data=self.data)

    def table(self) -> Table:
        """A row per task that was not run, with its forecast; the most telling ones first."""
        rows: list[Sequence[Cell | str]] = []
        for task in self.next_tasks:
            missing = self.tasks.get(task)
            if missing is not None:
                score = number(missing.score, interval=missing.interval)
                rows.append((task, score, share_text(self.benchmark.costs[task])))
        return Table.of(
            rows,
            ("task", "forecast", f"share of the {self.benchmark.unit}"),
            note="Not run. First: the task that would tell most of the mean for its cost.",
            method=self._method(),
            name="forecast",
            caption=f"Forecast scores of the tasks of {self.benchmark.name} that were not run.",
            data=self.data,
        )

    def _method(self) -> str:
        origin = source()
        return (
            "Normal distribution of scores over published models, conditioned on the measured "
            f"tasks. Published scores: {origin.repository} at {origin.commit[:12]} "
            f"({origin.licence}). Intervals were calibrated on families left out of the fit."
        )

    def hints(self) -> Table:
        """A row per measured score that is far from what the model's other scores suggest.

        It is a hint to look, and never a verdict.
        """
        rows = []
        for residual in self.implausible:
            rows.append(
                (
                    residual.task,
                    number(residual.score),
                    number(residual.expected),
                    _reason_to_look(residual),
                )
            )
        return Table.of(
            rows,
            ("task", "score", "by the others", "look at"),
            note="A hint, not a verdict: of 100 published scores, 1 or 2 are as far from their "
            "model's other scores.",
            name="plausible",
            caption="Scores far from what the model's other scores suggest.",
            data=self.data,
        )

    def to_frame(self) -> DataFrame:
        """Return a row per task: score, interval, and whether it was measured."""
        import pandas as pd

        rows = []
        for task in self.benchmark.columns:
            if task in self.measured:
                score = self.measured[task]
                rows.append((task, score, score, score, True, self.benchmark.costs[task]))
            elif task in self.tasks:
                missing = self.tasks[task]
                rows.append(
                    (task, missing.score, *missing.interval, False, self.benchmark.costs[task])
                )
        columns = ["task", "score", "low", "high", "measured", "cost"]
        return pd.DataFrame(rows, columns=columns)


def share_text(share: float) -> str:
    """Return a share in percent, such as ``4 %``; small ones with a digit.

    >>> share_text(0.0417), share_text(0.0042), share_text(0.00003)
    ('4 %', '0.4 %', 'below 0.1 %')
    """
    percent = 100 * share
    if percent < 0.1:
        return "below 0.1 %"
    if percent < 1:
        return f"{percent:.1f} %"
    return f"{percent:.0f} %"


def _reason_to_look(residual: Residual) -> str:
    """Return what a score far from the others may come from."""
    difference = abs(residual.score - residual.expected)
    if residual.deviations < 0:
        return f"{difference:.2f} below: check prompt and length"
    return f"{difference:.2f} above: was it in the training data?"


def forecast(scores: Mapping[str, float], *, benchmark: str = DEFAULT) -> Forecast:
    """Forecast the mean of a benchmark from some of its tasks.

    Args:
        scores: main scores, 1 at most, by MTEB's names of the tasks, or by the keys of this
            package, such as ``STS17-en-en``; at least one.
        benchmark: ``MTEB(eng, v2)``, ``BEIR`` or ``MTEB(Multilingual, v2)``.

    Raises:
        ValueError: an unknown benchmark or task, no score, or a score beyond -1 to 1.

    >>> forecast({"STSBenchmark": 0.82, "ArguAna": 0.50}).benchmark.name
    'MTEB(eng, v2)'
    """
    facts = _benchmark_of(benchmark)
    names = published_names(facts)
    measured = {}
    for key, score in scores.items():
        if key not in names:
            raise ValueError(f"no published scores of {key!r} in {benchmark}; {_hint(key, names)}")
        if names[key] in measured:
            raise ValueError(f"{key!r} is a second score of {names[key]}; give one of them")
        measured[names[key]] = _checked_score(key, score)
    if not measured:
        raise ValueError(
            f"expected at least one score of {benchmark}, such as {{'{facts.tasks[0]}': 0.5}}"
        )
    return _forecast_of(facts, measured, DataUsed())


def _checked_score(key: str, score: Any) -> float:
    """Return a score as a number; raise ValueError if it is none, or a percentage."""
    is_number = isinstance(score, Real) and not isinstance(score, bool)
    if not is_number or not math.isfinite(score):
        raise ValueError(f"expected a finite number as score of {key}, got {score!r}")
    # Correlations of STS tasks may be negative.
    if not -1 <= score <= 1:
        raise ValueError(
            f"expected scores up to 1, got {score:g} for {key}; divide percentages by 100"
        )
    return float(score)


def _forecast_of(
    facts: PublishedBenchmark, measured: Mapping[str, float], data: DataUsed
) -> Forecast:
    calibration = fitted_calibration(facts.name)
    expected = forecast_mean(
        fitted_moments(facts.name), measured, mean_tasks=facts.tasks, calibration=calibration
    )
    return Forecast(facts, expected, calibration, data)


def _benchmark_of(name: str) -> PublishedBenchmark:
    benchmarks = published_benchmarks()
    if name not in benchmarks:
        known = ", ".join(benchmarks)
        raise ValueError(f"expected a benchmark with published scores, {known}; got {name!r}")
    return benchmarks[name]


def _hint(name: str, names: Iterable[str]) -> str:
    """Return the name that was probably meant, or some of those there are."""
    known = list(names)
    similar = get_close_matches(name, known, 1)
    if similar:
        return f"did you mean {similar[0]!r}?"
    return f"its tasks are {first_names(known)}"


def published_names(facts: PublishedBenchmark) -> dict[str, str]:
    """Return MTEB's name of each task by the keys that stand for it; groups only as a whole."""
    names = {task: task for task in facts.columns}
    if facts.name not in BENCHMARKS:
        return names
    for key in BENCHMARKS[facts.name].tasks:
        # Of names that begin alike, the longest is meant: STS22.v2, not STS22.
        fitting = [task for task in facts.tasks if key == task or key.startswith(f"{task}-")]
        if fitting:
            names[key] = max(fitting, key=len)
    return names


def forecast_results(results: Iterable[Result], *, benchmark: str = DEFAULT) -> Forecast | None:
    """Forecast the mean of one model from its records; None if none is on the benchmark's tasks.

    Args:
        results: records of one model; those on other tasks are ignored.
        benchmark: as for `forecast`.
    """
    facts = _benchmark_of(benchmark)
    by_task = {record.task.key: record for record in results}
    measured = {}
    used = []
    for key, name in published_names(facts).items():
        keys = GROUPS.get(key, (key,))
        records = [by_task[part] for part in keys if part in by_task]
        scores = [_score_on(record, facts.name) for record in records]
        if len(records) == len(keys) and None not in scores:
            measured[name] = sum(filter(None, scores)) / len(keys)
            used += records
    if not measured:
        return None
    return _forecast_of(facts, measured, DataUsed.of(used))


def forecast_of_column(column: MeanColumn, records: Iterable[Result]) -> Forecast | None:
    """Forecast a mean of a leaderboard that is not complete.

    None for a mean over types or of a benchmark without published scores, from fewer than three
    tasks, and for a model that is unlike the published ones.
    """
    name = column.benchmark
    is_over_tasks = column.name in (name, f"{name} Mean (Task)")
    if not is_over_tasks or name not in published_benchmarks():
        return None
    answer = forecast_results(records, benchmark=name)
    if answer is None or len(answer.measured) < _FEWEST_TASKS or not answer.is_usual:
        return None
    return answer


def _score_on(record: Result, benchmark: str) -> float | None:
    """Return a record's score by the metric that a benchmark averages."""
    metric = BENCHMARKS[benchmark].metric if benchmark in BENCHMARKS else ""
    score = task_score(record, metric)
    return None if score is None else score.value
