"""Bounds of the embedding cache: a limit in bytes, and the free space that it leaves.

``QWEN3NB_CACHE_LIMIT`` (``--cache-limit``), such as ``50GB``, bounds the vectors of all models.
When they reach it, the segments that were unused for longest are removed, of whatever model,
but none that was used since this process began, nor one that is being written. If those alone
reach the limit, nothing more is stored: what is there then serves the next run, while vectors
that displace each other would serve none. Without a limit, the disk is one: `RESERVE` of it, or
`SHARE`, stays free.

A file's modification time is the time of its last use.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from qwen3nb.models.cache.byte_sizes import parse_size
from qwen3nb.models.cache.segments import INDEX, MOST_BYTES, SEGMENT, remove_segment

__all__ = ["LIMIT", "Room", "shrink", "total_bytes"]

LIMIT = "QWEN3NB_CACHE_LIMIT"
RESERVE = 10**9  # bytes of the disk that stay free
SHARE = 0.02  # or this share of a small disk
_PARTS = 16  # segments that a limit holds at least
_STEP = 64  # the folder is measured again after 1/64 of the limit


def _limit() -> int | None:
    """Return the limit of the environment in bytes, or None."""
    text = os.environ.get(LIMIT, "")
    try:
        return parse_size(text) if text else None
    except ValueError as error:
        raise ValueError(f"{LIMIT}: {error}") from None


class Room:
    """The bytes that may still be written to a cache's folder.

    Attributes:
        limit: bytes, or None.
        segment_bytes: bytes from which a segment is full; a limit makes segments smaller.
    """

    def __init__(self, folder: Path) -> None:
        """Bound ``folder``, which holds the folders of all models.

        Raises:
            ValueError: ``QWEN3NB_CACHE_LIMIT`` is not a size.
        """
        self.limit = _limit()
        self.segment_bytes = min(MOST_BYTES, (self.limit or MOST_BYTES * _PARTS) // _PARTS)
        self._folder = folder
        self._granted = 0  # bytes that may be written before the folder is measured again

    def reserve(self, size: int) -> None:
        """Make room for ``size`` bytes, removing what was unused for longest if needed.

        Raises:
            OSError: there is none; nothing was removed that this process uses.
        """
        _require_free(self._folder, size)
        if self.limit is None:
            return
        if size > self._granted:
            step = max(size, self.limit // _STEP)
            total = shrink(self._folder, to=self.limit - step, before=_process_start())
            self._granted = min(step, self.limit - total)
        if size > self._granted:
            raise OSError(
                f"what this run uses fills the limit of {self.limit / 1e9:g} GB ({LIMIT}, "
                "--cache-limit)"
            )
        self._granted -= size


def _require_free(folder: Path, size: int) -> None:
    nearest = next(each for each in (folder, *folder.resolve().parents) if each.exists())
    disk = shutil.disk_usage(nearest)
    reserve = min(RESERVE, int(SHARE * disk.total))
    if disk.free - size < reserve:
        raise OSError(
            f"the disk is nearly full: {disk.free / 1e9:.2f} GB are free, and {reserve / 1e9:.2f} "
            "GB stay so"
        )


def total_bytes(folder: Path) -> int:
    """Return the bytes of all files in a cache's folder."""
    return sum(size for _, size, _ in _files(folder))


def shrink(folder: Path, *, to: int, before: float | None = None) -> int:
    """Remove segments, least recently used first, until ``folder`` holds at most ``to`` bytes.

    Those that a process is writing are kept.

    Args:
        folder: holds the folders of all models.
        to: bytes.
        before: keep what was used since this time, in seconds since 1970.

    Returns:
        The bytes that are left.
    """
    files = sorted(_files(folder), key=lambda each: each[2])
    sizes = {file: size for file, size, _ in files}
    total = sum(sizes.values())
    for file, _, used in files:
        if total <= to or (before is not None and used >= before):
            break
        total -= sum(sizes.get(each, 0) for each in _remove(file))
    return total


def _remove(file: Path) -> list[Path]:
    """Remove a segment with its index; return what was removed."""
    removed = file.suffix == SEGMENT and remove_segment(file)
    return [file, file.with_suffix(INDEX)] if removed else []


def _files(folder: Path) -> Iterator[tuple[Path, int, float]]:
    """Yield all files with size and time of last use."""
    for parent, _, names in os.walk(folder):
        for name in names:
            file = Path(parent, name)
            try:
                status = file.stat()
            except FileNotFoundError:  # removed in the meantime
                continue
            yield file, status.st_size, status.st_mtime


def _process_start() -> float:
    import psutil

    return min(float(psutil.Process().create_time()), time.time())
