"""Identify the code: the release, a digest of the package's files, the commit of a study."""

import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path

from qwen3nb.utils.atomic_files import sha256_file, sha256_json
from qwen3nb.utils.children import run_program

_CODE = {".py", ".toml", ".tsv", ".j2", ".json", ".mplstyle"}
_LENGTH = 12


def code_digest() -> str:
    """Return a digest of the files of this package."""
    package = Path(__file__).resolve().parent.parent
    studies = package / "study" / "template"  # in a wheel only
    digests: list[list[str]] = []
    for file in sorted(package.rglob("*")):
        if file.suffix in _CODE and not file.is_relative_to(studies):
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

    Uncommitted changes of tracked files are marked: ``0123456789ab-modified``.
    """
    # Only the folder's own repository, not one in a parent folder.
    if not (folder / ".git").exists():
        return ""
    commit = _git(folder, "rev-parse", f"--short={_LENGTH}", "HEAD")
    if commit and _git(folder, "status", "--porcelain", "--untracked-files=no"):
        return f"{commit}-modified"
    return commit


def _git(folder: Path, *arguments: str) -> str:
    try:
        process = run_program(["git", "-C", str(folder), *arguments], timeout=30)
    except (OSError, subprocess.TimeoutExpired):  # git is missing or too slow
        return ""
    if process.returncode:
        return ""
    return process.stdout.strip()
