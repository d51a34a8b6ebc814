"""Keep datasets and models in a local mirror, for machines without a network.

A mirror has a folder ``DIR/<organisation>/<name>`` per id, for datasets and models alike.
`fetch` fills it on a connected machine from pinned revisions. If ``QWEN3NB_MIRROR`` (or
``--mirror``) is set, every id is looked up there before the hub. A note next to the files
records what was fetched, so that an incomplete or changed copy is recognised.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.utils.atomic_files import (
    read_json,
    sha256_file,
    sha256_json,
    write_json,
)
from qwen3nb.utils.files.digest_memory import remembered_digest

__all__ = [
    "MirrorError",
    "Need",
    "data_revision",
    "fetch",
    "hub_reachable",
    "local_data",
    "mirrored",
    "missing",
    "missing_error",
    "needs",
    "offline",
    "sizes",
]

PROBE_SECONDS = 10.0
NOTE = ".qwen3nb-fetched.json"
_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
# The files fetched for a model; weights in other formats are skipped.
_MODEL_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]


class MirrorError(ValueError):
    """Data or a model that is not available; the message says how to fetch it."""


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


def mirrored(id_: str, *, mirror: Path | None = None) -> Path | None:
    """Return the folder of an id in the mirror, or None."""
    mirror = mirror or paths.mirror()
    if mirror is None or not _ID.fullmatch(id_):
        return None
    folder = mirror / id_
    return folder if folder.is_dir() else None


def needs(tasks: Iterable[Any], models: Iterable[str] = ()) -> list[Need]:
    """List what tasks (MTEB objects) and models (registry names or hub ids) need, each once."""
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
        for part in source.parts or (source,):
            if part.kind == "hub" and part.id is not None:
                used.setdefault(("model", part.id, part.revision), []).append(spec)
    return [Need(*key, tuple(names)) for key, names in used.items()]


def hub_reachable(*, timeout: float = PROBE_SECONDS) -> bool:
    """Return whether the hub answers one request; at most ``timeout`` seconds are spent.

    Any answer but a server error counts. Ask once and pass the result on; with
    ``HF_HUB_OFFLINE`` set, the hub is not asked at all.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    answers: list[bool] = []
    # Neither the resolution of a name nor a proxy keeps to a client's timeout.
    probe = threading.Thread(
        target=lambda: answers.append(_answers(constants.ENDPOINT, timeout)), daemon=True
    )
    probe.start()
    probe.join(timeout)
    return bool(answers and answers[0])


def _answers(endpoint: str, timeout: float) -> bool:
    from huggingface_hub import get_session

    try:
        answer = get_session().get(f"{endpoint}/api/models?limit=1", timeout=timeout)
    except Exception:  # noqa: BLE001 - transport errors pass through the hub's client
        return False
    return bool(answer.status_code < 500)


@contextmanager
def offline(needed: Iterable[Need], reachable: Callable[[], bool]) -> Iterator[None]:
    """Without a hub, keep its libraries to what is in their own caches.

    They would ask several times for every file, though it is there.

    Args:
        needed: what is loaded within the block; for what is in the mirror, no hub is asked.
        reachable: `hub_reachable`, remembered so that the hub is asked once per run.
    """
    import datasets
    from huggingface_hub import constants

    if all(_in_mirror(each.id) for each in needed) or reachable():
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
    absent = [each for each in needed if not _in_mirror(each.id) and not _in_hub_cache(each)]
    if not absent:
        return []
    return [] if (reachable or hub_reachable)() else absent


