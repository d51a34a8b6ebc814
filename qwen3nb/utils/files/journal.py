"""Journal finished work, one line per piece, so that a crash loses one piece at most.

Each line is preceded by a line break, has a checksum, is written with one system call and
flushed to disk before the next piece begins. A line that was truncated by a crash, or
garbled by a second writer, fails its checksum, and its piece is repeated.
"""

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
        self._values: dict[str, Any] = {}
        for line in file.read_bytes().split(b"\n") if file.is_file() else ():
            checksum, _, data = line.partition(b" ")
            if data and checksum == b"%08x" % zlib.crc32(data):
                key, value = json.loads(data)
                self._values[key] = value

    def keys(self) -> Set[str]:
        """Return the keys of all whole lines."""
        return self._values.keys()

    def get(self, key: str) -> Any | None:
        """Return the value stored under ``key``, or None."""
        return self._values.get(key)

    def add(self, key: str, value: Any) -> None:
        """Store ``value`` durably before returning."""
        append(self.file, key, value)
        self._values[key] = value


@contextmanager
def noted(file: Path, key: str) -> Iterator[None]:
    """Note in a journal that a block does something: False before, and True behind it."""
    append(file, key, False)
    yield
    append(file, key, True)


def append(file: Path, key: str, value: Any) -> None:
    """Add to a journal that is not read."""
    data = json.dumps([key, value], sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    file.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        line = _LINE % (zlib.crc32(data), data)
        if os.write(handle, line) != len(line):
            raise OSError(f"{file}: only a part of a line was written")
        os.fsync(handle)
    finally:
        os.close(handle)
