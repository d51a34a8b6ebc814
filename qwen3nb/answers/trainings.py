"""How did trainings go? Scores by step, losses, and conflicts of gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from qwen3nb import paths
from qwen3nb.analysis.comparison.differences import ALPHA, family_words
from qwen3nb.analysis.inventory.training_logs import (
    CONFLICTS,
    Conflicts,
    TrainingLog,
    find_logs,
    find_outputs,
    read_conflicts,
    read_log,
    read_trainer_state,
)
from qwen3nb.analysis.training.checkpoint_scores import (
    TrainingSummary,
    Trajectory,
    training_summaries,
    trajectories,
)
from qwen3nb.answers.answer import Answer
from qwen3nb.answers.training_forecasts import TrainingForecasts, training_forecasts
from qwen3nb.checkpoints.folder import step_of, trainer_state
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import richest_tier
from qwen3nb.records.store import latest
from qwen3nb.report.render.differences import difference_cell, difference_text
from qwen3nb.report.render.figure import (
    GREY,
    Axes,
    Figure,
    MplFigure,
    grid,
    is_wide,
    panels,
    plain,
    row_names,
)
from qwen3nb.report.render.model_styles import model_styles
from qwen3nb.report.render.table import Cell, Conclusion, Table, cut, number, short_task
from qwen3nb.tiers import TIERS
from qwen3nb.utils.choices import split_names
from qwen3nb.utils.format import number_text, p_value_text
from qwen3nb.utils.imports import DataFrame

if TYPE_CHECKING:
    from matplotlib.lines import Line2D

_TITLES = {
    "loss": "training loss",
    "eval_loss": "evaluation loss",
    "loss_rerank": "loss, reranking",
    "loss_emb": "loss, embedding",
    "lr": "learning rate",
}
_SPEED_SUFFIXES = ("_runtime", "_samples_per_second", "_steps_per_second")  # not scores
_LOGARITHMIC = 8  # ratio of the longest to the shortest training from which on the axis is so
_SENTENCES = 2  # trainings in the conclusion
_LONGEST_PROBLEM = 100  # characters of what could not be read, in the conclusion

Log = TypeVar("Log", TrainingLog, Conflicts)


@dataclass(frozen=True, repr=False)
class Trainings(Answer):
    """Scores by step, logs and gradient conflicts of trainings."""

    trajectories: tuple[Trajectory, ...] = ()  # one per task and training
    logs: tuple[TrainingLog, ...] = ()  # losses and learning rates, one per run
    gradient_conflicts: tuple[Conflicts, ...] = ()  # of joint runs
    problems: tuple[str, ...] = ()  # unreadable files and truncated lines
    seed: int = 0  # of the draws

    @property
    def data(self) -> DataUsed:
        """The data of all scores."""
        records: list[Result] = []
        for trajectory in self.trajectories:
            for by_step in trajectory.records.values():
                records += by_step.values()
        return DataUsed.of(records)

    @cached_property
    def summaries(self) -> tuple[TrainingSummary, ...]:
        """Gain of each training on each task, tested once."""
        return training_summaries(self.trajectories, seed=self.seed)

    @property
    def conclusion(self) -> Conclusion:
        """The gain of each training on the first task, and whether one checkpoint is the best."""
        if not self.summaries:
            text = (
                "No training has two evaluated checkpoints with scores per query. Extract and "
                "evaluate several checkpoints of one training."
            )
            return Conclusion(" ".join([text, *self._unread()]), data=self.data)
        task = self.summaries[0].task
        on_task = [summary for summary in self.summaries if summary.task == task]
        sentences = [_in_words(summary) for summary in on_task[:_SENTENCES]]
        if len(on_task) == 1:
            sentences += _best_step(on_task[0])
        if len(on_task) > _SENTENCES:
            sentences.append(f"The table has {len(on_task) - _SENTENCES} more.")
        return Conclusion(" ".join([*sentences, *self._unread()]), data=self.data)

    def _unread(self) -> list[str]:
        """Name the first file or line that could not be read, and count the others."""
        if not self.problems:
            return []
        first_problem = cut(self.problems[0], _LONGEST_PROBLEM)
        if len(self.problems) == 1:
            return [f"Not read: {first_problem}."]
        return [f"Not read: {first_problem}; {len(self.problems) - 1} more are below the table."]

    def table(self) -> Table:
        """A row per task and training: the last step against the first, tested."""
        gains = [summary.gain for summary in self.summaries]
        method = interval_words(["paired"])
        test = family_words(gains, "gains")
        return Table.of(
            [_row(summary) for summary in self.summaries],
            note=f"Bold: p < {ALPHA:g}, and the interval excludes 0. {self._note_on_seeds()}",
            method=" ".join(
                [
                    f"95 % intervals ({method}); p: {test}. First and last are not selected by "
                    "score, so the difference is not biased, unlike the mean of the best step.",
                    *[_best_in_words(summary) for summary in self.summaries],
                    *[f"Not read: {problem}." for problem in self.problems],
                ]
            ),
            empty="No training has two or more evaluated steps with scores per query.",
            name="gains",
            caption="Gain of each training: its last step against its first, on the same queries.",
            data=self.data,
        )

    def _note_on_seeds(self) -> str:
        """Say what the gains hold for."""
        if any(summary.seeds > 1 for summary in self.summaries):
            return "A gain over seeds holds for new seeds, too; that of one seed for this model."
        return "Training again gives another model, which a single training cannot show."

    def figure(self) -> Figure | None:
        """Losses, development scores and learning rate by step, one line per training, or None."""
        measures = self._measures()
        if not measures:
            return None
        words = []
        for log in self.logs:
            for measure in measures:
                # A learning rate is planned: its course is no result.
                if measure in log.series and measure != "lr":
                    words.append(f"{log.name}: {_change_in_words(log, measure)}")
        return Figure(
            name="losses",
            draw=partial(self._draw_logs, measures),
            caption="Losses, development scores and learning rate by step, as logged, one line per "
            "training; single values, so without intervals. Values that were not logged have no "
            "line.",
            alt=f"Losses by training step. {'; '.join(words)}.",
        )

    def _draw_logs(self, measures: Sequence[str], width: float) -> MplFigure:
        """Draw a panel per measure, and in it a line per training."""
        names = list(dict.fromkeys(log.name for log in self.logs))
        labels = dict(zip(names, row_names(names), strict=True))
        styles = model_styles(names)
        lines_by_label: dict[str, Line2D] = {}
        figure, axes, _ = panels(len(measures), width, height=1.9)
        for axis, measure in zip(axes, measures, strict=True):
            logs = [log for log in self.logs if log.series.get(measure)]
            for log in logs:
                # A series is a list of pairs of a step and a value.
                steps, values = zip(*log.series[measure], strict=True)
                (line,) = axis.plot(steps, values, lw=1.3, ms=3, **styles[log.name])
                lines_by_label[labels[log.name]] = line
            axis.set(title=_TITLES.get(measure, measure), xlabel="training step")
            _scale_steps(axis, [log.series[measure] for log in logs])
            grid(axis, which="y")
        figure.legend(
            lines_by_label.values(),
            lines_by_label,
            loc="outside lower center",
            ncols=3 if is_wide(width) else 1,
        )
        return figure

    def _measures(self) -> list[str]:
        """Return the names of what is drawn: those with a title first, then development scores."""
        logged: set[str] = set()
        for log in self.logs:
            logged |= log.series.keys()
        names = list(_TITLES)
        for name in sorted(logged):
            is_score = name.startswith("eval_") and not name.endswith(_SPEED_SUFFIXES)
            if is_score and name not in _TITLES:
                names.append(name)
        return [name for name in names if name in logged]

    def conflicts(self) -> Figure | None:
        """Cosine of the two objectives' gradients by layer and step, a panel per joint training.

        On a common colour scale; unmeasured cells are hatched. None if there are no measurements.
        """
        conflicts_of_runs = [
            conflicts for conflicts in self.gradient_conflicts if conflicts.cosines
        ]
        if not conflicts_of_runs:
            return None
        words = []
        for conflicts in conflicts_of_runs:
            cosines = conflicts.by_step()
            words.append(
                f"{conflicts.name}: mean {np.nanmean(cosines):+.3f}, from "
                f"{np.nanmin(cosines):+.3f} to {np.nanmax(cosines):+.3f}"
            )
        return Figure(
            name="conflicts",
            draw=partial(_draw_conflicts_of_runs, conflicts_of_runs),
            caption="Cosine of the gradients of two objectives, a panel per joint training: by "
            "layer and step, mean over the layer's modules. Hatched: not measured.",
            alt=f"Cosines of gradients by layer and step. {'; '.join(words)}.",
        )

    def forecast(self, *, more_steps: int = 0) -> TrainingForecasts:
        """Return what more steps would bring, tested on the last checkpoints.

        Args:
            more_steps: how far to look ahead; by default about a tenth of each training.
        """
        return training_forecasts(self.trajectories, more_steps=more_steps)

    def to_frame(self) -> DataFrame:
        """Return a row per task, training, seed and step: the score and its 95 % interval."""
        import pandas as pd

        names = ("task", "metric", "training", "seed", "step", "score", "low", "high", "n")
        rows = []
        for trajectory in self.trajectories:
            task = short_task(trajectory.task)
            for seed, by_step in trajectory.records.items():
                for step, record in sorted(by_step.items()):
                    score = record.metrics[trajectory.metric]
                    values = (score.value, score.low, score.high, score.n)
                    rows.append((task, trajectory.metric, trajectory.training, seed, step, *values))
        return pd.DataFrame(rows, columns=names)

    def by_query(self) -> DataFrame:
        """Return a row per query and a column per step, of the first training with two steps."""
        import pandas as pd

        for trajectory in self.trajectories:
            for by_step in trajectory.scores.values():
                if len(by_step) < 2:
                    continue
                columns = {}
                for step, column in sorted(by_step.items()):
                    columns[step] = pd.Series(column.scores, index=column.queries)
                return pd.DataFrame(columns).dropna()  # only queries that all steps have
        return pd.DataFrame()


def trainings(
    results: Iterable[Result],
    *,
    tier: str = "",
    task: str = "",
    metric: str = "",
    outputs: Path | str = "",
    seed: int = 0,
) -> Trainings:
    """Gather scores from records, and logs from folders of trainings.

    Args:
        results: any records.
        tier: of whose tasks the scores are; by default the richest one with results.
        task: comma-separated names of tasks, instead of those of the tier and of adapters.
        metric: by default the main metric of each task.
        outputs: a folder of checkpoints, or of ``<configuration>/seed_<n>``; by default
            `paths.runs`.
        seed: of the draws.

    Raises:
        FileNotFoundError: ``outputs`` does not exist.
    """
    base = Path(outputs).expanduser() if outputs else paths.runs()
    if outputs and not base.is_dir():
        raise FileNotFoundError(f"{outputs}: no such folder")
    records = latest(results)
    tasks = split_names(task) or _tasks_of(records, tier)
    folders = find_outputs(base)
    problems: list[str] = []
    # Files that cannot be read are added to the problems.
    logs = _read(_last_checkpoints(base), _log_of_trainer, problems)
    logs += _read(find_logs(folders), read_log, problems)
    conflicts_of_runs = _read(find_logs(folders, CONFLICTS), read_conflicts, problems)
    for log in logs:
        problems += [f"{log.name}: {note}" for note in log.notes]
    for run in conflicts_of_runs:
        problems += [f"{run.name}: {note}" for note in run.notes]
    return Trainings(
        tuple(trajectories(records, tasks=tasks, metric=metric)),
        tuple(logs),
        tuple(conflicts_of_runs),
        tuple(problems),
        seed,
    )


def _tasks_of(records: Sequence[Result], tier: str) -> list[str]:
    """Return the tasks of a tier, then those of adapters, which have tasks of their own."""
    tasks = list(TIERS[tier or richest_tier(records)].task_keys)
    of_adapters = {record.task.key for record in records if record.training is not None}
    return tasks + sorted(of_adapters - set(tasks))


def _read(files: Iterable[Path], reader: Callable[[Path], Log], problems: list[str]) -> list[Log]:
    """Return what can be read, and add the reason for each other file to the problems."""
    logs = []
    for file in files:
        try:
            logs.append(reader(file))
        except (ValueError, OSError) as error:
            problems.append(str(error))
    return logs


def _last_checkpoints(base: Path) -> list[Path]:
    """Return the last checkpoint with a log of transformers' Trainer, of each training."""
    checkpoints_by_training: dict[Path, dict[int, Path]] = {}
    for file in sorted(base.rglob("checkpoint-*/trainer_state.json")):
        checkpoint = file.parent
        step = step_of(checkpoint)
        if step is not None:
            by_step = checkpoints_by_training.setdefault(checkpoint.parent, {})
            by_step[step] = checkpoint
    last_checkpoints = []
    for _, by_step in sorted(checkpoints_by_training.items()):
        last_step = max(by_step)
        last_checkpoints.append(by_step[last_step])
    return last_checkpoints


