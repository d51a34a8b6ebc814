"""The embedding cache: vectors kept between runs, a folder per encoder identity.

    <cache>/embeddings/<identity>/manifest.json    description of the encoder
                                  <w>-<r>-<D>.npy  a segment: vectors, in order of arrival
                                  <w>-<r>-<D>.keys CRC-32 and key of each row

A vector's key is the SHA-256 of the text as the encoder sees it, prompt included. Everything else
that affects the vector (weights, tokenizer, pooling, precision, …) is part of the identity that
names the folder: that of the model without prompts, so that all prompts share a folder. A role
affects a vector only through its prompt, so roles share a vector if their whole inputs are equal.

A segment is an append-only block file (`qwen3nb.vectors.block_file`) with one writer at a time,
which holds a lock on it. ``w`` identifies the running machine (locks are trusted only there,
because network file systems differ), ``r`` is random, ``D`` the dimension. Vectors are synced
before their keys are written, so a kill loses at most the vectors of the interrupted `put`, and the
next writer truncates incomplete rows. The CRC covers identity, key and vector: rows that fail it
are counted, computed and stored again.

A cache that cannot be read or written never stops a run: one warning is logged, and vectors are
computed instead. It is safe to delete.

``QWEN3NB_CACHE_LIMIT`` (``--cache-limit``), such as ``50GB``, bounds the vectors of all models; by
default, half of the disk that is free or has vectors, on each machine. When the limit is reached,
the least recently used segments of any model are removed, except those used since this process
started or being written. If these alone reach it, nothing more is stored: the stored vectors serve
the next run, whereas vectors that displace each other would serve none. In any case `RESERVE` bytes
of the disk, or a share of `SHARE`, stay free. A file's modification time is the time of its last
use.

Vectors stored in float16 are in segments named ``<w>-<r>-<D>h.npy``. An encoder rounds all its
vectors to float16 if it stores them so, which is part of its identity.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import FileIO
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from qwen3nb import paths
from qwen3nb.utils.atomic_files import lock, sync_folder
from qwen3nb.utils.format import parse_size
from qwen3nb.utils.hardware import free_disk, nearest
from qwen3nb.vectors import block_file
from qwen3nb.vectors.block_file import Floats, fill

log = logging.getLogger(__name__)
T = TypeVar("T")
MANIFEST = "manifest.json"
LIMIT = "QWEN3NB_CACHE_LIMIT"
RESERVE = 10**9  # bytes of the disk that stay free
SHARE = 0.02  # or this share of a small disk
MOST_ROWS, MOST_BYTES = 1 << 18, 1 << 30  # of a segment
_PARTS = 16  # minimum number of segments within a limit
_RECENT = 60.0  # seconds before a segment's time of use is updated
_BLOCK = 1 << 18  # bytes read at once, at most
_GAP = 1 << 14  # bytes between two rows above which they are read separately
_ROW = np.dtype([("crc", "<u4"), ("key", "u1", (32,))])
_ROW_BITS = np.uint64(MOST_ROWS - 1)  # of an entry: the number of its row
# Such as ``0a1b-2c3d-384h.npy``.
_SEGMENT_NAME = re.compile(r"[0-9a-f]+-[0-9a-f]+-(?P<dimension>[1-9][0-9]{0,6})(?P<half>h?)\.npy")
_BOOT = Path("/proc/sys/kernel/random/boot_id")
Bools = NDArray[np.bool_]
Keys = NDArray[np.uint8]  # (N, 32)
Rows = NDArray[np.int64]
Entries = NDArray[np.uint64]  # the first 46 bits of a key, and 18 bits for its row number


def text_key(text: str) -> bytes:
    """Return the key of a text, prompt included: 32 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def bytes_per_vector(dimension: int, *, half: bool = False) -> int:
    """Return the bytes on disk of one stored vector, with its key and checksum.

    >>> bytes_per_vector(1024), bytes_per_vector(1024, half=True)
    (4132, 2084)
    """
    return _dtype(half).itemsize * dimension + _ROW.itemsize


