"""The bytes of a weight in its file: read, digested, and what may be wrong with them.

They are read and never mapped: a mapped file that is cut short kills the process.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from qwen3nb.checkpoints.safetensors_header import FLOATS, CheckpointError, TensorEntry

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "check_float",
    "combined_digest",
    "cut_short",
    "not_finite",
    "read_exactly",
    "read_tensor",
    "sha256_of",
    "torch_dtypes",
]

_BLOCK = 1 << 20


def read_tensor(entry: TensorEntry) -> Tensor:
    """A weight, in the dtype it is stored in.

    Raises:
        CheckpointError: it is not of a float type (integers and unscaled 8-bit floats are
            no weights), or holds NaN or infinity.
    """
    import torch

    check_float(entry)
    buffer = bytearray(entry.stop - entry.start)
    with entry.file.open("rb") as file:
        file.seek(entry.start)
        if file.readinto(buffer) != len(buffer):
            raise cut_short(entry)
    if not buffer:
        return torch.empty(entry.shape, dtype=torch_dtypes()[entry.dtype])
    tensor = torch.frombuffer(buffer, dtype=torch_dtypes()[entry.dtype]).reshape(entry.shape)
    if not tensor.isfinite().all():
        raise not_finite(entry)
    return tensor


def read_exactly(descriptor: int, buffer: memoryview, offset: int) -> bool:
    """Fill ``buffer`` from the file at ``offset``; False if the file ends before."""
    done = 0
    while done < len(buffer):
        got = os.preadv(descriptor, [buffer[done:]], offset + done)
        if got == 0:
            return False
        done += got
    return True


def combined_digest(tensors: Mapping[str, TensorEntry], hashes: Mapping[str, str]) -> str:
    """One digest from the SHA-256 of each tensor's bytes, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        entry = tensors[name]
        digest.update(f"{name}\0{entry.dtype}\0{entry.shape}\0{hashes[name]}\n".encode())
    return digest.hexdigest()


def sha256_of(entry: TensorEntry) -> str:
    """SHA-256 of a tensor's bytes."""
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
                raise cut_short(entry)
            left -= len(block)
            yield block


def torch_dtypes() -> dict[str, Any]:
    """The dtype of torch per name in a weight file's header."""
    import torch

    return {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}


def check_float(entry: TensorEntry) -> None:
    """Raise unless the tensor is stored in a float type that weights come in."""
    if entry.dtype not in FLOATS:
        raise CheckpointError(
            f"{entry.file}: {entry.stored_name} is {entry.dtype}; "
            f"expected one of {', '.join(FLOATS)}"
        )


def cut_short(entry: TensorEntry) -> CheckpointError:
    """The error for a file that ends before a tensor does."""
    return CheckpointError(
        f"{entry.file}: shorter than when it was opened; it changed while it was being read"
    )


def not_finite(entry: TensorEntry) -> CheckpointError:
    """The error for a tensor with NaN or infinity in it."""
    return CheckpointError(
        f"{entry.file}: {entry.stored_name} holds NaN or infinity; "
        "training had diverged by then, take an earlier checkpoint"
    )
