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
from typing import TYPE_CHECKING, TypedDict

import numpy as np
from numpy.typing import NDArray

from qwen3nb.analysis.stats.paired_tests import equivalence
from qwen3nb.bench.encode import bench_texts, best_batch_size, neural_encoder
from qwen3nb.bench.harness import in_turn
from qwen3nb.bench.matrix_peak import MatrixPeak, encoder_limit, sample_all
from qwen3nb.bench.random_models import QWEN3, load_peer, model_folder, peer_vectors, unit
from qwen3nb.metrics.intervals import Interval
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.inference.int8_linear import attention_dtype, runs_in_int8
from qwen3nb.models.load import load_encoder
from qwen3nb.models.search.exact import search
from qwen3nb.models.types import DTYPES, Vectors
from qwen3nb.utils.choices import check_choice

if TYPE_CHECKING:
    from qwen3nb.datasets.pydocs.build import PyDocs

MARGIN = 0.005  # differences of nDCG@10 below this do not matter
_METRIC = "nDCG@10"


class PrecisionTiming(TypedDict):
    """What one dtype takes, and what it costs in quality."""

    dtype: str
    texts_per_second: float  # of this package
    float32_ratio: float  # its speed relative to float32
    peer_ratio: float  # and to sentence-transformers in the same dtype, or float32 for int8
    peak_share: float
    cosine_min: float  # of a vector with that in float32
    cosine_mean: float
    ndcg: float  # nDCG@10 on PyDocs
    ndcg_difference: float  # mean difference from float32
    interval: Interval | None  # at 0.95; None for float32, and for a single query
    equivalent: bool  # whether it shows that the difference is within the margin
    queries_needed: int | None  # that would show it, if they differ like these


@dataclass(frozen=True)
class PrecisionBench:
    """Results for one model.

    There is a timing of each dtype, float32 first.
    """

    model: str
    queries: int  # number of queries of PyDocs
    margin: float  # see `MARGIN`
    timings: tuple[PrecisionTiming, ...]

    @staticmethod
    def shown(timing: PrecisionTiming) -> tuple[str, str]:
        """Whether equivalence with float32 is shown, and if not, how many queries would show it."""
        if timing["dtype"] == "float32":
            return "is the reference", ""
        if timing["equivalent"]:
            return "yes", ""
        if timing["queries_needed"]:
            return "not shown", f"{timing['queries_needed']:,} queries would"
        return "not shown", ""


def fast_dtypes() -> tuple[str, ...]:
    """Return the dtypes with fewer bits that this processor multiplies faster than float32.

    Without products in bfloat16 it emulates them, and sentence-transformers takes many minutes.
    """
    dtypes = []
    if attention_dtype() is not None:
        dtypes.append("bfloat16")
    if runs_in_int8():
        dtypes.append("int8")
    return tuple(dtypes)


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
        dtypes: besides float32; None for `fast_dtypes`.
        texts: number of timed texts.
        rounds: number of timed rounds, after an untimed one.

    Raises:
        ValueError: an unknown model or dtype.
    """
    if dtypes is None:
        dtypes = fast_dtypes()
    for dtype in dtypes:
        check_choice("dtype", dtype, DTYPES)
    names = list(dict.fromkeys(("float32", *dtypes)))
    encoded_texts = bench_texts(texts)["mixed lengths"]
    with model_folder(model, encoded_texts) as folder:
        spec = folder if model == QWEN3 else model
        speeds = _time_dtypes(names, spec, folder, encoded_texts, rounds=rounds)
        qualities = {dtype: _search_quality(spec, dtype, pydocs) for dtype in names}
    timings = [_timing(dtype, speeds, qualities, len(encoded_texts)) for dtype in names]
    return PrecisionBench(model, queries=len(pydocs.queries), margin=MARGIN, timings=tuple(timings))


@dataclass(frozen=True)
class _Speed:
    """The seconds of all texts in a dtype."""

    ours: float
    peer: float
    peak_share: float  # of ours


def _time_dtypes(
    dtypes: Sequence[str], spec: str | Path, folder: Path, texts: list[str], *, rounds: int
) -> dict[str, _Speed]:
    """Time ours and sentence-transformers in turn, in each dtype."""
    calls: dict[str, Callable[[], Vectors]] = {}
    work: dict[str, float] = {}
    peaks: dict[str, MatrixPeak] = {}
    for dtype in dtypes:
        our_encoder = neural_encoder(spec, device="cpu", dtype=dtype)
        peer = load_peer(folder, device="cpu", dtype=dtype)
        batch_size = best_batch_size(peer, texts)
        rows = our_encoder._tokenise(texts)
        work[dtype], peaks[dtype] = encoder_limit(our_encoder.runner, rows, dtype=dtype)
        calls[dtype] = partial(our_encoder.encode, texts)
        calls[_peer_name(dtype)] = partial(peer_vectors, peer, texts, batch_size=batch_size)
    sample_peaks = partial(sample_all, peaks.values())
    medians, _ = in_turn(calls, rounds=rounds, after=sample_peaks)  # without the vectors
    speeds = {}
    for dtype in dtypes:
        ours_seconds = medians[dtype].seconds
        peer_seconds = medians[_peer_name(dtype)].seconds
        peak_share = peaks[dtype].share(work[dtype], ours_seconds)
        speeds[dtype] = _Speed(ours_seconds, peer_seconds, peak_share)
    return speeds


def _peer_name(dtype: str) -> str:
    """Return the name of sentence-transformers in a dtype, among the methods."""
    return f"{dtype} peer"


def _timing(
    dtype: str, speeds: Mapping[str, _Speed], qualities: Mapping[str, _Quality], texts: int
) -> PrecisionTiming:
    """Compare the speed and the quality of a dtype with those of float32."""
    speed, quality = speeds[dtype], qualities[dtype]
    exact = qualities["float32"]
    cosines = (unit(exact.vectors) * unit(quality.vectors)).sum(axis=1)  # row by row
    test = equivalence(quality.scores, exact.scores, margin=MARGIN)
    return {
        "dtype": dtype,
        "texts_per_second": texts / speed.ours,
        "float32_ratio": speeds["float32"].ours / speed.ours,
        "peer_ratio": speed.peer / speed.ours,
        "peak_share": speed.peak_share,
        "cosine_min": float(cosines.min()),
        "cosine_mean": float(cosines.mean()),
        "ndcg": float(quality.scores.mean()),
        "ndcg_difference": test.difference,
        "interval": None if dtype == "float32" else test.interval,
        "equivalent": test.equivalent,
        "queries_needed": test.queries_needed,
    }


@dataclass(frozen=True)
class _Quality:
    """The vectors of PyDocs in a dtype, and how well they search."""

    vectors: Vectors  # of documents and queries
    scores: NDArray[np.float64]  # nDCG@10 per query


def _search_quality(spec: str | Path, dtype: str, pydocs: PyDocs) -> _Quality:
    """Search PyDocs in a dtype."""
    documents, queries = pydocs.corpus, pydocs.queries
    # Nothing is timed here, so vectors may come from the cache.
    encoder = load_encoder(spec, device="cpu", dtype=dtype, show_progress=False)
    # In one call, documents first.
    vectors = encoder.encode([*documents.values(), *queries.values()])
    document_vectors = vectors[: len(documents)]
    query_vectors = vectors[len(documents) :]
    hits = search(query_vectors, document_vectors, k=10)
    run = hits.run(queries, list(documents))
    score_of = score_run(pydocs.qrels, run, [_METRIC])[_METRIC]
    return _Quality(vectors, np.array([score_of[query] for query in queries]))
