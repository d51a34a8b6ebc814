"""Identify the code: the release, a digest of the package's files, the commit of a study."""

import os
import subprocess
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib import metadata
from pathlib import Path

from qwen3nb.utils.atomic_files import sha256_file, sha256_json
from qwen3nb.utils.children import run_program

_CODE = {".py", ".toml", ".tsv", ".j2", ".json", ".mplstyle"}
_LENGTH = 12
_FILTERS = r"^filter\..*\.(clean|process|required|smudge)$"  # programs that a file passes


def code_digest() -> str:
    """Return a digest of the files of this package, which are read again if one has changed."""
    package = Path(__file__).resolve().parent.parent
    studies = package / "study" / "template"  # in a wheel only
    stamps = frozenset(_stamps(package, without=str(studies)))
    return _digest_of_files(package, stamps)


_Stamp = tuple[str, int, int, int]  # path, size, and the times of content and inode


def _stamps(folder: str | Path, *, without: str) -> Iterator[_Stamp]:
    """Yield a stamp of each file of code in a folder, but for the folder ``without``."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if entry.path != without:
                    yield from _stamps(entry.path, without=without)
            elif os.path.splitext(entry.name)[1] in _CODE:  # noqa: PTH122 - of each file, often
                status = entry.stat()
                yield entry.path, status.st_size, status.st_mtime_ns, status.st_ctime_ns


@lru_cache(maxsize=1)
def _digest_of_files(package: Path, stamps: frozenset[_Stamp]) -> str:
    digests: list[list[str]] = []
    for file in sorted(Path(path) for path, *_ in stamps):
        digests.append([str(file.relative_to(package)), sha256_file(file)])
    return sha256_json(digests)


@cache  # parsing the metadata of ten packages takes a tenth of a second
def installed_version(package: str) -> str:
    """Return the installed version of a distribution, or ``not installed``."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


__version__ = installed_version("qwen3nb")


def git_commit(folder: Path) -> str:
    """Return the abbreviated commit of the checkout at ``folder``, empty if there is none.

    Uncommitted changes of tracked files are marked: ``0123456789ab-modified``. The folder may be a
    copy of somebody else's: no program that its configuration names is run.
    """
    # Only the folder's own repository, not one in a parent folder.
    if not (folder / ".git").exists():
        return ""
    commit = _git(folder, "rev-parse", f"--short={_LENGTH}", "HEAD")
    if not commit:
        return ""
    # Of a submodule only its commit counts: its files would be looked at by another git.
    status = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
    if _git(folder, *_without_programs(folder), *status):
        return f"{commit}-modified"
    return commit


def _without_programs(folder: Path) -> list[str]:
    """Return options of git by which `status` runs no program of the repository's configuration."""
    settings = ["core.fsmonitor=false", f"core.hooksPath={os.devnull}"]
    names = _git(folder, "config", "--local", "--includes", "--name-only", "--get-regexp", _FILTERS)
    for name in names.splitlines():
        value = "false" if name.endswith(".required") else ""
        settings.append(f"{name}={value}")
    options = []
    for setting in settings:
        options += ["-c", setting]
    return options


def _git(folder: Path, *arguments: str) -> str:
    try:
        process = run_program(["git", "-C", str(folder), *arguments], timeout=30)
    except (OSError, subprocess.TimeoutExpired):  # git is missing or too slow
        return ""
    if process.returncode:
        return ""
    return process.stdout.strip()
