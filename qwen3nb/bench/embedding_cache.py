"""What the cache costs beside a plain .npy file of the same vectors.

All ways take turns, round after round, in a fresh folder; a ratio is the plain file's
median over the cache's. Files are warm: the disk's own speed is left out on both sides,
which favours the plain file. Both write durably, the cache after every 512 vectors, as an
encoding does; both read into memory of their own, the plain file by ``np.load``.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from qwen3nb.models.encoders.embedding_cache import EmbeddingCache, text_key

__all__ = ["CacheBench", "bench_cache"]

_CHUNK = 512  # vectors per transaction, as in an encoding


@dataclass(frozen=True)
class CacheBench:
    """Medians, in seconds.

    Attributes:
        vectors: how many.
        dimension: of each.
        rounds: how often each way ran.
        plain_write: of a .npy file, synced.
        cache_write: of the cache.
        plain_read: of the .npy file.
        cache_read: of all vectors from the cache, checksums included.
    """

    vectors: int
    dimension: int
    rounds: int
    plain_write: float
    cache_write: float
    plain_read: float
    cache_read: float

    @property
    def read_ratio(self) -> float:
        """Speed of the cache's read over the plain file's."""
        return self.plain_read / self.cache_read

    @property
    def write_ratio(self) -> float:
        """Speed of the cache's write over the plain file's."""
        return self.plain_write / self.cache_write

    def table(self) -> str:
        """The figures as plain text."""
        megabytes = self.vectors * self.dimension * 4 / 1e6
        return "\n".join(
            [
                f"{self.vectors:,} x {self.dimension} float32, {megabytes:.0f} MB, "
                f"medians of {self.rounds} rounds",
                *(
                    f"{name:<6} .npy {plain:7.3f} s   cache {ours:7.3f} s "
                    f"({megabytes / ours:,.0f} MB/s)   {plain / ours:.2f}x the speed of .npy"
                    for name, plain, ours in (
                        ("write", self.plain_write, self.cache_write),
                        ("read", self.plain_read, self.cache_read),
                    )
                ),
            ]
        )


def bench_cache(
    *, vectors: int = 100_000, dimension: int = 1024, rounds: int = 3, folder: Path | None = None
) -> CacheBench:
    """Measure writing and reading.

    Args:
        vectors: how many.
        dimension: of each.
        rounds: how often each way runs.
        folder: where to write; None for the system's temporary one.

    Raises:
        ValueError: something read is not what was written.
    """
    values = np.random.default_rng(0).standard_normal((vectors, dimension), dtype=np.float32)
    keys = [text_key(str(index)) for index in range(vectors)]
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as name:
            plain, cache = Path(name) / "plain.npy", EmbeddingCache(Path(name) / "x.sqlite")
            ways: dict[str, Callable[[], NDArray[np.float32]]] = {
                "plain_write": partial(_write_plain, plain, values),
                "cache_write": partial(_write_cache, cache, keys, values),
                "plain_read": partial(np.load, plain),
                "cache_read": partial(_read_cache, cache, keys, values.shape),
            }
            for way, call in ways.items():
                started = time.perf_counter()
                result = call()
                times.setdefault(way, []).append(time.perf_counter() - started)
                if not np.array_equal(result, values):
                    raise ValueError(f"{way}: what was read is not what was written")
                del result
    medians = {way: median(each) for way, each in times.items()}
    return CacheBench(vectors=vectors, dimension=dimension, rounds=rounds, **medians)


def _write_plain(file: Path, values: NDArray[np.float32]) -> NDArray[np.float32]:
    with file.open("wb") as handle:
        np.save(handle, values)
        handle.flush()
        os.fsync(handle.fileno())
    return values


def _write_cache(
    cache: EmbeddingCache, keys: list[bytes], values: NDArray[np.float32]
) -> NDArray[np.float32]:
    with cache:
        for start in range(0, len(keys), _CHUNK):
            part = slice(start, start + _CHUNK)
            if not cache.put(dict(zip(keys[part], values[part], strict=True))):
                raise OSError(f"{cache.file} cannot be written")
    return values


def _read_cache(
    cache: EmbeddingCache, keys: list[bytes], shape: tuple[int, ...]
) -> NDArray[np.float32]:
    vectors = np.empty(shape, dtype=np.float32)
    cache.fill(keys, vectors)
    return vectors