def _log_of_trainer(checkpoint: Path) -> TrainingLog:
    name = paths.shown(checkpoint.parent).removeprefix("runs/")
    return read_trainer_state(trainer_state(checkpoint), name=name)


def _row(summary: TrainingSummary) -> dict[str, object]:
    """Return a row of the table of gains."""
    gain, best = summary.gain, summary.best
    # The gain is last - first: its first system is the last step.
    last_mean, first_mean = gain.means
    best_mean, _ = best.means
    p_value = Cell(
        p_value_text(gain.corrected), strong=gain.significant(ALPHA), value=gain.corrected
    )
    return {
        "task": (short_task(summary.task), summary.metric),
        "training": summary.name,
        "first step": (first_mean, gain.second),
        "last step": (last_mean, gain.first),
        "last − first\n95 % interval": difference_cell(gain),
        "p\ncorrected": p_value,
        "queries": number(gain.n, "d"),
        "best step": (best.first.removeprefix("step "), f"mean {best_mean:.3f}"),
    }


def _change_in_words(log: TrainingLog, measure: str) -> str:
    values = [value for _, value in log.series[measure]]
    return f"{_TITLES.get(measure, measure)} {values[0]:.3f} to {values[-1]:.3f}"


def _draw_conflicts_of_runs(conflicts_of_runs: Sequence[Conflicts], width: float) -> MplFigure:
    """Draw a panel per joint training, on a common scale of colours."""
    largest = max(float(np.nanmax(np.abs(run.by_step()))) for run in conflicts_of_runs)
    layers = max(len(run.layers) for run in conflicts_of_runs)
    height = min(5.0, 1.6 + 0.15 * layers)
    figure, axes, _ = panels(len(conflicts_of_runs), width, height=height, per_line=2)
    for axis, run in zip(axes, conflicts_of_runs, strict=True):
        _draw_conflicts(axis, run, largest=largest)
    return figure


