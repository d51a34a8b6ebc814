"""Benchmarks of encoding, of precisions and of reranking, on models that are tiny."""

import pytest
from helpers import TEXTS

from benchmarks.evaluation import bench_evaluation
from qwen3nb.bench.encode import bench_encode, bench_precision
from qwen3nb.bench.random_models import SHAPE, qwen3_shape, write_random_encoder
from qwen3nb.bench.rerank import bench_rerank
from qwen3nb.datasets.pydocs.build import load_pydocs

SMALL = {**SHAPE, **qwen3_shape(32, 48, 2, 4, 2, 8, vocab_size=600)}


def test_both_give_the_same_vectors(tmp_path):
    write_random_encoder(tmp_path, list(TEXTS), shape=SMALL)
    (result,) = bench_encode(str(tmp_path), texts={"a few": list(TEXTS)}, rounds=1)
    peer, ours = result.timings
    assert peer["name"] == f"sentence-transformers, batch {result.batch_size}"
    assert peer["ratio"] == peer["cpu_ratio"] == 1
    assert ours["equal"]
    for way in (peer, ours):
        share = result.gflop / result.peak_gflops / way["seconds"]
        assert way["peak_share"] == pytest.approx(share)
    title, _, *rows = result.table().splitlines()
    assert f"4 texts, {result.tokens} tokens, medians of 1 rounds" in title
    assert [row.split()[0] for row in rows] == [
        "sentence-transformers,",
        "load_encoder(...).encode",
    ]


@pytest.mark.integration
def test_each_precision_next_to_float32(tmp_path):
    write_random_encoder(tmp_path, list(TEXTS), shape=SMALL)
    pydocs = load_pydocs().sample(documents=60, queries=8)
    result = bench_precision(str(tmp_path), pydocs=pydocs, texts=4, rounds=1)
    exact, rounded = result.timings
    assert (exact["dtype"], rounded["dtype"]) == ("float32", "bfloat16")
    assert (exact["float32_ratio"], exact["ndcg_difference"], exact["interval"]) == (1, 0, None)
    ratio = rounded["texts_per_second"] / exact["texts_per_second"]
    assert rounded["float32_ratio"] == pytest.approx(ratio)
    assert exact["cosine_min"] == pytest.approx(1)
    assert 0.99 < rounded["cosine_min"] <= rounded["cosine_mean"] < 1
    assert rounded["ndcg_difference"] == pytest.approx(rounded["ndcg"] - exact["ndcg"])
    low, high = rounded["interval"]
    assert low <= rounded["ndcg_difference"] <= high
    assert [result.shown(each)[0] for each in result.timings] == ["is the reference", "not shown"]


@pytest.mark.integration
def test_rerankers_agree():
    *_, bench = bench_rerank(size="tiny", documents=2, rounds=1)
    reference, _, ours = bench.timings
    assert ours["ratio"] == pytest.approx(reference["cpu"] / ours["cpu"])
    assert "1 documents, medians of 1 rounds" in bench.table().splitlines()[0]


@pytest.mark.parametrize(
    ("call", "refusal"),
    [
        (lambda: next(bench_encode("e5-base-v2", texts={})), "e5-base-v2: not on this machine"),
        (lambda: bench_precision("bm25", pydocs=None, dtypes=["int4"]), "unknown dtype 'int4'"),
        (lambda: next(bench_rerank(size="7B")), "choose one of"),
        (lambda: bench_evaluation(model="bm25"), "bm25: not on this machine"),
    ],
)
def test_what_cannot_be_measured_is_refused(call, refusal):
    with pytest.raises(ValueError, match=refusal):
        call()
