import pytest

from qwen3nb.bench.rerank import RerankBench, RerankTiming, bench_rerank


def test_ratios_and_lines_follow_from_the_times():
    ways = (
        RerankTiming("reference, all logits", 40.0, 20.0, 1.0, 0.0, 4_000_000_000, 3_000_000_000),
        RerankTiming("qwen3nb", 4.0, 2.0, 10.0, 3e-6),
    )
    bench = RerankBench("100M", "250", 100, 3, 77, ways, {"linear layers": 0.8, "the rest": 0.2})
    assert bench.ratio("reference, all logits") == 10
    lines = bench.lines()
    assert "100 documents, 77 tokens before each, medians of 3 rounds" in lines[0]
    assert lines[2].split()[-2:] == ["4000", "3000"]
    assert lines[3].split()[-2:] == ["-", "-"]
    assert lines[-1] == "shares of qwen3nb's time: linear layers 80%, the rest 20%"


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
    assert sum(bench.rest.values()) == pytest.approx(1)
    assert not list(tmp_path.glob("qwen3nb-bench-*"))
