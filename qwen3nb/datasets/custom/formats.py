"""Formats of own data: each says which files it reads, and yields their rows.

Documents, queries and pairs with a score come in any of `FORMATS`. To add a format, write a class
with ``reads`` and ``rows`` here, and put one of it into `FORMATS`: every command then reads it.

Files are opened read-only, and nothing in them is executed. In databases, only tables are read:
views and generated columns are programs that may never end. Errors name file, line (or row) and
cause. `book/guide/what-is-refused.md` lists the rules.
"""

from __future__ import annotations

import importlib
import re
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol
from urllib.parse import quote

from qwen3nb.datasets.rows import (
    DataError,
    csv_header,
    csv_rows,
    json_rows,
    listed,
    printable,
    raised_limit,
    read_settings,
    read_text,
    shown_value,
    size_limit,
)
from qwen3nb.utils.strict_json import first_duplicate, parse_json

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

MOST = 256 << 20  # bytes of a file, unpacked
_PLAIN_TYPES = ("STRING", "JSON", "ENUM", "NONE")  # of texts and bytes in Parquet
_CELL = 16 << 20  # bytes of one value of a database
_WORKBOOKS = (".xlsx", ".xls", ".xlsm", ".ods", ".numbers")
_NO_NUMBER = re.compile(r"[:\[,]\s*(NaN|-?Infinity)\b")
_HEAD = 16  # bytes by which a database is recognised
Row = Mapping[str, object]
PlacedRow = tuple[str, Row]  # where the row is, such as ``docs.csv:7``, and its values by column


@dataclass(frozen=True)
class RowRequest:
    """What a reader of rows needs of a file."""

    columns: tuple[str, ...] = ()  # columns of a table that must be there; empty for all of them
    table: str | None = None  # the table of a database; None for its only table
    byte_limit: int = MOST  # bytes to read at most, unpacked


class Format(ABC):
    """A format of files that hold rows with named columns."""

    name: str  # in messages
    suffixes: tuple[str, ...] = ()
    is_table: bool  # whether all rows have the same columns, with plain values

    def reads(self, file: Path) -> bool:
        """Return whether a file is of this format, by default by its suffix."""
        return plain_suffix(file) in self.suffixes

    @abstractmethod
    def rows(self, file: Path, request: RowRequest) -> Iterator[PlacedRow]:
        """Yield the place and the values of each row.

        Raises:
            DataError: the file cannot be read, or a requested column or table is missing.
        """


class JsonLines(Format):
    """One JSON object per line."""

    name = "JSON Lines"
    suffixes = (".jsonl", ".ndjson")
    is_table = False

    def rows(self, file: Path, request: RowRequest) -> Iterator[PlacedRow]:
        """Yield the object of each line."""
        for number, row in json_rows(file, byte_limit=request.byte_limit):
            yield f"{file}:{number}", row


class SeparatedValues(Format):
    """Cells separated by commas or tabs, below a header."""

    name = "CSV"
    suffixes = (".csv", ".tsv")
    is_table = True

    def rows(self, file: Path, request: RowRequest) -> Iterator[PlacedRow]:
        """Yield the cells of each line by column; an empty cell is None."""
        lines = csv_rows(file, byte_limit=request.byte_limit)
        header = csv_header(lines, file=file, columns=request.columns)
        for number, cells in lines:
            if len(cells) != len(header):
                example = ",".join(header)
                raise DataError(
                    f"{file}:{number}: {len(cells)} cells, expected {len(header)}: {example:.60}; "
                    "a text with a separator in it stands in quotes"
                )
            values = zip(header, cells, strict=True)
            yield f"{file}:{number}", {name: cell or None for name, cell in values}


class DocumentFormat(Format):
    """One document, such as a list of objects, which have no line of their own."""

    is_table = False

    @abstractmethod
    def content(self, file: Path, *, byte_limit: int) -> object:
        """Return the value of the document.

        Raises:
            DataError: the file cannot be read.
        """

    def rows(self, file: Path, request: RowRequest) -> Iterator[PlacedRow]:
        """Yield the objects of the list."""
        yield from placed_entries(file, self.content(file, byte_limit=request.byte_limit))


