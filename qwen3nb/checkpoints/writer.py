"""Write a safetensors file from tensors of checkpoints, block by block.

The mean or merge of several checkpoints, an encoder in another precision and a plain copy are all
described by pieces that map source tensors to output tensors. Values are processed block by block,
so memory does not grow with the model, and hashed on the way, so sources are read once.

Means are summed in float32 for any stored dtype but float64 (summed in bf16, ten bf16 checkpoints
are off by 9e-3; in float32, by 1e-7). Other merges are computed in float64.

The safetensors library writes whole dictionaries only. The format allows more: 8 bytes
of header length, a JSON header padded with spaces to a multiple of 8, then the tensors;
and the header is known before the first value.
https://huggingface.co/docs/safetensors#format
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.checkpoints.merging import TensorBlocks
from qwen3nb.checkpoints.types import BYTES_PER_VALUE, CheckpointError, TensorEntry
from qwen3nb.checkpoints.weights import combined_digest, torch_dtypes
from qwen3nb.utils.atomic_files import errors_naming, may_replace
from qwen3nb.utils.strict_json import first_duplicate

if TYPE_CHECKING:
    from torch import Tensor

    from qwen3nb.checkpoints.merging import Combine, Method

_VALUES_AT_ONCE = 1 << 18  # of a block; fits into the processor's cache
_BYTES_AT_ONCE = 1 << 20  # of a block that is copied
_THREADS = 4
_SOURCES_AT_ONCE = 8  # of more sources, the blocks are smaller
# The same of merges, which need several copies of all blocks in float64: 0.2 GB in four threads.
_MERGED_AT_ONCE = 2
_MOST_ZEROS = 0.25  # share of exact zeros above which a matrix is reported


@dataclass(frozen=True)
class Piece:
    """One output tensor: the mean, or another merge, of one tensor per source.

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
        return self.dtype in BYTES_PER_VALUE

    @property
    def is_written(self) -> bool:
        """Whether it is part of the output, not only read and checked."""
        return self.name is not None


@dataclass
class _Transfer:
    """A piece, its position in the output, and statistics gathered while reading it."""

    piece: Piece
    entries: list[TensorEntry]  # of the tensor in each checkpoint
    offset: int  # of its first byte in the output, after the header
    source_hashes: list[str] = field(default_factory=list)
    output_hash: str = ""
    zeros: int = 0
    is_constant: bool = True

    @property
    def first_tensor(self) -> TensorEntry:
        """The tensor in the first checkpoint; the others have its shape."""
        return self.entries[0]

    @property
    def is_copy(self) -> bool:
        """Whether the output has the bytes of the only source, and so their hash."""
        return len(self.entries) == 1 and self.first_tensor.dtype == self.piece.dtype

    @property
    def output_size(self) -> int:
        """Size in bytes in the output."""
        if self.piece.has_mean:
            return self.first_tensor.count * BYTES_PER_VALUE[self.piece.dtype]
        return self.first_tensor.size

    def note_values(self, values: Tensor) -> None:
        """Count zeros of a block, and note whether all values of the matrix are equal so far."""
        self.zeros += values.numel() - int(values.count_nonzero())
        is_matrix = len(self.first_tensor.shape) > 1
        if is_matrix and self.is_constant:
            self.is_constant = bool((values == values[0]).all())

    def warning(self) -> str:
        """Return a warning about a suspicious matrix, or an empty text; norms may be all ones."""
        # Vectors may be constant, as the weights of a new norm are: only matrices are suspicious.
        tensor = self.first_tensor
        is_matrix = len(tensor.shape) > 1 and tensor.count > 1
        if not self.piece.is_written or not is_matrix:
            return ""
        if self.is_constant:
            return f"{tensor.stored_name}: all values are equal"
        share_of_zeros = self.zeros / tensor.count
        if share_of_zeros > _MOST_ZEROS:
            return f"{tensor.stored_name}: {share_of_zeros:.0%} of the values are exactly 0"
        return ""


