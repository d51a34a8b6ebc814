"""Locks on files, by which processes on one set of results take turns.

A lock is `flock`'s: it ends with its process however that dies, so none is ever stale, and no
number of a process is trusted. A network file system that passes locks on (NFS from version 4)
holds them across machines. Where a file cannot be locked or written, there is no lock: every
file is still replaced whole, and the last writer wins.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["locked", "try_lock"]

_SECONDS = 0.1  # between two tries


@contextmanager
def locked(
    file: Path,
    *,
    waiting: Callable[[], object] = lambda: None,
    give_up: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Hold the lock ``.<name>.lock`` beside a file, which need not exist, during a block.

    Waits for a process that holds it, even a paused one; not re-entrant.

    Args:
        file: what the lock is for.
        waiting: called once if another process holds the lock.
        give_up: asked while waiting; if it says so, the block runs without the lock.
    """
    lock = file.with_name(f".{file.name}.lock")
    handle = _held(lock)
    if handle is None:
        waiting()
    while handle is None and not give_up():
        time.sleep(_SECONDS)
        handle = _held(lock)
    try:
        yield
    finally:
        if handle is not None and handle >= 0:
            _release(handle, lock)


def _held(lock: Path) -> int | None:
    """Return an open, locked file; -1 where there are no locks, None if another holds it."""
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:  # a read-only folder, a full disk
        return -1
    try:
        got = try_lock(handle)
        # The one who held it before may have removed the file.
        if got and os.fstat(handle).st_nlink:
            return handle
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return -1 if got is None else None


def _release(handle: int, lock: Path) -> None:
    """Remove the lock's file while it is held; unlock, since a forked child may have it open."""
    try:
        lock.unlink(missing_ok=True)
        try_unlock(handle)
    finally:
        os.close(handle)


def try_lock(handle: int) -> bool | None:
    """Lock an open file and return whether that worked; None if it cannot be locked at all."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def try_unlock(handle: int) -> None:
    """Unlock a file that `try_lock` has locked."""
    import fcntl

    fcntl.flock(handle, fcntl.LOCK_UN)
