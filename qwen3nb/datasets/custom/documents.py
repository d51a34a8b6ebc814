"""Read your own documents: JSONL or CSV (plain or .gz), or a table of SQLite or DuckDB.

A `DocumentLayout` says which column holds the id, how the text is composed, and which
columns hold the star count and the date of the last change. ``PRESETS`` has the layouts
of known tools.

Files are opened read-only, and nothing in them is executed. Sizes are limited, so that a
small file cannot expand into a large one. Every error names file, line (or row) and cause.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from qwen3nb.datasets.custom.databases import (
    CELL,
    DUCKDB,
    SQLITE,
    database_kind,
    duckdb_rows,
    sqlite_rows,
)
from qwen3nb.datasets.custom.text_template import TextTemplate
from qwen3nb.datasets.rows import DataError, json_object, listed, open_text
from qwen3nb.utils.choices import one_of

__all__ = ["PRESETS", "DocumentLayout", "Documents", "find_layout", "read_documents"]

MOST = 256 << 20  # bytes of a file, unpacked
RATIO = 200  # unpacked to packed size; text compresses about 10-fold, table rows 50-fold
_FREE = 16 << 20  # bytes that may be unpacked whatever the ratio
_SUFFIXES = (".jsonl", ".ndjson", ".csv")


@dataclass(frozen=True)
class DocumentLayout:
    """Where the parts of a document are in a row.

    Attributes:
        id_column: the column of ids.
        text: a template; see `qwen3nb.datasets.custom.text_template`.
        table: the table of a database; None for its only table.
        columns: column per name in the template, where they differ.
        lists: names in the template that hold a list (or JSON of one); joined by spaces.
        stars: column of the star count, or None.
        updated: column of the date of the last change, or None.
    """

    id_column: str = "id"
    text: str = "{text}"
    table: str | None = None
    columns: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    lists: tuple[str, ...] = ()
    stars: str | None = None
    updated: str | None = None


PRESETS: Mapping[str, DocumentLayout] = MappingProxyType(
    {
        "gh-star-search": DocumentLayout(
            id_column="full_name",
            text="{full_name}. {purpose}. {description}. {topics}",
            table="repositories",
            columns=MappingProxyType({"topics": "topics_array"}),
            lists=("topics",),
            stars="stargazers_count",
            updated="updated_at",
        )
    }
)


@dataclass(frozen=True)
class Documents:
    """Documents by id.

    Attributes:
        name: the file name, without its folder.
        texts: text per id, never empty.
        stars: star count per id, None where it is missing; empty without such a column.
        updated: date of the last change (UTC) per id, likewise.
    """

    name: str
    texts: Mapping[str, str]
    stars: Mapping[str, int | None]
    updated: Mapping[str, date | None]


def find_layout(preset: str | None = None, **changes: str | None) -> DocumentLayout:
    """Return the layout of ``preset`` (or the default), with ``changes`` that are not None.

    Raises:
        ValueError: an unknown preset; lists the choices.
    """
    layout = PRESETS[one_of("preset", preset, PRESETS)] if preset else DocumentLayout()
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    return DocumentLayout(**{**vars(layout), **given})


def read_documents(file: Path, layout: DocumentLayout | None = None) -> Documents:
    """Read every document of ``file``.

    Raises:
        DataError: the file cannot be read in its format; an id is missing, repeated or not
            text; a text is empty, of another type or not valid Unicode; a star count is
            negative; a date is invalid.
    """
    layout = layout or DocumentLayout()
    template = TextTemplate.parse(layout.text)
    texts: dict[str, str] = {}
    locations: dict[str, str] = {}
    stars: dict[str, int | None] = {}
    updated: dict[str, date | None] = {}
    size = 0
    for where, row in _rows(file, layout, template):
        name = _id(where, layout.id_column, row[layout.id_column])
        if name in texts:
            raise DataError(f"{where}: duplicate id {name!r}, first at {locations[name]}")
        texts[name] = _text(where, layout, template, row)
        locations[name] = where
        size += len(texts[name])
        if size > MOST:
            raise DataError(f"{where}: more than {MOST >> 20} MiB of text in total")
        if layout.stars:
            stars[name] = _count(where, layout.stars, row[layout.stars])
        if layout.updated:
            updated[name] = _day(where, layout.updated, row[layout.updated])
    if not texts:
        raise DataError(f"{file}: no documents")
    return Documents(file.name, texts, stars, updated)


def _rows(
    file: Path, layout: DocumentLayout, template: TextTemplate
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield location and values of each row, with every column of the layout."""
    if not file.is_file():
        raise DataError(f"{file}: no such file, or not a regular file")
    wanted = [layout.id_column, *(layout.columns.get(name, name) for name in template.fields)]
    wanted += [name for name in (layout.stars, layout.updated) if name]
    columns = list(dict.fromkeys(wanted))
    kind = database_kind(file)
    if kind:
        read = {SQLITE: sqlite_rows, DUCKDB: duckdb_rows}[kind]
        for number, values in read(file, table=layout.table, columns=columns):
            yield f"{file}: row {number}", dict(zip(columns, values, strict=True))
        return
    suffix = Path(file.name.removesuffix(".gz")).suffix.lower()
    if suffix not in _SUFFIXES:
        raise DataError(
            f"{file}: expected SQLite, DuckDB, or a name ending in {', '.join(_SUFFIXES)} (or .gz)"
        )
    yield from (_csv_rows if suffix == ".csv" else _json_rows)(file, columns)


