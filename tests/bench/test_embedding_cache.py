"""The benchmark of the embedding cache."""

from qwen3nb.bench.embedding_cache import bench_cache


def test_the_command_prints_the_measurements(cli):
    result = bench_cache(vectors=600, dimension=16, rounds=1)
    assert result.read_ratio > 0
    assert result.write_ratio > 0
    done = cli("bench", "cache", "--vectors", 50, "--dimension", 8, "--rounds", 1)
    assert done.exit_code == 0, done.output
    assert "50 x 8 float32" in done.output
