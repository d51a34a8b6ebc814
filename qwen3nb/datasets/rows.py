"""Read rows from data files, plain or gzipped, and check each of them.

What other readers pass over silently (a truncated line, a NaN, a number instead of text)
is an error here, with file, line and cause.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

__all__ = [
    "DataError",
    "json_object",
    "json_rows",
    "listed",
    "numbered_json_rows",
    "numbered_tsv_rows",
    "open_text",
    "printable",
    "required",
    "tsv_rows",
    "variant",
]

_LISTED = 30


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
    """Return the first of ``names`` that is a file in ``folder``, plain or with ``.gz``."""
    for name in names:
        for file in (folder / name, folder / f"{name}.gz"):
            if file.is_file():
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


@contextmanager
def open_text(file: Path) -> Iterator[TextIO]:
    """Open ``file`` as UTF-8 text, decompressed if its name ends in ``.gz``.

    Raises:
        DataError: it is unreadable, not UTF-8, or its compression is damaged.
    """
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as raw:
            yield io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read ({error})") from None


def json_rows(file: Path, fields: dict[str, type | tuple[type, ...]]) -> Iterator[tuple[Any, ...]]:
    """Yield the named fields of each JSON line, checked for their types.

    Raises:
        DataError: a line is not JSON, or a field is missing or of another type.
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
            values = tuple(_field(file, number, row, name, kind) for name, kind in fields.items())
            yield number, values


def json_object(line: str, *, where: str) -> dict[str, Any]:
    """Parse ``line`` as a JSON object; error messages start with ``where``.

    Raises:
        DataError: it is not JSON (NaN is not allowed), or not an object.
    """

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        row = json.loads(line, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise DataError(f"{where}: expected an object; got {type(row).__name__}")
    return row


def _field(
    file: Path, number: int, row: dict[str, Any], name: str, kind: type | tuple[type, ...]
) -> Any:
    value = row.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        expected = " or ".join(each.__name__ for each in kinds)
        raise DataError(f"{file}:{number}: field {name!r} is {value!r:.60}; expected {expected}")
    return value


def tsv_rows(file: Path, columns: int) -> Iterator[list[str]]:
    """Yield the fields of each line.

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
