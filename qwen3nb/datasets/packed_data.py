"""What the files of a copied data set unpack to, found before the library `datasets` unpacks them.

The library writes what it unpacks to the disk, however much it is. It, and pandas, also unpack what
is packed in a packed file.
"""

from __future__ import annotations

import mmap
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING

from qwen3nb.datasets.custom.formats import parquet_batches, unpacked_size
from qwen3nb.datasets.rows import (
    RATIO,
    READ_LIMIT,
    DataError,
    printable,
    size_limit,
    unpacked_limit,
)
from qwen3nb.records.parquet_pages import PageError, chunk_pages, column_chunks
from qwen3nb.utils.bounded_call import BoundError, bounded_text
from qwen3nb.utils.compressed import (
    DAMAGED,
    ZIP,
    compression,
    compression_of,
    is_archive,
    open_unpacked,
)

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK = 1 << 20  # bytes
_HEAD = 512  # bytes by which a packed file is recognised
_ARCHIVES = (".zip", ".tar")
_PARQUET = b"PAR1"  # how such a file begins
_ARROW = ".arrow"  # the library recognises it by its name
_ARROW_FILE = b"ARROW1"  # how one begins that is no stream
_MEMORY_BESIDE = 256 << 20  # bytes that Arrow may use besides
_ARROW_SECONDS = 60  # of the processor, to read one of Arrow
_MOST_MEMBERS = 10_000  # files in an archive


class _TooLargeError(Exception):
    """A file that unpacks to too much; says to what."""


class _DamagedError(Exception):
    """A packed file that cannot be unpacked; says why."""


def refuse_too_large(file: Path) -> None:
    """Raise for a file that is small, and unpacks to more than a disk or the memory holds.

    The limit is 200 times its size, and at least 16 MiB; `READ_LIMIT` raises it.

    Args:
        file: of any format. Compressed files, archives, Parquet and Arrow are read to their end;
            others are left to the library.

    Raises:
        DataError: it unpacks to more than the limit, is packed twice, is an archive of more than
            10,000 files, or cannot be unpacked.
    """
    packed_size = file.stat().st_size
    limit = size_limit(unpacked_limit(packed_size))
    # A file may be of several formats, and the library has an order of its own.
    for check in (_check_stream, _check_tar, _check_zip, _check_parquet, _check_arrow):
        try:
            check(file, limit)
        except _DamagedError as error:
            reason = printable(f"{error!s:.200}")
            raise DataError(f"{file}: cannot be unpacked ({reason}); fetch it again") from None
        except _TooLargeError as error:
            raise DataError(
                f"{file}: it has {packed_size:,} bytes, and {error}. Expected at most {RATIO} "
                f"times its size, packed once. If you trust it, unpack it, or set {READ_LIMIT} to "
                "a larger size"
            ) from None


def _check_stream(file: Path, limit: int) -> None:
    """Raise `_TooLargeError` for a compressed file that unpacks to more bytes than a limit."""
    packing = _packing(file)
    if not packing:
        return
    try:
        with closing(open_unpacked(file, packing)) as stream:
            head = stream.read(_HEAD)
            if compression_of(head) or head.startswith(ZIP):
                raise _TooLargeError("is packed twice")
            _check_size(chain([len(head)], _block_sizes(stream)), limit)
    except DAMAGED as error:
        raise _DamagedError(error) from None


def _block_sizes(stream: IO[bytes]) -> Iterator[int]:
    """Yield the bytes of each block that is left in a stream."""
    while block := stream.read(_BLOCK):
        yield len(block)


def _check_tar(file: Path, limit: int) -> None:
    """Raise the same for a tar, compressed or not, whose files may have holes."""
    stream = open_unpacked(file, _packing(file))
    # What is no tar, or damaged, ends as for whoever unpacks it. "r|" reads without seeking.
    with suppress(tarfile.TarError), closing(stream), _as_tar(stream) as archive:
        size = 0
        for number, member in enumerate(archive, start=1):
            size += member.size
            _check_archive(number, size, limit)
            content = archive.extractfile(member) if member.isreg() else None
            if content is not None:
                _check_member(member.name, content.read(_HEAD))


