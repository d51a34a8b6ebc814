"""Let processes that write the same results take turns.

A lock ends with its process however that dies, so none is ever stale, and no number of a process
is trusted. Processes on several machines take turns if their file system passes locks on, as NFS
does from version 4. Where a file cannot be locked or created, there are no turns: every file is
still replaced whole, and the last writer wins.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from qwen3nb.utils.files.file_locks import lock

__all__ = ["turn"]

_SECONDS = 0.1  # between two tries
_WITHOUT = -1  # instead of an open file, where there are no locks


@contextmanager
def turn(
    path: Path,
    *,
    what: str = "writes",
    waiting: Callable[[], object] = lambda: None,
    give_up: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Keep other processes from what this one does with ``path``, for the length of a block.

    Waits for a process that has its turn, even a paused one. A turn inside a turn for the same
    must differ in ``what``, or it waits for ever.

    Args:
        path: a file or folder, which need not exist; the lock is a file beside it.
        what: what is done, for the lock's name.
        waiting: called once if it is another process's turn.
        give_up: asked while waiting; if it says so, the block runs out of turn.
    """
    file = path.with_name(f".{path.name}.{what}.lock")
    handle = _locked(file)
    if handle is None:
        waiting()
    while handle is None and not give_up():
        time.sleep(_SECONDS)
        handle = _locked(file)
    try:
        yield
    finally:
        if handle not in (None, _WITHOUT):
            _release(handle, file)


def _locked(file: Path) -> int | None:
    """Return an open and locked file, or `_WITHOUT`; None if another process has it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:  # a read-only folder, a full disk
        return _WITHOUT
    got = lock(handle)
    if got and os.fstat(handle).st_nlink:  # else its last holder has removed it
        return handle
    os.close(handle)
    return _WITHOUT if got is None else None


def _release(handle: int, file: Path) -> None:
    """Remove the file while it is locked; then unlock it, as a forked child may have it open."""
    import fcntl

    try:
        file.unlink(missing_ok=True)
        fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)
