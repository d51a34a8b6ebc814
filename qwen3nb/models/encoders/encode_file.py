"""Encode a file of texts into a file of vectors in constant memory."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.encoders.encode_blocks import encode_blocks
from qwen3nb.models.types import EncoderError
from qwen3nb.utils.atomic_files import new_file
from qwen3nb.utils.files.file_errors import named
from qwen3nb.utils.progress import tqdm

__all__ = [
    "AT_ONCE", "Encoded", "check_output", "check_texts", "encode_to_file", "read_texts",
    "text_bar", "texts_from",
]  # fmt: skip

AT_ONCE = 4096  # texts in memory: enough to batch texts of similar length
_HEADER = 128  # bytes: room for any number of rows
_LONGEST = 64 << 20  # bytes of a line; longer lines are refused


@dataclass(frozen=True)
class Encoded:
    """The file that `encode_to_file` wrote.

    Attributes:
        file: the .npy file.
        rows: number of rows, one per text.
        dimension: number of columns.
        hits: texts read from the cache; equal texts count once per 4,096.
        misses: texts computed by the model.
    """

    file: Path
    rows: int
    dimension: int
    hits: int
    misses: int


def encode_to_file(
    encoder: Encoder,
    texts: Iterable[str],
    file: Path,
    *,
    role: str | None = None,
    total: int | None = None,
    first: int = 0,
    replace: bool = True,
    advance: Callable[[int], object] | None = None,
) -> Encoded:
    """Write the vectors of ``texts``, in order, to a .npy file of float32 (N, D).

    Texts are read 4,096 at a time. The file appears under its name when it is complete; an
    earlier file stays until then. After a kill, an encoder with a cache resumes and encodes
    at most 512 texts again, on a GPU at most 4,096.

    Args:
        encoder: any encoder.
        texts: any number of strings.
        file: the .npy file to write.
        role: ``query`` or ``passage``; selects the prompt.
        total: number of texts, if known; shown in the progress bar and checked at the end.
        first: position of the first text in a larger input, for errors.
        replace: whether to replace a file that is there by the end.
        advance: called with the number of texts done, instead of a progress bar.

    Raises:
        EncoderError: a text that cannot be encoded, or a number of texts other than ``total``.
    """
    before = (encoder.stats.cached, encoder.stats.encoded)
    rows = 0
    with new_file(file, replace=replace) as handle, _progress(encoder, total, advance) as done:
        handle.write(_header(0, encoder.dimension))
        for vectors in encode_blocks(encoder, texts, size=AT_ONCE, first=first, role=role):
            handle.write(vectors.astype("<f4", copy=False).data)
            rows += len(vectors)
            done(len(vectors))
        if total not in (None, rows):
            raise EncoderError(f"expected {total} texts; got {rows}; did the input change?")
        handle.seek(0)
        handle.write(_header(rows, encoder.dimension))
    return Encoded(
        file=file,
        rows=rows,
        dimension=encoder.dimension,
        hits=encoder.stats.cached - before[0],
        misses=encoder.stats.encoded - before[1],
    )


@contextmanager
def _progress(
    encoder: Encoder, total: int | None, advance: Callable[[int], object] | None
) -> Iterator[Callable[[int], object]]:
    """Show one bar for all texts instead of the encoder's bar for each part, or none."""
    shown, encoder.show_progress = encoder.show_progress, False
    try:
        if advance is not None:
            yield advance
            return
        with text_bar(encoder.label, total, show=shown) as bar:
            yield bar.update
    finally:
        encoder.show_progress = shown


def text_bar(label: str, total: int | None, *, show: bool) -> tqdm:
    """Return a bar that counts the texts of a file."""
    return tqdm(total=total, desc=label, unit=" texts", delay=2, leave=False, disable=not show)


def _header(rows: int, dimension: int) -> bytes:
    """Return a .npy header of ``_HEADER`` bytes, version 1.0: magic, length, padded fields."""
    shape = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {dimension}), }}"
    start = b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little")
    return start + shape.encode("ascii").ljust(_HEADER - 11) + b"\n"


def read_texts(file: Path) -> Iterator[str]:
    """Yield the texts of a file with one ``{"text": ...}`` per line; refuse empty lines.

    Raises:
        ValueError: any other line; names the line number.
    """
    with file.open("rb") as handle:
        yield from (text for text, _ in texts_from(handle, file))


def texts_from(handle: BinaryIO, file: Path) -> Iterator[tuple[str, int]]:
    """Yield the texts from where ``handle`` stands, each with the bytes of its line.

    Raises:
        ValueError: a malformed line; names ``file`` and the line number, counted from there.
    """
    with named(file):
        for number in itertools.count(1):
            line = handle.readline(_LONGEST + 1)
            if not line:
                return
            yield _text(line, where=f"{file}:{number}"), len(line)


def _text(line: bytes, *, where: str) -> str:
    if len(line) > _LONGEST:
        raise ValueError(f"{where}: a line of more than {_LONGEST >> 20} MiB")
    try:
        value = json.loads(line.decode("utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"{where}: not JSON ({error})") from None
    text = value.get("text") if isinstance(value, dict) else None
    if not isinstance(text, str):
        kind = f"text of type {type(text).__name__}" if isinstance(value, dict) else "no object"
        raise ValueError(f'{where}: expected {{"text": "…"}}; got {kind}')
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ValueError(f"{where}: the text is not valid Unicode (a lone surrogate)") from None
    return text


def check_texts(file: Path) -> int:
    """Read and check every line of ``file``; return the number of texts.

    Raises:
        ValueError: no such file, no texts, or a malformed line; names the line number.
    """
    if not file.is_file():
        raise ValueError(f"{file}: no such file")
    count = sum(1 for _ in read_texts(file))
    if not count:
        raise ValueError(f'{file} is empty; expected one {{"text": "…"}} per line')
    return count


def check_output(file: Path) -> None:
    """Refuse an output file that cannot be written, before any work is done.

    Raises:
        ValueError: not a .npy file, a folder, or in a folder that is missing or read-only.
    """
    if file.suffix != ".npy" or file.is_dir():
        raise ValueError(f"{file}: expected the name of a .npy file")
    if not file.parent.is_dir():
        raise ValueError(f"{file.parent}: no such folder to write to")
    if not os.access(file.parent, os.W_OK):
        raise ValueError(f"{file.parent}: this folder is not writable")
