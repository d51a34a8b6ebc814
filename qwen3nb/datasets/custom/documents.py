"""Read your own documents: JSONL or CSV (plain or .gz), or a table of SQLite or DuckDB.

Files are opened read-only, and nothing in them is executed. In databases, only tables are read:
views and generated columns are programs that may never end. Errors name file, line (or row) and
cause. `book/guide/what-is-refused.md` lists the rules.
"""

from __future__ import annotations

import importlib
import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import UUID

from qwen3nb.datasets import rows as reader
from qwen3nb.datasets.in_memory import table_rows
from qwen3nb.datasets.rows import DataError, listed, printable
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.strict_json import parse_json

MOST = 256 << 20  # bytes of a file, unpacked
_CELL = 16 << 20  # bytes of one value of a database
_FIELD = re.compile(r"\{(\w[\w -]*)\}")
# Statements that list the tables of a database with their schemas, and the stored columns of one.
_MAIN = "main"
_SQLITE = (
    "SELECT 'main', name FROM pragma_table_list "
    "WHERE schema = 'main' AND type = 'table' AND substr(name, 1, 7) != 'sqlite_'",
    "SELECT name FROM pragma_table_info(?2, ?1)",
)
_DUCKDB = (
    "SELECT table_schema, table_name FROM information_schema.tables "
    "WHERE table_catalog = current_database() AND table_type = 'BASE TABLE'",
    "SELECT column_name FROM information_schema.columns "
    "WHERE table_catalog = current_database() AND table_schema = ? AND table_name = ? "
    "AND is_generated = 'NEVER' ORDER BY ordinal_position",
)
_DUCKDB_OPTIONS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "memory_limit": "512MB",
    "threads": "1",
}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class DocumentLayout:
    """Columns of a row that make up a document."""

    id_column: str = "id"  # the column of ids
    text: str = "{text}"  # a `TextTemplate`
    table: str | None = None  # the table of a database; None for its only table
    # column per name in the template, if different
    columns: Mapping[str, str] = field(default_factory=dict)
    # names in the template that hold a list (or JSON of one); joined by spaces
    lists: tuple[str, ...] = ()
    stars: str | None = None  # column of the star count, or None
    updated: str | None = None  # column of the date of the last change, or None


PRESETS = {
    "gh-star-search": DocumentLayout(
        id_column="full_name",
        text="{full_name}. {purpose}. {description}. {topics}",
        table="repositories",
        columns={"topics": "topics_array"},
        lists=("topics",),
        stars="stargazers_count",
        updated="updated_at",
    )
}


@dataclass(frozen=True)
class Documents:
    """Documents by id."""

    name: str  # the file name, without its folder
    texts: Mapping[str, str]  # text per id; some may be empty
    # star count per id, None where it is missing; empty without such a column
    stars: Mapping[str, int | None]
    updated: Mapping[str, date | None]  # date of the last change (UTC), likewise


@dataclass(frozen=True)
class TextTemplate:
    """A template for the text of a document: ``{full_name}. {purpose}. {description}``.

    A template consists of literal text and field names in braces, without code. An empty field is
    dropped with the text between it and the previous field; the text before the first and after the
    last field is always kept.

    >>> TextTemplate.parse("{name}. {purpose}. {topics}").fill({"name": "a", "topics": "x y"})
    'a. x y'
    """

    parts: tuple[tuple[str, str], ...]  # fields in order, each with the literal text before it
    after: str  # the literal text after the last field

    @classmethod
    def parse(cls, text: str) -> TextTemplate:
        """Parse a template; raise DataError unless it has fields, all plain names in braces."""
        *parts, after = _FIELD.split(text)
        if not parts or any(brace in part for part in (*parts, after) for brace in "{}"):
            raise DataError(
                f"text template {text!r}: expected text with names of fields in braces, as in "
                "'{title}. {text}'"
            )
        return cls(tuple(zip(parts[::2], parts[1::2], strict=True)), after)

    def fill(self, values: Mapping[str, str]) -> str:
        """Return the text for ``values``; empty if all fields are empty."""
        text = ""
        for literal, name in self.parts:
            if value := values.get(name, "").strip():
                text += (literal if text else "") + value
        return f"{self.parts[0][0]}{text}{self.after}" if text else ""


def find_layout(preset: str | None = None, **changes: str | None) -> DocumentLayout:
    """Return the layout of ``preset`` (or the default), with ``changes`` that are not None."""
    layout = PRESETS[one_of("preset", preset, PRESETS)] if preset else DocumentLayout()
    given: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
    return replace(layout, **given)


