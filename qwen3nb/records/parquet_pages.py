"""How much memory the pages of a Parquet file take, from their own headers.

A page is unpacked to the size that its header states. The footer of the file states sums of these
sizes, and Arrow does not compare them: a file of kilobytes could take gigabytes.

The headers are structs of Thrift's compact protocol,
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md, with the fields
of https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from mmap import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_Path = tuple[int, ...]  # numbers of fields, of a struct within a struct
_UNPACKED_SIZE: _Path = (2,)
_PACKED_SIZE: _Path = (3,)
_DATA: tuple[int, ...] = (5, 8)  # the field of a page with data, in both versions of these
_VALUES = 1  # of its fields
_ENCODING = {5: 2, 8: 4}
_PLAIN = 0  # the encoding of values as they are
_STOP = 0  # the types of Thrift
_BOOLEANS = (1, 2)  # whose value is the type
_BYTE = 3
_WHOLE_NUMBERS = (4, 5, 6)  # of 16, 32 and 64 bits
_DOUBLE = 7
_BINARY = 8
_STRUCT = 12
_DEEPEST = 4  # structs within structs: a header has three


class PageError(ValueError):
    """Bytes that are no pages of Parquet."""


@dataclass(frozen=True)
class Page:
    """What the header of a page states."""

    unpacked_size: int  # bytes
    values: int  # number of them, nulls included
    is_plain: bool  # whether the values are written as they are


def column_chunks(footer: "pq.FileMetaData") -> Iterator["pq.ColumnChunkMetaData"]:
    """Yield the parts of all columns in a Parquet file: one per group of rows."""
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for column in range(group.num_columns):
            yield group.column(column)


def chunk_pages(content: bytes | mmap, chunk: "pq.ColumnChunkMetaData") -> Iterator[Page]:
    """Yield the pages of one of the `column_chunks` of a file; see `pages`."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page:
        start = chunk.dictionary_page_offset
    return pages(content, start=start, size=chunk.total_compressed_size)


def pages(content: bytes | mmap, *, start: int, size: int) -> Iterator[Page]:
    """Yield the pages of a column.

    Args:
        content: the file.
        start: where the first page begins.
        size: bytes of all pages with their headers, packed.

    Raises:
        PageError: these bytes are no pages.
    """
    end = start + size
    if not 0 <= start <= end <= len(content):
        raise PageError(f"its pages would be at {start:,} to {end:,} of {len(content):,} bytes")
    header = _Header(content, start)
    while header.position < end:
        fields = header.read()
        unpacked_size, packed_size = fields.get(_UNPACKED_SIZE, -1), fields.get(_PACKED_SIZE, -1)
        values = sum(fields.get((data, _VALUES), 0) for data in _DATA)
        encodings = {fields.get((data, _ENCODING[data]), _PLAIN) for data in _DATA}
        if min(unpacked_size, packed_size, values) < 0:
            raise PageError("a page states no sizes, or negative ones")
        yield Page(unpacked_size, values, is_plain=encodings == {_PLAIN})
        header.position += packed_size
    if header.position != end:
        raise PageError("its last page ends elsewhere than its column")


class _Header:
    """Reads structs of Thrift's compact protocol."""

    def __init__(self, content: bytes | mmap, position: int) -> None:
        self._content = content
        self.position = position

    def read(self, path: _Path = ()) -> dict[_Path, int]:
        """Read a struct; return the whole numbers in it, and in its structs, by path."""
        if len(path) > _DEEPEST:
            raise PageError("a header of a page nests too deep")
        numbers: dict[_Path, int] = {}
        field = 0
        while True:
            byte = self._byte()
            step, kind = byte >> 4, byte & 0x0F
            if kind == _STOP:
                return numbers
            # Without a step from the field before, its number follows.
            field = field + step if step else self._whole_number()
            if kind in _WHOLE_NUMBERS:
                numbers[*path, field] = self._whole_number()
            elif kind == _STRUCT:
                numbers |= self.read((*path, field))
            else:
                self._skip(kind)

    def _skip(self, kind: int) -> None:
        """Pass over a value of another type."""
        if kind in _BOOLEANS:
            return
        if kind == _BYTE:
            self.position += 1
        elif kind == _DOUBLE:
            self.position += 8
        elif kind == _BINARY:
            length = self._varint()  # which moves the position, too
            self.position += length
        else:
            raise PageError(f"a header of a page has a value of type {kind}")

    def _whole_number(self) -> int:
        """Return a signed number: 0, -1, 1, -2 and so on are written as 0, 1, 2, 3."""
        value = self._varint()
        return (value >> 1) ^ -(value & 1)

    def _varint(self) -> int:
        """Return an unsigned number, of seven bits per byte, the lowest first."""
        value = 0
        for shift in range(0, 64, 7):
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise PageError("a header of a page has too long a number")

    def _byte(self) -> int:
        if self.position >= len(self._content):
            raise PageError("a header of a page is cut")
        byte = self._content[self.position]
        self.position += 1
        return byte
