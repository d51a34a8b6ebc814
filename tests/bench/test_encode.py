"""Benchmarks of encoding, of precisions and of reranking, on models that are tiny."""

import json
import os
from dataclasses import asdict, replace

import pytest
import torch
from helpers import TEXTS

from benchmarks.evaluation import bench_evaluation
from qwen3nb.bench import precision
from qwen3nb.bench.compare import compare_runs
from qwen3nb.bench.encode import (
    EncodeBench,
    bench_encode,
    texts_of_file,
    texts_of_tasks,
)
from qwen3nb.bench.harness import OtherWork
from qwen3nb.bench.precision import bench_precision
from qwen3nb.bench.random_models import SHAPE, qwen3_shape, write_random_encoder
from qwen3nb.bench.rerank import bench_rerank
from qwen3nb.datasets.pydocs.build import load_pydocs
from qwen3nb.models.inference.int8_linear import runs_in_int8

SMALL = {**SHAPE, **qwen3_shape(32, 48, 2, 4, 2, 8, vocab_size=600)}


def test_both_give_the_same_vectors(tmp_path):
    write_random_encoder(tmp_path, list(TEXTS), shape=SMALL)
    (result,) = bench_encode(str(tmp_path), texts={"a few": list(TEXTS)}, rounds=1)
    peer, ours = result.timings
    assert peer["name"] == f"sentence-transformers, batch {result.batch_size}"
    assert peer["ratio"] == peer["cpu_ratio"] == 1
    assert ours["equal"]
    for way in (peer, ours):
        share = result.gflop / result.peak_gflops["float32"] / way["seconds"]
        assert way["peak_share"] == pytest.approx(share)
    assert result.lengths["mean"] == result.tokens / 4
    title, _, *rows, verdict = replace(result, others=OtherWork()).table().splitlines()
    assert f"4 texts, {result.tokens} tokens (mean" in title
    assert [row.split()[0] for row in rows] == [
        "sentence-transformers,",
        "load_encoder(...).encode",
    ]
    assert verdict.startswith("fastest: ")
    busy = replace(result, others=OtherWork(0.5 * os.cpu_count()))
    assert "the machine was not quiet: other programs used" in busy.table()
    assert "not quiet" not in replace(result, others=OtherWork(0.0)).table()


@pytest.mark.integration
@pytest.mark.parametrize(("name", "least"), [("onnx", 0.999999), ("onnx-int8", 0.9)])
def test_a_graph_has_the_vectors_of_its_model(tmp_path, name, least):
    write_random_encoder(tmp_path, list(TEXTS), shape=SMALL)
    sets = {"a few": list(TEXTS)}
    (result,) = bench_encode(str(tmp_path), texts=sets, rounds=1, dtype="bfloat16", peers=[name])
    assert [each["way"] for each in result.timings] == [
        "sentence-transformers",
        name,
        "load_encoder(...).encode, float32",
        "load_encoder(...).encode, bfloat16",
    ]
    rounded, graph, exact, ours = result.timings
    dtypes = ["bfloat16", "int8" if name == "onnx-int8" else "float32", "float32", "bfloat16"]
    assert [each["dtype"] for each in result.timings] == dtypes
    for timing in result.timings:  # each by the peak of its own precision
        peak = result.peak_gflops.get(timing["dtype"])
        share = peak and result.gflop / peak / timing["seconds"]
        assert timing["peak_share"] == (share and pytest.approx(share))
    assert ("int8" in result.peak_gflops) == (name == "onnx-int8" and runs_in_int8())
    assert least < graph["cosine"] <= graph["cosine_mean"] < 1.0000001
    assert graph["equal"] == (name == "onnx")
    assert exact["cosine"] == pytest.approx(1) != ours["cosine"]
    assert 0.99 < rounded["cosine"] < 1


