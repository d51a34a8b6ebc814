"""Benchmark the embedding cache: against a plain .npy file, and as it grows.

`bench_cache` writes and reads the same vectors in both ways. The methods take turns in each
round, in a fresh folder; a ratio is the median of the plain file over that of the cache. Files
are warm, so the speed of the disk is excluded on both sides, which favours the plain file. Both
write durably, the cache after every 512 vectors, as when encoding; both read into new memory,
the plain file by ``np.load``. The limit of writing is the plain file; that of reading is a copy
from memory to new memory, which takes a turn as well.

`bench_growth` fills one cache to several sizes and says for each stretch how fast it went, in
wall and CPU seconds and beside a plain file to which now and then the same bytes are appended
(the ratio that a busy disk leaves alone), and how many bytes were written; then how fast the
newest vectors, and a few of any age, are read by a process that has just opened the cache.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from qwen3nb.models.cache.embedding_cache import EmbeddingCache, text_key

__all__ = ["CacheBench", "CacheGrowth", "GrowthStep", "bench_cache", "bench_growth"]

_CHUNK = 512  # vectors stored at once, as in an encoding
_IO = Path("/proc/self/io")
_COMPARED = 8  # one of so many chunks is also appended to a plain file
_COLUMNS = {  # fields of a step, with head and format
    "stored": ("stored", ",.0f"),
    "per_second": ("written/s", ",.0f"),
    "per_cpu_second": ("per CPU s", ",.0f"),
    "relative": ("of append", ".2f"),
    "written": ("B written", ",.0f"),
    "size": ("B kept", ",.0f"),
    "read_per_second": ("read/s", ",.0f"),
    "few_seconds": ("100 in s", ".4f"),
}
_FEW = 100  # vectors of any age that are read at once


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
        memory_copy: copying the vectors to new memory.
    """

    vectors: int
    dimension: int
    rounds: int
    plain_write: float
    cache_write: float
    plain_read: float
    cache_read: float
    memory_copy: float

    @property
    def read_share(self) -> float:
        """Read speed of the cache over that of a copy in memory."""
        return self.memory_copy / self.cache_read

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
                f"memory copy {self.memory_copy:7.3f} s ({megabytes / self.memory_copy:,.0f} MB/s)"
                f"   share of the limit: write {self.write_ratio:.0%}, read {self.read_share:.0%}",
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
            plain, cache = Path(name) / "plain.npy", EmbeddingCache(Path(name) / "cache" / "x")
            methods: dict[str, Callable[[], NDArray[np.float32]]] = {
                "plain_write": partial(_write_plain, plain, values),
                "cache_write": partial(_write_cache, cache, keys, values),
                "plain_read": partial(np.load, plain),
                "cache_read": partial(_read_cache, cache, keys, values.shape),
                "memory_copy": values.copy,
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
                raise OSError(f"{cache.folder}: cannot be written")
    return values


def _read_cache(
    cache: EmbeddingCache, keys: list[bytes], shape: tuple[int, ...]
) -> NDArray[np.float32]:
    vectors = np.empty(shape, dtype=np.float32)
    cache.fill(keys, vectors)
    return vectors


@dataclass(frozen=True)
class GrowthStep:
    """One stretch of a growing cache.

    Attributes:
        stored: vectors stored after it.
        per_second: vectors written per second.
        per_cpu_second: vectors written per CPU second of this process.
        relative: speed of writing over that of appending to a plain file, synced as often.
        written: bytes per vector that went to the disk; None where the system does not say.
        size: bytes of all files per stored vector.
        read_per_second: vectors read per second, of those stored last.
        few_seconds: seconds to open the cache and read a hundred vectors of any age.
    """

    stored: int
    per_second: float
    per_cpu_second: float
    relative: float
    written: float | None
    size: float
    read_per_second: float
    few_seconds: float


@dataclass(frozen=True)
class CacheGrowth:
    """A cache as it grows; see `bench_growth`."""

    dimension: int
    steps: tuple[GrowthStep, ...]

    def ratio(self, name: str) -> float:
        """Return the largest over the smallest value of a field of `GrowthStep`."""
        values = [value for step in self.steps if (value := getattr(step, name)) is not None]
        return float(max(values) / min(values)) if values else float("nan")

    def table(self) -> str:
        """The stretches as plain text, and how much the largest differs from the smallest."""
        rows = [[_cell(getattr(step, name), name) for name in _COLUMNS] for step in self.steps]
        heads = [head for head, _ in _COLUMNS.values()]
        ratios = ["max/min", *(f"{self.ratio(name):.2f}" for name in list(_COLUMNS)[1:])]
        lines = ["".join(f"{each:>12}" for each in row) for row in [heads, *rows, ratios]]
        title = f"one cache of {self.dimension} float32, {4 * self.dimension:,} bytes a vector"
        return "\n".join([title, *lines])


def _cell(value: float | None, name: str) -> str:
    return "?" if value is None else format(value, _COLUMNS[name][1])


def bench_growth(
    sizes: Sequence[int], *, dimension: int = 384, folder: Path | None = None
) -> CacheGrowth:
    """Fill a cache to each of ``sizes`` and measure every stretch.

    Args:
        sizes: numbers of stored vectors, ascending.
        dimension: dimension of the vectors.
        folder: where to write; None for the system's temporary folder.

    Raises:
        ValueError: sizes that do not ascend, or vectors that differ from those written.
    """
    if not sizes or any(a >= b for a, b in zip([0, *sizes], sizes, strict=False)):
        raise ValueError(f"expected ascending sizes; got {', '.join(map(str, sizes)) or 'none'}")
    values = np.random.default_rng(0).standard_normal((_CHUNK, dimension), dtype=np.float32)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        cache = Path(name) / "cache" / "x"
        cache.parent.mkdir()
        starts = [0, *sizes[:-1]]
        steps = tuple(
            _grow(cache, start, end, values, newest=sizes[0])
            for start, end in zip(starts, sizes, strict=True)
        )
    return CacheGrowth(dimension=dimension, steps=steps)


def _grow(
    folder: Path, start: int, end: int, values: NDArray[np.float32], *, newest: int
) -> GrowthStep:
    times, plain, written = [], [], 0
    cpu, count = 0.0, end - start
    with EmbeddingCache(folder) as cache, (folder.parent / "plain").open("wb") as append:
        for number, at in enumerate(range(start, end, _CHUNK)):
            rows = range(at, min(at + _CHUNK, end))
            wall, used, before = time.perf_counter(), time.process_time(), _written()
            if not cache.put({_key(row): values[row % _CHUNK] for row in rows}):
                raise OSError(f"{folder}: cannot be written")
            times.append(time.perf_counter() - wall)
            cpu += time.process_time() - used
            written += _written() - before
            if number % _COMPARED == 0:
                plain.append(_append_seconds(append, values[: len(rows)]))
    recent = range(end - newest, end)
    return GrowthStep(
        stored=end,
        per_second=count / sum(times),
        per_cpu_second=count / cpu,
        relative=median(plain) / median(times[::_COMPARED]),
        written=written / count if _IO.is_file() else None,
        size=sum(file.stat().st_size for file in folder.iterdir()) / end,
        read_per_second=len(recent) / _read_seconds(folder, recent, values),
        few_seconds=_read_seconds(folder, range(0, end, max(1, end // _FEW)), values),
    )


def _read_seconds(folder: Path, rows: range, values: NDArray[np.float32]) -> float:
    keys = [_key(row) for row in rows]
    started = time.perf_counter()
    read = _read_cache(EmbeddingCache(folder), keys, (len(keys), values.shape[1]))
    seconds = time.perf_counter() - started
    if not all(np.array_equal(read[at], values[row % _CHUNK]) for at, row in enumerate(rows)):
        raise ValueError("the vectors read differ from those written")
    return seconds


def _key(row: int) -> bytes:
    return text_key(f"text {row}")


def _append_seconds(file: BinaryIO, values: NDArray[np.float32]) -> float:
    started = time.perf_counter()
    file.write(values.tobytes())
    file.flush()
    os.fsync(file.fileno())
    return time.perf_counter() - started


def _written() -> int:
    """Return the bytes that this process has sent to the disk, or 0 if unknown."""
    if not _IO.is_file():
        return 0
    lines = dict(line.split(": ") for line in _IO.read_text(encoding="ascii").splitlines())
    return int(lines["write_bytes"])
