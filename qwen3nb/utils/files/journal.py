"""Journal finished work, one line per piece, so that a crash loses one piece at most.

Each line is preceded by a line break, has a checksum, is written with one system call and
flushed to disk before the next piece begins. A line that was truncated by a crash, or
garbled by a second writer, fails its checksum, and its piece is repeated.

Memory holds the keys and where their lines are; a value is read when it is needed.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_LINE = b"\n%08x %s\n"


class Journal:
    """Values by key in ``file``, which is created on the first write."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._lines: dict[str, tuple[int, int]] = {}  # offset and length
        if file.is_file():
            with file.open("rb") as handle:
                offset = 0
                for line in handle:
                    self._index(line, offset)
                    offset += len(line)

    def keys(self) -> Set[str]:
        """Return the keys of all whole lines."""
        return self._lines.keys()

    def get(self, key: str) -> Any | None:
        """Return the value stored under ``key``, or None."""
        if key not in self._lines or not self.file.is_file():
            return None
        offset, length = self._lines[key]
        with self.file.open("rb") as handle:
            handle.seek(offset)
            data = _checked(handle.read(length))
        stored, value = json.loads(data) if data is not None else (None, None)
        return value if stored == key else None

    def add(self, key: str, value: Any) -> None:
        """Store ``value`` durably before returning."""
        end, length = append(self.file, key, value)
        self._lines[key] = (end - length + 1, length - 1)  # without the first line break

    def _index(self, line: bytes, offset: int) -> None:
        if line == b"\n":
            return
        data = _checked(line)
        if data is None:
            return
        key, _ = json.JSONDecoder().raw_decode(data.decode("ascii"), 1)
        self._lines[key] = (offset, len(line))


@contextmanager
def noted(file: Path, key: str) -> Iterator[None]:
    """Note in a journal that a block does something: False before, and True behind it."""
    append(file, key, False)
    yield
    append(file, key, True)


def append(file: Path, key: str, value: Any) -> tuple[int, int]:
    """Add to a journal that is not read; return where its line ends, and its length."""
    data = json.dumps([key, value], sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        line = _LINE % (zlib.crc32(data), data)
        if os.write(handle, line) != len(line):
            raise OSError(f"{file}: only a part of a line was written")
        os.fsync(handle)
        return os.lseek(handle, 0, os.SEEK_CUR), len(line)
    finally:
        os.close(handle)


def _checked(line: bytes) -> bytes | None:
    """Return the data of a line; None if they are not those of its checksum."""
    checksum, _, data = line.rstrip(b"\n").partition(b" ")
    return data if checksum == b"%08x" % zlib.crc32(data) else None
