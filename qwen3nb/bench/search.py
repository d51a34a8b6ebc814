"""Benchmark time and peak memory of search and of encoding to a file, at N and 2 N documents.

Each measurement runs in a child process, which reports its peak (VmHWM of Linux) at the
end; the peak of the imports alone is measured likewise and subtracted. The naive method
holds the corpus and all scores in float32 and sorts them completely. Rounding decides its
near ties, so ids are compared with those of float64 scores. The limit is the matrix peak: the
product of the queries and a block of documents alone, after the search in the child for torch.

`bench_corpora` measures what encoding a corpus and searching it takes by the size of the
corpus: with all vectors held, in blocks that are searched as they are encoded, and with the
vectors in a file, as for several passes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from qwen3nb.utils.hardware import peak_memory

__all__ = ["CorpusBench", "SearchBench", "SearchTiming", "bench_corpora", "bench_search"]

CORPORA = (50_000, 200_000, 400_000)
_DIMENSION = 384  # of the encoded vectors
_BLOCK = 8192  # documents in the product alone, as in a search


@dataclass(frozen=True)
class SearchTiming:
    """One method at one corpus size.

    Attributes:
        method: the method.
        documents: size of the corpus.
        seconds: time of the work itself, without imports.
        megabytes: peak memory above that of a process that only imports.
        agreement: share of queries whose ids equal those of float64 scores; None if there
            is nothing to compare.
        peak_share: share of the matrix peak that the method reaches; None where it does not
            search, or other work is timed with it.
    """

    method: str
    documents: int
    seconds: float
    megabytes: float
    agreement: float | None
    peak_share: float | None = None


@dataclass(frozen=True)
class SearchBench:
    """Results of the benchmark.

    Attributes:
        dimension: dimension of the vectors.
        queries: number of queries.
        k: documents per query.
        timings: each method at N, then at 2 N documents.
        peak_gflops: 10⁹ operations per second of the products alone, at their best.
    """

    dimension: int
    queries: int
    k: int
    timings: tuple[SearchTiming, ...]
    peak_gflops: float

    def growth(self, method: str) -> float:
        """Peak memory at 2 N documents over that at N."""
        small, large = (timing.megabytes for timing in self.timings if timing.method == method)
        return large / small

    def table(self) -> str:
        """The timings as plain text."""
        lines = [
            f"{self.queries} queries, dimension {self.dimension}, k {self.k}; "
            f"matrix peak {self.peak_gflops:.0f} GFLOP/s"
        ]
        for timing in self.timings:
            same = f"  same ids {timing.agreement:.1%}" if timing.agreement is not None else ""
            if timing.peak_share is not None:
                same += f"  {timing.peak_share:.0%} of the peak"
            lines.append(
                f"{timing.method:<15} {timing.documents:>10,} documents  {timing.seconds:7.2f} s  "
                f"peak {timing.megabytes:7.0f} MB{same}"
            )
        methods = dict.fromkeys(timing.method for timing in self.timings)
        lines += [
            f"{method}: peak x {self.growth(method):.2f} as the corpus doubles"
            for method in methods
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class CorpusBench:
    """Encoding a corpus and searching it, by the size of the corpus.

    Attributes:
        queries: number of queries.
        k: documents per query.
        timings: for each size, with the vectors ``held``, in ``blocks`` and in a ``file``;
            their agreement is with the ids of ``held``.
    """

    queries: int
    k: int
    timings: tuple[SearchTiming, ...]

    def table(self) -> str:
        """The timings as plain text, with ratios to the vectors held."""
        lines = [f"{self.queries} queries, dimension {_DIMENSION}, k {self.k}, random vectors"]
        held = {each.documents: each for each in self.timings if each.method == "held"}
        for each in self.timings:
            base = held[each.documents]
            lines.append(
                f"{each.method:<7} {each.documents:>10,} documents  {each.seconds:7.1f} CPU s "
                f"(x {each.seconds / base.seconds:.2f})  peak {each.megabytes:7.0f} MB "
                f"(x {each.megabytes / base.megabytes:.2f})  same ids {each.agreement:.1%}"
            )
        return "\n".join(lines)


def bench_corpora(
    *, corpora: Sequence[int] = CORPORA, queries: int = 500, k: int = 100
) -> CorpusBench:
    """Measure encoding and searching with vectors held, by blocks, and in a file.

    Args:
        corpora: numbers of documents, which random vectors of 384 dimensions stand for.
        queries: number of queries.
        k: documents per query.

    Raises:
        ValueError: not Linux, or a child process failed; with its error output.
    """
    _check_linux()
    timings: list[SearchTiming] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder / "queries.npy", queries, _DIMENSION, seed=1)
        for size in corpora:
            for method in ("held", "blocks", "file"):
                idle = _child(f"idle-{method}", folder, k, size)
                done = _child(method, folder, k, size)
                same = np.load(folder / f"{method}.npy") == np.load(folder / "held.npy")
                megabytes = (done["peak"] - idle["peak"]) / 1e6
                timings.append(
                    SearchTiming(
                        method, size, done["cpu"], megabytes, float(same.all(axis=1).mean())
                    )
                )
    return CorpusBench(queries, k, tuple(timings))


def bench_search(
    *, documents: int = 50_000, dimension: int = 384, queries: int = 500, k: int = 100
) -> SearchBench:
    """Measure search by each installed backend, naive search, and encoding to a file.

    Args:
        documents: N.
        dimension: dimension of the vectors, which are random with length 1.
        queries: number of queries.
        k: documents per query.

    Raises:
        ValueError: not Linux, or a child process failed; with its error output.
    """
    _check_linux()
    import importlib.util

    methods = ["naive", "torch", "numpy", "encode_to_file"]
    methods[2:2] = ["faiss"] if importlib.util.find_spec("faiss") else []
    timings: list[SearchTiming] = []
    peak = 0.0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder / "queries.npy", queries, dimension, seed=1)
        for size in (documents, 2 * documents):
            _write(folder / "corpus.npy", size, dimension, seed=2)
            _child("exact", folder, k, size)
            for method in methods:
                idle = _child(f"idle-{method}", folder, k, size)
                done = _child(method, folder, k, size)
                agreement = None
                if method != "encode_to_file":
                    same = np.load(folder / f"{method}.npy") == np.load(folder / "exact.npy")
                    agreement = float(same.all(axis=1).mean())
                megabytes = (done["peak"] - idle["peak"]) / 1e6
                timings.append(SearchTiming(method, size, done["seconds"], megabytes, agreement))
                peak = max(peak, done["gflops"])
    timings.sort(key=lambda timing: methods.index(timing.method))
    shared = [_with_share(timing, queries * dimension, peak) for timing in timings]
    return SearchBench(
        dimension=dimension, queries=queries, k=k, timings=tuple(shared), peak_gflops=peak
    )


def _with_share(timing: SearchTiming, per_document: int, peak: float) -> SearchTiming:
    """Add the share of the peak: one product of all queries and documents over the time taken."""
    if timing.method == "encode_to_file":
        return timing
    gflop = 2 * per_document * timing.documents / 1e9
    return replace(timing, peak_share=gflop / timing.seconds / peak)


def _check_linux() -> None:
    if sys.platform != "linux":
        raise ValueError(f"peak memory is read from /proc: expected Linux, got {sys.platform}")


def _write(file: Path, rows: int, dimension: int, *, seed: int) -> None:
    """Random vectors of length 1."""
    values = np.random.default_rng(seed).standard_normal((rows, dimension), dtype=np.float32)
    np.save(file, values / np.linalg.norm(values, axis=1, keepdims=True))


def _child(method: str, folder: Path, k: int, size: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "qwen3nb.bench.search", method, str(folder), str(k), str(size)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ValueError(f"the child process for {method} failed:\n{done.stderr[-2000:]}")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _main(method: str, folder: Path, k: int, size: int) -> None:
    """In the child process: run one method, and print what it took."""
    work = _prepared(method.removeprefix("idle-"), folder, k, size)
    started, processor = time.perf_counter(), time.process_time()
    if not method.startswith("idle-"):
        work()
    seconds, cpu = time.perf_counter() - started, time.process_time() - processor
    taken = {"seconds": seconds, "cpu": cpu, "peak": peak_memory()}
    gflops = _peak(folder, size) if method == "torch" else 0.0
    print(json.dumps({**taken, "gflops": gflops}))


def _peak(folder: Path, documents: int) -> float:
    """10⁹ operations per second of the product of queries and a block of documents alone."""
    from qwen3nb.bench.machine_limits import MatrixPeak

    queries, dimension = np.load(folder / "queries.npy").shape
    peak = MatrixPeak({(queries, dimension, min(documents, _BLOCK)): 1})
    for _ in range(3):
        peak.sample()
    return peak.gflops


def _prepared(method: str, folder: Path, k: int, size: int) -> Callable[[], None]:
    """Return the work as a function, with all imports done and everything warm."""
    if method in ("naive", "exact"):
        return partial(_in_full, folder, k, method)
    if method == "encode_to_file":
        return _encoding(folder, size)
    if method in ("held", "blocks", "file"):
        return partial(_encode_and_search, method, folder, k, size, _random_encoder())
    from qwen3nb.models.search.exact import search

    queries = np.load(folder / "queries.npy")
    search(queries[:2], queries, k=1, backend=method)

    def run() -> None:
        hits = search(queries, folder / "corpus.npy", k=k, backend=method)
        np.save(folder / f"{method}.npy", hits.ids)

    return run


def _in_full(folder: Path, k: int, method: str) -> None:
    """Sort all scores; for ``exact``, float64 scores, rounded, query by query."""
    queries, corpus = np.load(folder / "queries.npy"), np.load(folder / "corpus.npy")
    if method == "naive":
        best = np.argsort(-(queries @ corpus.T), axis=1, kind="stable")[:, :k]
    else:
        scores = (corpus.astype(np.float64) @ queries.astype(np.float64).T).astype(np.float32)
        best = np.stack([np.argsort(-each, kind="stable")[:k] for each in scores.T])
    np.save(folder / f"{method}.npy", best)


def _encoding(folder: Path, size: int) -> Callable[[], None]:
    """Encode ``size`` texts by random vectors, without cache: the cost besides the model."""
    from qwen3nb.models.encoders.encode_file import encode_to_file

    encoder = _random_encoder()

    def run() -> None:
        encode_to_file(encoder, _texts(size), folder / "encoded.npy", total=size)

    return run


def _random_encoder() -> Any:
    """Return an encoder that costs little, without cache, and warm."""
    from qwen3nb.models.load import load_encoder
    from qwen3nb.models.search.exact import search

    encoder = load_encoder(f"random:{_DIMENSION}", cache=False, show_progress=False)
    search(encoder.encode(["warm"]), encoder.encode(["warm"]), k=1)
    return encoder


def _texts(size: int) -> Iterator[str]:
    return (f"document {index} {'word ' * (index % 50)}" for index in range(size))


def _encode_and_search(method: str, folder: Path, k: int, size: int, encoder: Any) -> None:
    from qwen3nb.models.encoders.encode_blocks import encode_blocks
    from qwen3nb.models.search.exact import search
    from qwen3nb.models.search.vector_store import stored_vectors

    queries = np.load(folder / "queries.npy")
    if method == "held":
        hits = search(queries, encoder.encode(list(_texts(size))), k=k)
    elif method == "blocks":
        hits = search(queries, encode_blocks(encoder, _texts(size)), k=k)
    else:
        with stored_vectors(encoder, _texts(size), total=size, limit=0) as vectors:
            hits = search(queries, vectors.blocks(), k=k)
    np.save(folder / f"{method}.npy", hits.ids)


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
