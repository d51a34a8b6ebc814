"""The files of the embedding cache: rows of vectors that only ever grow.

    <cache>/embeddings/<identity>/about.json            what the identity stands for
                                  <w>-<r>-<D>.vectors   a segment: rows, in order of arrival
                                  <w>-<r>-<D>.index     where its keys are; can be lost

A segment has one writer at a time, which holds a lock on it, so no two processes write one
file. ``w`` names the running machine (a lock is trusted only there: network file systems
differ), ``r`` is random, ``D`` the dimension. A row is

    crc     4 bytes   CRC-32 of the rest of the row, little-endian
    key    32 bytes
    vector  4 D bytes, float32, little-endian

and row i begins at byte i (36 + 4 D). Rows are appended and synced; none is ever changed. A
kill leaves a part of a row at the end, which the next writer cuts off; a damaged row fails its
CRC, and is stored again as a row of its own. So each vector is written once, however many there
are, and a segment that is full (`MOST_ROWS`, `MOST_BYTES`) is not written again.

The index is a number of 8 bytes per row, in order of arrival and unsynced: the first 46 bits of
the key, then 18 bits for the number of the row. It saves reading the rows to know their keys, and
is sorted in memory. Nothing depends on it: rows that it does not list are read, and the row
itself has the last word.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import secrets
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from qwen3nb.utils.atomic_files import sync_folder
from qwen3nb.utils.files.file_locks import lock

__all__ = [
    "INDEX", "MOST_BYTES", "SEGMENT", "Segment", "SegmentWriter", "bytes_per_vector",
    "find_segments", "prefixes", "remove_segment", "rows_of", "sound_rows",
]  # fmt: skip

SEGMENT, INDEX = ".vectors", ".index"  # ends of file names
MOST_ROWS, MOST_BYTES = 1 << 18, 1 << 30  # of a segment
_KEY = 32
_CRC = 4
_ENTRY = 8  # bytes of a row in the index
_ROW = np.uint64(MOST_ROWS - 1)  # mask of its row number
_BLOCK = 1 << 18  # bytes read at once, at most
_GAP = 1 << 14  # bytes between two rows above which they are read apart
_RUNS = 16  # sorted runs of an index in memory before they are merged
_NAME = re.compile(r"[0-9a-f]+-[0-9a-f]+-(?P<dimension>[1-9][0-9]{0,6})\.vectors")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
Records = NDArray[Any]  # of `_row_type`
Rows = NDArray[np.int64]
Entries = NDArray[np.uint64]


def _row_type(dimension: int) -> np.dtype[Any]:
    return np.dtype([("crc", "<u4"), ("key", "u1", (_KEY,)), ("vector", "<f4", (dimension,))])


def bytes_per_vector(dimension: int) -> int:
    """Return the bytes on disk of one stored vector, with its key, checksum and index entry.

    >>> bytes_per_vector(1024)
    4140
    """
    return _row_type(dimension).itemsize + _ENTRY


def prefixes(keys: NDArray[np.uint8]) -> Entries:
    """Return the first 46 bits of keys (N, 32), as entries of the row 0."""
    return np.ascontiguousarray(keys[:, :8]).view(">u8")[:, 0].astype(np.uint64) & ~_ROW


def rows_of(keys: NDArray[np.uint8], vectors: NDArray[np.float32]) -> Records:
    """Return the rows of keys (N, 32) and vectors (N, D), with their checksums."""
    records = np.empty(len(keys), dtype=_row_type(vectors.shape[1]))
    records["key"], records["vector"] = keys, vectors
    records["crc"] = _checksums(records)
    return records


def sound_rows(records: Records) -> NDArray[np.bool_]:
    """Return which rows match their checksum."""
    return np.equal(_checksums(records), records["crc"])


def _checksums(records: Records) -> NDArray[np.uint32]:
    size, data = records.itemsize, np.ascontiguousarray(records).view(np.uint8).data
    sums = (crc32(data[at + _CRC : at + size]) for at in range(0, len(data), size))
    return np.fromiter(sums, dtype=np.uint32, count=len(records))


def find_segments(folder: Path) -> dict[Path, int]:
    """Return the segments in ``folder`` with their dimensions."""
    try:
        files = sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    matches = ((file, _NAME.fullmatch(file.name)) for file in files)
    return {file: int(match["dimension"]) for file, match in matches if match}


class Segment:
    """Reads one segment; keeps its entries in memory, sorted: 8 bytes a row."""

    def __init__(self, file: Path, dimension: int) -> None:
        self.file = file
        self._type = _row_type(dimension)
        self._rows = 0  # rows whose entries are in `_runs`
        self._runs: list[Entries] = []

    def __len__(self) -> int:
        """The number of whole rows, those stored twice included."""
        return min(MOST_ROWS, self.file.stat().st_size // self._type.itemsize)

    def candidates(self, wanted: Entries) -> tuple[Rows, Rows]:
        """Return (rows, positions in ``wanted``) of the rows that may have the wanted keys.

        Args:
            wanted: `prefixes` of the keys, ascending.
        """
        self._refresh()
        pairs = [_matches(run, wanted) for run in self._runs]
        rows = np.concatenate([np.empty(0, np.int64), *(each for each, _ in pairs)])
        positions = np.concatenate([np.empty(0, np.int64), *(each for _, each in pairs)])
        order = np.argsort(rows)
        return rows[order], positions[order]

    def read(self, rows: Rows) -> Iterator[tuple[slice, Records]]:
        """Yield ascending ``rows`` in parts, as (part of ``rows``, records).

        Records are valid until the next part. Ends early where the file does; rows that are
        near each other are read at once.
        """
        size = self._type.itemsize
        apart = np.diff(rows) > max(1, _GAP // size)
        apart |= np.diff(rows // max(1, _BLOCK // size)) > 0
        bounds = [0, *(np.flatnonzero(apart) + 1).tolist(), len(rows)]
        memory = np.empty(max(1, _BLOCK // size), dtype=self._type)
        with self.file.open("rb", buffering=0) as handle:
            for start, end in pairwise(bounds):
                part = rows[start:end]
                first, count = int(part[0]), int(part[-1] - part[0]) + 1
                handle.seek(first * size)
                if handle.readinto(memory[:count].data.cast("B")) < count * size:
                    return
                records = memory[:count]
                yield slice(start, end), records if count == len(part) else records[part - first]

    def _refresh(self) -> None:
        """Learn the entries of the rows that were appended since the last call."""
        count = len(self)
        if count < self._rows:  # cut or replaced by hand
            self._rows, self._runs = 0, []
        if count == self._rows:
            return
        known = np.empty(0, np.uint64) if self._rows else self.listed(count)
        seen = np.zeros(count, dtype=bool)
        seen[: self._rows] = True
        seen[known & _ROW] = True
        self._runs.append(np.concatenate([known, self.entries(np.flatnonzero(~seen))]))
        if len(self._runs) > _RUNS:
            self._runs = [np.concatenate(self._runs)]
        self._runs[-1].sort()
        self._rows = count

    def listed(self, count: int) -> Entries:
        """Return the entries of the index that name one of the first ``count`` rows."""
        try:
            data = _index_of(self.file).read_bytes()
        except FileNotFoundError:
            data = b""
        known = np.frombuffer(data[: len(data) // _ENTRY * _ENTRY], "<u8")
        return known[(known & _ROW) < count]

    def entries(self, rows: Rows) -> Entries:
        """Return the entries of ascending ``rows``, from the rows themselves."""
        entries, read = rows.astype(np.uint64), 0
        for part, records in self.read(rows) if len(rows) else ():
            entries[part] |= prefixes(records["key"])
            read = part.stop
        return entries[:read]


def _matches(run: Entries, wanted: Entries) -> tuple[Rows, Rows]:
    """Return all (row, position in ``wanted``) of entries with wanted prefixes; both ascend."""
    left = np.searchsorted(run, wanted)
    counts = np.searchsorted(run, wanted | _ROW, side="right") - left
    positions = np.repeat(np.arange(len(wanted)), counts)
    offsets = np.arange(len(positions)) - np.repeat(np.cumsum(counts) - counts, counts)
    return (run[left[positions] + offsets] & _ROW).astype(np.int64), positions


class SegmentWriter:
    """Appends rows to a segment that no other process writes."""

    def __init__(self, file: Path, handle: int, dimension: int) -> None:
        """Take over a locked file: cut what a kill left behind, and complete the index."""
        self.file, self.dimension = file, dimension
        self._handle = handle
        self._size = _row_type(dimension).itemsize
        self._rows = os.fstat(handle).st_size // self._size
        os.ftruncate(handle, self._rows * self._size)
        index = _index_of(file)
        if not index.is_file() or index.stat().st_size != self._rows * _ENTRY:
            index.write_bytes(Segment(file, dimension).entries(np.arange(self._rows)).tobytes())

    @classmethod
    def open(cls, folder: Path, dimension: int, *, full: int, own: set[Path]) -> SegmentWriter:
        """Continue a segment of this machine that nobody writes, or begin a new one.

        Args:
            folder: where the segments are.
            dimension: of the vectors.
            full: bytes from which a segment is full.
            own: segments that the caller began; only these are continued where files
                cannot be locked. A new one is added.
        """
        machine = _machine()
        for file, each in find_segments(folder).items():
            if each != dimension or not file.name.startswith(f"{machine}-"):
                continue
            with contextlib.suppress(FileNotFoundError):  # just removed
                if _is_full(file, dimension, full):
                    continue
                handle = _locked(file, os.O_RDWR, unlockable=file in own)
                if handle is not None:
                    return cls(file, handle, dimension)
        while True:
            file = folder / f"{machine}-{secrets.token_hex(4)}-{dimension}{SEGMENT}"
            handle = _locked(file, os.O_RDWR | os.O_CREAT | os.O_EXCL, unlockable=True)
            if handle is not None:
                own.add(file)
                sync_folder(folder)
                return cls(file, handle, dimension)

    def append(self, records: Records) -> None:
        """Write rows durably, all or none, and no more than there is `room`.

        Raises:
            OSError: the disk is full, or fails.
        """
        try:
            _write_all(self._handle, self._rows * self._size, records)
            os.fsync(self._handle)
            _free_pages(self._handle)
        except OSError:
            with contextlib.suppress(OSError):  # the next writer cuts it off
                os.ftruncate(self._handle, self._rows * self._size)
            raise
        numbers = np.arange(self._rows, self._rows + len(records), dtype=np.uint64)
        self._rows += len(records)
        with _index_of(self.file).open("ab") as index:
            index.write((prefixes(records["key"]) | numbers).tobytes())

    @property
    def room(self) -> int:
        """The number of rows that still fit."""
        return MOST_ROWS - self._rows

    @property
    def removed(self) -> bool:
        """Whether the file was deleted in the meantime."""
        return os.fstat(self._handle).st_nlink == 0

    def full(self, size: int) -> bool:
        """Return whether the segment is complete; see `open`."""
        return self._rows >= MOST_ROWS or self._rows * self._size >= size

    def close(self) -> None:
        """Let other processes write the segment."""
        os.close(self._handle)


def _index_of(file: Path) -> Path:
    return file.with_suffix(INDEX)


def _is_full(file: Path, dimension: int, full: int) -> bool:
    size = file.stat().st_size
    return size >= full or size // _row_type(dimension).itemsize >= MOST_ROWS


def _free_pages(handle: int) -> None:
    """Give back the memory of what is on the disk: written vectors are rarely read at once.

    Where the system has to find fresh memory for every page, writing slows down tenfold.
    """
    if hasattr(os, "posix_fadvise"):  # not on macOS
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)


def _write_all(handle: int, at: int, records: Records) -> None:
    data = records.view(np.uint8).data
    os.lseek(handle, at, os.SEEK_SET)
    while data:
        data = data[os.write(handle, data) :]


def _locked(file: Path, flags: int, *, unlockable: bool) -> int | None:
    """Open and lock ``file``; None if another process writes it.

    ``unlockable`` says whether to open it where the file system has no locks.
    """
    handle = os.open(file, flags | getattr(os, "O_BINARY", 0), 0o644)
    try:
        locked = lock(handle)
        if (unlockable if locked is None else locked) and os.fstat(handle).st_nlink:
            return handle
    except BaseException:
        os.close(handle)
        raise
    os.close(handle)
    return None


def remove_segment(file: Path) -> bool:
    """Delete a segment and its index, unless a process is writing it; return whether it is gone."""
    try:
        handle = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return True
    except PermissionError:
        return False
    try:
        if lock(handle) is False:
            return False
        _index_of(file).unlink(missing_ok=True)
        file.unlink(missing_ok=True)
    except PermissionError:
        return False
    finally:
        os.close(handle)
    return True


def _machine() -> str:
    """Return 8 digits for the running system, which are others after a restart."""
    name = _BOOT.read_text(encoding="ascii") if _BOOT.is_file() else platform.node()
    return hashlib.sha256(name.encode()).hexdigest()[:8]
