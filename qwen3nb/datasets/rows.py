"""Read and check rows of data files, plain or compressed (.gz, .bz2, .xz, .zst).

Problems that other readers ignore (a truncated line, a NaN, a number instead of text) are errors
here, with file, line and cause. `book/guide/what-is-refused.md` lists the rules.

Memory is limited: a line has at most 16 MiB, and a compressed file unpacks to at most 200 times its
size (or 16 MiB). See `size_limit` for how to raise these limits.
"""

import codecs
import csv
import io
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from pathlib import Path
from reprlib import Repr
from typing import IO, Any

from qwen3nb.utils.compressed import COMPRESSED, DAMAGED, compression, open_unpacked
from qwen3nb.utils.format import parse_size
from qwen3nb.utils.strict_json import first_duplicate, parse_json
from qwen3nb.utils.strict_yaml import parse_yaml

LARGEST_GRADE = 1000  # 2^grade, a gain of nDCGexp, is still finite

READ_LIMIT = "QWEN3NB_READ_LIMIT"
LINE = 16 << 20  # bytes of a line
RATIO = 200  # unpacked to packed size; text compresses about 10-fold, table rows 50-fold
_RAISED = f"--read-limit SIZE (or {READ_LIMIT}) raises the limit"
_FREE = 16 << 20  # bytes that may be unpacked at any ratio
_BLOCK = 1 << 16  # bytes
_MOST_LISTED = 30
_LONGEST_SHOWN = 60  # characters of a value in a message
_SHORT = Repr()  # of the first parts of a value
_SHORT.maxlevel = 3
_SHORT.maxstring = _SHORT.maxother = 10 * _LONGEST_SHOWN  # of which the first are shown
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # as Excel writes "Unicode text"
# Control characters, line and paragraph separators, and lone surrogates.
_UNFIT = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # tabs and line ends are text
_QUOTED = re.compile('"[^"]*"')
_STATED_SEPARATOR = re.compile(r'"?sep=([,;|\t])"?')
Fields = Mapping[str, type | tuple[type, ...]]


class DataError(ValueError):
    """Unusable data; the message names the file, the line and the cause."""


def printable(text: str) -> str:
    """Replace control characters, which a terminal would interpret, by U+FFFD.

    >>> printable("a\x1b[2Jb")
    'a�[2Jb'
    """
    if text.isprintable():
        return text
    characters: list[str] = []
    for character in text:
        if character.isprintable():
            characters.append(character)
        else:
            characters.append("\N{REPLACEMENT CHARACTER}")
    return "".join(characters)


def shown_value(value: object) -> str:
    """Return the repr of a value of a file, of at most 60 characters.

    The whole repr of a long or deep value is not made.

    >>> shown_value([["x"] * 10**6] * 10**6)
    "[['x', 'x', 'x', 'x', 'x', 'x', ...], ['x', 'x', 'x', 'x', '"
    """
    if isinstance(value, str):
        value = value[:_LONGEST_SHOWN]
    return f"{_SHORT.repr(value):.{_LONGEST_SHOWN}}"


def listed(names: Iterable[str]) -> str:
    """Format ``names`` for an error message: printable, and not too many."""
    every_name = list(names)
    parts = [f"{printable(name):.60}" for name in every_name[:_MOST_LISTED]]
    if len(every_name) > _MOST_LISTED:
        parts.append(f"and {len(every_name) - _MOST_LISTED} more")
    return ", ".join(parts)


def variant(folder: Path, *names: str) -> Path | None:
    """Return the first of ``names`` that exists in ``folder``, plain or compressed."""
    for name in names:
        for suffix in ("", *COMPRESSED):
            file = folder / f"{name}{suffix}"
            if file.exists():
                return file
    return None


def required(folder: Path, *names: str) -> Path:
    """Return the file of `variant`, or raise DataError."""
    file = variant(folder, *names)
    if file is None:
        raise DataError(f"{folder}: no {' or '.join(names)} (or .gz)")
    return file


def size_limit(default: int) -> int:
    """Return a limit in bytes: ``default``, or ``--read-limit`` if larger."""
    try:
        return max(default, parse_size(os.environ.get(READ_LIMIT) or "0"))
    except ValueError as error:
        raise DataError(f"{READ_LIMIT}: {error}") from None


