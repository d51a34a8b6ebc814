"""Which of several models is best? Measured only until the forecasts are certain.

All models run the tasks of one benchmark in the order that tells most of its mean per cost. After
each task, those that cannot be among the best any more are dropped. Records are in their own
folder: a race is no comparison, so no p-value and no plan may rest on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.analysis.forecasting.published import published_benchmarks
from qwen3nb.analysis.forecasting.race import Goal, Race, Standing
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.forecast import DEFAULT, Forecast, forecast_results, share_text
from qwen3nb.answers.preview import tasks_in_order
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.select import benchmark_tasks
from qwen3nb.models.model import Model
from qwen3nb.models.options import ModelOptions
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.stopped_early import UNTIL_CERTAIN
from qwen3nb.report.render.table import Cell, Conclusion, Table, number, plural
from qwen3nb.tiers import BENCHMARKS
from qwen3nb.utils.atomic_files import sha256_json, write_json
from qwen3nb.utils.format import first_names, short_names
from qwen3nb.utils.imports import DataFrame
from qwen3nb.utils.progress import tqdm

FOLDER = "until-certain"  # of the records, below those of the study
_SUMMARIES = "races"  # folder in it: what each race found, and what was not run
_WRONG = "In replays with published models, fewer than 1 of 100 such answers were wrong."


@dataclass(frozen=True, repr=False)
class RaceAnswer(Answer):
    """The best of several models by a benchmark's mean, of which only a part was run."""

    benchmark: str
    race: Race
    forecasts: Mapping[str, Forecast]  # the last one of each model
    not_run: Mapping[str, tuple[str, ...]]  # tasks that each model has not run
    data: DataUsed

    @property
    def best(self) -> tuple[str, ...]:
        """The models that were asked for, the best first."""
        return self.race.best

    @property
    def cost(self) -> float:
        """Cost as a share of running all tasks of all models."""
        return sum(forecast.cost for forecast in self.forecasts.values()) / len(self.forecasts)

    @property
    def is_certain(self) -> bool:
        """Whether the goal was decided, or all tasks have run."""
        has_run_all = not any(self.not_run.values())
        return not self.race.running or has_run_all

    @property
    def conclusion(self) -> Conclusion:
        """The best models, what that took, and how often such an answer is wrong."""
        goal = self.race.goal
        names = ", ".join(self.best) or "none"
        what = f"by the mean of {self.benchmark}"
        if goal.baseline:
            by = f" by {goal.margin:g}" if goal.margin else ""
            text = f"Better than {goal.baseline}{by}, {what}: {names}."
        elif len(self.best) == 1:
            text = f"Best {what}: {names}."
        else:
            text = f"The best {len(self.best)} {what}: {names}."
        sentences = [text, f"That took {share_text(self.cost)} of the cost of running all."]
        if self.is_certain:
            sentences.append(_WRONG)
        else:
            sentences.append("It is not certain: some tasks cannot be run with these models.")
        sentences.append("It is no test: it has no p-value.")
        unlike = [name for name, forecast in self.forecasts.items() if not forecast.is_usual]
        if unlike:
            noun = "is" if len(unlike) == 1 else "are"
            sentences.append(
                f"{first_names(unlike)} {noun} unlike the published models, so forecasts may "
                "not apply."
            )
        return Conclusion(" ".join(sentences), data=self.data, strong=self.best)

    def table(self) -> Table:
        """A row per model, the best first: its forecast mean, and how much of it was run."""
        rows = []
        ahead = sorted(self.forecasts, key=lambda name: -self.forecasts[name].mean)
        for name in ahead:
            forecast = self.forecasts[name]
            rows.append(
                (
                    Cell(name, strong=name in self.best),
                    number(forecast.mean, interval=forecast.interval),
                    f"{len(forecast.measured)}",
                    share_text(forecast.cost),
                    self._place(name),
                )
            )
        return Table.of(
            rows,
            ("model", "forecast mean", "tasks run", "cost", "place"),
            note=f"Forecasts of the mean of {self.benchmark}, with 95 % intervals. {_WRONG}",
            method="A model is decided when it is ahead of, or behind, enough others by three "
            "standard deviations of the difference of forecasts, after three tasks at least.",
            name="race",
            caption="Models measured until the best are certain.",
            data=self.data,
        )

    def _place(self, name: str) -> str:
        if name == self.race.goal.baseline:
            return "baseline"
        if name in self.race.winners:
            return "certain"
        if name in self.race.losers:
            return "dropped"
        return "taken" if name in self.best else "not taken"

    def summary(self) -> dict[str, Any]:
        """Return the goal, what was found, and the tasks that each model has not run."""
        rows = {}
        for name, forecast in self.forecasts.items():
            rows[name] = {
                "place": self._place(name),
                "mean": forecast.mean,
                "interval": list(forecast.interval),
                "cost": forecast.cost,
                "run": list(forecast.measured),
                "not_run": list(self.not_run[name]),
            }
        return {
            "benchmark": self.benchmark,
            "goal": asdict(self.race.goal),
            "certain": self.is_certain,
            "conclusion": self.conclusion.text,
            "models": rows,
        }

    def to_frame(self) -> DataFrame:
        """Return a row per model: mean, interval, cost, place, and the tasks that were not run."""
        import pandas as pd

        rows = []
        for name, forecast in self.forecasts.items():
            missing = " ".join(self.not_run[name])
            values = (forecast.mean, *forecast.interval, forecast.cost, self._place(name), missing)
            rows.append((name, *values))
        return pd.DataFrame(
            rows, columns=["model", "mean", "low", "high", "cost", "place", "not run"]
        )