def missing_error(absent: list[Need], *, command: str = "") -> MirrorError:
    """Return one error that lists what is missing, and the one command that fetches it.

    Args:
        absent: from `missing`.
        command: options of ``qwen3nb fetch`` to name, such as ``--tier full``; by default
            every task and model.
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
    models = f" --models {used['model']}" if used["model"] else ""
    return MirrorError(
        f"{len(absent)} of the data sets and models needed are neither {where} nor in the hub's "
        "cache, and the hub does not answer:\n" + "\n".join(lines) + "\n"
        "Fetch them on a connected machine: "
        f"`qwen3nb fetch{f' {command}' * bool(command) or tasks + models} "
        f"--mirror {mirror or 'DIR'}`"
    )


def _in_mirror(id_: str) -> bool:
    """Return whether the mirror has files of ``id_`` and no download that was cut off."""
    folder = mirrored(id_)
    if folder is None:
        return False
    files = [file for file in folder.rglob("*") if file.is_file()]
    cut = any(file.suffix == ".incomplete" for file in files)
    return not cut and any(".cache" not in file.relative_to(folder).parts for file in files)


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


def fetch(
    need: Need, mirror: Path, *, say: Callable[[str], object] = print, endpoint: str | None = None
) -> Path:
    """Download one need into the mirror, unless it is there already.

    An interrupted download is resumed.

    Raises:
        MirrorError: the download fails.
    """
    from huggingface_hub import snapshot_download

    folder = mirror / need.id
    noted = _noted(folder)
    if noted is not None and noted["revision"] == need.revision and _whole(folder, noted):
        say(f"  present  {need.id}")
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
    except Exception as error:  # noqa: BLE001 - transport errors pass through the hub's client
        reason = str(error).strip().splitlines()[0]
        raise MirrorError(f"{need.id}: download from the hub failed ({reason})") from None
    files = {
        str(file.relative_to(folder)): sha256_file(file)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and ".cache" not in file.relative_to(folder).parts
    }
    note = {"id": need.id, "kind": need.kind, "revision": need.revision, "files": files}
    write_json(folder / NOTE, note)
    return folder


def sizes(needed: Iterable[Need]) -> Iterator[tuple[Need, str]]:
    """Yield each need with its size on the hub, as text; ``unknown`` if the hub fails.

    If the hub does not answer one request, it is not asked again.
    """
    from huggingface_hub import HfApi

    api, reachable = HfApi(), hub_reachable()
    for need in needed:
        if not reachable:
            yield need, "unknown"
            continue
        try:
            files = api.list_repo_tree(
                need.id, repo_type=need.kind, revision=need.revision, recursive=True
            )
            total = sum(getattr(file, "size", 0) or 0 for file in files)
        except Exception:  # noqa: BLE001 - transport errors pass through the hub's client
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
    """Return whether every file is unchanged since it was fetched."""
    files = [folder / name for name in note["files"]]
    if not all(file.is_file() for file in files):
        return False
    return _digest(folder, files) == sha256_json(sorted(note["files"].items()))


def _digest(folder: Path, files: list[Path]) -> str:
    def compute() -> str:
        return sha256_json(sorted((str(f.relative_to(folder)), sha256_file(f)) for f in files))

    return remembered_digest(files, compute)


def data_revision(task: Any) -> str:
    """Return what identifies a task's data: a revision, or the digest of a local copy.

    A folder of the mirror that `fetch` filled and that is unchanged since is identified by
    its revision; any other folder by its content.
    """
    data = task.metadata.dataset
    folder = mirrored(data["path"])
    pinned = str(data.get("revision"))
    if folder is None:
        return pinned
    note = _noted(folder)
    if note is not None and _whole(folder, note):
        return str(note["revision"] or pinned)
    return f"local-{_content(folder)[:32]}"


def _content(folder: Path) -> str:
    """Return the digest of all files of a folder, but the note and the hub's own."""
    files = [
        file
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != NOTE and ".cache" not in file.relative_to(folder).parts
    ]
    return _digest(folder, files)


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


def explain(task: Any, error: Exception) -> MirrorError:
    """Return the error for data that could not be loaded, and how to fetch them."""
    mirror = paths.mirror()
    where = f"not in the mirror {mirror}" if mirror else "no mirror is set (QWEN3NB_MIRROR)"
    reason = _first_cause(error)
    name, data = task.metadata.name, task.metadata.dataset["path"]
    if Path(data).is_dir():
        return MirrorError(
            f"{name}: the copy of the data in {data} cannot be loaded ({reason[:200]}); remove it "
            f"and fetch it again on a connected machine: `qwen3nb fetch --tasks {name}`"
        )
    return MirrorError(
        f"{name}: the data {data} are not available: {where}, and the hub failed "
        f"({reason[:200]}). Fetch them on a connected machine: "
        f"`qwen3nb fetch --tasks {name} --mirror DIR`"
    )


def _first_cause(error: BaseException) -> str:
    """Return the first line of the error that a loader's own, general one was raised from."""
    while error.__cause__ is not None:
        error = error.__cause__
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
