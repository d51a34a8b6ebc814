"""Processes that a test has started and left running: found by their environment, and ended.

Every process inherits the variable `MARK` of the pytest process above it, and pytest's variable
with the name of the test. A test that fails or is out of time thus leaves nothing that computes on,
whatever sessions and parents its processes have. As a plug-in of pytest, this file ends what a
failed test has left. As a program, it waits until pytest is gone, however it ended, and ends what
is left then:

    python -P leftovers.py PID MARK
"""

import os
import subprocess
import sys
import time

MARK = "QWEN3NB_TEST_PROCESS"
TEST = "PYTEST_CURRENT_TEST"  # set by pytest: the id of the test and its phase
_ROUNDS = 3  # what was started while others were ended is found in the next one
_SECONDS = 1.0  # between two looks at pytest
# They remove shared memory once its users are gone, and serve the tests that follow.
_CLEANER = "resource_tracker"
_MOMENT = 2.0  # seconds for what ends by itself once pytest has ended


def left(mark, test=""):
    """Return the processes with a mark; with ``test``, those that its call has started."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            environment = process.environ()
            ours = environment.get(MARK) == mark and process.pid != os.getpid()
            if not ours or process.status() == psutil.STATUS_ZOMBIE:
                continue
            cleans = any(_CLEANER in word for word in process.cmdline())
        except (psutil.Error, OSError):  # gone, or of another user
            continue
        # Fixtures of a module start theirs before the call.
        if not test or (environment.get(TEST, "").startswith(f"{test} (call)") and not cleans):
            found.append(process)
    return found


def end_left(mark, test=""):
    """Kill the processes of `left`."""
    import psutil

    for _ in range(_ROUNDS):
        for process in left(mark, test):
            try:
                process.kill()
            except psutil.Error:  # gone
                continue


def pytest_configure(config):
    """Mark what this process will start, and start what ends it if this process is killed."""
    in_parallel = "PYTEST_XDIST_WORKER" in os.environ
    if config.getoption("numprocesses", 0) and not in_parallel:
        return  # it runs no tests, but the workers that do
    pid = str(os.getpid())
    unmarked = {name: value for name, value in os.environ.items() if name != MARK}
    os.environ[MARK] = f"{pid}.{time.time_ns()}"
    subprocess.Popen(
        [sys.executable, "-P", __file__, pid, os.environ[MARK]],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=unmarked,
        start_new_session=True,
    ).returncode = 0  # nobody waits for it: it outlives this process


def pytest_runtest_logreport(report):
    """End what a failed test has left, also one that is out of time."""
    if report.when == "call" and report.failed and MARK in os.environ:
        end_left(os.environ[MARK], report.nodeid)


if __name__ == "__main__":
    while os.getppid() == int(sys.argv[1]):
        time.sleep(_SECONDS)
    time.sleep(_MOMENT)
    end_left(sys.argv[2])
