"""Whether the data and the weights of a run are here, and which of its tasks have records."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from qwen3nb.datasets import mirror
from qwen3nb.evaluation.mteb.evaluate import TaskItem
from qwen3nb.evaluation.mteb.select import tier_tasks
from qwen3nb.evaluation.run import Run, stored
from qwen3nb.hub import hub_problem
from qwen3nb.models.capabilities import LoadedModel
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import Source
from qwen3nb.models.model import Model as NamedModel
from qwen3nb.utils.hardware import available_memory

if TYPE_CHECKING:
    from mteb import AbsTask

# Status of a task to evaluate, or with a record.
TO_RUN = "to run"
RECORDED = "there"
GB = 1e9


class PreflightError(ValueError):
    """The machine lacks memory or disk for a run; the message has numbers and a remedy."""


def load_checked(
    model: NamedModel,
    tasks: Sequence[AbsTask],
    run: Run,
    *,
    tier: str = "",
    limit: int = 0,
    data: bool = True,
) -> LoadedModel:
    """Load a model after checking that weights and data of the tasks to run are available.

    Tasks with a record need no data; without ``data``, none does. The error names ``tier`` if the
    tasks are all of it.

    Raises:
        MirrorError: data or weights are missing; lists them with the command that fetches them.
        PreflightError: the weights are larger than the free memory.
    """
    source = find_source(model.spec, base=model.base)
    missing_needs = mirror.missing(mirror.needs(tasks, [source]))
    lacks_weights = any(need.kind == "model" for need in missing_needs)
    if lacks_weights:
        fetch_option = _fetch_option(tasks, tier)
        if fetch_option:
            fetch_option += f" --model {model.spec}"
        raise mirror.missing_error(missing_needs, command=fetch_option, problem=hub_problem())
    _check_weights(model, source)
    with mirror.hub_access(mirror.needs([], [source])):
        loaded = model.load()
    lacks_data = bool(missing_needs)  # no weights are among these
    if lacks_data and data:
        require_data(loaded, tasks, run, tier=tier, limit=limit)
    return loaded


def _check_weights(model: NamedModel, source: Source) -> None:
    """Raise PreflightError if the weights of a model are larger than the free memory."""
    if model.device.startswith("cuda"):
        return
    weights, free = weight_bytes(source), available_memory()
    if weights > free:
        raise PreflightError(
            f"{source.label}: the weights are {weights / GB:.1f} GB, and {free / GB:.1f} GB of "
            "memory are free; use a machine with more memory"
        )


def require_data(
    model: LoadedModel, tasks: Sequence[AbsTask], run: Run, *, tier: str = "", limit: int = 0
) -> None:
    """Raise MirrorError if data of tasks to run are missing; see `load_checked`."""
    statuses = task_statuses(model, tasks, run, limit=limit)
    to_run = [task for task, status in zip(tasks, statuses, strict=True) if status == TO_RUN]
    missing_needs = mirror.missing(mirror.needs(to_run))
    if missing_needs:
        raise mirror.missing_error(
            missing_needs, command=_fetch_option(tasks, tier), problem=hub_problem()
        )


def _fetch_option(tasks: Sequence[AbsTask], tier: str) -> str:
    """Return the option of `qwen3nb fetch` for a whole tier; empty for other tasks."""
    if tier and mirror.needs(tasks) == mirror.needs(tier_tasks(tier)):
        return f"--tier {tier}"
    return ""


def weight_bytes(source: Source) -> int:
    """Return the size of a model's weights on disk; 0 if it has none locally."""
    size = 0
    for part in (source, *source.parts):
        if part.folder is not None:
            size += sum(file.stat().st_size for file in part.folder.path.glob("*.safetensors"))
    return size


def task_statuses(
    model: LoadedModel, tasks: Iterable[AbsTask], run: Run, *, limit: int = 0
) -> list[str]:
    """Return `TO_RUN`, `RECORDED`, or why a task is not run, for each task."""
    statuses = []
    for task in tasks:
        item = TaskItem(task, limit)
        status = item.unsuited(model)
        if not status:
            status = RECORDED
            if run.measures_again or stored(model, item, run) is None:
                status = TO_RUN
        statuses.append(status)
    return statuses
