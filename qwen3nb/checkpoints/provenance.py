"""Read the provenance stored next to extracted weights, and check its checksums.

``checksums`` in `qwen3nb.json` of an export, or in the metadata of an average:

    weights  the digest of the weights, independent of the file format
    files    the SHA-256 of every other file by path, except the README, which may change
    self     the SHA-256 of the rest of this file, as canonical JSON

Files that are not downloaded because the model loads without them may be missing.
"""

import os
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path, PurePath
from typing import Any

from qwen3nb.checkpoints.folder import SINGLE, ModelFolder
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.utils.atomic_files import sha256_file, sha256_json

# The files of a model; weights in other formats are not downloaded.
MODEL_FILES = ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja"]
PROVENANCE, AVERAGING = "qwen3nb.json", "averaging_metadata.json"
_NOT_LISTED = {PROVENANCE, AVERAGING, "README.md", "model.safetensors"}


_ADVICE = (
    "extract or average again, or copy the file from where it is sound; if the change is yours, "
    'delete "checksums" from qwen3nb.json (or averaging_metadata.json)'
)


def read_provenance(folder: Path | ModelFolder, *, name: str = PROVENANCE) -> dict[str, Any] | None:
    """Return the provenance of an extracted model, or None for any other folder.

    Raises:
        CheckpointError: the file is damaged, or outside the folder.
    """
    if not isinstance(folder, ModelFolder):
        folder = ModelFolder(folder)
    if not os.path.lexists(folder.path / name):
        return None
    try:
        return folder.object(name)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; {_ADVICE}") from None


def with_checksums(
    fields: Mapping[str, object],
    folder: Path,
    *,
    weights: str,
) -> dict[str, object]:
    """Return ``fields`` with the checksums of ``folder``, whose other files are complete."""
    files: dict[str, str] = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.name not in _NOT_LISTED:
            files[file.relative_to(folder).as_posix()] = sha256_file(file)
    return _sealed(fields, {"weights": weights, "files": files})


def published(provenance: Mapping[str, Any]) -> dict[str, object]:
    """Return the provenance with the source's name instead of its path on this machine."""
    source = dict(provenance.get("source", {}))
    source["folder"] = Path(source.get("folder", "")).name
    fields = {**provenance, "source": source}
    if "checksums" not in provenance:
        return fields
    return _sealed(fields, provenance["checksums"])


def _sealed(fields: Mapping[str, object], checksums: Mapping[str, object]) -> dict[str, object]:
    """Return ``fields`` with the checksums and, as ``self``, the digest of all of this."""
    digest = _own_digest(fields, checksums)
    return {**fields, "checksums": {**checksums, "self": digest}}


def _own_digest(fields: Mapping[str, object], checksums: Mapping[str, object]) -> str:
    """Return the digest of a file's fields and checksums, without that digest."""
    others = {name: value for name, value in checksums.items() if name != "self"}
    return sha256_json({**fields, "checksums": others})


def check_checksums(folder: ModelFolder) -> None:
    """Compare an export or an average with its own checksums; without any, do nothing.

    Raises:
        CheckpointError: a file differs, or a required one is missing; names it and both digests.
    """
    for name in (PROVENANCE, AVERAGING):
        provenance = read_provenance(folder, name=name)
        if provenance is not None and "checksums" in provenance:
            _check_against(folder, folder.path / name, provenance)


def _check_against(folder: ModelFolder, file: Path, provenance: Mapping[str, Any]) -> None:
    """Compare a folder with the checksums in one of its files."""
    checksums = provenance["checksums"]
    if not isinstance(checksums, dict) or not isinstance(checksums.get("files"), dict):
        raise CheckpointError(f"{file}: the checksums are not an object; {_ADVICE}")
    # First the file itself: only then can its checksums be trusted.
    _check_digest(file, _own_digest(provenance, checksums), expected=checksums.get("self"))
    for name, expected in checksums["files"].items():
        path = PurePath(name)
        if path.is_absolute() or ".." in path.parts:
            raise CheckpointError(
                f"{file}: expected files of its folder, got {name!r:.80}; {_ADVICE}"
            )
        listed_file = folder.path / name
        # Files that a model loads without may be missing after a download.
        is_required = any(fnmatch(name, pattern) for pattern in MODEL_FILES)
        if listed_file.is_file():
            _check_digest(listed_file, folder.sha256(name), expected=expected)
        elif is_required:
            raise CheckpointError(f"{listed_file}: missing, but {file.name} lists it; {_ADVICE}")
    _check_digest(folder.path / SINGLE, folder.weights.digest, expected=checksums.get("weights"))


def _check_digest(file: Path, digest: str, *, expected: object) -> None:
    if digest != expected:
        raise CheckpointError(
            f"{file}: changed since it was written and verified: expected SHA-256 "
            f"{str(expected)[:12]}…, got {digest[:12]}…; {_ADVICE}"
        )