def _dtype(half: bool) -> np.dtype[np.floating[Any]]:
    """Return the type of stored numbers."""
    if half:
        return np.dtype("<f2")
    return np.dtype("<f4")


def cache_limit(folder: Path) -> int:
    """Return the maximum bytes of the vectors in ``folder``, of all models.

    Raises:
        ValueError: ``QWEN3NB_CACHE_LIMIT`` is not a size.
    """
    text = os.environ.get(LIMIT, "")
    if text:
        try:
            return parse_size(text)
        except ValueError as error:
            raise ValueError(f"{LIMIT}: {error}") from None
    # By default, half of the disk that is free or has vectors already.
    stored = sum(cache.bytes for cache in list_caches(folder))
    return (stored + free_disk(folder)) // 2


class Segment:
    """A block file with the keys of its rows; needs 8 bytes of memory per row."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.keys_file = file.with_suffix(".keys")
        self.dimension = 0  # of a file with another name
        self.dtype = _dtype(half=False)
        match = _SEGMENT_NAME.fullmatch(file.name)
        if match:
            self.dimension = int(match["dimension"])
            self.dtype = _dtype(half=bool(match["half"]))
        self.row_bytes = self.dtype.itemsize * self.dimension
        # The folder is the model's identity: another model's rows fail their checksums here.
        self._seed = np.uint32(crc32(file.parent.name.encode()))
        self._entries: Entries = np.empty(0, dtype=np.uint64)

    def __len__(self) -> int:
        """The number of complete rows, including duplicates."""
        vectors = (self.file.stat().st_size - block_file.HEADER) // self.row_bytes
        keys = self.keys_file.stat().st_size // _ROW.itemsize
        return max(0, min(MOST_ROWS, vectors, keys))

    def candidates(self, wanted_keys: Entries) -> tuple[Rows, Rows]:
        """Return rows that may have the wanted keys, ascending, and the positions of these."""
        self._index_new_rows()
        # Entries are sorted, and the row is in their last bits: those of a key follow each other.
        # From the first possible entry of a key to the last, whose bits of the row are all 1.
        starts = np.searchsorted(self._entries, wanted_keys)
        ends = np.searchsorted(self._entries, wanted_keys | _ROW_BITS, side="right")
        entries = self._entries[_ranges(starts, ends)]
        rows = (entries & _ROW_BITS).astype(np.int64)
        positions = np.repeat(np.arange(len(wanted_keys)), ends - starts)
        ascending = np.argsort(rows)
        return rows[ascending], positions[ascending]

    def _index_new_rows(self) -> None:
        """Add the rows to the index that were appended since the last call."""
        count = len(self)
        if count < len(self._entries):  # truncated or replaced manually
            self._entries = np.empty(0, dtype=np.uint64)
        indexed = len(self._entries)
        if count == indexed:
            return
        key_rows = np.fromfile(
            self.keys_file,
            dtype=_ROW,
            count=count - indexed,
            offset=indexed * _ROW.itemsize,
        )
        rows = np.arange(indexed, indexed + len(key_rows), dtype=np.uint64)
        # An entry is the first bits of a key, then the number of its row.
        new_entries = np.sort(_first_bits(key_rows["key"]) | rows)
        if indexed == 0:
            self._entries = new_entries
            return
        positions = self._entries.searchsorted(new_entries)
        self._entries = np.insert(self._entries, positions, new_entries)

    def read(self, rows: Rows) -> Iterator[StoredRows]:
        """Yield the content of ascending ``rows``, part by part.

        Keys and vectors are overwritten by the next part. Stops at the end of the file.
        """
        rows_at_once = max(1, _BLOCK // self.row_bytes)
        vectors = np.empty((rows_at_once, self.dimension), dtype=self.dtype)
        key_rows = np.empty(rows_at_once, dtype=_ROW)
        with (
            self.file.open("rb", buffering=0) as vector_file,
            self.keys_file.open("rb", buffering=0) as key_file,
        ):
            for part in self._parts(rows, rows_at_once):
                wanted_rows = rows[part]
                # One read from the first wanted row to the last.
                first = int(wanted_rows[0])
                count = int(wanted_rows[-1]) - first + 1
                vector_file.seek(block_file.HEADER + first * self.row_bytes)
                key_file.seek(first * _ROW.itemsize)
                if not fill(vectors[:count], vector_file) or not fill(key_rows[:count], key_file):
                    return
                wanted_vectors, wanted_key_rows = vectors[:count], key_rows[:count]
                has_other_rows = count != len(wanted_rows)  # between those that are wanted
                if has_other_rows:
                    wanted_vectors = wanted_vectors[wanted_rows - first]
                    wanted_key_rows = wanted_key_rows[wanted_rows - first]
                keys = wanted_key_rows["key"]
                is_sound = np.equal(self.checksums(keys, wanted_vectors), wanted_key_rows["crc"])
                yield StoredRows(part, keys, wanted_vectors, is_sound)

    def _parts(self, rows: Rows, rows_at_once: int) -> Iterator[slice]:
        """Yield parts of ascending rows that are near each other, to be read at once."""
        largest_gap = max(1, _GAP // self.row_bytes)
        is_far = np.diff(rows) > largest_gap
        is_next_block = np.diff(rows // rows_at_once) > 0
        ends = np.flatnonzero(is_far | is_next_block) + 1
        for start, end in pairwise([0, *ends.tolist(), len(rows)]):
            yield slice(start, end)

    def checksums(self, keys: Keys, vectors: Floats) -> NDArray[np.uint32]:
        """Return the CRC-32 of each vector, seeded with the words of its key and the identity.

        The words are combined by exclusive or, so a flipped bit of a key changes it, too.
        """
        seeds = np.bitwise_xor.reduce(keys.view("<u4"), axis=1) ^ self._seed
        sums = map(crc32, vectors, seeds.tolist())
        return np.fromiter(sums, dtype=np.uint32, count=len(vectors))

    def sound(self) -> int:
        """Return the number of rows that match their checksum."""
        rows = np.arange(len(self))
        if len(rows) == 0:
            return 0
        return sum(int(stored.is_sound.sum()) for stored in self.read(rows))

    def remove(self) -> bool:
        """Delete both files unless a process is writing them; return whether they were deleted."""
        try:
            with self.file.open("r+b", buffering=0) as handle:
                # Where locks are unsupported, `lock` returns None: nobody is known to write.
                is_being_written = lock(handle.fileno()) is False
                if is_being_written:
                    return False
                self.keys_file.unlink(missing_ok=True)
                self.file.unlink(missing_ok=True)
        except FileNotFoundError:
            self.keys_file.unlink(missing_ok=True)
        except PermissionError:
            return False
        return True


class StoredRows(NamedTuple):
    """Some rows of a segment."""

    part: slice  # of the rows that were asked for
    keys: Keys
    vectors: Floats
    is_sound: Bools  # whether each matches its checksum


def _ranges(starts: Rows, ends: Rows) -> Rows:
    """Return all positions from each start to its end, one range after the other.

    >>> _ranges(np.array([4, 9]), np.array([6, 10])).tolist()
    [4, 5, 9]
    """
    counts = ends - starts
    counts_before = np.cumsum(counts) - counts
    offsets = np.arange(counts.sum()) - np.repeat(counts_before, counts)
    return np.asarray(np.repeat(starts, counts) + offsets)


def _first_bits(keys: Keys) -> Entries:
    """Return the first 46 bits of keys (N, 32), as entries of the row 0."""
    return keys[:, :8].view(">u8")[:, 0].astype(np.uint64) & ~_ROW_BITS


def _machine() -> str:
    """Return digits that identify this machine until it is started again."""
    name = platform.node()
    if _BOOT.is_file():
        name = _BOOT.read_text(encoding="ascii")
    return hashlib.sha256(name.encode()).hexdigest()[:8]


def find_segments(folder: Path) -> list[Segment]:
    """Return the segments in ``folder`` that have both files."""
    try:
        names = {file.name for file in folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError):
        return []
    segments: list[Segment] = []
    for name in sorted(names):
        has_keys = f"{name.removesuffix('.npy')}.keys" in names
        if has_keys and _SEGMENT_NAME.fullmatch(name):
            segments.append(Segment(folder / name))
    return segments


class SegmentWriter:
    """Appends rows to a segment, as its only writer."""

    def __init__(self, segment: Segment, vectors: FileIO) -> None:
        """Take over a locked file, and remove incomplete rows."""
        self.segment, self._vectors = segment, vectors
        self._keys = segment.keys_file.open("a+b", buffering=0)
        self.rows = len(segment)
        self._cut()

    def _cut(self) -> None:
        """Truncate to complete rows, and update the header."""
        self._vectors.truncate(self.size)
        self._keys.truncate(self.rows * _ROW.itemsize)
        self._vectors.seek(0)
        self._vectors.write(
            block_file.npy_header(self.rows, self.segment.dimension, dtype=self.segment.dtype.str)
        )

    @classmethod
    def open(
        cls,
        folder: Path,
        dimension: int,
        *,
        max_bytes: int,
        half: bool,
    ) -> SegmentWriter:
        """Continue a segment of this machine without a writer, or begin a new one.

        A segment of ``max_bytes`` is full. Without locks, every writer begins a new segment.
        """
        prefix = f"{_machine()}-"
        ending = f"-{dimension}.npy"
        # Such as ``0a1b2c3d-4e5f6071-384h.npy``: machine, random digits, dimension.
        if half:
            ending = f"-{dimension}h.npy"
        for segment in find_segments(folder):
            name = segment.file.name
            if name.startswith(prefix) and name.endswith(ending):
                writer = cls._continued(segment, max_bytes)
                if writer is not None:
                    return writer
        segment = Segment(folder / f"{prefix}{secrets.token_hex(4)}{ending}")
        handle = segment.file.open("x+b", buffering=0)
        # Without locks it stays unlocked, but then no other writer continues it.
        lock(handle.fileno())
        segment.keys_file.touch()
        sync_folder(folder)
        return cls(segment, handle)

    @classmethod
    def _continued(cls, segment: Segment, max_bytes: int) -> SegmentWriter | None:
        """Return a writer of a segment that is not full and has no other; else None."""
        with contextlib.suppress(FileNotFoundError):  # just removed
            is_full = len(segment) >= MOST_ROWS or segment.file.stat().st_size >= max_bytes
            if is_full:
                return None
            handle = segment.file.open("r+b", buffering=0)
            is_locked = lock(handle.fileno())
            if is_locked and _has_name(handle):
                return cls(segment, handle)
            handle.close()
        return None

    @property
    def size(self) -> int:
        """The bytes of the file of vectors."""
        return block_file.HEADER + self.rows * self.segment.row_bytes

    def append(self, keys: Keys, vectors: Floats) -> None:
        """Append rows, all or none, up to `MOST_ROWS` in total; raise OSError if the disk fails."""
        vectors = vectors.astype(self.segment.dtype)
        key_rows = np.empty(len(keys), dtype=_ROW)
        key_rows["key"] = keys
        key_rows["crc"] = self.segment.checksums(keys, vectors)
        try:
            self._vectors.seek(self.size)
            block_file.write_all(vectors, self._vectors)
            os.fsync(self._vectors.fileno())
            if hasattr(os, "posix_fadvise"):
                # Release the page cache of written data, which is rarely read soon: otherwise
                # writing slows down tenfold once memory is short.
                os.posix_fadvise(self._vectors.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            block_file.write_all(key_rows, self._keys)
        except OSError:
            with contextlib.suppress(OSError):  # the next writer truncates it
                self._cut()
            raise
        self.rows += len(key_rows)

    def is_there(self) -> bool:
        """Return whether the file was not removed."""
        return _has_name(self._vectors)

    def close(self) -> None:
        """Let other processes write the segment."""
        with contextlib.suppress(OSError):
            self._cut()
        self._keys.close()
        self._vectors.close()


def _has_name(handle: FileIO) -> bool:
    """Return whether an open file was not removed."""
    return os.fstat(handle.fileno()).st_nlink > 0


class EmbeddingCache:
    """The cached vectors of one encoder; within a ``with`` block, its segment stays open.

    Attributes:
        folder: its files; created on the first write.
        manifest: the description; its modification time is the time of the last use.
        about: description of the encoder, stored as the manifest.
        damaged: number of stored vectors that failed their checksum so far.
        half: whether vectors are stored in float16.
    """

    def __init__(
        self,
        folder: Path,
        *,
        about: Mapping[str, object] | None = None,
        half: bool = False,
    ) -> None:
        """Create a cache in ``folder``, without writing it."""
        self.folder = folder
        self.manifest = folder / MANIFEST
        self.about = about
        self.half = half
        self.damaged = 0
        self._segments: dict[Path, Segment] = {}
        self._writer: SegmentWriter | None = None
        self._stay_open = False
        self._disabled: set[str] = set()  # actions after an error: "read", "store"
        self._described = False

    @cached_property
    def limit(self) -> int:
        """Maximum bytes of the vectors of all models, as of the first write."""
        return cache_limit(self.folder.parent)

    def __enter__(self) -> EmbeddingCache:
        self._stay_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self._stay_open = False
        self._close()

    def fill(self, keys: Sequence[bytes], vectors: Floats) -> Bools:
        """Copy stored vectors into ``vectors`` (N, D); return the mask of filled rows (N,).

        The N keys are distinct.
        """
        is_filled = np.zeros(len(keys), dtype=bool)
        if vectors.size:
            self._attempt("read", lambda: self._fill(_joined(keys), vectors, is_filled), None)
        return is_filled

    def _fill(self, keys: Keys, vectors: Floats, is_filled: Bools) -> None:
        self._find_segments()
        is_damaged = np.zeros(len(keys), dtype=bool)
        by_key = np.argsort(_first_bits(keys))  # rows of `keys`, in the order of a segment's index
        for segment in self._segments.values():
            if segment.dimension != vectors.shape[1]:
                continue
            unfilled = by_key[~is_filled[by_key]]  # sorted keys are found faster
            with contextlib.suppress(FileNotFoundError):  # removed in the meantime
                # Rows of the segment, and which of the unfilled keys each may have.
                rows, positions = segment.candidates(_first_bits(keys[unfilled]))
                if len(rows) == 0:
                    continue
                rows_to_fill = unfilled[positions]  # of `vectors`
                for stored in segment.read(rows):
                    target = rows_to_fill[stored.part]
                    is_damaged[target[~stored.is_sound]] = True
                    # Candidates share only the first bits of a key.
                    has_key = (stored.keys == keys[target]).all(axis=1)
                    _copy_rows(stored, stored.is_sound & has_key, target, vectors, is_filled)
                _note_use(segment.file)
        # A damaged row may have a sound copy in another segment.
        number = int((is_damaged & ~is_filled).sum())
        if number:
            log.warning("%s: %d damaged vectors will be computed again", self.folder, number)
            self.damaged += number

    def _find_segments(self) -> None:
        """Find the segments that exist now, and keep the index of those found before."""
        segments: dict[Path, Segment] = {}
        for segment in find_segments(self.folder):
            segments[segment.file] = self._segments.get(segment.file, segment)
        self._segments = segments

    def put(self, vectors: Mapping[bytes, Floats]) -> bool:
        """Store vectors durably; return whether they were stored.

        After an error (a full disk, a read-only folder, the limit), which is logged once, nothing
        more is stored.
        """
        if not vectors:
            return True
        keys, values = _joined(list(vectors)), np.stack(list(vectors.values()))
        return self._attempt("store", lambda: self._store(keys, values), False)

    def _store(self, keys: Keys, vectors: Floats) -> bool:
        dimension = vectors.shape[1]
        max_bytes = min(MOST_BYTES, self.limit // _PARTS)  # of a segment
        self._reserve(len(keys) * bytes_per_vector(dimension, half=self.half))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._describe()
        while len(keys):
            writer = self._writer_for(dimension, max_bytes)
            room = MOST_ROWS - writer.rows
            writer.append(keys[:room], vectors[:room])
            keys, vectors = keys[room:], vectors[room:]
            if writer.rows == MOST_ROWS or writer.size >= max_bytes:
                self._close()
        return True

    def _writer_for(self, dimension: int, max_bytes: int) -> SegmentWriter:
        """Return the open writer, or open one for vectors of a dimension."""
        writer = self._writer
        is_usable = (
            writer is not None and writer.segment.dimension == dimension and writer.is_there()
        )
        if writer is None or not is_usable:  # None again, for type checkers
            self._close()
            writer = SegmentWriter.open(self.folder, dimension, max_bytes=max_bytes, half=self.half)
            self._writer = writer
        return writer

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _reserve(self, size: int) -> None:
        """Make room for ``size`` bytes, removing the least recently used segments if needed.

        Raise OSError if that is not enough; segments used by this process are kept.
        """
        folder = self.folder.parent
        disk = shutil.disk_usage(nearest(folder))
        reserve = min(RESERVE, int(SHARE * disk.total))
        if disk.free - size < reserve:
            raise OSError(
                f"the disk is nearly full: {disk.free / 1e9:.2f} GB are free, of which "
                f"{reserve / 1e9:.2f} GB are reserved"
            )
        has_exact_limit = bool(os.environ.get(LIMIT))
        # The default limit is approximate, so one check per open segment is enough.
        was_checked = self._writer is not None
        if was_checked and not has_exact_limit:
            return
        import psutil

        # Never in the future, even if the clock was set back since.
        process_start = min(float(psutil.Process().create_time()), time.time())
        allowed = self.limit - size
        bytes_left = shrink(folder, to=allowed, before=process_start)
        if bytes_left > allowed:
            raise OSError(
                f"the vectors of this run fill the limit of {self.limit / 1e9:g} GB ({LIMIT}, "
                "--cache-limit)"
            )

    def touch(self) -> None:
        """Record that the vectors were used."""
        if self._attempt("store", self.manifest.is_file, False):
            self._attempt("store", self._describe, None)

    def _describe(self) -> None:
        """Write the description if it is missing or differs, and update the time of use."""
        if self.about is None or self._described:
            return
        if _described(self.folder) != self.about:
            block_file.write_manifest_fields(self.manifest, self.about)
        os.utime(self.manifest)
        self._described = True

    def __len__(self) -> int:
        """The number of stored vectors, including duplicates."""
        return self._attempt("read", lambda: sum(map(len, find_segments(self.folder))), 0)

    def _attempt(self, action_name: str, action: Callable[[], T], fallback: T) -> T:
        """Run ``action``; after an error, which is logged, it is disabled."""
        if action_name in self._disabled:
            return fallback
        try:
            return action()
        except OSError as error:
            self._disabled.add(action_name)
            log.warning(
                "%s: cannot %s vectors (%s); continuing without",
                self.folder,
                action_name,
                error,
            )
            return fallback
        finally:
            # Within a `with` block, the segment stays open for the next call.
            if not self._stay_open:
                self._close()


def _copy_rows(
    stored: StoredRows, is_right: Bools, target: Rows, vectors: Floats, is_filled: Bools
) -> None:
    """Copy those stored vectors that are right to the rows ``target`` of ``vectors``."""
    if is_right.all():  # usually; the copy of a selection takes longer
        vectors[target] = stored.vectors
        is_filled[target] = True
    else:
        vectors[target[is_right]] = stored.vectors[is_right]
        is_filled[target[is_right]] = True


def _note_use(file: Path) -> None:
    """Set the time of a segment's use, by which segments are removed."""
    if time.time() - file.stat().st_mtime > _RECENT:
        with contextlib.suppress(OSError):
            os.utime(file)


