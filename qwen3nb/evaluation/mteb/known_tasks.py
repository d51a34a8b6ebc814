"""The tasks of an evaluation, without loading MTEB if they were listed before.

MTEB and its libraries take seconds to load. What decides whether a record belongs to a task is
little, and depends on the names or the tier that were given, on MTEB's release and on this
package's own tasks; it is kept in the cache under a digest of all these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.datasets.mirror import current_revision
from qwen3nb.datasets.pydocs.build import cache_file
from qwen3nb.evaluation.known_models import remember
from qwen3nb.evaluation.mteb.select import split_names, suite_tasks, task_key
from qwen3nb.tiers import TIERS
from qwen3nb.utils.atomic_files import read_json, sha256_file, sha256_json
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.code_version import code_digest, installed_version

__all__ = ["KnownTask", "known_tasks"]


_KEPT = ("key", "type", "dataset", "pinned", "splits", "subsets")


@dataclass(frozen=True)
class KnownTask:
    """A task whose object may not be there.

    Attributes:
        key: its name with its selection; see `qwen3nb.records.TaskInfo.key`.
        type: MTEB's type, such as ``Retrieval``.
        dataset: id of its data set.
        pinned: revision that MTEB names.
        splits: splits to evaluate.
        subsets: subsets to evaluate.
        load: returns MTEB's task object; its data are not loaded.
    """

    key: str
    type: str
    dataset: str
    pinned: str
    splits: Sequence[str]
    subsets: Sequence[str]
    load: Callable[[], Any]

    @classmethod
    def of(cls, task: Any, *, limit: int = 0) -> KnownTask:
        """Return what is known of a task object."""
        data = task.metadata.dataset
        return cls(
            key=task_key(task, limit=limit),
            type=str(task.metadata.type),
            dataset=str(data["path"]),
            pinned=str(data.get("revision")),
            splits=tuple(task.eval_splits),
            subsets=tuple(task.hf_subsets),
            load=lambda: task,
        )

    @property
    def revision(self) -> str:
        """What identifies its data now; see `current_revision`."""
        return current_revision(self.dataset, pinned=self.pinned)


def known_tasks(*, tier: str, tasks: Iterable[Any] | str | None, limit: int = 0) -> list[KnownTask]:
    """Return the tasks of `suite_tasks`; without MTEB if they were listed before, by names.

    Args:
        tier: name of a tier.
        tasks: MTEB task objects or names to run instead of a tier, or one comma-separated string
            of names.
        limit: as in `evaluate_tasks`.

    Raises:
        ValueError: as `suite_tasks`.
    """
    if isinstance(tasks, str):
        tasks = split_names(tasks) or None
    given = None if tasks is None else list(tasks)
    make = cache(partial(_made, tier=tier, tasks=given, limit=limit))
    if not all(isinstance(each, str) for each in given or ()):
        return list(make().values())
    named = [given, TIERS[one_of("tier", tier, TIERS)].task_keys if given is None else (), limit]
    if known := _read(_file(named)):
        return [KnownTask(**each, load=partial(_object, make, each["key"])) for each in known]
    made = list(make().values())
    kept = [{name: getattr(task, name) for name in _KEPT} for task in made]
    remember(_file(named), kept)  # PyDocs is built by now
    return made


def _made(*, tier: str, tasks: list[Any] | None, limit: int) -> dict[str, KnownTask]:
    known = (KnownTask.of(task, limit=limit) for task in suite_tasks(tier=tier, tasks=tasks))
    return {task.key: task for task in known}


def _object(make: Callable[[], dict[str, KnownTask]], key: str) -> Any:
    return make()[key].load()


def _file(named: list[Any]) -> Path:
    """Return the file that keeps the tasks of a tier or of names."""
    pydocs = cache_file()
    parts = {
        "named": named,
        "mteb": installed_version("mteb"),
        "code": code_digest(),
        "pydocs": sha256_file(pydocs) if pydocs.is_file() else "",
    }
    return paths.cache() / "tasks" / f"{sha256_json(parts)[:32]}.json"


def _read(file: Path) -> list[dict[str, Any]] | None:
    """Return what a file keeps of tasks; None if it is missing or damaged."""
    try:
        kept: list[dict[str, Any]] = read_json(file)
        return kept if all(set(each) == set(_KEPT) for each in kept) else None
    except (OSError, ValueError, TypeError):
        return None  # listed again