def _json_rows(file: Path, columns: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of a JSONL file; a key may be absent from some lines, not from all."""
    seen: set[str] = set()
    for number, line in _lines(file):
        if line.strip():
            row = json_object(line, where=f"{file}:{number}")
            seen |= row.keys()
            if columns[0] not in row:
                raise DataError(f"{file}:{number}: no field {columns[0]!r}; fields: {listed(row)}")
            yield f"{file}:{number}", {name: row.get(name) for name in columns}
    if lost := [name for name in columns if name not in seen and seen]:
        raise DataError(
            f"{file}: no line has the field {lost[0]!r}; fields: {listed(sorted(seen))}"
        )


def _csv_rows(file: Path, columns: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of a CSV file with a header; an empty cell is null."""
    reader = csv.reader((line for _, line in _lines(file)), strict=True)
    try:
        header = [name.removeprefix("\ufeff").strip() for name in next(reader, [])]
        if twice := [name for name in header if header.count(name) > 1]:
            raise DataError(f"{file}:1: duplicate column {twice[0]!r}")
        if lost := [name for name in columns if name not in header]:
            raise DataError(f"{file}:1: no column {lost[0]!r}; columns: {listed(header)}")
        for row in reader:
            if row and len(row) != len(header):
                raise DataError(
                    f"{file}:{reader.line_num}: {len(row)} cells, expected {len(header)}"
                )
            if row:
                values = dict(zip(header, row, strict=True))
                yield f"{file}:{reader.line_num}", {name: values[name] or None for name in columns}
    except csv.Error as error:
        raise DataError(f"{file}:{reader.line_num}: invalid CSV ({error})") from None


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    """Yield numbered lines, limited in length to a cell's and in total to a file's maximum."""
    packed = file.stat().st_size
    most = min(MOST, max(_FREE, packed * RATIO)) if file.suffix == ".gz" else MOST
    with open_text(file) as text:
        read = number = 0
        while line := text.readline(CELL):
            number += 1
            read += len(line)
            if len(line) >= CELL:
                raise DataError(f"{file}:{number}: the line is longer than {CELL >> 20} MiB")
            if read > most:
                raise DataError(
                    f"{file}:{number}: more than {most >> 20} MiB unpacked from "
                    f"{packed:,} bytes; expected at most {MOST >> 20} MiB, and at most "
                    f"{RATIO} times the packed size"
                )
            yield number, line


def _id(where: str, column: str, value: Any) -> str:
    name = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(name, str) or not name.strip():
        raise DataError(f"{where}: id {column!r} is {value!r:.60}, expected text or an integer")
    if not name.isprintable():  # control characters, lone surrogates
        raise DataError(f"{where}: id {value!r:.60} has unprintable characters")
    return name


def _text(
    where: str, layout: DocumentLayout, template: TextTemplate, row: Mapping[str, Any]
) -> str:
    values = {}
    for name in template.fields:
        column = layout.columns.get(name, name)
        values[name] = _part(f"{where}: field {column!r}", row[column], name in layout.lists)
    text = template.fill(values)
    if not text.strip():
        raise DataError(f"{where}: no text: {', '.join(sorted(values))} null or empty")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise DataError(f"{where}: the text is not valid Unicode: {text!r:.60}") from None
    return text


def _part(where: str, value: Any, as_list: bool) -> str:
    """Return one field as text; empty for null."""
    if value is None:
        return ""
    if as_list and isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else []
        except (ValueError, RecursionError):
            raise DataError(f"{where} is {value!r:.60}, expected a JSON list") from None
    if isinstance(value, list):
        if all(isinstance(each, str) for each in value):
            return " ".join(each.strip() for each in value if each.strip())
    elif not as_list and isinstance(value, str):
        return value
    elif not as_list and isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    expected = "a list of texts" if as_list else "a text"
    raise DataError(f"{where} is {type(value).__name__} {value!r:.40}, expected {expected}")


def _count(where: str, column: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 10**15:
        raise DataError(f"{where}: {column!r} is {value!r:.40}, expected a count of 0 or more")
    return value


def _day(where: str, column: str, value: Any) -> date | None:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
            value = value.astimezone(UTC) if value.tzinfo else value
        except (ValueError, OverflowError):
            raise DataError(f"{where}: {column!r} is {value!r:.40}, expected a date") from None
    if isinstance(value, datetime):
        return (value.astimezone(UTC) if value.tzinfo else value).date()
    if isinstance(value, date):
        return value
    raise DataError(f"{where}: {column!r} is {value!r:.40}, expected a date such as 2026-01-31")
