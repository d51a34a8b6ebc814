"""Files of texts to encode: one ``{"text": ...}`` per line, perhaps compressed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, BinaryIO

from pydantic import BaseModel, ValidationError

from qwen3nb.utils.atomic_files import errors_naming
from qwen3nb.utils.compressed import DAMAGED, compression, open_unpacked

_BOM = b"\xef\xbb\xbf"


class _Line(BaseModel, strict=True):
    """A line of a file of texts; other fields are ignored."""

    text: str


def read_texts(file: Path) -> Iterator[str]:
    """Yield the texts of a file; refuse other lines.

    Blank lines and a byte order mark are skipped; the file may be compressed (see `COMPRESSED`).
    """
    try:
        with closing(open_unpacked(file, compression(file))) as handle:
            yield from texts_from(handle, file)
    except DAMAGED as error:
        if not compression(file):
            raise
        raise ValueError(f"{file}: cannot be unpacked ({error})") from None


def texts_from(handle: IO[bytes], file: Path) -> Iterator[str]:
    """Yield the texts from the position of ``handle``; errors count lines from there."""
    with errors_naming(file):
        for number, raw in enumerate(handle, start=1):
            line = raw.removeprefix(_BOM).strip()
            if not line:
                continue
            try:
                yield _Line.model_validate_json(line).text
            except ValidationError as error:
                reason = error.errors()[0]["msg"]
                raise ValueError(f'{file}:{number}: expected {{"text": "…"}}; {reason}') from None


def lines_of(handle: BinaryIO, texts: int) -> Iterator[bytes]:
    """Yield the next lines, up to the last of so many texts; with the blank ones between them."""
    while texts > 0:
        line = handle.readline()
        if not line:
            return
        is_blank = not line.removeprefix(_BOM).strip()
        if not is_blank:
            texts -= 1
        yield line


def check_texts(file: Path) -> int:
    """Return the number of texts in ``file``; raise an error if it is empty or malformed."""
    if not file.is_file():
        raise ValueError(f"{file}: no such file")
    count = sum(1 for _ in read_texts(file))
    if count == 0:
        raise ValueError(f'{file} is empty; expected one {{"text": "…"}} per line')
    return count
