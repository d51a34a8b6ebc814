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
from typing import TYPE_CHECKING

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.types import MEANS, CheckpointError, TensorEntry
from qwen3nb.checkpoints.weights import combined_digest, torch_dtypes
from qwen3nb.utils.atomic_files import errors_naming, may_replace

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
    output_hash: str = ""
    zeros: int = 0
    constant: bool = True

    def note_values(self, values: Tensor) -> None:
        """Count zeros of a block, and note whether all values of the matrix are equal so far."""
        self.zeros += values.numel() - int(values.count_nonzero())
        if self.constant and len(self.entries[0].shape) > 1:
            self.constant = bool((values == values[0]).all())

    def warning(self) -> str:
        """Return a warning about a suspicious matrix, or an empty text; norms may be all ones."""
        entry = self.entries[0]
        if self.piece.name is None or len(entry.shape) < 2 or entry.count < 2:
            return ""
        if self.constant:
            return f"{entry.stored_name}: all values are equal"
        share = self.zeros / entry.count
        if share > _ZEROS:
            return f"{entry.stored_name}: {share:.0%} of the values are exactly 0"
        return ""


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
    checkpoints: Sequence[ModelFolder],
    pieces: Sequence[Piece],
    file: Path,
    *,
    format: str = "pt",
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
    _transfer(file, header, transfers)
    for index, checkpoint in enumerate(checkpoints):
        hashes = {transfer.piece.sources[index]: transfer.hashes[index] for transfer in transfers}
        checkpoint.check_unchanged(hashes)
        weights = checkpoint.weights
        if hashes.keys() == weights.tensors.keys():
            weights.remember(combined_digest(weights.tensors, hashes))
    entries: dict[str, TensorEntry] = {}
    hashes_of_output: dict[str, str] = {}
    for transfer in transfers:
        name = transfer.piece.name
        if name is not None:
            entries[name] = replace(transfer.entries[0], dtype=transfer.piece.dtype)
            hashes_of_output[name] = transfer.output_hash
    warnings = [transfer.warning() for transfer in transfers]
    return combined_digest(entries, hashes_of_output), [text for text in warnings if text]


def _transfer(file: Path, header: bytes, transfers: Sequence[_Transfer]) -> None:
    """Write the header and all tensors, several at once, the largest first."""
    by_size = sorted(transfers, key=lambda transfer: -transfer.entries[0].count)
    with (
        file.open("xb", buffering=0) as out,
        ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool,
        ExitStack() as stack,
    ):
        sources: dict[Path, FileIO] = {}
        for transfer in transfers:
            for entry in transfer.entries:
                if entry.file not in sources:
                    sources[entry.file] = stack.enter_context(entry.file.open("rb", buffering=0))
        _write(out, header, 0)
        running = [pool.submit(_run, transfer, sources, out) for transfer in by_size]
        try:
            for future in running:
                future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _layout(
    checkpoints: Sequence[ModelFolder],
    pieces: Sequence[Piece],
    format: str,
) -> tuple[bytes, list[_Transfer]]:
    """Return the header, and the offset of each piece."""
    fields: dict[str, dict[str, object]] = {"__metadata__": {"format": format}}
    transfers: list[_Transfer] = []
    position = 0
    for piece in sorted(pieces, key=_order):
        entries: list[TensorEntry] = []
        for checkpoint, name in zip(checkpoints, piece.sources, strict=True):
            entry = checkpoint.weights.tensors[name]
            if entry.dtype != piece.dtype:
                entry.check_float()
            entries.append(entry)
        transfers.append(_Transfer(piece, entries, position))
        if piece.name is None:
            continue
        size = entries[0].size
        if piece.has_mean:
            size = entries[0].count * MEANS[piece.dtype]
        fields[piece.name] = {
            "dtype": piece.dtype,
            "shape": entries[0].shape,
            "data_offsets": [position, position + size],
        }
        position += size
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    header = struct.pack("<Q", len(text)) + text
    for transfer in transfers:
        transfer.offset += len(header)
    return header, transfers


def _order(piece: Piece) -> tuple[bool, int, str]:
    """Order pieces: wider types first, so that every tensor starts at a multiple of its size."""
    return piece.name is None, -_width(piece.dtype), piece.name or ""