def check_given_once(folders: Iterable[Path]) -> None:
    """Refuse a folder that is given twice.

    Raises:
        CheckpointError: names it.
    """
    duplicate = first_duplicate(str(folder.resolve()) for folder in folders)
    if duplicate is not None:
        raise CheckpointError(f"{duplicate}: given twice, so it would count twice")


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
    method: Method | None = None,
) -> tuple[str, list[str]]:
    """Write ``file``; return the digest of its weights, and warnings about suspicious tensors.

    The digest of each checkpoint is remembered if the pieces name all of its tensors.

    Args:
        checkpoints: the checkpoints to read.
        pieces: the tensors to write.
        file: the safetensors file to create.
        format: stored in the file's metadata; transformers 4 only loads ``pt``.
        method: how values are merged; None: their mean.

    Raises:
        CheckpointError: a tensor with another dtype or values that are not finite, one without a
            mean that differs, or a file that changed while it was read. ``file`` is then
            incomplete.
        OSError: a file that cannot be read or written; names it.
    """
    transfers = _plan(checkpoints, pieces)
    _write_file(file, _header(transfers, format), transfers, method)
    for index, checkpoint in enumerate(checkpoints):
        hashes = _hashes_of_checkpoint(transfers, index)
        checkpoint.check_unchanged(hashes)
        weights = checkpoint.weights
        # If all tensors were read, the digest of the weights costs no second reading.
        all_were_read = hashes.keys() == weights.tensors.keys()
        if all_were_read:
            weights.remember(combined_digest(weights.tensors, hashes))
    warnings = [transfer.warning() for transfer in transfers]
    return _output_digest(transfers), [warning for warning in warnings if warning]


def _hashes_of_checkpoint(transfers: Sequence[_Transfer], index: int) -> dict[str, str]:
    """Return the hashes of the tensors that were read of a checkpoint, by their names there."""
    hashes: dict[str, str] = {}
    for transfer in transfers:
        name = transfer.piece.sources[index]
        hashes[name] = transfer.source_hashes[index]
    return hashes


def _output_digest(transfers: Sequence[_Transfer]) -> str:
    """Return the digest of the weights that were written; see `Weights.digest`."""
    tensors: dict[str, TensorEntry] = {}
    hashes: dict[str, str] = {}
    for transfer in transfers:
        name = transfer.piece.name
        if name is not None:
            tensors[name] = replace(transfer.first_tensor, dtype=transfer.piece.dtype)
            hashes[name] = transfer.output_hash
    return combined_digest(tensors, hashes)


def _plan(checkpoints: Sequence[ModelFolder], pieces: Sequence[Piece]) -> list[_Transfer]:
    """Return the pieces in the order of the output, each with its position."""
    transfers: list[_Transfer] = []
    offset = 0
    # Wider dtypes come first, so that every tensor starts at a multiple of its value size.
    for piece in sorted(pieces, key=_order):
        entries: list[TensorEntry] = []
        for checkpoint, name in zip(checkpoints, piece.sources, strict=True):
            entry = checkpoint.weights.tensors[name]
            if entry.dtype != piece.dtype:
                entry.check_float()  # only floats are converted
            entries.append(entry)
        transfer = _Transfer(piece, entries, offset)
        transfers.append(transfer)
        if piece.is_written:
            offset += transfer.output_size
    return transfers


def _order(piece: Piece) -> tuple[bool, int, str]:
    """Order pieces: wider types first, so that every tensor starts at a multiple of its size."""
    return not piece.is_written, -_bytes_per_value(piece.dtype), piece.name or ""


