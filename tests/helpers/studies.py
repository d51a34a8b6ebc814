"""Made results of studies, whose numbers are chosen."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np

from qwen3nb.analysis.comparison.ablation_effects import Effect
from qwen3nb.analysis.comparison.differences import PairedDifference
from qwen3nb.answers.extraction import ExtractedModel
from qwen3nb.answers.probes import ProbedVectors
from qwen3nb.bench.encode import EncodeBench
from qwen3nb.bench.precision import PrecisionBench
from qwen3nb.evaluation.embeddings.probes import Clusters, Geometry, LinearProbe
from qwen3nb.evaluation.retrieval.ann import AnnPoint, AnnSuite, Compressed
from qwen3nb.extraction.verify import Verification
from qwen3nb.metrics.aggregate import Aggregate, aggregate

TASK = "PyDocsSampleRetrieval"
QUERIES = [f"q{i}" for i in range(40)]


def effect(level, difference, p_value, *, factor="pooling", reference="mean"):
    ends = (difference - 0.01, difference + 0.01)
    estimate = PairedDifference(
        task=TASK,
        metric="nDCG@10",
        first=level,
        second=reference,
        n=200,
        unpaired=0,
        means=(0.4 + difference, 0.4),
        difference=difference,
        interval=ends,
        p_value=p_value / 3,
        corrected=p_value,
        family=3,
        d_z=None,
        won=100,
        tied=0,
        lost=100,
        correction="holm",
    )
    return Effect(factor, level, reference, estimate, 8)


NOISE, SMALLER = effect("cls", -0.004, 0.3), effect("last", 0.002, 0.9)
CLEAR = effect("[R] … EOS", 0.05, 1e-4, factor="around", reference="plain")


def scores(value):
    return dict.fromkeys(QUERIES, value)


def point(family, *, recall, qps, ndcg=0.5):
    speed = SimpleNamespace(threads=1, qps=qps, p50=1.0, p95=2.0, singles=9)
    return AnnPoint(
        family, family, "", None, 0.1, 100, "cpu", scores(recall), scores(ndcg), (speed,)
    )


def suite(points, smaller=(), label="m"):
    full = Compressed("float32", 8, 32, scores(0.5))
    exact, every = scores(0.5), (full, *smaller)
    return AnnSuite(label, "SciFact", 1000, 40, 8, 10, "cosine", exact, tuple(points), every)


FLAT, POOR = point("flat", recall=1.0, qps=100), point("ivf", recall=0.5, qps=900)
SHAKY = {q: 0.5 + (0.1 if i % 2 else -0.1) for i, q in enumerate(QUERIES)}
LOST = {q: 0.1 + 0.01 * (i % 2) for i, q in enumerate(QUERIES)}


def probes(label="m"):
    columns = {"x": {str(i): float(i < 30) for i in range(40)}}
    value = aggregate(columns, how="mean", columns=("x",))
    clusters = Clusters({"V-measure": value}, 200, 20, (1,))
    geometry = Geometry(np.ones(40), np.ones(8), np.full(780, 0.125), np.ones(8))
    return ProbedVectors(label, {}, {}, clusters, LinearProbe(value, value, 40, 100), geometry)


def score(value, low, high):
    return Aggregate(value, low, high, 500, "mean", columns=("nDCG@10",), interval="wilson")


BM25, RANDOM = score(0.529, 0.491, 0.567), score(0.0, 0.0, 0.008)
UNDEFINED = Aggregate(None, None, None, 0, "mean", columns=("nDCG@10",), undefined="none")


def extraction(*, difference=0.0, rounding=0.0, leak=1.788, warnings=(), label="demo"):
    check = Verification(difference, 6e-8, rounding, leak, (3, 12, 181), {})
    return ExtractedModel(Path("runs/encoder"), label, 926_464, check, tuple(warnings))


def bench(ratio, *, texts="short queries", difference=2e-7, equal=True, label="m"):
    peer = {"name": "sentence-transformers, batch 16", "seconds": 1.0, "ratio": 1.0}
    peer |= {"cpu_ratio": 1.0, "difference": 0.0, "equal": True, "peak_share": 0.4}
    ours = {"name": "load_encoder(...).encode", "seconds": 1 / ratio, "ratio": ratio}
    ours |= {"difference": difference, "equal": equal, "peak_share": 0.4 * ratio}
    timings = (peer, {**peer, **ours})
    return EncodeBench(label, texts, 64, 1000, {}, 3, 16, timings, 80.0, {"float32": 200.0})


EXACT = {"dtype": "float32", "float32_ratio": 1.0, "peer_ratio": 2.4, "peak_share": 0.75}
EXACT |= {"cosine_min": 1.0, "ndcg": 0.512, "ndcg_difference": 0.0, "interval": None}
ROUNDED = {"dtype": "bfloat16", "float32_ratio": 1.5, "peer_ratio": 1.4, "peak_share": 0.5}
ROUNDED |= {"cosine_min": 0.99991, "ndcg": 0.511, "ndcg_difference": -0.001}
ROUNDED |= {"interval": (-0.004, 0.002), "equivalent": True, "queries_needed": None}


def precision(*timings, label="m"):
    return PrecisionBench(label, 200, 0.005, timings)
