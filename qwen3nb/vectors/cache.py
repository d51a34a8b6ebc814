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
from typing import Any, TypeVar
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
_NUMBER = np.uint64(MOST_ROWS - 1)  # mask of a row's number in an entry
_NAME = re.compile(r"[0-9a-f]+-[0-9a-f]+-(?P<dimension>[1-9][0-9]{0,6})(?P<half>h?)\.npy")
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
    return (2 if half else 4) * dimension + _ROW.itemsize


def cache_limit(folder: Path) -> int:
    """Return the maximum bytes of the vectors in ``folder``, of all models.

    Raises:
        ValueError: ``QWEN3NB_CACHE_LIMIT`` is not a size.
    """
    if text := os.environ.get(LIMIT, ""):
        try:
            return parse_size(text)
        except ValueError as error:
            raise ValueError(f"{LIMIT}: {error}") from None
    return (sum(each.bytes for each in list_caches(folder)) + free_disk(folder)) // 2


class Segment:
    """A block file with the keys of its rows; needs 8 bytes of memory per row."""

    def __init__(self, file: Path) -> None:
        self.file, self.keys_file = file, file.with_suffix(".keys")
        match = _NAME.fullmatch(file.name)
        self.dimension = int(match["dimension"]) if match else 0
        self.dtype = np.dtype("<f2" if match and match["half"] else "<f4")
        self.row_bytes = self.dtype.itemsize * self.dimension
        self._seed = np.uint32(crc32(file.parent.name.encode()))
        self._entries: Entries = np.empty(0, dtype=np.uint64)

    def __len__(self) -> int:
        """The number of complete rows, including duplicates."""
        vectors = (self.file.stat().st_size - block_file.HEADER) // self.row_bytes
        keys = self.keys_file.stat().st_size // _ROW.itemsize
        return max(0, min(MOST_ROWS, vectors, keys))

    def candidates(self, wanted: Entries) -> tuple[Rows, Rows]:
        """Return rows that may have the keys ``wanted``, ascending, and their positions in it."""
        known, count = len(self._entries), len(self)
        if count < known:  # truncated or replaced manually
            known, self._entries = 0, np.empty(0, dtype=np.uint64)
        if count > known:  # rows appended since the last call
            offset = known * _ROW.itemsize
            new = np.fromfile(self.keys_file, dtype=_ROW, count=count - known, offset=offset)
            numbers = np.arange(known, known + len(new), dtype=np.uint64)
            entries = np.sort(_first_bits(new["key"]) | numbers)
            if known:
                entries = np.insert(self._entries, self._entries.searchsorted(entries), entries)
            self._entries = entries
        left = np.searchsorted(self._entries, wanted)
        counts = np.searchsorted(self._entries, wanted | _NUMBER, side="right") - left
        positions = np.repeat(np.arange(len(wanted)), counts)
        offsets = np.arange(len(positions)) - np.repeat(np.cumsum(counts) - counts, counts)
        rows = (self._entries[left[positions] + offsets] & _NUMBER).astype(np.int64)
        order = np.argsort(rows)
        return rows[order], positions[order]

    def read(self, rows: Rows) -> Iterator[tuple[slice, Keys, Floats, Bools]]:
        """Yield (part of ``rows``, keys, vectors, whether valid) of ascending ``rows``.

        Keys and vectors are overwritten by the next part. Stops at the end of the file.
        """
        size = self.row_bytes
        most = max(1, _BLOCK // size)
        apart = (np.diff(rows) > max(1, _GAP // size)) | (np.diff(rows // most) > 0)
        bounds = [0, *(np.flatnonzero(apart) + 1).tolist(), len(rows)]
        vectors = np.empty((most, self.dimension), dtype=self.dtype)
        heads = np.empty(most, dtype=_ROW)
        with (
            self.file.open("rb", buffering=0) as vector_file,
            self.keys_file.open("rb", buffering=0) as key_file,
        ):
            for start, end in pairwise(bounds):
                part = rows[start:end]
                first, count = int(part[0]), int(part[-1] - part[0]) + 1
                vector_file.seek(block_file.HEADER + first * size)
                key_file.seek(first * _ROW.itemsize)
                if not (fill(vectors[:count], vector_file) and fill(heads[:count], key_file)):
                    return
                which: Any = slice(count) if count == len(part) else part - first
                own, values = heads[which], vectors[which]
                sound = np.equal(self.checksums(own["key"], values), own["crc"])
                yield slice(start, end), own["key"], values, sound

    def checksums(self, keys: Keys, vectors: Floats) -> NDArray[np.uint32]:
        """Return the CRC-32 of each vector, seeded with the words of its key and the identity.

        The words are combined by exclusive or, so a flipped bit of a key changes it, too.
        """
        starts = np.bitwise_xor.reduce(keys.view("<u4"), axis=1) ^ self._seed
        sums = map(crc32, vectors, starts.tolist())
        return np.fromiter(sums, dtype=np.uint32, count=len(vectors))

    def sound(self) -> int:
        """Return the number of rows that match their checksum."""
        rows = np.arange(len(self))
        return sum(int(sound.sum()) for *_, sound in self.read(rows)) if len(rows) else 0

    def remove(self) -> bool:
        """Delete both files unless a process is writing them; return whether they were deleted."""
        try:
            with self.file.open("r+b", buffering=0) as handle:
                if lock(handle.fileno()) is False:
                    return False
                self.keys_file.unlink(missing_ok=True)
                self.file.unlink(missing_ok=True)
        except FileNotFoundError:
            self.keys_file.unlink(missing_ok=True)
        except PermissionError:
            return False
        return True


def _first_bits(keys: Keys) -> Entries:
    """Return the first 46 bits of keys (N, 32), as entries of the row 0."""
    return keys[:, :8].view(">u8")[:, 0].astype(np.uint64) & ~_NUMBER


def find_segments(folder: Path) -> list[Segment]:
    """Return the segments in ``folder`` that have both files."""
    try:
        names = {each.name for each in folder.iterdir()}
    except (FileNotFoundError, NotADirectoryError):
        return []
    whole = (name for name in sorted(names) if name.removesuffix(".npy") + ".keys" in names)
    return [Segment(folder / name) for name in whole if _NAME.fullmatch(name)]


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
    def open(cls, folder: Path, dimension: int, *, full: int, half: bool) -> SegmentWriter:
        """Continue a segment of this machine without a writer, or begin a new one.

        A segment of ``full`` bytes is full. Without locks, every writer begins a new segment.
        """
        name = _BOOT.read_text(encoding="ascii") if _BOOT.is_file() else platform.node()
        machine = hashlib.sha256(name.encode()).hexdigest()[:8]  # changes at a restart
        ending = f"-{dimension}{'h' * half}.npy"
        for segment in find_segments(folder):
            if segment.file.name.endswith(ending) and segment.file.name.startswith(f"{machine}-"):
                with contextlib.suppress(FileNotFoundError):  # just removed
                    if len(segment) < MOST_ROWS and segment.file.stat().st_size < full:
                        handle: Any = segment.file.open("r+b", buffering=0)
                        if lock(handle.fileno()) and os.fstat(handle.fileno()).st_nlink:
                            return cls(segment, handle)
                        handle.close()
        segment = Segment(folder / f"{machine}-{secrets.token_hex(4)}{ending}")
        handle = segment.file.open("x+b", buffering=0)
        lock(handle.fileno())
        segment.keys_file.touch()
        sync_folder(folder)
        return cls(segment, handle)

    @property
    def size(self) -> int:
        """The bytes of the file of vectors."""
        return block_file.HEADER + self.rows * self.segment.row_bytes

    def append(self, keys: Keys, vectors: Floats) -> None:
        """Append rows, all or none, up to `MOST_ROWS` in total; raise OSError if the disk fails."""
        vectors = vectors.astype(self.segment.dtype)
        heads = np.empty(len(keys), dtype=_ROW)
        heads["key"], heads["crc"] = keys, self.segment.checksums(keys, vectors)
        try:
            self._vectors.seek(self.size)
            block_file.write_all(vectors, self._vectors)
            os.fsync(self._vectors.fileno())
            if hasattr(os, "posix_fadvise"):
                # Release the page cache of written data, which is rarely read soon: otherwise
                # writing slows down tenfold once memory is short.
                os.posix_fadvise(self._vectors.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            block_file.write_all(heads, self._keys)
        except OSError:
            with contextlib.suppress(OSError):  # the next writer truncates it
                self._cut()
            raise
        self.rows += len(heads)

    def is_there(self) -> bool:
        """Return whether the file was not removed."""
        return os.fstat(self._vectors.fileno()).st_nlink > 0

    def close(self) -> None:
        """Let other processes write the segment."""
        with contextlib.suppress(OSError):
            self._cut()
        self._keys.close()
        self._vectors.close()


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
        self, folder: Path, *, about: Mapping[str, Any] | None = None, half: bool = False
    ) -> None:
        """Create a cache in ``folder``, without writing it."""
        self.folder, self.manifest = folder, folder / MANIFEST
        self.about = None if about is None else dict(about)
        self.damaged, self.half = 0, half
        self._segments: dict[Path, Segment] = {}
        self._writer: SegmentWriter | None = None
        self._stay_open = False
        self._off: set[str] = set()  # actions disabled after an error: "read", "store"
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
        filled = np.zeros(len(keys), dtype=bool)
        if vectors.size:
            self._attempt("read", lambda: self._fill(_joined(keys), vectors, filled), None)
        return filled

    def _fill(self, keys: Keys, vectors: Floats, filled: Bools) -> None:
        damaged = np.zeros(len(keys), dtype=bool)
        by_key = np.argsort(_first_bits(keys))
        # Keep the index of segments that still exist.
        present = {each.file: each for each in find_segments(self.folder)}
        self._segments = {file: self._segments.get(file, each) for file, each in present.items()}
        for segment in self._segments.values():
            if segment.dimension != vectors.shape[1]:
                continue
            wanted = by_key[~filled[by_key]]
            with contextlib.suppress(FileNotFoundError):  # removed in the meantime
                rows, positions = segment.candidates(_first_bits(keys[wanted]))
                targets = wanted[positions]
                for part, names, values, sound in segment.read(rows) if len(rows) else ():
                    target = targets[part]
                    damaged[target[~sound]] = True
                    right = sound & (names == keys[target]).all(axis=1)
                    if right.all():
                        vectors[target] = values
                    else:
                        vectors[target[right]] = values[right]
                    filled[target[right]] = True
                # The time of use, by which segments are removed.
                if len(rows) and time.time() - segment.file.stat().st_mtime > _RECENT:
                    with contextlib.suppress(OSError):
                        os.utime(segment.file)
        if count := int((damaged & ~filled).sum()):
            log.warning("%s: %d damaged vectors will be computed again", self.folder, count)
            self.damaged += count

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
        self._reserve(len(keys) * bytes_per_vector(dimension, half=self.half))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._describe()
        full = min(MOST_BYTES, self.limit // _PARTS)  # bytes of a full segment
        while len(keys):
            writer = self._writer
            if writer is None or writer.segment.dimension != dimension or not writer.is_there():
                self._close()
                writer = SegmentWriter.open(self.folder, dimension, full=full, half=self.half)
                self._writer = writer
            room = MOST_ROWS - writer.rows
            writer.append(keys[:room], vectors[:room])
            keys, vectors = keys[room:], vectors[room:]
            if writer.rows == MOST_ROWS or writer.size >= full:
                self._close()
        return True

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
        if not os.environ.get(LIMIT) and self._writer is not None:
            return  # a share of the disk need not be exact
        import psutil

        began, most = min(float(psutil.Process().create_time()), time.time()), self.limit - size
        if shrink(folder, to=most, before=began) > most:
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

    def _attempt(self, what: str, action: Callable[[], T], otherwise: T) -> T:
        """Run ``action``; after an error, which is logged, it is disabled."""
        if what in self._off:
            return otherwise
        try:
            return action()
        except OSError as error:
            self._off.add(what)
            log.warning("%s: cannot %s vectors (%s); continuing without", self.folder, what, error)
            return otherwise
        finally:
            if not self._stay_open:
                self._close()


def _joined(keys: Sequence[bytes]) -> Keys:
    return np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1)


def _described(folder: Path) -> dict[str, Any]:
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
    files = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # removed in the meantime
                files[Path(parent, name)] = Path(parent, name).stat()
    total = sum(each.st_size for each in files.values())
    for file, status in sorted(files.items(), key=lambda each: each[1].st_mtime):
        if total <= to or (before is not None and status.st_mtime >= before):
            break
        keys = file.with_suffix(".keys")
        if _NAME.fullmatch(file.name):
            if Segment(file).remove():
                total -= status.st_size + (files[keys].st_size if keys in files else 0)
        elif file.name != MANIFEST and file.with_suffix(".npy") not in files:
            file.unlink(missing_ok=True)
            total -= status.st_size
    return total


@dataclass(frozen=True)
class ModelVectors:
    """The cached vectors of one encoder."""

    path: Path  # the folder
    label: str  # the model's label; ``unknown`` without a description
    identity: str  # the encoder's SHA-256, or its first 32 digits
    settings: dict[str, Any]  # everything its vectors depend on
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
    caches = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        states = [file.stat() for file in path.iterdir()] if path.is_dir() else []
        if states:  # otherwise being removed
            about = _described(path)
            settings = about.get("settings")
            cache = ModelVectors(
                path=path,
                label=str(about.get("label", "unknown")),
                identity=str(about.get("identity", path.name)),
                settings=settings if isinstance(settings, dict) else {},
                bytes=sum(each.st_size for each in states),
                used=max(each.st_mtime for each in states),
            )
            caches.append(cache)
    return sorted(caches, key=lambda each: -each.used)


def verify_cache(cache: ModelVectors) -> tuple[int, list[str]]:
    """Return the number of intact vectors, and the problems, each naming its file."""
    counts = {each.file.name: (each.sound(), len(each)) for each in find_segments(cache.path)}
    problems = [
        f"{name}: {total - sound} vectors fail their checksum and will be computed again"
        for name, (sound, total) in counts.items()
        if sound < total
    ]
    return sum(sound for sound, _ in counts.values()), problems


def prune_to(size: int) -> int:
    """Remove the least recently used segments until ``size`` bytes are left; return bytes freed.

    Segments being written are kept.
    """
    folder = cache_folder()
    before = sum(cache.bytes for cache in list_caches())
    freed = before - shrink(folder, to=size)
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not find_segments(path):
            shutil.rmtree(path, ignore_errors=True)  # processes that use it continue
    return freed
