"""Whether the built book is up to date: all that it is made of, and the built files themselves.

Beside a strictly built book stands `STATE`, a digest of the files that Sphinx and the page of all
runs read, of the installed libraries and of the built files. As long as it can be computed again,
the same build would write the same pages.
"""

import importlib.util
import sys
from collections.abc import Container, Iterator
from pathlib import Path

from qwen3nb import paths
from qwen3nb.records.record import CHECKSUMS, Environment
from qwen3nb.records.verification import SUMMARY
from qwen3nb.utils.atomic_files import read_json, sha256_file, sha256_json, write_json
from qwen3nb.utils.code_version import code_digest, git_commit
from qwen3nb.utils.secrets import known_secrets

STATE = "state.json"  # in the folder of the built book
# Below ``results``, not shown in a book: logs, unfinished pages, MTEB's own files, derived lists.
_UNREAD = frozenset({"logs", "partial", "sweep", "mteb", SUMMARY, CHECKSUMS})


def book_inputs() -> str:
    """Return a digest of everything that the built book depends on."""
    parts = {
        "folders": [str(folder) for folder in (paths.book(), paths.notebooks(), paths.results())],
        "pages": dict(_digests(paths.book())),
        "notebooks": dict(_digests(paths.notebooks())),
        "config": dict(_digests(paths.root(), pattern="_*.yml")),
        "records": record_stamps(),
        "code": code_digest(),
        "commit": git_commit(paths.root()),
        "libraries": _libraries(),
        "secrets": _secrets(),
    }
    return sha256_json(parts)


def is_up_to_date(folder: Path) -> bool:
    """Return whether a folder has the book that would be built now, and nobody has changed it."""
    try:
        state = read_json(folder / STATE)
        inputs, output = state["inputs"], state["output"]
    except (OSError, ValueError, KeyError, TypeError):  # never built, or not by this release
        return False
    return bool(output == _output(folder) and inputs == book_inputs())


def note_inputs(folder: Path, inputs: str) -> None:
    """Write beside a built book what it was made of: `book_inputs`, before it was built."""
    write_json(folder / STATE, {"inputs": inputs, "output": _output(folder)})


def _digests(folder: Path, *, pattern: str = "**/*") -> Iterator[tuple[str, str]]:
    """Yield the relative path and the digest of each file in a folder of sources."""
    for file in sorted(folder.glob(pattern)):
        name = file.relative_to(folder)
        # ``_build`` has the output of a bare `jupyter-book build`; hidden files are of editors.
        is_source = name.parts[0] != "_build" and not any(_is_hidden(part) for part in name.parts)
        if is_source and file.is_file():
            yield str(name), sha256_file(file)


def _is_hidden(name: str) -> bool:
    return name.startswith(".")


def record_stamps() -> str:
    """Return a digest of the names, sizes and times of records and notes of failures.

    Records are many, and replaced by new files: their contents need not be read.
    """
    return _stamps(paths.results(), unread=_UNREAD)


def _output(folder: Path) -> str:
    """Return a digest of the names, sizes and times of the built files."""
    return _stamps(folder / "html", unread=frozenset())


def _stamps(folder: Path, *, unread: Container[str]) -> str:
    """Return a digest of the names, sizes and times of files in subfolders that are read."""
    stamps: list[list[str | int]] = []
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder)
        if name.parts[0] in unread or _is_hidden(file.name) or not file.is_file():
            continue
        status = file.stat()
        stamps.append([str(name), status.st_size, status.st_mtime_ns])
    return sha256_json(stamps)


def _libraries() -> list[str]:
    """Return Python's version, those in records, and all that is installed beside Sphinx."""
    versions = Environment.current().versions
    names = [sys.version, *(f"{name} {version}" for name, version in sorted(versions.items()))]
    sphinx = importlib.util.find_spec("sphinx")
    if sphinx is not None and sphinx.origin:
        # The names of these folders have the versions; reading each costs a second.
        installed = Path(sphinx.origin).parent.parent.glob("*.dist-info")
        names += sorted(folder.name for folder in installed)
    return names


def _secrets() -> list[str]:
    """Return the secrets that a built book must not have; only their digest is written."""
    return [secret.pattern.pattern for secret in known_secrets().patterns]