def raised_limit(limit: int) -> str:
    """Return a limit for an error message, with the option that raises it."""
    mebibytes = limit >> 20
    if mebibytes:
        return f"{mebibytes} MiB; {_RAISED}"
    return f"{limit:,} bytes; {_RAISED}"


def unpacked_limit(packed_size: int) -> int:
    """Return how many bytes packed ones may unpack to, unless the limit is raised."""
    return max(_FREE, RATIO * packed_size)


def numbered_lines(file: Path, *, byte_limit: int | None = None) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line of a UTF-8 file, with its line break.

    A byte order mark is skipped. A file with the mark of UTF-16 is read as such.

    Args:
        file: a regular file, unpacked if its name ends as in `COMPRESSED`.
        byte_limit: bytes to read at most, unpacked; see `size_limit`.

    Raises:
        DataError: unreadable, not UTF-8 (names the line), too large, a line that is too long, or
            damaged compression.
    """
    if file.exists() and not file.is_file():
        raise DataError(f"{file}: not a regular file")
    packing = compression(file)
    origin = ""
    try:
        if packing:
            origin = f" unpacked from {file.stat().st_size:,} bytes"
            limit_of_file = unpacked_limit(file.stat().st_size)
            # The stricter of two limits holds.
            if byte_limit is None or byte_limit > limit_of_file:
                byte_limit = limit_of_file
        is_utf_16 = _is_utf_16(file, packing)
        with open_unpacked(file, packing) as raw:
            lines = raw
            if is_utf_16:
                lines = io.BufferedReader(_Utf16AsUtf8(raw))
            yield from stream_lines(lines, place=file, byte_limit=byte_limit, origin=origin)
    except UnicodeDecodeError as error:  # UTF-16 that is cut
        raise DataError(f"{file}: cannot be read (not {error.encoding}: {error.reason})") from None
    except DAMAGED as error:
        raise DataError(f"{file}: cannot be read ({error})") from None


class _Utf16AsUtf8(io.RawIOBase):
    """The bytes of a file in UTF-16, as UTF-8."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder("utf-16")()
        self._pending = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._pending:
            block = self._raw.read(_BLOCK)
            text = self._decoder.decode(block, final=not block)
            self._pending = text.encode("utf-8", "surrogatepass")
            if not block:
                break
        size = min(len(buffer), len(self._pending))
        buffer[:size] = self._pending[:size]
        self._pending = self._pending[size:]
        return size


def _is_utf_16(file: Path, packing: str) -> bool:
    """Return whether a file begins with a byte order mark of UTF-16."""
    with open_unpacked(file, packing) as raw:
        return raw.read(len(codecs.BOM_UTF16_LE)) in UTF_16_MARKS


def stream_lines(
    raw: IO[bytes],
    *,
    place: object,
    byte_limit: int | None = None,
    origin: str = "",
) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line of an open file; see `numbered_lines`.

    Args:
        raw: the file, at its start.
        place: its name, for errors.
        byte_limit: bytes to read at most; see `size_limit`.
        origin: what its bytes come from, for errors.
    """
    longest = size_limit(LINE)  # 16 MiB, unless --read-limit raises it
    longest_with_end = longest + len(b"\n")
    # A line that is too long is not read as a whole.
    read_line = partial(raw.readline, longest_with_end + 1)
    most_bytes = math.inf
    if byte_limit is not None:
        most_bytes = size_limit(byte_limit)
    size = 0
    for number, line in enumerate(iter(read_line, b""), start=1):  # b"" is the end
        size += len(line)
        if len(line) > longest_with_end:
            raise DataError(f"{place}:{number}: the line is longer than {raised_limit(longest)}")
        if size > most_bytes:
            mebibytes = int(most_bytes) >> 20
            raise DataError(f"{place}:{number}: more than {mebibytes} MiB{origin}; {_RAISED}")
        if number == 1:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            reason = f"cannot be read (not UTF-8: {error.reason}); save it as UTF-8"
            raise DataError(f"{place}:{number}: {reason}") from None
        if not text.endswith("\n"):
            text += "\n"
        yield number, text


def read_text(file: Path, *, byte_limit: int) -> str:
    """Return the text of a file of at most ``byte_limit`` bytes, without a byte order mark.

    A compressed file is unpacked, with the limits of `numbered_lines`.

    Raises:
        DataError: unreadable, not UTF-8 (names the line), or too large.
    """
    if not file.is_file():
        raise DataError(f"{file}: no such file, or not a regular file")
    if compression(file):
        return "".join(line for _, line in numbered_lines(file, byte_limit=byte_limit))
    limit = size_limit(byte_limit)
    if file.stat().st_size > limit:
        raise DataError(f"{file}: expected at most {raised_limit(limit)}")
    try:
        content = file.read_bytes().removeprefix(_BYTE_ORDER_MARK)
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error})") from None
    try:
        if content.startswith(UTF_16_MARKS):
            return content.decode("utf-16")
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1  # of the first invalid byte
        reason = f"cannot be read (not UTF-8: {error.reason}); save it as UTF-8"
        raise DataError(f"{file}:{line}: {reason}") from None


def unicode_text(text: str) -> bool:
    r"""Return whether ``text`` is valid Unicode, without a lone surrogate such as ``"\ud800"``."""
    if text.isascii():
        return True
    try:
        text.encode()  # faster than a search
    except UnicodeEncodeError:
        return False
    return True


def json_rows(file: Path, *, byte_limit: int | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the object of each JSON line; see `numbered_lines`."""
    for number, line in numbered_lines(file, byte_limit=byte_limit):
        if line.strip():
            yield number, json_object(line, place=f"{file}:{number}")


