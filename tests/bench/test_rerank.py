import pytest

from qwen3nb.bench.machine_limits import MatrixWork
from qwen3nb.bench.rerank import RerankBench, RerankTiming, bench_rerank


def test_ratios_and_lines_follow_from_the_times():
    ways = (
        RerankTiming("reference, all logits", 40.0, 20.0, 1.0, 0.0, 0.05, 4 * 10**9, 3 * 10**9),
        RerankTiming("qwen3nb", 4.0, 2.0, 10.0, 3e-6, 0.5),
    )
    work, shares = MatrixWork(180, 20), {"linear layers": 0.8, "Python": 0.2}
    bench = RerankBench("100M", "250", 100, 3, 77, ways, work, 200.0, shares)
    assert bench.ratio("reference, all logits") == 10
    lines = bench.lines()
    assert "100 documents, 77 tokens before each, medians of 3 rounds" in lines[0]
    assert lines[1] == "180 GFLOP in linear layers, 20 in attention; matrix peak 200 GFLOP/s"
    assert lines[3].split()[-3:] == ["5%", "4000", "3000"]
    assert lines[4].split()[-3:] == ["50%", "-", "-"]
    assert lines[5:] == [
        "where the time of qwen3nb goes:", "  linear layers   80%", "  Python          20%",
    ]  # fmt: skip


@pytest.mark.parametrize("options", [{"size": "7B"}, {"passages": ["10"]}, {"rounds": 0}])
def test_what_cannot_be_measured_is_refused(options):
    with pytest.raises(ValueError, match=r"choose one of|expected rounds"):
        bench_rerank(**options)


@pytest.mark.integration
def test_all_ways_give_the_same_scores(tmp_path):
    """With the real vocabulary: the first reference alone takes gigabytes."""
    lines = []
    (bench,) = bench_rerank(
        size="tiny", passages=["60-80"], documents=4, rounds=1, memory=False,
        folder=tmp_path, say=lines.append,
    )  # fmt: skip
    assert max(way.difference for way in bench.timings) < 1e-5
    assert bench.timings[0].name == "reference, all logits"
    assert bench.timings[-1].name == "qwen3nb"
    assert sum(bench.time_shares.values()) == pytest.approx(1)
    assert bench.timings[-1].peak_share == pytest.approx(
        bench.work.gflop / bench.timings[-1].seconds / bench.peak_gflops
    )
    assert not list(tmp_path.glob("qwen3nb-bench-*"))
