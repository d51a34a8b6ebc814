"""Plan a run: what its tasks take, compared with the machine, before it starts.

`load_checked` in `availability` loads a model, or fails within seconds if data or weights are
missing. `preflight` then times the model and compares the needs of the run with the machine. The
size of tasks is in `sizes`, the speed of a model in `speed`, and memory and disk in `resources`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from qwen3nb.datasets import mirror
from qwen3nb.evaluation.mteb.availability import TO_RUN, PreflightError, task_statuses
from qwen3nb.evaluation.mteb.costs import Planned, costs
from qwen3nb.evaluation.mteb.resources import (
    ResourceCheck,
    disk_check,
    memory_check,
    task_memory,
    too_large,
)
from qwen3nb.evaluation.mteb.speed import EncodingSpeed, measure_speeds
from qwen3nb.evaluation.run import Run
from qwen3nb.models.capabilities import LoadedModel, encodes, searches
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.search.searcher import Searcher
from qwen3nb.utils.hardware import available_memory, cores, peak_memory, resident_memory

if TYPE_CHECKING:
    from mteb import AbsTask


@dataclass(frozen=True)
class Preflight:
    """What a run needs, measured before it starts."""

    planned: tuple[Planned, ...]  # the tasks
    checks: tuple[ResourceCheck, ...]  # needs compared with the machine
    gpu: bool = False  # whether the model runs on a GPU
    left_out: Mapping[str, str] = field(default_factory=dict)  # why, by task: too little memory

    @property
    def hours(self) -> tuple[float, float]:
        """Hours of a GPU, and of cores of the processor; the model uses all that there are."""
        hours_beside = sum(task.beside for task in self.planned if task.minutes is not None) / 60
        hours_of_model = (self.minutes or 0) / 60 - hours_beside
        if self.gpu:
            return hours_of_model, hours_of_model + hours_beside
        return 0.0, cores() * hours_of_model + hours_beside

    @property
    def unreadable(self) -> dict[str, str]:
        """Why tasks to run cannot be run, by task: their data cannot be loaded."""
        return {task.task: task.problem for task in self.planned if task.problem}

    @property
    def minutes(self) -> float | None:
        """Minutes of the tasks to run; None if there are none, or no size is known."""
        minutes = [task.minutes for task in self.planned if task.minutes is not None]
        if not minutes:
            return None
        return sum(minutes)

    def require_readable(self) -> None:
        """Raise MirrorError if data of tasks to run cannot be loaded; names them."""
        if self.unreadable:
            names = ", ".join(self.unreadable)
            raise mirror.MirrorError(
                f"{len(self.unreadable)} of {len(self.planned)} tasks cannot be run: {names}. "
                "Their copies of the data cannot be loaded; the reasons stand above"
            )

    def require(self) -> None:
        """Raise PreflightError if memory or disk is too small for the run."""
        problems = [check.problem for check in self.checks if check.problem]
        if problems:
            raise PreflightError("\n".join(problems))


def preflight(
    model: LoadedModel,
    tasks: Sequence[AbsTask],
    run: Run,
    *,
    limit: int = 0,
    tokens_per_second: float = 0,
) -> Preflight:
    """Estimate what `evaluate` needs to run MTEB task objects with a loaded model.

    With ``tokens_per_second`` of a GPU, encoders are planned for that GPU instead of being timed.

    Raises:
        EncoderError: a batch does not fit into memory, or a vector is not finite.
    """
    encoders: list[Encoder] = [part for part in model.parts if encodes(part)]
    searchers: list[Searcher] = [part for part in model.parts if searches(part)]
    loaded = resident_memory()
    statuses = task_statuses(model, tasks, run, limit=limit)
    speeds: list[EncodingSpeed] = []
    batch = 0  # bytes of memory
    if TO_RUN in statuses:
        speeds = measure_speeds(
            model, batch_size=run.batch_size, tokens_per_second=tokens_per_second
        )
        if encoders or not all(part.source.kind.weightless for part in searchers):
            # What encoding has added to the loaded model at its peak.
            batch = max(0, peak_memory() - loaded)
    estimates = costs(tasks, statuses, limit=limit, speeds=speeds)
    # What measuring has allocated since can be used again.
    free = available_memory() + max(0, resident_memory() - loaded)
    width = max((encoder.dimension for encoder in encoders), default=0)
    needs = {task.task: task_memory(task, width, batch, searchers) for task in estimates}
    left_out = too_large(estimates, needs, free)
    estimates = [_with_reason(task, left_out) for task in estimates]
    to_run = [task for task in estimates if task.status == TO_RUN]
    largest = _Need("a batch", batch)
    if to_run:
        largest = _largest_need(to_run, needs)
    checks = (
        memory_check(largest.size, largest.name, loaded=loaded, free=free),
        disk_check(to_run, encoders, searchers, fresh=run.measures_again),
    )
    has_gpu = any(part.device.startswith("cuda") for part in model.parts)
    is_for_gpu = has_gpu or tokens_per_second > 0
    return Preflight(tuple(estimates), checks, gpu=is_for_gpu, left_out=left_out)


class _Need(NamedTuple):
    """What needs memory, and its bytes."""

    name: str
    size: int


def _with_reason(task: Planned, reasons: Mapping[str, str]) -> Planned:
    """Return a task with the reason why it is left out, if there is one."""
    if task.task not in reasons:
        return task
    return replace(task, status=reasons[task.task], minutes=None)


def _largest_need(tasks: Sequence[Planned], needs: Mapping[str, int]) -> _Need:
    """Return the task that needs most memory; of equal needs, the last name."""
    names = [task.task for task in tasks]
    name = max(names, key=lambda name: (needs[name], name))
    return _Need(name, needs[name])
