"""What tasks and models need from the hub, and what of it is at hand.

It is looked for once, before the first run: in the mirror, in the caches of the hub's
libraries, and on the hub itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.datasets.mirror import HUB_ID, MirrorError, is_filled
from qwen3nb.hub.session import hub_reachable, hub_session

__all__ = ["Need", "hub_access", "missing", "missing_error", "needs"]


@dataclass(frozen=True)
class Need:
    """A dataset or model that a selection of tasks and models needs.

    Attributes:
        kind: ``dataset`` or ``model``.
        id: its id on the hub.
        revision: the pinned commit; None if it is not pinned.
        used_by: names of the tasks or registry entries that need it.
    """

    kind: str
    id: str
    revision: str | None
    used_by: tuple[str, ...]


def needs(tasks: Iterable[Any], models: Iterable[str] = ()) -> list[Need]:
    """List what tasks (MTEB objects) and models (registry names or hub ids) need, each once."""
    from qwen3nb.models.sources.resolve import find_source

    used: dict[tuple[str, str, str | None], list[str]] = {}
    for task in tasks:
        for part in getattr(task.metadata, "tasks", None) or [task]:
            data = part.metadata.dataset
            if HUB_ID.fullmatch(data["path"]) and not data["path"].startswith("qwen3nb/"):
                key = ("dataset", data["path"], data.get("revision"))
                used.setdefault(key, []).append(part.metadata.name)
    for spec in models:
        source = find_source(spec)
        for part in source.parts or (source,):
            if part.kind == "hub" and part.id is not None:
                used.setdefault(("model", part.id, part.revision), []).append(spec)
    return [Need(*key, tuple(names)) for key, names in used.items()]


@contextmanager
def hub_access(needed: Iterable[Need], reachable: Callable[[], bool]) -> Iterator[None]:
    """Guard the requests of the hub's libraries; without a hub, keep them to their own caches.

    They would ask several times for every file, though it is there.

    Args:
        needed: what is loaded within the block; for what is in the mirror, no hub is asked.
        reachable: `hub_reachable`, remembered so that the hub is asked once per run.
    """
    import datasets
    from huggingface_hub import constants

    if all(is_filled(each.id) for each in needed):
        yield
        return
    if reachable():
        with hub_session():
            yield
        return
    settings: Any = (constants, datasets.config)
    earlier = [each.HF_HUB_OFFLINE for each in settings]
    for each in settings:
        each.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        for each, own in zip(settings, earlier, strict=True):
            each.HF_HUB_OFFLINE = own


def missing(needed: Iterable[Need], *, reachable: Callable[[], bool] | None = None) -> list[Need]:
    """Return the needs that are neither in the mirror, nor in the hub's cache, nor on the hub.

    Args:
        needed: from `needs`.
        reachable: `hub_reachable`, perhaps remembered; called only if something is not here
            already.
    """
    absent = [each for each in needed if not is_filled(each.id) and not _in_hub_cache(each)]
    if not absent:
        return []
    return [] if (reachable or hub_reachable)() else absent


def missing_error(
    absent: list[Need], *, command: str = "", problem: str = "the hub does not answer"
) -> MirrorError:
    """Return one error that lists what is missing, and the one command that fetches it.

    Args:
        absent: from `missing`.
        command: options of ``qwen3nb fetch`` to name, such as ``--tier full``; by default
            every task and model.
        problem: why the hub cannot be used, from `hub_problem`.
    """
    mirror = paths.mirror()
    where = f"in the mirror {mirror}" if mirror else "in a mirror (QWEN3NB_MIRROR is not set)"
    lines = [
        f"  {each.kind:8} {each.id:45} for {', '.join(each.used_by[:3])}"
        + (f" and {len(each.used_by) - 3} more" if len(each.used_by) > 3 else "")
        for each in absent
    ]
    used = {
        kind: ",".join(sorted({name for e in absent if e.kind == kind for name in e.used_by}))
        for kind in ("dataset", "model")
    }
    tasks = f" --tasks {used['dataset']}" if used["dataset"] else ""
    models = f" --model {used['model']}" if used["model"] else ""
    return MirrorError(
        f"{len(absent)} of the data sets and models needed are neither {where} nor in the hub's "
        f"cache, and {problem}:\n" + "\n".join(lines) + "\n"
        "Fetch them on a connected machine: "
        f"`qwen3nb fetch{f' {command}' * bool(command) or tasks + models} "
        f"--mirror {mirror or 'DIR'}`"
    )


def _in_hub_cache(need: Need) -> bool:
    """Return whether the libraries' own caches hold the revision: models as files, data prepared.

    Data that were downloaded but not prepared cannot be loaded without the hub.
    """
    import datasets
    from huggingface_hub import constants

    if need.kind == "dataset":
        root = Path(datasets.config.HF_DATASETS_CACHE).expanduser()
        prepared = root.glob(f"{need.id.replace('/', '___')}/*/*/{need.revision or '*'}")
        return any(folder.is_dir() for folder in prepared)
    snapshots = Path(constants.HF_HUB_CACHE) / f"models--{need.id.replace('/', '--')}/snapshots"
    return any(folder.is_dir() for folder in snapshots.glob(need.revision or "*"))
