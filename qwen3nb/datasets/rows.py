"""Read rows from data files, plain or gzipped, and check each of them.

What other readers pass over silently (a truncated line, a NaN, a number instead of text)
is an error here, with file, line and cause. The rules are a table of the guide,
`book/guide/what-is-refused.md`.

A small file cannot take much memory: a line has at most 16 MiB, and a ``.gz`` file unpacks to
at most 200 times its size (or 16 MiB). `size_limit` says how to raise these limits.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path
from typing import Any, TextIO

from qwen3nb.models.cache.byte_sizes import parse_size
from qwen3nb.utils.strict_json import parse_json

__all__ = [
    "LINE",
    "RAISED",
    "RATIO",
    "READ_LIMIT",
    "DataError",
    "csv_rows",
    "json_object",
    "json_rows",
    "listed",
    "misspelt",
    "numbered_json_rows",
    "numbered_tsv_rows",
    "open_text",
    "printable",
    "read_bytes",
    "read_text",
    "required",
    "shown_size",
    "size_limit",
    "tsv_rows",
    "unicode_text",
    "variant",
]

READ_LIMIT = "QWEN3NB_READ_LIMIT"
LINE = 16 << 20  # bytes of a line
RATIO = 200  # unpacked to packed size; text compresses about 10-fold, table rows 50-fold
RAISED = f"--read-limit SIZE (or {READ_LIMIT}) raises the limit"
_FREE = 16 << 20  # bytes that may be unpacked whatever the ratio
_BUFFER = 1 << 16
_LISTED = 30
_ALIKE = 0.75  # least share of characters that a key and its misspelling have in common


class DataError(ValueError):
    """Unusable data; the message names the file, the line and the cause."""


def printable(text: str) -> str:
    """Replace control characters, which a terminal would interpret, by a mark.

    >>> printable("a\x1b[2Jb")
    'a�[2Jb'
    """
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def listed(names: Iterable[str]) -> str:
    """Format ``names`` for an error message: printable, and not too many."""
    known = list(names)
    more = [f"and {len(known) - _LISTED} more"] * (len(known) > _LISTED)
    return ", ".join([f"{printable(name):.60}" for name in known[:_LISTED]] + more)


def variant(folder: Path, *names: str) -> Path | None:
    """Return the first of ``names`` that exists in ``folder``, plain or with ``.gz``."""
    for name in names:
        for file in (folder / name, folder / f"{name}.gz"):
            if file.exists():
                return file
    return None


def required(folder: Path, *names: str) -> Path:
    """Return the file of `variant`.

    Raises:
        DataError: there is none.
    """
    file = variant(folder, *names)
    if file is None:
        raise DataError(f"{folder}: no {' or '.join(names)} (or .gz)")
    return file


def size_limit(default: int) -> int:
    """Return a limit in bytes: ``default``, or what ``--read-limit`` says if that is more.

    The option sets the variable QWEN3NB_READ_LIMIT, for libraries and notebooks.

    Raises:
        DataError: the variable is not a size.
    """
    given = os.environ.get(READ_LIMIT)
    if not given:
        return default
    try:
        return max(default, parse_size(given))
    except ValueError as error:
        raise DataError(f"{READ_LIMIT}: {error}") from None


def shown_size(limit: int) -> str:
    """Return a limit for an error message, with the option that raises it."""
    return f"{f'{limit >> 20} MiB' if limit >> 20 else f'{limit:,} bytes'}; {RAISED}"


class _Limited(io.RawIOBase):
    """The bytes of a file, up to a number of them, and up to a length of each line."""

    def __init__(self, raw: Any, file: Path, *, most: int | None) -> None:
        super().__init__()
        self._raw, self._file, self._most = raw, file, most
        self._longest = size_limit(LINE)
        self._read = self._lines = self._line = 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read into ``buffer``.

        Raises:
            DataError: the file, or a line, is too long.
        """
        count: int = self._raw.readinto(buffer)
        data = bytes(memoryview(buffer)[:count])
        self._lines += data.count(b"\n")
        self._line = count - end - 1 if (end := data.rfind(b"\n")) >= 0 else self._line + count
        self._read += count
        if self._line > self._longest:
            raise self._error(f"the line is longer than {shown_size(self._longest)}")
        if self._most is not None and self._read > self._most:
            packed = f"{self._file.stat().st_size:,} bytes"
            how = f" unpacked from {packed}" if self._file.suffix == ".gz" else ""
            raise self._error(f"more than {self._most >> 20} MiB{how}; {RAISED}")
        return count

    def _error(self, cause: str) -> DataError:
        return DataError(f"{self._file}:{self._lines + 1}: {cause}")


@contextmanager
def _open_bytes(file: Path, most: int | None) -> Iterator[io.BufferedReader]:
    if file.exists() and not file.is_file():
        raise DataError(f"{file}: not a regular file")
    try:
        packed = file.suffix == ".gz"
        if packed:
            unpacked = max(_FREE, RATIO * file.stat().st_size)
            most = unpacked if most is None else min(most, unpacked)
        with gzip.open(file) if packed else file.open("rb", buffering=0) as raw:
            limit = None if most is None else size_limit(most)
            yield io.BufferedReader(_Limited(raw, file, most=limit), _BUFFER)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file}: cannot be read ({error})") from None


@contextmanager
def open_text(file: Path, *, most: int | None = None) -> Iterator[TextIO]:
    """Open ``file`` as UTF-8 text, decompressed if its name ends in ``.gz``.

    A byte order mark at its beginning is skipped.

    Args:
        file: a regular file.
        most: bytes to read at most, unpacked; see `size_limit`.

    Raises:
        DataError: it is unreadable, not UTF-8 (names the line), too large, or has a too long
            line, or its compression is damaged.
    """
    try:
        with _open_bytes(file, most) as raw:
            yield io.TextIOWrapper(raw, encoding="utf-8-sig", newline="\n")
    except UnicodeDecodeError:
        with _open_bytes(file, most) as raw:
            raise _not_utf8(file, raw) from None


