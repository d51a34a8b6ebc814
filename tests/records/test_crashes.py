"""No fault loses a record, grade, run, page or release; see `helpers.fault_injection`."""

import errno

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
    "JUDGING": 10,
}
MOST = {"JUDGING": 10}  # of the states tried; `.ci/faults` tries all
FAULTS = [errno.ENOSPC, errno.EROFS, "clock", "slow"]


@pytest.fixture(scope="module")
def faults(shared_cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QWEN3NB_CACHE", str(shared_cache))  # which has PyDocs
        with fault_server("helpers.record_scenarios") as run:
            yield run


@pytest.mark.parametrize("name", LEAST)
def test_a_kill_at_any_file_operation_loses_nothing(faults, name):
    report = faults(name, most=MOST.get(name))
    assert report.broken == []
    assert report.tried >= LEAST[name]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["SWEEP", "JUDGING", "BOOK"])
def test_another_fault_loses_nothing_and_the_next_run_finishes(faults, name, fault):
    """At three of the operations; `.ci/faults` tries all."""
    report = faults(name, fault, most=3)
    assert report.broken == []
    assert report.tried >= (1 if fault == "slow" else 3)