def read_documents(source: Any, layout: DocumentLayout | None = None) -> Documents:
    """Read every document of a file, of a data frame, or of a list of dictionaries.

    Raises:
        DataError: the file cannot be read in its format; an id is missing, repeated or not
            text; a text is of another type or not valid Unicode, or all are empty; a star count
            is negative; a date is invalid; or the file is too large.
    """
    layout = layout or DocumentLayout()
    template = TextTemplate.parse(layout.text)
    parts = (layout.columns.get(name, name) for _, name in template.parts)
    wanted = (layout.id_column, *parts, layout.stars, layout.updated)
    columns = list(dict.fromkeys(filter(None, wanted)))
    if isinstance(source, Path | str):
        file = Path(source)
        rows = _rows(file, columns, layout.table)
    else:
        file = Path("documents")
        given = enumerate(table_rows(source, what="documents"), start=1)
        rows = _json_rows(file, given, columns, sparse=True)
    texts: dict[str, str] = {}
    stars: dict[str, int | None] = {}
    updated: dict[str, date | None] = {}
    for where, row in rows:
        name = row[layout.id_column]
        is_number = isinstance(name, int) and not isinstance(name, bool)
        if is_number or isinstance(name, UUID):
            name = str(name)
        reader.checked_id(name, where=f"{where}: field {layout.id_column!r}")
        if name in texts:
            raise DataError(f"{where}: duplicate id {name!r:.60}")
        texts[name] = _text(where, layout, template, row)
        if layout.stars:
            stars[name] = _count(where, layout.stars, row[layout.stars])
        if layout.updated:
            updated[name] = _day(where, layout.updated, row[layout.updated])
    if not any(text.strip() for text in texts.values()):
        raise DataError(f"{file}: expected documents with a text; got {len(texts)} without")
    return Documents(file.name, texts, stars, updated)


def _rows(file: Path, columns: Sequence[str], table: str | None) -> Iterator[tuple[str, Row]]:
    """Yield location and values of each row, with every column."""
    if not file.is_file():
        raise DataError(f"{file}: no such file, or not a regular file")
    with file.open("rb") as handle:
        head = handle.read(16)
    suffix = Path(file.name.removesuffix(".gz")).suffix.lower()
    read = _DATABASES.get(head) or _DATABASES.get(head[8:12])
    if read is not None:
        for number, values in enumerate(read(file, table, columns), start=1):
            yield f"{file}: row {number}", dict(zip(columns, values, strict=True))
    elif suffix in (".jsonl", ".ndjson"):
        yield from _json_rows(file, reader.json_rows(file, most=MOST), columns)
    elif suffix == ".csv":  # an empty cell is null
        for number, cells in reader.named_rows(file, columns, most=MOST):
            pairs = zip(columns, cells, strict=True)
            yield f"{file}:{number}", {name: cell or None for name, cell in pairs}
    else:
        raise DataError(
            f"{file}: expected SQLite, DuckDB, or a name ending in .jsonl, .ndjson, .csv (or .gz)"
        )


def _json_rows(
    file: Path, objects: Iterable[tuple[int, Row]], columns: Sequence[str], *, sparse: bool = False
) -> Iterator[tuple[str, Row]]:
    """Yield the objects of a JSONL file; a key may be absent from some lines, but not from all.

    A line with a similarly spelt key instead is refused, as is one with only an id (unless
    ``sparse``: null fields are omitted), whose text would be empty.
    """
    seen: set[str] = set()
    for number, row in objects:
        where = f"{file}:{number}"
        seen |= row.keys()
        if columns[0] not in row:
            raise DataError(f"{where}: no field {columns[0]!r}; fields: {listed(row)}")
        for name in (each for each in columns if each not in row):
            if near := get_close_matches(name, row.keys() - {*columns}, 1, cutoff=0.75):
                raise DataError(
                    f"{where}: no field {name!r}, but {printable(near[0])!r:.60}; correct the key, "
                    "or add the field"
                )
        if not sparse and row.keys().isdisjoint(columns[1:] or columns):
            raise DataError(f"{where}: no field {columns[1]!r}; fields: {listed(row)}")
        yield where, {name: row.get(name) for name in columns}
    if lost := [name for name in columns if name not in seen and seen]:
        raise DataError(
            f"{file}: no line has the field {lost[0]!r}; fields: {listed(sorted(seen))}"
        )