@pytest.mark.integration
def test_texts_of_files_and_tasks(tmp_path):
    (tmp_path / "lines.txt").write_text("one\n\ntwo\none\nthree\n")
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n{"text": "b", "id": 1}\n')
    assert texts_of_file(tmp_path / "lines.txt", 9) == ["one", "two", "three"]
    assert texts_of_file(tmp_path / "lines.txt", 2) == ["one", "two"]
    assert texts_of_file(tmp_path / "rows.jsonl", 9) == ["a", "b"]
    (tmp_path / "none.txt").write_text("\n")
    with pytest.raises(ValueError, match="none.txt: no texts to encode"):
        texts_of_file(tmp_path / "none.txt", 9)
    ((task, texts),) = texts_of_tasks(["AuthorSTS"], 7).items()
    assert (task, len(set(texts))) == ("AuthorSTS", 7)


def kept(file, *, seconds, **changes):
    peer = {"name": "sentence-transformers, batch 8", "way": "sentence-transformers"}
    timings = (
        peer | {"seconds": 4.0, "ratio": 1.0, "equal": True},
        {"name": "ours", "way": "ours", "seconds": seconds, "ratio": 4.0 / seconds, "equal": True},
    )
    bench = EncodeBench("m", "short", 8, 80, {}, 3, 8, timings, 1.5, {}, "model", "texts")
    made = {"machine": file.stem, "results": [asdict(replace(bench, **changes))]}
    file.write_text(json.dumps(made))
    return file


def test_two_kept_runs_are_compared(tmp_path):
    first = kept(tmp_path / "laptop.json", seconds=2.0)
    comparison = compare_runs(first, kept(tmp_path / "server.json", seconds=1.0, count=16))
    _, ours = comparison.rows
    # 8 texts in 2 s are 4 a second, and 16 in 1 s are 16.
    assert (ours["first"], ours["second"], ours["speed"]) == (2, 4, 4)
    assert comparison.table().splitlines()[:2] == ["A: laptop", "B: server"]
    assert comparison.notes == ()
    other = compare_runs(first, kept(tmp_path / "other.json", seconds=1.0, digest="others"))
    assert other.notes == ("m, short: not the same texts; the speeds do not compare",)
    for wrong, refusal in (
        (kept(tmp_path / "n.json", seconds=1.0, model="n"), "no model and texts in common"),
        (kept(tmp_path / "old.json", seconds=1.0, timings=[{}]), "old.json: expected what `qwen3"),
        (kept(tmp_path / "text.json", seconds=1.0, count="8"), "text.json: .*m, short: a count"),
        (kept(tmp_path / "name.json", seconds=1.0, texts=3), "name.json: .*expected str"),
    ):
        with pytest.raises(ValueError, match=refusal):
            compare_runs(first, wrong)


@pytest.mark.parametrize("has_bfloat16", [True, False])
@pytest.mark.parametrize("has_int8", [True, False])
def test_only_what_the_processor_multiplies_is_timed_by_default(
    monkeypatch, has_bfloat16, has_int8
):
    dtype = torch.bfloat16 if has_bfloat16 else None
    monkeypatch.setattr(precision, "attention_dtype", lambda: dtype)
    monkeypatch.setattr(precision, "runs_in_int8", lambda: has_int8)
    assert ("bfloat16" in precision.fast_dtypes()) == has_bfloat16
    assert ("int8" in precision.fast_dtypes()) == has_int8


@pytest.mark.integration
def test_each_precision_next_to_float32(tmp_path):
    write_random_encoder(tmp_path, list(TEXTS), shape=SMALL)
    pydocs = load_pydocs().sample(documents=60, queries=8)
    result = bench_precision(str(tmp_path), pydocs=pydocs, dtypes=["bfloat16"], texts=4, rounds=1)
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
        (lambda: next(bench_encode("e5-base-v2", peers=["onx"])), "unknown peer 'onx'; choose one"),
        (lambda: bench_evaluation(model="bm25"), "bm25: not on this machine"),
    ],
)
def test_what_cannot_be_measured_is_refused(call, refusal):
    with pytest.raises(ValueError, match=refusal):
        call()