def numbered_json_rows(file: Path, fields: Fields) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield number and named fields of each JSON line, after checking their types.

    Raises:
        DataError: a line is not JSON, or as `checked_rows`.
    """
    yield from checked_rows(json_rows(file), fields, file)


def checked_rows(
    rows: Iterable[tuple[int, Mapping[str, Any]]],
    fields: Fields,
    place: object,
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield number and named fields of each numbered row, after checking their types.

    Raises:
        DataError: a field is missing, of another type, or not valid Unicode; names ``place``.
    """
    for number, row in rows:
        for name, kind in fields.items():
            value = row.get(name)
            # In Python, True is an integer, too.
            if not isinstance(value, kind) or isinstance(value, bool):
                raise DataError(
                    f"{place}:{number}: field {name!r} is {shown_value(value)}; "
                    f"expected {_names_of_types(kind)}"
                )
            if isinstance(value, str) and not unicode_text(value):
                raise DataError(
                    f"{place}:{number}: field {name!r} has a lone surrogate: {value!r:.60}"
                )
        yield number, tuple(row.get(name) for name in fields)


def _names_of_types(kind: type | tuple[type, ...]) -> str:
    if isinstance(kind, type):
        return kind.__name__
    return " or ".join(type_.__name__ for type_ in kind)


