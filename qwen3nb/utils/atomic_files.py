"""Write files atomically, and compute digests of their content.

Every record, page and model is written by `write_text` or `new_folder`: under a temporary name in
the same folder, flushed to disk, then renamed. A crash leaves either the old or the new content,
never a part. Leftovers of a killed writer are removed by the next writer of the same name; see
`sweep_leftovers`. Errors name the final file, and what to do.

Processes that write the same results take turns. A lock (`flock`, by filelock) ends with its
process, however that dies, so locks are never stale. Processes on several machines take turns if
their file system shares locks, as NFS does from version 4. Where a file cannot be locked or
created, there are no turns: files are still replaced atomically, and the last writer wins.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import platform
import secrets
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from filelock import FileLock, Timeout, lock_descriptor

from qwen3nb.utils.strict_json import parse_json, refused

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NEW, _OLD = ".tmp", ".old"
_ABANDONED = 7 * 24 * 3600  # seconds
_NEW_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL
_WORKING_DIRECTORY = -100  # AT_FDCWD of Linux
_EXCHANGE = 2  # RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS

_TO_DO = {
    errno.ENOSPC: "free some space there, then run the same command again",
    errno.EDQUOT: "free some of your quota there, then run the same command again",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose another folder, or ask for its permissions",
    errno.EPERM: "choose another folder, or ask for its permissions",
    errno.EMFILE: "allow more open files (ulimit -n 4096), then run the same command again",
}


@contextmanager
def errors_naming(path: Path, *, instead_of: Path | None = None) -> Iterator[None]:
    """Make file errors in the block name ``path`` if they name no file.

    Errors that name ``instead_of`` (a temporary file or folder) or a file below it, name ``path``
    or the file below that instead.
    """
    try:
        yield
    except shutil.Error as error:
        # Copying a folder collects the failures of its files: (source, copy, reason) each.
        failures, *_ = error.args
        _source, _copy, reason = failures[0]
        raise OSError(f"{path}: {reason}") from error
    except OSError as error:
        name = _name_instead(error, path, instead_of)
        if name is None or error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(name)) from error


def _name_instead(error: OSError, path: Path, temporary: Path | None) -> Path | None:
    """Return the file that an error should name; None if it is the one that it does name."""
    name = error.filename2 or error.filename
    if name is None:
        return path
    file = Path(str(name))
    if temporary is None or not file.is_relative_to(temporary):
        return None
    return path / file.relative_to(temporary)


def explained(error: OSError) -> str:
    """Return one line: the file, the reason, and what to do about it.

    >>> explained(OSError(errno.ENOSPC, "No space left on device", "/data/v.npy"))
    '/data/v.npy: No space left on device; free some space there, then run the same command again'
    """
    name = error.filename2 or error.filename
    if error.errno not in _TO_DO or name is None:
        return str(error)
    return f"{name}: {error.strerror}; {_TO_DO[error.errno]}"


@contextmanager
def new_file(path: Path, *, replace: bool = True) -> Iterator[BinaryIO]:
    """Open a binary file that is renamed to ``path`` when the block succeeds.

    Its folder is created if needed. If the block raises, ``path`` is unchanged. Without
    ``replace``, an existing file is kept: of several writers, the first wins.

    Raises:
        OSError: the file cannot be written; names ``path``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep_leftovers(path)
    temporary = _temporary_path(path)
    with errors_naming(path, instead_of=temporary):
        # Readable only by its owner until it is complete.
        handle = os.open(temporary, _NEW_FILE, 0o600)
    try:
        with io.BufferedWriter(_NamedOutput(handle, path)) as file:  # its errors name `path`
            yield file
            file.flush()
            with errors_naming(path, instead_of=temporary):
                # On disk before the rename, or a power failure could leave an empty file.
                os.fsync(handle)
                temporary.chmod(0o644)
                if replace:
                    temporary.replace(path)
                else:
                    _rename_unless_exists(temporary, path)
    except BaseException:
        with suppress(OSError):  # removed later as a leftover
            temporary.unlink()
        raise
    sync_folder(path.parent)  # so that the rename itself survives a power failure


@contextmanager
def temporary_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder next to ``path`` for the block; first remove those of dead processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Removes what processes have left that were killed.
    sweep_leftovers(path)
    folder = _temporary_path(path)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class _NamedOutput(io.FileIO):
    """A raw file whose errors name the final path."""

    def __init__(self, handle: int, path: Path) -> None:
        super().__init__(handle, "w")
        self._path = path

    def write(self, data: Buffer) -> int:
        with errors_naming(self._path):
            return super().write(data)


def sweep_leftovers(path: Path) -> None:
    """Remove temporary files and folders of ``path`` whose writers are dead.

    Their names contain machine and process. Leftovers of other machines or containers are removed a
    week after their last change. Those that cannot be removed stay; nothing reads them.
    """
    with suppress(OSError):
        for name in os.listdir(path.parent):  # noqa: PTH208 - many names, few of them matter
            if name.startswith(f".{path.name}.") and name.endswith((_NEW, _OLD)):
                with suppress(OSError):
                    _remove_leftover(path.with_name(name))


