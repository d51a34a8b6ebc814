"""Read and digest the bytes of tensors.

Files are read, never mapped: truncating a mapped file kills the process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from qwen3nb.checkpoints.types import FLOATS, CheckpointError, TensorEntry

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "check_float",
    "combined_digest",
    "not_finite_error",
    "read_exactly",
    "read_tensor",
    "sha256_of",
    "torch_dtypes",
    "truncated_error",
]

_BLOCK = 1 << 20


def read_tensor(entry: TensorEntry) -> Tensor:
    """Return a weight in its stored dtype.

    Raises:
        CheckpointError: the dtype is not one of `FLOATS` (integers and unscaled 8-bit
            floats are not weights), or a value is NaN or infinite.
    """
    import torch

    check_float(entry)
    buffer = bytearray(entry.stop - entry.start)
    with entry.file.open("rb") as file:
        file.seek(entry.start)
        if file.readinto(buffer) != len(buffer):
            raise truncated_error(entry)
    if not buffer:
        return torch.empty(entry.shape, dtype=torch_dtypes()[entry.dtype])
    tensor = torch.frombuffer(buffer, dtype=torch_dtypes()[entry.dtype]).reshape(entry.shape)
    if not tensor.isfinite().all():
        raise not_finite_error(entry)
    return tensor


def read_exactly(descriptor: int, buffer: memoryview, offset: int) -> bool:
    """Fill ``buffer`` from a file at ``offset``; return False if the file ends before that."""
    done = 0
    while done < len(buffer):
        count = os.preadv(descriptor, [buffer[done:]], offset + done)
        if count == 0:
            return False
        done += count
    return True


def combined_digest(tensors: Mapping[str, TensorEntry], hashes: Mapping[str, str]) -> str:
    """Combine the SHA-256 of each tensor's bytes into one digest, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        entry = tensors[name]
        digest.update(f"{name}\0{entry.dtype}\0{entry.shape}\0{hashes[name]}\n".encode())
    return digest.hexdigest()


def sha256_of(entry: TensorEntry) -> str:
    """Return the SHA-256 of a tensor's bytes."""
    digest = hashlib.sha256()
    for block in _blocks(entry):
        digest.update(block)
    return digest.hexdigest()


def _blocks(entry: TensorEntry, size: int = _BLOCK) -> Iterator[bytes]:
    left = entry.stop - entry.start
    with entry.file.open("rb") as file:
        file.seek(entry.start)
        while left:
            block = file.read(min(size, left))
            if not block:
                raise truncated_error(entry)
            left -= len(block)
            yield block


def torch_dtypes() -> dict[str, Any]:
    """The torch dtype for each name in `FLOATS`."""
    import torch

    return {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def check_float(entry: TensorEntry) -> None:
    """Refuse a tensor whose dtype is not in `FLOATS`."""
    if entry.dtype not in FLOATS:
        raise CheckpointError(
            f"{entry.file}: {entry.stored_name} has dtype {entry.dtype}; "
            f"expected one of {', '.join(FLOATS)}"
        )


def truncated_error(entry: TensorEntry) -> CheckpointError:
    """Return the error for a file that became shorter after it was opened."""
    return CheckpointError(
        f"{entry.file}: shorter than when it was opened; it changed while it was being read"
    )


def not_finite_error(entry: TensorEntry) -> CheckpointError:
    """Return the error for a tensor with NaN or infinity."""
    return CheckpointError(
        f"{entry.file}: {entry.stored_name} contains NaN or infinity; "
        "the training diverged; use an earlier checkpoint"
    )
