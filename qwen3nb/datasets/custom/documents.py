"""Read your own documents: JSONL or CSV (plain or .gz), or a table of SQLite or DuckDB.

A `DocumentLayout` says which column holds the id, how the text is composed, and which
columns hold the star count and the date of the last change. ``PRESETS`` has the layouts
of known tools.

Files are opened read-only, and nothing in them is executed. Sizes are limited, so that a
small file cannot expand into a large one. Every error names file, line (or row) and cause. The
rules are a table of the guide, `book/guide/what-is-refused.md`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from qwen3nb.datasets.custom.databases import (
    DUCKDB,
    SQLITE,
    database_kind,
    duckdb_rows,
    sqlite_rows,
)
from qwen3nb.datasets.custom.text_template import TextTemplate
from qwen3nb.datasets.rows import (
    RAISED,
    RATIO,
    DataError,
    csv_rows,
    json_object,
    listed,
    misspelt,
    open_text,
    printable,
    size_limit,
    unicode_text,
)
from qwen3nb.datasets.values import checked_id
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.strict_json import first_duplicate, parse_json

__all__ = ["PRESETS", "DocumentLayout", "Documents", "find_layout", "read_documents"]

MOST = 256 << 20  # bytes of a file, unpacked
_FREE = 16 << 20  # bytes that a database may hold whatever its size
_ROW = 256  # bytes that a row takes in memory besides its text
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
        texts: text per id; some may be empty.
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
            text; a text is of another type or not valid Unicode, or all are empty; a star count
            is negative; a date is invalid; or the file is too large.
    """
    layout = layout or DocumentLayout()
    template = TextTemplate.parse(layout.text)
    texts: dict[str, str] = {}
    locations: dict[str, str] = {}
    stars: dict[str, int | None] = {}
    updated: dict[str, date | None] = {}
    size, most, expanded = 0, size_limit(MOST), _expanded(file)
    for where, row in _rows(file, layout, template):
        name = _id(where, layout.id_column, row[layout.id_column])
        if name in texts:
            raise DataError(f"{where}: duplicate id {name!r:.60}, first at {locations[name]}")
        texts[name] = _text(where, layout, template, row)
        locations[name] = where
        size += len(texts[name])
        if size > most or size + _ROW * len(texts) > expanded:
            limit = min(most, expanded) >> 20
            raise DataError(f"{where}: more than {limit} MiB of text in total; {RAISED}")
        if layout.stars:
            stars[name] = _count(where, layout.stars, row[layout.stars])
        if layout.updated:
            updated[name] = _day(where, layout.updated, row[layout.updated])
    if not texts:
        raise DataError(f"{file}: no documents")
    if not any(text.strip() for text in texts.values()):
        raise DataError(f"{file}: expected documents with a text; all are empty")
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
    """Yield the rows of a JSONL file; a key may be absent from some lines, not from all.

    Nor may a line have another one in its place: one that is spelt alike, or any if it has no
    column but the id, and that no line has which has the column.
    """
    seen: set[str] = set()
    beside: dict[str, set[str]] = {name: set() for name in columns}
    instead: dict[tuple[str, str], str] = {}
    with open_text(file, most=MOST) as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            row = json_object(line, where=f"{file}:{number}")
            seen |= row.keys()
            if columns[0] not in row:
                raise DataError(f"{file}:{number}: no field {columns[0]!r}; fields: {listed(row)}")
            for name in columns[1:]:
                if name in row:
                    beside[name] |= row.keys()
                else:
                    for other in _instead(name, row, columns):
                        instead.setdefault((name, other), f"{file}:{number}")
            yield f"{file}:{number}", {name: row.get(name) for name in columns}
    if lost := [name for name in columns if name not in seen and seen]:
        raise DataError(
            f"{file}: no line has the field {lost[0]!r}; fields: {listed(sorted(seen))}"
        )
    for (name, other), where in instead.items():
        if other not in beside[name]:
            raise DataError(
                f"{where}: no field {name!r}, but {printable(other)!r:.60}, which no line has "
                f"beside {name!r}; correct the key, or write {name!r}: null for nothing"
            )


def _instead(name: str, row: Mapping[str, Any], columns: Sequence[str]) -> list[str]:
    """Return the keys that a row may have in place of an absent column."""
    if not any(column in row for column in columns[1:]):
        return [key for key in row if key not in columns]
    return misspelt(name, row, columns)


def _csv_rows(file: Path, columns: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of a CSV file with a header; an empty cell is null."""
    rows = csv_rows(file, most=MOST)
    header = [name.strip() for name in next(rows, (0, []))[1]]
    if (twice := first_duplicate(header)) is not None:
        raise DataError(f"{file}:1: duplicate column {twice!r:.60}")
    if lost := [name for name in columns if name not in header]:
        raise DataError(f"{file}:1: no column {lost[0]!r}; columns: {listed(header)}")
    for number, row in rows:
        if len(row) != len(header):
            raise DataError(f"{file}:{number}: {len(row)} cells, expected {len(header)}")
        values = dict(zip(header, row, strict=True))
        yield f"{file}:{number}", {name: values[name] or None for name in columns}


def _expanded(file: Path) -> int:
    """Return how many bytes the rows may take: a database can hold millions in a few."""
    size = file.stat().st_size if file.is_file() else 0
    return size_limit(max(_FREE, size * RATIO))


def _id(where: str, column: str, value: Any) -> str:
    name = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    return checked_id(name, where=f"{where}: field {column!r}")


def _text(
    where: str, layout: DocumentLayout, template: TextTemplate, row: Mapping[str, Any]
) -> str:
    values = {}
    for name in template.fields:
        column = layout.columns.get(name, name)
        values[name] = _part(f"{where}: field {column!r}", row[column], name in layout.lists)
    text = template.fill(values)
    if not unicode_text(text):
        raise DataError(f"{where}: the text is not valid Unicode: {text!r:.60}")
    return text


def _part(where: str, value: Any, as_list: bool) -> str:
    """Return one field as text; empty for null."""
    if value is None:
        return ""
    if as_list and isinstance(value, str):
        try:
            value = parse_json(value) if value.strip() else []
        except ValueError:
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
