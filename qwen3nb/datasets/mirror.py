"""Keep data sets and models in a local mirror, for machines without a network.

A mirror has a folder ``DIR/<organisation>/<name>`` per data set or model. If ``QWEN3NB_MIRROR`` (or
``--mirror``) is set, every id is looked up there before the hub. A note next to the files lists
what was fetched, to detect incomplete or changed copies.

What tasks require (`needs`) is looked up once, before the first run: in the mirror, in the caches
of the hub's libraries, and on the hub. `fetch_all` fills a mirror on a connected machine with whole
repositories of pinned revisions, every file compared with its digest. A repository is moved to its
folder when it is complete; interrupted downloads are resumed.
"""

import errno
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from json import JSONDecodeError
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from qwen3nb import paths
from qwen3nb.checkpoints.provenance import MODEL_FILES
from qwen3nb.datasets.data_cards import cards_read_once, names_outside
from qwen3nb.datasets.packed_data import refuse_too_large
from qwen3nb.datasets.rows import DataError, listed
from qwen3nb.hub import (
    HubError,
    causes,
    download_into,
    hub_reachable,
    hub_reason,
    hub_session,
    listing,
)
from qwen3nb.models.kinds.source import Source
from qwen3nb.records.record import SUBSTITUTE, is_substitute
from qwen3nb.utils.atomic_files import read_json, sha256_file, sha256_json, write_json
from qwen3nb.utils.journal import remembered_digest

_log = logging.getLogger(__name__)
NOTE = ".qwen3nb-fetched.json"
_PARTIAL = ".partial"  # folder of incomplete downloads in the mirror
Kind = Literal["dataset", "model"]
# By kind: the option of `qwen3nb fetch`, and the files to download; None for all.
_OPTIONS: dict[Kind, str] = {"dataset": "--tasks", "model": "--model"}
_FILES: dict[Kind, list[str] | None] = {"dataset": None, "model": MODEL_FILES}
_BUILT_IN_PREFIX = "qwen3nb/"  # how the ids of data begin that are not fetched
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_COMMIT = re.compile("[0-9a-f]{40}")


class MirrorError(ValueError):
    """Data or a model is not available; the message says how to fetch it."""


@dataclass(frozen=True)
class Need:
    """A ``dataset`` or ``model`` by id and pinned commit, and the tasks or models that need it."""

    kind: Kind
    id: str
    revision: str | None
    used_by: tuple[str, ...]


class FetchedNote(BaseModel):
    """The note next to the files of a copy that `fetch` made."""

    id: str = ""
    kind: str = ""
    revision: str | None = None
    files: dict[str, str]  # SHA-256 by name


def mirrored(id_: str) -> Path | None:
    """Return the folder of an id in the mirror, or None."""
    mirror = paths.mirror()
    if mirror is None or not _HUB_ID.fullmatch(id_):
        return None
    folder = mirror / id_
    if not folder.is_dir():
        return None
    return folder


def is_filled(id_: str) -> bool:
    """Return whether the mirror has files of ``id_`` and no interrupted download."""
    folder = mirrored(id_)
    if folder is None or any(folder.rglob("*.incomplete")):
        return False
    return bool(_copied_files(folder))


def _fetched_note(folder: Path) -> FetchedNote | None:
    """Return the note on a folder; None without a valid one."""
    try:
        return FetchedNote.model_validate(read_json(folder / NOTE))
    except (FileNotFoundError, ValueError):
        return None


def _note_of_unchanged(folder: Path) -> FetchedNote | None:
    """Return the note on a folder; None unless the folder has exactly the files of the note."""
    note = _fetched_note(folder)
    if note is None or _content_digest(folder) != sha256_json(sorted(note.files.items())):
        return None
    return note


def changed_files(folder: Path) -> list[str]:
    """Return the files of a copy that are missing, added or changed since they were fetched.

    Empty for a folder that `fetch` did not make.
    """
    note = _fetched_note(folder)
    if note is None:
        return []
    files = _copied_files(folder)
    changed_names: list[str] = []
    for name in sorted(files.keys() | note.files.keys()):
        is_in_both = name in files and name in note.files
        if not is_in_both or sha256_file(files[name]) != note.files[name]:
            changed_names.append(name)
    return changed_names


