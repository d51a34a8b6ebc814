"""Vectors kept between runs, one SQLite file per encoder identity.

The key of a vector is the SHA-256 of the text as the encoder sees it, prompt
included; everything else that could change it (weights, tokenizer, pooling,
precision, …) is part of the identity and so of the file's name. Each vector is stored
with a checksum: one that does not agree is dropped, counted and computed again.
SQLite's write-ahead log with full syncing makes a kill or a second process harmless.
"""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["EmbeddingCache", "text_key"]

log = logging.getLogger(__name__)
T = TypeVar("T")
_UNREADABLE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_ASKED_AT_ONCE = 500  # below SQLite's limit on variables in one statement
_SCHEMA = "create table if not exists vectors (k blob primary key, v blob, crc int) without rowid"


def text_key(text: str) -> bytes:
    """The key of a text, prompt included: 32 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class EmbeddingCache:
    """Vectors of one encoder in ``file``.

    Attributes:
        file: the SQLite file; made when first written to.
        damaged: how many stored vectors failed their checksum so far.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self.damaged = 0

    def get(self, keys: Iterable[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """The float32 vectors that are there, by key."""
        if not self.file.is_file():
            return {}
        wanted = list(keys)
        found: dict[bytes, NDArray[np.float32]] = {}
        damaged = 0
        for key, value, checksum in self._run(lambda database: _select(database, wanted)):
            if zlib.crc32(key + value) == checksum:
                found[key] = np.frombuffer(value, dtype="<f4")
            else:
                damaged += 1
        if damaged:
            log.warning("%s: %d damaged vectors, to be computed again", self.file, damaged)
        self.damaged += damaged
        return found

    def put(self, vectors: Mapping[bytes, NDArray[np.float32]]) -> None:
        """Store vectors, durably, in one transaction; a damaged one is replaced."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        rows = []
        for key, vector in vectors.items():
            value = np.ascontiguousarray(vector, dtype="<f4").tobytes()
            rows.append((key, value, zlib.crc32(key + value)))

        def insert(database: sqlite3.Connection) -> None:
            with database:
                database.execute("begin immediate")
                database.executemany("insert or replace into vectors values (?, ?, ?)", rows)

        self._run(insert)

    def __len__(self) -> int:
        if not self.file.is_file():
            return 0
        count = self._run(lambda db: db.execute("select count(*) from vectors").fetchone()[0])
        return int(count)

    def _run(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """``action`` on the database; one that is not readable is moved aside first."""
        try:
            with closing(self._connect()) as database:
                return action(database)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in _UNREADABLE:
                raise
            log.warning("%s is not readable (%s); moved aside, starting afresh", self.file, error)
        for file in self.file.parent.glob(f"{self.file.name}*"):
            if not file.name.endswith(".damaged"):
                file.replace(file.with_name(f"{file.name}.damaged"))
        with closing(self._connect()) as database:
            return action(database)

    def _connect(self) -> sqlite3.Connection:
        # Autocommit: transactions are opened by hand, where they begin.
        database = sqlite3.connect(self.file, timeout=60, isolation_level=None)
        try:
            database.execute("pragma page_size = 65536")
            database.execute("pragma journal_mode = wal")
            database.execute("pragma synchronous = full")
            database.execute(_SCHEMA)
        except BaseException:
            database.close()
            raise
        return database


def _select(database: sqlite3.Connection, keys: Sequence[bytes]) -> list[tuple[bytes, bytes, int]]:
    rows: list[tuple[bytes, bytes, int]] = []
    for start in range(0, len(keys), _ASKED_AT_ONCE):
        part = keys[start : start + _ASKED_AT_ONCE]
        marks = ",".join("?" * len(part))  # question marks only, never a value
        rows += database.execute(f"select k, v, crc from vectors where k in ({marks})", part)  # noqa: S608
    return rows
