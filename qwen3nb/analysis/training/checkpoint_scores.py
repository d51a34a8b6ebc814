"""Group records by training, seed and step.

Checkpoints are recognised by their label: ``demo-checkpoint-400`` is step 400 of ``demo``, and
``demo-init`` its step 0; ``seed_7`` or ``seed-7`` in a label is the seed of the training. The
record of an adapter states all three (``config.training``: configuration, seed, steps). Under any
other label, an extracted model stores the folder of its checkpoint, which names the training and
the step. An average of checkpoints has no step.

A training that started from a checkpoint of another one has that checkpoint as its step 0, if its
``training.json`` says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from qwen3nb import paths
from qwen3nb.analysis.comparison.alignment import common_revision
from qwen3nb.analysis.training.learning_curve import Curve, Point, curve
from qwen3nb.analysis.training.origins import checkpoint_of, starting_record, training_folder
from qwen3nb.checkpoints.checkpoint import step_of
from qwen3nb.metrics.intervals import interval_words
from qwen3nb.records.record import Result

__all__ = ["TrainingStep", "Trajectory", "training_step", "trajectories", "trajectory_curve"]

_CHECKPOINT = re.compile(r"(?P<name>.*?)[-_.]?(?:checkpoint[-_](?P<step>\d+)|init)")
_SEED = re.compile(r"[-_.]?seed[-_]?(\d+)")


@dataclass(frozen=True)
class TrainingStep:
    """A step of a training.

    Attributes:
        training: its name, without seed.
        seed: of the training; 0 if the label names none.
        step: number of optimiser steps.
    """

    training: str
    seed: int
    step: int


@dataclass(frozen=True)
class Trajectory:
    """One training on one task.

    Attributes:
        training: its name.
        task: name of the task.
        metric: name of the metric.
        records: record by seed, then step.
    """

    training: str
    task: str
    metric: str
    records: dict[int, dict[int, Result]] = field(repr=False)

    @property
    def scores(self) -> dict[int, dict[int, Mapping[str, float]]]:
        """Score by seed, step and query id; records without per-query scores are left out."""
        return {
            seed: {
                step: result.per_query[self.metric]
                for step, result in steps.items()
                if self.metric in result.per_query
            }
            for seed, steps in self.records.items()
        }

    @property
    def steps(self) -> tuple[int, ...]:
        """All steps, in order."""
        return tuple(sorted({step for steps in self.records.values() for step in steps}))


def training_step(result: Result) -> TrainingStep | None:
    """The training step that the record's model was saved at, or None."""
    training = result.config.get("training")
    if isinstance(training, dict) and isinstance(training.get("steps"), int):
        name = str(training.get("configuration") or training.get("mode") or result.model.label)
        return TrainingStep(name, int(training.get("seed", result.seed)), training["steps"])
    match = _CHECKPOINT.fullmatch(result.model.label)
    if match is None:
        return _step_of_folder(result)
    seed = _SEED.search(match["name"])
    name = _SEED.sub("", match["name"]) or "training"
    return TrainingStep(name, int(seed[1]) if seed else 0, int(match["step"] or 0))


def _step_of_folder(result: Result) -> TrainingStep | None:
    """The step by the folder of the checkpoint that the model was extracted from."""
    folder = checkpoint_of(result)
    step = None if folder is None else step_of(folder)
    if folder is None or step is None:
        return None
    return TrainingStep(paths.shown(folder.parent).removeprefix("runs/"), 0, step)


def trajectories(
    results: Iterable[Result], *, tasks: Sequence[str], metric: str = ""
) -> list[Trajectory]:
    """Trainings ordered by task, as in ``tasks``, and name.

    Of several revisions of a task's data, the one with most records is used.

    Args:
        results: one record per model and task, as from `records.store.latest`.
        tasks: names of the tasks.
        metric: by default each task's main metric.
    """
    by_training: dict[tuple[str, str], Trajectory] = {}
    on_tasks = [r for r in results if r.task.key in tasks]
    given = [r for r in on_tasks if training_step(r)]
    revisions = {
        task: common_revision([r for r in given if r.task.key == task])
        for task in {result.task.key for result in given}
    }
    for result in given:
        step, task = training_step(result), result.task.key
        wanted = metric or result.task.main_metric
        other = str(result.task.revision) != revisions[task]
        if step is None or other or wanted not in result.metrics:
            continue
        key = (task, step.training)
        each = by_training.setdefault(key, Trajectory(step.training, task, wanted, {}))
        each.records.setdefault(step.seed, {})[step.step] = result
    order = sorted(by_training, key=lambda key: (list(tasks).index(key[0]), key[1]))
    for task, training in order:
        same = [
            r for r in on_tasks if (r.task.key, str(r.task.revision)) == (task, revisions[task])
        ]
        _add_start(by_training[task, training], same)
    return [by_training[key] for key in order]


def _add_start(trajectory: Trajectory, results: Sequence[Result]) -> None:
    """Make the checkpoint that a training started from its step 0, where it has none."""
    for steps in trajectory.records.values():
        training = None if 0 in steps else training_folder(steps.values())
        start = starting_record(training, results) if training is not None else None
        if start is not None and trajectory.metric in start.metrics:
            steps[0] = start


def trajectory_curve(steps: dict[int, Result], *, metric: str) -> Curve:
    """Learning curve of one seed.

    For a metric without per-query scores (a correlation), the intervals are those of the
    records, and changes have no interval.

    Raises:
        ValueError: no step, or no query shared by all steps.
    """
    if not steps:
        raise ValueError("expected at least one step; got none")
    if len(steps) > 1 and all(metric in result.per_query for result in steps.values()):
        scores = {step: result.per_query[metric] for step, result in steps.items()}
        return curve(scores)
    points: list[Point] = []
    for step in sorted(steps):
        value = steps[step].metrics[metric]
        ends = None if value.low is None or value.high is None else (value.low, value.high)
        if value.value is not None:
            change = value.value - points[-1].mean if points else None
            points.append(Point(step, value.value, ends, change, None))
    n = min(result.metrics[metric].n for result in steps.values())
    methods = (result.metrics[metric].interval for result in steps.values())
    return Curve(tuple(points), n, 0.95, (), interval_words(methods))
