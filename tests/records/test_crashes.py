"""A kill at any file operation loses no record, run, page or release."""

import pytest
from helpers.fault_injection import fault_server

pytestmark = pytest.mark.integration
# Scenarios, with the least number of states that a kill may leave.
LEAST = {
    "RECORD": 10,
    "EVALUATION": 50,
    "RERANKING": 25,
    "SWEEP": 20,
    "RELEASE": 20,
    "DOMAIN": 20,
    "BOOK": 5,
}


@pytest.fixture(scope="module")
def faults(shared_cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QWEN3NB_CACHE", str(shared_cache))  # which has PyDocs
        with fault_server("helpers.record_scenarios") as run:
            yield run


@pytest.mark.parametrize("name", LEAST)
def test_a_kill_at_any_file_operation_loses_nothing(faults, name):
    report = faults(name)
    assert report.broken == []
    assert report.tried >= LEAST[name]