def _width(dtype: str) -> int:
    """Return the size of a value in bytes, at least."""
    bits = re.search(r"\d+", dtype)
    if bits is None:
        return 1
    return max(1, int(bits[0]) // 8)


def _run(transfer: _Transfer, sources: Mapping[Path, FileIO], out: FileIO) -> None:
    """Read one tensor of each source block by block, and write their mean or their copy."""
    if transfer.piece.has_mean:
        _write_mean(transfer, sources, out)
    else:
        _write_copy(transfer, sources, out)


def _write_copy(transfer: _Transfer, sources: Mapping[Path, FileIO], out: FileIO) -> None:
    """Write a tensor that has no mean, which must be equal in all sources."""
    reference = transfer.entries[0]
    hashes = [hashlib.sha256() for _ in transfer.entries]
    for start in range(0, reference.size, _COPIED):
        length = min(_COPIED, reference.size - start)
        first_block = bytearray()
        for entry, digest in zip(transfer.entries, hashes, strict=True):
            block = bytearray(length)
            _fill(sources[entry.file], memoryview(block), entry, entry.start + start)
            digest.update(block)
            first_block = first_block or block
            if block != first_block:
                raise entry.error(
                    f"is {entry.dtype}, which has no mean, and differs from that in "
                    f"{reference.file}; average checkpoints in which it is equal, or save "
                    "them without it"
                )
        if transfer.piece.name is not None:
            _write(out, memoryview(first_block), transfer.offset + start)
    transfer.constant = False
    transfer.hashes = [digest.hexdigest() for digest in hashes]
    transfer.output_hash = transfer.hashes[0]


def _write_mean(transfer: _Transfer, sources: Mapping[Path, FileIO], out: FileIO) -> None:
    """Write the mean of a tensor over all sources, one block of values after another."""
    import torch

    piece = transfer.piece
    count = transfer.entries[0].count
    inputs = [_Input(entry, sources[entry.file]) for entry in transfer.entries]
    total = torch.empty(min(_BLOCK, count), dtype=torch.float32)
    if piece.dtype == "F64":
        total = total.double()
    is_copy = [entry.dtype for entry in transfer.entries] == [piece.dtype]
    output_hash = hashlib.sha256()
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        blocks = [tensor.read(start, size) for tensor in inputs]
        mean = _mean(blocks, total[:size], transfer.entries)
        if piece.name is None:
            continue
        transfer.note_values(mean)
        data = _converted(mean, transfer)
        _write(out, data, transfer.offset + start * MEANS[piece.dtype])
        if not is_copy:
            output_hash.update(data)
    transfer.hashes = [tensor.digest.hexdigest() for tensor in inputs]
    transfer.output_hash = output_hash.hexdigest()
    if is_copy:
        transfer.output_hash = transfer.hashes[0]


class _Input:
    """A tensor of a source that is read block by block, with the digest of what was read."""

    def __init__(self, entry: TensorEntry, source: FileIO) -> None:
        import torch

        self._entry = entry
        self._source = source
        self._dtype = torch_dtypes()[entry.dtype]
        self._width = MEANS[entry.dtype]
        self._buffer = torch.empty(min(_BLOCK, entry.count) * self._width, dtype=torch.uint8)
        self.digest = hashlib.sha256()

    def read(self, start: int, size: int) -> Tensor:
        """Return the values (size,) from the one at ``start``; the next call overwrites them."""
        block = self._buffer[: size * self._width]
        view = block.numpy().data
        _fill(self._source, view, self._entry, self._entry.start + start * self._width)
        self.digest.update(view)
        return block.view(self._dtype)


def _converted(mean: Tensor, transfer: _Transfer) -> memoryview:
    """Return the bytes of a block in the dtype of the output."""
    import torch

    dtype = torch_dtypes()[transfer.piece.dtype]
    converted = mean.to(dtype)
    if converted.dtype != mean.dtype and not converted.isfinite().all():
        raise _too_large(transfer.entries[0], transfer.piece.dtype)
    view: memoryview = converted.view(torch.uint8).numpy().data
    return view


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


def _fill(
    source: FileIO,
    buffer: memoryview,
    entry: TensorEntry,
    offset: int,
) -> None:
    """Fill ``buffer`` from a file at ``offset``; raise if the file ends before that."""
    position = 0
    while position < len(buffer):
        with errors_naming(entry.file):
            count = os.preadv(source.fileno(), [buffer[position:]], offset + position)
        if count == 0:
            raise entry.truncated()
        position += count


def _write(out: FileIO, data: bytes | memoryview, offset: int) -> None:
    view = memoryview(data)
    position = 0
    with errors_naming(Path(out.name)):
        while position < len(view):
            position += os.pwrite(out.fileno(), view[position:], offset + position)
