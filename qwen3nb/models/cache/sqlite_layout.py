"""Vectors of older releases, which kept an SQLite file per encoder: moved once, then removed.

Beside the folder ``<identity>`` there may be ``<identity>.sqlite``, with a table ``e`` (or
``vectors``) of key, vector and checksum, and ``<identity>.json``. One process moves a file at a
time; after a kill, the next one continues. What cannot be moved is computed again.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

__all__ = ["DAMAGED", "OLD", "migrate", "sqlite_files"]

log = logging.getLogger(__name__)
OLD = ".sqlite"
DAMAGED = ".damaged"
_NEWEST = 2  # layout
_ROWS = 4096  # moved at once
_WAIT = 60.0  # seconds to wait for another process that moves the file
_SPARE = 10**9  # bytes of the disk that stay free
_DAMAGE = {
    sqlite3.SQLITE_ERROR,  # a statement that was fine on a sound schema
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_MISMATCH,
}
Store = Callable[[NDArray[np.uint8], NDArray[np.float32]], Any]
Row = tuple[Any, Any, Any]  # key, vector, checksum; of any type in a damaged file


def sqlite_files(file: Path) -> list[Path]:
    """Return what there is of an old cache: the file, its journals, its description."""
    names = (file.name, f"{file.name}-wal", f"{file.name}-shm", f"{file.name}-journal",
             f"{file.stem}.json")  # fmt: skip
    return [path for name in names if (path := file.with_name(name)).is_file()]


def migrate(folder: Path, *, store: Store) -> None:
    """Move the vectors of an older release, if there are any, to the cache in ``folder``.

    Args:
        folder: of the cache, ``<identity>``.
        store: takes keys (N, 32) and vectors (N, D), and keeps those that are not there yet.
    """
    file = folder.with_name(f"{folder.name}{OLD}")
    if not file.is_file():
        return
    needed = file.stat().st_size + _SPARE
    if (free := shutil.disk_usage(file.parent).free) < needed:
        log.warning(
            "%s, of an older release, is not read: moving its vectors needs %.1f GB, and %.1f GB "
            "are free; they are computed again", file, needed / 1e9, free / 1e9,
        )  # fmt: skip
        return
    try:
        log.warning("%s: %d vectors moved to the current layout", file, _move(file, store))
        _remove(file)
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", sqlite3.SQLITE_BUSY) & 0xFF not in _DAMAGE:
            log.warning("%s, of an older release, is not read (%s)", file, error)
            return
        log.warning("%s is not readable (%s); moved aside", file, error)
        for part in sqlite_files(file):
            if part.suffix != ".json":
                part.replace(part.with_name(f"{part.name}{DAMAGED}"))
    except OSError as error:
        log.warning("%s, of an older release, cannot be moved (%s)", file, error)


def _remove(file: Path) -> None:
    for part in sqlite_files(file):
        part.unlink(missing_ok=True)


def _move(file: Path, store: Store) -> int:
    moved = 0
    name = f"{file.absolute().as_uri()}?mode=rw"  # not created if another process has removed it
    with closing(sqlite3.connect(name, uri=True, timeout=_WAIT, isolation_level=None)) as database:
        database.text_factory = bytes
        database.execute("begin immediate")  # until it is closed, no other process moves the file
        layout = database.execute("pragma user_version").fetchone()[0]
        if layout > _NEWEST:
            raise sqlite3.NotSupportedError(f"layout {layout}, written by a newer qwen3nb")
        for rows in _sound_parts(database):
            size = len(rows[0][1])  # of a vector; one encoder has one
            same = [row for row in rows if len(row[1]) == size]
            keys = np.frombuffer(b"".join(row[0] for row in same), dtype=np.uint8)
            values = np.frombuffer(b"".join(row[1] for row in same), dtype="<f4")
            store(keys.reshape(len(same), -1), values.reshape(len(same), -1))
            moved += len(same)
    return moved


def _sound_parts(database: sqlite3.Connection) -> Iterator[list[Row]]:
    """Yield the rows that match their checksums, some thousands at a time."""
    tables = {row[0] for row in database.execute("select name from sqlite_master")}
    table = next((each for each in ("e", "vectors") if each.encode() in tables), None)
    if table is None:
        return
    cursor = database.execute(f"select k, v, crc from {table}")  # noqa: S608 - one of two names
    while rows := cursor.fetchmany(_ROWS):
        if sound := [row for row in rows if _is_sound(row)]:
            yield sound


def _is_sound(row: Row) -> bool:
    key, value, checksum = row
    if not isinstance(key, bytes) or not isinstance(value, bytes):
        return False
    whole = len(key) == 32 and len(value) > 0 and len(value) % 4 == 0
    return whole and crc32(value, crc32(key)) == checksum
