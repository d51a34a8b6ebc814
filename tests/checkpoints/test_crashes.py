"""A kill or a full disk loses nothing; see `helpers.fault_injection`."""

import errno

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


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("name", ["AVERAGE", "EXTRACT", "ENCODE"])
def test_a_system_error_is_one_line_and_leaves_nothing_half_written(faults, name, code):
    report = faults(name, code)
    assert report.broken == []
    assert report.tried >= 10


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EROFS, "clock", "slow"])
def test_parts_are_finished_after_another_fault(faults, fault):
    report = faults("SHARDS", fault, most=3)
    assert report.broken == []


@pytest.mark.parametrize("fault", ["clock", "slow"])
def test_a_clock_or_a_slow_disk_changes_no_vector(faults, fault):
    assert faults("ENCODE", fault, most=2).broken == []
