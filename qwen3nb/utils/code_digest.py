"""The digest of this package's own files."""

from __future__ import annotations

from pathlib import Path

from qwen3nb.utils.atomic_files import sha256_file, sha256_json

__all__ = ["code_digest"]

_CODE = {".py", ".toml", ".tsv", ".j2", ".json", ".mplstyle"}


def code_digest() -> str:
    """Return a digest of the files of this package."""
    package = Path(__file__).resolve().parent.parent
    files = sorted(file for file in package.rglob("*") if file.suffix in _CODE)
    return sha256_json([[str(file.relative_to(package)), sha256_file(file)] for file in files])
