"""What do search, and encoding to a file, take at N and at 2 N documents?

    python -m benchmarks.search --documents 50000
    python -m benchmarks.search --corpora 50000 200000 400000

Each method runs in a process of its own. The naive method holds the corpus and all scores in
float32 and sorts them completely. Rounding decides its near ties, so ids are compared with those of
float64 scores. The limit is the matrix peak: the product of the queries and a block of documents.

With ``--corpora``: what encoding a corpus and searching it takes by its size, with all vectors
held, in blocks that are searched as they are encoded, and with the vectors in a file, as for
several passes; of random vectors with 384 dimensions. Ratios and ids are to the vectors held.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.options import command, in_child
from qwen3nb.bench.harness import table

_DIMENSION = 384  # of the encoded vectors
_BLOCK = 8192  # documents in the product alone, as in a search
_ENCODED = ("held", "blocks", "file")


@dataclass(frozen=True)
class SearchTiming:
    """One method at one corpus size."""

    method: str
    documents: int  # size of the corpus
    seconds: float  # time of the work itself, without imports; CPU seconds of what is encoded
    megabytes: float  # peak memory above that before the work
    # share of queries whose ids equal those of the exact scores, or of the vectors held; None if
    # there is nothing to compare
    agreement: float | None
    # share of the matrix peak that the method reaches; None where other work is timed with the
    # search
    peak_share: float | None = None


@dataclass(frozen=True)
class SearchBench:
    """The timings, and the matrix peak in 10⁹ operations per second."""

    title: str
    timings: tuple[SearchTiming, ...]
    peak_gflops: float = 0.0

    def table(self) -> str:
        """The timings as plain text."""
        sizes = [each.documents for each in self.timings]
        small = {each.method: each for each in self.timings if each.documents == min(sizes)}
        held = {each.documents: each for each in self.timings if each.method == "held"}
        rows = []
        for each in self.timings:
            base = held.get(each.documents, small[each.method])
            rows.append(
                {
                    "method": each.method,
                    "documents": f"{each.documents:,}",
                    "s": f"{each.seconds:.2f}",
                    "x s": f"{each.seconds / base.seconds:.2f}",
                    "peak MB": f"{each.megabytes:.0f}",
                    "x peak": f"{each.megabytes / max(1e-3, base.megabytes):.2f}",
                    "same ids": "" if each.agreement is None else f"{each.agreement:.1%}",
                    "of the peak": "" if each.peak_share is None else f"{each.peak_share:.0%}",
                }
            )
        to = "the vectors held" if held else "the smaller corpus"
        return table(f"{self.title}; ratios to {to}", rows=rows)


def bench_search(
    *,
    documents: int = 50_000,
    dimension: int = 384,
    queries: int = 500,
    k: int = 100,
    corpora: tuple[int, ...] = (0,),
) -> SearchBench:
    """Measure each backend, naive search and encoding to a file; or `_corpora`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if any(corpora):
            _write(folder / "queries.npy", queries, _DIMENSION, seed=1)
            return _corpora(folder, corpora, f"{queries} queries, dimension {_DIMENSION}, k {k}", k)
        methods = ["naive", "torch", "numpy", "encode_to_file"]
        timings, peak = [], 0.0
        _write(folder / "queries.npy", queries, dimension, seed=1)
        for size in (documents, 2 * documents):
            _write(folder / "corpus.npy", size, dimension, seed=2)
            in_child(prepare, "exact", name, k, size)
            peak = max(peak, in_child(measure_peak, name, size).output)
            for method in methods:
                done = in_child(prepare, method, name, k, size)
                agreement = None
                if method != "encode_to_file":
                    agreement = _agreement(folder, method, "exact")
                megabytes = done.above / 1e6
                timings.append(SearchTiming(method, size, done.seconds, megabytes, agreement))
    timings.sort(key=lambda timing: methods.index(timing.method))
    gflop = 2 * queries * dimension / 1e9  # per document
    timings = [
        replace(each, peak_share=gflop * each.documents / each.seconds / peak)
        if each.agreement is not None
        else each
        for each in timings
    ]
    title = f"{queries} queries, dimension {dimension}, k {k}; matrix peak {peak:.0f} GFLOP/s"
    return SearchBench(title, tuple(timings), peak)


def _corpora(folder: Path, corpora: tuple[int, ...], title: str, k: int) -> SearchBench:
    timings = []
    for size in corpora:
        for method in _ENCODED:
            done = in_child(prepare, method, str(folder), k, size)
            same = _agreement(folder, method, "held")
            timings.append(SearchTiming(method, size, done.cpu, done.above / 1e6, same))
    return SearchBench(title, tuple(timings))


def _agreement(folder: Path, method: str, other: str) -> float:
    same = np.load(folder / f"{method}.npy") == np.load(folder / f"{other}.npy")
    return float(same.all(axis=1).mean())


def _write(file: Path, rows: int, dimension: int, *, seed: int) -> None:
    """Random vectors of length 1."""
    values = np.random.default_rng(seed).standard_normal((rows, dimension), dtype=np.float32)
    np.save(file, values / np.linalg.norm(values, axis=1, keepdims=True))


def measure_peak(folder: str, documents: int) -> Callable[[], float]:
    """10⁹ operations per second of the product of queries and a block of documents alone."""
    from qwen3nb.bench.encode import MatrixPeak

    queries, dimension = np.load(Path(folder) / "queries.npy").shape
    peak = MatrixPeak({(queries, dimension, min(documents, _BLOCK)): 1})

    def measure() -> float:
        for _ in range(3):
            peak.sample()
        return peak.gflops

    return measure


def prepare(method: str, name: str, k: int, size: int) -> Callable[[], None]:
    """Return the work as a function, with all imports done and everything warm."""
    from qwen3nb.models.search.exact import search

    folder = Path(name)
    queries = np.load(folder / "queries.npy")
    search(queries[:2], queries, k=1, backend="numpy" if method == "numpy" else "torch")
    if method in ("naive", "exact"):
        return lambda: _in_full(folder, k, method)
    if method == "encode_to_file" or method in _ENCODED:
        from qwen3nb.models.load import load_encoder

        encoder = load_encoder(f"random:{_DIMENSION}", cache=False, show_progress=False)
        encoder.encode(["warm"])
        return lambda: encode_and_search(method, folder, k, size, encoder)

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


def encode_and_search(method: str, folder: Path, k: int, size: int, encoder: Any) -> None:
    """Encode ``size`` texts by random vectors, which cost little, and search them."""
    from qwen3nb.models.search.exact import search
    from qwen3nb.vectors.encode_file import encode_blocks, encode_to_file, stored_vectors

    if method == "encode_to_file":
        encode_to_file(encoder, _texts(size), folder / "encoded.npy", total=size)
        return
    queries = np.load(folder / "queries.npy")
    if method == "held":
        hits = search(queries, encoder.encode(list(_texts(size))), k=k)
    elif method == "blocks":
        hits = search(queries, encode_blocks(encoder, _texts(size)), k=k)
    else:
        with stored_vectors(encoder, _texts(size), total=size, limit=0) as vectors:
            hits = search(queries, vectors.blocks(), k=k)
    np.save(folder / f"{method}.npy", hits.ids)


def _texts(size: int) -> Iterator[str]:
    return (f"document {index} {'word ' * (index % 50)}" for index in range(size))


if __name__ == "__main__":
    command(bench_search, SearchBench.table)
