"""What each training changed on each task: its last step against its first, and its best step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from qwen3nb.analysis.stats.multiple_testing import holm
from qwen3nb.analysis.training.checkpoint_scores import Trajectory
from qwen3nb.analysis.training.learning_curve import BestCheckpoint, Gain, best_checkpoint, gain

__all__ = ["Course", "courses"]


@dataclass(frozen=True)
class Course:
    """One training on one task.

    Attributes:
        task: the task.
        metric: its metric.
        name: the training, with the number of its seed if it has several.
        gain: the first against the last step, p corrected by Holm over all courses.
        best: the best step.
    """

    task: str
    metric: str
    name: str
    gain: Gain
    best: BestCheckpoint


def courses(trajectories: Sequence[Trajectory], *, seed: int) -> tuple[Course, ...]:
    """Return the courses of trainings with two or more steps with scores per query."""
    seeds = Counter(each.training for each in trajectories for _ in each.records)
    tasks = Counter(each.training for each in trajectories)
    uncorrected = [
        Course(
            each.task,
            each.metric,
            f"{each.training}, seed {number}"
            if seeds[each.training] > tasks[each.training]
            else each.training,
            gain(steps, seed=seed),
            best_checkpoint(steps, seed=seed),
        )
        for each in trajectories
        for number, steps in each.scores.items()
        if len(steps) > 1
    ]
    corrected = holm([each.gain.p_value for each in uncorrected])
    return tuple(
        replace(each, gain=replace(each.gain, p_value=p))
        for each, p in zip(uncorrected, corrected, strict=True)
    )
