"""Benchmark precisions of one model: speed, and what is left of the vectors and of nDCG@10.

For each dtype, this package and sentence-transformers, at its best batch size and with weights in
the same dtype, take turns in one process, and so does the matrix peak of that dtype. The vectors
are compared with ours in float32, and both search PyDocs: the paired difference of nDCG@10 has its
interval, and counts as smaller than a margin if the interval lies within it. The sample has too few
queries to show a small margin; all of PyDocs takes minutes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from qwen3nb.analysis.stats.paired_tests import equivalence
from qwen3nb.bench.encode import (
    QWEN3,
    bench_texts,
    best_batch_size,
    load_peer,
    model_folder,
    peer_vectors,
)
from qwen3nb.bench.machine_limits import encoder_limit
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.encoders.sentence_transformer import SentenceTransformerEncoder
from qwen3nb.models.encoders.transformer import TransformerEncoder
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.dtypes import DTYPES
from qwen3nb.models.search.exact import search
from qwen3nb.models.types import Vectors
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.format import aligned

if TYPE_CHECKING:
    from qwen3nb.datasets.pydocs.build import PyDocs

__all__ = ["MARGIN", "PrecisionBench", "PrecisionTiming", "bench_precision", "cpu_features"]

MARGIN = 0.005  # differences of nDCG@10 below this do not matter
_FEATURES = (  # of processors that compute in 16 bits, as PyTorch names them
    "amx_bf16", "amx_fp16", "avx512_bf16", "avx512_fp16", "bf16", "fp16_arith",
)  # fmt: skip
_FLOAT16 = {"amx_fp16", "avx512_fp16", "fp16_arith"}  # without one, float16 is emulated
_METRIC = "nDCG@10"


@dataclass(frozen=True)
class PrecisionTiming:
    """One dtype.

    Attributes:
        dtype: the dtype of the weights.
        texts_per_second: of this package; the median of the rounds.
        float32_ratio: speed relative to this package in float32.
        peer_ratio: speed relative to sentence-transformers in the same dtype.
        batch_size: the best of sentence-transformers in that dtype.
        peak_gflops: 10⁹ operations per second of the linear layers alone in that dtype.
        peak_share: share of that peak.
        cosine_min: smallest cosine of a vector with that in float32.
        cosine_mean: mean of these cosines.
        ndcg: mean nDCG@10 on PyDocs.
        ndcg_difference: mean difference from float32.
        interval: 95 % interval of the paired difference; None for float32 and a single query.
        equivalent: whether the interval shows that the difference is within `MARGIN`.
        queries_needed: how many queries that differ like these would show it; None if none would.
    """

    dtype: str
    texts_per_second: float
    float32_ratio: float
    peer_ratio: float
    batch_size: int
    peak_gflops: float
    peak_share: float
    cosine_min: float
    cosine_mean: float
    ndcg: float
    ndcg_difference: float
    interval: tuple[float, float] | None
    equivalent: bool
    queries_needed: int | None = None

    @property
    def shown(self) -> tuple[str, str]:
        """Whether equivalence with float32 is shown, and if not, how many queries would show it."""
        if self.dtype == "float32":
            return "is the reference", ""
        needed = f"{self.queries_needed:,} queries would" if self.queries_needed else ""
        return ("yes", "") if self.equivalent else ("not shown", needed)


@dataclass(frozen=True)
class PrecisionBench:
    """Results for one model.

    Attributes:
        model: label of the model.
        cpu_features: instructions of this processor that compute in 16 bits.
        texts: number of timed texts, of mixed lengths.
        tokens: number of their tokens.
        rounds: number of rounds.
        documents: number of documents of the sample of PyDocs.
        queries: number of its queries.
        margin: see `MARGIN`.
        timings: float32 first.
    """

    model: str
    cpu_features: tuple[str, ...]
    texts: int
    tokens: int
    rounds: int
    documents: int
    queries: int
    margin: float
    timings: tuple[PrecisionTiming, ...]

    def table(self) -> str:
        """The timings as plain text."""
        head = ("dtype", "texts/s", "x float32", "x s.-t.", "of peak", "GFLOP/s", "min cosine",
                "mean cosine", "nDCG@10", "difference", "95 % interval", "equivalent")  # fmt: skip
        title = (
            f"{self.model}: {self.texts} texts of mixed lengths, {self.tokens} tokens, medians of "
            f"{self.rounds} rounds; PyDocs, {self.documents} documents, {self.queries} queries"
        )
        features = ", ".join(self.cpu_features) or "none, so 16 bits are slow"
        return "\n".join(
            [
                title,
                f"instructions for 16 bits: {features}; s.-t.: sentence-transformers in the same "
                f"dtype; equivalent: within {self.margin:g} of float32",
                *aligned([head, *map(_row, self.timings)]),
            ]
        )


def _row(timing: PrecisionTiming) -> tuple[str, ...]:
    ends = timing.interval
    return (
        timing.dtype,
        f"{timing.texts_per_second:.0f}",
        f"{timing.float32_ratio:.2f}",
        f"{timing.peer_ratio:.2f}",
        f"{timing.peak_share:.0%}",
        f"{timing.peak_gflops:.0f}",
        f"{timing.cosine_min:.6f}",
        f"{timing.cosine_mean:.6f}",
        f"{timing.ndcg:.4f}",
        f"{timing.ndcg_difference:+.4f}",
        "-" if ends is None else f"{ends[0]:+.4f} to {ends[1]:+.4f}",
        ", ".join(filter(None, timing.shown)),
    )


def cpu_features() -> tuple[str, ...]:
    """Return the instructions of this processor that compute in 16 bits, as PyTorch names them."""
    capabilities = torch.cpu.get_capabilities()
    return tuple(name for name in _FEATURES if capabilities.get(name))


def bench_precision(
    model: str,
    *,
    pydocs: PyDocs,
    dtypes: Sequence[str] = (),
    texts: int = 128,
    rounds: int = 3,
) -> PrecisionBench:
    """Measure each dtype on the CPU.

    Args:
        model: as for `qwen3nb.bench.encode.bench_encode`.
        pydocs: what is searched, PyDocs or a sample of it.
        dtypes: besides float32; by default bfloat16, and float16 if the processor computes in it.
        texts: number of timed texts.
        rounds: number of timed rounds, after an untimed one.

    Raises:
        ValueError: no rounds, or an unknown model or dtype.
    """
    if rounds < 1:
        raise ValueError(f"expected at least 1 round; got {rounds}")
    for each in dtypes:
        one_of("dtype", each, DTYPES)
    timed = bench_texts(texts)["mixed lengths"]
    names = tuple(dict.fromkeys(("float32", *(dtypes or _usual()))))
    with model_folder(model, timed) as folder:
        spec = folder if model == QWEN3 else model
        rungs = [_Rung(spec, folder, name, timed) for name in names]
        seconds = _in_turn(rungs, rounds=rounds)
        vectors = [rung.searched(pydocs) for rung in rungs]
    return PrecisionBench(
        model, cpu_features(), len(timed), rungs[0].tokens, rounds,
        len(pydocs.corpus), len(pydocs.queries), MARGIN,
        timings=tuple(
            _timing(rung, seconds[0][0], *taken, vectors[0], own)
            for rung, taken, own in zip(rungs, seconds, vectors, strict=True)
        ),
    )  # fmt: skip


def _usual() -> tuple[str, ...]:
    return ("bfloat16", "float16") if _FLOAT16 & set(cpu_features()) else ("bfloat16",)


class _Rung:
    """One dtype: both encoders, and what measures its peak."""

    def __init__(self, spec: str | Path, folder: Path, dtype: str, texts: list[str]) -> None:
        self.spec, self.dtype, self.texts = spec, dtype, texts
        ours = load_encoder(spec, device="cpu", dtype=dtype, cache=False, show_progress=False)
        runner = getattr(ours, "runner", None)
        if not isinstance(ours, SentenceTransformerEncoder | TransformerEncoder) or not runner:
            raise ValueError(f"{spec}: expected a neural encoder that this package runs itself")
        self.ours = ours
        self.peer = load_peer(folder, device="cpu", dtype=dtype)
        self.batch_size = best_batch_size(self.peer, texts)
        rows = ours._tokenise(texts)
        self.tokens = sum(map(len, rows))
        self.work, self.peak = encoder_limit(runner, rows, dtype=dtype)

    @property
    def calls(self) -> tuple[Callable[[], Vectors], Callable[[], Vectors]]:
        """Encode the texts with this package, and with sentence-transformers."""
        theirs = partial(peer_vectors, self.peer, self.texts, batch_size=self.batch_size)
        return partial(self.ours.encode, self.texts), theirs

    def searched(self, pydocs: PyDocs) -> tuple[Vectors, NDArray[np.float64]]:
        """Return the vectors of documents and queries, and nDCG@10 per query."""
        documents, queries = pydocs.corpus, pydocs.queries
        # Nothing is timed here, so vectors may come from the cache.
        encoder = load_encoder(self.spec, device="cpu", dtype=self.dtype, show_progress=False)
        vectors = encoder.encode([*documents.values(), *queries.values()])
        corpus, sought = vectors[: len(documents)], vectors[len(documents) :]
        run = search(sought, corpus, k=10).run(queries, list(documents))
        scores = score_run(pydocs.qrels, run, [_METRIC])[_METRIC]
        return vectors, np.array([scores[query] for query in queries])


def _in_turn(rungs: Sequence[_Rung], *, rounds: int) -> list[tuple[float, float]]:
    """Median seconds of this package and of sentence-transformers per rung."""
    times: list[tuple[list[float], list[float]]] = [([], []) for _ in rungs]
    for number in range(rounds + 1):  # the first warms up
        for rung, columns in zip(rungs, times, strict=True):
            for call, column in zip(rung.calls, columns, strict=True):
                started = time.perf_counter()
                call()
                if number:
                    column.append(time.perf_counter() - started)
            rung.peak.sample()  # takes its turn too
    return [(median(ours), median(theirs)) for ours, theirs in times]


def _timing(
    rung: _Rung,
    float32_seconds: float,
    seconds: float,
    peer_seconds: float,
    reference: tuple[Vectors, NDArray[np.float64]],
    own: tuple[Vectors, NDArray[np.float64]],
) -> PrecisionTiming:
    cosines = _cosines(reference[0], own[0])
    test = equivalence(own[1], reference[1], margin=MARGIN)
    return PrecisionTiming(
        dtype=rung.dtype,
        texts_per_second=len(rung.texts) / seconds,
        float32_ratio=float32_seconds / seconds,
        peer_ratio=peer_seconds / seconds,
        batch_size=rung.batch_size,
        peak_gflops=rung.peak.gflops,
        peak_share=rung.peak.share(rung.work, seconds),
        cosine_min=float(cosines.min()),
        cosine_mean=float(cosines.mean()),
        ndcg=float(own[1].mean()),
        ndcg_difference=test.difference,
        interval=None if own is reference else test.interval,
        equivalent=test.equivalent,
        queries_needed=test.queries_needed,
    )


def _cosines(a: Vectors, b: Vectors) -> NDArray[np.float64]:
    """Cosine of each pair of rows (N, D), at most 1 but for rounding."""
    wide = a.astype(np.float64), b.astype(np.float64)
    lengths = np.linalg.norm(wide[0], axis=1) * np.linalg.norm(wide[1], axis=1)
    cosines: NDArray[np.float64] = (wide[0] * wide[1]).sum(axis=1) / lengths
    return cosines
