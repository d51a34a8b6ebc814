"""Files of training data, each read by its form: JSON, tables, text, Arrow, archives.

    .jsonl .ndjson .json     any JSON values, one per line or in one document
    .csv .tsv .txt           cells, tab-separated fields, lines and paragraphs
    .srt .vtt                subtitles, as running text without numbers and times
    .parquet .arrow          also of ``datasets.save_to_disk`` and of the library's cache
    .tar .zip                files of these forms, such as WebDataset's
    compressed               .gz .bz2 .xz .zst .lz4 .br around any of these

Text is UTF-8, or UTF-16 or UTF-32 with a byte order mark. A file of another name is read by its
content. To add a form, write a reader and name it in
`READERS`.
"""

from __future__ import annotations

import codecs
import io
import re
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from qwen3nb.datasets import rows
from qwen3nb.datasets.rows import LINE, DataError, listed, printable
from qwen3nb.datasets.training_texts import is_word
from qwen3nb.utils.compressed import (
    COMPRESSED,
    DAMAGED,
    ZIP,
    compression,
    compression_of,
    is_archive,
    open_unpacked,
    without_compression,
)
from qwen3nb.utils.strict_json import parse_json

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

NumberedValue = tuple[int, object]  # number of a line, row or file of an archive, and its content
MEDIA = "images, sounds and videos"
INDICES = "files of row numbers"
# Bytes of a JSON document, or of a file in an archive, which are not streamed.
_DOCUMENT_LIMIT = 256 << 20
_LONG_PARAGRAPH = 1 << 16  # characters of lines that are also read as one text
_OVERLAP = 20  # lines of subtitles that two paragraphs share
_TIMES = re.compile(r"[\d:.,]+ *--> *[\d:.,]+.*")  # of a subtitle: 00:01:02,500 --> 00:01:04,000
_ENCODINGS = {  # by byte order mark, the longer marks first
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_MOST_ROWS_AT_ONCE = 1024  # of Parquet
_HEAD = 1 << 12  # bytes by which a file of an unusual name is recognised
_BYTES_OF_SIGNATURE = 16  # by which compression is recognised
_SIGNATURE_OF_PARQUET = b"PAR1"
_SIGNATURE_OF_ARROW = b"ARROW1"
_START_OF_ARROW_STREAM = b"\xff\xff\xff\xff"
_SIGNATURE_OF_PDF = b"%PDF"
_SMALLEST_HEADER = 30  # bytes before the content of a file in a zip archive
_ENCRYPTED = 1  # a flag of a file in a zip archive
_MARKERS_OF_OFFICE = ("[Content_Types].xml", "mimetype")  # files in documents of Office, OpenOffice
_START_OF_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
# Files about training data, by name.
_ABOUT = re.compile(
    r"(readme|license|licence|copying|notice|citation|changelog|datasheet)(\.\w{1,4})?"
    r"|(state|dataset_infos?|dataset_dict|croissant)\.json"
    r"|_success|_metadata|_common_metadata|thumbs\.db|\.ds_store|\.git\w*"
    r"|.*\.(lock|crc|md5|sha1|sha256)",
    re.IGNORECASE,
)
_IMAGES = (".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ico", ".svg")
_SOUNDS = (".mp3", ".wav", ".flac", ".ogg", ".opus", ".m4a", ".aac")
_VIDEOS = (".mp4", ".mkv", ".avi", ".mov", ".webm")
_WORD_PER_LINE = (".conll", ".conllu", ".iob", ".bio")  # with its tags
MEDIA_SUFFIXES = {*_IMAGES, *_SOUNDS, *_VIDEOS}


@dataclass(frozen=True)
class OpenedFile:
    """A file, or one of an archive, and where it notes what holds no text."""

    file: Path | bytes
    place: str
    packing: str  # suffix of its compression
    notes: Counter[str]

    def stream(self) -> IO[bytes]:
        """Return it at its start, unpacked."""
        if isinstance(self.file, bytes):
            return open_unpacked(io.BytesIO(self.file), self.packing)
        return open_unpacked(self.file, self.packing)

    def packed_size(self) -> int:
        """Return its bytes, as it is packed.

        Raises:
            OSError: it is not there any more.
        """
        if isinstance(self.file, bytes):
            return len(self.file)
        return self.file.stat().st_size

    def head(self) -> bytes:
        """Return the first bytes, unpacked.

        Raises:
            DataError: it cannot be opened.
        """
        try:
            with closing(self.stream()) as raw:
                return raw.read(_HEAD)
        except DAMAGED as error:
            raise DataError(f"{self.place}: cannot be read ({error})") from None

    def lines(self, byte_limit: int | None = None) -> Iterator[tuple[int, str]]:
        """Yield its lines with their numbers."""
        try:
            encoding = _encoding(self.head())
            with closing(self.stream()) as raw:
                utf8 = raw
                if encoding:
                    # Only its readline is needed.
                    utf8 = cast(IO[bytes], _Recoded(raw, encoding))
                yield from rows.stream_lines(utf8, place=self.place, byte_limit=byte_limit)
        except (*DAMAGED, UnicodeError) as error:
            raise DataError(f"{self.place}: cannot be read ({error})") from None

    def seekable(self) -> str | IO[bytes]:
        """Return it as something that Arrow can seek in: its path, or its content."""
        if self.packing:
            with closing(self.stream()) as raw:
                return io.BytesIO(_limited_content(raw, self.place))
        if isinstance(self.file, bytes):
            return io.BytesIO(self.file)
        return str(self.file)


class _Recoded:
    """Lines of a file in another encoding, as UTF-8."""

    def __init__(self, raw: IO[bytes], encoding: str) -> None:
        self._text = io.TextIOWrapper(raw, encoding)

    def readline(self, size: int) -> bytes:
        """Return the next line, of at most ``size`` characters."""
        return self._text.readline(size).encode("utf-8")


Reader = Callable[[OpenedFile], Iterator[NumberedValue]]


def supported_types() -> str:
    """Return the types of files that are read, for messages."""
    return f"{', '.join(READERS)}, also compressed ({', '.join(COMPRESSED)})"


def suffix_of(name: str) -> str:
    """Return the suffix of a file's name, without that of compression, in lower case."""
    return Path(without_compression(name)).suffix.lower()


def is_about(file: Path) -> bool:
    """Return whether a file is about training data, by its name."""
    is_hub_reference = file.parent.name == "refs" and (file.parent.parent / "snapshots").is_dir()
    return is_hub_reference or _ABOUT.fullmatch(file.name) is not None


def open_file(file: Path, notes: Counter[str]) -> OpenedFile:
    """Return a file whose compression is known by its name or its content.

    Raises:
        DataError: it cannot be opened.
    """
    packing = compression(file)
    if not packing:  # not by its name, but perhaps by its first bytes
        try:
            with file.open("rb") as raw:
                packing = compression_of(raw.read(_BYTES_OF_SIGNATURE))
        except OSError as error:
            raise DataError(f"{file}: cannot be read ({error})") from None
    return OpenedFile(file, place=str(file), packing=packing, notes=notes)


def find_reader(file: Path) -> Reader:
    """Return the reader of a file.

    Raises:
        DataError: it cannot be opened, or its content is of no form that can be read.
    """
    opened_file = open_file(file, notes=Counter())  # which nobody reads here
    is_pointer = opened_file.head().startswith(_START_OF_LFS_POINTER)
    if is_pointer:
        raise DataError(f"{file}: a Git LFS pointer instead of the file; run `git lfs pull`")
    has_word_per_line = suffix_of(file.name) in _WORD_PER_LINE
    if has_word_per_line:
        raise DataError(f"{file}: has a word per line; expected texts, a sentence per line")
    reader = _reader_of(file.name, opened_file)
    if reader is None:
        raise DataError(f"{file}: expected training data in files of type {supported_types()}")
    return reader


def _reader_of(name: str, opened: OpenedFile) -> Reader | None:
    """Return the reader of a file by its name, else by its content; None for bytes without text.

    Raises:
        DataError: it cannot be opened, or has NUL bytes, as UTF-16 has without a byte order mark.
    """
    head_as_utf8 = opened.head()
    encoding = _encoding(head_as_utf8)
    # Types of files are recognised by their bytes in UTF-8, whatever the encoding.
    if encoding:
        text = head_as_utf8.decode(encoding, errors="ignore")  # the head may end in a character
        head_as_utf8 = text.encode("utf-8", errors="ignore")
    reader_by_name = READERS.get(suffix_of(name))
    if reader_by_name is None:
        return _reader_by_content(head_as_utf8)
    if reader_by_name in _TEXT_READERS and b"\0" in head_as_utf8:
        raise DataError(
            f"{opened.place}: has NUL bytes; expected UTF-8, or UTF-16 with a byte order mark"
        )
    return reader_by_name


def _encoding(head: bytes) -> str:
    """Return the encoding that a byte order mark names; empty for UTF-8."""
    for mark, encoding in _ENCODINGS.items():
        if head.startswith(mark):
            return encoding
    return ""


def _reader_by_content(head: bytes) -> Reader | None:
    """Return the reader of content without a usual name; None for bytes that are no text."""
    if head.startswith(_SIGNATURE_OF_PARQUET):
        return _read_parquet
    if head.startswith((_SIGNATURE_OF_ARROW, _START_OF_ARROW_STREAM)):
        return _read_arrow
    if is_archive(head):
        return _read_archive
    if head.startswith(_SIGNATURE_OF_PDF) or not _is_text(head):  # a PDF may look like text
        return None
    # Without a byte order mark and blank lines.
    first_line = head.lstrip(b"\xef\xbb\xbf \r\n").partition(b"\n")[0]
    is_json = first_line.startswith((b"{", b"[", b'"'))
    if is_json:
        return _read_json
    return _read_text


def _is_text(head: bytes) -> bool:
    """Return whether bytes, perhaps cut within a character, are UTF-8 without control codes."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        bytes_left = len(head) - error.start
        may_be_cut = bytes_left <= 3  # a character has up to four bytes
        if not may_be_cut:
            return False
        text = head[: error.start].decode("utf-8")
    return rows.CONTROL.search(text) is None


def _read_json(opened: OpenedFile) -> Iterator[NumberedValue]:
    """Yield the values of a JSON document, or of its lines if there are several."""
    if _has_a_value_per_line(opened):
        yield from _read_json_lines(opened)
        return
    text = "".join(line for _, line in opened.lines(byte_limit=_DOCUMENT_LIMIT))
    if not text.strip():
        return
    value = _parsed(text, place=opened.place)
    if isinstance(value, list):
        yield from enumerate(value, start=1)
    else:
        yield 1, value


def _has_a_value_per_line(opened: OpenedFile) -> bool:
    """Return whether the first of several lines is JSON by itself."""
    lines = (line for _, line in opened.lines() if line.strip())
    first_lines = list(islice(lines, 2))
    if len(first_lines) < 2:
        return False
    # The first line of a document, such as "{", is not JSON by itself.
    try:
        parse_json(first_lines[0], nan=True)
    except ValueError:
        return False
    return True


def _read_json_lines(opened: OpenedFile) -> Iterator[NumberedValue]:
    for number, line in opened.lines():
        if line.strip():
            yield number, _parsed(line, place=f"{opened.place}:{number}")


def _parsed(text: str, *, place: str) -> object:
    """Return any JSON value; numbers may be NaN."""
    try:
        value: object = parse_json(text, nan=True)
    except ValueError as error:
        raise DataError(f"{place}: not JSON ({error})") from None
    return value


def _read_csv(opened: OpenedFile) -> Iterator[NumberedValue]:
    _, first_line = next(opened.lines(), (1, ""))
    lines = (line for _, line in opened.lines())
    yield from rows.separated_rows(lines, _separator(first_line), place=opened.place)


def _separator(line: str) -> str:
    """Return the comma, unless a line has none and other separators."""
    if "," in line:
        return ","
    most_frequent = max(";\t|", key=line.count)
    if most_frequent in line:
        return most_frequent
    return ","


def _read_tabs(opened: OpenedFile) -> Iterator[NumberedValue]:
    for number, line in opened.lines():
        yield number, line.split("\t")


def _read_text(opened: OpenedFile) -> Iterator[NumberedValue]:
    """Yield each line, and lines without a blank one between them as one text."""
    paragraph: list[str] = []
    number = 0
    for number, line in opened.lines():
        yield number, line
        # A paragraph is also one text, as its sentences may go over several lines.
        is_blank = not line.strip()
        is_long = sum(map(len, paragraph)) > _LONG_PARAGRAPH
        is_complete = is_blank or is_long
        if is_complete and len(paragraph) > 1:
            yield number, "".join(paragraph)
        if is_blank:
            paragraph = []
        elif is_long:
            paragraph = [paragraph[-1], line]  # a sentence may go on
        else:
            paragraph.append(line)
    if len(paragraph) > 1:
        yield number, "".join(paragraph)


def _read_subtitles(opened: OpenedFile) -> Iterator[NumberedValue]:
    """Yield the lines of subtitles, and all of them as running text, without numbers and times."""
    spoken_lines: list[str] = []
    number = 0
    for number, line in opened.lines():
        text = line.strip()
        # Left out: number and time of a subtitle, and WEBVTT, the first line of a .vtt file.
        is_number = text.isdigit()
        is_time = _TIMES.fullmatch(text) is not None
        if not text or is_number or is_time or text == "WEBVTT":
            continue
        yield number, text
        spoken_lines.append(text)
        is_long = sum(map(len, spoken_lines)) > _LONG_PARAGRAPH
        if is_long:
            yield number, "\n".join(spoken_lines)
            spoken_lines = spoken_lines[-_OVERLAP:]  # a sentence may go on
    if len(spoken_lines) > 1:
        yield number, "\n".join(spoken_lines)


def _read_parquet(opened: OpenedFile) -> Iterator[NumberedValue]:
    import pyarrow.parquet as pq

    rows_read = 0
    try:
        source = opened.seekable()
        metadata = pq.read_metadata(source)
        columns: list[str] = []
        for column in metadata.schema:
            may_hold_text = column.physical_type == "BYTE_ARRAY"  # Parquet's type of texts
            if may_hold_text:
                columns.append(column.path)
        if metadata.num_rows and not columns:
            raise DataError(_without_texts(opened.place, pq.read_schema(source)))
        # A text that the file stores once for many rows is in memory once, too.
        file = pq.ParquetFile(source, read_dictionary=columns)
        batch_size = _rows_per_batch(metadata)
        for batch in file.iter_batches(batch_size=batch_size, columns=columns):
            yield from _values_of(batch, rows_read)
            rows_read += len(batch)
    except (OSError, ValueError) as error:
        raise _unreadable(opened, rows_read, error) from None


def _rows_per_batch(metadata: pq.FileMetaData) -> int:
    """Return how many rows to read at once: fewer of large ones, of at most `LINE` bytes."""
    mean_sizes = [0]
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        mean_sizes.append(group.total_byte_size // max(1, group.num_rows))
    rows_in_memory = LINE // (max(mean_sizes) + 1)
    return max(1, min(_MOST_ROWS_AT_ONCE, rows_in_memory))


def _read_arrow(opened: OpenedFile) -> Iterator[NumberedValue]:
    """Yield the rows of an Arrow file or stream, as the library `datasets` writes it."""
    rows_read = 0
    try:
        schema, batches = _arrow_batches(opened.seekable())
        may_have_text = any(map(_may_hold_text, schema.types))
        # The library datasets keeps the numbers of rows that were drawn or sorted in such a file.
        is_index = schema.names == ["indices"] and not may_have_text
        if is_index:
            opened.notes[INDICES] += 1
            return
        for batch in batches:
            if len(batch) and not may_have_text:
                raise DataError(_without_texts(opened.place, schema))
            yield from _values_of(batch, rows_read)
            rows_read += len(batch)
    except (OSError, ValueError) as error:
        raise _unreadable(opened, rows_read, error) from None


def _arrow_batches(source: str | IO[bytes]) -> tuple[pa.Schema, Iterable[pa.RecordBatch]]:
    """Return the schema and the batches of an Arrow file or stream."""
    import pyarrow as pa

    if isinstance(source, str):
        content = pa.OSFile(source)
    else:
        content = pa.BufferReader(source.read())
    # A file begins with a signature, a stream does not.
    is_stream = content.read(len(_SIGNATURE_OF_ARROW)) != _SIGNATURE_OF_ARROW
    content.seek(0)
    if is_stream:
        stream = pa.ipc.open_stream(content)
        return stream.schema, stream
    file = pa.ipc.open_file(content)
    batches = (file.get_batch(number) for number in range(file.num_record_batches))
    return file.schema, batches


def _unreadable(opened: OpenedFile, rows_read: int, error: Exception) -> DataError:
    if isinstance(error, DataError):
        return error
    reason = " ".join(str(error).split())
    return DataError(f"{opened.place}: cannot be read after row {rows_read} ({reason})")


def _without_texts(place: str, schema: pa.Schema) -> str:
    columns = listed(f"{column.name} ({column.type})" for column in schema)
    return f"{place}: has no column of texts; columns: {columns}"


def _values_of(batch: pa.RecordBatch, rows_before: int) -> Iterator[NumberedValue]:
    """Yield the number of each row with each of its texts, one at a time."""
    for index in range(len(batch)):
        number = rows_before + index + 1
        yield number, None  # a row without a text counts, too
        for column in batch:
            for value in _texts_of(column.slice(index, 1)):
                yield number, value


def _may_hold_text(data_type: pa.DataType) -> bool:
    """Return whether an Arrow type has texts or bytes at some depth."""
    import pyarrow as pa

    if pa.types.is_dictionary(data_type):  # categories, stored as numbers
        return _may_hold_text(data_type.value_type)
    if isinstance(data_type, pa.BaseExtensionType):  # a named type on top of another
        return _may_hold_text(data_type.storage_type)
    if data_type.num_fields:  # lists and structures
        fields = [data_type.field(number) for number in range(data_type.num_fields)]
        return any(_may_hold_text(field.type) for field in fields)
    name = str(data_type)  # such as ``large_string``
    return "string" in name or "binary" in name


def _texts_of(array: Any) -> Iterator[object]:
    """Return the texts of an Arrow array, one at a time, also those of lists and structures."""
    from pyarrow import BaseExtensionType, types

    data_type = array.type
    if not _may_hold_text(data_type):
        return iter(())
    if isinstance(data_type, BaseExtensionType):
        return _texts_of(array.storage)
    is_list = types.is_list(data_type) or types.is_large_list(data_type)
    if is_list:
        # Lists of words, as data for taggers have, are also read as one text.
        elements = array.flatten()
        return _with_words_joined(_texts_of(elements))
    if types.is_struct(data_type):
        fields = array.flatten()
        return chain.from_iterable(map(_texts_of, fields))
    if types.is_fixed_size_list(data_type):
        return _texts_of(array.flatten())
    return (value.as_py() for value in array)


def _with_words_joined(values: Iterable[object]) -> Iterator[object]:
    """Yield values; if all are single words, also one text of them."""
    words: list[str] = []
    are_words = True
    for value in values:
        yield value
        if is_word(value):
            words.append(str(value))
        else:
            are_words = False
    if are_words and len(words) > 1:
        yield " ".join(words)


def _read_archive(opened: OpenedFile) -> Iterator[NumberedValue]:
    """Yield the values of each file in a tar or zip archive, with the number of the file."""
    for number, (name, content) in enumerate(_members(opened), start=1):
        place = f"{opened.place}:{name}"
        is_media = suffix_of(name) in MEDIA_SUFFIXES
        is_about_data = _ABOUT.fullmatch(Path(name).name) is not None
        if is_media:
            opened.notes[MEDIA] += 1
        if is_media or is_about_data:
            continue
        # A file in the archive may itself be compressed.
        packing = compression(Path(name)) or compression_of(content[:_BYTES_OF_SIGNATURE])
        member = OpenedFile(content, place=place, packing=packing, notes=opened.notes)
        reader = _reader_of(name, member)
        if reader is None:
            raise DataError(f"{place}: expected texts, or a file of type {supported_types()}")
        for _, value in reader(member):
            yield number, value


def _members(opened: OpenedFile) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file in an archive.

    Raises:
        DataError: damaged, or together the files are much larger than the archive.
    """
    limit = rows.size_limit(rows.unpacked_limit(opened.packed_size()))
    size = 0
    try:
        with closing(opened.stream()) as raw:
            is_zip = raw.read(len(ZIP)) == ZIP
        members = _members_of_tar
        if is_zip:
            members = _members_of_zip
        for name, content in members(opened):
            size += len(content)
            if size > limit:
                raise DataError(f"{opened.place}: unpacks to more than {rows.raised_limit(limit)}")
            yield name, content
    except (*DAMAGED, tarfile.TarError, zipfile.BadZipFile) as error:
        raise DataError(f"{opened.place}: cannot be read ({error})") from None


def _members_of_tar(opened: OpenedFile) -> Iterator[tuple[str, bytes]]:
    # The mode "r|" reads from start to end, without seeking.
    with closing(opened.stream()) as raw, tarfile.open(fileobj=raw, mode="r|") as archive:
        for member in archive:
            place = f"{opened.place}:{member.name}"
            if member.isdir():
                continue
            content = None
            if member.isfile():
                content = archive.extractfile(member)
            if content is None:
                raise DataError(f"{place}: a link, which is not read")
            yield member.name, _limited_content(content, place)


def _members_of_zip(opened: OpenedFile) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(opened.seekable()) as archive:
        # Documents of office programs are zip archives, too.
        names = archive.namelist()
        if any(marker in names for marker in _MARKERS_OF_OFFICE):
            raise DataError(f"{opened.place}: an office document; save it as CSV or text")
        _check_apart(opened.place, archive.infolist())
        for member in archive.infolist():
            place = f"{opened.place}:{member.filename}"
            is_encrypted = member.flag_bits & _ENCRYPTED
            if member.is_dir():
                continue
            if is_encrypted:
                raise DataError(f"{place}: encrypted")
            with archive.open(member) as content:
                yield member.filename, _limited_content(content, place)


def _check_apart(place: str, members: Iterable[zipfile.ZipInfo]) -> None:
    """Refuse a zip archive in which two files share bytes: it unpacks to far more than it has."""
    end_of_last = 0
    for member in sorted(members, key=lambda member: member.header_offset):
        if member.header_offset < end_of_last:
            raise DataError(f"{place}: its files overlap, as {printable(member.filename):.60} does")
        end_of_last = member.header_offset + _SMALLEST_HEADER + member.compress_size


def _limited_content(stream: IO[bytes], place: str) -> bytes:
    content = stream.read(_DOCUMENT_LIMIT + 1)
    if len(content) > _DOCUMENT_LIMIT:
        raise DataError(f"{place}: unpacks to more than {rows.raised_limit(_DOCUMENT_LIMIT)}")
    return content


READERS: dict[str, Reader] = {
    ".jsonl": _read_json_lines,
    ".ndjson": _read_json_lines,
    ".json": _read_json,
    ".csv": _read_csv,
    ".tsv": _read_tabs,
    ".parquet": _read_parquet,
    ".arrow": _read_arrow,
    ".feather": _read_arrow,
    ".txt": _read_text,
    ".md": _read_text,
    ".srt": _read_subtitles,
    ".vtt": _read_subtitles,
    ".tar": _read_archive,
    ".zip": _read_archive,
}
_TEXT_READERS = (
    _read_json_lines,
    _read_json,
    _read_csv,
    _read_tabs,
    _read_text,
    _read_subtitles,
)
