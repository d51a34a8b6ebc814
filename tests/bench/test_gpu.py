"""The benchmark of GPUs, rehearsed on the CPU: nothing here says how fast anything is."""

import json

import pytest
import torch

from benchmarks import gpu
from benchmarks.gpu import GpuBench, bench_gpu, shown
from qwen3nb.utils.format import json_text

EQUAL = gpu._equality("MiniLM", "vectors", "varlen", 64, 0.9999, 0.99999, equal=True)
SPEED = {"model": "MiniLM", "what": "encode", "tokens": 51.0, "texts": 2000, "ours": 9000.0}
SPEED |= {"peer": 3000.0, "method": "sdpa, batch 256", "share": 0.4}


@pytest.mark.integration
def test_a_rehearsal_measures_equality_then_speed():
    done = bench_gpu(device="cpu", shapes=("tiny",), lengths=(12,), minutes=0.02)
    printed = json.loads(json_text(done))
    equality = [(each["what"], each["equal"]) for each in printed["equality"]]
    assert equality == [("vectors", True), ("scores", True)]
    assert [each["what"] for each in printed["speed"]] == ["encode", "rerank"]
    assert all(each["ours"] > 0 and each["peer"] > 0 for each in printed["speed"])
    assert 6 <= printed["speed"][0]["tokens"] <= 24


def test_a_table_has_a_row_per_measurement_and_says_what_was_left_out(capsys):
    bench = GpuBench("H", "m", "bfloat16", 5e14, (EQUAL,), (SPEED,), ("Qwen3-4B: out of memory",))
    lines = bench.table().splitlines()
    assert lines[1] == "matrix products in bfloat16: 500 TFLOP/s"
    assert lines[5].split() == ["MiniLM", "vectors", "varlen", "64", "0.999900", "0.999990", "yes"]
    assert " ".join(lines[8].split()[:8]) == "MiniLM encode 51 2000 9000.0 3000.0 3.00x 40%"
    assert lines[-1] == "left out: Qwen3-4B: out of memory"
    with pytest.raises(SystemExit, match="1"):  # results differ
        shown(GpuBench("H", "m", "bfloat16", 5e14, ({**EQUAL, "equal": False},), (), ()))
    assert capsys.readouterr().out.splitlines()[5].endswith("NO")


@pytest.mark.integration
def test_what_does_not_fit_in_time_or_memory_is_left_out(monkeypatch):
    def measured(subject, name, lengths):
        yield EQUAL
        raise torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB\nand more")

    monkeypatch.setattr(gpu._Subject, "measure", measured)
    bench = bench_gpu(shapes=("tiny", "MiniLM"), device="cpu")
    assert bench.equality == (EQUAL, EQUAL) and bench.speed == ()  # noqa: PT018
    assert bench.left_out[0] == "tiny, in part: CUDA out of memory. Tried 2 GiB"
    assert bench_gpu(shapes=("tiny",), minutes=1e-9, device="cpu").left_out == (
        "tiny: 1e-09 minutes were over",
    )


def test_what_cannot_be_measured_is_refused_in_a_line(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="expected a GPU, and PyTorch finds none here"):
        bench_gpu()
    for options in ({"shapes": ["7B"]}, {"lengths": [2000]}, {"minutes": 0}, {"dtype": "float32"}):
        with pytest.raises(ValueError, match=r"unknown|expected lengths"):
            bench_gpu(device="cpu", **options)
