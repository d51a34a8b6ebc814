"""Peak memory and time of encoding to a file and of search, at N and at 2 N documents.

Each measurement is a child process of its own, whose peak (VmHWM of Linux) it reports at
its end; what the imports alone take is measured likewise, and subtracted. The naive way
holds the corpus and all scores in float32 and sorts them in full; its near ties fall as
rounding has it, so ids are compared with those of scores in float64.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.utils.hardware import peak_memory

__all__ = ["Peak", "SearchBench", "bench_search"]


@dataclass(frozen=True)
class Peak:
    """One way at one size.

    Attributes:
        way: what ran.
        documents: in the corpus.
        seconds: of the work itself, imports left out.
        megabytes: peak above a process that has only imported.
        agreement: share of queries whose ids are those of scores in float64; None where
            there is nothing to compare.
    """

    way: str
    documents: int
    seconds: float
    megabytes: float
    agreement: float | None


@dataclass(frozen=True)
class SearchBench:
    """What was measured.

    Attributes:
        dimension: of the vectors.
        queries: how many.
        k: documents per query.
        peaks: each way at N, then at 2 N documents.
    """

    dimension: int
    queries: int
    k: int
    peaks: tuple[Peak, ...]

    def growth(self, way: str) -> float:
        """Peak at 2 N over peak at N."""
        small, large = (peak.megabytes for peak in self.peaks if peak.way == way)
        return large / small

    def table(self) -> str:
        """The ways, one below the other, as plain text."""
        lines = [f"{self.queries} queries, dimension {self.dimension}, k {self.k}"]
        for peak in self.peaks:
            same = f"  same ids {peak.agreement:.1%}" if peak.agreement is not None else ""
            lines.append(
                f"{peak.way:<15} {peak.documents:>10,} documents  {peak.seconds:7.2f} s  "
                f"peak {peak.megabytes:7.0f} MB{same}"
            )
        ways = dict.fromkeys(peak.way for peak in self.peaks)
        lines += [f"{way}: peak x {self.growth(way):.2f} as the corpus doubles" for way in ways]
        return "\n".join(lines)


def bench_search(
    *, documents: int = 50_000, dimension: int = 384, queries: int = 500, k: int = 100
) -> SearchBench:
    """Measure search by each installed backend, the naive way, and encoding to a file.

    Args:
        documents: N.
        dimension: of the vectors, random ones of length 1.
        queries: how many.
        k: documents per query.

    Raises:
        ValueError: not Linux, or a child process failed; with what it said.
    """
    if sys.platform != "linux":
        raise ValueError("peak memory is read from /proc, which this system does not have")
    import importlib.util

    ways = ["naive", "torch", "numpy", "encode_to_file"]
    ways[2:2] = ["faiss"] if importlib.util.find_spec("faiss") else []
    peaks: list[Peak] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder / "queries.npy", queries, dimension, seed=1)
        for size in (documents, 2 * documents):
            _write(folder / "corpus.npy", size, dimension, seed=2)
            _child("exact", folder, k, size)
            for way in ways:
                idle = _child(f"idle-{way}", folder, k, size)
                done = _child(way, folder, k, size)
                agreement = None
                if way != "encode_to_file":
                    same = np.load(folder / f"{way}.npy") == np.load(folder / "exact.npy")
                    agreement = float(same.all(axis=1).mean())
                megabytes = (done["peak"] - idle["peak"]) / 1e6
                peaks.append(Peak(way, size, done["seconds"], megabytes, agreement))
    peaks.sort(key=lambda peak: ways.index(peak.way))
    return SearchBench(dimension=dimension, queries=queries, k=k, peaks=tuple(peaks))


def _write(file: Path, rows: int, dimension: int, *, seed: int) -> None:
    """Random vectors of length 1."""
    values = np.random.default_rng(seed).standard_normal((rows, dimension), dtype=np.float32)
    np.save(file, values / np.linalg.norm(values, axis=1, keepdims=True))


def _child(way: str, folder: Path, k: int, size: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "qwen3nb.bench.search", way, str(folder), str(k), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"the child process for {way} failed:\n{done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _main(way: str, folder: Path, k: int, size: int) -> None:
    """In the child: do it, and print seconds and peak."""
    work = _prepared(way.removeprefix("idle-"), folder, k, size)
    started = time.perf_counter()
    if not way.startswith("idle-"):
        work()
    seconds = time.perf_counter() - started
    print(json.dumps({"seconds": seconds, "peak": peak_memory()}))


def _prepared(way: str, folder: Path, k: int, size: int) -> Callable[[], None]:
    """The work, everything it needs imported and warm."""
    if way in ("naive", "exact"):
        return partial(_in_full, folder, k, way)
    if way == "encode_to_file":
        return _encoding(folder, size)
    from qwen3nb.models.search.exact import search

    queries = np.load(folder / "queries.npy")
    search(queries[:2], queries, k=1, backend=way)

    def run() -> None:
        hits = search(queries, folder / "corpus.npy", k=k, backend=way)
        np.save(folder / f"{way}.npy", hits.ids)

    return run


def _in_full(folder: Path, k: int, way: str) -> None:
    """Every score, sorted; ``exact`` in float64, rounded, and query by query."""
    queries, corpus = np.load(folder / "queries.npy"), np.load(folder / "corpus.npy")
    if way == "naive":
        best = np.argsort(-(queries @ corpus.T), axis=1, kind="stable")[:, :k]
    else:
        scores = (corpus.astype(np.float64) @ queries.astype(np.float64).T).astype(np.float32)
        best = np.stack([np.argsort(-each, kind="stable")[:k] for each in scores.T])
    np.save(folder / f"{way}.npy", best)


def _encoding(folder: Path, size: int) -> Callable[[], None]:
    """Random vectors of as many texts, no cache: what a corpus takes beside its model."""
    from qwen3nb.models.encoders.encode_file import encode_to_file
    from qwen3nb.models.load import load_encoder

    encoder = load_encoder("random:384", cache=False, show_progress=False)
    encoder.encode(["warm"])

    def run() -> None:
        texts = (f"document {index} {'word ' * (index % 50)}" for index in range(size))
        encode_to_file(encoder, texts, folder / "encoded.npy", total=size)

    return run


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
