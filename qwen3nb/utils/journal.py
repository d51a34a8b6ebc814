"""A journal of finished work, one line per item: a crash loses at most one item.

Each line is preceded by a line break, has a checksum, is written with one system call and flushed
to disk before the next item. A line that was truncated by a crash, or garbled by a second writer,
fails its checksum, and its item is repeated.

One journal stores digests of large files, which are then read only once. A file counts as unchanged
if path, inode, size and times are equal; its ctime cannot be set by a program. A file that changed
within the resolution of the file system's clock before it was read is not stored, as another change
might have the same time. If the journal cannot be written or an entry is damaged, the file is read
again.
"""

import json
import logging
import time
import zlib
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from qwen3nb import paths
from qwen3nb.utils.atomic_files import append_durably, canonical, file_stamp, sha256_json

_LINE = b"\n%08x %s\n"


class Journal:
    """Values by key in ``file``, which is created on the first write."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._values: dict[str, Any] = {}
        self._finished: set[str] = set()
        # Numbers of the lines that fail their checksum or have another form, without those cut by a
        # crash.
        self.damaged: list[int] = []
        if file.is_file():
            self._read(file.read_bytes())

    def _read(self, content: bytes) -> None:
        for number, line in enumerate(content.split(b"\n"), start=1):
            checksum, _, data = line.partition(b" ")
            if data and checksum == b"%08x" % zlib.crc32(data):
                try:
                    key, value = json.loads(data)
                    self._store(str(key), value)
                except (ValueError, TypeError, RecursionError):  # written by another program
                    self.damaged.append(number)
            elif line.endswith(b"]"):
                self.damaged.append(number)

    def _store(self, key: str, value: object) -> None:
        """Store a value in the order of the last line of each key."""
        self._values.pop(key, None)
        self._values[key] = value
        if value is True:
            self._finished.add(key)

    def keys(self) -> Set[str]:
        """Return the keys of all valid lines, in the order in which they were last written."""
        return self._values.keys()

    def get(self, key: str) -> Any | None:
        """Return the value stored under ``key``, or None."""
        return self._values.get(key)

    def was_finished(self, key: str) -> bool:
        """Return whether a block of `noted` was ever finished, whatever was appended since."""
        return key in self._finished

    def add(self, key: str, value: object) -> None:
        """Store ``value`` durably before returning."""
        append(self.file, key, value)
        self._store(key, value)


@contextmanager
def noted(file: Path, key: str) -> Iterator[None]:
    """Record in a journal that a block starts (False) and finishes (True)."""
    append(file, key, False)
    yield
    append(file, key, True)


def append(file: Path, key: str, value: object) -> None:
    """Append to a journal without reading it."""
    append_durably(file, line_of(key, value), if_cut="only a part of a line was written")


def line_of(key: str, value: object) -> bytes:
    """Return the line of a journal, with its checksum: such as 1a2b3c4d ["key",true]."""
    data = canonical([key, value])
    return _LINE % (zlib.crc32(data), data)


log = logging.getLogger(__name__)
TICK = 20_000_000  # nanoseconds: file systems' clocks advance by 10 ms at most


def remembered_digest(files: Sequence[Path], compute: Callable[[], str], *, kind: str = "") -> str:
    """Return the stored digest of ``files``, or ``compute()`` and store it.

    Args:
        files: the files.
        compute: computes the digest.
        kind: distinguishes several digests of the same files.
    """
    key = _key(files, kind)
    journal = paths.cache() / "digests.journal"
    with suppress(OSError):  # then it is computed
        # The key has sizes and times of the files: a changed one is not found.
        stored = Journal(journal).get(key)
        if stored is not None:
            return str(stored)
    # A file changed just now may change again without another time.
    are_settled = all(_is_settled(file) for file in files)
    digest = compute()
    were_replaced_meanwhile = _key(files, kind) != key
    if are_settled and not were_replaced_meanwhile:
        try:
            append(journal, key, digest)
        except OSError as error:
            log.warning("%s: not written (%s); digests are computed again", journal, error)
    return digest


def _is_settled(file: Path) -> bool:
    """Return whether the next change of a file will show in its times."""
    return time.time_ns() - file.stat().st_ctime_ns > TICK


def _key(files: Sequence[Path], kind: str = "") -> str:
    stamps = [file_stamp(file) for file in sorted(files)]
    if kind:
        return sha256_json([kind, stamps])
    return sha256_json(stamps)
