"""Tables of trainings over time: best checkpoints, variance between seeds, losses, logs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from qwen3nb import paths
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
from qwen3nb.analysis.training.checkpoint_scores import Trajectory, trajectories, trajectory_curve
from qwen3nb.analysis.training.courses import Course, courses
from qwen3nb.analysis.training.learning_curve import Curve, best_checkpoint, correlation
from qwen3nb.analysis.training.origins import objective_of, training_folder
from qwen3nb.analysis.training.seed_variance import SeedCurve, seed_curve
from qwen3nb.checkpoints.checkpoint import step_of, trainer_state
from qwen3nb.evaluation.mteb.select import split_names
from qwen3nb.records.record import Result
from qwen3nb.records.results import richest_tier
from qwen3nb.records.store import latest
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.format import short_task
from qwen3nb.report.render.table import Table
from qwen3nb.tiers import TIERS
from qwen3nb.utils.format import interval_text, number_text

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = [
    "Trainings",
    "best_table",
    "logged_series",
    "logs_table",
    "loss_correlation_table",
    "read_trainings",
    "series_title",
    "variance_table",
]

_Log = TypeVar("_Log")
_TITLES = {
    "loss": "training loss",
    "eval_loss": "evaluation loss",
    "loss_rerank": "loss, reranking",
    "loss_emb": "loss, embedding",
    "lr": "learning rate",
}
_SPEED = ("_runtime", "_samples_per_second", "_steps_per_second")  # not scores


@dataclass(frozen=True)
class Trainings:
    """Scores by step, logs and gradient conflicts of trainings.

    Attributes:
        trajectories: one per task and training.
        logs: losses and learning rates, one per run.
        conflicts: gradient conflicts of joint runs.
        problems: unreadable files and truncated lines.
        seed: of the draws.
        objectives: what the training of each log did, where its folder says so.
    """

    trajectories: tuple[Trajectory, ...]
    logs: tuple[TrainingLog, ...]
    conflicts: tuple[Conflicts, ...]
    problems: tuple[str, ...]
    seed: int
    objectives: Mapping[str, str] = field(default_factory=dict)

    def curves(self) -> dict[tuple[str, str, int], Curve]:
        """Learning curves by task, training and seed, of those with two or more steps."""
        return {
            (each.task, each.training, number): trajectory_curve(steps, metric=each.metric)
            for each in self.trajectories
            for number, steps in each.records.items()
            if len(steps) > 1
        }

    @cached_property
    def courses(self) -> tuple[Course, ...]:
        """What each training changed on each task, tested once for all that shows it."""
        return courses(self.trajectories, seed=self.seed)

    def to_frame(self) -> DataFrame:
        """Return a row per task, training, seed and step: the score and its 95 % interval."""
        from pandas import DataFrame

        columns = ("task", "metric", "training", "seed", "step", "score", "low", "high", "n")
        rows = [
            (short_task(each.task), each.metric, each.training, number, step, value.value,
             value.low, value.high, value.n)
            for each in self.trajectories
            for number, steps in each.records.items()
            for step, value in ((s, steps[s].metrics[each.metric]) for s in sorted(steps))
        ]  # fmt: skip
        return DataFrame(rows, columns=columns)

    def per_query(self, *, task: str = "", training: str = "") -> DataFrame:
        """Return one training's scores on one task: a row per query, a column per step.

        Queries that a step lacks are left out. Without such scores, the frame is empty.

        Args:
            task: its name, with or without ``PyDocsSample``; by default the first.
            training: its name; by default the first with two or more steps.
        """
        from pandas import DataFrame

        for each in self.trajectories:
            named = task in ("", each.task, short_task(each.task))
            steps = next(iter(each.scores.values()), {})
            if named and training in ("", each.training) and len(steps) > 1:
                return DataFrame({step: dict(steps[step]) for step in sorted(steps)}).dropna()
        return DataFrame()


def read_trainings(
    results: Iterable[Result],
    *,
    tier: str = "",
    task: str = "",
    metric: str = "",
    outputs: Path | str = "",
    adapters_only: bool = False,
    seed: int = 0,
) -> Trainings:
    """Gather scores from records, and logs from folders of trainings.

    Args:
        results: any records; the newest of each model and task is used.
        tier: name of the tier whose tasks are included; by default the richest with results.
        task: comma-separated task names, in place of the tier's and those of adapters.
        metric: by default each task's main metric.
        outputs: a folder of checkpoints, or of ``<configuration>/seed_<n>``; by default
            `paths.runs`.
        adapters_only: leave out logs of transformers' Trainer.
        seed: of the draws.

    Raises:
        FileNotFoundError: ``outputs`` does not exist.
    """
    if outputs and not Path(outputs).expanduser().is_dir():
        raise FileNotFoundError(f"{outputs}: no such folder")
    base = Path(outputs).expanduser() if outputs else paths.runs()
    given = latest(results)
    tasks = split_names(task) or list(TIERS[tier or richest_tier(given)].task_keys)
    problems: list[str] = []
    last = {} if adapters_only else _last_checkpoints(base)
    logs = _state_logs(last, problems)
    conflicts = []
    for file in find_logs(find_outputs(base)):
        logs += _read(file, read_log, problems)
    for file in find_logs(find_outputs(base), CONFLICTS):
        conflicts += _read(file, read_conflicts, problems)
    if not task:  # adapters are evaluated on their own tasks
        adapters = {r.task.key for r in given if isinstance(r.config.get("training"), dict)}
        tasks += sorted(adapters - set(tasks))
    by_task = trajectories(given, tasks=tasks, metric=metric)
    cut: list[TrainingLog | Conflicts] = [*logs, *conflicts]
    problems += [f"{each.name}: {note}" for each in cut for note in each.notes]
    objectives = {_shown(folder): objective_of(folder) for folder in last}
    return Trainings(
        tuple(by_task), tuple(logs), tuple(conflicts), tuple(problems), seed, objectives
    )


def _read(file: Path, reader: Callable[[Path], _Log], problems: list[str]) -> list[_Log]:
    try:
        return [reader(file)]
    except (ValueError, OSError) as error:
        problems.append(str(error))
        return []


def _last_checkpoints(base: Path) -> dict[Path, Path]:
    """The last checkpoint with a log of transformers' Trainer, by the folder of its training."""
    last: dict[Path, Path] = {}
    for file in base.rglob("checkpoint-*/trainer_state.json"):
        step, other = step_of(file.parent), last.get(file.parents[1])
        if step is not None and (other is None or step > (step_of(other) or 0)):
            last[file.parents[1]] = file.parent
    return last


