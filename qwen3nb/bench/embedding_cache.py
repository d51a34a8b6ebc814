"""Benchmark the embedding cache against a plain .npy file of the same vectors.

The methods take turns in each round, in a fresh folder; a ratio is the median of the plain
file over that of the cache. Files are warm, so the speed of the disk is excluded on both
sides, which favours the plain file. Both write durably, the cache after every 512 vectors,
as when encoding; both read into new memory, the plain file by ``np.load``.
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
    """Median times in seconds.

    Attributes:
        vectors: number of vectors.
        dimension: dimension of the vectors.
        rounds: number of rounds.
        plain_write: writing a .npy file, synced.
        cache_write: writing the cache.
        plain_read: reading the .npy file.
        cache_read: reading all vectors from the cache, including checksums.
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
        """Read speed of the cache over that of the plain file."""
        return self.plain_read / self.cache_read

    @property
    def write_ratio(self) -> float:
        """Write speed of the cache over that of the plain file."""
        return self.plain_write / self.cache_write

    def table(self) -> str:
        """The timings as plain text."""
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
        vectors: number of vectors.
        dimension: dimension of the vectors.
        rounds: number of rounds.
        folder: where to write; None for the system's temporary folder.

    Raises:
        ValueError: the vectors read differ from those written.
    """
    values = np.random.default_rng(0).standard_normal((vectors, dimension), dtype=np.float32)
    keys = [text_key(str(index)) for index in range(vectors)]
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as name:
            plain, cache = Path(name) / "plain.npy", EmbeddingCache(Path(name) / "x.sqlite")
            methods: dict[str, Callable[[], NDArray[np.float32]]] = {
                "plain_write": partial(_write_plain, plain, values),
                "cache_write": partial(_write_cache, cache, keys, values),
                "plain_read": partial(np.load, plain),
                "cache_read": partial(_read_cache, cache, keys, values.shape),
            }
            for method, call in methods.items():
                started = time.perf_counter()
                result = call()
                times.setdefault(method, []).append(time.perf_counter() - started)
                if not np.array_equal(result, values):
                    raise ValueError(f"{method}: the vectors read differ from those written")
                del result
    medians = {method: median(each) for method, each in times.items()}
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
                raise OSError(f"{cache.file}: cannot be written")
    return values


def _read_cache(
    cache: EmbeddingCache, keys: list[bytes], shape: tuple[int, ...]
) -> NDArray[np.float32]:
    vectors = np.empty(shape, dtype=np.float32)
    cache.fill(keys, vectors)
    return vectors
