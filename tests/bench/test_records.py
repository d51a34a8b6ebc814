"""The benchmark of what reads many records."""

import pytest
from click.testing import CliRunner

from qwen3nb.bench.synthetic_records import RecordSet, write_records
from qwen3nb.cli.main import main
from qwen3nb.records.store import load_results, verify


def test_synthetic_records_hold(tmp_path):
    wanted = RecordSet(models=3, tasks=2, seeds=2, queries=30)
    assert write_records(tmp_path, wanted, processes=1) == len(wanted) == 12
    records = load_results(tmp_path)
    assert len(records) == 12
    assert verify(tmp_path) == []
    assert len({record.scores.queries for record in records.filter(task="ArguAna")}) == 1
    assert all(len(record.config["top"]) == 30 for record in records)
    scores = {record.scores.array("nDCG@10").tobytes() for record in records}
    assert len(scores) == 12  # no two are the same


@pytest.mark.integration
def test_the_bench_of_records(home, tmp_path):
    size = ["--models", "2", "--tasks", "1", "--seeds", "1", "--queries", "20"]
    arguments = ["bench", "records", *size, "--folder", str(tmp_path / "records"), "--only"]
    done = CliRunner().invoke(main, [*arguments, "load_results"])
    assert done.exit_code == 0, done.output
    assert "| 10 s, 0.3 GB |" in done.output
    assert "2 records written" in done.output
    again = CliRunner().invoke(main, [*arguments, "nothing"])
    assert "expected one of load_results, leaderboard" in again.output
    other = CliRunner().invoke(main, [*arguments, "load_results", "--queries", "9"])
    assert "expected an empty folder" in other.output
