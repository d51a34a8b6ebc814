"""Texts of training data in any usual form: files, folders of them, and tables in memory.

    .jsonl .ndjson .json     any JSON values, one per line or in one document
    .csv .tsv .txt           cells, tab-separated fields, lines and paragraphs
    .parquet .arrow          also of ``datasets.save_to_disk`` and of the library's cache
    .tar .zip                files of these forms, such as WebDataset's
    compressed               .gz .bz2 .xz .zst .lz4 .br around any of these

A file of another name is read by its content. What may hold texts but cannot be read is an error
that names it: nothing follows from data that were not read. Files about the data (README.md,
state.json, dataset_info.json) are no training data; they are counted, as are images and sound.
Texts with markup are also read without it, lists of words as one text, and JSON within a text by
its strings.
"""

from __future__ import annotations

import html
import io
import os
import re
import tarfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import IO, Any

from qwen3nb.datasets import rows
from qwen3nb.datasets.in_memory import table_rows
from qwen3nb.datasets.rows import LINE, DataError, listed
from qwen3nb.utils.compressed import (
    COMPRESSED,
    DAMAGED,
    compression,
    compression_of,
    open_unpacked,
    without_compression,
)
from qwen3nb.utils.strict_json import parse_json

Value = tuple[int, Any]  # number of a line, row or file of an archive, from 1 on, and its content
EMPTY = "empty files"
MEDIA = "images, sounds and videos"
NO_TEXT = "values of bytes that are no text"
INDICES = "files of row numbers"
_DOCUMENT = (
    256 << 20
)  # bytes of a JSON document, or of a file in an archive, which are not streamed
_PARAGRAPH = 1 << 16  # characters of lines that are also read as one text
_LONGEST_WORD = 200  # letters of a word in a list of words
_SHOWN = 5  # files in an error
_HEAD = 1 << 12  # bytes by which a file of an unusual name is recognised
_NUMBERED = re.compile(r"(.*-)(\d{5})-of-(\d{5})(.*)")  # parts of a data set
_MARKUP = re.compile(r"<[^<>]*>|&#?\w+;")
# Tags within words; others stand between words.
_WITHIN = re.compile(
    r"</?(?:a|abbr|b|code|em|font|i|mark|s|small|span|strong|su[bp]|tt|u)\b[^<>]*>"
)
_TAG = re.compile(r"<[^<>]*>")
_POINTER = b"version https://git-lfs.github.com/spec/"
# Files about training data, by name.
_ABOUT = re.compile(
    r"(readme|license|licence|copying|notice|citation|changelog|datasheet)(\.\w{1,4})?"
    r"|(state|dataset_infos?|dataset_dict|croissant)\.json"
    r"|_success|_metadata|_common_metadata|thumbs\.db|\.ds_store|\.git\w*"
    r"|.*\.(lock|crc|md5|sha1|sha256)",
    re.IGNORECASE,
)
_SKIPPED = {".git", ".ipynb_checkpoints", "__pycache__", ".locks", ".no_exist"}
_IMAGES = (".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ico", ".svg")
_SOUNDS = (".mp3", ".wav", ".flac", ".ogg", ".opus", ".m4a", ".aac")
_VIDEOS = (".mp4", ".mkv", ".avi", ".mov", ".webm")
_WORD_PER_LINE = (".conll", ".conllu", ".iob", ".bio")  # with its tags
_MEDIA = {*_IMAGES, *_SOUNDS, *_VIDEOS}


@dataclass
class TrainingData:
    """Files and tables whose texts are read, and what beside them is not."""

    sources: list[Source]
    about: list[Path] = field(default_factory=list)  # files about the data, which are not read
    # what held nothing that could be read, by kind; filled while the texts are read
    without_text: Counter[str] = field(default_factory=Counter)
    rows: int = 0  # that were read
    texts: int = 0  # that were read

    def summary(self) -> str:
        """Return what was read, and what was not, in one or two sentences."""
        files = f"{len(self.sources):,} file" + ("s" if len(self.sources) != 1 else "")
        read = f"Read: {files}, {self.rows:,} rows, {self.texts:,} texts."
        others = [f"{count:,} {kind}" for kind, count in sorted(self.without_text.items()) if count]
        if self.about:
            names = sorted({file.name for file in self.about})
            others.append(f"{len(self.about):,} about the data ({listed(names)})")
        return f"{read} Not read: {'; '.join(others)}." if others else read


