"""The guard of a run: whoever above it dies, the run ends with its family and its files."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from qwen3nb.cluster.processes import guarded_command

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


def running(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(condition):
    deadline = time.monotonic() + 240
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.integration
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
        raylet.wait(timeout=240)
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not [each for each in alive if running(each)]
    assert not scratch.exists()
    if victim == "raylet":
        wait_for(lambda: not running(worker))
        raylet.wait()


KILLED = "import os; os.kill(os.getpid(), 9)"


@pytest.mark.parametrize(("code", "status"), [("print('said')", 0), ("exit(3)", 3), (KILLED, -9)])
def test_the_status_is_that_of_the_run(tmp_path, code, status):
    raylet = start(tmp_path / "scratch", sys.executable, "-c", code)
    raylet.wait(timeout=240)
    assert int((tmp_path / "status").read_text()) == status
    assert (tmp_path / "log").read_text() == ("said\n" if not status else "")
    assert (tmp_path / "scratch").exists()  # the worker reads it


# A run that holds the interpreter, after it has started an orphan with a session of its own,
# which nothing above it knows, and shared memory, which a process removes once all others are gone.
FAMILY = """
import json, os, subprocess, sys, tempfile
from multiprocessing import resource_tracker, shared_memory
block = shared_memory.SharedMemory(create=True, size=8)
sleeper = "import subprocess; print(subprocess.Popen(['sleep', '300'], stdout=-3).pid)"
orphan = subprocess.run([sys.executable, "-c", sleeper], stdout=subprocess.PIPE, check=True,
                        start_new_session=True).stdout
with open(os.path.join(tempfile.mkdtemp(), "x"), "w"):
    pids = [os.getpid(), int(orphan), resource_tracker._resource_tracker._pid]
json.dump([pids, tempfile.gettempdir(), block.name], open(sys.argv[1] + ".new", "w"))
os.rename(sys.argv[1] + ".new", sys.argv[1])
"""
OWNER = """
import subprocess, sys
from pathlib import Path
from qwen3nb.cluster.processes import guarded_command
run = guarded_command(sys.argv[2:], remove=[Path(sys.argv[1])], scratch=True)
guard = subprocess.Popen(run, start_new_session=True)
print(guard.pid, flush=True)
sys.exit(-guard.wait() % 256)
"""


@pytest.mark.integration
@pytest.mark.parametrize(
    ("end", "left"),
    [
        ("", 0),
        ("owner killed", 0),
        ("owner stopped and killed", 0),
        ("guard ended", 0),
        ("guard killed", 2),
    ],
)
def test_nothing_outlives_a_run(tmp_path, end, left):
    report, connection = tmp_path / "report", tmp_path / "connection"
    connection.write_text("{}")
    run = [sys.executable, "-c", FAMILY + ("sum(range(10**12))" if end else ""), str(report)]
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(connection), *run], stdout=subprocess.PIPE, text=True
    )
    guard = psutil.Process(int(owner.stdout.readline()))
    wait_for(report.is_file)
    pids, scratch, block = json.loads(report.read_text())
    family = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    if end.startswith("owner"):
        if "stopped" in end:
            owner.send_signal(signal.SIGSTOP)
        owner.kill()
    elif end:
        guard.terminate() if end == "guard ended" else guard.kill()
    owner.communicate(timeout=240)
    _, alive = psutil.wait_procs([*family, guard], timeout=1 if left else 60)
    # What nobody waits for, as where the first process of a container reaps nothing, is as dead.
    alive = [each for each in alive if running(each)]
    for each in alive:
        each.kill()
    assert len(alive) <= (left if sys.platform == "linux" else 3), alive
    if not left:
        assert not connection.exists()
        assert not Path(scratch).exists()
        assert not (Path("/dev/shm") / block).exists()  # noqa: S108 - where Linux keeps it


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGSEGV])
def test_a_guard_passes_an_interrupt_on_and_ends_as_its_run_does(number):
    code = "import signal, sys; print('began', flush=True); signal.pause()"
    guard = subprocess.Popen(
        guarded_command([sys.executable, "-c", code]),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert guard.stdout.readline() == "began\n"
    if number == signal.SIGINT:
        guard.send_signal(number)
    else:
        (run,) = psutil.Process(guard.pid).children()
        run.send_signal(number)
    guard.communicate(timeout=240)
    assert guard.returncode == -number
