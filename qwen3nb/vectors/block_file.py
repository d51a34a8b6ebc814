"""The one format of vectors on disk: ``.npy`` files of float32 (N, D), described by a manifest.

The embedding cache, ``encode --out x.npy``, the parts of ``encode --shards`` and temporary
stores of vectors all use it, so that `numpy.load` reads any of them. Files are read, never
memory-mapped: truncating a mapped file kills the process, whereas reading a truncated file raises.

A manifest is a JSON object with a schema number and a digest of its own content.

Shapes: N rows, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from qwen3nb.utils.atomic_files import read_json, sha256_json, write_json

HEADER = 128  # bytes of the header that is written: room for any number of rows
SCHEMA = 1  # of manifests
Floats = NDArray[np.float32]


def npy_header(rows: int, dimension: int) -> bytes:
    """Return a .npy header of `HEADER` bytes, version 1.0: magic, length, padded fields."""
    shape = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {dimension}), }}"
    start = b"\x93NUMPY\x01\x00" + (HEADER - 10).to_bytes(2, "little")
    return start + shape.encode("ascii").ljust(HEADER - 11) + b"\n"


def _read_header(file: Path) -> tuple[int, int, int]:
    """Return N, D and the offset of the data of a .npy file of float32, or raise ValueError."""
    with file.open("rb") as handle:
        try:
            major, _ = np.lib.format.read_magic(handle)
            read: Any = getattr(np.lib.format, f"read_array_header_{major}_0")
            shape, column_major, dtype = read(handle)
        except (ValueError, AttributeError, TypeError, SyntaxError, TokenError) as error:
            raise ValueError(f"{file} is not a .npy file ({error})") from None
        offset = handle.tell()
    if len(shape) != 2 or column_major or dtype != np.dtype("<f4"):
        raise ValueError(f"{file}: expected float32 (N, D) in C order; got {dtype} {shape}")
    return shape[0], shape[1], offset


def check_npy(file: Path, *, rows: int, dimension: int) -> None:
    """Raise ValueError for all but a whole .npy file of float32 (``rows``, ``dimension``)."""
    if not file.is_file():
        raise ValueError(f"{file}: no such file")
    *shape, offset = _read_header(file)
    if shape != [rows, dimension]:
        raise ValueError(f"{file}: expected float32 ({rows}, {dimension}); got {tuple(shape)}")
    size, expected = file.stat().st_size, offset + 4 * rows * dimension
    if size != expected:
        raise ValueError(f"{file}: expected {expected:,} bytes; got {size:,}")


def read_blocks(file: Path, size: int) -> Iterator[Floats]:
    """Yield blocks (size, D) of a .npy file of float32 (N, D); raise ValueError for any other."""
    rows, dimension, offset = _read_header(file)
    truncated = f"{file} is truncated: expected {rows} rows of {dimension} float32"
    if file.stat().st_size < offset + 4 * rows * dimension:
        raise ValueError(truncated)
    with file.open("rb", buffering=0) as handle:
        handle.seek(offset)
        for start in range(0, rows, size):
            part = np.empty((min(size, rows - start), dimension), dtype=np.float32)
            if not fill(part, handle):
                raise ValueError(truncated)
            yield part


def fill(rows: NDArray[Any], handle: FileIO) -> bool:
    """Fill ``rows`` from where ``handle`` stands; return False if the file ends before that."""
    target = rows.view(np.uint8).reshape(-1).data
    while target:
        count = handle.readinto(target)
        if not count:
            return False
        target = target[count:]
    return True


def write_all(rows: NDArray[Any], handle: BinaryIO | FileIO) -> None:
    """Write ``rows`` where ``handle`` stands, of which an unbuffered write may take a part."""
    data = np.ascontiguousarray(rows).view(np.uint8).reshape(-1).data
    while data:
        data = data[handle.write(data) :]


def write_manifest_fields(file: Path, fields: Mapping[str, Any], *, replace: bool = True) -> None:
    """Write a manifest of ``fields`` with its digest; without ``replace``, unless there is one."""
    content = {"schema": SCHEMA, **fields}
    write_json(file, {**content, "check": sha256_json(content)}, replace=replace)


def read_manifest_fields(file: Path) -> dict[str, Any]:
    """Return the fields of a manifest; raise ValueError for a foreign or changed one."""
    value = read_json(file)
    schema = value.pop("schema", None) if isinstance(value, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"{file}: expected a manifest of schema {SCHEMA}; got {schema}")
    if value.pop("check", None) != sha256_json({"schema": SCHEMA, **value}):
        raise ValueError(f"{file}: changed since it was written")
    fields: dict[str, Any] = value
    return fields