def until_certain(
    models: Sequence[str],
    *,
    benchmark: str = DEFAULT,
    top: int = 1,
    baseline: str = "",
    margin: float = 0.0,
    model_options: Mapping[str, Any] | None = None,
    seed: int = 0,
    output: Path | None = None,
    fresh: bool = False,
    show_progress: bool = True,
) -> RaceAnswer:
    """Measure models on a benchmark, task by task, until the best are certain.

    A task with a record is not run again, so a race that was stopped goes on where it was. What
    each model has not run is in the answer, and in a file of ``races`` below the records.

    Args:
        models: two or more specs.
        benchmark: ``MTEB(eng, v2)`` or ``BEIR``; its mean over tasks is meant.
        top: how many best models to find.
        baseline: instead, one of the models; each other one is to beat it or not.
        margin: by how much it is to be beaten.
        model_options: how each model is used, such as ``{"pooling": "mean"}``.
        seed: of the evaluations.
        output: folder of the records; by default ``results/until-certain``. They say that they
            are of a run that stopped early, and `load_results` leaves them out.
        fresh: whether to measure again what has a record.
        show_progress: whether to show a bar of the tasks.

    Raises:
        ValueError: fewer than two different models, more asked for than there are, a baseline that
            is none of them, or a benchmark without published scores or tasks here.
        EvaluationError: a task failed.
    """
    names = short_names(models)
    _check_goal(models, benchmark, Goal(top=top, baseline=baseline, margin=margin))
    specs = dict(zip(names, models, strict=True))
    named_baseline = dict(zip(models, names, strict=True)).get(baseline, "")
    race = Race(tuple(names), Goal(top=top, baseline=named_baseline, margin=margin))
    options = ModelOptions(**(model_options or {}))
    folder = output or paths.results() / FOLDER
    facts = published_benchmarks()[benchmark]
    # Without its aids: they are no tasks of the benchmark, so all of it would cost more.
    tasks_by_key = benchmark_tasks(benchmark)
    tasks = tasks_in_order(facts, set(tasks_by_key)).values()
    records: dict[str, list[Result]] = {name: [] for name in names}
    forecasts: dict[str, Forecast] = {}
    bar = tqdm(tasks, desc="until certain", unit="task", disable=not show_progress)
    for task_keys in bar:
        if not race.running:
            break
        for name in race.running:
            # A new value each time: the weights of only one model are in memory.
            model = Model.from_parameters({**vars(options), "checkpoint": specs[name]})
            run = evaluate(
                model,
                tasks=[tasks_by_key[key] for key in task_keys],
                output=folder,
                seed=seed,
                config={UNTIL_CERTAIN: benchmark},
                fresh=fresh,
                show_progress=False,
            )
            records[name] += run.results
            forecast = forecast_results(records[name], benchmark=benchmark)
            if forecast is None:
                raise ValueError(f"{name} has no score on {', '.join(task_keys)} of {benchmark}")
            forecasts[name] = forecast
        for key in task_keys:
            tasks_by_key.pop(key).unload_data()
        decided = race.advance({name: _standing(forecasts[name]) for name in race.running})
        if decided and show_progress:
            bar.write(f"decided: {', '.join(decided)}, after {plural(race.tasks, 'task')}")
    used = [record for of_model in records.values() for record in of_model]
    not_run = {name: forecast.next_tasks for name, forecast in forecasts.items()}
    answer = RaceAnswer(benchmark, race, forecasts, not_run, DataUsed.of(used))
    question = {
        "models": list(models),
        "options": {name: str(value) for name, value in options.recorded().items()},
        "seed": seed,
        "benchmark": benchmark,
        "goal": asdict(race.goal),
    }
    file = folder / _SUMMARIES / f"{sha256_json(question)[:12]}.json"
    write_json(file, {**question, **answer.summary()})
    return answer


def _standing(forecast: Forecast) -> Standing:
    """Return the mean with the standard deviation of the fit, as in the replays.

    The fit knows less of a model that is unlike the published ones: its deviation is larger by the
    distance.
    """
    deviation = forecast.forecast.fit_deviation
    if not forecast.is_usual:
        deviation *= forecast.forecast.distance
    return Standing(forecast.mean, deviation)


def _check_goal(models: Sequence[str], benchmark: str, goal: Goal) -> None:
    """Raise ValueError if models and goal do not fit together."""
    top, baseline, margin = goal.top, goal.baseline, goal.margin
    if len(set(models)) < max(2, len(models)):
        raise ValueError(f"expected two or more different models, got {', '.join(models)}")
    if not 0 <= margin < 1:
        raise ValueError(f"expected a margin from 0 to below 1, got {margin:g}")
    if margin and not baseline:
        raise ValueError("a margin is for a baseline; name the model to beat as baseline")
    if not 1 <= top < len(models):
        raise ValueError(f"expected from 1 to {len(models) - 1} best models, got {top}")
    if baseline and baseline not in models:
        raise ValueError(f"expected a baseline among {', '.join(models)}; got {baseline!r}")
    if benchmark not in published_benchmarks() or benchmark not in BENCHMARKS:
        known = [name for name in published_benchmarks() if name in BENCHMARKS]
        raise ValueError(f"expected one of {', '.join(known)}, got {benchmark!r}")