def placed_entries(place: object, entries: object) -> Iterator[PlacedRow]:
    """Yield the place and the values of each object of a document.

    Raises:
        DataError: it is no list of objects.
    """
    if not isinstance(entries, list):
        raise DataError(f"{place}: expected a list of objects; got {type(entries).__name__}")
    for number, entry in enumerate(entries, start=1):
        if not isinstance(entry, Mapping):
            raise DataError(
                f"{place}: entry {number}: expected an object; got {shown_value(entry)}"
            )
        yield f"{place}: entry {number}", entry


class Json(DocumentFormat):
    """One JSON document."""

    name = "JSON"
    suffixes = (".json",)

    def content(self, file: Path, *, byte_limit: int) -> object:
        """Return the value of the document."""
        text = read_text(file, byte_limit=byte_limit)
        try:
            return parse_json(text)
        except JSONDecodeError as error:
            place = f"{file}:{error.lineno}:{error.colno}"
            raise DataError(f"{place}: not JSON ({error.msg}); expected a list") from None
        except ValueError as error:  # a number that is none, or a key twice
            place = str(file)
            number = _NO_NUMBER.search(text)
            if number is not None:
                line = text.count("\n", 0, number.start(1)) + 1
                place += f":{line}:{number.start(1) - text.rfind(chr(10), 0, number.start(1))}"
            raise DataError(f"{place}: not JSON ({error}); expected a list") from None


class Yaml(DocumentFormat):
    """One YAML document, of at most 128 KiB."""

    name = "YAML"
    suffixes = (".yaml", ".yml")

    def content(self, file: Path, *, byte_limit: int) -> object:
        """Return the value of the document."""
        return read_settings(file)


class Parquet(Format):
    """A file of Parquet, as MTEB and Hugging Face publish data."""

    name = "Parquet"
    suffixes = (".parquet",)
    is_table = True

    def rows(self, file: Path, request: RowRequest) -> Iterator[PlacedRow]:
        """Yield the rows; a missing value is None."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        limit = size_limit(request.byte_limit)
        too_large = DataError(f"{file}: expected at most {raised_limit(limit)}")
        size = number = 0
        try:
            metadata = pq.read_metadata(file)
            groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
            if sum(group.total_byte_size for group in groups) > limit:
                raise too_large
            duplicate = first_duplicate(metadata.schema.to_arrow_schema().names)
            if duplicate is not None:
                raise DataError(f"{file}: duplicate column {duplicate!r:.60}")
            for batch in parquet_batches(file, metadata):
                size += unpacked_size(batch)
                if size > limit:
                    raise too_large
                for row in _decoded(batch).to_pylist():
                    number += 1
                    yield f"{file}: row {number}", row
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise DataError(f"{file}: cannot be read as Parquet ({printable(reason)})") from None


def parquet_batches(file: Path, metadata: pq.FileMetaData) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a Parquet file, whose footer is ``metadata``, 65,536 at a time.

    A text that the file stores once for many rows is in memory once, too: see `unpacked_size`.
    """
    import pyarrow.parquet as pq

    text_columns = _text_columns(metadata)
    with pq.ParquetFile(file, metadata=metadata, read_dictionary=text_columns) as table:
        yield from table.iter_batches()


def unpacked_size(batch: pa.RecordBatch) -> int:
    """Return the bytes of rows in which each value stands for itself, one per row besides."""
    return batch.num_rows + sum(map(_size_of_values, batch.columns))


def _text_columns(metadata: pq.FileMetaData) -> list[str]:
    """Return the columns of texts or bytes, which a file may store once for many rows."""
    columns: list[str] = []
    for column in metadata.schema:
        is_plain = column.logical_type.type in _PLAIN_TYPES
        if column.physical_type == "BYTE_ARRAY" and is_plain:
            columns.append(column.path)
    return columns


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows whose columns are no dictionaries, of which Python reads values faster."""
    import pyarrow as pa

    columns: list[pa.Array] = []
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _size_of_values(array: pa.Array) -> int:
    """Return the bytes of an array in which each value stands for itself."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind):
        values = array.dictionary
        if not (_has_text(kind.value_type) and len(values)):
            return int(values.nbytes + array.indices.nbytes)
        sizes = pc.cast(pc.binary_length(values), pa.int64())
        return int(pc.sum(sizes.take(array.indices)).as_py() or 0)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _size_of_values(array.flatten())
    if pa.types.is_struct(kind):
        return sum(map(_size_of_values, array.flatten()))
    return int(array.nbytes)


