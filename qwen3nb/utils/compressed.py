"""Read compressed files as if they were not: gzip, bzip2, xz, Zstandard, LZ4 and Brotli."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

# What a damaged file raises, by its library; Arrow raises OSError.
DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError)
_MAGIC = {
    b"\x1f\x8b\x08": ".gz",
    b"\xfd7zXZ\0": ".xz",
    b"\x28\xb5\x2f\xfd": ".zst",
    b"\x04\x22\x4d\x18": ".lz4",
}
ZIP, _TAR, _TAR_OFFSET = b"PK\x03\x04", b"ustar", 257  # how archives begin, tar after its names
# By suffix, and Arrow's name of those that Python cannot unpack.
_NAMES_IN_ARROW = {".zst": "zstd", ".zstd": "zstd", ".lz4": "lz4", ".br": "brotli"}
_GZIP_BLOCK = 1 << 14  # bytes read at once; what follows a part is copied
_UNPACKED_BLOCK = 1 << 17  # bytes
_GZIP_FORMAT = 16 + zlib.MAX_WBITS  # zlib's name of it
_MOST_EMPTY_PARTS = 1000


class _Gzip(io.RawIOBase):
    """The content of a gzip file, which may have several parts.

    Unlike `gzip`, it reads a part's header in C, and refuses a file of thousands of empty parts:
    both took minutes.
    """

    def __init__(self, file: Path | IO[bytes]) -> None:
        self._is_opened_here = isinstance(file, Path)
        self._stream = file.open("rb") if isinstance(file, Path) else file
        self._input = b""  # read, but not unpacked
        self._part: Any = None  # zlib's decompressor
        self._is_part_empty = False
        self._empty_parts = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while True:
            is_between_parts = self._part is None or self._part.eof
            if is_between_parts and not self._begins_part():
                return 0
            if not self._input:
                self._input = self._stream.read(_GZIP_BLOCK)
            content = self._unpacked(len(buffer))
            if content:
                self._is_part_empty = False
                buffer[: len(content)] = content
                return len(content)

    def _begins_part(self) -> bool:
        """Start with the next part; return whether there is one."""
        if self._is_part_empty:
            self._empty_parts += 1
        if self._empty_parts > _MOST_EMPTY_PARTS:
            raise gzip.BadGzipFile(f"more than {_MOST_EMPTY_PARTS:,} of its parts are empty")
        while True:
            if self._part is not None:  # zeros may follow a part
                self._input = self._input.lstrip(b"\0")
            if self._input:
                break
            self._input = self._stream.read(_GZIP_BLOCK)
            if not self._input:
                return False
        self._part = zlib.decompressobj(_GZIP_FORMAT)
        self._is_part_empty = True
        return True

    def _unpacked(self, most_bytes: int) -> bytes:
        """Return what the input unpacks to; empty if more input is needed, or the part ends."""
        is_at_end = not self._input
        try:
            content: bytes = self._part.decompress(self._input, most_bytes)
        except zlib.error as error:
            raise gzip.BadGzipFile(f"Not a gzipped file, or a damaged one: {error}") from None
        if self._part.eof:
            self._input = self._part.unused_data
        else:
            self._input = self._part.unconsumed_tail
            if is_at_end and not content:
                raise EOFError("Compressed file ended before the end-of-stream marker was reached")
        return content

    def close(self) -> None:
        if self._is_opened_here:
            self._stream.close()
        super().close()


def _open_gzip(file: Path | IO[bytes]) -> IO[bytes]:
    """Open a gzip file, or a stream of one."""
    return io.BufferedReader(_Gzip(file), _UNPACKED_BLOCK)


_OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": _open_gzip,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".lzma": lzma.open,
}
COMPRESSED = (*_OPENERS, *_NAMES_IN_ARROW)  # suffixes


def compression(file: Path) -> str:
    """Return the suffix of a compressed file's name; empty for any other.

    >>> compression(Path("corpus.jsonl.ZST")), compression(Path("corpus.jsonl"))
    ('.zst', '')
    """
    suffix = file.suffix.lower()
    if suffix in COMPRESSED:
        return suffix
    return ""


def compression_of(head: bytes) -> str:
    """Return the suffix for content that starts with ``head``; empty if it is not compressed.

    Ten bytes are enough.
    """
    if head.startswith(b"BZh") and head[4:10] == b"1AY&SY":
        return ".bz2"
    for magic, suffix in _MAGIC.items():
        if head.startswith(magic):
            return suffix
    return ""


def is_archive(head: bytes) -> bool:
    """Return whether content that starts with ``head``, of 262 bytes or more, is a zip or tar.

    >>> is_archive(b"PK\\x03\\x04..."), is_archive(b"text")
    (True, False)
    """
    return head.startswith(ZIP) or head.startswith(_TAR, _TAR_OFFSET)


def without_compression(name: str) -> str:
    """Return a file's name without the suffix of its compression.

    >>> without_compression("corpus.jsonl.gz")
    'corpus.jsonl'
    """
    suffix = compression(Path(name))
    return name[: len(name) - len(suffix)]


def open_unpacked(file: Path | IO[bytes], suffix: str) -> IO[bytes]:
    """Open a file, or a stream of one, and unpack it as ``suffix`` says; empty for as it is.

    Reading may raise one of `DAMAGED`, also where the file ends too early.
    """
    if suffix in _OPENERS:
        unpacked: IO[bytes] = _OPENERS[suffix](file)
        return unpacked
    if suffix in _NAMES_IN_ARROW:
        import pyarrow as pa

        source = str(file)
        if not isinstance(file, Path):
            source = pa.PythonFile(file, mode="r")
        # Arrow unpacks what Python has no module for.
        stream = pa.input_stream(source, compression=_NAMES_IN_ARROW[suffix])
        return io.BufferedReader(stream)
    if isinstance(file, Path):
        return file.open("rb")
    return file
