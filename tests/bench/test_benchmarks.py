"""The scripts of benchmarks/, each with little to measure; calibration has a file of its own."""

import math
import subprocess
import sys

import numpy as np
import pytest
from helpers import REPOSITORY

from benchmarks import extraction, search
from benchmarks.cache import bench_cache
from benchmarks.pairs import bench_statistics
from benchmarks.records import RecordSet, bench_records, shown, write_records
from qwen3nb.models.load import load_encoder
from qwen3nb.records.store import load_results, verify

SCRIPTS = sorted(
    file.stem for file in (REPOSITORY / "benchmarks").glob("[a-z]*.py") if file.stem != "options"
)


@pytest.mark.integration
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_lists_its_options(name):
    script = REPOSITORY / "benchmarks" / f"{name}.py"
    command = [sys.executable, "-m", f"benchmarks.{name}", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    assert "--json" in done.stdout
    assert f"`{name}.py`" in script.with_name("README.md").read_text()


def test_the_cache_is_measured_next_to_a_plain_file_and_as_it_grows():
    done = bench_cache(vectors=600, dimension=16, rounds=1, growth=(600, 1200))
    assert set(done.seconds) == {"plain write", "cache write", "plain read", "cache read", "copy"}
    assert [step.stored for step in done.steps] == [600, 1200]
    for step in done.steps:  # 384 floats and a key, with little around them
        assert step.size == pytest.approx(4 * 384 + 36, rel=1e-3)
    assert "600 x 16 float32" in done.table()
    with pytest.raises(ValueError, match="expected ascending sizes"):
        bench_cache(vectors=1, dimension=2, growth=(9, 3))


@pytest.mark.integration
def test_searches_agree_with_exact_scores(one_child, monkeypatch):
    monkeypatch.setattr(search, "in_child", one_child("numpy"))
    done = search.bench_search(documents=3000, dimension=32, queries=20, k=5)
    assert {each.method for each in done.timings} >= {"naive", "torch", "numpy", "encode_to_file"}
    for each in done.timings:
        assert each.method in ("naive", "encode_to_file") or each.agreement == 1
        if each.method != "encode_to_file":
            gflop = 2 * 20 * 32 * each.documents / 1e9
            assert each.peak_share == pytest.approx(gflop / each.seconds / done.peak_gflops)
    assert "ratios to the smaller corpus" in done.table()


def test_blocks_and_a_file_find_what_held_vectors_find(tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path))
    model = load_encoder("random:384", cache=False, show_progress=False)
    np.save(tmp_path / "queries.npy", model.encode(["a", "b"]))
    for method in ("held", "blocks", "file"):
        search.encode_and_search(method, tmp_path, 5, 60, model)
        assert search._agreement(tmp_path, method, "held") == 1
    timings = (
        search.SearchTiming("held", 60, 2.0, 50.0, 1.0),
        search.SearchTiming("blocks", 60, 1.0, 5.0, 1.0),
    )
    row = search.SearchBench("t", timings).table().splitlines()[-1]
    assert row.split() == ["blocks", "60", "1.00", "0.50", "5", "0.10", "100.0%"]


def test_synthetic_records_hold(tmp_path):
    wanted = RecordSet(models=3, tasks=2, seeds=2, queries=30)
    assert write_records(tmp_path, wanted, processes=1) == len(wanted) == 12
    records = load_results(tmp_path)
    assert len(records) == 12
    assert verify(tmp_path) == []
    assert len({record.scores.queries for record in records.filter(task="ArguAna")}) == 1
    assert all(len(record.config["top"]) == 30 for record in records)
    scores = {record.scores.array("nDCG@10").tobytes() for record in records}
    assert len(scores) == 12  # no two are the same


@pytest.mark.integration
def test_reading_records_is_measured(home, tmp_path):
    size = {"models": 2, "tasks": 1, "seeds": 1, "queries": 20, "folder": str(tmp_path / "records")}
    timings = bench_records(**size, only="load_results")
    assert "10 s, 0.3 GB" in shown(timings)
    with pytest.raises(ValueError, match="expected one of load_results, leaderboard"):
        bench_records(**size, only="nothing")
    with pytest.raises(ValueError, match="expected an empty folder"):
        bench_records(**{**size, "queries": 9}, only="load_results")


def test_all_pairs_at_once_are_faster_and_equal_within_the_resampling_error():
    done = bench_statistics(systems=8, tasks=1, queries=1500, resamples=2000, loop_pairs=3, seed=1)
    loop, blocks, full = done.pairs
    assert (loop.pairs, loop.measured, blocks.measured) == (28, 3, 28)
    assert blocks.ratio > 3  # more on a quiet machine; the full size is in the book
    assert blocks.deviation < 5
    assert math.isnan(loop.deviation)
    assert full.peak_mib < 100
    assert list(done.intervals)[-1] == "paired difference"
    assert "times faster" in done.table()


@pytest.mark.integration
def test_extractions_give_the_values_of_a_naive_script(monkeypatch, one_child, tmp_path):
    monkeypatch.setattr(extraction, "in_child", one_child("extract", "qwen3nb"))
    rows = extraction.bench_extraction(size="tiny", repeats=1, folder=str(tmp_path))
    methods = {(row["task"], row["method"]) for row in rows}
    assert methods >= {("average", "qwen3nb"), ("extract", "naive"), ("extract", "unchecked")}
    assert all(row["peak"] > 0 for row in rows)
    assert [row["disk_share"] for row in rows if "copy" in row["method"]] == [1, 1]
    assert not list(tmp_path.glob("qwen3nb-bench-*"))
    assert "x naive" in extraction.shown(rows)
    with pytest.raises(ValueError, match="unknown size 'small'"):
        extraction.bench_extraction(size="small")
