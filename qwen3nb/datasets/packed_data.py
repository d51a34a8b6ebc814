"""What the files of a copied data set unpack to, found before the library `datasets` unpacks them.

The library writes what it unpacks to the disk, however much it is.
"""

import mmap
import tarfile
import zipfile
from contextlib import closing
from itertools import accumulate
from pathlib import Path

from qwen3nb.datasets.custom.formats import parquet_batches, unpacked_size
from qwen3nb.datasets.rows import RATIO, READ_LIMIT, DataError, size_limit, unpacked_limit
from qwen3nb.records.parquet_pages import PageError, chunk_pages, column_chunks
from qwen3nb.utils.compressed import DAMAGED, compression_of, open_unpacked

_BLOCK = 1 << 20  # bytes
_HEAD = 10  # bytes by which compression is recognised
_PARQUET = b"PAR1"  # how such a file begins
_MOST_MEMBERS = 10_000  # files in an archive


def refuse_too_large(file: Path) -> None:
    """Raise for a file that is small, and unpacks to more than a disk or the memory holds.

    The limit is 200 times its size, and at least 16 MiB; `READ_LIMIT` raises it.

    Args:
        file: of any format. Compressed files, archives and Parquet are read to their end; others,
            and what is damaged, are left to the library.

    Raises:
        DataError: it unpacks to more than the limit, is an archive of more than 10,000 files, or
            Parquet without the pages that it states.
    """
    import pyarrow as pa

    packed_size = file.stat().st_size
    limit = size_limit(unpacked_limit(packed_size))
    # A file may be of several formats, and the library has an order of its own.
    for is_larger in (_is_stream_larger, _is_tar_larger, _is_zip_larger, _is_table_larger):
        try:
            is_too_large = is_larger(file, limit)
        except (*DAMAGED, tarfile.TarError, zipfile.BadZipFile, pa.ArrowException):
            continue  # not of this format, or damaged
        except PageError as error:
            raise DataError(f"{file}: cannot be read as Parquet ({error})") from None
        if is_too_large:
            raise DataError(
                f"{file}: it has {packed_size:,} bytes, and would unpack to more than {limit:,}, "
                f"or to more than {_MOST_MEMBERS:,} files. Expected at most {RATIO} times its "
                f"size. If you trust it, set {READ_LIMIT} to a larger size"
            )


def _is_stream_larger(file: Path, limit: int) -> bool:
    """Return whether a compressed file unpacks to more bytes than a limit."""
    suffix = _compression(file)
    if not suffix:
        return False
    size = 0
    with closing(open_unpacked(file, suffix)) as stream:
        while block := stream.read(_BLOCK):
            size += len(block)
            if size > limit:
                return True
    return False


def _is_tar_larger(file: Path, limit: int) -> bool:
    """Return the same of a tar, compressed or not, whose files may have holes."""
    stream = open_unpacked(file, _compression(file))
    size = 0
    # The mode "r|" reads from start to end, without seeking.
    with closing(stream), tarfile.open(fileobj=stream, mode="r|") as archive:
        for number, member in enumerate(archive, start=1):
            size += member.size
            if size > limit or number > _MOST_MEMBERS:
                return True
    return False


def _is_zip_larger(file: Path, limit: int) -> bool:
    """Return the same of a zip, none of whose files may be larger than it states."""
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
    size = sum(member.file_size for member in members)
    return size > limit or len(members) > _MOST_MEMBERS


def _is_table_larger(file: Path, limit: int) -> bool:
    """Return the same of Parquet, as its pages state, and as its values are."""
    import pyarrow.parquet as pq

    with file.open("rb") as handle:
        if handle.read(len(_PARQUET)) != _PARQUET:
            return False
        content = mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
    footer = pq.read_metadata(file)
    with closing(content):
        size = 0
        for chunk in column_chunks(footer):
            size += sum(page.unpacked_size for page in chunk_pages(content, chunk))
    if size > limit:
        return True
    sizes = map(unpacked_size, parquet_batches(file))
    return any(size > limit for size in accumulate(sizes))


def _compression(file: Path) -> str:
    """Return the suffix for a file that is compressed, by its first bytes; empty for another."""
    with file.open("rb") as handle:
        return compression_of(handle.read(_HEAD))
