import pytest

from qwen3nb.bench.machine_limits import MatrixWork
from qwen3nb.bench.rerank import RerankBench, bench_rerank


def test_ratios_and_lines_follow_from_the_times():
    first = {"name": "reference, all logits", "cpu": 40.0, "seconds": 20.0, "ratio": 1.0}
    first |= {"difference": 0.0, "peak_share": 0.05, "peak": 4 * 10**9, "above": 3 * 10**9}
    ours = {"name": "qwen3nb", "cpu": 4.0, "seconds": 2.0, "ratio": 10.0, "difference": 3e-6}
    ways = (first, {**ours, "peak_share": 0.5, "peak": None, "above": None})
    work, shares = MatrixWork(180, 20), {"linear layers": 0.8, "Python": 0.2}
    bench = RerankBench("100M", "250", 100, 3, 77, ways, work, 200.0, shares)
    lines = bench.table().splitlines()
    assert "100 documents, 77 tokens before each, medians of 3 rounds" in lines[0]
    assert lines[1] == "180 GFLOP in linear layers, 20 in attention; matrix peak 200 GFLOP/s"
    assert lines[3].split()[-3:] == ["5%", "4000", "3000"]
    assert lines[4].split()[-3:] == ["50%", "-", "-"]
    assert lines[5:] == [
        "where the time of qwen3nb goes:",
        "  linear layers   80%",
        "  Python          20%",
    ]


@pytest.mark.parametrize("options", [{"size": "7B"}, {"passages": ["10"]}, {"rounds": 0}])
def test_what_cannot_be_measured_is_refused(options):
    with pytest.raises(ValueError, match=r"choose one of|at least 1 round"):
        bench_rerank(**options)


@pytest.mark.integration
def test_all_ways_give_the_same_scores(tmp_path):
    """With the real vocabulary: the first reference alone takes gigabytes."""
    lines = []
    (bench,) = bench_rerank(
        size="tiny",
        passages=["60-80"],
        documents=4,
        rounds=1,
        memory=False,
        folder=tmp_path,
        say=lines.append,
    )
    assert max(way["difference"] for way in bench.timings) < 1e-5
    assert bench.timings[0]["name"] == "reference, all logits"
    assert bench.timings[-1]["name"] == "qwen3nb"
    assert sum(bench.time_shares.values()) == pytest.approx(1)
    share = bench.work.gflop / bench.timings[-1]["seconds"] / bench.peak_gflops
    assert bench.timings[-1]["peak_share"] == pytest.approx(share)
    assert not list(tmp_path.glob("qwen3nb-bench-*"))
