"""The bytes of a file of any kind, also those that it holds packed."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from qwen3nb.utils.compressed import DAMAGED, ZIP, compression_of, open_unpacked

_BLOCK = 1 << 24  # bytes at once
_OVERLAP = 1 << 13  # bytes that a block repeats of the one before, so that no text is cut
_MOST_UNPACKED = 1 << 30  # bytes of what a file holds packed that are looked at
_PNG, _PARQUET = b"\x89PNG\r\n\x1a\n", b"PAR1"
_TEXTS_OF_PNG = (b"zTXt", b"iTXt")
# What a file raises that is not what it begins as, or is encrypted.
_UNREADABLE = (*DAMAGED, zipfile.BadZipFile, struct.error, ValueError, RuntimeError)


def contents(file: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in blocks, then those that it holds packed.

    Unpacked are streams (gzip, bzip2, xz, Zstandard, LZ4), members of zip files (also .npz and
    .xlsx), texts of PNG images, and strings of Parquet; a gibibyte of a file, and up to where it is
    damaged. Not unpacked are pixels, PDF, what is encrypted, and archives within archives.
    """
    with file.open("rb") as stream:
        head = stream.read(10)
        stream.seek(0)
        yield from _blocks(stream)
        stream.seek(0)
        size = 0
        try:
            for content in _unpacked(stream, head):
                yield content
                size += len(content)
                if size > _MOST_UNPACKED:
                    return
        except _UNREADABLE:
            return


def _unpacked(stream: IO[bytes], head: bytes) -> Iterator[bytes]:
    """Yield what a file that starts with ``head`` holds packed, in blocks."""
    suffix = compression_of(head)
    if suffix:
        yield from _blocks(open_unpacked(stream, suffix))
    elif head.startswith(ZIP):
        yield from _members(stream)
    elif head.startswith(_PNG):
        yield from _texts_of_image(stream)
    elif head.startswith(_PARQUET):
        yield from _strings_of_table(stream)


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield what a stream has, in blocks that overlap."""
    end_of_last = b""
    while block := stream.read(_BLOCK):
        yield end_of_last + block
        end_of_last = block[-_OVERLAP:]


def _members(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield names, comments and contents of a zip file's members."""
    with zipfile.ZipFile(stream) as archive:
        for member in archive.infolist():
            with archive.open(member) as content:
                yield from _blocks(content)


def _texts_of_image(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the packed texts of a PNG image, each after a null byte."""
    stream.seek(len(_PNG))
    while header := stream.read(8):
        length, kind = struct.unpack(">I4s", header)
        if kind not in _TEXTS_OF_PNG:
            stream.seek(length + 4, 1)  # with a checksum
            continue
        content = stream.read(length)
        stream.seek(4, 1)
        for position, byte in enumerate(content[:1000]):
            if byte == 0:
                yield _unpacked_start(content[position + 1 :].lstrip(b"\0"))


def _unpacked_start(content: bytes) -> bytes:
    """Return the first block of what zlib packed; empty if it is nothing of zlib's."""
    try:
        return zlib.decompressobj().decompress(content, _BLOCK)
    except zlib.error:
        return b""


def _strings_of_table(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the texts and bytes in a Parquet file, column by column, one after the other."""
    from pyarrow import parquet

    table = parquet.ParquetFile(stream)
    columns = [table.schema.column(number) for number in range(len(table.schema))]
    names = [column.path for column in columns if column.physical_type == "BYTE_ARRAY"]
    if not names:
        return
    for batch in table.iter_batches(columns=names):
        for column in batch.columns:
            for buffer in column.buffers():
                if buffer is not None:
                    yield buffer.to_pybytes()
