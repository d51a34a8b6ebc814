"""Benchmark encoding in 16 and 8 bits: speed, and the loss in quality.

In each precision, ours and sentence-transformers take turns. The vectors are compared with ours in
float32, and both search PyDocs: the paired difference of nDCG@10 counts as smaller than a margin if
its interval lies within it. The sample of PyDocs has too few queries to show a small margin; all of
it takes minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb.analysis.stats.paired_tests import equivalence
from qwen3nb.bench.encode import bench_texts, best_batch_size, neural_encoder
from qwen3nb.bench.harness import in_turn
from qwen3nb.bench.matrix_peak import MatrixPeak, encoder_limit
from qwen3nb.bench.random_models import QWEN3, load_peer, model_folder, peer_vectors, unit
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.inference.int8_linear import runs_in_int8
from qwen3nb.models.load import load_encoder
from qwen3nb.models.search.exact import search
from qwen3nb.models.types import DTYPES, Vectors
from qwen3nb.utils.choices import check_choice

if TYPE_CHECKING:
    from qwen3nb.datasets.pydocs.build import PyDocs

MARGIN = 0.005  # differences of nDCG@10 below this do not matter
_METRIC = "nDCG@10"


@dataclass(frozen=True)
class PrecisionBench:
    """Results for one model.

    A timing has, of each ``dtype``, float32 first: ``texts_per_second`` of this package, its speed
    relative to float32 (``float32_ratio``) and to sentence-transformers in the same dtype, or
    float32 for int8 (``peer_ratio``), at its best batch size, the ``peak_share``, smallest and mean
    cosine of a vector with that in float32, ``ndcg`` on PyDocs, the mean difference from float32
    (``ndcg_difference``) with the 95 % ``interval`` (None for float32 and a single query), whether
    it shows that the difference is within the margin (``equivalent``), and how many queries that
    differ like these would (``queries_needed``, or None).
    """

    model: str
    queries: int  # number of queries of PyDocs
    margin: float  # see `MARGIN`
    timings: tuple[dict[str, Any], ...]

    @staticmethod
    def shown(timing: Mapping[str, Any]) -> tuple[str, str]:
        """Whether equivalence with float32 is shown, and if not, how many queries would show it."""
        if timing["dtype"] == "float32":
            return "is the reference", ""
        if timing["equivalent"]:
            return "yes", ""
        if timing["queries_needed"]:
            return "not shown", f"{timing['queries_needed']:,} queries would"
        return "not shown", ""


def bench_precision(
    model: str,
    *,
    pydocs: PyDocs,
    dtypes: Sequence[str] | None = None,
    texts: int = 128,
    rounds: int = 3,
) -> PrecisionBench:
    """Measure each dtype on the CPU.

    Args:
        model: as for `qwen3nb.bench.encode.bench_encode`.
        pydocs: what is searched, PyDocs or a sample of it.
        dtypes: besides float32; None for bfloat16, and int8 where the CPU has VNNI.
        texts: number of timed texts.
        rounds: number of timed rounds, after an untimed one.

    Raises:
        ValueError: an unknown model or dtype.
    """
    if dtypes is None:
        dtypes = ("bfloat16", "int8") if runs_in_int8() else ("bfloat16",)
    for dtype in dtypes:
        check_choice("dtype", dtype, DTYPES)
    names = tuple(dict.fromkeys(("float32", *dtypes)))
    encoded = bench_texts(texts)["mixed lengths"]
    calls: dict[str, Callable[[], Vectors]] = {}
    work: dict[str, float] = {}
    peaks: dict[str, MatrixPeak] = {}
    with model_folder(model, encoded) as folder:
        spec = folder if model == QWEN3 else model
        for dtype in names:
            ours = neural_encoder(spec, device="cpu", dtype=dtype)
            peer = load_peer(folder, device="cpu", dtype=dtype)
            batch_size = best_batch_size(peer, encoded)
            rows = ours._tokenise(encoded)
            work[dtype], peaks[dtype] = encoder_limit(ours.runner, rows, dtype=dtype)
            calls[dtype] = partial(ours.encode, encoded)
            calls[_peer(dtype)] = partial(peer_vectors, peer, encoded, batch_size=batch_size)

        def sample_peaks() -> None:
            for peak in peaks.values():
                peak.sample()

        medians, _ = in_turn(calls, rounds=rounds, after=sample_peaks)
        qualities = {dtype: _quality(spec, dtype, pydocs) for dtype in names}
    exact = qualities["float32"]
    timings = []
    for dtype in names:
        quality = qualities[dtype]
        seconds = medians[dtype].seconds
        cosines = (unit(exact.vectors) * unit(quality.vectors)).sum(axis=1)
        test = equivalence(quality.scores, exact.scores, margin=MARGIN)
        timings.append(
            {
                "dtype": dtype,
                "texts_per_second": len(encoded) / seconds,
                "float32_ratio": medians["float32"].seconds / seconds,
                "peer_ratio": medians[_peer(dtype)].seconds / seconds,
                "peak_share": peaks[dtype].share(work[dtype], seconds),
                "cosine_min": float(cosines.min()),
                "cosine_mean": float(cosines.mean()),
                "ndcg": float(quality.scores.mean()),
                "ndcg_difference": test.difference,
                "interval": None if dtype == "float32" else test.interval,
                "equivalent": test.equivalent,
                "queries_needed": test.queries_needed,
            }
        )
    return PrecisionBench(model, len(pydocs.queries), MARGIN, tuple(timings))


def _peer(dtype: str) -> str:
    """Return the name of sentence-transformers in a dtype, among the methods."""
    return f"{dtype} peer"


@dataclass(frozen=True)
class _Quality:
    """The vectors of PyDocs in a dtype, and how well they search."""

    vectors: Vectors  # of documents and queries
    scores: NDArray[np.float64]  # nDCG@10 per query


def _quality(spec: str | Path, dtype: str, pydocs: PyDocs) -> _Quality:
    """Search PyDocs in a dtype."""
    documents = pydocs.corpus
    queries = pydocs.queries
    # Nothing is timed here, so vectors may come from the cache.
    encoder = load_encoder(spec, device="cpu", dtype=dtype, show_progress=False)
    vectors = encoder.encode([*documents.values(), *queries.values()])
    corpus = vectors[: len(documents)]
    query_vectors = vectors[len(documents) :]
    run = search(query_vectors, corpus, k=10).run(queries, list(documents))
    scores = score_run(pydocs.qrels, run, [_METRIC])[_METRIC]
    return _Quality(vectors, np.array([scores[query] for query in queries]))
