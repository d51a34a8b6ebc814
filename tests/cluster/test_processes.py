"""The guard of a run: whoever above it dies, the run ends with its family."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

# A raylet with a worker, whose run starts a process with a session of its own, as a kernel has.
RUN = """
import subprocess, sys
subprocess.run([sys.executable, "-c", sys.argv[1]], start_new_session=True)
"""
KERNEL = "import os, sys, time; open(sys.argv[1], 'w').write(str(os.getpid())); time.sleep(60)"
WORKER = """
import os, subprocess, sys
from pathlib import Path
from qwen3nb.cluster.processes import run_guarded
scratch = Path(sys.argv[1])
status = run_guarded(sys.argv[2:], scratch=scratch, log=scratch.with_name("log"),
                     environment=os.environ, folder=Path.cwd())
scratch.with_name("status").write_text(str(status))
"""
RAYLET = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"


def start(scratch, *command):
    scratch.mkdir()
    return subprocess.Popen([sys.executable, "-c", RAYLET, WORKER, str(scratch), *command])


def wait_for(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("victim", ["raylet", "worker", "waiter"])
def test_a_run_dies_with_what_is_above_it(tmp_path, victim):
    pid, scratch = tmp_path / "pid", tmp_path / "scratch"
    kernel = f"import sys; sys.argv[1:] = [{str(pid)!r}]; {KERNEL}"
    raylet = start(scratch, sys.executable, "-c", RUN, kernel)
    wait_for(lambda: pid.is_file() and pid.read_text())
    worker = psutil.Process(raylet.pid).children()[0]
    family = worker.children(recursive=True)
    assert int(pid.read_text()) in {each.pid for each in family}
    victims = {"raylet": raylet.pid, "worker": worker.pid, "waiter": worker.children()[0].pid}
    os.kill(victims[victim], signal.SIGKILL)
    if victim != "raylet":  # killed, that one stays a zombie: as dead as if it were gone
        raylet.wait(timeout=30)
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive
    assert not scratch.exists()
    if victim == "raylet":
        wait_for(lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE)
        raylet.wait()


KILLED = "import os; os.kill(os.getpid(), 9)"


@pytest.mark.parametrize(("code", "status"), [("print('said')", 0), ("exit(3)", 3), (KILLED, -9)])
def test_the_status_is_that_of_the_run(tmp_path, code, status):
    raylet = start(tmp_path / "scratch", sys.executable, "-c", code)
    raylet.wait(timeout=30)
    assert int((tmp_path / "status").read_text()) == status
    assert (tmp_path / "log").read_text() == ("said\n" if not status else "")
    assert (tmp_path / "scratch").exists()  # the worker reads it
