"""The benchmark of averaging and extraction."""

import time

import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest

from qwen3nb.bench import extraction
from qwen3nb.utils.hardware import peak_memory


@pytest.fixture
def one_process(monkeypatch):
    """Run one method in a process of its own, as all are, and the others in this one."""
    apart = extraction._measure

    def measure(task, method, work):
        if (task, method) == ("extract", "qwen3nb"):
            return apart(task, method, work)
        started = time.perf_counter()
        extraction._METHODS[task][method](work)
        return time.perf_counter() - started, peak_memory()

    monkeypatch.setattr(extraction, "_measure", measure)


@pytest.mark.integration
def test_the_bench_of_extraction_measures_and_compares(cli, one_process, tmp_path):
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