def _copied_files(folder: Path) -> dict[str, Path]:
    """Return all files of a copy by name, following links, except the note and files of the hub.

    A link to a folder that it is in is not followed: its files have names already.
    """
    # Our note, and what the hub's client keeps in .cache, are not of the data set.
    not_copied = {folder / NOTE, folder / ".cache"}
    files: list[Path] = []
    for parent, folders, names in os.walk(folder, followlinks=True):
        files += [Path(parent, name) for name in names]
        real_parent = Path(parent).resolve()
        parents = {real_parent, *real_parent.parents}
        folders[:] = [name for name in folders if Path(parent, name).resolve() not in parents]
    copied_files: dict[str, Path] = {}
    for file in sorted(files):
        is_copied = not_copied.isdisjoint([file, *file.parents])
        if is_copied and file.is_file():
            name = str(file.relative_to(folder))
            copied_files[name] = file
    return copied_files


def _content_digest(folder: Path) -> str:
    """Return the digest of all files of a copy."""
    files = _copied_files(folder)

    def digest() -> str:
        return sha256_json(sorted((name, sha256_file(file)) for name, file in files.items()))

    return remembered_digest(list(files.values()), digest)


def _revision_by_content(folder: Path) -> str:
    """Return the revision of a copy that is identified by its content."""
    return f"{SUBSTITUTE}{_content_digest(folder)[:32]}"


def data_revision(task: Any) -> str:
    """Return the revision of a task's data; see `current_revision`."""
    data = task.metadata.dataset
    return current_revision(data["path"], pinned=str(data.get("revision")))


def substitute_of(task: Any) -> str:
    """Return the revision of a mirror's substitute for a task's data; empty for MTEB's own data."""
    revision = data_revision(task)
    if is_substitute(revision):
        return revision
    return ""


def current_revision(id_: str, *, pinned: str) -> str:
    """Return the identity of a data set: a revision, or the digest of a local copy.

    An unchanged folder of the mirror filled by `fetch` is identified by its revision, any other
    folder by its content; without a folder, return ``pinned``.
    """
    folder = mirrored(id_)
    if folder is None:
        return pinned
    note = _note_of_unchanged(folder)
    if note is not None:
        return note.revision or pinned
    return _revision_by_content(folder)


def is_prepared(task: Any) -> bool:
    """Return whether the library `datasets` has a copy of a task's data in its own format."""
    import datasets

    path: str = task.metadata.dataset["path"]
    if path.startswith(_BUILT_IN_PREFIX):
        return True
    folder = mirrored(path)
    if folder is None:
        name_in_cache = path.replace("/", "___")  # acme/data is in acme___data
    else:
        name_in_cache = _revision_by_content(folder)  # see local_data
    return Path(datasets.config.HF_DATASETS_CACHE, name_in_cache).is_dir()


@contextmanager
def local_data(task: Any) -> Iterator[None]:
    """Make an MTEB task load from the mirror, if its data are there.

    MTEB tasks share the metadata of their class, and unloading a task restores it. Path and
    revision are therefore replaced in the class, and restored afterwards; MTEB's result then has
    the same revision as the record.

    The datasets library gets a separate cache per content, because it caches a folder by base name,
    card and file times, and would serve outdated rows after a change.
    """
    data_of_class = type(task).metadata.dataset
    data_of_task = task.metadata.dataset
    folder = mirrored(data_of_class["path"])
    if folder is None:
        yield
        return
    import datasets

    local_copy = {"path": str(folder), "revision": data_revision(task)}
    cache = Path(datasets.config.HF_DATASETS_CACHE, _revision_by_content(folder))
    # The task mostly shares the metadata of its class, but may have a copy.
    with ExitStack() as changes:
        changes.enter_context(_changed_items(data_of_class, local_copy))
        if data_of_task is not data_of_class:
            changes.enter_context(_changed_items(data_of_task, local_copy))
        changes.enter_context(_changed_setting(datasets.config, "HF_DATASETS_CACHE", cache))
        yield