def _joined(keys: Sequence[bytes]) -> Keys:
    return np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1)


def _described(folder: Path) -> dict[str, object]:
    """Return the description of the encoder in the manifest of ``folder``; empty if missing."""
    try:
        return block_file.read_manifest_fields(folder / MANIFEST)
    except FileNotFoundError:
        return {}
    except ValueError:  # damaged: it will be written again
        return {"label": "unknown: its description is damaged"}


def shrink(folder: Path, *, to: int, before: float | None = None) -> int:
    """Remove segments, least recently used first, until at most ``to`` bytes are left.

    Segments being written or used since ``before`` (seconds since 1970) are kept. Other files,
    except manifests, are removed like segments.

    Returns:
        The bytes left in ``folder``, the parent of the folders of all models.
    """
    statuses = _statuses(folder)
    total = sum(status.st_size for status in statuses.values())
    for file in sorted(statuses, key=lambda file: statuses[file].st_mtime):
        status = statuses[file]
        is_used = before is not None and status.st_mtime >= before
        if total <= to or is_used:  # by time: all later files are in use, too
            break
        is_segment = _SEGMENT_NAME.fullmatch(file.name) is not None
        has_segment = file.with_suffix(".npy") in statuses  # keys go with their vectors
        if is_segment:
            if Segment(file).remove():
                keys_file = file.with_suffix(".keys")
                total -= status.st_size
                if keys_file in statuses:
                    total -= statuses[keys_file].st_size
        elif file.name != MANIFEST and not has_segment:
            file.unlink(missing_ok=True)
            total -= status.st_size
    return total