def json_object(line: str, *, place: str, nan: bool = False) -> dict[str, Any]:
    """Parse ``line`` as a JSON object; raise DataError, starting with ``place``, for others."""
    try:
        row = parse_json(line, nan=nan)
    except ValueError as error:
        raise DataError(f"{place}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise DataError(f"{place}: expected an object; got {type(row).__name__}")
    return row


def numbered_tsv_rows(file: Path, columns: int) -> Iterator[tuple[int, list[str]]]:
    """Yield number and fields of each line that is not blank; quotes are ordinary characters."""
    for number, line in numbered_lines(file):
        if not line.strip():
            continue
        fields = line.rstrip("\r\n").split("\t")
        if len(fields) != columns:
            raise DataError(f"{file}:{number}: expected {columns} fields; got {len(fields)}")
        yield number, fields


def csv_rows(file: Path, *, byte_limit: int | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield last line number and cells of each row of a CSV file, or of a quoted TSV file.

    The separator is a tab in a TSV file. Elsewhere it is that of the first line: a comma, or else a
    semicolon or a tab, as Excel writes in many countries. Rows of empty cells are left out.

    Raises:
        DataError: quotes that do not match.
    """
    lines = (line for _, line in numbered_lines(file, byte_limit=byte_limit))
    first_line = next(lines, "")
    separator = "\t"
    if ".tsv" not in file.suffixes:
        separator = csv_separator(first_line)
    stated = _STATED_SEPARATOR.fullmatch(first_line.strip("\ufeff\r\n"))
    if stated is not None:  # Excel's line "sep=;", which is no row
        separator = stated[1]
        first_line = "\n"
    for number, cells in separated_rows(chain([first_line], lines), separator, place=file):
        if any(cells):
            yield number, cells


def csv_separator(header: str) -> str:
    """Return what separates the cells of a header: a comma, or else a semicolon or a tab.

    >>> csv_separator('query;docid;rating'), csv_separator('query,"a;b",rating')
    (';', ',')
    """
    unquoted = _QUOTED.sub("", header)
    for separator in (",", ";", "\t"):
        if separator in unquoted:
            return separator
    return ","


def separated_rows(
    lines: Iterable[str],
    separator: str,
    *,
    place: object,
) -> Iterator[tuple[int, list[str]]]:
    """Yield last line number and cells of each row of quoted lines, separated by ``separator``.

    Raises:
        DataError: quotes that do not match; starts with ``place``.
    """
    csv.field_size_limit(size_limit(LINE))  # the default is 128 KiB
    reader = csv.reader(lines, delimiter=separator, strict=True)
    try:
        for cells in reader:
            if cells:
                yield reader.line_num, cells
    except csv.Error as error:
        raise DataError(
            f"{place}:{reader.line_num}: invalid CSV ({error}); a quote in a text stands "
            'twice, and the text in quotes: "a ""red"" hat"'
        ) from None


def csv_header(
    rows: Iterator[tuple[int, list[str]]],
    *,
    file: Path,
    columns: Iterable[str] = (),
) -> list[str]:
    """Return the names of columns in the first of the rows of `csv_rows`.

    Raises:
        DataError: one of ``columns`` is missing, or a name is given twice.
    """
    _, first_row = next(rows, (0, []))  # an empty file has no names
    header = [name.strip() for name in first_row]
    duplicate = first_duplicate(header)
    if duplicate is not None:
        raise DataError(f"{file}:1: duplicate column {duplicate!r:.60}")
    for name in columns:
        if name not in header:
            raise DataError(f"{file}:1: no column {name!r}; columns: {listed(header)}")
    return header


def checked_id(value: object, *, place: str) -> str:
    """Return an id; raise DataError if blank or with control characters or lone surrogates."""
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{place}: the id is {shown_value(value)}; expected text that is not blank")
    if not value.isprintable() and _UNFIT.search(value):
        raise DataError(f"{place}: the id {value!r:.60} has unprintable characters")
    return value


def finite_number(value: object) -> float | None:
    """Return a JSON number as a float; None for anything else, including NaN and infinities.

    >>> finite_number(2), finite_number("2"), finite_number(True), finite_number(10**400)
    (2.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:  # an integer above 1.8e308
        return None
    if not math.isfinite(number):
        return None
    return number


def stated_number(value: object) -> float | None:
    """Return a JSON value or a text as a number; None as in `finite_number`.

    Unlike Python, does not read ``1_0`` as 10, nor digits of other scripts.

    >>> stated_number("1e-3"), stated_number("1_0"), stated_number("nan")
    (0.001, None, None)
    """
    if not isinstance(value, str):
        return finite_number(value)
    # float() also reads "1_000" and digits of other scripts.
    if not value.isascii() or "_" in value:
        return None
    try:
        return finite_number(float(value))
    except ValueError:
        return None


_CONFIGURATION = 128 << 10  # bytes, for which PyYAML takes seconds
_LOG = 256 << 20  # bytes


def read_settings(file: Path) -> Any:
    """Return the content of a YAML file of at most 128 KiB.

    Raises:
        DataError: unreadable, or refused by `parse_yaml`; names the file.
    """
    text = read_text(file, byte_limit=_CONFIGURATION)
    try:
        return parse_yaml(text, nan=True)
    except ValueError as error:
        raise DataError(f"{file}: cannot be read as YAML ({error!s:.200})") from None


def json_lines(file: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """Read the objects of a JSON Lines file, and a note if its last line is truncated.

    Raises:
        DataError: a line other than a truncated last one is not a JSON object (names file and
            line), or the file is larger than 256 MiB.
    """
    lines = read_text(file, byte_limit=_LOG).split("\n")
    objects: list[dict[str, Any]] = []
    notes: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            objects.append(json_object(line, place=f"{file}:{number}", nan=True))
        except DataError:
            if number < len(lines):  # only the last line may be cut off, by a crash
                raise
            notes.append(f"{file.name}:{number}: truncated, left out")
    return objects, notes