@contextmanager
def _changed_items(target: dict[str, object], items: Mapping[str, str]) -> Iterator[None]:
    """Change items of a dictionary within the block."""
    originals = {name: target[name] for name in items if name in target}
    target.update(items)
    try:
        yield
    finally:
        target.update(originals)


@contextmanager
def _changed_setting(settings: object, name: str, value: object) -> Iterator[None]:
    """Change a setting of a library within the block."""
    original = getattr(settings, name)
    setattr(settings, name, value)
    try:
        yield
    finally:
        setattr(settings, name, original)


def load_data(task: Any) -> None:
    """Load an MTEB task's data; call it within `local_data`.

    Raises:
        MirrorError: the data are not available or cannot be loaded; says how to fetch them.
    """
    path = task.metadata.dataset["path"]
    if path.startswith(_BUILT_IN_PREFIX):
        task.load_data()
        return
    is_local = Path(path).is_dir()  # local_data has put a folder in place of the id
    if is_local:
        _refuse_outside(Path(path), task.metadata.name)
        _refuse_too_large(Path(path), task.metadata.name)
        _warn_if_changed(Path(path), task.metadata.name)
    try:
        with hub_session(), cards_read_once():
            task.load_data()
        if not is_local:
            _check_revision(task.dataset, str(task.metadata.dataset.get("revision")))
    except Exception as error:  # a loader may raise anything
        raise explain(task, error) from error


def _refuse_outside(folder: Path, task_name: str) -> None:
    """Raise MirrorError for a copy whose card names files elsewhere, which would be read for it."""
    try:
        outside = names_outside(folder)
    except ValueError as error:
        raise MirrorError(f"{task_name}: {error}") from None
    if outside:
        raise MirrorError(
            f"{task_name}: the card of the copy in {folder} names files outside of it: "
            f"{listed(outside)}. Put them into the folder, and name them by their path there"
        )


def _refuse_too_large(folder: Path, task_name: str) -> None:
    """Raise MirrorError for a copy that would fill the disk, unless it is unpacked already."""
    import datasets

    # local_data has given the copy a cache that is called by its content.
    is_unpacked = Path(datasets.config.HF_DATASETS_CACHE).is_dir()
    if is_unpacked:
        return
    try:
        for file in _copied_files(folder).values():
            refuse_too_large(file)
    except DataError as error:
        raise MirrorError(f"{task_name}: {error}") from None


def _warn_if_changed(folder: Path, task_name: str) -> None:
    """Warn of a copy that has changed since it was fetched."""
    if _note_of_unchanged(folder) is not None:  # exactly as noted
        return
    changed_names = changed_files(folder)
    if changed_names:
        _log.warning(
            "%s: not as it was fetched (%s), so scores are not those of %s. Remove it, and "
            "fetch it again",
            folder,
            listed(changed_names),
            task_name,
        )


def _check_revision(data: Any, revision: str) -> None:
    """Raise if data have another revision: the library falls back on its cache."""
    # Data are nested by subset and split.
    if isinstance(data, dict):
        for split in data.values():
            _check_revision(split, revision)
        return
    is_commit = _COMMIT.fullmatch(revision)
    if not is_commit:
        return
    for file in getattr(data, "cache_files", None) or []:
        # The library caches a data set in a folder that is called by its commit.
        commits = [part for part in Path(file["filename"]).parts if _COMMIT.fullmatch(part)]
        if any(commit != revision for commit in commits):
            raise HubError(f"only another revision than {revision[:12]} is in the library's cache")


