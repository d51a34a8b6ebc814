"""The embedding cache: vectors kept between runs, a folder per encoder identity.

A vector's key is the SHA-256 of the text as the encoder sees it, prompt included.
Everything else that could change the vector (weights, tokenizer, pooling, precision, …)
is part of the identity, which names the folder. A role affects a vector only through its
prompt, so two roles share a vector only if they share the whole input.

`qwen3nb.models.cache.segments` describes the files. Each vector is stored with a checksum; a
vector that fails it is counted and computed again. A kill loses at most the vectors of the
`put` it interrupts, and processes that write at once write files of their own (so a text that
two of them compute at once is stored twice). A cache that cannot be read or written never stops
a run: it logs one warning, and vectors are computed instead.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from qwen3nb.models.cache.cache_limit import Room
from qwen3nb.models.cache.segments import (
    Segment,
    SegmentWriter,
    bytes_per_vector,
    find_segments,
    prefixes,
    rows_of,
    sound_rows,
)
from qwen3nb.utils.atomic_files import read_json, write_json

__all__ = ["ABOUT", "EmbeddingCache", "text_key"]

log = logging.getLogger(__name__)
T = TypeVar("T")
Keys = NDArray[np.uint8]  # (N, 32)
ABOUT = "about.json"
_RECENT = 60.0  # seconds in which a segment's time of use is not written again


def text_key(text: str) -> bytes:
    """Return the key of a text, prompt included: 32 bytes."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class EmbeddingCache:
    """The cached vectors of one encoder; within a ``with`` block, its segment stays open.

    Attributes:
        folder: its files; created on the first write.
        about: description of the encoder, stored as JSON among them.
        damaged: number of stored vectors that failed their checksum so far.
    """

    def __init__(self, folder: Path, *, about: Mapping[str, Any] | None = None) -> None:
        """Refer to the cache in ``folder``; neither reads nor writes it.

        Raises:
            ValueError: ``QWEN3NB_CACHE_LIMIT`` is not a size.
        """
        self.folder = folder
        self.about = dict(about) if about is not None else None
        self.damaged = 0
        self._room = Room(folder.parent)
        self._segments: dict[Path, Segment] = {}
        self._writer: SegmentWriter | None = None
        self._own: set[Path] = set()  # segments that this object began
        self._stay_open = False
        self._off: set[str] = set()  # actions disabled after an error: "read", "store"
        self._described = False

    def __enter__(self) -> EmbeddingCache:
        self._stay_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self._stay_open = False
        self._close()

    def fill(self, keys: Sequence[bytes], vectors: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Copy stored vectors into the rows of ``vectors`` (N, D); return which were filled, (N,).

        Args:
            keys: N distinct keys.
            vectors: changed in place.
        """
        filled = np.zeros(len(keys), dtype=bool)
        if vectors.size:
            self._attempt("read", lambda: self._fill(_joined(keys), vectors, filled), None)
        return filled

    def _fill(self, keys: Keys, vectors: NDArray[np.float32], filled: NDArray[np.bool_]) -> None:
        damaged = np.zeros(len(keys), dtype=bool)
        by_prefix = np.argsort(prefixes(keys))
        for segment in self._readable(vectors.shape[1]):
            wanted = by_prefix[~filled[by_prefix]]
            with contextlib.suppress(FileNotFoundError):  # removed in the meantime
                rows, positions = segment.candidates(prefixes(keys[wanted]))
                if len(rows):
                    _copy(segment, rows, wanted[positions], keys, vectors, filled, damaged)
                    _mark_used(segment.file)
        if count := int((damaged & ~filled).sum()):
            log.warning("%s: %d damaged vectors, which will be computed again", self.folder, count)
            self.damaged += count

    def _readable(self, dimension: int) -> list[Segment]:
        """Return the segments that are there now; what is known of their keys is kept."""
        present = {
            file: self._segments.get(file) or Segment(file, each)
            for file, each in find_segments(self.folder).items()
            if each == dimension
        }
        self._segments = present
        return list(present.values())

    def put(self, vectors: Mapping[bytes, NDArray[np.float32]]) -> bool:
        """Store vectors durably, beside damaged ones of the same keys.

        Returns whether they were stored. After an error such as a full disk, a read-only
        folder or a limit that is reached, which is logged once, nothing more is stored.
        """
        if not vectors:
            return True
        keys, values = _joined(list(vectors)), np.stack(list(vectors.values()))
        return self._attempt("store", lambda: self._store(keys, values), False)

    def _store(self, keys: Keys, vectors: NDArray[np.float32]) -> bool:
        records = rows_of(keys, vectors)
        self._room.reserve(len(keys) * bytes_per_vector(vectors.shape[1]))
        self.folder.mkdir(parents=True, exist_ok=True)
        self._describe()
        while len(records):
            writer = self._opened(vectors.shape[1])
            part, records = np.split(records, [writer.room])
            writer.append(part)
            if writer.full(self._room.segment_bytes):
                self._close()
        return True

    def _opened(self, dimension: int) -> SegmentWriter:
        if self._writer is not None and (
            self._writer.removed or self._writer.dimension != dimension
        ):
            self._close()
        if self._writer is None:
            full = self._room.segment_bytes
            self._writer = SegmentWriter.open(self.folder, dimension, full=full, own=self._own)
        return self._writer

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @property
    def limit(self) -> int | None:
        """The bytes that the vectors of all models may fill, or None."""
        return self._room.limit

    def touch(self) -> None:
        """Record that the vectors were used, so that pruning by age keeps them."""
        if self.about is not None and self.about_file.is_file() and not self._described:
            self._attempt("store", self._describe, None)

    @property
    def about_file(self) -> Path:
        """The description; its modification time is that of the last use."""
        return self.folder / ABOUT

    def _describe(self) -> None:
        """Write the description if it is missing or outdated, and update the time of use."""
        if self.about is None or self._described:
            return
        if not _contains(self.about_file, self.about):
            write_json(self.about_file, self.about)
        os.utime(self.about_file)
        self._described = True

    def __len__(self) -> int:
        """The number of stored vectors, those stored twice counted twice."""
        segments = find_segments(self.folder).items()
        return self._attempt("read", lambda: sum(len(Segment(*each)) for each in segments), 0)

    def _attempt(self, what: str, action: Callable[[], T], otherwise: T) -> T:
        """Run ``action``; after an error, which is logged, it is not tried again."""
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


def _copy(
    segment: Segment,
    rows: NDArray[np.int64],
    targets: NDArray[np.int64],
    keys: Keys,
    vectors: NDArray[np.float32],
    filled: NDArray[np.bool_],
    damaged: NDArray[np.bool_],
) -> None:
    """Copy the sound ones among the ``rows`` of a segment to ``targets``, and mark the others."""
    for part, records in segment.read(rows):
        target, sound = targets[part], sound_rows(records)
        damaged[target[~sound]] = True
        right = sound & (records["key"] == keys[target]).all(axis=1)
        if right.all():
            vectors[target] = records["vector"]
        else:
            vectors[target[right]] = records["vector"][right]
        filled[target[right]] = True


def _mark_used(file: Path) -> None:
    """Set the time of use, by which `Room` removes segments; what cannot be set is older."""
    with contextlib.suppress(OSError):
        if time.time() - file.stat().st_mtime > _RECENT:
            os.utime(file)


def _contains(file: Path, about: Mapping[str, Any]) -> bool:
    try:
        return file.is_file() and bool(read_json(file) == about)
    except ValueError:  # truncated or overwritten: it is written again
        return False
