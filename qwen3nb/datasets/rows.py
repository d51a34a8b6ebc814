"""Rows out of data files, plain or gzipped, each checked where it is read.

What goes silently wrong elsewhere (a cut line, an id twice, a NaN, a number where a text
should be) is an error here, with file, line and cause.
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
    "open_text",
    "printable",
    "tsv_rows",
    "variant",
]

_LISTED = 30


class DataError(ValueError):
    """Data that cannot be used; says which file, which line, and why."""


def printable(text: str) -> str:
    """``text`` without the control characters that a terminal obeys; a mark in their place.

    >>> printable("a\x1b[2Jb")
    'a�[2Jb'
    """
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def listed(names: Iterable[str]) -> str:
    """``names`` as an error shows what there is: fit for a terminal, and not too many."""
    known = list(names)
    more = [f"and {len(known) - _LISTED} more"] * (len(known) > _LISTED)
    return ", ".join([f"{printable(name):.60}" for name in known[:_LISTED]] + more)


def variant(folder: Path, *names: str) -> Path | None:
    """The first of ``names`` that is a file in ``folder``, plain or with ``.gz``."""
    for name in names:
        for file in (folder / name, folder / f"{name}.gz"):
            if file.is_file():
                return file
    return None


@contextmanager
def open_text(file: Path) -> Iterator[TextIO]:
    """Lines of ``file``, UTF-8.

    Raises:
        DataError: it is not readable, not UTF-8, or its compression is broken.
    """
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as raw:
            yield io.TextIOWrapper(raw, encoding="utf-8", newline="\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise DataError(f"{file}: cannot be read ({error})") from None


def json_rows(file: Path, fields: dict[str, type | tuple[type, ...]]) -> Iterator[tuple[Any, ...]]:
    """The named fields of each line of JSON, of the types asked for.

    Raises:
        DataError: a line that is not JSON, a field that is missing or of another type.
    """
    with open_text(file) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            row = json_object(line, place=f"{file}:{number}")
            yield tuple(_field(file, number, row, name, kind) for name, kind in fields.items())


def json_object(line: str, *, place: str) -> dict[str, Any]:
    """The object that ``line`` is, as JSON; ``place`` is what an error says first.

    Raises:
        DataError: it is not JSON (a NaN is not, either), or no object.
    """

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    try:
        row = json.loads(line, parse_constant=refuse)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not JSON ({error})") from None
    if not isinstance(row, dict):
        raise DataError(f"{place}: {type(row).__name__}, expected an object")
    return row


def _field(
    file: Path, number: int, row: dict[str, Any], name: str, kind: type | tuple[type, ...]
) -> Any:
    value = row.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise DataError(f"{file}:{number}: field {name!r} is {value!r:.60}")
    return value


def tsv_rows(file: Path, columns: int) -> Iterator[list[str]]:
    """The fields of each line.

    Raises:
        DataError: a line with more or fewer.
    """
    with open_text(file) as lines:
        for number, line in enumerate(lines, start=1):
            fields = line.rstrip("\r\n").split("\t")
            if len(fields) != columns:
                raise DataError(f"{file}:{number}: {len(fields)} fields, expected {columns}")
            yield fields