def explain(task: Any, error: Exception) -> MirrorError:
    """Return the error for data that could not be loaded, and how to fetch them."""
    name = task.metadata.name
    data = task.metadata.dataset["path"]
    reason = hub_reason(error)
    is_disk_full = "disk space" in reason or os.strerror(errno.ENOSPC) in reason
    if is_disk_full:
        from datasets.config import HF_DATASETS_CACHE

        return MirrorError(
            f"{name}: No space left to prepare the data in {HF_DATASETS_CACHE}; free some there, "
            "or set HF_HOME"
        )
    mirror = paths.mirror()
    if Path(data).is_dir():
        reason = _reason_of_copy(error) or reason
        problem = f"the copy of the data in {data} cannot be loaded ({reason}); remove it"
    elif mirror:
        problem = (
            f"the data {data} are not available: not in the mirror {mirror}, and the hub failed "
            f"({reason})"
        )
    else:
        problem = (
            f"the data {data} are not available: no mirror is set (QWEN3NB_MIRROR), and the hub "
            f"failed ({reason})"
        )
    return MirrorError(
        f"{name}: {problem}. Fetch them on a connected machine: "
        f"`qwen3nb fetch --tasks {name} --mirror DIR`"
    )


def _reason_of_copy(error: BaseException) -> str:
    """Return what is wrong with the text of a copy; empty for another error.

    A copy is read without a hub, of which the same errors would mean that it is none.
    """
    for cause in causes(error):
        if isinstance(cause, RecursionError):
            return "a file of it, such as dataset_infos.json, is nested too deeply"
        if isinstance(cause, JSONDecodeError):
            return f"a file of it, such as dataset_infos.json, is not JSON: {cause}"
        if isinstance(cause, UnicodeDecodeError):
            return f"a file of it, such as dataset_infos.json, is not UTF-8: {cause.reason}"
    return ""


def needs(tasks: Iterable[Any], models: Iterable[Source] = ()) -> list[Need]:
    """List the data sets and models that tasks (MTEB objects) and models need, each once."""
    single_needs: list[Need] = []
    for task in tasks:
        # A task that aggregates others has them in its metadata.
        for part in getattr(task.metadata, "tasks", None) or [task]:
            data = part.metadata.dataset
            id_ = data["path"]
            is_built_in = id_.startswith(_BUILT_IN_PREFIX)
            if _HUB_ID.fullmatch(id_) and not is_built_in:
                names = (part.metadata.name,)
                single_needs.append(Need("dataset", id_, data.get("revision"), used_by=names))
    for source in models:
        # A fusion of several models has parts.
        for part in source.parts or (source,):
            if part.on_hub and part.id is not None:
                single_needs.append(Need("model", part.id, part.revision, used_by=(source.spec,)))
    return _joined(single_needs)


def _joined(single_needs: Iterable[Need]) -> list[Need]:
    """Return each need once, with all that need it."""
    need_by_key: dict[tuple[str, str, str | None], Need] = {}
    for need in single_needs:
        key = (need.kind, need.id, need.revision)
        if key in need_by_key:
            need = replace(need, used_by=need_by_key[key].used_by + need.used_by)
        need_by_key[key] = need
    return list(need_by_key.values())


@contextmanager
def hub_access(
    requirements: Iterable[Need],
    reachable: Callable[[], bool] | None = None,
) -> Iterator[None]:
    """Guard the requests of the hub's libraries; without a hub, restrict them to their caches.

    Otherwise they would request cached files several times. If all
    ``requirements`` are in the mirror, no request is made.
    """
    import datasets
    from huggingface_hub import constants

    # With all data in the mirror, nothing is requested.
    if all(is_filled(need.id) for need in requirements):
        yield
        return
    is_reachable = reachable or hub_reachable
    with ExitStack() as changes:
        if is_reachable():
            changes.enter_context(hub_session())
        else:
            for settings in (constants, datasets.config):
                changes.enter_context(_changed_setting(settings, "HF_HUB_OFFLINE", True))
        # Downloads are counted at another server, which may be unreachable.
        changes.enter_context(_changed_setting(datasets.config, "HF_UPDATE_DOWNLOAD_COUNTS", False))
        yield


def missing(
    requirements: Iterable[Need],
    *,
    reachable: Callable[[], bool] | None = None,
) -> list[Need]:
    """Return the needs that are neither in the mirror, nor in the hub's cache, nor on the hub.

    ``reachable`` is like `hub_reachable`; called only if something is not stored locally.
    """
    not_stored: list[Need] = []
    for need in requirements:
        if not is_filled(need.id) and not _in_hub_cache(need):
            not_stored.append(need)
    # The hub is asked last, and only if something is not stored.
    is_reachable = reachable or hub_reachable
    if not_stored and not is_reachable():
        return not_stored
    return []


