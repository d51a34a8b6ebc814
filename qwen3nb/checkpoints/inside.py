"""One rule for every file of a model's folder that is read or copied: it lies in that folder.

A link that leaves the folder is refused: its target would be read, copied into an export, and
uploaded with it. Snapshots of the hub's cache link to that cache's own ``blobs/``, which is
allowed. Pipes, devices and sockets are refused, because reading one may never end. The folder
itself may be a link: its user named it.
"""

from __future__ import annotations

import codecs
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.utils.strict_json import parse_json

__all__ = [
    "JSON_LIMIT",
    "check_all_inside",
    "check_inside",
    "configured_inside",
    "copy_present",
    "module_folders",
    "read_object",
    "read_strictly",
]

# Bytes of a JSON file. The largest in use, tokenizers, have 35 MB; parsed into Python objects,
# a file that means harm grows twentyfold.
JSON_LIMIT = 50_000_000
# Files that a library may read: configurations, tokenizers, weights, the card.
_READ = {
    ".bin", ".jinja", ".json", ".md", ".model", ".safetensors", ".spm", ".tiktoken", ".txt",
    ".vocab",
}  # fmt: skip
_MODULES = "modules.json"
# Folders of modules that sentence-transformers reads, besides those that modules.json names.
_ROUTES = "router_config.json"
_MANY_LEVELS = 3
_DEPTH = 32  # levels of JSON


def check_inside(file: Path, folder: Path | None = None) -> None:
    """Check that ``file`` is a regular file that lies in ``folder`` and may be read.

    Args:
        file: the file; there must be one.
        folder: the model's folder; by default the one that ``file`` is in.

    Raises:
        CheckpointError: a link out of the folder or to nothing, no regular file, or one that
            may not be read.
    """
    _check_target(file, folder or file.parent)
    try:
        mode = file.stat().st_mode
    except OSError as error:
        raise CheckpointError(f"{file!s:.500}: cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a pipe, a socket or a device"
        raise CheckpointError(f"{file}: not a regular file but {kind}; remove or replace it")
    if not os.access(file, os.R_OK):
        raise CheckpointError(f"{file}: no permission to read it; `chmod u+r` gives it")


def _check_target(path: Path, folder: Path) -> None:
    """Refuse a path that leads out of ``folder``, except to the blobs of its hub cache."""
    try:
        target, root = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    except ValueError:  # a NUL in the name
        raise CheckpointError(f"{folder}: {str(path)!r:.80} is not a file name") from None
    if target.is_relative_to(root) or target.parent in _blobs(root):
        return
    raise CheckpointError(f"{path}: links out of its folder, to {target}; copy the file here")


def _blobs(root: Path) -> list[Path]:
    """Return the blobs of the hub's cache that ``root`` is a snapshot in, if it is one."""
    levels = (root, *root.parents)[:_MANY_LEVELS]
    return [each.parent.parent / "blobs" for each in levels if each.parent.name == "snapshots"]


def check_all_inside(folder: Path) -> None:
    """Check every file of a model's folder that a library may read, at any depth.

    Raises:
        CheckpointError: see `check_inside`; or a module of sentence-transformers outside.
    """
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in _READ and (path.is_symlink() or not path.is_dir()):
            check_inside(path, folder)
    if (folder / _MODULES).is_file():
        for _ in module_folders(folder):
            pass


def configured_inside(folder: Path) -> str:
    """Return a sentence that names the folders in ``folder`` with a ``config.json``, if any."""
    names = sorted(path.name for path in folder.glob("*/") if (path / "config.json").is_file())
    return f" Folders in it that have one: {', '.join(names)}." if names else ""


def module_folders(folder: Path) -> Iterator[str]:
    """Yield the folders of the modules of sentence-transformers, relative to ``folder``.

    Raises:
        CheckpointError: a module outside of the folder, or a file that does not list modules.
    """
    file = folder / _MODULES
    modules = read_strictly(file)
    if not isinstance(modules, list) or not all(isinstance(each, dict) for each in modules):
        raise CheckpointError(f"{file}: expected a list of modules, as sentence-transformers has")
    for each in modules:
        path = each.get("path", "")
        _check_module(folder, path)
        yield path
        routes = folder / path / _ROUTES
        if routes.is_file():
            types = read_object(routes, folder).get("types")
            for name in types if isinstance(types, dict) else ():
                inner = str(PurePosixPath(path, name))
                _check_module(folder, inner)
                yield inner


def _check_module(folder: Path, path: Any) -> None:
    if not isinstance(path, str) or Path(path).is_absolute() or ".." in Path(path).parts:
        raise CheckpointError(
            f"{folder / _MODULES}: the path {path!r:.80} is no folder inside of the model's"
        )
    _check_target(folder / path, folder)
    for file in (folder / path).iterdir() if path and (folder / path).is_dir() else ():
        if file.suffix.lower() in _READ:
            check_inside(file, folder)


def copy_present(names: Iterable[str], source: Path, target: Path) -> None:
    """Copy the files with these names that ``source`` has to ``target``.

    Raises:
        CheckpointError: see `check_inside`.
    """
    for name in names:
        file = source / name
        if os.path.lexists(file):
            check_inside(file, source)
            shutil.copyfile(file, target / name)


def read_object(file: Path, folder: Path | None = None) -> dict[str, Any]:
    """Return the JSON object in a file of a model's folder.

    Raises:
        CheckpointError: see `read_strictly`; or not an object.
    """
    value = read_strictly(file, folder)
    if not isinstance(value, dict):
        raise CheckpointError(f"{file}: expected an object, got {value!r:.60}")
    return value


def read_strictly(file: Path, folder: Path | None = None) -> Any:
    """Return the JSON value in a file of a model's folder, unless two libraries may differ on it.

    Raises:
        CheckpointError: see `check_inside`; or more than `JSON_LIMIT` bytes; not UTF-8, or with a
            byte order mark; not JSON; a key that appears twice, a number that is not finite (also
            as ``1e999``), or more than 32 levels.
    """
    check_inside(file, folder)
    if (size := file.stat().st_size) > JSON_LIMIT:
        raise CheckpointError(f"{file}: {size:,} bytes; expected at most {JSON_LIMIT:,}")
    raw = file.read_bytes()
    if raw.startswith(codecs.BOM_UTF8):
        raise CheckpointError(
            f"{file}: starts with a byte order mark, which JSON does not allow and libraries "
            "refuse; save the file as UTF-8 without one"
        )
    try:
        value = parse_json(raw.decode("utf-8"), finite=True)
        _check_depth(value, _DEPTH)
    except ValueError as error:
        raise CheckpointError(f"{file}: invalid JSON ({error})") from None
    return value


def _check_depth(value: Any, levels: int) -> None:
    if not isinstance(value, dict | list):
        return
    if levels == 0:
        raise ValueError(f"nested in more than {_DEPTH} levels")
    for each in value.values() if isinstance(value, dict) else value:
        _check_depth(each, levels - 1)