def _as_tar(stream: IO[bytes]) -> tarfile.TarFile:
    """Return an open file as a tar, to be read from start to end without seeking."""
    return tarfile.open(fileobj=stream, mode="r|")


def _check_zip(file: Path, limit: int) -> None:
    """Raise the same for a zip, none of whose files may be larger than it states."""
    if not zipfile.is_zipfile(file):
        return
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            _check_archive(len(members), sum(member.file_size for member in members), limit)
            for member in members:
                with archive.open(member) as content:
                    _check_member(member.filename, content.read(_HEAD))
    except (*DAMAGED, zipfile.BadZipFile, RuntimeError) as error:  # the last if it is encrypted
        raise _DamagedError(error) from None


def _check_archive(files: int, size: int, limit: int) -> None:
    """Raise `_TooLargeError` for an archive of too many files, or too many bytes."""
    if files > _MOST_MEMBERS:
        raise _TooLargeError(f"has more than {_MOST_MEMBERS:,} files")
    _check_size(iter([size]), limit)


def _check_member(name: str, head: bytes) -> None:
    """Raise the same for a file of an archive that is packed, by its name or first bytes."""
    is_named_so = compression(Path(name)) or name.lower().endswith(_ARCHIVES)
    if is_named_so or compression_of(head) or is_archive(head):
        raise _TooLargeError(f"has {name!r:.60}, which is packed, too")


def _check_parquet(file: Path, limit: int) -> None:
    """Raise the same for Parquet: its pages as they state, and its values as they are."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with file.open("rb") as handle:
        if handle.read(len(_PARQUET)) != _PARQUET:
            return
        content = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    try:
        with closing(content):
            footer = pq.read_metadata(file)
            chunks = column_chunks(footer)
            pages = chain.from_iterable(chunk_pages(content, chunk) for chunk in chunks)
            _check_size((page.unpacked_size for page in pages), limit)
        _check_size(map(unpacked_size, parquet_batches(file, footer)), limit)
    except (PageError, OSError, pa.ArrowException) as error:
        raise _DamagedError(error) from None


def _check_arrow(file: Path, limit: int) -> None:
    """Raise the same for Arrow, in a bounded process: a batch is unpacked as a whole."""
    if file.suffix.lower() != _ARROW:
        return
    try:
        reason = bounded_text(
            partial(_problem_of_arrow, file, limit),
            seconds=_ARROW_SECONDS,
            memory=limit + _MEMORY_BESIDE,
            most_bytes=_BLOCK,
        )
    except BoundError as error:
        raise _DamagedError(error) from None
    if reason:
        raise _TooLargeError(reason)


def _problem_of_arrow(file: Path, limit: int) -> str:
    """Return why the batches in a file of Arrow are too large; empty if they are not."""
    import pyarrow as pa

    pa.set_memory_pool(pa.system_memory_pool())  # others reserve gigabytes
    try:
        _check_size(map(unpacked_size, _arrow_batches(file)), limit)
    except _TooLargeError as error:
        return str(error)
    return ""


def _arrow_batches(file: Path) -> Iterator[pa.RecordBatch]:
    """Yield the batches in a file of Arrow, which may be a stream."""
    import pyarrow as pa

    options = pa.ipc.IpcReadOptions(use_threads=False)  # a copied process has no others
    with pa.OSFile(str(file)) as handle:
        is_stream = handle.read(len(_ARROW_FILE)) != _ARROW_FILE
        handle.seek(0)
        if is_stream:
            yield from pa.ipc.open_stream(handle, options=options)
            return
        table = pa.ipc.open_file(handle, options=options)
        for number in range(table.num_record_batches):
            yield table.get_batch(number)


def _check_size(sizes: Iterator[int], limit: int) -> None:
    """Raise `_TooLargeError` as soon as sizes have a larger sum than a limit."""
    total = 0
    for size in sizes:
        total += size
        if total > limit:
            raise _TooLargeError(f"unpacks to more than {limit:,}")


def _packing(file: Path) -> str:
    """Return the suffix for a file that is compressed, by its first bytes or name; empty if not."""
    with file.open("rb") as handle:
        return compression_of(handle.read(_HEAD)) or compression(file)
