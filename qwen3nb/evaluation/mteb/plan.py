"""Plan an evaluation: what will run, and how long it will take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.datasets.mirror import data_revision
from qwen3nb.evaluation.mteb.cost import Cost, EncodingSpeed, Range, costs
from qwen3nb.evaluation.mteb.evaluate import (
    Model,
    is_complete,
    stored_record,
    unsuited,
)
from qwen3nb.evaluation.mteb.known_tasks import KnownTask
from qwen3nb.evaluation.mteb.select import suite_tasks, task_key
from qwen3nb.evaluation.mteb.subsample import limited

__all__ = ["TO_RUN", "Planned", "plan", "task_statuses", "waiting"]

TO_RUN = "to run"  # the status of a task that is neither done nor unsuited


@dataclass(frozen=True)
class Planned:
    """One task of a planned evaluation.

    Attributes:
        task: name of the task in records.
        type: MTEB task type.
        dataset: id of the data set on the Hugging Face Hub.
        revision: revision of the data.
        texts: distinct texts to encode; None if unknown.
        minutes: time to encode them at the measured speed; None if unknown.
        status: ``to run``, ``there`` (its record exists), or why the model does not support it.
        documents: texts of the corpus searched; 0 for other tasks.
        queries: queries to it.
    """

    task: str
    type: str
    dataset: str
    revision: str
    texts: int | None
    minutes: Range | None
    status: str
    documents: int = 0
    queries: int = 0


def plan(
    model: Model,
    *,
    tier: str = "smoke",
    tasks: Iterable[Any] | str | None = None,
    limit: int = 0,
    output: Path | str | None = None,
    seed: int = 0,
    runs: bool = False,
    speed: EncodingSpeed | None = None,
    statuses: Sequence[str] | None = None,
) -> list[Planned]:
    """List what `evaluate` would do with the same arguments.

    Task sizes are MTEB's published statistics of the selected splits and subsets; texts of
    built-in tasks are counted. Under a limit, the size of the others is unknown.

    Args:
        model: a loaded model.
        tier: as in `evaluate`, like the next five arguments.
        tasks: tasks to run instead of the tier's.
        limit: maximum number of queries, rows and unjudged documents.
        output: folder of the records.
        seed: seed of the records.
        runs: whether searches keep their runs.
        speed: from `measure_encoding`; None leaves the minutes unknown.
        statuses: from `task_statuses` of the same tasks, if they are known already.
    """
    selected = suite_tasks(tier=tier, tasks=tasks)
    if statuses is None:
        statuses = task_statuses(model, selected, limit=limit, output=output, seed=seed, runs=runs)
    planned = []
    for task, status in zip(selected, statuses, strict=True):
        cost = _cost(task, speed, limit=limit, model=model)
        planned.append(
            Planned(
                task=task_key(task, limit=limit),
                type=cost.type,
                dataset=task.metadata.dataset["path"],
                revision=cost.revision,
                texts=cost.texts,
                minutes=cost.minutes if status == TO_RUN else None,
                status=status,
                documents=cost.documents,
                queries=cost.queries,
            )
        )
    return planned


def waiting(
    model: Model,
    tasks: Sequence[Any],
    *,
    limit: int = 0,
    output: Path | str | None = None,
    seed: int = 0,
    runs: bool = False,
) -> list[Any]:
    """Return the tasks that `evaluate` would run: the model supports them, no record is there."""
    statuses = task_statuses(model, tasks, limit=limit, output=output, seed=seed, runs=runs)
    return [task for task, status in zip(tasks, statuses, strict=True) if status == TO_RUN]


def task_statuses(
    model: Model,
    tasks: Sequence[Any],
    *,
    limit: int = 0,
    output: Path | str | None = None,
    seed: int = 0,
    runs: bool = False,
) -> list[str]:
    """Return the status of each task, as in `Planned`; reads the records that are there."""
    folder = Path(output) if output else paths.results()
    return [
        _status(model, task, folder=folder, seed=seed, limit=limit, runs=runs) for task in tasks
    ]


def _status(model: Model, task: Any, *, folder: Path, seed: int, limit: int, runs: bool) -> str:
    known = KnownTask.of(task, limit=limit)
    if reason := unsuited(model, known):
        return reason
    there = stored_record(model, known, folder=folder, seed=seed)
    complete = there is not None and is_complete(there, folder=folder, runs=runs)
    return "there" if complete else TO_RUN


def _cost(task: Any, speed: EncodingSpeed | None, *, limit: int, model: Model) -> Cost:
    """Estimate from MTEB's published sizes; count the texts of built-in or loaded data."""
    cut = getattr(model, "max_length", None)
    if not task.metadata.dataset["path"].startswith("qwen3nb/") and not task.data_loaded:
        (cost,) = costs([task], speed=speed, max_length=cut)
        return cost if not limit else Cost(cost.task, cost.type, cost.revision, None, None)
    if not task.data_loaded:
        task.load_data()
    with limited(task, limit):
        texts = set(_strings(task.dataset))
    minutes = None
    if speed is not None:
        minutes = Range.total(speed.seconds(len(text)) for text in texts).times(1 / 60)
    revision = data_revision(task)[:12]
    return Cost(task.metadata.name, task.metadata.type, revision, len(texts), minutes)


def _strings(data: Any) -> Iterator[str]:
    """Yield every text in loaded data, but no ids or labels."""
    import datasets

    if isinstance(data, datasets.Dataset):
        for name in data.column_names:
            if name not in ("id", "label", "labels", "lang"):
                yield from _flat(data[name])
    elif isinstance(data, Mapping):
        for name, part in data.items():
            if name not in ("relevant_docs", "top_ranked"):
                yield from _strings(part)


def _flat(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, list):
            yield from _flat(value)