def _statuses(folder: Path) -> dict[Path, os.stat_result]:
    """Return the status of each file below a folder."""
    statuses: dict[Path, os.stat_result] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            file = Path(parent, name)
            with contextlib.suppress(FileNotFoundError):  # removed in the meantime
                statuses[file] = file.stat()
    return statuses


@dataclass(frozen=True)
class ModelVectors:
    """The cached vectors of one encoder."""

    path: Path  # the folder
    label: str  # the model's label; ``unknown`` without a description
    identity: str  # the encoder's SHA-256, or its first 32 digits
    settings: dict[str, object]  # everything its vectors depend on
    bytes: int  # the size of its files
    used: float  # time of the last use, in seconds since 1970

    def texts(self) -> int:
        """Return the number of stored vectors."""
        return sum(map(len, find_segments(self.path)))


def cache_folder() -> Path:
    """Return the folder of the cache's files."""
    return paths.cache() / "embeddings"


def list_caches(folder: Path | None = None) -> list[ModelVectors]:
    """Return the cached models, the most recently used first."""
    folder = folder or cache_folder()
    caches: list[ModelVectors] = []
    for path in _folders_in(folder):
        statuses = [file.stat() for file in path.iterdir()]
        if not statuses:  # being removed
            continue
        # The manifest may be missing or damaged, but its vectors take space all the same.
        about = _described(path)
        settings = about.get("settings")
        if not isinstance(settings, dict):
            settings = {}
        cache = ModelVectors(
            path=path,
            label=str(about.get("label", "unknown")),
            identity=str(about.get("identity", path.name)),
            settings=settings,
            bytes=sum(status.st_size for status in statuses),
            used=max(status.st_mtime for status in statuses),
        )
        caches.append(cache)
    return sorted(caches, key=lambda cache: cache.used, reverse=True)


def _folders_in(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [path for path in sorted(folder.iterdir()) if path.is_dir()]


def verify_cache(cache: ModelVectors) -> tuple[int, list[str]]:
    """Return the number of intact vectors, and the problems, each naming its file."""
    intact = 0
    problems: list[str] = []
    for segment in find_segments(cache.path):
        valid = segment.sound()
        intact += valid
        damaged = len(segment) - valid
        if damaged:
            problems.append(
                f"{segment.file.name}: {damaged} vectors fail their checksum and will be computed "
                "again"
            )
    return intact, problems


def prune_to(size: int) -> int:
    """Remove the least recently used segments until ``size`` bytes are left; return bytes freed.

    Segments being written are kept.
    """
    folder = cache_folder()
    before = sum(cache.bytes for cache in list_caches())
    freed = before - shrink(folder, to=size)
    for path in _folders_in(folder):
        if not find_segments(path):
            shutil.rmtree(path, ignore_errors=True)  # processes that use it continue
    return freed
