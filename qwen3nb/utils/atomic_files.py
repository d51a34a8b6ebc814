"""Write files atomically, and compute digests of their content.

Every record, page and model goes through `write_text` or `new_folder`: it is written under
a temporary name in the same folder, flushed to disk, then renamed. A crash leaves the old
content or the new, never a part of it.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

__all__ = [
    "canonical",
    "file_stamp",
    "may_replace",
    "new_file",
    "new_folder",
    "read_json",
    "remember_digest",
    "remembered_digest",
    "sha256_file",
    "sha256_json",
    "sync_folder",
    "write_bytes",
    "write_json",
    "write_text",
]

_BLOCK = 1 << 20


@contextmanager
def new_file(path: Path, *, replace: bool = True) -> Iterator[BinaryIO]:
    """Open a binary file that is renamed to ``path`` when the block succeeds.

    Its folder is created if needed. If the block raises, ``path`` is left as it was. Without
    ``replace``, so it is too if there is a file by then: of several writers, the first wins.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        if replace:
            Path(name).replace(path)
        else:
            _rename_once(Path(name), path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _rename_once(file: Path, path: Path) -> None:
    """Rename ``file`` to ``path``, or remove it if that exists."""
    try:
        os.link(file, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        if not path.exists():
            file.replace(path)
    file.unlink(missing_ok=True)


def write_bytes(path: Path, data: bytes, *, replace: bool = True) -> Path:
    """Write ``data`` to ``path`` atomically, creating its folder if needed; see `new_file`."""
    with new_file(path, replace=replace) as file:
        file.write(data)
    return path


def write_text(path: Path, text: str, *, replace: bool = True) -> Path:
    """Write ``text`` as UTF-8, atomically; see `new_file`."""
    return write_bytes(path, text.encode("utf-8"), replace=replace)


def write_json(path: Path, value: Any, *, indent: int | None = 1, replace: bool = True) -> Path:
    """Write strict JSON, atomically; see `new_file`.

    Raises:
        ValueError: a NaN or infinity anywhere in ``value``.
    """
    text = json.dumps(value, allow_nan=False, indent=indent) + "\n"
    return write_text(path, text, replace=replace)


def read_json(path: Path) -> Any:
    """Read strict JSON.

    Raises:
        ValueError: not UTF-8, not JSON, or NaN or infinity; names the file.
    """

    def refuse(constant: str) -> None:
        raise ValueError(f"{path}: {constant} is not JSON")

    try:
        return json.loads(path.read_bytes().decode("utf-8"), parse_constant=refuse)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{path}: invalid JSON ({error})") from None


def may_replace(target: Path, *, mark: str) -> bool:
    """Return whether ``target`` is free, an empty folder, or a folder that holds ``mark``."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        return False
    return not target.exists() or (target / mark).is_file() or not any(target.iterdir())


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Create a folder that is renamed to ``target`` when the block succeeds.

    An existing ``target`` is replaced only then. If the block raises, it is left as it was,
    and the new folder is removed.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp"))
    try:
        yield work
        for file in work.rglob("*"):
            if file.is_file():
                with file.open("rb") as handle:
                    os.fsync(handle.fileno())
        work.chmod(0o755)
        if target.exists():
            old = work.with_suffix(".old")
            target.rename(old)
            try:
                work.rename(target)
            except BaseException:
                old.rename(target)
                raise
            shutil.rmtree(old)
        else:
            work.rename(target)
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries, so that a rename survives a power failure."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows cannot open folders; its renames need no flush
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def canonical(value: Any) -> bytes:
    """Serialise a JSON value canonically: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sha256_json(value: Any) -> str:
    """Hex digest of ``canonical(value)``."""
    return hashlib.sha256(canonical(value)).hexdigest()


def sha256_file(path: Path) -> str:
    """Hex digest of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def file_stamp(file: Path) -> list[Any]:
    """Return a file's path, inode, size and times, which change whenever its content does."""
    status = file.stat()
    return [
        str(file.resolve()),
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    ]


def remembered_digest(files: list[Path], compute: Callable[[], str], *, memory: Path) -> str:
    """Return the stored digest of ``files``, or ``compute()`` and store it.

    A file counts as unchanged as long as its `file_stamp` is. ``memory`` is a JSON file of
    digests; if it is lost, digests are computed again.
    """
    key = _stamps_key(files)
    known = read_json(memory) if memory.is_file() else {}
    if key not in known:
        digest = compute()
        _remember(key, digest, memory)
        return digest
    return str(known[key])


def remember_digest(files: list[Path], digest: str, *, memory: Path) -> None:
    """Store a digest of ``files`` that was computed elsewhere, for `remembered_digest`."""
    _remember(_stamps_key(files), digest, memory)


def _stamps_key(files: list[Path]) -> str:
    return sha256_json([file_stamp(file) for file in sorted(files)])


def _remember(key: str, digest: str, memory: Path) -> None:
    known = read_json(memory) if memory.is_file() else {}
    write_json(memory, {**known, key: digest})
