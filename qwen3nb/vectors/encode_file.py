"""Encode texts into vectors, block by block, and into one .npy file, in constant memory.

Shapes: N texts, D dimensions.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Protocol, TypedDict, Unpack

from qwen3nb.models.types import EncoderError, Vectors
from qwen3nb.utils.atomic_files import new_file
from qwen3nb.utils.progress import tqdm
from qwen3nb.vectors.block_file import npy_header, write_all

AT_ONCE = 4096  # texts in memory: enough to batch texts of similar length
_BLOCK = 32 << 20  # bytes of vectors: enough to batch texts of similar length
_MOST = 32_768  # texts of a block


class EncodingOptions(TypedDict, total=False):
    """Options of an encoder's ``encode`` that are passed on."""

    role: str | None  # ``query`` or ``passage``; selects the prompt
    batch_size: int | None
    show_progress_bar: bool | None
    prompt: str | None


class TextEncoder(Protocol):
    """What is used of an encoder here."""

    @property
    def label(self) -> str:
        """Its name."""

    @property
    def identity(self) -> str:
        """SHA-256 of everything its vectors depend on, except the role."""

    @property
    def dimension(self) -> int:
        """D, the length of a vector."""

    @property
    def similarity_name(self) -> str:
        """The similarity of its vectors, ``cosine`` or ``dot``."""

    @property
    def show_progress(self) -> bool:
        """Whether to show bars."""

    def encode(self, inputs: list[str], /, **options: Unpack[EncodingOptions]) -> Vectors:
        """Return the vectors (N, D) of texts."""


def block_size(dimension: int) -> int:
    """Return the number of texts of a block."""
    fitting = _BLOCK // (4 * max(1, dimension))
    return max(1, min(_MOST, fitting))


def encode_blocks(
    encoder: TextEncoder,
    texts: Iterable[str],
    *,
    size: int | None = None,
    total: int | None = None,
    start: int = 0,
    **options: Unpack[EncodingOptions],
) -> Iterator[Vectors]:
    """Yield the vectors of ``texts``, in order, in blocks (n, D) of float32.

    The vectors depend neither on ``size`` nor on the texts of the same block.

    Args:
        encoder: any encoder.
        texts: any number of strings.
        size: texts per block; None for 32 MiB of vectors.
        total: number of texts, if known; a progress bar is shown for several blocks.
        start: position of the first text in a larger input, for errors.
        options: options of `Encoder.encode`, such as ``role``.

    Raises:
        EncoderError: a text that cannot be encoded; the message says where its block starts.
    """
    size = size or block_size(encoder.dimension)
    remaining = iter(texts)
    has_several_blocks = total is not None and total > size
    bar = tqdm(
        total=total,
        desc=f"{encoder.label}: corpus",
        unit=" texts",
        leave=False,
        disable=not (encoder.show_progress and has_several_blocks),
    )
    with bar:
        block = list(itertools.islice(remaining, size))
        while block:
            try:
                vectors = encoder.encode(block, **options)
            except EncoderError as error:
                if start == 0:
                    raise
                raise EncoderError(f"counting from text {start}: {error}") from None
            yield vectors
            start += len(block)
            bar.update(len(block))
            block = list(itertools.islice(remaining, size))


def encode_to_file(
    encoder: TextEncoder,
    texts: Iterable[str],
    file: Path,
    *,
    total: int | None = None,
    start: int = 0,
    replace: bool = True,
    advance: Callable[[int], object] | None = None,
    **options: Unpack[EncodingOptions],
) -> int:
    """Write the vectors of ``texts``, in order, to a .npy file of float32 (N, D).

    Texts are read 4,096 at a time. The file is replaced when the new one is complete. After a kill,
    an encoder with a cache resumes and encodes at most 512 texts again (4,096 on a GPU). Returns
    the number of texts.

    Args:
        encoder: any encoder.
        texts: any number of strings.
        file: the .npy file to write.
        total: number of texts, if known; shown in the progress bar and checked at the end.
        start: position of the first text in a larger input, for errors.
        replace: whether to replace an existing file.
        advance: called with the number of texts done, instead of a progress bar.
        options: options of `Encoder.encode`, such as ``role``.

    Raises:
        EncoderError: a text that cannot be encoded, or a number of texts other than ``total``.
    """
    rows = 0
    bar = text_bar(encoder.label, total, show=encoder.show_progress and advance is None)
    advance = advance or bar.update
    options["show_progress_bar"] = False  # one bar for all texts
    with new_file(file, replace=replace) as handle, bar:
        # A header has a fixed length, so the number of rows can be written last.
        handle.write(npy_header(0, encoder.dimension))
        for vectors in encode_blocks(encoder, texts, size=AT_ONCE, start=start, **options):
            write_all(vectors, handle)
            rows += len(vectors)
            advance(len(vectors))
        if total is not None and rows != total:
            raise EncoderError(f"expected {total} texts; got {rows}; did the input change?")
        handle.seek(0)
        handle.write(npy_header(rows, encoder.dimension))
    return rows


def text_bar(label: str, total: int | None, *, show: bool) -> tqdm:
    """Return a bar that counts the texts of a file."""
    return tqdm(total=total, desc=label, unit=" texts", delay=2, leave=False, disable=not show)


def check_output(file: Path) -> None:
    """Raise ValueError for an output file that cannot be written, before any work is done."""
    if file.suffix != ".npy" or file.is_dir():
        raise ValueError(f"{file}: expected the name of a .npy file")
    check_writable(file.parent)


def check_writable(folder: Path) -> None:
    """Raise ValueError for a folder in which nothing can be written."""
    if not folder.is_dir():
        raise ValueError(f"{folder}: no such folder to write to")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"{folder}: this folder is not writable")