def _not_utf8(file: Path, lines: Iterable[bytes]) -> DataError:
    number = 0
    for number, line in enumerate(lines, start=1):
        try:
            line.decode("utf-8")
        except UnicodeDecodeError as error:
            return DataError(f"{file}:{number}: cannot be read (not UTF-8: {error.reason})")
    return DataError(f"{file}:{number}: cannot be read (not UTF-8)")


def read_bytes(file: Path, *, most: int) -> bytes:
    """Return the content of a file of at most ``most`` bytes; see `size_limit`.

    Raises:
        DataError: no regular file, too large, or unreadable.
    """
    if not file.is_file():
        raise DataError(f"{file}: no such file, or not a regular file")
    size, limit = file.stat().st_size, size_limit(most)
    if size > limit:
        raise DataError(f"{file}: {size:,} bytes; expected at most {shown_size(limit)}")
    try:
        return file.read_bytes()
    except OSError as error:
        raise DataError(f"{file}: cannot be read ({error})") from None


def read_text(file: Path, *, most: int) -> str:
    """Return the text of a whole file, without a byte order mark.

    Raises:
        DataError: see `read_bytes`; or not UTF-8 (names the line).
    """
    raw = read_bytes(file, most=most)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _not_utf8(file, raw.split(b"\n")) from None


def unicode_text(text: str) -> bool:
    r"""Return whether ``text`` is valid Unicode, without a lone surrogate such as ``"\ud800"``."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def json_rows(file: Path, fields: dict[str, type | tuple[type, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the named fields of each JSON line, checked for their types.

    Raises:
        DataError: a line is not JSON, or a field is missing, of another type, or no valid
            Unicode.
    """
    return (row for _, row in numbered_json_rows(file, fields))


def numbered_json_rows(
    file: Path, fields: dict[str, type | tuple[type, ...]]
) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the number of each line with the fields that `json_rows` yields."""
    with open_text(file) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            row = json_object(line, where=f"{file}:{number}")
            for name in fields.keys() - row.keys():
                if near := misspelt(name, row, fields):
                    raise DataError(
                        f"{file}:{number}: no field {name!r}, but {near[0]!r:.60}; expected "
                        f"{', '.join(fields)}"
                    )
            values = tuple(_field(file, number, row, name, kind) for name, kind in fields.items())
            yield number, values


def json_object(line: str, *, where: str, nan: bool = False) -> dict[str, Any]:
    """Parse ``line`` as a JSON object; error messages start with ``where``.

    Raises:
        DataError: see `parse_json`; or not an object.
    """
    try:
        row = parse_json(line, nan=nan)
    except ValueError as error:
        raise DataError(f"{where}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected an object; got {type(row).__name__}")
    return row


def misspelt(name: str, row: Iterable[str], known: Collection[str]) -> list[str]:
    """Return the keys of a row that may be ``name`` misspelt, as they are not ``known``."""
    return [key for key in row if key not in known and _alike(name, key[: 2 * len(name)])]


@lru_cache(4096)
def _alike(name: str, key: str) -> bool:
    return SequenceMatcher(None, name.casefold(), key.strip().casefold()).ratio() >= _ALIKE


def _field(
    file: Path, number: int, row: dict[str, Any], name: str, kind: type | tuple[type, ...]
) -> Any:
    value = row.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        expected = " or ".join(each.__name__ for each in kinds)
        raise DataError(f"{file}:{number}: field {name!r} is {value!r:.60}; expected {expected}")
    if isinstance(value, str) and not unicode_text(value):
        raise DataError(f"{file}:{number}: field {name!r} has a lone surrogate: {value!r:.60}")
    return value


def tsv_rows(file: Path, columns: int) -> Iterator[list[str]]:
    """Yield the fields of each line; quotes are characters like others.

    Raises:
        DataError: a line has more or fewer than ``columns`` fields.
    """
    return (fields for _, fields in numbered_tsv_rows(file, columns))


def numbered_tsv_rows(file: Path, columns: int) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line with the fields that `tsv_rows` yields."""
    with open_text(file) as lines:
        for number, line in enumerate(lines, start=1):
            fields = line.rstrip("\r\n").split("\t")
            if len(fields) != columns:
                raise DataError(f"{file}:{number}: expected {columns} fields; got {len(fields)}")
            yield number, fields


def csv_rows(file: Path, *, most: int | None = None) -> Iterator[tuple[int, list[str]]]:
    """Yield the last line and the cells of each row of a CSV file, or of a quoted TSV file.

    A row of a TSV file is one line: a cell that begins with a quote would otherwise run on to
    the next quote, over any number of rows.

    Raises:
        DataError: quotes that do not match, a row over lines in TSV, or a too long cell.
    """
    tabs = ".tsv" in file.suffixes
    if (limit := size_limit(0)) > csv.field_size_limit():
        csv.field_size_limit(limit)
    with open_text(file, most=most) as lines:
        reader = csv.reader(lines, delimiter="\t" if tabs else ",", strict=True)
        before = 0
        try:
            for cells in reader:
                number, before = before + 1, reader.line_num
                if tabs and before > number:
                    raise DataError(f"{file}:{number}: a quoted cell runs on over the line's end")
                if cells:
                    yield before, cells
        except csv.Error as error:
            more = f"; {RAISED}" if "field limit" in str(error) else ""
            raise DataError(f"{file}:{reader.line_num}: invalid CSV ({error}{more})") from None
