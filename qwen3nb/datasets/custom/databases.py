"""Read the rows of a table in a SQLite or DuckDB file, without trusting the file.

The file is opened read-only. Only tables are read: a view is a program that may never end,
and so is a generated column. Extensions and other files are not loaded. A query that
exceeds its time limit is interrupted.
"""

from __future__ import annotations

import importlib
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

from qwen3nb.datasets.rows import DataError, listed, printable

__all__ = ["DUCKDB", "SQLITE", "database_kind", "duckdb_rows", "sqlite_rows"]

SQLITE, DUCKDB = "SQLite", "DuckDB"
SECONDS = 45.0  # time limit for a whole table
CELL = 16 << 20  # bytes of one value
_STEPS = 10_000  # instructions of SQLite's virtual machine between checks of the time
_BATCH = 256
_DUCKDB_OPTIONS = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "memory_limit": "512MB",
    "threads": "1",
}
Numbered = tuple[int, tuple[Any, ...]]


def database_kind(file: Path) -> str:
    """Return `SQLITE`, `DUCKDB` or an empty string, by the first bytes of the file."""
    with file.open("rb") as handle:
        head = handle.read(16)
    if head.startswith(b"SQLite format 3\0"):
        return SQLITE
    return DUCKDB if head[8:12] == b"DUCK" else ""


def sqlite_rows(
    file: Path, *, table: str | None, columns: Sequence[str], seconds: float = SECONDS
) -> Iterator[Numbered]:
    """Yield number and values of ``columns`` for each row of ``table``, in the order of keys.

    Args:
        file: the database.
        table: the table; None for the only one.
        columns: names of the columns.
        seconds: time limit.

    Raises:
        DataError: no such table or column, a damaged file, or the time limit is exceeded.
    """
    end = time.monotonic() + seconds
    address = f"file:{quote(str(file.resolve()))}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as base:
            base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, CELL)
            base.set_progress_handler(lambda: int(time.monotonic() > end), _STEPS)
            base.execute("PRAGMA trusted_schema = OFF")
            schema = base.execute("SELECT name, type, sql FROM sqlite_master").fetchall()
            kinds = {
                name: kind
                for name, kind, sql in schema
                if kind == "view" or (kind == "table" and not _virtual(name, sql))
            }
            name = _table(file, table, kinds)
            known = [row[1] for row in base.execute(f"PRAGMA table_info({_quoted(name)})")]
            yield from enumerate(base.execute(_select(file, name, columns, known)), start=1)
    except sqlite3.Error as error:
        late = f"; time limit {seconds:g} s" if time.monotonic() > end else ""
        raise DataError(f"{file}: SQLite: {printable(str(error))}{late}") from None


def _virtual(name: str, sql: str | None) -> bool:
    return name.startswith("sqlite_") or (sql or "").lstrip().upper().startswith("CREATE VIRTUAL")


def duckdb_rows(
    file: Path, *, table: str | None, columns: Sequence[str], seconds: float = SECONDS
) -> Iterator[Numbered]:
    """Like `sqlite_rows`, for a DuckDB file.

    Raises:
        DataError: see `sqlite_rows`; or DuckDB is not installed.
    """
    try:
        duckdb: Any = importlib.import_module("duckdb")
    except ImportError:
        raise DataError(
            f"{file}: reading a DuckDB file needs duckdb; pip install 'qwen3nb[duckdb]'"
        ) from None
    try:
        with closing(duckdb.connect(str(file), read_only=True, config=_DUCKDB_OPTIONS)) as base:
            base.execute("SET lock_configuration = true")
            clock = threading.Timer(seconds, base.interrupt)
            clock.daemon = True
            clock.start()
            try:
                yield from _duckdb_table(file, base, table, columns)
            finally:
                clock.cancel()
    except duckdb.Error as error:
        cause = str(error).strip().splitlines()
        raise DataError(
            f"{file}: DuckDB: {printable(cause[0]) if cause else repr(error)}"
        ) from None


def _duckdb_table(
    file: Path, base: Any, table: str | None, columns: Sequence[str]
) -> Iterator[Numbered]:
    schema = base.execute(
        "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = 'main'"
    ).fetchall()
    kinds = {name: "table" if kind == "BASE TABLE" else "view" for name, kind in schema}
    name = _table(file, table, kinds)
    known = base.execute(
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'main' "
        "AND table_name = ? AND is_generated = 'NEVER' ORDER BY ordinal_position",
        [name],
    ).fetchall()
    rows = base.execute(_select(file, name, columns, [column for (column,) in known]))
    number = 0
    while batch := rows.fetchmany(_BATCH):
        for row in batch:
            number += 1
            yield number, row


def _table(file: Path, wanted: str | None, kinds: dict[str, str]) -> str:
    """Return the table to read; ``kinds`` maps each name to ``table`` or ``view``."""
    tables = sorted(name for name, kind in kinds.items() if kind == "table")
    shown = listed(tables) or "none"
    if wanted is None:
        if len(tables) == 1:
            return tables[0]
        raise DataError(f"{file}: expected one table, or the name of one; tables: {shown}")
    if kinds.get(wanted) == "view":
        raise DataError(f"{file}: {wanted!r} is a view, only tables are read; tables: {shown}")
    if wanted not in tables:
        raise DataError(f"{file}: no table {wanted!r}; tables: {shown}")
    return wanted


def _select(file: Path, table: str, columns: Sequence[str], known: Sequence[str]) -> str:
    """Return the statement; names come from the file's own schema and are quoted anyway."""
    for column in columns:
        if column not in known:
            raise DataError(
                f"{file}: table {table!r} has no column {column!r} (generated columns are not "
                f"read); columns: {listed(known)}"
            )
    return f"SELECT {', '.join(map(_quoted, columns))} FROM {_quoted(table)}"  # noqa: S608


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
