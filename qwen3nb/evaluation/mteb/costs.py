"""What the tasks of an evaluation take: texts, minutes, and space."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qwen3nb.datasets import mirror
from qwen3nb.evaluation.mteb.availability import RECORDED, TO_RUN
from qwen3nb.evaluation.mteb.select import task_key, whole_or_nano_name
from qwen3nb.evaluation.mteb.sizes import HITS, TaskPart, task_parts
from qwen3nb.evaluation.mteb.speed import EncodingSpeed
from qwen3nb.evaluation.run import EvaluationError

if TYPE_CHECKING:
    from mteb import AbsTask

_TASK_SECONDS = 1.0  # of any task: loading and saving
# Bytes of disk: data sets prepared by the library `datasets`, per character and candidate.
_BYTES_PER_CHARACTER, _BYTES_PER_CANDIDATE = 1.5, 100


@dataclass(frozen=True)
class Planned:
    """One task of a planned evaluation, with its estimated cost."""

    task: str  # name in records; also type, id of the data set and revision
    type: str
    dataset: str
    revision: str
    texts: int | None  # distinct texts to encode; None if neither published nor counted
    minutes: float | None  # time of the task; None if speed or size is unknown
    # ``to run``, ``there`` (its record exists), or why it is not run; empty without a model
    status: str = ""
    documents: int = 0  # texts of the largest corpus searched; 0 for other tasks
    queries: int = 0  # queries to it
    characters: int = 0  # of its texts
    candidates: int = 0  # of all queries; 0 if they search the whole corpus
    prepared: int = 0  # bytes of disk that the library `datasets` takes for its copy
    beside: float = 0.0  # minutes of ``minutes`` on one core, beside the model
    problem: str = ""  # why its data cannot be loaded, or empty
    part_hits: tuple[int, ...] = ()  # documents in the run of each split and subset, if several

    @property
    def hits(self) -> int:
        """Documents in the run of all queries."""
        if self.part_hits:
            return sum(self.part_hits)
        return self.candidates or self.queries * min(self.documents, HITS)


def costs(
    tasks: Sequence[AbsTask],
    statuses: Sequence[str] | None = None,
    *,
    limit: int = 0,
    speeds: Sequence[EncodingSpeed] = (),
) -> list[Planned]:
    """Estimate the cost of tasks: distinct texts, and the minutes to evaluate a model on them.

    With statuses from `task_statuses`, only tasks to run take time; without, groups of tasks are
    split into their parts. Published sizes do not apply with a limit. The minutes are those of
    encoders and search models with these ``speeds``, if any.
    """
    if statuses is not None:
        pairs = zip(tasks, statuses, strict=True)
        return [_cost(task, status, limit, speeds) for task, status in pairs]
    estimates = []
    for task in tasks:
        # A group of tasks has tasks of its own.
        parts = getattr(task.metadata, "tasks", None) or [task]
        estimates += [_cost(part, "", limit, speeds) for part in parts]
    return estimates


def _cost(task: AbsTask, status: str, limit: int, speeds: Sequence[EncodingSpeed]) -> Planned:
    parts: list[TaskPart] = []
    problem = ""
    try:
        parts = task_parts(task, limit, read=bool(status), recorded=status == RECORDED)
    except (mirror.MirrorError, EvaluationError) as error:
        if status == TO_RUN:
            problem = str(error)
    minutes, minutes_beside = None, 0.0
    if parts and speeds and status in ("", TO_RUN):
        seconds_beside = _TASK_SECONDS + sum(part.seconds_beside for part in parts)
        slowdown = max(speed.slowdown for speed in speeds)
        minutes_beside = slowdown * seconds_beside / 60
        minutes = minutes_beside + sum(_encoding_seconds(part, speeds) for part in parts) / 60
    columns = [column for part in parts for column in part.encoded]
    candidates = sum(part.candidates for part in parts)
    name = whole_or_nano_name(task)
    if status:
        name = task_key(task, limit=limit)
    prepared = 0.0
    if not mirror.is_prepared(task):
        prepared = _BYTES_PER_CANDIDATE * candidates + _BYTES_PER_CHARACTER * sum(
            part.characters for part in parts
        )
    return Planned(
        task=name,
        type=task.metadata.type,
        dataset=task.metadata.dataset["path"],
        revision=mirror.data_revision(task)[:12],
        texts=round(sum(column.texts for column in columns)) or None,
        minutes=minutes,
        status=status,
        documents=sum(part.documents for part in parts),
        queries=sum(part.queries for part in parts),
        characters=round(sum(column.characters for column in columns)),
        candidates=candidates,
        prepared=round(prepared),
        beside=minutes_beside,
        problem=problem,
        part_hits=tuple(part.hits for part in parts) if len(parts) > 1 else (),
    )


def _encoding_seconds(part: TaskPart, speeds: Sequence[EncodingSpeed]) -> float:
    return sum(speed.on(part) for speed in speeds)
