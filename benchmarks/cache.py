"""How fast is the embedding cache, against a plain .npy file?

    python -m benchmarks.cache --vectors 100000 --dimension 1024

First the same vectors are written and read in both ways, in turn, in a fresh folder each round; a
ratio is the median of the plain file over that of the cache. Files are warm, so the speed of the
disk is excluded on both sides, which favours the plain file. Both write durably, the cache after
every 512 vectors, as when encoding; both read into new memory. The limit of writing is the plain
file; that of reading is a copy from memory to new memory, which takes a turn as well.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
from numpy.typing import NDArray

from benchmarks.options import command
from qwen3nb.bench.harness import table, timed
from qwen3nb.vectors.cache import EmbeddingCache, text_key

Vectors = NDArray[np.float32]

_CHUNK = 512  # vectors stored at once, as in an encoding


@dataclass(frozen=True)
class CacheBench:
    """Median seconds of writing, reading and copying."""

    vectors: int
    dimension: int
    rounds: int
    seconds: dict[str, float]

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
        title = (
            f"{self.vectors:,} x {self.dimension} float32, {megabytes:.0f} MB, medians of "
            f"{self.rounds} rounds; a copy in memory takes {seconds['copy']:.3f} s"
        )
        return table(title, rows=rows)


def bench_cache(
    *,
    vectors: int = 100_000,
    dimension: int = 1024,
    rounds: int = 3,
    folder: str = "",
) -> CacheBench:
    """Write and read vectors with the cache and a plain .npy file.

    Raises:
        ValueError: the vectors read differ from those written.
    """
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
    return CacheBench(vectors, dimension, rounds, seconds)


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


def _read(cache: EmbeddingCache, keys: list[bytes], dimension: int) -> Vectors:
    vectors = np.empty((len(keys), dimension), dtype=np.float32)
    cache.fill(keys, vectors)
    return vectors


if __name__ == "__main__":
    command(bench_cache, CacheBench.table)
