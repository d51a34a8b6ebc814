"""Keep data sets and models in a local mirror, for machines without a network.

A mirror has a folder ``DIR/<organisation>/<name>`` per id, for data sets and models alike.
`datasets.fetch` fills it on a connected machine from pinned revisions. If ``QWEN3NB_MIRROR``
(or ``--mirror``) is set, every id is looked up there before the hub. A note next to the files
records what was fetched, so that an incomplete or changed copy is recognised.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.hub.download import check_cached
from qwen3nb.hub.errors import HubError, hub_reason
from qwen3nb.hub.session import hub_session
from qwen3nb.utils.atomic_files import read_json, sha256_file, sha256_json
from qwen3nb.utils.files.digest_memory import remembered_digest

__all__ = [
    "HUB_ID",
    "NOTE",
    "MirrorError",
    "copied_files",
    "current_revision",
    "data_revision",
    "explain",
    "fetched_note",
    "is_filled",
    "is_unchanged",
    "load_data",
    "local_data",
    "mirrored",
]

NOTE = ".qwen3nb-fetched.json"
HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_COMMIT = re.compile("[0-9a-f]{40}")


class MirrorError(ValueError):
    """Data or a model that is not available; the message says how to fetch it."""


def mirrored(id_: str, *, mirror: Path | None = None) -> Path | None:
    """Return the folder of an id in the mirror, or None."""
    mirror = mirror or paths.mirror()
    if mirror is None or not HUB_ID.fullmatch(id_):
        return None
    folder = mirror / id_
    return folder if folder.is_dir() else None


def is_filled(id_: str) -> bool:
    """Return whether the mirror has files of ``id_`` and no download that was cut off."""
    folder = mirrored(id_)
    if folder is None:
        return False
    files = [file for file in folder.rglob("*") if file.is_file()]
    cut = any(file.suffix == ".incomplete" for file in files)
    return not cut and any(".cache" not in file.relative_to(folder).parts for file in files)


def fetched_note(folder: Path) -> dict[str, Any] | None:
    """Return what `datasets.fetch` noted of a folder; None without a readable note."""
    file = folder / NOTE
    try:
        note = read_json(file) if file.is_file() else None
    except ValueError:
        return None
    return note if isinstance(note, dict) and {"revision", "files"} <= set(note) else None


def is_unchanged(folder: Path, note: dict[str, Any]) -> bool:
    """Return whether a folder has the files that were fetched, unchanged, and no other."""
    files = copied_files(folder)
    if {str(file.relative_to(folder)) for file in files} != set(note["files"]):
        return False
    return _digest(folder, files) == sha256_json(sorted(note["files"].items()))


def copied_files(folder: Path) -> list[Path]:
    """Return all files of a copy, also below linked folders, but the note and the hub's own."""
    tops = os.walk(folder, followlinks=True)
    files = [Path(top, name) for top, _, names in tops for name in names]
    own = (folder / NOTE, folder / ".cache")
    return sorted(f for f in files if f.is_file() and not {f, *f.parents} & {*own})


def _digest(folder: Path, files: list[Path]) -> str:
    def compute() -> str:
        return sha256_json(sorted((str(f.relative_to(folder)), sha256_file(f)) for f in files))

    return remembered_digest(files, compute)


def data_revision(task: Any) -> str:
    """Return what identifies a task's data; see `current_revision`."""
    data = task.metadata.dataset
    return current_revision(data["path"], pinned=str(data.get("revision")))


def current_revision(id_: str, *, pinned: str) -> str:
    """Return what identifies a data set: a revision, or the digest of a local copy.

    A folder of the mirror that `fetch` filled and that is unchanged since, with no file added, is
    identified by its revision; any other folder by its content; without a folder it is ``pinned``.
    """
    folder = mirrored(id_)
    if folder is None:
        return pinned
    note = fetched_note(folder)
    if note is not None and is_unchanged(folder, note):
        return str(note["revision"] or pinned)
    return f"local-{_content(folder)[:32]}"


def _content(folder: Path) -> str:
    """Return the digest of all files of a copy."""
    return _digest(folder, copied_files(folder))


