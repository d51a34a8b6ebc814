"""How fast is the embedding cache, against a plain .npy file, and as it grows?

    python -m benchmarks.cache --vectors 100000 --dimension 1024
    python -m benchmarks.cache --growth 100000 200000 500000 1000000 2000000

First the same vectors are written and read in both ways, in turn, in a fresh folder each round; a
ratio is the median of the plain file over that of the cache. Files are warm, so the speed of the
disk is excluded on both sides, which favours the plain file. Both write durably, the cache after
every 512 vectors, as when encoding; both read into new memory. The limit of writing is the plain
file; that of reading is a copy from memory to new memory, which takes a turn as well.

With ``--growth``, one cache is then filled to these sizes: how fast each stretch went, in wall and
CPU seconds and next to a plain file to which now and then the same bytes are appended, and how many
bytes were written; then how fast the newest vectors, and a few of any age, are read by a process
that has just opened the cache.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from benchmarks.options import command
from qwen3nb.bench.harness import Timing, table, timed
from qwen3nb.vectors.cache import EmbeddingCache, text_key

Vectors = NDArray[np.float32]

_CHUNK = 512  # vectors stored at once, as in an encoding
_IO = Path("/proc/self/io")
_COMPARED = 8  # one of so many chunks is also appended to a plain file
_FEW = 100  # vectors of any age that are read at once
_COLUMNS = {  # fields of a step, with head and format
    "stored": ("stored", ",.0f"),
    "per_second": ("written/s", ",.0f"),
    "per_cpu_second": ("per CPU s", ",.0f"),
    "relative": ("of append", ".2f"),
    "written": ("B written", ",.0f"),
    "size": ("B kept", ",.0f"),
    "read_per_second": ("read/s", ",.0f"),
    "few_seconds": (f"{_FEW} in s", ".4f"),
}


@dataclass(frozen=True)
class GrowthStep:
    """One stretch of a growing cache."""

    stored: int  # vectors stored after it
    per_second: float  # vectors written per second
    per_cpu_second: float  # vectors written per CPU second of this process
    relative: float  # speed of writing over that of appending to a plain file, synced as often
    written: float  # bytes per vector that went to the disk; NaN where the system does not say
    size: float  # bytes of all files per stored vector
    read_per_second: float  # vectors read per second, of those stored last
    few_seconds: float  # seconds to open the cache and read a hundred vectors of any age


@dataclass(frozen=True)
class CacheBench:
    """Median seconds of writing, reading and copying, and the steps of a growing cache."""

    vectors: int
    dimension: int
    rounds: int
    seconds: dict[str, float]
    steps: tuple[GrowthStep, ...]

    def table(self) -> str:
        """The timings as plain text."""
        megabytes, seconds = self.vectors * self.dimension * 4 / 1e6, self.seconds
        rows = [
            {
                "": what,
                ".npy, s": f"{seconds[f'plain {what}']:.3f}",
                "cache, s": f"{seconds[f'cache {what}']:.3f}",
                "MB/s": f"{megabytes / seconds[f'cache {what}']:,.0f}",
                "x .npy": f"{seconds[f'plain {what}'] / seconds[f'cache {what}']:.2f}",
                "of the limit": f"{seconds[limit] / seconds[f'cache {what}']:.0%}",
            }
            for what, limit in (("write", "plain write"), ("read", "copy"))
        ]
        growth = [
            {head: format(getattr(step, name), form) for name, (head, form) in _COLUMNS.items()}
            for step in self.steps
        ]
        title = (
            f"{self.vectors:,} x {self.dimension} float32, {megabytes:.0f} MB, medians of "
            f"{self.rounds} rounds; a copy in memory takes {seconds['copy']:.3f} s"
        )
        return table(title, rows=rows, notes=["", table("one cache, as it grows", rows=growth)])


def bench_cache(
    *,
    vectors: int = 100_000,
    dimension: int = 1024,
    rounds: int = 3,
    growth: tuple[int, ...] = (0,),
    folder: str = "",
) -> CacheBench:
    """Write and read vectors with the cache and a plain .npy file; then let a cache grow.

    Raises:
        ValueError: the vectors read differ from those written, or sizes that do not ascend.
    """
    sizes = [size for size in growth if size]
    if any(a >= b for a, b in zip([0, *sizes], sizes, strict=False)):
        raise ValueError(f"expected ascending sizes; got {', '.join(map(str, sizes))}")
    values = np.random.default_rng(0).standard_normal((vectors, dimension), dtype=np.float32)
    keys = [text_key(str(index)) for index in range(vectors)]
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder or None) as name:
            plain, cache = Path(name) / "plain.npy", EmbeddingCache(Path(name) / "cache" / "x")
            methods: dict[str, Callable[[], Vectors]] = {
                "plain write": partial(_write_plain, plain, values),
                "cache write": partial(_write_cache, cache, keys, values),
                "plain read": partial(np.load, plain),
                "cache read": partial(_read, cache, keys, dimension),
                "copy": values.copy,
            }
            for method, call in methods.items():
                result, took = timed(call)
                times.setdefault(method, []).append(took.seconds)
                if not np.array_equal(result, values):
                    raise ValueError(f"{method}: the vectors read differ from those written")
                del result
    seconds = {method: median(each) for method, each in times.items()}
    with tempfile.TemporaryDirectory(dir=folder or None) as name:
        stretches = zip([0, *sizes], sizes, strict=False)
        steps = tuple(grow(Path(name) / "x", a, b, newest=sizes[0]) for a, b in stretches)
    return CacheBench(vectors, dimension, rounds, seconds, steps)


def _write_plain(file: Path, values: Vectors) -> Vectors:
    with file.open("wb") as handle:
        np.save(handle, values)
        handle.flush()
        os.fsync(handle.fileno())
    return values


def _write_cache(cache: EmbeddingCache, keys: list[bytes], values: Vectors) -> Vectors:
    with cache:
        for start in range(0, len(keys), _CHUNK):
            part = slice(start, start + _CHUNK)
            if not cache.put(dict(zip(keys[part], values[part], strict=True))):
                raise OSError(f"{cache.folder}: cannot be written")
    return values


def _put(cache: EmbeddingCache, rows: range, values: Vectors) -> None:
    if not cache.put({text_key(str(row)): values[row % _CHUNK] for row in rows}):
        raise OSError(f"{cache.folder}: cannot be written")


def _read(cache: EmbeddingCache, keys: list[bytes], dimension: int) -> Vectors:
    vectors = np.empty((len(keys), dimension), dtype=np.float32)
    cache.fill(keys, vectors)
    return vectors


def grow(folder: Path, start: int, end: int, *, newest: int, dimension: int = 384) -> GrowthStep:
    """Fill a cache from ``start`` to ``end`` vectors and measure the stretch."""
    values = np.random.default_rng(0).standard_normal((_CHUNK, dimension), dtype=np.float32)
    times: list[Timing] = []
    plain, written, count = [], 0, end - start
    with EmbeddingCache(folder) as cache, (folder.parent / "plain").open("wb") as append:
        for number, at in enumerate(range(start, end, _CHUNK)):
            rows = range(at, min(at + _CHUNK, end))
            before = _written()
            times.append(timed(partial(_put, cache, rows, values))[1])
            written += _written() - before
            if number % _COMPARED == 0:
                plain.append(timed(partial(_append, append, values[: len(rows)]))[1].seconds)
    recent = range(end - newest, end)
    return GrowthStep(
        stored=end,
        per_second=count / sum(each.seconds for each in times),
        per_cpu_second=count / sum(each.cpu for each in times),
        relative=median(plain) / median(each.seconds for each in times[::_COMPARED]),
        written=written / count if _IO.is_file() else float("nan"),
        size=sum(file.stat().st_size for file in folder.iterdir()) / end,
        read_per_second=len(recent) / _read_seconds(folder, recent, values),
        few_seconds=_read_seconds(folder, range(0, end, max(1, end // _FEW)), values),
    )


def _read_seconds(folder: Path, rows: range, values: Vectors) -> float:
    keys = [text_key(str(row)) for row in rows]
    read, took = timed(lambda: _read(EmbeddingCache(folder), keys, values.shape[1]))
    if not all(np.array_equal(read[at], values[row % _CHUNK]) for at, row in enumerate(rows)):
        raise ValueError("the vectors read differ from those written")
    return took.seconds


def _append(file: BinaryIO, values: Vectors) -> None:
    file.write(values.tobytes())
    file.flush()
    os.fsync(file.fileno())


def _written() -> int:
    """Return the bytes that this process has sent to the disk, or 0 if unknown."""
    if not _IO.is_file():
        return 0
    lines = dict(line.split(": ") for line in _IO.read_text(encoding="ascii").splitlines())
    return int(lines["write_bytes"])


if __name__ == "__main__":
    command(bench_cache, CacheBench.table)
