"""A kill at any file operation loses no record, run, page or book."""

import pytest
from helpers.fault_injection import fault_server

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    with fault_server(tmp_path_factory.mktemp("faults")) as server:
        yield server


@pytest.mark.parametrize("name", ["RECORD", "EVALUATION", "RERANKING", "SWEEP", "BOOK", "RELEASE"])
def test_a_kill_at_any_file_operation_loses_nothing(faults, name):
    report = faults.kill_everywhere(f"helpers.record_scenarios:{name}")
    assert report.broken == []
    assert report.tried > 12
