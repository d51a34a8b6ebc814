"""Write a safetensors file from tensors of checkpoints, in blocks.

The mean of several checkpoints, the encoder of one in another precision, a plain copy:
each is a plan that says which source tensors make which output tensor. Values go
through a block at a time, so that memory does not grow with the model, and the
sources' digests are taken on the way, so that nothing is read twice. Sums are
kept in float32 whatever the stored type (ten bf16 checkpoints summed in bf16 are off
by 9e-3, in float32 by 1e-7).

The safetensors library writes whole dictionaries only. The format allows more: 8 bytes
of header length, a JSON header padded with spaces to a multiple of 8, then the tensors;
and the header is known before the first value is.
https://huggingface.co/docs/safetensors#format
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from qwen3nb.checkpoints.checkpoint import Checkpoint
from qwen3nb.checkpoints.safetensors_header import FLOATS, TensorEntry
from qwen3nb.checkpoints.tensor_io import (
    check_float,
    combined_digest,
    cut_short,
    not_finite,
    read_exactly,
    torch_dtypes,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["Piece", "transfer"]

_BLOCK = 1 << 18  # values; small enough for the processor's cache
_THREADS = 4
_ZEROS = 0.25  # a share of exact zeros that training does not produce


@dataclass(frozen=True)
class Piece:
    """One tensor of the output: the mean of one tensor per source.

    Attributes:
        name: its name in the output; None to read and check the sources only.
        dtype: of the output, such as ``BF16``.
        sources: name of the tensor in each checkpoint, in the order of the checkpoints.
    """

    name: str | None
    dtype: str
    sources: tuple[str, ...]


@dataclass
class _Job:
    """A piece with its place in the output, and what was found while it was read."""

    piece: Piece
    entries: list[TensorEntry]
    place: int
    hashes: list[str] = field(default_factory=list)
    zeros: int = 0
    constant: bool = True


def transfer(
    checkpoints: Sequence[Checkpoint],
    pieces: Sequence[Piece],
    file: Path,
    *,
    label: str,
    show_progress: bool = True,
) -> list[str]:
    """Write ``file`` and return what is odd about it, in words.

    Each checkpoint's digest is remembered if the pieces name all of its tensors.

    Args:
        checkpoints: where to read from.
        pieces: what to write.
        file: the safetensors file to make.
        label: what the progress bar says.
        show_progress: whether there is a bar.

    Raises:
        CheckpointError: a tensor that is no float, is not finite, or a file that changed
            while it was read. ``file`` is not to be used then.
    """
    header, jobs = _layout(checkpoints, pieces)
    with ExitStack() as stack:
        descriptors = {
            path: _open(stack, path, os.O_RDONLY) for each in checkpoints for path in each.files
        }
        out = _open(stack, file, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        _write_exactly(out, header, 0)
        total = sum(e.stop - e.start for job in jobs for e in job.entries)
        bar = stack.enter_context(
            tqdm(total=total, desc=label, unit="B", unit_scale=True, leave=False,
                 disable=not show_progress or total < 1 << 28)
        )  # fmt: skip
        pool = stack.enter_context(ThreadPoolExecutor(min(_THREADS, os.cpu_count() or 1)))
        largest_first = sorted(jobs, key=lambda job: -job.entries[0].count)
        running = [pool.submit(_run, job, descriptors, out, bar) for job in largest_first]
        try:
            for future in running:
                future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
    for index, each in enumerate(checkpoints):
        each.check_unchanged()
        hashes = {job.piece.sources[index]: job.hashes[index] for job in jobs}
        if hashes.keys() == each.tensors.keys():
            each.remember(combined_digest(each.tensors, hashes))
    return [note for job in jobs if (note := _oddity(job))]


def _open(stack: ExitStack, path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), 0o644)
    stack.callback(os.close, descriptor)
    return descriptor


def _layout(checkpoints: Sequence[Checkpoint], pieces: Sequence[Piece]) -> tuple[bytes, list[_Job]]:
    """The header, and per piece where its bytes go."""
    # Wider types first, so that every tensor starts at a multiple of its size.
    ordered = sorted(pieces, key=lambda p: (p.name is None, -FLOATS[p.dtype], p.name or ""))
    fields: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    jobs, position = [], 0
    for piece in ordered:
        entries = [
            checkpoint.tensors[name]
            for checkpoint, name in zip(checkpoints, piece.sources, strict=True)
        ]
        for entry in entries:
            check_float(entry)
        jobs.append(_Job(piece, entries, position))
        if piece.name is not None:
            stop = position + entries[0].count * FLOATS[piece.dtype]
            fields[piece.name] = {
                "dtype": piece.dtype,
                "shape": entries[0].shape,
                "data_offsets": [position, stop],
            }
            position = stop
    raw = json.dumps(fields, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    header = struct.pack("<Q", len(raw)) + raw
    for job in jobs:
        job.place += len(header)
    return header, jobs


def _run(job: _Job, descriptors: Mapping[Path, int], out: int, bar: Any) -> None:
    """Read one tensor of each source a block at a time, and write their mean."""
    import torch

    dtypes = torch_dtypes()
    count, width = job.entries[0].count, FLOATS[job.piece.dtype]
    hashes = [hashlib.sha256() for _ in job.entries]
    buffers = [
        torch.empty(min(_BLOCK, count) * FLOATS[entry.dtype], dtype=torch.uint8)
        for entry in job.entries
    ]
    total = torch.empty(min(_BLOCK, count), dtype=torch.float32)
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        blocks = []
        for entry, buffer, digest in zip(job.entries, buffers, hashes, strict=True):
            raw = buffer[: size * FLOATS[entry.dtype]]
            view = raw.numpy().data
            offset = entry.start + start * FLOATS[entry.dtype]
            if not read_exactly(descriptors[entry.file], view, offset):
                raise cut_short(entry)
            digest.update(view)
            blocks.append(raw.view(dtypes[entry.dtype]))
        mean = _mean(blocks, total[:size], job.entries)
        if job.piece.name is not None:
            _look(job, mean)
            data = mean.to(dtypes[job.piece.dtype]).view(torch.uint8).numpy()
            _write_exactly(out, data.data, job.place + start * width)
        bar.update(sum(block.nbytes for block in blocks))
    job.hashes = [digest.hexdigest() for digest in hashes]


def _mean(blocks: Sequence[Tensor], total: Tensor, entries: Sequence[TensorEntry]) -> Tensor:
    """The float32 mean of the blocks, in ``total``; refuses what is not finite."""
    total.copy_(blocks[0])
    for block in blocks[1:]:
        total.add_(block)
    if len(blocks) > 1:
        total.div_(len(blocks))
    # A sum is finite unless a value is not, or values are absurdly large: then look closer.
    if not total.sum().isfinite():
        for block, entry in zip(blocks, entries, strict=True):
            if not block.isfinite().all():
                raise not_finite(entry)
    return total


def _look(job: _Job, mean: Tensor) -> None:
    job.zeros += mean.numel() - int(mean.count_nonzero())
    if job.constant and len(job.entries[0].shape) > 1:
        job.constant = bool((mean == mean[0]).all())


def _oddity(job: _Job) -> str | None:
    """What looks wrong in a matrix although it is finite; norms may well be all ones."""
    entry = job.entries[0]
    if job.piece.name is None or len(entry.shape) < 2 or entry.count < 2:
        return None
    if job.constant:
        return f"{entry.stored_name}: every value of it is the same"
    share = job.zeros / entry.count
    if share > _ZEROS:
        return f"{entry.stored_name}: {share:.0%} of its values are exactly 0"
    return None


def _write_exactly(descriptor: int, data: bytes | memoryview, offset: int) -> None:
    view, done = memoryview(data), 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], offset + done)
