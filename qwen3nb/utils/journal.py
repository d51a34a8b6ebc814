"""Work done so far, one line per piece, so that a kill costs one piece at most.

A line is written in one go, behind a line break of its own, with a checksum, and flushed
to the disk before the next piece begins. A line that a kill cut short, or that two
writers garbled, fails its checksum and is done again.
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
        file: where the lines are; made when first written to.
        damaged: lines that failed their checksum when it was opened.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.damaged = 0
        self._known: dict[str, Any] = {}
        if file.is_file():
            for line in file.read_bytes().split(b"\n"):
                self._read(line)

    def get(self, key: str) -> Any | None:
        """What was done under ``key``, or None."""
        return self._known.get(key)

    def add(self, key: str, value: Any) -> None:
        """Keep ``value``, durably, before returning."""
        data = canonical([key, value])
        self.file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            line = b"\n%08x %s\n" % (zlib.crc32(data), data)
            if os.write(handle, line) != len(line):
                raise OSError(f"{self.file}: the disk took only a part of a line")
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