def load_here(task: Any) -> None:
    """Load an MTEB task's data if they are in the mirror or in the hub's cache, or built in.

    Raises:
        MirrorError: they are in neither.
    """
    requirements = needs([task])
    unavailable = missing(requirements, reachable=lambda: False)
    if unavailable:
        raise missing_error(unavailable)
    with hub_access(requirements, lambda: False), local_data(task):
        load_data(task)


def missing_error(
    unavailable: list[Need],
    *,
    command: str = "",
    problem: str = "the hub does not answer",
) -> MirrorError:
    """Return one error that lists what is missing, with the command that fetches it.

    ``command`` are options of ``qwen3nb fetch``, by default every task and model; ``problem`` is
    why the hub cannot be used.
    """
    mirror = paths.mirror()
    place = "in a mirror (QWEN3NB_MIRROR is not set)"
    target = "DIR"
    if mirror:
        place = f"in the mirror {mirror}"
        target = str(mirror)
    lines = [
        f"{len(unavailable)} of the data sets and models needed are neither {place} nor in "
        f"the hub's cache, and {problem}:"
    ]
    for need in unavailable:
        users = ", ".join(need.used_by[:3])  # three are enough as examples
        lines.append(f"  {need.kind:8} {need.id:45} for {users}")
    options = command.strip() or _fetch_options(unavailable)
    lines.append(f"Fetch them on a connected machine: `qwen3nb fetch {options} --mirror {target}`")
    return MirrorError("\n".join(lines))


def _fetch_options(unavailable: list[Need]) -> str:
    """Return the options of ``qwen3nb fetch`` for what is missing."""
    options: list[str] = []
    for kind, option in _OPTIONS.items():
        users: set[str] = set()
        for need in unavailable:
            if need.kind == kind:
                users.update(need.used_by)
        if users:
            options.append(f"{option} {','.join(sorted(users))}")
    return " ".join(options)


def _in_hub_cache(need: Need) -> bool:
    """Return whether the libraries' caches contain the revision: files of models, prepared data.

    Downloaded data that were not prepared cannot be loaded without the hub.
    """
    import datasets
    from huggingface_hub import constants

    revision = need.revision or "*"  # any, if none is pinned
    if need.kind == "dataset":
        cache = Path(datasets.config.HF_DATASETS_CACHE)
        # Such as acme___data/default/0.0.0/COMMIT.
        pattern = f"{need.id.replace('/', '___')}/*/*/{revision}"
    else:
        cache = Path(constants.HF_HUB_CACHE)
        # Such as models--acme--e5/snapshots/COMMIT.
        pattern = f"models--{need.id.replace('/', '--')}/snapshots/{revision}"
    return any(folder.is_dir() for folder in cache.expanduser().glob(pattern))


def fetch_all(
    requirements: Iterable[Need],
    mirror: Path,
    *,
    by_size: bool = False,
    say: Callable[[str], object] = print,
    arrived: Callable[[], object] = lambda: None,
) -> dict[str, str]:
    """Download each need into the mirror; stop if the hub cannot be used.

    Args:
        requirements: what to download.
        mirror: the folder.
        by_size: see `fetch`.
        say: called with a line per need.
        arrived: called for each need once it is in the mirror.

    Returns:
        The reason per id that is not in the mirror; empty for those not tried.
    """
    failures: dict[str, str] = {}
    is_hub_unusable = False
    with hub_session():
        for need in requirements:
            if is_hub_unusable and not _is_fetched(need, mirror):
                failures[need.id] = ""  # not tried
                continue
            try:
                fetch(need, mirror, by_size=by_size, say=say)
                arrived()
            except MirrorError as error:
                failures[need.id] = str(error)
                cause = error.__cause__
                if isinstance(cause, HubError) and cause.lasting:
                    is_hub_unusable = True
    return failures


