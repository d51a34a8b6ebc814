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
# By suffix, and Arrow's name of those that Python cannot unpack.
_NAMES_IN_ARROW = {".zst": "zstd", ".zstd": "zstd", ".lz4": "lz4", ".br": "brotli"}
_OPENERS: dict[str, Callable[..., Any]] = {
    ".gz": gzip.open,
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
