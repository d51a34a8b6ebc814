"""A kill or a full disk at any file operation loses nothing; see `helpers.fault_injection`."""

import errno
import time

import pytest
from helpers.fault_injection import fault_server

NAMES = ("AVERAGE", "EXTRACT", "TWO_RENAMES", "ENCODE", "SHARDS")


@pytest.fixture(scope="module")
def faults(tmp_path_factory):
    with fault_server(tmp_path_factory.mktemp("faults")) as server:
        yield server


@pytest.mark.parametrize("name", NAMES)
def test_a_kill_at_any_file_operation_loses_nothing(faults, name):
    t = time.time()
    report = faults.kill_everywhere(f"helpers.folder_scenarios:{name}")
    print(name, report.tried, len(report.broken), time.time() - t)
    print("\n".join(report.operations))
    assert report.broken == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE])
@pytest.mark.parametrize("name", NAMES)
def test_an_error(faults, name, code):
    t = time.time()
    report = faults.fail_everywhere(f"helpers.folder_scenarios:{name}", code)
    print(name, errno.errorcode[code], report.tried, len(report.broken), time.time() - t)
    print("\n".join(report.messages[:3]))
    assert report.broken == []