def _bytes_per_value(dtype: str) -> int:
    """Return the size of a value in bytes, at least: 4 for ``F32``, 1 for ``BOOL``."""
    bits = re.search(r"\d+", dtype)
    if bits is None:
        return 1
    return max(1, int(bits[0]) // 8)


def _header(transfers: Sequence[_Transfer], format: str) -> bytes:
    """Return the header of the output: the length of its JSON, and the JSON."""
    fields: dict[str, dict[str, object]] = {"__metadata__": {"format": format}}
    for transfer in transfers:
        if transfer.piece.name is not None:
            fields[transfer.piece.name] = {
                "dtype": transfer.piece.dtype,
                "shape": transfer.first_tensor.shape,
                "data_offsets": [transfer.offset, transfer.offset + transfer.output_size],
            }
    text = json.dumps(fields, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # the data start at a multiple of 8
    length = struct.pack("<Q", len(text))  # 8 bytes, the lowest first
    return length + text


class _Output:
    """The file that is written: its header, then its data at any position."""

    def __init__(self, file: FileIO, header: bytes) -> None:
        self._file = file
        self._start_of_data = len(header)
        self._write_at(0, memoryview(header))

    def write(self, data: memoryview, offset: int) -> None:
        """Write at a position after the header."""
        self._write_at(self._start_of_data + offset, data)

    def _write_at(self, start: int, data: memoryview) -> None:
        written = 0
        with errors_naming(Path(self._file.name)):
            while written < len(data):
                written += os.pwrite(self._file.fileno(), data[written:], start + written)


def _write_file(
    file: Path,
    header: bytes,
    transfers: Sequence[_Transfer],
    method: Method | None,
) -> None:
    """Write the header and all tensors, several at once, the largest first."""
    # If the largest tensor came last, one thread would end long after the others.
    largest_first = sorted(transfers, key=lambda transfer: -transfer.first_tensor.count)
    with (
        file.open("xb", buffering=0) as output_file,
        ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)) as pool,
        ExitStack() as open_sources,
    ):
        sources: dict[Path, FileIO] = {}
        for transfer in transfers:
            for entry in transfer.entries:
                if entry.file not in sources:
                    source = entry.file.open("rb", buffering=0)
                    sources[entry.file] = open_sources.enter_context(source)
        output = _Output(output_file, header)
        running = []
        for transfer in largest_first:
            running.append(pool.submit(_write_tensor, transfer, sources, output, method))
        try:
            for future in running:
                future.result()  # raises what its thread raised
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _write_tensor(
    transfer: _Transfer,
    sources: Mapping[Path, FileIO],
    output: _Output,
    method: Method | None,
) -> None:
    """Read one tensor of each source block by block, and write their merge or their copy."""
    if transfer.piece.has_mean:
        _write_merge(transfer, sources, output, method)
    else:
        _write_copy(transfer, sources, output)


def _write_copy(transfer: _Transfer, sources: Mapping[Path, FileIO], output: _Output) -> None:
    """Write a tensor that has no mean, which must be equal in all sources."""
    first = transfer.first_tensor
    digests = [hashlib.sha256() for _ in transfer.entries]
    # All sources are read in step, and each block is compared with that of the first source.
    for start in range(0, first.size, _BYTES_AT_ONCE):
        size = min(_BYTES_AT_ONCE, first.size - start)
        first_block = bytearray()
        for entry, digest in zip(transfer.entries, digests, strict=True):
            block = bytearray(size)
            _read_into(memoryview(block), sources[entry.file], entry, start)
            digest.update(block)
            if entry is first:
                first_block = block
            elif block != first_block:
                raise entry.error(
                    f"is {entry.dtype}, which has no mean, and differs from that in "
                    f"{first.file}; average checkpoints in which it is equal, or save "
                    "them without it"
                )
        if transfer.piece.is_written:
            output.write(memoryview(first_block), transfer.offset + start)
    # Copied values are not looked at; a warning would otherwise call them all equal.
    transfer.is_constant = False
    transfer.source_hashes = [digest.hexdigest() for digest in digests]
    transfer.output_hash = transfer.source_hashes[0]


def _write_merge(
    transfer: _Transfer,
    sources: Mapping[Path, FileIO],
    output: _Output,
    method: Method | None,
) -> None:
    """Write the mean or merge of a tensor over all sources, one block after another."""
    if method is None:
        combine = _mean_of_blocks(transfer)
    else:
        combine = _merge_of_blocks(transfer, sources, method)
    readers = [_BlockReader(entry, sources[entry.file]) for entry in transfer.entries]
    output_digest = hashlib.sha256()
    start = 0
    sources_at_once = _SOURCES_AT_ONCE if method is None else _MERGED_AT_ONCE
    for blocks in _blocks(readers, sources_at_once):
        merged = combine(blocks)
        if transfer.piece.is_written:  # else it is only read, to check and hash its values
            transfer.note_values(merged)
            data = _output_bytes(merged, transfer)
            output.write(data, transfer.offset + start)
            start += len(data)
            if not transfer.is_copy:  # a copy has the hash of what was read
                output_digest.update(data)
    transfer.source_hashes = [reader.digest.hexdigest() for reader in readers]
    if transfer.is_copy:
        transfer.output_hash = transfer.source_hashes[0]
    else:
        transfer.output_hash = output_digest.hexdigest()


