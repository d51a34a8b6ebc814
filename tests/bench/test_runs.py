from qwen3nb.bench.runs import bench_runs


def test_both_ways_write_and_compute_the_same():
    done = bench_runs(queries=3, depth=20)
    assert set(done.seconds) == {"dictionaries", "arrays"}
    assert "3 queries x 20 documents" in done.table()
