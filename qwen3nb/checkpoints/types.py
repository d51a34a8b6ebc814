"""Shared types: the error, and the position of a tensor in its file."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

FLOATS = {"F32": 4, "BF16": 2, "F16": 2}  # dtypes that weights may have, and their sizes in bytes
ITEM_SIZES = {
    **FLOATS,
    **dict.fromkeys(("F64", "I64", "U64", "C64"), 8),
    **dict.fromkeys(("I32", "U32"), 4),
    **dict.fromkeys(("I16", "U16"), 2),
    **dict.fromkeys(("BOOL", "I8", "U8", "F8_E4M3", "F8_E5M2"), 1),
}


class CheckpointError(ValueError):
    """An unusable checkpoint; the message says what is wrong, where, and what to do about it."""


@dataclass(frozen=True)
class TensorEntry:
    """The position of a tensor in a file."""

    file: Path  # the weight file
    stored_name: str  # the name in the file, including any wrapper prefixes
    dtype: str  # the dtype in the notation of safetensors, such as ``F32`` or ``BF16``
    shape: tuple[int, ...]  # the shape
    start: int  # offset of the first byte in the file
    stop: int  # offset after the last byte

    @property
    def count(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


def check_name(file: Path, name: object) -> str:
    """Return the ``name`` of a tensor, which is shown in messages and becomes part of digests.

    Raises:
        CheckpointError: not a string, an empty one, or one with control characters.
    """
    if not isinstance(name, str) or not name or not name.isprintable():
        raise CheckpointError(f"{file}: {name!a:.80} is not the name of a tensor")
    return name


@contextmanager
def open_weights(file: Path) -> Iterator[tuple[BinaryIO, int]]:
    """Open a weight file for the block, at its first byte; give its size in bytes, too.

    Raises:
        CheckpointError: not a regular file, or a git-LFS pointer or an HTML page in its place.
    """
    if not file.is_file():
        raise CheckpointError(f"{file}: no such file, or not a regular file")
    with file.open("rb") as handle:
        head = handle.read(8)
        if head.startswith(b"version "):
            raise CheckpointError(f"{file}: a git-LFS pointer, not weights; run `git lfs pull`")
        if head.lstrip().lower().startswith((b"<!doc", b"<html")):
            raise CheckpointError(f"{file}: an HTML page, not weights; download it again")
        handle.seek(0)
        yield handle, os.fstat(handle.fileno()).st_size
