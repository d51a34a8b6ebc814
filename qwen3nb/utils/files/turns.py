"""Locks: processes that write the same results take turns.

A lock (`flock`, by way of filelock) ends with its process however that dies, so none is ever stale.
Processes on several machines take turns if their file system passes locks on, as NFS does from
version 4. Where a file cannot be locked or created, there are no turns: every file is still
replaced whole, and the last writer wins.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout, lock_descriptor

_SECONDS = 0.1  # between two tries


def lock(handle: int) -> bool | None:
    """Lock an open file or folder and return whether that worked; None if it has no locks."""
    try:
        return lock_descriptor(handle, blocking=False)
    except OSError:
        return None


@contextmanager
def turn(
    path: Path,
    *,
    what: str = "writes",
    waiting: Callable[[], object] = lambda: None,
    give_up: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """Keep others from what this thread does with ``path``, for the length of a block.

    Waits for a process that has its turn, even a paused one. A turn inside a turn for the same
    must differ in ``what``.

    Args:
        path: a file or folder, which need not exist; the lock is a file next to it.
        what: what is done, for the lock's name.
        waiting: called once if it is another's turn.
        give_up: asked while waiting; if it says so, the block runs out of turn.
    """
    file = path.with_name(f".{path.name}.{what}.lock")
    held = FileLock(file, thread_local=False, fallback_to_soft=False)
    waits = False
    while not held.is_locked:
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            held.acquire(blocking=False)
        except Timeout:
            if not waits:
                waiting()
            waits = True
            if give_up():
                break
            time.sleep(_SECONDS)
        except OSError:  # a read-only folder, a full disk, no locks
            break
    try:
        yield
    finally:
        if held.is_locked:
            file.unlink(missing_ok=True)  # who opens it now, sees that it is gone
            held.release()
