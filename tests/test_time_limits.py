"""Every test has a limit of time, and a test that is out of time leaves nothing that runs."""

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

HANGS = """
import subprocess, sys, time
from pathlib import Path
import pytest

BUSY = [sys.executable, "-S", "-c", "sum(range(10**12))"]

def busy(name):
    process = subprocess.Popen(BUSY, start_new_session=True)
    Path(__file__).with_name(name).write_text(str(process.pid))
    return process

@pytest.fixture(scope="module")
def served():
    process = busy("fixture")
    yield process
    process.kill()
    process.wait()

@pytest.mark.timeout({seconds})
def test_hangs(served):
    busy("test")
    {hang}

def test_goes_on(served):
    assert served.poll() is None
"""
# What no signal of Python's reaches.
NATIVE = "sum(range(10**12))"


def run_pytest(folder, *options, seconds, hang):
    folder.joinpath("test_it.py").write_text(HANGS.format(seconds=seconds, hang=hang))
    helpers = Path(__file__).parent
    command = [sys.executable, "-m", "pytest", "-p", "helpers.leftovers", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-W", "ignore", "-c", os.devnull, "--rootdir", str(folder), *options, "-n", "0"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(helpers)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        timeout=240,
    )
    pids = {name: int((folder / name).read_text()) for name in ("fixture", "test")}
    return done, pids


def wait_for_the_end(pids):
    """Of all that was started; the watcher looks once a second."""
    deadline = time.monotonic() + 240
    while any(map(runs, pids.values())):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def runs(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.integration
def test_a_test_that_hangs_fails_and_leaves_no_process(tmp_path):
    done, pids = run_pytest(tmp_path, seconds=1, hang="time.sleep(60)")
    assert "1 failed, 1 passed" in done.stdout, done.stdout
    assert "Timeout (>1.0s)" in done.stdout
    assert not runs(pids["test"])
    wait_for_the_end(pids)


@pytest.mark.integration
def test_a_test_in_native_code_ends_with_its_process(tmp_path):
    options = ["-o", "faulthandler_timeout=2", "-o", "faulthandler_exit_on_timeout=true"]
    done, pids = run_pytest(tmp_path, *options, seconds=1, hang=NATIVE)
    assert done.returncode == 1
    assert "1 passed" not in done.stdout  # the process has ended before the second test
    wait_for_the_end(pids)


def test_every_test_has_a_limit(pytestconfig):
    assert pytestconfig.getini("timeout") == "600"
    assert float(pytestconfig.getini("faulthandler_timeout")) > 600
    assert pytestconfig.getini("faulthandler_exit_on_timeout")