def _has_text(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is that of texts or bytes."""
    return str(kind).removeprefix("large_") in ("string", "binary")


class _Cursor(Protocol):
    """What `sqlite3` and `duckdb` return of a statement."""

    def fetchall(self) -> list[tuple[str, ...]]: ...
    def fetchone(self) -> Sequence[object] | None: ...


class _Connection(Protocol):
    """An open database of `sqlite3` or `duckdb`."""

    def execute(self, statement: str, parameters: Sequence[str] = ...) -> _Cursor: ...


class _Database(Format):
    """A file of a database; one table of it is read."""

    is_table = True
    main_schema = "main"
    list_tables: str  # a statement that yields schema and name of each table
    list_columns: str  # a statement that yields the stored columns of a schema's table

    def selected_rows(
        self,
        file: Path,
        database: _Connection,
        request: RowRequest,
    ) -> Iterator[PlacedRow]:
        """Yield the requested columns of a table; names from the file are quoted."""
        tables = self.tables(database)
        table = self.chosen_table(file, list(tables), request.table)
        schema, name = tables[table]
        column_rows = database.execute(self.list_columns, (schema, name)).fetchall()
        stored_columns = [column for (column,) in column_rows]
        for column in request.columns:
            if column not in stored_columns:
                raise DataError(
                    f"{file}: table {table!r} has no column {column!r} (generated columns are not "
                    f"read); columns: {listed(stored_columns)}"
                )
        columns = request.columns or tuple(stored_columns)
        selection = ", ".join(map(_quoted, columns))
        source = f"{_quoted(schema)}.{_quoted(name)}"
        cursor = database.execute(f"SELECT {selection} FROM {source}")  # noqa: S608
        rows = iter(cursor.fetchone, None)  # None is the end
        for number, values in enumerate(rows, start=1):
            yield f"{file}: row {number}", dict(zip(columns, values, strict=True))

    def tables(self, database: _Connection) -> dict[str, tuple[str, str]]:
        """Return schema and name of each table; those outside the main schema are named by both."""
        tables: dict[str, tuple[str, str]] = {}
        for schema, name in sorted(database.execute(self.list_tables).fetchall()):
            full_name = f"{schema}.{name}"
            if schema == self.main_schema:
                full_name = name
            tables[full_name] = (schema, name)
        return dict(sorted(tables.items()))

    def chosen_table(self, file: Path, tables: Sequence[str], table: str | None) -> str:
        """Return the table to read: the given one, or the only one."""
        if table is None:
            if len(tables) == 1:
                return tables[0]
            problem = "expected one table, or the name of one"
        else:
            # A table "docs" may also be called "main.docs".
            short_name = table.removeprefix(f"{self.main_schema}.")
            for known_name in (table, short_name):
                if known_name in tables:
                    return known_name
            problem = f"no table {table!r}"
        raise DataError(f"{file}: {problem}; tables: {listed(tables) or 'none'}")


class Sqlite(_Database):
    """A file of SQLite, of any name."""

    name = "SQLite"
    list_tables = (
        "SELECT 'main', name FROM pragma_table_list "
        "WHERE schema = 'main' AND type = 'table' AND substr(name, 1, 7) != 'sqlite_'"
    )
    list_columns = "SELECT name FROM pragma_table_info(?2, ?1)"

    def reads(self, file: Path) -> bool:
        """Return whether the file begins as SQLite's do."""
        return _head(file) == b"SQLite format 3\0"

    def rows(self, file: Path, request: RowRequest) -> Iterator[PlacedRow]:
        """Yield the rows of a table."""
        address = f"file:{quote(str(file.resolve()))}?mode=ro"
        try:
            with closing(sqlite3.connect(address, uri=True)) as database:
                database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _CELL)
                database.execute("PRAGMA trusted_schema = OFF")  # no functions of the file's own
                yield from self.selected_rows(file, database, request)
        except sqlite3.Error as error:
            raise DataError(f"{file}: SQLite: {printable(str(error))}") from None


