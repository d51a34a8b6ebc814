"""The benchmark of the embedding cache."""

import pytest

from qwen3nb.bench.embedding_cache import bench_cache, bench_growth


def test_the_command_prints_the_measurements(cli):
    result = bench_cache(vectors=600, dimension=16, rounds=1)
    assert result.read_ratio > 0
    assert result.write_ratio > 0
    assert result.read_share == result.memory_copy / result.cache_read
    done = cli(
        "bench", "cache", "--vectors", 50, "--dimension", 8, "--rounds", 1, "--growth", "40,90"
    )
    assert done.exit_code == 0, done.output
    assert "50 x 8 float32" in done.output
    assert "one cache of 384 float32" in done.output
    assert "max/min" in done.output
    assert "share of the limit: write" in done.output


def test_growth_measures_each_stretch():
    growth = bench_growth([600, 1200], dimension=8)
    assert [step.stored for step in growth.steps] == [600, 1200]
    assert growth.steps[0].size == pytest.approx(76)  # key, checksum, 8 floats, index entry
    assert growth.ratio("size") == 1
    assert growth.ratio("per_second") >= 1
    for wrong in ([], [0], [5, 5], [9, 3]):
        with pytest.raises(ValueError, match="expected ascending sizes"):
            bench_growth(wrong)
