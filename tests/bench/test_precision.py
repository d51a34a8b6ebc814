"""Precisions are compared with float32 on the same vectors and queries."""

import pytest
import torch
from helpers import TEXTS
from helpers.bench_models import SHAPE

from qwen3nb.bench import precision
from qwen3nb.bench.precision import bench_precision, cpu_features
from qwen3nb.bench.random_models import write_random_encoder
from qwen3nb.datasets.pydocs.build import load_pydocs


def test_each_precision_beside_float32(tmp_path, monkeypatch):
    write_random_encoder(tmp_path, list(TEXTS), shape=SHAPE)
    pydocs = load_pydocs().sample(documents=60, queries=8)
    features = {"avx512_bf16": True, "avx2": True, "avx512_fp16": False}
    with monkeypatch.context() as patched:
        patched.setattr(torch.cpu, "get_capabilities", lambda: features)
        assert cpu_features() == ("avx512_bf16",)
    # Without instructions for it, float16 is not among the defaults.
    monkeypatch.setattr(precision, "cpu_features", lambda: ("avx512_bf16",))
    result = bench_precision(str(tmp_path), pydocs=pydocs, texts=4, rounds=1)
    exact, rounded = result.timings
    assert (exact.dtype, rounded.dtype) == ("float32", "bfloat16")
    assert (exact.float32_ratio, exact.ndcg_difference, exact.interval) == (1, 0, None)
    ratio = rounded.texts_per_second / exact.texts_per_second
    assert rounded.float32_ratio == pytest.approx(ratio)
    assert exact.cosine_min == pytest.approx(1)
    assert 0.99 < rounded.cosine_min <= rounded.cosine_mean < 1
    assert rounded.ndcg_difference == pytest.approx(rounded.ndcg - exact.ndcg)
    low, high = rounded.interval
    assert low <= rounded.ndcg_difference <= high
    title, features, head, *rows = result.table().splitlines()
    assert f"4 texts of mixed lengths, {result.tokens} tokens, medians of 1 rounds" in title
    assert title.endswith("PyDocs, 60 documents, 8 queries")
    assert "avx512_bf16" in features
    assert len({len(line) for line in (head, *rows)}) == 1
    assert rows[0].endswith("is the reference")
    assert "not shown" in rows[1]  # of 8 queries
    assert rounded.queries_needed is None or f"{rounded.queries_needed:,} queries would" in rows[1]


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(ValueError, match="at least 1 round; got 0"):
        bench_precision("all-MiniLM-L6-v2", pydocs=None, rounds=0)
    with pytest.raises(ValueError, match="unknown dtype 'int8'; choose one of: float32"):
        bench_precision("all-MiniLM-L6-v2", pydocs=None, dtypes=["int8"])
