"""Errors of the system about files: which file, and what to do."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["explained", "named"]

_TO_DO = {
    errno.ENOSPC: "free some space there, then run the same command again",
    errno.EDQUOT: "free some of your quota there, then run the same command again",
    errno.EROFS: "choose a folder that can be written",
    errno.EACCES: "choose another folder, or ask for its permissions",
    errno.EPERM: "choose another folder, or ask for its permissions",
    errno.EIO: "the disk or its connection fails; check it, or choose a folder on another disk",
    errno.EMFILE: "allow more open files (ulimit -n 4096), then run the same command again",
    errno.ENFILE: "close other programs, then run the same command again",
}


@contextmanager
def named(path: Path, *, instead_of: Path | None = None) -> Iterator[None]:
    """Let an error of the block that names no file name ``path``.

    One that names ``instead_of``, a temporary file or folder, or a file below it, names ``path``
    or the file below that.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        name = error.filename2 or error.filename
        if name is None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        if instead_of is not None and Path(str(name)).is_relative_to(instead_of):
            final = path / Path(str(name)).relative_to(instead_of)
            raise OSError(error.errno, error.strerror, str(final)) from error
        raise


def explained(error: OSError) -> str:
    """Return one line: the file, the reason, and what to do about it.

    >>> explained(OSError(errno.ENOSPC, "No space left on device", "/data/v.npy"))
    '/data/v.npy: No space left on device; free some space there, then run the same command again'
    """
    name = error.filename2 or error.filename
    if error.errno not in _TO_DO or name is None:
        return str(error)
    return f"{name}: {error.strerror}; {_TO_DO[error.errno]}"
