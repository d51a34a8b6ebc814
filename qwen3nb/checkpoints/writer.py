"""Write a safetensors file from tensors of checkpoints, block by block.

The mean of several checkpoints, an encoder in another precision and a plain copy are all described
by pieces that map source tensors to output tensors. Values are processed block by block, so memory
does not grow with the model, and hashed on the way, so sources are read once. Sums are in float32
for any stored dtype but float64 (summed in bf16, ten bf16 checkpoints are off by 9e-3; in float32,
by 1e-7).

The safetensors library writes whole dictionaries only. The format allows more: 8 bytes
of header length, a JSON header padded with spaces to a multiple of 8, then the tensors;
and the header is known before the first value.
https://huggingface.co/docs/safetensors#format
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.types import MEANS, CheckpointError, TensorEntry
from qwen3nb.checkpoints.weights import combined_digest, torch_dtypes
from qwen3nb.utils.atomic_files import may_replace, named

if TYPE_CHECKING:
    from torch import Tensor

_BLOCK = 1 << 18  # values; fits into the processor's cache
_COPIED = 1 << 20  # bytes of a block that is copied
_THREADS = 4
_ZEROS = 0.25  # share of exact zeros above which a matrix is reported


@dataclass(frozen=True)
class Piece:
    """One output tensor: the mean of one tensor per source.

    A dtype that has no mean (integers, truth values, complex numbers and 8-bit floats, whose scale
    is elsewhere) is copied, if it is equal in all sources.
    """

    name: str | None  # the name in the output; None to only read and check the sources
    dtype: str  # the dtype of the output, such as ``BF16``
    # the tensor's name in each checkpoint, in the order of the checkpoints
    sources: tuple[str, ...]

    @property
    def has_mean(self) -> bool:
        """Whether it is computed, not copied."""
        return self.dtype in MEANS


@dataclass
class _Transfer:
    """A piece, its position in the output, and statistics gathered while reading it."""

    piece: Piece
    entries: list[TensorEntry]
    offset: int
    hashes: list[str] = field(default_factory=list)
    written: str = ""
    zeros: int = 0
    constant: bool = True


def check_output(output: Path, sources: Iterable[ModelFolder], *, mark: str) -> None:
    """Refuse an output folder that contains a source, or anything but a former output.

    Raises:
        CheckpointError: it is or contains a source, or it exists without the file ``mark``.
    """
    for source in sources:
        folder = source.path.resolve()
        if output.resolve() in (folder, *folder.parents):
            raise CheckpointError(f"{output}: is or contains {source}; choose another folder")
    if not may_replace(output, mark=mark):
        raise CheckpointError(
            f"{output}: exists without {mark}, so it was not written by this command before; "
            "choose another folder"
        )


def write_pieces(
    checkpoints: Sequence[ModelFolder], pieces: Sequence[Piece], file: Path, *, format: str = "pt"
) -> tuple[str, list[str]]:
    """Write ``file``; return the digest of its weights, and warnings about suspicious tensors.

    The digest of each checkpoint is remembered if the pieces name all of its tensors.

    Args:
        checkpoints: the checkpoints to read.
        pieces: the tensors to write.
        file: the safetensors file to create.
        format: stored in the file's metadata; transformers 4 only loads ``pt``.

    Raises:
        CheckpointError: a tensor with another dtype or values that are not finite, one without a
            mean that differs, or a file that changed while it was read. ``file`` is then
            incomplete.
        OSError: a file that cannot be read or written; names it.
    """
    header, transfers = _layout(checkpoints, pieces, format)
    with (
        file.open("xb", buffering=0) as out,
        ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool,
        ExitStack() as stack,
    ):
        paths = {path for each in checkpoints for path in each.weights.files}
        sources = {path: stack.enter_context(path.open("rb", buffering=0)) for path in paths}
        _write(out, header, 0)
        largest_first = sorted(transfers, key=lambda each: -each.entries[0].count)
        running = [pool.submit(_run, each, sources, out) for each in largest_first]
        try:
            for future in running:
                future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    for index, checkpoint in enumerate(checkpoints):
        hashes = {each.piece.sources[index]: each.hashes[index] for each in transfers}
        checkpoint.check_unchanged(hashes)
        weights = checkpoint.weights
        if hashes.keys() == weights.tensors.keys():
            weights.remember(combined_digest(weights.tensors, hashes))
    written = {each.piece.name: each for each in transfers if each.piece.name is not None}
    entries = {
        name: replace(each.entries[0], dtype=each.piece.dtype) for name, each in written.items()
    }
    digest = combined_digest(entries, {name: each.written for name, each in written.items()})
    return digest, [warning for each in transfers if (warning := _warning(each))]


def _layout(
    checkpoints: Sequence[ModelFolder], pieces: Sequence[Piece], format: str
) -> tuple[bytes, list[_Transfer]]:
    """Return the header, and the offset of each piece."""
    # Wider types first, so that every tensor starts at a multiple of its size.
    ordered = sorted(pieces, key=lambda p: (p.name is None, -_width(p.dtype), p.name or ""))
    fields: dict[str, Any] = {"__metadata__": {"format": format}}
    transfers, position = [], 0
    for piece in ordered:
        entries = [
            checkpoint.weights.tensors[name]
            for checkpoint, name in zip(checkpoints, piece.sources, strict=True)
        ]
        for entry in entries:
            if entry.dtype != piece.dtype:
                entry.check_float()
        transfers.append(_Transfer(piece, entries, position))
        if piece.name is not None:
            size = entries[0].count * MEANS[piece.dtype] if piece.has_mean else entries[0].size
            stop = position + size
            fields[piece.name] = {
                "dtype": piece.dtype,
                "shape": entries[0].shape,
                "data_offsets": [position, stop],
            }
            position = stop
    raw = json.dumps(fields, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    header = struct.pack("<Q", len(raw)) + raw
    for each in transfers:
        each.offset += len(header)
    return header, transfers


def _width(dtype: str) -> int:
    """Return the size of a value in bytes, at least."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


