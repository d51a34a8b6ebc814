"""The weights of a model: where each tensor lies, its values, and one digest of them all.

Headers are read without data and checked before any library opens the file: the safetensors
library accepts a name that appears twice, and its errors name neither the file nor the tensor.
https://huggingface.co/docs/safetensors#format

Values are read, never mapped: truncating a mapped file kills the process.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.checkpoints.torch_file import read_torch
from qwen3nb.checkpoints.types import (
    FLOATS,
    ITEM_SIZES,
    CheckpointError,
    TensorEntry,
    check_name,
    open_weights,
)
from qwen3nb.utils.files.digest_memory import remember_digest, remembered_digest
from qwen3nb.utils.strict_json import parse_json

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1 << 20
_MOST_AXES = 64  # as in NumPy; the product of a million axes would take hours
# A typical header has about 120 bytes per tensor; parsed into Python objects, it grows twentyfold.
_HEADER_LIMIT = 25_000_000


class Weights:
    """The tensors of one or more weight files.

    Attributes:
        tensors: entry per tensor name, sorted by name.
    """

    def __init__(self, tensors: Mapping[str, TensorEntry]) -> None:
        """Take entries from `read_weights`; no values are read."""
        self.tensors = dict(sorted(tensors.items()))

    @property
    def files(self) -> list[Path]:
        """The weight files."""
        return sorted({entry.file for entry in self.tensors.values()})

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the weights: name, dtype, shape and bytes of every tensor.

        It does not depend on the file format or the number of shards, and is read once per
        content: `qwen3nb.utils.files.digest_memory` remembers it.
        """
        return remembered_digest(self.files, lambda: combined_digest(self.tensors, self._hashes()))

    def remember(self, digest: str) -> None:
        """Store a ``digest`` computed while copying, so that `digest` need not read the files."""
        remember_digest(self.files, digest)

    def read(self, name: str) -> Tensor:
        """Return one weight in its stored dtype.

        Raises:
            CheckpointError: the dtype is not one of `FLOATS` (integers and unscaled 8-bit floats
                are not weights), or a value is NaN or infinite.
        """
        ((_, tensor),) = self.read_each([name])
        return tensor

    def read_each(self, names: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """Yield weights by their names, file by file; each file is opened once. See `read`."""
        wanted = set(names)
        for path in sorted({self.tensors[name].file for name in wanted}):
            with path.open("rb") as file:
                for name, entry in self.tensors.items():
                    if name in wanted and entry.file == path:
                        yield name, _values(file, entry)

    def _hashes(self) -> dict[str, str]:
        """Return the SHA-256 of each tensor's bytes; every file is opened once."""
        hashes = {}
        for path in self.files:
            with path.open("rb") as file:
                for name, entry in self.tensors.items():
                    if entry.file == path:
                        hashes[name] = _hash(file, entry)
        return hashes


def _values(file: Any, entry: TensorEntry) -> Tensor:
    import torch

    check_float(entry)
    dtype = torch_dtypes()[entry.dtype]
    buffer = bytearray(entry.stop - entry.start)
    file.seek(entry.start)
    if file.readinto(buffer) != len(buffer):
        raise truncated_error(entry)
    if not buffer:
        return torch.empty(entry.shape, dtype=dtype)
    tensor = torch.frombuffer(buffer, dtype=dtype).reshape(entry.shape)
    if not tensor.isfinite().all():
        raise not_finite_error(entry)
    return tensor


def sha256_of(entry: TensorEntry) -> str:
    """Return the SHA-256 of a tensor's bytes."""
    with entry.file.open("rb") as file:
        return _hash(file, entry)


def _hash(file: Any, entry: TensorEntry) -> str:
    digest, left = hashlib.sha256(), entry.stop - entry.start
    file.seek(entry.start)
    while left:
        block = file.read(min(_BLOCK, left))
        if not block:
            raise truncated_error(entry)
        left -= len(block)
        digest.update(block)
    return digest.hexdigest()


def combined_digest(tensors: Mapping[str, TensorEntry], hashes: Mapping[str, str]) -> str:
    """Combine the SHA-256 of each tensor's bytes into one digest, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        entry = tensors[name]
        digest.update(f"{name}\0{entry.dtype}\0{entry.shape}\0{hashes[name]}\n".encode())
    return digest.hexdigest()


def read_weights(file: Path) -> Weights:
    """Return the weights in one file, by its ending a safetensors file or one of ``torch.save``.

    Raises:
        CheckpointError: see `read_safetensors` and `read_torch`.
    """
    return Weights((read_torch if file.suffix == ".bin" else read_safetensors)(file))


def read_safetensors(file: Path) -> dict[str, TensorEntry]:
    """Return the tensors that a safetensors file declares, checked against its size.

    Raises:
        CheckpointError: the file is not a regular file, is truncated, is not safetensors
            (HTML pages and git-LFS pointers are recognised), has an unknown dtype, or
            declares byte ranges that do not match the shapes or the file.
    """
    with open_weights(file) as (handle, size):
        length = int.from_bytes(handle.read(8), "little")
        if not 2 <= length <= size - 8:
            raise CheckpointError(
                f"{file}: not a safetensors file, or truncated ({size} bytes); copy it again"
            )
        if length > _HEADER_LIMIT:
            raise CheckpointError(
                f"{file}: the header has {length:,} bytes, expected at most {_HEADER_LIMIT:,}; "
                "save the model in several files (max_shard_size of save_pretrained)"
            )
        raw = handle.read(length)
    try:
        header = parse_json(raw.decode("utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{file}: invalid safetensors header ({error})") from None
    if not isinstance(header, dict):
        raise CheckpointError(f"{file}: invalid safetensors header (not an object)")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise CheckpointError(
            f"{file}: its __metadata__ is not an object of strings; save it again"
        )
    entries = {
        check_name(file, name): _entry(file, name, fields, begin=8 + length)
        for name, fields in header.items()
    }
    position = 8 + length
    for entry in sorted(entries.values(), key=lambda entry: (entry.start, entry.stop)):
        if entry.start != position:
            where = "overlaps the tensor before it" if entry.start < position else "follows a gap"
            raise CheckpointError(f"{file}: {entry.stored_name} {where}")
        position = entry.stop
    if position != size:
        raise CheckpointError(
            f"{file}: the tensors end at byte {position}, the file at {size}; is it truncated?"
        )
    return entries


def _entry(file: Path, name: str, fields: Any, *, begin: int) -> TensorEntry:
    try:
        dtype, shape = fields["dtype"], tuple(fields["shape"])
        start, stop = fields["data_offsets"]
        sizes = (*shape, start, stop)
        whole = all(type(n) is int and 0 <= n < 1 << 63 for n in sizes)
        if len(shape) > _MOST_AXES or not whole:
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise CheckpointError(f"{file}: malformed header entry for {name}") from None
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