def _draw_conflicts(axis: Axes, conflicts: Conflicts, *, largest: float) -> None:
    import pandas as pd
    from seaborn import heatmap

    # The background, hatched, is seen where nothing was measured.
    axis.set_facecolor((0.49, 0.52, 0.56, 0.2))
    axis.patch.set(hatch="///", edgecolor=GREY)
    heatmap(
        pd.DataFrame(conflicts.by_step(), index=conflicts.layers, columns=conflicts.steps),
        ax=axis,
        cmap="RdBu",
        vmin=-largest,
        vmax=largest,
        cbar_kws={"label": "cosine", "shrink": 0.9},
        rasterized=True,  # a page of thousands of rectangles is slow
    )
    axis.tick_params(length=0)
    axis.tick_params(axis="y", rotation=0)
    axis.set_title(plain(conflicts.name))
    axis.set(xlabel="training step", ylabel="layer")


def _scale_steps(axis: Axes, lines: Sequence[Sequence[tuple[int, float]]]) -> None:
    """Make the axis logarithmic where a short training would otherwise be a dot."""
    last_steps = [points[-1][0] for points in lines]
    if max(last_steps) > _LOGARITHMIC * min(last_steps):
        axis.set_xscale("symlog", linthresh=max(1, min(last_steps)))
        axis.xaxis.set_major_formatter("{x:g}")