def _state_logs(last: Mapping[Path, Path], problems: list[str]) -> list[TrainingLog]:
    """Logs of transformers' Trainer, each read from the last checkpoint of its training."""
    return [
        log
        for folder, checkpoint in sorted(last.items())
        for log in _read(checkpoint, partial(_state_log, name=_shown(folder)), problems)
    ]


def _state_log(checkpoint: Path, *, name: str) -> TrainingLog:
    return read_trainer_state(trainer_state(checkpoint), name=name)


def _shown(folder: Path) -> str:
    return paths.shown(folder).removeprefix("runs/")


def _log_of(
    trajectory: Trajectory, steps: Mapping[int, Result], logs: Iterable[TrainingLog]
) -> TrainingLog | None:
    """Log of the training from which the records' models were extracted, if known."""
    folder = training_folder(steps[step] for step in sorted(steps, reverse=True))
    names = {trajectory.training, *([_shown(folder)] if folder else [])}
    return next((log for log in logs if log.name in names), None)


def best_table(trainings: Trainings) -> Table:
    """The best checkpoint per task and training, and whether it differs from the others."""
    rows = []
    for each in trainings.trajectories:
        for number, steps in each.scores.items():
            if len(steps) < 2:
                continue
            best = best_checkpoint(steps, seed=trainings.seed)
            rows.append(
                (
                    Cell(short_task(each.task), each.metric),
                    Cell(each.training, f"seed {number}" if len(each.records) > 1 else ""),
                    Cell(str(best.step), f"mean {best.mean:.3f}"),
                    Cell(number_text(best.difference, sign=True), interval_text(best.interval)),
                    Cell("yes" if best.separable else "no", strong=best.separable),
                    Cell(best.statement),
                )
            )
    columns = (
        "task", "training", "best step", "above the next\n95 % interval", "separable", "in words",
    )  # fmt: skip
    note = (
        "Paired permutation test, Holm over the best against each of the others. The mean of the "
        "best checkpoint is biased upwards by the selection."
        if rows
        else "No training has two or more evaluated steps with scores per query."
    )
    return Table(
        columns,
        tuple(rows),
        note,
        kind="words",
        name="best-checkpoints",
        caption="The checkpoint with the highest mean of each training, and whether it differs "
        "from the others by more than noise.",
    )