def _remove_leftover(work: Path) -> None:
    """Remove a temporary file or folder if its writer is dead, or unknown here for a week.

    A writer that lives keeps its file at any age: clocks jump.
    """
    lives = writer_lives(work)
    if lives:
        return
    is_old = time.time() - work.lstat().st_mtime > _ABANDONED
    # A writer on another machine may still be at work.
    is_unknown = lives is None
    if is_unknown and not is_old:
        return
    if work.is_dir():
        shutil.rmtree(work)
    else:
        work.unlink()


def _temporary_path(path: Path) -> Path:
    """Return a new name next to ``path`` for a temporary file or folder of this process."""
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}{_NEW}")


def writer_lives(work: Path) -> bool | None:
    """Return whether the process of a temporary file lives; None if unknown here."""
    writer = work.name.split(".")[-2]  # 1a2b3c4d-4711-9f8e in .record.json.1a2b3c4d-4711-9f8e.tmp
    machine, _, rest = writer.partition("-")
    pid, _, _ = rest.partition("-")
    # The process of another machine cannot be asked for.
    if machine != _machine() or not pid.isdecimal():
        return None
    import psutil

    return psutil.pid_exists(int(pid))


def _machine() -> str:
    """Return digits that identify this machine and PID namespace; containers have their own."""
    name = f"{platform.node()} "
    namespace = Path("/proc/self/ns/pid")
    if namespace.exists():
        name += str(namespace.readlink())
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def _rename_unless_exists(file: Path, path: Path) -> None:
    """Rename ``file`` to ``path``, or remove it if that exists."""
    try:
        # Unlike a rename, a link fails if there is a file already.
        os.link(file, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        if not path.exists():
            file.replace(path)
    file.unlink(missing_ok=True)


def link_or_copy(file: Path, copy: Path) -> None:
    """Make a hard link to a file, which takes no disk; where that is not possible, copy it.

    Not atomic. Whoever changes one of the two would change the other.
    """
    try:
        os.link(file, copy)
    except OSError:  # another file system, or one without links
        shutil.copyfile(file, copy)


def write_bytes(path: Path, data: bytes, *, replace: bool = True) -> Path:
    """Write ``data`` to ``path`` atomically, creating its folder if needed; see `new_file`."""
    with new_file(path, replace=replace) as file:
        file.write(data)
    return path


def write_text(path: Path, text: str) -> Path:
    """Write ``text`` as UTF-8, atomically; see `new_file`."""
    return write_bytes(path, text.encode("utf-8"))


def write_json(
    path: Path,
    value: object,
    *,
    indent: int | None = 1,
    replace: bool = True,
) -> Path:
    """Write strict JSON, atomically; see `new_file`.

    Raises:
        ValueError: a NaN or infinity anywhere in ``value``.
    """
    text = json.dumps(value, allow_nan=False, indent=indent) + "\n"
    return write_bytes(path, text.encode("utf-8"), replace=replace)


def read_json(path: Path, *, unique_names: bool = False) -> Any:
    """Read strict JSON; see `decoded_json`."""
    return decoded_json(path.read_bytes(), file=path, unique_names=unique_names)


def decoded_json(content: bytes, *, file: Path, unique_names: bool = False) -> Any:
    """Return the value of strict JSON.

    Args:
        content: that of the file.
        file: named in the error.
        unique_names: whether to refuse an object that has a name twice, of which each reader takes
            another value.

    Raises:
        ValueError: not UTF-8, not JSON, NaN or infinity, or too many digits; names the file.
    """
    try:
        text = content.decode("utf-8")
        if unique_names:
            return parse_json(text)
        return json.loads(text, parse_constant=refused)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file}: invalid JSON ({error})") from None


def may_replace(target: Path, *, mark: str) -> bool:
    """Return whether ``target`` is free, an empty folder, or a folder that holds ``mark``."""
    if target.is_symlink():
        return False
    if not target.exists():
        return True
    if not target.is_dir():
        return False
    return (target / mark).is_file() or not any(target.iterdir())


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """Create a folder that is renamed to ``target`` when the block succeeds.

    An existing ``target`` is exchanged with the new folder in one step. Where the system cannot do
    that (some network file systems), a kill between two renames leaves no folder. If the block
    raises, ``target`` is unchanged, and the new folder is removed.

    Raises:
        OSError: a file cannot be written; names it as if it were in ``target`` already.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    sweep_leftovers(target)
    temporary = _temporary_path(target)
    try:
        with errors_naming(target, instead_of=temporary):
            temporary.mkdir(mode=0o700)
            yield temporary
            # On disk before the rename, as for a file.
            _sync_tree(temporary)
            temporary.chmod(0o755)
            _move_or_exchange(temporary, target)
        sync_folder(target.parent)
    finally:  # the failed or the old folder; if it stays, it is removed later
        shutil.rmtree(temporary, ignore_errors=True)


def _move_or_exchange(folder: Path, target: Path) -> None:
    """Rename ``folder`` to ``target``; a previous ``target`` is then at ``folder``, or removed."""
    if not target.exists():
        folder.rename(target)
        return
    if _exchange(folder, target):
        return
    # In two steps, where the system cannot exchange two folders in one.
    previous = folder.with_suffix(_OLD)
    target.rename(previous)
    try:
        folder.rename(target)
    except BaseException:
        previous.rename(target)
        raise
    shutil.rmtree(previous, ignore_errors=True)


def _exchange(folder: Path, target: Path) -> bool:
    """Exchange the names of two folders atomically; return False where this is not possible."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    name, other_name = os.fsencode(folder), os.fsencode(target)
    # Python's own functions tell audit hooks of a rename; those of the C library do not.
    sys.audit("os.rename", folder, target, -1, -1)
    if hasattr(libc, "renameat2"):  # Linux
        # Each name is relative to a folder, here the working directory.
        status = libc.renameat2(_WORKING_DIRECTORY, name, _WORKING_DIRECTORY, other_name, _EXCHANGE)
    elif hasattr(libc, "renamex_np"):  # macOS
        status = libc.renamex_np(name, other_name, _EXCHANGE)
    else:
        return False
    return bool(status == 0)


