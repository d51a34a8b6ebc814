"""Run a command on a node of a cluster, in scratch space of the node; bring back its files.

A node runs nothing unless its versions, code and models are those of the driver, and reports them
with its files. It only writes to its scratch space. The files are returned as one archive, in
parts, so that each side needs memory for one part only; Ray spills parts to disk if needed. The
caller publishes them; see `qwen3nb.execution.executors`.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from qwen3nb.cluster.nodes import TEMPORARY, node_environment
from qwen3nb.cluster.processes import run_guarded
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import fingerprint
from qwen3nb.utils.atomic_files import read_json, write_json

Fingerprint: TypeAlias = Mapping[str, object]  # facts of a model's content
Part: TypeAlias = object  # Ray's reference to some bytes of an archive

FACTS = "facts.json"  # of a node, written by the process of a run
_PART = 8 << 20  # bytes
# Records and notes that a run may reuse or show, without locks; always replaced atomically.
_REUSABLE = ("*/seed_*/[!.]*", "first_stages/*.trec", "failed/*.json")


def other_model(results: Path, specs: Iterable[str]) -> str:
    """Return which delivered record is not of the models here; empty if none, or one is unknown.

    The content of an adapter depends on the base model that a run names.
    """
    fingerprints: list[Fingerprint] = []
    try:
        for spec in specs:
            source = find_source(spec)
            fingerprints += [fingerprint(part) for part in source.parts or (source,)]
    except (ValueError, OSError):  # reported by the run
        return ""
    # An adapter's content depends on its base, which only the run knows: not compared.
    if any("base" in known_model for known_model in fingerprints):
        return ""
    for file in sorted(results.glob("*/seed_*/*.json")):
        model = read_json(file)["model"]
        settings = model["settings"]
        settings_of_members = settings.get("of", [settings])  # those of a fusion, or its own
        for member in settings_of_members:
            if not _is_known(member["model"], fingerprints):
                return (
                    f"the record of {file.stem} is of another {model['label']} than here, of "
                    f"identity {model['identity'][:12]}"
                )
    return ""


def _is_known(model: Fingerprint, fingerprints: Iterable[Fingerprint]) -> bool:
    """Return whether a model in a record is one of those here; it may name fewer facts."""
    return any(model.items() <= known_model.items() for known_model in fingerprints)


@dataclass(frozen=True)
class Request:
    """A run to execute on a node."""

    arguments: tuple[str, ...]  # arguments of ``qwen3nb``
    page: str  # name of the page's file below the book, such as ``runs/eval-bm25-smoke.ipynb``
    environment: Mapping[str, str] = field(repr=False)  # variables from the driver
    folder: str  # the driver's working directory, used if the node has it
    results: str  # the driver's folder of records, used if the node sees it
    book: str  # the driver's folder of the book
    mark: str  # a folder in ``results``: the node sees that if it sees this one
    models: tuple[str, ...] = ()  # the models and adapters among the facts
    facts: Mapping[str, str] = field(default_factory=dict)  # the driver's; none: not compared
    part: Mapping[str, Any] = field(default_factory=dict)  # of an evaluation, instead of arguments


@dataclass(frozen=True)
class Delivery:
    """Result of a run: exit status (negative for a signal), node, seconds, archive in parts.

    ``facts`` are those of the node; if they are not the driver's, nothing is taken.
    ``sees_records`` is whether the node sees the driver's records.
    """

    status: int
    node: str
    seconds: float
    parts: tuple[Part, ...]
    facts: Mapping[str, str]
    sees_records: bool


def run_on_node(request: Request) -> Delivery:
    """Run a command; called by Ray on the selected node."""
    import ray

    node = str(ray.get_runtime_context().get_node_id())
    try:
        with tempfile.TemporaryDirectory(prefix="qwen3nb-run-", ignore_cleanup_errors=True) as name:
            return _run_and_deliver(request, node, Path(name).resolve())
    except OSError as error:  # such as a full disk
        # Facts are only compared on a cluster, not with a Ray on the driver's own machine.
        is_only_node = not request.facts
        if is_only_node:
            raise  # there is no other one that could repeat the run
        # A fact that differs: the driver refuses this node and repeats the run on another one.
        facts = {**request.facts, TEMPORARY: f"none ({error})"}
        return Delivery(1, node, seconds=0.0, parts=(), facts=facts, sees_records=False)


def _run_and_deliver(request: Request, node: str, scratch: Path) -> Delivery:
    """Run a command in scratch space, and return what it has written."""
    import ray

    started = time.monotonic()
    sees_records = _link_reusable(request, scratch)
    status = _run(request, scratch)
    facts = {}
    if (scratch / FACTS).is_file():  # its process may have died before that
        facts = read_json(scratch / FACTS)
    archive = _pack(scratch, request, failed=status != 0)
    parts = tuple(map(ray.put, _blocks_of(archive)))
    seconds = time.monotonic() - started
    return Delivery(status, node, seconds, parts, facts, sees_records)


def _blocks_of(file: Path) -> Iterator[bytes]:
    with file.open("rb") as stream:
        yield from iter(lambda: stream.read(_PART), b"")


def _run(request: Request, scratch: Path) -> int:
    """Run a command in scratch space, and return its exit status."""
    orders = {
        "arguments": request.arguments,
        "models": request.models,
        "facts": request.facts,
        "part": request.part,
    }
    write_json(scratch / "orders.json", orders)
    environment = node_environment(request.environment)
    environment["QWEN3NB_RESULTS"] = str(scratch / "results")
    environment["QWEN3NB_BOOK"] = str(scratch / "book")
    # The same working directory as the driver's, for relative paths, if there is one.
    folder = Path(request.folder)
    if not folder.is_dir():
        folder = scratch
    return run_guarded(
        # -P: with the code that the kernels import, even if it runs in a checkout
        [sys.executable, "-P", "-m", "qwen3nb.execution.child", str(scratch / "orders.json")],
        scratch=scratch,
        log=scratch / "log",
        environment=environment,
        folder=folder,
    )


def _link_reusable(request: Request, scratch: Path) -> bool:
    """Link the records of earlier runs, and the earlier page; return whether the node sees them.

    A part of an evaluation gets only the records of its tasks.
    """
    results = Path(request.results)
    # The driver has just made this folder, so another disk under the same path lacks it.
    sees_results = (results / request.mark).is_dir()
    if not sees_results:
        return False
    # The keys of a part's tasks, with which its files begin; none for a whole evaluation.
    tasks = tuple(request.part.get("only", ()))
    for pattern in _REUSABLE:
        for file in results.glob(pattern):
            if not tasks or file.name.startswith(tasks):
                _link(scratch / "results" / file.relative_to(results), file)
    page = Path(request.book) / request.page
    if page.is_file():
        _link(scratch / "book" / request.page, page)
    return True


def _link(link: Path, file: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(file)


def _pack(scratch: Path, request: Request, *, failed: bool) -> Path:
    """Return an archive of the files that a run has written, and its log.

    Paths of the node's scratch in pages, notes and log are replaced by the driver's.
    """
    archive = scratch / "files.tar"
    partial_pages = scratch / "results" / "partial"
    files = [scratch / "log", *scratch.glob("results/**/*"), *scratch.glob("book/**/*")]
    with tarfile.open(archive, "w") as tar:
        for file in files:
            # Links are the driver's own files; see `_link_reusable`.
            if file.is_symlink() or not file.is_file():
                continue
            # A notebook that stopped half-way is only of interest after a failure.
            if file.is_relative_to(partial_pages) and not failed:
                continue
            name = file.relative_to(scratch)
            if _may_name_paths(name):
                _rename_paths(file, scratch, request)
            tar.add(file, arcname=str(name))
    return archive


def _may_name_paths(file: Path) -> bool:
    """Return whether a file, relative to the scratch, is a page, the log or a note of a failure."""
    return file.suffix == ".ipynb" or file.parts[0] == "log" or "failed" in file.parts


def _rename_paths(file: Path, scratch: Path, request: Request) -> None:
    """Replace the paths of the node's scratch in a text by the driver's."""
    text = file.read_text(encoding="utf-8", errors="surrogateescape")
    text = text.replace(str(scratch / "results"), request.results)
    text = text.replace(str(scratch / "book"), request.book)
    file.write_text(text, encoding="utf-8", errors="surrogateescape")


@contextmanager
def unpacked(delivery: Delivery, *, get: Callable[[Part], bytes], within: Path) -> Iterator[Path]:
    """Yield a new folder with the files of a delivery: ``log``, ``results/`` and ``book/``.

    ``get`` is ``ray.get``, which raises Ray's error if a part is lost.
    """
    with tempfile.TemporaryDirectory(dir=within) as name:
        archive = Path(name) / "files.tar"
        with archive.open("wb") as file:
            for part in delivery.parts:
                # `get` is ray.get, which raises Ray's error if a part is lost with its node.
                file.write(get(part))
        folder = Path(name) / "files"
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        archive.unlink()  # not needed while the files are published
        yield folder
