"""Benchmark precisions of one model: speed, and what is left of the vectors and of nDCG@10.

For each dtype, this package and sentence-transformers, at its best batch size and with weights in
the same dtype, take turns in one process, and so does the matrix peak of that dtype. The vectors
are compared with ours in float32, and both search PyDocs: the paired difference of nDCG@10 has its
interval, and counts as smaller than a margin if the interval lies within it. The sample has too few
queries to show a small margin; all of PyDocs takes minutes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from qwen3nb.analysis.stats.paired_tests import equivalence
from qwen3nb.bench.encode import bench_texts, best_batch_size, neural_encoder
from qwen3nb.bench.harness import at_least_one, in_turn, table
from qwen3nb.bench.machine_limits import MatrixPeak, MatrixWork, encoder_limit
from qwen3nb.bench.random_models import QWEN3, load_peer, model_folder, peer_vectors, unit
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.dtypes import DTYPES
from qwen3nb.models.search.exact import search
from qwen3nb.models.types import Vectors
from qwen3nb.utils.choices import one_of

if TYPE_CHECKING:
    from qwen3nb.datasets.pydocs.build import PyDocs

MARGIN = 0.005  # differences of nDCG@10 below this do not matter
# Instructions of processors that compute in 16 bits, as PyTorch names them.
_FEATURES = ("amx_bf16", "amx_fp16", "avx512_bf16", "avx512_fp16", "bf16", "fp16_arith")
_FLOAT16 = {"amx_fp16", "avx512_fp16", "fp16_arith"}  # without one, float16 is emulated
_METRIC = "nDCG@10"


@dataclass(frozen=True)
class PrecisionBench:
    """Results for one model.

    A timing has, of each ``dtype``, float32 first: ``texts_per_second`` of this package, its speed
    relative to float32 (``float32_ratio``) and to sentence-transformers in the same dtype
    (``peer_ratio``) at its best ``batch_size``, the ``peak_gflops`` of the linear layers alone and
    the share of them, smallest and mean cosine of a vector with that in float32, ``ndcg`` on
    PyDocs, the mean difference from float32 (``ndcg_difference``) with the 95 % ``interval`` (None
    for float32 and a single query), whether it shows that the difference is within the margin
    (``equivalent``), and how many queries that differ like these would (``queries_needed``, or
    None).
    """

    model: str
    cpu_features: tuple[str, ...]  # instructions of this processor that compute in 16 bits
    texts: int  # number of timed texts, of mixed lengths
    tokens: int  # number of their tokens
    rounds: int
    documents: int  # number of documents of the sample of PyDocs
    queries: int  # number of its queries
    margin: float  # see `MARGIN`
    timings: tuple[dict[str, Any], ...]

    def table(self) -> str:
        """The timings as plain text."""
        features = ", ".join(self.cpu_features) or "none, so 16 bits are slow"
        return table(
            f"{self.model}: {self.texts} texts of mixed lengths, {self.tokens} tokens, medians of "
            f"{self.rounds} rounds; PyDocs, {self.documents} documents, {self.queries} queries",
            f"instructions for 16 bits: {features}; s.-t.: sentence-transformers in the same "
            f"dtype; equivalent: within {self.margin:g} of float32",
            rows=[
                {
                    **each,
                    "ends": "{:+.4f} to {:+.4f}".format(*ends) if ends else "-",
                    "words": ", ".join(filter(None, self.shown(each))),
                }
                for each in self.timings
                for ends in [each["interval"]]
            ],
            shown="dtype: {dtype} | texts/s: {texts_per_second:.0f} | "
            "x float32: {float32_ratio:.2f} | x s.-t.: {peer_ratio:.2f} | "
            "of peak: {peak_share:.0%} | GFLOP/s: {peak_gflops:.0f} | "
            "min cosine: {cosine_min:.6f} | mean cosine: {cosine_mean:.6f} | "
            "nDCG@10: {ndcg:.4f} | difference: {ndcg_difference:+.4f} | "
            "95 % interval: {ends} | equivalent: {words}",
        )

    @staticmethod
    def shown(timing: Mapping[str, Any]) -> tuple[str, str]:
        """Whether equivalence with float32 is shown, and if not, how many queries would show it."""
        if timing["dtype"] == "float32":
            return "is the reference", ""
        needed = timing["queries_needed"] and f"{timing['queries_needed']:,} queries would"
        return ("yes", "") if timing["equivalent"] else ("not shown", needed or "")


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
    at_least_one(rounds=rounds)
    for each in dtypes:
        one_of("dtype", each, DTYPES)
    usual = ("bfloat16", "float16") if _FLOAT16 & {*cpu_features()} else ("bfloat16",)
    names = tuple(dict.fromkeys(("float32", *(dtypes or usual))))
    encoded = bench_texts(texts)["mixed lengths"]
    calls: dict[str, Any] = {}
    limits: dict[str, tuple[int, MatrixWork, MatrixPeak]] = {}
    with model_folder(model, encoded) as folder:
        spec = folder if model == QWEN3 else model
        for dtype in names:
            ours = neural_encoder(spec, device="cpu", dtype=dtype)
            if ours.runner is None:
                raise ValueError(f"{spec}: expected an encoder that this package runs itself")
            peer = load_peer(folder, device="cpu", dtype=dtype)
            size, rows = best_batch_size(peer, encoded), ours._tokenise(encoded)
            limits[dtype] = (size, *encoder_limit(ours.runner, rows, dtype=dtype))
            calls[dtype] = partial(ours.encode, encoded)
            calls[f"{dtype} peer"] = partial(peer_vectors, peer, encoded, batch_size=size)
        peaks = [peak for *_, peak in limits.values()]
        medians, _ = in_turn(calls, rounds=rounds, after=lambda: [each.sample() for each in peaks])
        searched = {dtype: _searched(spec, dtype, pydocs) for dtype in names}
    exact_vectors, exact_scores = searched["float32"]
    timings = []
    for dtype in names:
        (vectors, scores), (size, work, peak) = searched[dtype], limits[dtype]
        cosines = (unit(exact_vectors) * unit(vectors)).sum(axis=1)
        exact, own, theirs = (medians[e].seconds for e in ("float32", dtype, f"{dtype} peer"))
        test = equivalence(scores, exact_scores, margin=MARGIN)
        timings.append(
            {
                "dtype": dtype,
                "texts_per_second": len(encoded) / own,
                "float32_ratio": exact / own,
                "peer_ratio": theirs / own,
                "batch_size": size,
                "peak_gflops": peak.gflops,
                "peak_share": peak.share(work, own),
                "cosine_min": float(cosines.min()),
                "cosine_mean": float(cosines.mean()),
                "ndcg": float(scores.mean()),
                "ndcg_difference": test.difference,
                "interval": None if dtype == "float32" else test.interval,
                "equivalent": test.equivalent,
                "queries_needed": test.queries_needed,
            }
        )
    return PrecisionBench(
        model,
        cpu_features(),
        len(encoded),
        sum(map(len, rows)),
        rounds,
        len(pydocs.corpus),
        len(pydocs.queries),
        MARGIN,
        tuple(timings),
    )


def _searched(spec: Any, dtype: str, pydocs: PyDocs) -> tuple[Vectors, NDArray[np.float64]]:
    """Return the vectors of documents and queries, and nDCG@10 per query."""
    documents, queries = pydocs.corpus, pydocs.queries
    # Nothing is timed here, so vectors may come from the cache.
    encoder = load_encoder(spec, device="cpu", dtype=dtype, show_progress=False)
    vectors = encoder.encode([*documents.values(), *queries.values()])
    corpus, sought = vectors[: len(documents)], vectors[len(documents) :]
    run = search(sought, corpus, k=10).run(queries, list(documents))
    scores = score_run(pydocs.qrels, run, [_METRIC])[_METRIC]
    return vectors, np.array([scores[query] for query in queries])
