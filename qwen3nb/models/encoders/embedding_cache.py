"""The embedding cache: vectors kept between runs, one SQLite file per encoder identity.

A vector's key is the SHA-256 of the text as the encoder sees it, prompt included.
Everything else that could change the vector (weights, tokenizer, pooling, precision, …)
is part of the identity, which names the file. A role affects a vector only through its
prompt, so two roles share a vector only if they share the whole input.

Each vector is stored with a checksum; a vector that fails it is counted and computed
again. SQLite's write-ahead log with full syncing makes a kill or a second process
harmless. On network file systems, where that log is unreliable, the rollback journal is
used. A cache that cannot be read or written never stops a run: it logs one warning, and
vectors are computed instead.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from qwen3nb.utils.atomic_files import read_json, write_json
from qwen3nb.utils.choices import one_of

__all__ = [
    "EmbeddingCache",
    "bytes_per_vector",
    "connect",
    "is_damage",
    "is_sound",
    "journal_mode",
    "text_key",
]

log = logging.getLogger(__name__)
T = TypeVar("T")
Row = tuple[Any, Any, Any]  # key, value, checksum; of any type in a damaged file
_PAGE = 65536  # bytes of a page of the file
_ROW = 50  # bytes of a row besides its vector: key, checksum, headers
_INDEX = 62  # bytes of its entry in the B-tree of the keys, whose pages are two thirds full
LAYOUT = 2  # version of the file's tables; 1 stored the vectors inside the key's B-tree
_WAIT = 60.0  # seconds to wait for another process's transaction
_KEYS_PER_QUERY = 500  # below SQLite's limit on variables in one statement
_SCAN_FROM = 1 / 8  # share of the stored vectors above which a full scan is faster
_DAMAGE = {
    sqlite3.SQLITE_ERROR,  # a statement that was fine on a sound schema
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_MISMATCH,
}
_NETWORK = ("nfs", "cifs", "smb", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "9p", "afs")


def text_key(text: str) -> bytes:
    """Return the key of a text, prompt included: 32 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def bytes_per_vector(dimension: int) -> int:
    """Return the bytes on disk of one stored vector, with its key; rows do not span pages.

    >>> bytes_per_vector(1024)
    4431
    """
    row = 4 * dimension + _ROW
    return (_PAGE // (_PAGE // row) if row <= _PAGE else row) + _INDEX


def is_sound(row: Row, *, size: int | None = None) -> bool:
    """Return whether a stored row matches its checksum, and ``size`` in bytes if given."""
    key, value, checksum = row
    if not isinstance(key, bytes) or not isinstance(value, bytes):
        return False
    right_size = len(value) == size if size is not None else len(value) % 4 == 0
    return right_size and zlib.crc32(value, zlib.crc32(key)) == checksum


def is_damage(error: Exception) -> bool:
    """Return whether an error means damaged content, not a disk, permission or lock problem."""
    code = getattr(error, "sqlite_errorcode", None)
    return code is not None and code & 0xFF in _DAMAGE


def journal_mode(folder: Path, *, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Return ``wal``, or ``delete`` on network file systems, which lack shared memory for it.

    The environment variable ``QWEN3NB_CACHE_JOURNAL`` overrides the choice.

    Raises:
        ValueError: the variable is set to another value.
    """
    if mode := os.environ.get("QWEN3NB_CACHE_JOURNAL"):
        return one_of("QWEN3NB_CACHE_JOURNAL", mode, ("wal", "delete"))
    if not mounts.is_file():  # not Linux
        return "wal"
    resolved, kinds = folder.resolve(), {}
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        _, point, kind, *_ = line.split(" ")
        kinds[point.replace("\\040", " ")] = kind
    kind = next((kinds[str(at)] for at in (resolved, *resolved.parents) if str(at) in kinds), "")
    remote = kind.removeprefix("fuse.").startswith(_NETWORK) or kind == "fuse.sshfs"
    return "delete" if remote else "wal"


class EmbeddingCache:
    """The cached vectors of one encoder; within a ``with`` block, the file stays open.

    Attributes:
        file: the SQLite file; created on the first write.
        about: description of the encoder, stored as JSON next to the file.
        damaged: number of stored vectors that failed their checksum so far.
    """

    def __init__(self, file: Path, *, about: Mapping[str, Any] | None = None) -> None:
        self.file = file
        self.about = dict(about) if about is not None else None
        self.damaged = 0
        self._database: sqlite3.Connection | None = None
        self._stay_open = False
        self._off: set[str] = set()  # actions disabled after an error: "read", "store"
        self._described = False
        self._inode: int | None = None  # of the file when it was opened

    def __enter__(self) -> EmbeddingCache:
        self._stay_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self._stay_open = False
        self._close()

    def get(self, keys: Iterable[bytes]) -> dict[bytes, NDArray[np.float32]]:
        """Return the stored vectors, float32, by key."""
        vectors: dict[bytes, NDArray[np.float32]] = {}

        def take(key: bytes, value: bytes) -> None:
            vectors[key] = np.frombuffer(value, dtype="<f4")

        self._for_each(list(keys), take)
        return vectors

    def fill(self, keys: Sequence[bytes], vectors: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Copy stored vectors into the rows of ``vectors`` (N, D); return which were filled, (N,).

        Args:
            keys: N distinct keys.
            vectors: changed in place; C-contiguous.
        """
        if not vectors.size:
            return np.zeros(len(keys), dtype=bool)
        size, memory = 4 * vectors.shape[1], vectors.data.cast("B")
        rows = {key: row for row, key in enumerate(keys)}
        filled = np.zeros(len(keys), dtype=bool)

        def take(key: bytes, value: bytes) -> None:
            row = rows[key]
            memory[row * size : (row + 1) * size] = value
            filled[row] = True

        self._for_each(keys, take, size=size)
        return filled

    def _for_each(
        self,
        keys: Sequence[bytes],
        take: Callable[[bytes, bytes], None],
        *,
        size: int | None = None,
    ) -> None:
        """Pass each sound vector of ``keys`` to ``take``; count and report damaged ones."""
        if not self.file.is_file():
            return
        damaged: set[Any] = set()

        def read(database: sqlite3.Connection) -> None:
            for row in _rows(database, keys):
                if is_sound(row, size=size):
                    take(row[0], row[1])
                else:
                    damaged.add(row[0])

        self._attempt("read", read, None)
        if damaged:
            log.warning(
                "%s: %d damaged vectors, which will be computed again", self.file, len(damaged)
            )
        self.damaged += len(damaged)

    def put(self, vectors: Mapping[bytes, NDArray[np.float32]]) -> bool:
        """Store vectors durably in one transaction, replacing damaged ones.

        Returns whether they were stored. After an error such as a full disk or a read-only
        folder, which is logged once, nothing more is stored.
        """
        rows = []
        for key, vector in vectors.items():
            value = np.ascontiguousarray(vector, dtype="<f4").tobytes()
            rows.append((key, value, zlib.crc32(value, zlib.crc32(key))))

        def insert(database: sqlite3.Connection) -> bool:
            self._describe()
            with database:
                database.execute("begin immediate")
                database.executemany(
                    "insert into e values (?, ?, ?) "
                    "on conflict (k) do update set v = excluded.v, crc = excluded.crc",
                    rows,
                )
            return True

        return self._attempt("store", insert, False)

    def touch(self) -> None:
        """Record that the vectors were used, so that pruning by age keeps them."""
        if self.about is not None and self.about_file.is_file() and not self._described:
            self._attempt("store", lambda _: self._describe(), None)

    @property
    def about_file(self) -> Path:
        """The description next to the file; its modification time is that of the last use."""
        return self.file.with_suffix(".json")

    def _describe(self) -> None:
        """Write the description if it is missing or outdated, and update the time of use."""
        if self.about is None or self._described:
            return
        if not _contains(self.about_file, self.about):
            write_json(self.about_file, self.about)
        os.utime(self.about_file)
        self._described = True

    def __len__(self) -> int:
        if not self.file.is_file():
            return 0
        return self._attempt("read", lambda db: int(_one(db, "select count(*) from e")), 0)

    def _attempt(self, what: str, action: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        """Run ``action`` on the database; if the file is damaged, move it aside and retry once."""
        if what in self._off:
            return otherwise
        for last in (False, True):
            try:
                return action(self._opened())
            except (sqlite3.Error, OSError) as error:
                self._close()
                if not last and is_damage(error) and self._moved_aside(error):
                    continue
                self._off.add(what)
                log.warning(
                    "%s: cannot %s vectors (%s); continuing without", self.file, what, error
                )
                return otherwise
            finally:
                if not self._stay_open:
                    self._close()
        return otherwise

    def _opened(self) -> sqlite3.Connection:
        if self._database is None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self._inode = self.file.stat().st_ino if self.file.is_file() else None
            self._database = connect(self.file)
        return self._database

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _moved_aside(self, error: Exception) -> bool:
        """Move a damaged file aside, unless another process has already replaced it."""
        if self.file.is_file() and self.file.stat().st_ino != self._inode:
            return True
        log.warning("%s is not readable (%s); moved aside, starting a new file", self.file, error)
        try:
            for file in self.file.parent.glob(f"{self.file.name}*"):
                if not file.name.endswith(".damaged"):
                    file.replace(file.with_name(f"{file.name}.damaged"))
        except OSError as failed:
            log.warning("%s cannot be moved (%s)", self.file, failed)
            return False
        return True


def connect(file: Path) -> sqlite3.Connection:
    """Open a cache file, creating it or migrating it to the current layout if needed.

    In a read-only folder, the file is opened for reading only.

    Raises:
        sqlite3.Error: the file cannot be opened, or was written by a newer release.
    """
    until = time.monotonic() + _WAIT
    while True:
        try:
            return _prepared(file)
        except sqlite3.OperationalError as error:
            # If two processes create a file at once, SQLite reports "busy" without waiting.
            busy = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
            if not busy or time.monotonic() > until:
                raise
        time.sleep(0.05)


def _prepared(file: Path) -> sqlite3.Connection:
    writable = os.access(file.parent, os.W_OK)
    name = f"{file.absolute().as_uri()}{'' if writable else '?mode=ro&immutable=1'}"
    # Autocommit mode: transactions begin explicitly.
    database = sqlite3.connect(name, uri=True, timeout=_WAIT, isolation_level=None)
    database.text_factory = bytes
    try:
        database.execute(
            "pragma cache_size = -32768"
        )  # KiB: keeps the B-tree of the keys in memory
        if writable:
            database.execute(f"pragma page_size = {_PAGE}")
            database.execute(f"pragma journal_mode = {journal_mode(file.parent)}")
            database.execute("pragma synchronous = full")
        if _one(database, "pragma user_version") != LAYOUT:
            _migrate(database, file)
    except BaseException:
        database.close()
        raise
    return database


def _migrate(database: sqlite3.Connection, file: Path) -> None:
    """Create the table; if the file has the first layout, move its vectors into the table."""
    with database:
        database.execute("begin immediate")
        layout = _one(database, "pragma user_version")
        if layout > LAYOUT:
            raise sqlite3.NotSupportedError(f"layout {layout}, written by a newer qwen3nb")
        database.execute("create table if not exists e (k blob primary key, v blob, crc int)")
        if _one(database, "select count(*) from sqlite_master where name = 'vectors'"):
            log.warning("%s: migrated to the current layout", file)
            database.execute("insert or ignore into e select k, v, crc from vectors")
            database.execute("drop table vectors")
        database.execute(f"pragma user_version = {LAYOUT}")


def _rows(database: sqlite3.Connection, keys: Sequence[bytes]) -> Iterator[Row]:
    """Yield the rows of ``keys``: by lookup, or for many keys by a full scan."""
    stored = _one(database, "select max(rowid) from e") or 0
    if len(keys) >= _SCAN_FROM * stored:
        wanted = set(keys)
        for row in database.execute("select k, v, crc from e"):
            if row[0] in wanted:
                yield row
        return
    for start in range(0, len(keys), _KEYS_PER_QUERY):
        part = keys[start : start + _KEYS_PER_QUERY]
        marks = ",".join("?" * len(part))  # question marks only, never a value
        yield from database.execute(f"select k, v, crc from e where k in ({marks})", part)  # noqa: S608


def _one(database: sqlite3.Connection, query: str) -> Any:
    return database.execute(query).fetchone()[0]


def _contains(file: Path, about: Mapping[str, Any]) -> bool:
    try:
        return file.is_file() and bool(read_json(file) == about)
    except ValueError:  # truncated or overwritten: it is written again
        return False