@contextmanager
def local_data(task: Any) -> Iterator[None]:
    """Make an MTEB task load from the mirror, if its data are there.

    MTEB tasks share the metadata of their class, and unloading a task restores it.
    Therefore path and revision are replaced in the class, and restored afterwards; MTEB's
    result then carries the revision that the record does.
    """
    data = type(task).metadata.dataset
    folder = mirrored(data["path"])
    if folder is None:
        yield
        return
    local = {"path": str(folder), "revision": data_revision(task)}
    entries = [data] if task.metadata.dataset is data else [data, task.metadata.dataset]
    earlier = [{key: entry[key] for key in local if key in entry} for entry in entries]
    for entry in entries:
        entry.update(local)
    try:
        with _cache_by_content(folder):
            yield
    finally:
        for entry, own in zip(entries, earlier, strict=True):
            entry.update(own)


@contextmanager
def _cache_by_content(folder: Path) -> Iterator[None]:
    """Give the datasets library a cache of its own for this content of ``folder``.

    It caches a folder by its base name, its card and the times of its files: changed rows
    would be served as they were, and two folders of one name would share a cache.
    """
    import datasets

    shared = datasets.config.HF_DATASETS_CACHE
    datasets.config.HF_DATASETS_CACHE = Path(shared) / f"local-{_content(folder)[:32]}"
    try:
        yield
    finally:
        datasets.config.HF_DATASETS_CACHE = shared


def load_data(task: Any) -> None:
    """Load an MTEB task's data, to be called in `local_data`.

    Files in the hub's cache are compared with their digests before and after they are read.

    Raises:
        MirrorError: the data are not available, or cannot be loaded; says how to fetch them.
    """
    path = task.metadata.dataset["path"]
    if path.startswith("qwen3nb/"):  # built in, not fetched
        task.load_data()
        return
    try:
        if Path(path).is_dir():
            task.load_data()
            return
        revision = str(task.metadata.dataset.get("revision"))
        with hub_session():
            _check_downloads(path, revision)
            task.load_data()
            if damaged := _check_downloads(path, revision):
                _remove_prepared(path)
                raise HubError(f"{damaged} was not what the hub lists; it was removed; try again")
        _check_revision(task.dataset, revision)
    except Exception as error:  # a loader may raise anything
        raise explain(task, error) from error


def _check_downloads(path: str, revision: str) -> str:
    """Remove downloaded files that are not whole; return the name of the first."""
    from huggingface_hub import constants

    snapshots = Path(constants.HF_HUB_CACHE) / f"datasets--{path.replace('/', '--')}/snapshots"
    folders = snapshots.glob(revision if _COMMIT.fullmatch(revision) else "*")
    return next((file.name for folder in folders for file in check_cached(folder)), "")


def _remove_prepared(path: str) -> None:
    import datasets

    for folder in Path(datasets.config.HF_DATASETS_CACHE).glob(path.replace("/", "___")):
        shutil.rmtree(folder)


def _check_revision(data: Any, revision: str) -> None:
    """Raise if data are of another revision: the library falls back on what its cache has."""
    if isinstance(data, dict):
        for part in data.values():
            _check_revision(part, revision)
        return
    for file in getattr(data, "cache_files", None) or ():
        commits = filter(_COMMIT.fullmatch, Path(file["filename"]).parts)
        if _COMMIT.fullmatch(revision) and any(commit != revision for commit in commits):
            raise HubError(f"only another revision than {revision[:12]} is in the library's cache")


def explain(task: Any, error: Exception) -> MirrorError:
    """Return the error for data that could not be loaded, and how to fetch them."""
    mirror = paths.mirror()
    where = f"not in the mirror {mirror}" if mirror else "no mirror is set (QWEN3NB_MIRROR)"
    reason = hub_reason(error)
    name, data = task.metadata.name, task.metadata.dataset["path"]
    if Path(data).is_dir():
        return MirrorError(
            f"{name}: the copy of the data in {data} cannot be loaded ({reason}); remove it "
            f"and fetch it again on a connected machine: `qwen3nb fetch --tasks {name}`"
        )
    return MirrorError(
        f"{name}: the data {data} are not available: {where}, and the hub failed ({reason}). "
        f"Fetch them on a connected machine: `qwen3nb fetch --tasks {name} --mirror DIR`"
    )
