"""Journal finished work, one line per piece, so that a crash loses one piece at most.

Each line is preceded by a line break, has a checksum, is written with one system call and
flushed to disk before the next piece begins. A line that was truncated by a crash, or
garbled by a second writer, fails its checksum, and its piece is repeated.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

from qwen3nb.utils.atomic_files import canonical

__all__ = ["Journal"]


class Journal:
    """Values by key in ``file``.

    Attributes:
        file: the journal; created on the first write.
        damaged: number of lines that failed their checksum on opening.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.damaged = 0
        self._known: dict[str, Any] = {}
        if file.is_file():
            for line in file.read_bytes().split(b"\n"):
                self._read(line)

    def get(self, key: str) -> Any | None:
        """Return the value stored under ``key``, or None."""
        return self._known.get(key)

    def add(self, key: str, value: Any) -> None:
        """Store ``value`` durably before returning."""
        data = canonical([key, value])
        self.file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            line = b"\n%08x %s\n" % (zlib.crc32(data), data)
            if os.write(handle, line) != len(line):
                raise OSError(f"{self.file}: only a part of a line was written")
            os.fsync(handle)
        finally:
            os.close(handle)
        self._known[key] = value

    def _read(self, line: bytes) -> None:
        if not line:
            return
        checksum, _, data = line.partition(b" ")
        if checksum != b"%08x" % zlib.crc32(data):
            self.damaged += 1
            return
        key, value = json.loads(data)
        self._known[key] = value