@dataclass(frozen=True)
class Source:
    """A file of training data, or a table in memory."""

    name: str  # for places of what was found
    values: Callable[[Counter[str]], Iterator[Value]]  # notes what holds no text
    most: int | None = None  # characters of all texts, unless the limit is raised
    where: str = ""  # for errors


def find_training_data(given: Iterable[Any]) -> TrainingData:
    """Return the files that are given, those in folders, in order of their names, and tables.

    Links are followed, and each file is read once.

    Args:
        given: files, folders, data frames, lists of dictionaries or lists of texts.

    Raises:
        DataError: a path that does not exist, a folder without training data, or files that cannot
            be read; names them.
    """
    data = TrainingData([])
    for number, path in enumerate(given, start=1):
        if not isinstance(path, Path | str):
            data.sources.append(_of_table(path, f"table {number}"))
            continue
        _add_path(data, Path(path).expanduser())
    return data


def _of_table(table: Any, name: str) -> Source:
    """Return a table in memory, or a list of texts."""
    values: list[Any]
    if isinstance(table, list | tuple) and all(isinstance(text, str) for text in table):
        values = list(table)
    else:
        values = list(table_rows(table, what=name))
    return Source(name, lambda _: enumerate(values, start=1), where=name)


def _add_path(data: TrainingData, path: Path) -> None:
    if not path.exists():
        raise DataError(f"{path}: no such file or folder of training data")
    if path.is_file():
        data.sources.append(_of_file(path))
        return
    files, unread = _files_in(path)
    unread += _missing_parts(files)
    missing = len(unread)
    readable: list[Source] = []
    for file in files:
        if _is_about(file):
            data.about.append(file)
        elif _suffix(file.name) in _MEDIA:
            data.without_text[MEDIA] += 1
        else:
            try:
                readable.append(_of_file(file))
            except DataError as error:
                unread.append(str(error).removeprefix(f"{path}{os.sep}"))
    if unread:
        shown = [*unread[:_SHOWN], *[f"and {len(unread) - _SHOWN} more"] * (len(unread) > _SHOWN)]
        raise DataError(
            f"{path}: {len(unread)} of {len(files) + missing} files are not read, so nothing can "
            f"be said of the folder: {'; '.join(shown)}. Convert them, or name the files to read"
        )
    if not readable:
        found = f"got {listed(sorted({file.name for file in files}))}" if files else "it is empty"
        raise DataError(f"{path}: expected training data in files of type {_types()}; {found}")
    data.sources += readable


