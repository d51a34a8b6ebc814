"""A kill or a full disk loses nothing; see `helpers.fault_injection`."""

import resource
import subprocess
import sys

import pytest
from helpers.fault_injection import fault_server

pytestmark = pytest.mark.integration
# Scenarios, with the least number of states that a kill may leave.
LEAST = {"AVERAGE": 60, "EXTRACT": 70, "ENCODE": 20, "SHARDS": 14}


@pytest.fixture(scope="module")
def faults():
    with fault_server("helpers.folder_scenarios") as run:
        yield run


@pytest.mark.parametrize("name", LEAST)
def test_a_kill_at_any_file_operation_loses_nothing(faults, name):
    report = faults(name)
    assert report.broken == []
    assert report.tried >= LEAST[name]


def test_a_full_disk_is_one_line_that_names_the_file(make_checkpoint, tmp_path):
    """Files may have 10 kB here, so that writing fails half-way."""
    make_checkpoint(tmp_path / "run" / "checkpoint-1")
    limit, code = (10_000, 10_000), "from qwen3nb.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "average", "run", "mean", "--last", "1"],
        cwd=tmp_path,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert "mean" in done.stderr.splitlines()[-1]
    assert {each.name for each in tmp_path.iterdir()} <= {"home", "run"}