def _in_words(summary: TrainingSummary) -> str:
    """Say what one training changed on its task."""
    gain = summary.gain
    # The gain is last - first: its first system is the last step.
    last_mean, first_mean = gain.means
    verb = "is not shown to change"
    if gain.significant(ALPHA):
        verb = "raised" if gain.difference > 0 else "lowered"
    name = summary.name
    if summary.seeds > 1:  # what holds for other seeds
        name = f"{name} (and new ones),"
    return (
        f"Training {name} {verb} {summary.metric} on {short_task(summary.task)}: "
        f"{number_text(first_mean)} at {gain.second}, {number_text(last_mean)} at {gain.first}."
    )


def _best_step(summary: TrainingSummary) -> list[str]:
    """Say which of several steps is the best, and whether that is more than noise."""
    best = summary.best
    if _has_two_steps(summary) or best.identical:
        return []
    step = best.first.capitalize()
    if best.significant(ALPHA):
        return [f"{step} is best, by more than noise."]
    return [f"{step} is best, but not by more than noise."]


def _has_two_steps(summary: TrainingSummary) -> bool:
    """Whether a training has two steps: its gain already says whether they differ."""
    gain, best = summary.gain, summary.best
    return best.family == 1 and {best.first, best.second} == {gain.first, gain.second}


def _best_in_words(summary: TrainingSummary) -> str:
    """Say which step scores best, and by how much above the next."""
    best = summary.best
    subject = f"{summary.name} on {short_task(summary.task)}: {best.first}"
    if best.identical:
        return f"{subject} and {best.second} score the same on every query."
    if _has_two_steps(summary):
        return f"{subject} scores best of the two."
    lead = difference_text(best, noun="other steps")
    return f"{subject} scores best, above {best.second}, the next best, by {lead}."