def _sync_tree(folder: Path) -> None:
    """Flush all files and directory entries below ``folder``."""
    for parent, _, names in os.walk(folder):
        for name in names:
            file = Path(parent, name)
            with file.open("rb") as handle, errors_naming(file):
                os.fsync(handle.fileno())
        sync_folder(Path(parent))


def append_durably(file: Path, content: bytes, *, if_cut: str) -> None:
    """Append to a file with one system call, and flush it to disk.

    So the lines of two processes do not mix. The file and its folder are created if needed.

    Raises:
        OSError: only a part was written; names the file, then says ``if_cut``.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        if os.write(handle, content) != len(content):
            raise OSError(f"{file}: {if_cut}")
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries, so that a rename survives a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with errors_naming(folder):
            os.fsync(handle)
    finally:
        os.close(handle)


def canonical(value: object) -> bytes:
    """Serialise a JSON value canonically: sorted keys, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def sha256_json(value: object) -> str:
    """Hex digest of ``canonical(value)``."""
    return hashlib.sha256(canonical(value)).hexdigest()


def sha256_file(path: Path) -> str:
    """Hex digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


FileStamp = list[str | int]


def file_stamp(file: Path) -> FileStamp:
    """Return a file's path, inode, size and times, which change whenever its content does."""
    status = file.stat()
    return [
        str(file.resolve()),
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,  # unlike the other time, no program can set it
    ]


def without_ctime(stamp: FileStamp) -> FileStamp:
    """Return a `file_stamp` without the ctime, which also links, permissions and names change."""
    return stamp[:-1]


_POLL_SECONDS = 0.1  # between two tries


def lock(handle: int) -> bool | None:
    """Lock an open file or folder and return whether that worked; None if locks are unsupported."""
    try:
        return lock_descriptor(handle, blocking=False)
    except OSError:
        return None


@contextmanager
def exclusive_lock(
    path: Path,
    *,
    purpose: str = "writes",
    on_wait: Callable[[], object] = lambda: None,
    give_up: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Hold an exclusive lock on what this thread does with ``path`` during a block.

    Waits for the process that holds it, even a paused one. A nested lock for the same path must
    differ in its ``purpose``.

    Args:
        path: a file or folder, which need not exist; the lock is a file next to it.
        purpose: part of the lock's name.
        on_wait: called once if the lock is held by another process.
        give_up: called while waiting; if it returns True, the block runs without the lock.
    """
    file_lock = _file_lock(path, purpose)
    with suppress(OSError):  # given up, a read-only folder, a full disk, no locks
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            file_lock.acquire(blocking=False)
        except Timeout:
            # Another process has it.
            on_wait()
            file_lock.acquire(poll_interval=_POLL_SECONDS, cancel_check=give_up)
    try:
        yield
    finally:
        _release(file_lock)


@contextmanager
def claim(path: Path, *, purpose: str) -> Iterator[bool]:
    """Claim work on ``path`` for a block; yield whether it is ours, or another process has it.

    A claim ends with its process, however that dies. Where a file cannot be locked, every process
    has the claim, and the same work may be done twice.

    Args:
        path: a file or folder, which need not exist; the lock is a file next to it.
        purpose: part of the lock's name.
    """
    file_lock = _file_lock(path, purpose)
    is_ours = True
    with suppress(OSError):  # a read-only folder, a full disk, no locks
        try:
            file_lock.acquire(blocking=False)
        except Timeout:
            is_ours = False
    try:
        yield is_ours
    finally:
        _release(file_lock)


def _file_lock(path: Path, purpose: str) -> FileLock:
    lock_file = path.with_name(f".{path.name}.{purpose}.lock")
    # No marker file (soft) where locks are unsupported: a killed process would leave it forever.
    return FileLock(lock_file, thread_local=False, fallback_to_soft=False)


def _release(file_lock: FileLock) -> None:
    """Remove the file of a lock that this process holds, and release it."""
    if file_lock.is_locked:
        # Whoever opens it now notices that it is gone.
        Path(file_lock.lock_file).unlink(missing_ok=True)
        file_lock.release()
