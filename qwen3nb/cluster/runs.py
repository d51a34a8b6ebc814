"""Run a command on a node of a cluster, in scratch space of the node; bring back its files.

A node writes to its scratch only. The files come back as one archive, in parts, so that neither
end holds more than a part in memory; Ray keeps parts that do not fit its store on disk. Whoever
asked for the run publishes them; see `qwen3nb.execution.executors`.
"""

from __future__ import annotations

import sys
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from qwen3nb.cluster.nodes import node_environment
from qwen3nb.cluster.processes import run_guarded
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import folder_digests
from qwen3nb.records.record import Result
from qwen3nb.utils.atomic_files import sha256_json

_PART = 8 << 20  # bytes
# Records and notes, which a run may reuse or show beside its own; each is only ever replaced whole.
_KNOWN = (
    "*/seed_*/*.json",
    "*/seed_*/*.parquet",
    "*/seed_*/*.trec",
    "*/seed_*/*.qrels",
    "*/seed_*/*.error.txt",
    "first_stages/*.trec",
    "failed/*.json",
)


@dataclass(frozen=True)
class Expected:
    """What the models of a run hold on this machine, which decides.

    Attributes:
        folders: digest of each folder by its path, for the run; see `folder_digests`.
        models: digests of each model's folders by its spec, for what the run delivers.
        complete: whether these are all models that it may run; not if one is on the hub.
    """

    folders: Mapping[str, str]
    models: Mapping[str, tuple[str, ...]]
    complete: bool

    @classmethod
    def of(cls, specs: Iterable[str]) -> Expected:
        """Return what models hold here; of those that are not here, the run says what is wrong."""
        folders: dict[str, str] = {}
        models: dict[str, tuple[str, ...]] = {}
        complete = True
        for spec in specs:
            try:
                source = find_source(spec)
                own = folder_digests(source)
            except (ValueError, OSError):  # such as the file of a run
                complete = False
                continue
            complete &= bool(own) or source.kind.weightless
            models[source.spec] = tuple(own.values())
            folders |= own
        return cls(folders, models, complete and bool(models))

    def problem(self, spec: str, settings: Mapping[str, Any]) -> str:
        """Return what is wrong with a model that was loaded as ``spec``; empty if nothing is."""
        wanted = self.models.get(spec)
        if wanted is None and self.complete:
            wanted = tuple(self.folders.values())
        wrong = [
            digest for digest in _loaded(settings) if wanted is not None and digest not in wanted
        ]
        if not wrong:
            return ""
        expected = " and ".join(digest[:12] for digest in wanted or ()) or "none with weights"
        return (
            f"{spec}: expected the model of identity {expected}, as on this machine; found one of "
            f"{wrong[0][:12]}. Make the folder the same on all nodes"
        )


def _loaded(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the digest of each folder that a model was loaded from, by its settings."""
    for part in settings.get("of", ()):
        yield from _loaded(part)
    content = settings.get("model", {})
    if content.get("kind") == "adapter":
        yield sha256_json(content["adapter"])
        content = content["base"]
    if "weights" in content:
        yield sha256_json(content)


def foreign_records(folder: Path, expected: Expected, *, node: str) -> list[str]:
    """Return a line for each record in a delivery of ``node`` whose model is another than asked."""
    files = sorted((folder / "results").glob("*/seed_*/*.json"))
    models = {file: Result.load(file).model for file in files}
    wrong = {file: expected.problem(each.spec, each.settings) for file, each in models.items()}
    return [f"node {node}: {file.stem}: {line}" for file, line in wrong.items() if line]


@dataclass(frozen=True)
class Request:
    """A run for a node.

    Attributes:
        arguments: of the command ``qwen3nb``.
        page: name of the page's file below the book, such as ``runs/eval-bm25-smoke.ipynb``.
        environment: variables from the driver.
        folder: the driver's working directory, used where the node has it.
        results: the driver's folder of records, used where the node sees it.
        book: the driver's folder of the book.
        mark: a file in ``results``: the node sees that folder if it sees the file.
    """

    arguments: tuple[str, ...]
    page: str
    environment: Mapping[str, str] = field(repr=False)
    folder: str
    results: str
    book: str
    mark: str


@dataclass(frozen=True)
class Delivery:
    """A run's exit status (negative for a signal), node and seconds there; its archive in parts."""

    status: int
    node: str
    seconds: float
    parts: tuple[Any, ...]


def run_on_node(request: Request) -> Delivery:
    """Run a command; called by Ray on the node that it chose."""
    import ray

    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="qwen3nb-run-", ignore_cleanup_errors=True) as name:
        scratch = Path(name).resolve()
        _link_known(request, scratch)
        folder = Path(request.folder)
        own = {"QWEN3NB_RESULTS": scratch / "results", "QWEN3NB_BOOK": scratch / "book"}
        environment = node_environment(request.environment) | {k: str(v) for k, v in own.items()}
        status = run_guarded(
            [sys.executable, "-m", "qwen3nb.cli.main", *request.arguments],
            scratch=scratch,
            log=scratch / "log",
            environment=environment,
            folder=folder if folder.is_dir() else scratch,
        )
        archive = _packed(scratch, request, failed=status != 0)
        with archive.open("rb") as file:
            parts = tuple(ray.put(part) for part in iter(lambda: file.read(_PART), b""))
    node = str(ray.get_runtime_context().get_node_id())
    return Delivery(status, node, time.monotonic() - started, parts)


def _link_known(request: Request, scratch: Path) -> None:
    """Let a run find the records of earlier runs, and its earlier page, if the node sees them."""
    results, book = Path(request.results), Path(request.book)
    if not (results / request.mark).is_file():
        return
    known = [(file, results, "results") for pattern in _KNOWN for file in results.glob(pattern)]
    if (book / request.page).is_file():
        known.append((book / request.page, book, "book"))
    for file, top, name in known:
        link = scratch / name / file.relative_to(top)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)


def _packed(scratch: Path, request: Request, *, failed: bool) -> Path:
    """Return an archive of the files that a run has written, and its log.

    Pages, notes and the log name the driver's folders in the place of the node's scratch.
    """
    archive = scratch / "files.tar"
    partial = scratch / "results" / "partial"
    tops = (scratch / "results", scratch / "book")
    files = [file for top in tops for file in sorted(top.rglob("*")) if not file.is_symlink()]
    with tarfile.open(archive, "w") as tar:
        for file in (scratch / "log", *files):
            if not file.is_file() or (file.is_relative_to(partial) and not failed):
                continue
            name = file.relative_to(scratch)
            if file.suffix == ".ipynb" or name.parts[0] == "log" or "failed" in name.parts:
                text = file.read_text(encoding="utf-8", errors="surrogateescape")
                for top, real in zip(tops, (request.results, request.book), strict=True):
                    text = text.replace(str(top), real)
                file.write_text(text, encoding="utf-8", errors="surrogateescape")
            tar.add(file, arcname=str(name))
    return archive


@contextmanager
def unpacked(delivery: Delivery, *, get: Any) -> Iterator[Path]:
    """Yield a folder with the files of a delivery: ``log``, ``results/`` and ``book/``.

    ``get`` is ``ray.get``, which raises what Ray raises if a part is lost.
    """
    with tempfile.TemporaryDirectory(prefix="qwen3nb-files-") as name:
        archive = Path(name) / "files.tar"
        with archive.open("wb") as file:
            for part in delivery.parts:
                file.write(get(part))
        folder = Path(name) / "files"
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        archive.unlink()
        yield folder