def _run(transfer: _Transfer, sources: Mapping[Path, FileIO], out: FileIO) -> None:
    """Read one tensor of each source block by block, and write their mean or their copy."""
    if transfer.piece.has_mean:
        _write_mean(transfer, sources, out)
    else:
        _write_copy(transfer, sources, out)


def _write_copy(transfer: _Transfer, sources: Mapping[Path, FileIO], out: FileIO) -> None:
    """Write a tensor that has no mean, which must be equal in all sources."""
    first, *others = transfer.entries
    hashes = [hashlib.sha256() for _ in transfer.entries]
    for start in range(0, first.size, _COPIED):
        length = min(_COPIED, first.size - start)
        blocks = []
        for entry, digest in zip(transfer.entries, hashes, strict=True):
            block = bytearray(length)
            _fill(sources[entry.file], memoryview(block), entry, entry.start + start)
            digest.update(block)
            blocks.append(block)
        for entry, block in zip(others, blocks[1:], strict=True):
            if block != blocks[0]:
                raise entry.error(
                    f"is {entry.dtype}, which has no mean, and differs from that in {first.file}; "
                    "average checkpoints in which it is equal, or save them without it"
                )
        if transfer.piece.name is not None:
            _write(out, memoryview(blocks[0]), transfer.offset + start)
    transfer.constant = False
    transfer.hashes = [digest.hexdigest() for digest in hashes]
    transfer.written = transfer.hashes[0]


def _write_mean(transfer: _Transfer, sources: Mapping[Path, FileIO], out: FileIO) -> None:
    import torch

    dtypes, piece = torch_dtypes(), transfer.piece
    count, width, dtype = transfer.entries[0].count, MEANS[piece.dtype], dtypes[piece.dtype]
    hashes = [hashlib.sha256() for _ in transfer.entries]
    buffers = [
        torch.empty(min(_BLOCK, count) * MEANS[entry.dtype], dtype=torch.uint8)
        for entry in transfer.entries
    ]
    summed = torch.float64 if piece.dtype == "F64" else torch.float32
    total = torch.empty(min(_BLOCK, count), dtype=summed)
    written = hashlib.sha256()
    copied = [entry.dtype for entry in transfer.entries] == [piece.dtype]
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        blocks = []
        for entry, buffer, digest in zip(transfer.entries, buffers, hashes, strict=True):
            raw = buffer[: size * MEANS[entry.dtype]]
            view = raw.numpy().data
            _fill(sources[entry.file], view, entry, entry.start + start * MEANS[entry.dtype])
            digest.update(view)
            blocks.append(raw.view(dtypes[entry.dtype]))
        mean = _mean(blocks, total[:size], transfer.entries)
        if piece.name is not None:
            transfer.zeros += mean.numel() - int(mean.count_nonzero())
            if transfer.constant and len(transfer.entries[0].shape) > 1:
                transfer.constant = bool((mean == mean[0]).all())
            converted = mean.to(dtype)
            if converted.dtype != mean.dtype and not converted.isfinite().all():
                raise _too_large(transfer.entries[0], piece.dtype)
            data = converted.view(torch.uint8).numpy().data
            _write(out, data, transfer.offset + start * width)
            if not copied:
                written.update(data)
    transfer.hashes = [digest.hexdigest() for digest in hashes]
    transfer.written = transfer.hashes[0] if copied else written.hexdigest()


def _mean(blocks: Sequence[Tensor], total: Tensor, entries: Sequence[TensorEntry]) -> Tensor:
    """Return the mean of the blocks in ``total``; raise if it is not finite."""
    total.copy_(blocks[0])
    for block in blocks[1:]:
        total.add_(block)
    if len(blocks) > 1:
        total.div_(len(blocks))
    # The sum is not finite if a value is not, or if values are very large: distinguish.
    if not total.sum().isfinite():
        for block, entry in zip(blocks, entries, strict=True):
            if not block.isfinite().all():
                raise entry.not_finite()
        if not total.isfinite().all():
            computed = str(total.dtype).removeprefix("torch.")
            raise _too_large(entries[0], f"{computed}, in which the mean is computed")
    return total


def _too_large(entry: TensorEntry, dtype: str) -> CheckpointError:
    return entry.error(
        f"contains values too large for {dtype}; the training diverged, or another dtype is needed"
    )


def _warning(transfer: _Transfer) -> str | None:
    """Return a warning about a suspicious matrix, or None; norms may be all ones."""
    entry = transfer.entries[0]
    if transfer.piece.name is None or len(entry.shape) < 2 or entry.count < 2:
        return None
    if transfer.constant:
        return f"{entry.stored_name}: all values are equal"
    share = transfer.zeros / entry.count
    if share > _ZEROS:
        return f"{entry.stored_name}: {share:.0%} of the values are exactly 0"
    return None


def _fill(source: FileIO, buffer: memoryview, entry: TensorEntry, offset: int) -> None:
    """Fill ``buffer`` from a file at ``offset``; raise if the file ends before that."""
    done = 0
    while done < len(buffer):
        with named(entry.file):
            count = os.preadv(source.fileno(), [buffer[done:]], offset + done)
        if count == 0:
            raise entry.truncated()
        done += count


def _write(out: FileIO, data: bytes | memoryview, offset: int) -> None:
    view, done = memoryview(data), 0
    with named(Path(out.name)):
        while done < len(view):
            done += os.pwrite(out.fileno(), view[done:], offset + done)
