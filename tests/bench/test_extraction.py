"""The benchmark of averaging and extraction."""

import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest


@pytest.mark.integration
def test_the_bench_of_extraction_measures_and_compares(cli, tmp_path):
    done = cli("bench", "extraction", "--size", "tiny", "--repeats", 1, "--folder", tmp_path)
    assert done.exit_code == 0, done.output
    rows = [line.split() for line in done.output.splitlines() if line.startswith(("av", "ex"))]
    assert {(row[0], row[1]) for row in rows} >= {("average", "qwen3nb"), ("extract", "naive")}
    assert all(float(row[-1]) > 0 for row in rows)
    assert all(row[-3].endswith("%") for row in rows)
    assert [row[-3] for row in rows if "copy" in row] == ["100%", "100%"]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith("qwen3nb-bench")]
    done = cli("bench", "extraction", "--size", "small")
    assert "unknown size 'small'; choose one of: tiny, 60M, 0.6B" in done.output