def _is_fetched(need: Need, mirror: Path) -> bool:
    """Return whether a need is in the mirror, complete and unchanged."""
    note = _note_of_unchanged(mirror / need.id)
    return note is not None and note.revision == need.revision


def fetch(
    need: Need, mirror: Path, *, by_size: bool = False, say: Callable[[str], object] = print
) -> Path:
    """Download one need into the mirror unless it is there; resume interrupted downloads.

    With ``by_size``, small files are compared with the hub's listing by their size alone. That is
    for a server in the hub's place whose listing has no digests of git.

    Raises:
        MirrorError: the download fails, or would replace files that are not from the hub.
    """
    folder = mirror / need.id
    if _is_fetched(need, mirror):
        say(f"  present  {need.id}")
        return folder
    revision = need.revision or "main"
    say(f"  fetching {need.id} @ {revision[:12]}")
    partial_folder = mirror / _PARTIAL / f"{need.kind}s--{need.id.replace('/', '--')}"
    names = _download(need, partial_folder, mirror, by_size=by_size)
    _check_only_hub_files(folder, names)
    for name in _copied_files(partial_folder).keys() - names:  # of other revisions
        (partial_folder / name).unlink()
    _write_note(need, partial_folder, names)
    shutil.rmtree(partial_folder / ".cache", ignore_errors=True)  # metadata of the hub's library
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)  # contains only files of the hub
    partial_folder.rename(folder)
    with suppress(OSError):  # not empty: other downloads are incomplete
        partial_folder.parent.rmdir()
    return folder


def _write_note(need: Need, folder: Path, names: Iterable[str]) -> None:
    """Write the note next to the files of a download."""
    digests = {name: sha256_file(folder / name) for name in sorted(names)}
    note = FetchedNote(id=need.id, kind=need.kind, revision=need.revision, files=digests)
    write_json(folder / NOTE, note.model_dump())


def _download(need: Need, folder: Path, mirror: Path, *, by_size: bool) -> set[str]:
    """Download the files of a need into a folder, and return their names."""
    try:
        names = download_into(
            folder,
            need.id,
            kind=need.kind,
            revision=need.revision,
            files=_FILES[need.kind],
            by_size=by_size,
        )
    except HubError as error:
        raise MirrorError(
            f"{need.id}: download from the hub into {mirror} failed ({error})"
        ) from error
    if not names:
        raise MirrorError(f"{need.id}: the hub lists no file that is used of a {need.kind}")
    return names


def _check_only_hub_files(folder: Path, names: set[str]) -> None:
    """Refuse a folder that `fetch` did not write, with files that the hub does not have."""
    if _fetched_note(folder) is not None:  # fetched before, so it may be replaced
        return
    foreign_files = _copied_files(folder).keys() - names
    if foreign_files:
        raise MirrorError(
            f"{folder}: has files that are not on the hub, such as {min(foreign_files)}; move the "
            "folder away to fetch it anew"
        )


def sizes(
    requirements: Iterable[Need],
    *,
    say: Callable[[str], object] = print,
) -> list[tuple[Need, str]]:
    """Return each need with its size on the hub, as text; ``unknown`` if the hub fails.

    ``say`` is called once with the first reason.
    """
    size_of_need: list[tuple[Need, str]] = []
    has_failed = False
    with hub_session():
        for need in requirements:
            size = "unknown"
            try:
                _, files = listing(need.id, kind=need.kind, revision=need.revision)
                megabytes = sum(file.size for file in files.values()) / 1e6
                size = f"{megabytes:,.1f} MB"
            except Exception as error:  # noqa: BLE001 - the libraries' errors pass through
                if not has_failed:  # one reason is enough
                    say(f"{need.id}: {hub_reason(error)}")
                has_failed = True
            size_of_need.append((need, size))
    return size_of_need


def mirrored_words() -> list[Path]:
    """Return the folders of WordSim-353 and SimLex-999 in the mirror."""
    folders: list[Path] = []
    for name in ("wordsim353", "wordsim353-sim", "wordsim353-rel", "simlex999"):
        folder = mirrored(f"local/{name}")
        if folder is not None:
            folders.append(folder)
    return folders