def _files_in(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the files below a folder, each once, and what cannot be listed."""
    unread: list[str] = []
    visited: set[str] = set()
    by_content: dict[str, Path] = {}

    def note(error: OSError) -> None:
        unread.append(f"{error.filename}: {error.strerror}")

    for top, names, files in os.walk(folder, followlinks=True, onerror=note):
        real = os.path.realpath(top)
        names[:] = sorted(name for name in names if not _is_skipped(Path(top, name)))
        if real in visited:
            names[:] = []
            continue
        visited.add(real)
        for name in sorted(files):
            file = Path(top, name)
            if not file.exists():
                unread.append(f"{name}: a link to nothing")
                continue
            if not file.is_file():
                unread.append(f"{name}: not a regular file")
                continue
            # A hub's cache has each file twice: under its digest, and as a link with its name.
            earlier = by_content.setdefault(os.path.realpath(file), file)
            if file.suffix and not earlier.suffix:
                by_content[os.path.realpath(file)] = file
    return sorted(by_content.values()), unread


def _is_skipped(folder: Path) -> bool:
    """Return whether a folder is of programs; ``.cache`` is if the hub's client made it."""
    if folder.name == ".cache":
        return (folder / "huggingface/download").is_dir()
    return folder.name in _SKIPPED


def _missing_parts(files: Iterable[Path]) -> list[str]:
    """Return the parts of data sets that are not there, as ``a-00001-of-00003.parquet``."""
    found: dict[tuple[Path, str, str, str], set[int]] = {}
    for file in files:
        match = _NUMBERED.fullmatch(file.name)
        if match is not None:
            series = (file.parent, match[1], match[3], match[4])
            found.setdefault(series, set()).add(int(match[2]))
    missing: list[str] = []
    for (_, start, count, end), numbers in found.items():
        first = 1 if int(count) in numbers else 0  # some count from 1
        expected = range(first, first + int(count))
        for number in sorted({*expected} - numbers)[:_SHOWN]:
            missing.append(f"{start}{number:05}-of-{count}{end}: not there")
    return missing


def _is_about(file: Path) -> bool:
    of_hub = file.parent.name == "refs" and (file.parent.parent / "snapshots").is_dir()
    return of_hub or _ABOUT.fullmatch(file.name) is not None


def _types() -> str:
    return f"{', '.join(_READERS)}, also compressed ({', '.join(COMPRESSED)})"


# Recognising a file.


def _suffix(name: str) -> str:
    return Path(without_compression(name)).suffix.lower()


def _of_file(file: Path) -> Source:
    """Return a file as a source.

    Raises:
        DataError: it cannot be opened, or its content is of no form that can be read.
    """
    head, packed = _unpacked_head(file)
    read = _READERS.get(_suffix(file.name)) or _reader_by_content(head)
    if head.startswith(_POINTER):
        raise DataError(f"{file}: a Git LFS pointer instead of the file; run `git lfs pull`")
    if _suffix(file.name) in _WORD_PER_LINE:
        raise DataError(f"{file}: has a word per line; expected texts, a sentence per line")
    if read is None:
        raise DataError(f"{file}: expected training data in files of type {_types()}")

    def values(notes: Counter[str]) -> Iterator[Value]:
        opened = _Opened(file, str(file), packed, notes)
        return read(opened)

    return Source(file.name, values, most=rows.unpacked_limit(file), where=str(file))


def _unpacked_head(file: Path) -> tuple[bytes, str]:
    """Return the first bytes of a file, unpacked, and the suffix of its compression."""
    try:
        with file.open("rb") as raw:
            packed = compression(file) or compression_of(raw.read(16))
        with closing(open_unpacked(file, packed)) as stream:
            return stream.read(_HEAD), packed
    except DAMAGED as error:
        raise DataError(f"{file}: cannot be read ({error})") from None


def _reader_by_content(head: bytes) -> Reader | None:
    """Return the reader of content without a usual name; None for bytes that are no text."""
    if head.startswith(b"PAR1"):
        return _parquet
    if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
        return _arrow
    if head.startswith(b"PK\x03\x04") or head[257:262] == b"ustar":
        return _archive
    if head.startswith(b"%PDF") or not _is_text(head):
        return None
    line = head.lstrip(b"\xef\xbb\xbf \r\n").partition(b"\n")[0]
    is_json = line.startswith((b"{", b"[", b'"'))
    return _json if is_json else _lines


def _is_text(head: bytes) -> bool:
    """Return whether bytes, perhaps cut within a character, are UTF-8 without control codes."""
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if len(head) - error.start > 3:
            return False
        text = head[: error.start].decode("utf-8")
    return rows.CONTROL.search(text) is None


# Reading a file.


@dataclass(frozen=True)
class _Opened:
    """A file, or one of an archive, and where it notes what holds no text."""

    file: Path | bytes
    where: str
    packed: str  # suffix of its compression
    notes: Counter[str]

    def stream(self) -> IO[bytes]:
        """Return it at its start, unpacked."""
        file = io.BytesIO(self.file) if isinstance(self.file, bytes) else self.file
        return open_unpacked(file, self.packed)

    def lines(self, most: int | None = None) -> Iterator[tuple[int, str]]:
        """Yield its lines with their numbers."""
        try:
            with closing(self.stream()) as raw:
                yield from rows.stream_lines(raw, where=self.where, most=most)
        except DAMAGED as error:
            raise DataError(f"{self.where}: cannot be read ({error})") from None

    def whole(self) -> Any:
        """Return it as something that Arrow can seek in."""
        if not self.packed:
            return io.BytesIO(self.file) if isinstance(self.file, bytes) else str(self.file)
        with closing(self.stream()) as raw:
            content = raw.read(_DOCUMENT + 1)
        if len(content) > _DOCUMENT:
            raise DataError(f"{self.where}: unpacks to more than {rows.raised_limit(_DOCUMENT)}")
        return io.BytesIO(content)


Reader = Callable[[_Opened], Iterator[Value]]


def _json(opened: _Opened) -> Iterator[Value]:
    """Yield the values of a JSON document, or of its lines if there are several."""
    values = (line for _, line in opened.lines() if line.strip())
    first, second = next(values, ""), next(values, "")
    try:
        parse_json(first, nan=True)
    except ValueError:
        of_lines = False
    else:
        of_lines = bool(second)
    yield from _json_lines(opened) if of_lines else _json_document(opened)


def _json_lines(opened: _Opened) -> Iterator[Value]:
    for number, line in opened.lines():
        if line.strip():
            yield number, _parsed(line, where=f"{opened.where}:{number}")


def _json_document(opened: _Opened) -> Iterator[Value]:
    text = "".join(line for _, line in opened.lines(_DOCUMENT))
    if not text.strip():
        return
    value = _parsed(text, where=opened.where)
    yield from enumerate(value if isinstance(value, list) else [value], start=1)


def _parsed(text: str, *, where: str) -> Any:
    """Return any JSON value; numbers may be NaN."""
    try:
        return parse_json(text, nan=True)
    except ValueError as error:
        raise DataError(f"{where}: not JSON ({error})") from None


def _csv(opened: _Opened) -> Iterator[Value]:
    head = next((line for _, line in opened.lines()), "")
    others = {mark: head.count(mark) for mark in ";\t|"}
    mark = max(others, key=lambda mark: others[mark])
    if "," in head or not others[mark]:
        mark = ","
    lines = (line for _, line in opened.lines())
    yield from rows.separated_rows(lines, mark, where=opened.where)


def _tabs(opened: _Opened) -> Iterator[Value]:
    for number, line in opened.lines():
        yield number, line.split("\t")


def _lines(opened: _Opened) -> Iterator[Value]:
    """Yield each line, and lines without a blank one between them as one text."""
    paragraph: list[str] = []
    number = 0
    for number, line in opened.lines():
        yield number, line
        ends = not line.strip()
        if ends or sum(map(len, paragraph)) > _PARAGRAPH:
            if len(paragraph) > 1:
                yield number, " ".join(paragraph)
            paragraph = [] if ends else paragraph[-1:]  # a sentence may go on
        if not ends:
            paragraph.append(line)
    if len(paragraph) > 1:
        yield number, " ".join(paragraph)


def _parquet(opened: _Opened) -> Iterator[Value]:
    import pyarrow.parquet as pq

    row = 0
    try:
        whole = opened.whole()
        footer = pq.read_metadata(whole)
        groups = map(footer.row_group, range(footer.num_row_groups))
        mean = max((each.total_byte_size // max(1, each.num_rows) for each in groups), default=0)
        texts = [each.path for each in footer.schema if each.physical_type == "BYTE_ARRAY"]
        if footer.num_rows and not texts:
            raise DataError(_no_text(opened.where, pq.read_schema(whole)))
        # A text that the file stores once for many rows is in memory once, too.
        file = pq.ParquetFile(whole, read_dictionary=texts)
        size = max(1, min(1024, LINE // (mean + 1)))
        for batch in file.iter_batches(batch_size=size, columns=texts):
            yield from _rows_of(batch, row)
            row += len(batch)
    except (OSError, ValueError) as error:
        raise _unread(opened, row, error) from None


def _arrow(opened: _Opened) -> Iterator[Value]:
    """Yield the rows of an Arrow file or stream, as the library `datasets` writes it."""
    import pyarrow as pa

    row = 0
    try:
        whole = opened.whole()
        source = pa.OSFile(whole) if isinstance(whole, str) else pa.BufferReader(whole.read())
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        reader = pa.ipc.open_file(source) if is_file else pa.ipc.open_stream(source)
        schema = reader.schema
        if schema.names == ["indices"] and not any(map(_may_hold_text, schema.types)):
            opened.notes[INDICES] += 1  # of rows that were drawn or sorted
            return
        batches: Iterable[Any] = reader
        if is_file:
            batches = (reader.get_batch(number) for number in range(reader.num_record_batches))
        for batch in batches:
            if len(batch) and not any(map(_may_hold_text, schema.types)):
                raise DataError(_no_text(opened.where, schema))
            yield from _rows_of(batch, row)
            row += len(batch)
    except (OSError, ValueError) as error:
        raise _unread(opened, row, error) from None


def _unread(opened: _Opened, row: int, error: Exception) -> DataError:
    if isinstance(error, DataError):
        return error
    why = " ".join(str(error).split())
    return DataError(f"{opened.where}: cannot be read after row {row} ({why})")


def _no_text(where: str, schema: Any) -> str:
    columns = listed(f"{each.name} ({each.type})" for each in schema)
    return f"{where}: has no column of texts; columns: {columns}"


def _rows_of(batch: Any, before: int) -> Iterator[Value]:
    """Yield the number of each row with each of its texts, one at a time."""
    for index in range(len(batch)):
        number = before + index + 1
        yield number, None  # a row without a text counts, too
        for column in batch:
            for value in _cells(column.slice(index, 1)):
                yield number, value


def _may_hold_text(kind: Any) -> bool:
    """Return whether an Arrow type has texts or bytes at some depth."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _may_hold_text(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _may_hold_text(kind.storage_type)
    if kind.num_fields:
        inner = (kind.field(number).type for number in range(kind.num_fields))
        return any(map(_may_hold_text, inner))
    name = str(kind)
    return "string" in name or "binary" in name


def _cells(array: Any) -> Iterator[Any]:
    """Return the texts of an Arrow array, one at a time, also those of lists and structures."""
    import pyarrow as pa

    kind = array.type
    if not _may_hold_text(kind):
        return iter(())
    if isinstance(kind, pa.BaseExtensionType):
        return _cells(array.storage)
    if not pa.types.is_nested(kind) or pa.types.is_union(kind) or pa.types.is_map(kind):
        return (value.as_py() for value in array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _with_words_joined(_cells(array.flatten()))
    inner = array.flatten()  # of structures, an array per field
    return chain.from_iterable(map(_cells, inner if isinstance(inner, list) else [inner]))


def _with_words_joined(values: Iterable[Any]) -> Iterator[Any]:
    """Yield values; if all are single words, also one text of them."""
    words: list[str] | None = []
    for value in values:
        yield value
        if words is not None and _is_word(value):
            words.append(value)
        else:
            words = None
    if words is not None and len(words) > 1:
        yield " ".join(words)


def _archive(opened: _Opened) -> Iterator[Value]:
    """Yield the values of each file in a tar or zip archive, with the number of the file."""
    for number, (name, content) in enumerate(_members(opened), start=1):
        where = f"{opened.where}:{name}"
        if _suffix(name) in _MEDIA:
            opened.notes[MEDIA] += 1
            continue
        if _ABOUT.fullmatch(Path(name).name):
            continue
        packed = compression(Path(name)) or compression_of(content[:16])
        member = _Opened(content, where, packed, opened.notes)
        try:
            with closing(member.stream()) as stream:
                head = stream.read(_HEAD)
        except DAMAGED as error:
            raise DataError(f"{where}: cannot be read ({error})") from None
        read = _READERS.get(_suffix(name)) or _reader_by_content(head)
        if read is None:
            raise DataError(f"{where}: expected texts, or a file of type {_types()}")
        for _, value in read(member):
            yield number, value


def _members(opened: _Opened) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of each file in an archive."""
    try:
        with closing(opened.stream()) as raw:
            if raw.read(4) == b"PK\x03\x04":
                yield from _zipped(opened)
                return
        with closing(opened.stream()) as raw, tarfile.open(fileobj=raw, mode="r|") as archive:
            for member in archive:
                if member.isfile():
                    inner = archive.extractfile(member)
                    assert inner is not None  # noqa: S101 - as it is a file
                    yield member.name, _limited(inner, f"{opened.where}:{member.name}")
                elif not member.isdir():
                    raise DataError(f"{opened.where}:{member.name}: a link, which is not read")
    except (*DAMAGED, tarfile.TarError, zipfile.BadZipFile) as error:
        raise DataError(f"{opened.where}: cannot be read ({error})") from None


def _zipped(opened: _Opened) -> Iterator[tuple[str, bytes]]:
    whole = opened.whole()
    with zipfile.ZipFile(whole) as archive:
        if {"[Content_Types].xml", "mimetype"} & {*archive.namelist()}:
            raise DataError(f"{opened.where}: an office document; save it as CSV or text")
        for info in archive.infolist():
            if info.is_dir():
                continue
            if info.flag_bits & 1:
                raise DataError(f"{opened.where}:{info.filename}: encrypted")
            with archive.open(info) as inner:
                yield info.filename, _limited(inner, f"{opened.where}:{info.filename}")


def _limited(stream: IO[bytes], where: str) -> bytes:
    content = stream.read(_DOCUMENT + 1)
    if len(content) > _DOCUMENT:
        raise DataError(f"{where}: unpacks to more than {rows.raised_limit(_DOCUMENT)}")
    return content


_READERS: dict[str, Reader] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".csv": _csv,
    ".tsv": _tabs,
    ".parquet": _parquet,
    ".arrow": _arrow,
    ".feather": _arrow,
    ".txt": _lines,
    ".md": _lines,
    ".tar": _archive,
    ".zip": _archive,
}


# The texts of a source.


def source_texts(source: Source, data: TrainingData) -> Iterator[tuple[int, str]]:
    """Yield the texts of a source with the number of their line or row, and count them.

    Raises:
        DataError: it cannot be read, has rows but no text, or is too large; names the place.
    """
    most = None if source.most is None else rows.size_limit(source.most)
    longest = rows.size_limit(LINE)
    size = count = row = texts = strings = 0
    noted = data.without_text.total()
    for number, value in source.values(data.without_text):
        count += number != row
        row = number
        for text in strings_of(value, data.without_text):
            if len(text) > longest:
                limit = rows.raised_limit(longest)
                raise DataError(f"{source.where}:{number}: a text of more than {limit}")
            size += len(text)
            if most is not None and size > most:
                limit = rows.raised_limit(most)
                raise DataError(f"{source.where}:{number}: unpacks to more than {limit}")
            strings += 1
            texts += bool(text.strip())
            yield number, text
            yield from ((number, other) for other in _read_otherwise(text))
        yield from ((number, joined) for joined in _lists_of_words(value))
    if count and not strings:
        raise DataError(
            f"{source.where}: {count:,} rows without a text; if they are numbers of tokens, "
            "give the texts"
        )
    if not count and data.without_text.total() == noted:
        data.without_text[EMPTY] += 1
    data.rows += count
    data.texts += texts


def _read_otherwise(text: str) -> Iterator[str]:
    """Yield a text without its markup, and the strings of a text that is JSON."""
    if _MARKUP.search(text) is not None:
        yield html.unescape(_TAG.sub(" ", _WITHIN.sub("", text)))
    if text.lstrip().startswith(("{", "[")):
        try:
            value = parse_json(text, nan=True)
        except ValueError:
            return  # a text like any other
        yield from strings_of(value)
        yield from _lists_of_words(value)


def _is_word(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_WORD and " " not in value


def _lists_of_words(value: Any) -> Iterator[str]:
    """Yield one text of each list of words in a value, as data for taggers have them."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _lists_of_words(inner)
    elif isinstance(value, list | tuple):
        if len(value) > 1 and all(map(_is_word, value)):
            yield " ".join(value)
            return
        for inner in value:
            yield from _lists_of_words(inner)


def strings_of(value: Any, notes: Counter[str] | None = None) -> Iterator[str]:
    """Yield the texts in a value at any depth, also of bytes that are UTF-8."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        try:
            yield value.decode("utf-8")
        except UnicodeDecodeError:
            if notes is not None:
                notes[NO_TEXT] += 1
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if isinstance(name, str) and (" " in name or not name.isascii()):
                yield name  # a text, not the name of a field
            yield from strings_of(inner, notes)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from strings_of(inner, notes)