class DuckDb(_Database):
    """A file of DuckDB, of any name; read by the optional package ``duckdb``."""

    name = "DuckDB"
    list_tables = (
        "SELECT table_schema, table_name FROM information_schema.tables "
        "WHERE table_catalog = current_database() AND table_type = 'BASE TABLE'"
    )
    list_columns = (
        "SELECT column_name FROM information_schema.columns "
        "WHERE table_catalog = current_database() AND table_schema = ? AND table_name = ? "
        "AND is_generated = 'NEVER' ORDER BY ordinal_position"
    )
    options: ClassVar = {
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "memory_limit": "512MB",
        "threads": "1",
    }

    def reads(self, file: Path) -> bool:
        """Return whether the file begins as DuckDB's do."""
        return _head(file)[8:12] == b"DUCK"

    def rows(self, file: Path, request: RowRequest) -> Iterator[PlacedRow]:
        """Yield the rows of a table."""
        try:
            duckdb = importlib.import_module("duckdb")
        except ImportError:
            raise DataError(
                f"{file}: reading a DuckDB file needs duckdb; pip install 'qwen3nb[duckdb]'"
            ) from None
        try:
            connection = duckdb.connect(str(file), read_only=True, config=self.options)
            with closing(connection) as database:
                # From here on, the options that keep it from other files cannot be changed.
                database.execute("SET lock_configuration = true")
                yield from self.selected_rows(file, database, request)
        except duckdb.Error as error:
            lines = str(error).strip().splitlines() or [repr(error)]
            raise DataError(f"{file}: DuckDB: {printable(lines[0])}") from None


FORMATS: tuple[Format, ...] = (
    Sqlite(),
    DuckDb(),
    Json(),
    JsonLines(),
    Yaml(),
    SeparatedValues(),
    Parquet(),
)


def find_format(file: Path) -> Format | None:
    """Return the format of a file, or None.

    Raises:
        DataError: a workbook, whose tables a program of tables must save as CSV.
    """
    if plain_suffix(file) in _WORKBOOKS:
        raise DataError(f"{file}: a workbook is not read; save its sheet as CSV UTF-8")
    for known_format in FORMATS:
        if known_format.reads(file):
            return known_format
    return None


def rows_of_file(file: Path, request: RowRequest) -> Iterator[PlacedRow]:
    """Yield the place and the values of each row of a file of any format.

    Raises:
        DataError: no such file, a file of no known format, or an error of `Format.rows`.
    """
    if not file.is_file():
        raise DataError(f"{file}: no such file, or not a regular file")
    file_format = find_format(file)
    if file_format is None:
        raise DataError(f"{file}: expected {_names_of_formats(FORMATS)}")
    for place, row in file_format.rows(file, request):
        if file_format.is_table:  # objects may lack a field, a table has its columns in all rows
            _check_columns(place, row, request.columns)
        yield place, row


def _check_columns(place: str, row: Row, columns: Iterable[str]) -> None:
    for column in columns:
        if column not in row:
            raise DataError(f"{place}: no column {column!r}; columns: {listed(row)}")


def all_suffixes() -> list[str]:
    """Return the suffixes of all formats that are known by one."""
    suffixes: list[str] = []
    for known_format in FORMATS:
        suffixes.extend(known_format.suffixes)
    return suffixes


def plain_suffix(file: Path) -> str:
    """Return the suffix in lower case, without that of compression."""
    return Path(file.name.removesuffix(".gz")).suffix.lower()


def _names_of_formats(formats: Iterable[Format]) -> str:
    by_content = [known_format.name for known_format in formats if not known_format.suffixes]
    return f"{', '.join(by_content)}, or a name ending in {', '.join(all_suffixes())} (or .gz)"


def _head(file: Path) -> bytes:
    if not file.is_file():
        return b""
    with file.open("rb") as handle:
        return handle.read(_HEAD)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