def variance_table(trainings: Trainings) -> Table:
    """Variance components of the mean per task, training and step: seeds and queries."""
    rows, alone = [], []
    for each in trainings.trajectories:
        scores = {seed: steps for seed, steps in each.scores.items() if steps}
        if len(scores) < 2:
            alone.append(each.training)
            continue
        split = seed_curve(scores)
        rows += [_split_row(each, split, index) for index in range(len(split.points))]
    columns = (
        "task", "training", "mean ± std\n95 %, seeds and queries",
        "error from\nseeds / queries / both",
    )  # fmt: skip
    names = ", ".join(dict.fromkeys(alone))
    note = (
        "Crossed random-effects model: shares of the squared error of the mean over seeds and "
        "queries; negative estimates are set to 0. "
    )
    note = note if rows else "Variance components need two or more seeds of a training. "
    return Table(
        columns,
        tuple(rows),
        note + (f"With one seed: {names}." if alone else ""),
        name="variance",
        caption="How uncertain the mean over seeds and queries is, and which of the two it comes "
        "from.",
    )


def _split_row(each: Trajectory, split: SeedCurve, index: int) -> tuple[Cell, ...]:
    point = split.points[index]
    shares = point.split.shares
    parts = " / ".join(f"{100 * share:.0f} %" for share in shares) if shares else "no spread"
    return (
        Cell(short_task(each.task), each.metric),
        Cell(each.training, f"step {point.step}, {len(point.means)} seeds"),
        Cell(
            f"{point.mean:.3f} ± {point.std:.3f}",
            interval_text(point.interval, sign=False),
            value=point.mean,
            interval=point.interval,
        ),
        Cell(parts, "; ".join(note.split(":")[0] + " set to 0" for note in point.split.notes)),
    )


def loss_correlation_table(trainings: Trainings) -> Table:
    """Correlation of evaluation loss and score over the checkpoints of each training."""
    rows = []
    for each in trainings.trajectories:
        for steps in each.records.values():
            log = _log_of(each, steps, trainings.logs)
            losses = dict(log.series.get("eval_loss", ())) if log else {}
            shared = [step for step in sorted(steps) if step in losses]
            values = [steps[step].metrics[each.metric].value for step in shared]
            points = [(losses[s], v) for s, v in zip(shared, values, strict=True) if v is not None]
            if len(points) > 1:
                rows.append(_correlation_row(each, shared, points))
    columns = ("task", "training", "Spearman\n95 % interval", "checkpoints", "steps")
    note = (
        "Of evaluation loss and score. Checkpoints of one training are not independent, so the "
        "interval (Fisher's) is too narrow; with few points it means little, with two nothing."
        if rows
        else "No training has two checkpoints with an evaluation loss and a score."
    )
    return Table(
        columns,
        tuple(rows),
        note,
        name="loss-correlation",
        caption="Rank correlation of evaluation loss and score over the checkpoints of a training; "
        "below 0, a lower loss goes with a higher score.",
    )


def _correlation_row(
    each: Trajectory, steps: Sequence[int], points: Sequence[tuple[float, float]]
) -> tuple[Cell, ...]:
    losses, scores = zip(*points, strict=True)
    value = correlation(losses, scores)
    detail = interval_text(value.interval) if value.interval else value.undefined
    return (
        Cell(short_task(each.task), each.metric),
        Cell(each.training),
        Cell(number_text(value.value, sign=True, digits=2), detail),
        Cell(str(value.n)),
        Cell(", ".join(map(str, steps))),
    )


def logged_series(logs: Iterable[TrainingLog]) -> list[str]:
    """Names of the logged series worth showing: losses, development scores, learning rate."""
    given = {name for log in logs for name in log.series}
    others = (name for name in given - {*_TITLES} if name.startswith("eval_"))
    scores = sorted(name for name in others if not name.endswith(_SPEED))
    *losses, rate = _TITLES
    return [name for name in (*losses, *scores, rate) if name in given]


def series_title(name: str) -> str:
    """Return a logged series' name in words.

    >>> series_title("eval_ndcg_at_10"), series_title("lr")
    ('development nDCG@10', 'learning rate')
    """
    words = name.removeprefix("eval_").replace("_at_", "@").replace("_", " ")
    return _TITLES.get(name) or "development " + re.sub(r"\bndcg\b", "nDCG", words)


def logs_table(trainings: Trainings) -> Table:
    """Last step and values of each log, and problems with reading the files."""
    rows = []
    for log in trainings.logs:
        steps = [step for values in log.series.values() for step, _ in values]
        last = [
            f"{series_title(name)} {log.series[name][-1][1]:.3f}"
            for name in logged_series([log])
            if name != "lr"
        ]
        rows.append(
            (
                Cell(log.name, trainings.objectives.get(log.name, "")),
                Cell(str(max(steps, default=0))),
                Cell("; ".join(last) or "no loss"),
            )
        )
    rows += [(Cell("–"), Cell("–"), Cell("cannot be read", line)) for line in trainings.problems]
    return Table(
        ("training", "last step", "last values"),
        tuple(rows),
        "" if rows else "No log of a training was found.",
        kind="words",
        name="logs",
        caption="Each training that left a log: what it did, and the last values logged.",
    )
