"""Read a .npy file of vectors block by block.

Shapes: N rows, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["check_npy", "fill", "read_blocks"]


def read_blocks(file: Path, size: int) -> Iterator[NDArray[np.float32]]:
    """Yield blocks (size, D) of a .npy file of float32 (N, D).

    The file is read, not memory-mapped: truncating a mapped file kills the process, whereas
    reading a truncated file raises.

    Raises:
        ValueError: the file is not such a file, or has fewer rows than its header says.
    """
    rows, dimension, offset = _header(file)
    if file.stat().st_size < offset + 4 * rows * dimension:
        raise _truncated(file, rows, dimension)
    with file.open("rb", buffering=0) as handle:
        handle.seek(offset)
        for start in range(0, rows, size):
            part = np.empty((min(size, rows - start), dimension), dtype=np.float32)
            if not fill(part, handle):
                raise _truncated(file, rows, dimension)
            yield part


def _truncated(file: Path, rows: int, dimension: int) -> ValueError:
    return ValueError(f"{file} is truncated: expected {rows} rows of {dimension} float32")


def check_npy(file: Path, *, rows: int, dimension: int) -> None:
    """Refuse anything but a whole .npy file of float32 (``rows``, ``dimension``).

    Raises:
        ValueError: no such file, another shape, or a size that is not the header's.
    """
    if not file.is_file():
        raise ValueError(f"{file}: no such file")
    *shape, offset = _header(file)
    if shape != [rows, dimension]:
        raise ValueError(f"{file}: expected float32 ({rows}, {dimension}); got {tuple(shape)}")
    size, expected = file.stat().st_size, offset + 4 * rows * dimension
    if size != expected:
        raise ValueError(f"{file}: expected {expected:,} bytes; got {size:,}")


def fill(vectors: NDArray[np.float32], handle: FileIO) -> bool:
    """Fill ``vectors`` from the file; return False if the file ends before that."""
    target, done = vectors.view(np.uint8).reshape(-1), 0
    while done < len(target):
        count = handle.readinto(target[done:].data)
        if not count:
            return False
        done += count
    return True


def _header(file: Path) -> tuple[int, int, int]:
    """Return N, D and the offset of the data of a .npy file of float32 (N, D).

    Raises:
        ValueError: the file is not such a file.
    """
    readers: dict[tuple[int, int], Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    with file.open("rb") as handle:
        try:
            shape, column_major, dtype = readers[np.lib.format.read_magic(handle)](handle)
        except (ValueError, KeyError, TypeError, SyntaxError, TokenError) as error:
            raise ValueError(f"{file} is not a .npy file ({error})") from None
        offset = handle.tell()
    if len(shape) != 2 or column_major or dtype != np.dtype("<f4"):
        raise ValueError(f"{file}: expected float32 (N, D) in C order; got {dtype} {shape}")
    return shape[0], shape[1], offset
