"""The page of trainings: gains, losses, gradient conflicts, and a conclusion."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb import paths
from qwen3nb.analysis import inventory
from qwen3nb.analysis.comparison.differences import ALPHA, family_words
from qwen3nb.analysis.training import checkpoint_scores
from qwen3nb.analysis.training.checkpoint_scores import TrainingSummary, Trajectory
from qwen3nb.checkpoints.folder import step_of, trainer_state
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.records.data_used import DataUsed
from qwen3nb.records.record import Result
from qwen3nb.records.results import richest_tier
from qwen3nb.records.store import latest
from qwen3nb.report.render.differences import difference_cell, difference_text
from qwen3nb.report.render.figure import (
    GREY,
    SMALL,
    Figure,
    MplFigure,
    grid,
    panels,
    plain,
    row_names,
)
from qwen3nb.report.render.model_styles import model_styles
from qwen3nb.report.render.table import Cell, Conclusion, Table, number, short_task
from qwen3nb.tiers import TIERS
from qwen3nb.utils.choices import split_names
from qwen3nb.utils.format import number_text, p_value_text
from qwen3nb.utils.imports import DataFrame

_TITLES = {
    "loss": "training loss",
    "eval_loss": "evaluation loss",
    "loss_rerank": "loss, reranking",
    "loss_emb": "loss, embedding",
    "lr": "learning rate",
}
_SPEED = ("_runtime", "_samples_per_second", "_steps_per_second")  # not scores
_UNLIKE = 8  # ratio of the longest to the shortest training from which on the axis is logarithmic
_MOST = 3  # trainings in the conclusion


@dataclass(frozen=True)
class Trainings:
    """Scores by step, logs and gradient conflicts of trainings."""

    trajectories: tuple[Trajectory, ...]  # one per task and training
    logs: tuple[inventory.TrainingLog, ...]  # losses and learning rates, one per run
    conflicts: tuple[inventory.Conflicts, ...]  # gradient conflicts of joint runs
    problems: tuple[str, ...]  # unreadable files and truncated lines
    seed: int  # of the draws

    @property
    def data(self) -> DataUsed:
        """The data of all scores."""
        by_step = (steps for each in self.trajectories for steps in each.records.values())
        return DataUsed.of(record for steps in by_step for record in steps.values())

    @cached_property
    def summaries(self) -> tuple[TrainingSummary, ...]:
        """Gain of each training on each task, tested once."""
        return checkpoint_scores.training_summaries(self.trajectories, seed=self.seed)

    def to_frame(self) -> DataFrame:
        """Return a row per task, training, seed and step: the score and its 95 % interval."""
        import pandas as pd

        names = ("task", "metric", "training", "seed", "step", "score", "low", "high", "n")
        rows = []
        for each in self.trajectories:
            own = (short_task(each.task), each.metric, each.training)
            for seed, steps in each.records.items():
                for step, record in sorted(steps.items()):
                    score = record.metrics[each.metric]
                    rows.append((*own, seed, step, score.value, score.low, score.high, score.n))
        return pd.DataFrame(rows, columns=names)


def read_trainings(
    results: Iterable[Result],
    *,
    tier: str = "",
    task: str = "",
    metric: str = "",
    outputs: Path | str = "",
    seed: int = 0,
) -> Trainings:
    """Gather scores from records, and logs from folders of trainings.

    By default, the tasks are those of adapters and of the richest tier with results, each by its
    main metric; ``task`` has comma-separated names. ``outputs`` is a folder of checkpoints, or of
    ``<configuration>/seed_<n>``, by default `paths.runs`.

    Raises:
        FileNotFoundError: ``outputs`` does not exist.
    """
    base = Path(outputs).expanduser() if outputs else paths.runs()
    if outputs and not base.is_dir():
        raise FileNotFoundError(f"{outputs}: no such folder")
    given = latest(results)
    tasks = split_names(task) or list(TIERS[tier or richest_tier(given)].task_keys)
    if not task:  # adapters are evaluated on their own tasks
        adapters = {r.task.key for r in given if isinstance(r.config.get("training"), dict)}
        tasks += sorted(adapters - set(tasks))
    problems: list[str] = []

    def readable(reader: Callable[[Path], Any], files: Iterable[Path]) -> Iterator[Any]:
        for file in files:
            try:
                yield reader(file)
            except (ValueError, OSError) as error:
                problems.append(str(error))

    def state_log(checkpoint: Path) -> inventory.TrainingLog:
        name = paths.shown(checkpoint.parent).removeprefix("runs/")
        return inventory.read_trainer_state(trainer_state(checkpoint), name=name)

    # The last checkpoint with a log of transformers' Trainer, by the folder of its training.
    states = (file.parent for file in base.rglob("checkpoint-*/trainer_state.json"))
    steps = {folder: step for folder in states if (step := step_of(folder)) is not None}
    last = {folder.parent: folder for folder in sorted(steps, key=steps.__getitem__)}
    folders = inventory.find_outputs(base)
    logs = [*readable(state_log, (last[folder] for folder in sorted(last)))]
    logs += readable(inventory.read_log, inventory.find_logs(folders))
    found = inventory.find_logs(folders, inventory.CONFLICTS)
    conflicts = [*readable(inventory.read_conflicts, found)]
    problems += [f"{each.name}: {note}" for each in (*logs, *conflicts) for note in each.notes]
    return Trainings(
        tuple(checkpoint_scores.trajectories(given, tasks=tasks, metric=metric)),
        tuple(logs),
        tuple(conflicts),
        tuple(problems),
        seed,
    )


def gains_table(trainings: Trainings) -> Table:
    """A row per task and training: the last step against the first, tested."""
    return Table.of(
        (
            {
                "task": (short_task(each.task), each.metric),
                "training": each.name,
                "first step": (gain.means[1], gain.second),
                "last step": (gain.means[0], gain.first),
                "last − first\n95 % interval": difference_cell(gain),
                "p\ncorrected": Cell(
                    p_value_text(gain.corrected),
                    strong=gain.significant(ALPHA),
                    value=gain.corrected,
                ),
                "queries": number(gain.n, "d"),
                "best step": (best.first.removeprefix("step "), f"mean {best.means[0]:.3f}"),
            }
            for each in trainings.summaries
            for gain, best in [(each.gain, each.best)]
        ),
        note=f"95 % intervals ({interval_words(['paired'])}); p: "
        f"{family_words([each.gain for each in trainings.summaries], 'gains')}; "
        f"p < {ALPHA:g}, and an interval that excludes 0, in bold. First and last are not "
        "selected by score, so the difference is not biased, unlike the mean of the best step; "
        "training again gives another model, which a single training cannot show.",
        empty="No training has two or more evaluated steps with scores per query.",
        name="gains",
        caption="Gain of each training: its last step against its first, on the same queries.",
        data=trainings.data,
    )


def loss_figure(trainings: Trainings) -> Figure | None:
    """Losses, development scores and learning rate by step, one line per training, or None."""
    logs = trainings.logs
    given = {name for log in logs for name in log.series}
    scores = {name for name in given if name.startswith("eval_") and not name.endswith(_SPEED)}
    keys = [name for name in dict.fromkeys([*_TITLES, *sorted(scores)]) if name in given]
    if not keys:
        return None

    def draw(width: float) -> MplFigure:
        names = [*dict.fromkeys(log.name for log in logs)]
        styles, labels = model_styles(names), dict(zip(names, row_names(names), strict=True))
        drawn: dict[str, Any] = {}
        figure, axes, _ = panels(len(keys), width, height=1.9)
        for axis, key in zip(axes, keys, strict=True):
            own = {log.name: log.series[key] for log in logs if log.series.get(key)}
            for name, values in own.items():
                points = zip(*values, strict=True)
                (drawn[labels[name]],) = axis.plot(*points, lw=1.3, ms=3, **styles[name])
            axis.set(title=_TITLES.get(key, key), xlabel="training step")
            lasts = [values[-1][0] for values in own.values()]
            if max(lasts) > _UNLIKE * min(lasts):  # otherwise a short training would be a dot
                axis.set_xscale("symlog", linthresh=max(1, min(lasts)))
                axis.xaxis.set_major_formatter("{x:g}")
            grid(axis, which="y")
        look: dict[str, Any] = {"ncols": 3 if width > 5 else 1, "fontsize": SMALL}
        figure.legend(drawn.values(), drawn, loc="outside lower center", **look)
        return figure

    words = "; ".join(
        f"{log.name}: {_TITLES.get(key, key)} {log.series[key][0][1]:.3f} to "
        f"{log.series[key][-1][1]:.3f}"
        for log in logs
        for key in keys
        if key in log.series and key != "lr"
    )
    return Figure(
        name="losses",
        draw=draw,
        caption="Losses, development scores and learning rate by step, as logged, one line per "
        "training; single values, so without intervals. Values that were not logged have no line.",
        alt=f"Losses by training step. {words}.",
    )


def conflict_figure(trainings: Trainings) -> Figure | None:
    """Cosine of the two objectives' gradients by layer and step, a panel per joint training.

    On a common colour scale; unmeasured cells are hatched. None if there are no measurements.
    """
    given = [each for each in trainings.conflicts if each.cosines]
    if not given:
        return None
    tables = [each.by_step() for each in given]

    def draw(width: float) -> MplFigure:
        import pandas as pd
        from seaborn import heatmap

        largest = max(float(np.nanmax(np.abs(table))) for table in tables)
        height = min(5.0, 1.6 + 0.15 * max(len(each.layers) for each in given))
        figure, axes, _ = panels(len(given), width, height=height, most=2)
        for axis, each, table in zip(axes, given, tables, strict=True):
            axis.set_facecolor((0.49, 0.52, 0.56, 0.2))
            axis.patch.set(hatch="///", edgecolor=GREY)
            heatmap(
                pd.DataFrame(table, index=each.layers, columns=each.steps),
                ax=axis,
                cmap="RdBu",
                vmin=-largest,
                vmax=largest,
                cbar_kws={"label": "cosine", "shrink": 0.9},
                rasterized=True,  # a page of thousands of rectangles is slow
            )
            axis.tick_params(length=0)
            axis.tick_params(axis="y", rotation=0)
            axis.set_title(plain(each.name), fontsize=8)
            axis.set(xlabel="training step", ylabel="layer")
        return figure

    words = "; ".join(
        f"{each.name}: mean {np.nanmean(table):+.3f}, from {np.nanmin(table):+.3f} to "
        f"{np.nanmax(table):+.3f}"
        for each, table in zip(given, tables, strict=True)
    )
    return Figure(
        name="conflicts",
        draw=draw,
        caption="Cosine of the gradients of two objectives, a panel per joint training: by layer "
        "and step, mean over the layer's modules. Hatched: not measured.",
        alt=f"Cosines of gradients by layer and step. {words}.",
    )


def training_conclusion(trainings: Trainings) -> Conclusion:
    """State the gain of each training on the first task, and whether one checkpoint is the best."""
    every = trainings.summaries
    if not every:
        return Conclusion(
            "No training has two evaluated checkpoints with scores per query, so nothing can be "
            "said about its course: extract and evaluate several checkpoints of one training.",
            data=trainings.data,
        )
    own = [each for each in every if each.task == every[0].task]
    sentences = [_in_words(each) for each in own[:_MOST]]
    sentences += [f"{len(own) - _MOST} more are in the table."] * (len(own) > _MOST)
    sentences += [f"Not read: {problem}." for problem in trainings.problems]
    return Conclusion(" ".join(sentences), data=trainings.data)


def _in_words(each: TrainingSummary) -> str:
    """Describe the gain of one training on its task, and its best step."""
    change = each.gain
    verb = "raised" if change.difference > 0 else "lowered"
    verb = verb if change.significant(ALPHA) else "is not shown to change"
    tested = difference_text(change, noun="gains")
    return (
        f"Training {each.name} {verb} {each.metric} on {short_task(each.task)}: "
        f"{number_text(change.means[1])} at {change.second}, "
        f"{number_text(change.means[0])} at {change.first} "
        f"({tested}). {_best_in_words(each)}"
    )


def _best_in_words(summary: TrainingSummary) -> str:
    """Say which step scores best, and whether it is shown to; of two steps, the gain says that."""
    best = summary.best
    scores_best = f"{best.first.capitalize()} scores best"
    if best.identical:
        return f"{best.first.capitalize()} and {best.second} score the same on every query."
    if {best.first, best.second} == {summary.gain.first, summary.gain.second} and best.family == 1:
        return f"{scores_best} of the two."
    lead = f"above {best.second}, the next best, by {difference_text(best, noun='other steps')}."
    if best.significant(ALPHA):
        return f"{scores_best}, and that is more than noise: {lead}"
    return f"{scores_best}, but that is not more than noise: {lead}"
