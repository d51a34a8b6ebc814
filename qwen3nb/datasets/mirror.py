"""Data and models that lie on this machine, for nodes without a network.

A mirror is a folder ``DIR/<organisation>/<name>`` per id, data sets and models alike.
`fetch` fills one on a connected machine, from pinned revisions; with ``QWEN3NB_MIRROR``
(or ``--mirror``) set, every id is looked for there first, by the same code that else asks
the hub. What was fetched is noted beside the files, so that a copy that was cut short or
changed is told from the revision it claims to be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.utils.atomic_files import (
    read_json,
    remembered_digest,
    sha256_file,
    sha256_json,
    write_json,
)

__all__ = [
    "MirrorError",
    "Need",
    "data_revision",
    "fetch",
    "local_data",
    "mirrored",
    "needs",
    "sizes",
]

NOTE = ".qwen3nb-fetched.json"
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# Of a model, what `fetch_model` takes; weights in other formats stay away.
_MODEL_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]


class MirrorError(ValueError):
    """Something that is neither in the mirror nor to be had; says what fetches it."""


@dataclass(frozen=True)
class Need:
    """A data set or a model that a choice of tasks and models uses.

    Attributes:
        kind: ``dataset`` or ``model``.
        id: on the hub.
        revision: the pinned commit; None where nothing pins it.
        used_by: names of tasks, or of registry entries.
    """

    kind: str
    id: str
    revision: str | None
    used_by: tuple[str, ...]


def mirrored(id_: str, *, mirror: Path | None = None) -> Path | None:
    """The folder of an id in the mirror, or None."""
    mirror = mirror or paths.mirror()
    if mirror is None or not _ID.fullmatch(id_):
        return None
    folder = mirror / id_
    return folder if folder.is_dir() else None


def needs(tasks: Iterable[Any], models: Iterable[str] = ()) -> list[Need]:
    """What tasks (MTEB objects) and models (registry names or hub ids) use, each once."""
    from qwen3nb.models.sources.resolve import find_source

    used: dict[tuple[str, str, str | None], list[str]] = {}
    for task in tasks:
        for part in getattr(task.metadata, "tasks", None) or [task]:
            data = part.metadata.dataset
            if _ID.fullmatch(data["path"]) and not data["path"].startswith("qwen3nb/"):
                key = ("dataset", data["path"], data.get("revision"))
                used.setdefault(key, []).append(part.metadata.name)
    for spec in models:
        source = find_source(spec)
        if source.kind == "hub" and source.id is not None:
            used.setdefault(("model", source.id, source.revision), []).append(spec)
    return [Need(*key, tuple(names)) for key, names in used.items()]


def fetch(
    need: Need, mirror: Path, *, say: Callable[[str], object] = print, endpoint: str | None = None
) -> Path:
    """Download one need into the mirror; what is there already is not loaded again.

    A download that was stopped goes on where it was.

    Raises:
        MirrorError: the hub does not give it.
    """
    from huggingface_hub import snapshot_download

    folder = mirror / need.id
    noted = _noted(folder)
    if noted is not None and noted["revision"] == need.revision and _whole(folder, noted):
        say(f"  there    {need.id}")
        return folder
    say(f"  fetching {need.id} @ {(need.revision or 'main')[:12]}")
    try:
        snapshot_download(
            need.id,
            repo_type=need.kind,
            revision=need.revision,
            local_dir=folder,
            allow_patterns=_MODEL_FILES if need.kind == "model" else None,
            endpoint=endpoint,
        )
    except Exception as error:  # noqa: BLE001 - the hub's client lets its transport's through
        reason = str(error).strip().splitlines()[0]
        raise MirrorError(f"{need.id}: the hub does not give it ({reason})") from None
    files = {
        str(file.relative_to(folder)): sha256_file(file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and ".cache" not in file.relative_to(folder).parts
    }
    note = {"id": need.id, "kind": need.kind, "revision": need.revision, "files": files}
    write_json(folder / NOTE, note)
    return folder


def sizes(found: Iterable[Need]) -> Iterator[tuple[Need, str]]:
    """Each need with its size on the hub, in words; ``unknown`` where the hub is silent."""
    from huggingface_hub import HfApi

    api = HfApi()
    for need in found:
        try:
            files = api.list_repo_tree(
                need.id, repo_type=need.kind, revision=need.revision, recursive=True
            )
            total = sum(getattr(file, "size", 0) or 0 for file in files)
        except Exception:  # noqa: BLE001 - the hub's client lets its transport's errors through
            yield need, "unknown"
            continue
        yield need, f"{total / 1e6:,.1f} MB"


def _noted(folder: Path) -> dict[str, Any] | None:
    file = folder / NOTE
    try:
        note = read_json(file) if file.is_file() else None
    except ValueError:
        return None
    return note if isinstance(note, dict) and {"revision", "files"} <= set(note) else None


def _whole(folder: Path, note: dict[str, Any]) -> bool:
    """Whether every file is there as it was fetched."""
    files = [folder / name for name in note["files"]]
    if not all(file.is_file() for file in files):
        return False
    return _digest(folder, files) == sha256_json(sorted(note["files"].items()))


def _digest(folder: Path, files: list[Path]) -> str:
    def compute() -> str:
        return sha256_json(sorted((str(f.relative_to(folder)), sha256_file(f)) for f in files))

    return remembered_digest(files, compute, memory=paths.cache() / "digests.json")


def data_revision(task: Any) -> str:
    """What identifies a task's data: the pinned revision, or the digest of a local copy.

    A folder of the mirror that `fetch` filled, and that is unchanged since, is the
    revision it was fetched at; any other is its content.
    """
    data = task.metadata.dataset
    folder = mirrored(data["path"])
    pinned = str(data.get("revision"))
    if folder is None:
        return pinned
    note = _noted(folder)
    if note is not None and _whole(folder, note):
        return str(note["revision"] or pinned)
    files = [
        file
        for file in sorted(folder.rglob("*"))
        if file.is_file() and ".cache" not in file.relative_to(folder).parts
    ]
    return f"local-{_digest(folder, files)[:32]}"


@contextmanager
def local_data(task: Any) -> Iterator[None]:
    """Let an MTEB task load from the mirror, if its data are there.

    MTEB's tasks are classes whose description is shared, and unloading a task restores
    the class's: so that is where the path is exchanged, and put back afterwards.
    """
    data = type(task).metadata.dataset
    id_ = data["path"]
    folder = mirrored(id_)
    if folder is None:
        yield
        return
    own = task.metadata.dataset
    data["path"], own_path = str(folder), own["path"]
    own["path"] = str(folder)
    try:
        yield
    finally:
        data["path"] = id_
        own["path"] = own_path if own is not data else id_


def explain(task: Any, error: Exception) -> MirrorError:
    """The error for data that could not be loaded: which, why, and what fetches them."""
    mirror = paths.mirror()
    where = f"not in the mirror {mirror}" if mirror else "no mirror is set (QWEN3NB_MIRROR)"
    reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
    name, data = task.metadata.name, task.metadata.dataset["path"]
    if Path(data).is_dir():
        return MirrorError(
            f"{name}: the copy of its data in {data} cannot be loaded ({reason[:200]}); remove it, "
            f"and fetch it again on a connected machine: `qwen3nb fetch --tasks {name}`"
        )
    return MirrorError(
        f"{name}: its data {data} cannot be had: {where}, and the hub "
        f"does not answer ({reason[:200]}). On a connected machine, "
        f"`qwen3nb fetch --tasks {name} --mirror DIR` fetches them"
    )