def _blocks(readers: Sequence[_BlockReader], sources_at_once: int) -> Iterator[list[Tensor]]:
    """Yield the blocks of all sources, from the first values to the last."""
    count = readers[0].count
    # Of very many sources the blocks are smaller, so that all together need little memory.
    values_at_once = _VALUES_AT_ONCE // math.ceil(len(readers) / sources_at_once)
    for start in range(0, count, values_at_once):
        size = min(values_at_once, count - start)
        yield [reader.read(start, size) for reader in readers]


def _mean_of_blocks(transfer: _Transfer) -> Combine:
    """Return what computes the mean of blocks, in a buffer that the next call overwrites."""
    import torch

    # Means of float64 are computed in float64, all others in float32.
    precision = torch.float32
    if transfer.piece.dtype == "F64":
        precision = torch.float64
    buffer = torch.empty(min(_VALUES_AT_ONCE, transfer.first_tensor.count), dtype=precision)

    def combine(blocks: Sequence[Tensor]) -> Tensor:
        return _mean(blocks, buffer[: len(blocks[0])], transfer.entries)

    return combine


def _merge_of_blocks(
    transfer: _Transfer,
    sources: Mapping[Path, FileIO],
    method: Method,
) -> Combine:
    """Return what merges blocks by a method, which may read the tensor first."""

    def in_float64(blocks: Sequence[Tensor]) -> list[Tensor]:
        """Return the blocks in float64; refuse what is not finite."""
        converted = []
        for block, entry in zip(blocks, transfer.entries, strict=True):
            values = block.double()
            if not values.sum().isfinite():
                raise entry.not_finite()
            converted.append(values)
        return converted

    def read() -> Iterator[list[Tensor]]:
        readers = [_BlockReader(entry, sources[entry.file]) for entry in transfer.entries]
        for blocks in _blocks(readers, _MERGED_AT_ONCE):
            yield in_float64(blocks)

    first_tensor = transfer.first_tensor
    name = transfer.piece.name or first_tensor.stored_name
    files = tuple(entry.file for entry in transfer.entries)
    merge = method.for_tensor(TensorBlocks(name, first_tensor.count, read, files))

    def combine(blocks: Sequence[Tensor]) -> Tensor:
        return merge(in_float64(blocks))

    return combine


class _BlockReader:
    """Reads a tensor of a source block by block, with the digest of what was read."""

    def __init__(self, entry: TensorEntry, source: FileIO) -> None:
        import torch

        self._entry = entry
        self._source = source
        self._dtype = torch_dtypes()[entry.dtype]
        self._bytes_per_value = BYTES_PER_VALUE[entry.dtype]
        size = min(_VALUES_AT_ONCE, entry.count) * self._bytes_per_value
        self._buffer = torch.empty(size, dtype=torch.uint8)
        self.count = entry.count
        self.digest = hashlib.sha256()

    def read(self, start: int, count: int) -> Tensor:
        """Return ``count`` values from the one at ``start``; the next call overwrites them."""
        block = self._buffer[: count * self._bytes_per_value]
        data = block.numpy().data
        _read_into(data, self._source, self._entry, start * self._bytes_per_value)
        self.digest.update(data)
        return block.view(self._dtype)


def _output_bytes(mean: Tensor, transfer: _Transfer) -> memoryview:
    """Return the bytes of a block in the dtype of the output."""
    import torch

    values = mean.to(torch_dtypes()[transfer.piece.dtype])
    # A float32 value may be more than a float16 can hold; it is then converted to infinity.
    if values.dtype != mean.dtype and not values.isfinite().all():
        raise _too_large(transfer.first_tensor, transfer.piece.dtype)
    values_as_bytes = values.view(torch.uint8)
    data: memoryview = values_as_bytes.numpy().data
    return data


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
            precision = str(total.dtype).removeprefix("torch.")
            raise _too_large(entries[0], f"{precision}, in which the mean is computed")
    return total


def _too_large(entry: TensorEntry, dtype: str) -> CheckpointError:
    return entry.error(
        f"contains values too large for {dtype}; the training diverged, or another dtype is needed"
    )


def _read_into(buffer: memoryview, source: FileIO, entry: TensorEntry, offset: int) -> None:
    """Fill ``buffer`` with the bytes of a tensor from the one at ``offset`` on."""
    filled = 0
    # One call may return fewer bytes than there is room for.
    while filled < len(buffer):
        position = entry.start + offset + filled
        with errors_naming(entry.file):
            count = os.preadv(source.fileno(), [buffer[filled:]], position)
        if count == 0:  # the end of the file
            raise entry.truncated()
        filled += count
