"""Lock open files and folders, so that other processes know that their writer lives.

A lock goes with its process, whatever ends it. Local file systems are exact about it; network
file systems differ, so a lock is trusted on one machine only.
"""

__all__ = ["lock"]


def lock(handle: int) -> bool | None:
    """Lock an open file or folder and return whether that worked; None if it has no locks."""
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
