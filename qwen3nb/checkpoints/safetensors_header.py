"""Read the header of a safetensors file, without its data.

The header is checked here, before any library opens the file. The safetensors library
accepts a name that appears twice, and its errors name neither the file nor the tensor.
https://huggingface.co/docs/safetensors#format
"""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

from qwen3nb.checkpoints.types import (
    HEADER_LIMIT,
    ITEM_SIZES,
    CheckpointError,
    TensorEntry,
    check_name,
    file_size,
    refuse_lookalikes,
)

__all__ = ["read_safetensors"]

_MOST_AXES = 64  # as in NumPy; the product of a million axes would take hours


def read_safetensors(file: Path) -> dict[str, TensorEntry]:
    """Return the tensors that a safetensors file declares, checked against its size.

    Raises:
        CheckpointError: the file is not a regular file, is truncated, is not safetensors
            (HTML pages and git-LFS pointers are recognised), has an unknown dtype, or
            declares byte ranges that do not match the shapes or the file.
    """
    size = file_size(file)
    with file.open("rb") as handle:
        head = handle.read(8)
        refuse_lookalikes(file, head)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else -1
        if not 2 <= length <= size - 8:
            raise CheckpointError(
                f"{file}: not a safetensors file, or truncated ({size} bytes); copy it again"
            )
        if length > HEADER_LIMIT:
            raise CheckpointError(
                f"{file}: the header has {length:,} bytes, expected at most {HEADER_LIMIT:,}; "
                "save the model in several files (max_shard_size of save_pretrained)"
            )
        header = _parsed(file, handle.read(length))
    _check_metadata(file, header.pop("__metadata__", {}))
    begin = 8 + length
    entries = {
        check_name(file, name): _entry(file, name, fields, begin) for name, fields in header.items()
    }
    _check_ranges(file, entries, begin=begin, size=size)
    return entries


def _parsed(file: Path, raw: bytes) -> dict[str, Any]:
    try:
        header = json.loads(raw, object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{file}: invalid safetensors header ({error})") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{file}: invalid safetensors header (not an object)")
    return header


def _check_metadata(file: Path, metadata: Any) -> None:
    """Refuse metadata that the safetensors library refuses, without naming the file."""
    strings = isinstance(metadata, dict) and all(isinstance(v, str) for v in metadata.values())
    if not strings:
        raise CheckpointError(f"{file}: its __metadata__ is no object of strings; save it again")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("duplicate name")
    return result


def _entry(file: Path, name: str, fields: Any, begin: int) -> TensorEntry:
    try:
        dtype, shape = fields["dtype"], tuple(fields["shape"])
        start, stop = fields["data_offsets"]
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{file}: malformed header entry for {name}") from None
    sizes = (*shape, start, stop)
    if len(shape) > _MOST_AXES or any(type(n) is not int or not 0 <= n < 1 << 63 for n in sizes):
        raise CheckpointError(f"{file}: malformed header entry for {name}")
    if not isinstance(dtype, str) or dtype not in ITEM_SIZES:
        raise CheckpointError(
            f"{file}: {name} has dtype {dtype!s:.40}; expected one of {', '.join(ITEM_SIZES)}"
        )
    expected = math.prod(shape) * ITEM_SIZES[dtype]
    if stop - start != expected:
        raise CheckpointError(
            f"{file}: {name} of dtype {dtype} and shape {shape!s:.80} needs {expected:,} bytes, "
            f"got {stop - start:,}"
        )
    return TensorEntry(file, name, dtype, shape, begin + start, begin + stop)


def _check_ranges(file: Path, entries: dict[str, TensorEntry], *, begin: int, size: int) -> None:
    """Check that the ranges cover everything after the header exactly once."""
    position = begin
    for entry in sorted(entries.values(), key=lambda entry: (entry.start, entry.stop)):
        if entry.start != position:
            kind = "overlaps the tensor before it" if entry.start < position else "follows a gap"
            raise CheckpointError(f"{file}: {entry.stored_name} {kind}")
        position = entry.stop
    if position != size:
        raise CheckpointError(
            f"{file}: the tensors end at byte {position}, the file at {size}; is it truncated?"
        )