def _sqlite_rows(file: Path, table: str | None, columns: Sequence[str]) -> Iterator[Any]:
    """Yield the values of ``columns`` of each row of ``table``, or of the only table."""
    address = f"file:{quote(str(file.resolve()))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as base:
            base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _CELL)
            base.execute("PRAGMA trusted_schema = OFF")
            yield from _selected(file, base, _SQLITE, table, columns)
    except sqlite3.Error as error:
        raise DataError(f"{file}: SQLite: {printable(str(error))}") from None


def _duckdb_rows(file: Path, table: str | None, columns: Sequence[str]) -> Iterator[Any]:
    """Yield the rows of a DuckDB file, as `_sqlite_rows` does; raise DataError without DuckDB."""
    try:
        duckdb: Any = importlib.import_module("duckdb")
    except ImportError:
        raise DataError(
            f"{file}: reading a DuckDB file needs duckdb; pip install 'qwen3nb[duckdb]'"
        ) from None
    try:
        with closing(duckdb.connect(str(file), read_only=True, config=_DUCKDB_OPTIONS)) as base:
            base.execute("SET lock_configuration = true")
            yield from _selected(file, base, _DUCKDB, table, columns)
    except duckdb.Error as error:
        cause = [*str(error).strip().splitlines(), repr(error)][0]
        raise DataError(f"{file}: DuckDB: {printable(cause)}") from None


# By the bytes at the start, or from the ninth.
_DATABASES = {b"SQLite format 3\0": _sqlite_rows, b"DUCK": _duckdb_rows}


def _selected(
    file: Path, base: Any, schema: tuple[str, str], wanted: str | None, columns: Sequence[str]
) -> Iterator[Any]:
    """Yield the rows of a table; names from the file's schema are quoted.

    A table of another schema than the main one is named ``schema.table``.
    """
    found = base.execute(schema[0]).fetchall()
    tables = dict(sorted((_table_name(*place), place) for place in found))
    if wanted is not None and wanted not in tables:
        wanted = wanted.removeprefix(f"{_MAIN}.")
    if wanted not in tables and (wanted is not None or len(tables) != 1):
        what = (
            "expected one table, or the name of one" if wanted is None else f"no table {wanted!r}"
        )
        raise DataError(f"{file}: {what}; tables: {listed(tables) or 'none'}")
    table = wanted or next(iter(tables))
    place = tables[table]
    known = [name for (name,) in base.execute(schema[1], place).fetchall()]
    for column in columns:
        if column not in known:
            raise DataError(
                f"{file}: table {table!r} has no column {column!r} (generated columns are not "
                f"read); columns: {listed(known)}"
            )
    names = ", ".join(map(_quoted, columns))
    source = ".".join(map(_quoted, place))
    rows = base.execute(f"SELECT {names} FROM {source}")  # noqa: S608
    yield from iter(rows.fetchone, None)


def _table_name(schema: str, table: str) -> str:
    return table if schema == _MAIN else f"{schema}.{table}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _text(where: str, layout: DocumentLayout, template: TextTemplate, row: Row) -> str:
    values = {}
    for _, name in template.parts:
        column = layout.columns.get(name, name)
        values[name] = _part(f"{where}: field {column!r}", row[column], name in layout.lists)
    text = template.fill(values)
    if not reader.unicode_text(text):
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
            return " ".join(filter(None, map(str.strip, value)))
    elif not as_list and isinstance(value, str | int) and not isinstance(value, bool):
        return str(value)
    expected = "a list of texts" if as_list else "a text"
    raise DataError(f"{where} is {type(value).__name__} {value!r:.40}, expected {expected}")


def _count(where: str, column: str, value: Any) -> int | None:
    if value is None:
        return None
    number = reader.stated_number(value)
    if number is None or not number.is_integer() or not 0 <= number < 1e15:
        raise DataError(f"{where}: {column!r} is {value!r:.40}, expected a count of 0 or more")
    return int(number)


def _day(where: str, column: str, value: Any) -> date | None:
    if value is None or value == "":
        return None
    try:
        day = datetime.fromisoformat(value.strip()) if isinstance(value, str) else value
        if isinstance(day, datetime):
            day = (day.astimezone(UTC) if day.tzinfo else day).date()
        if isinstance(day, date):
            return day
    except (ValueError, OverflowError):
        pass
    raise DataError(f"{where}: {column!r} is {value!r:.40}, expected a date such as 2026-01-31")
