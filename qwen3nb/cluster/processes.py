"""A process of a Ray task that ends when its worker does, or the node's Ray, with its family.

Ray ends its workers and what they started themselves, but not what that started in turn, such as
a notebook's kernel, and nothing at all if the node's Ray is killed. A guard is therefore the
parent of the process: it looks every fifth of a second whether the processes above it still live;
if not, Ray counts the task as lost and repeats it elsewhere, so the guard kills the process with
all its descendants, and removes what they have written. Above the guard is a process that only
waits for it, for Ray to end in its place.

    python -m qwen3nb.cluster.processes WORKER RAYLET SCRATCH COMMAND...
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

__all__ = ["run_guarded"]

_SECONDS = 0.2  # between two looks
_LOST = 128 + signal.SIGKILL
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphaned descendants become children of the guard


def run_guarded(
    command: Sequence[str],
    *,
    scratch: Path,
    log: Path,
    environment: Mapping[str, str],
    folder: Path,
) -> int:
    """Run a command from a Ray task and return its exit status, negative for a signal.

    Args:
        command: the program and its arguments.
        scratch: removed if the worker or the raylet dies.
        log: file for its output.
        environment: all its variables.
        folder: its working directory.
    """
    above = [str(os.getpid()), str(os.getppid()), str(scratch)]
    with log.open("wb") as output:
        done = subprocess.run(
            [sys.executable, "-m", "qwen3nb.cluster.processes", *above, *command],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=dict(environment), cwd=folder, check=False, start_new_session=True,
        )  # fmt: skip
    status = done.returncode
    return 128 - status if status > 128 else status


def guard(above: Sequence[int], scratch: Path, command: Sequence[str]) -> int:
    """Run a command until it ends or a process above is gone; return a shell's status.

    Args:
        above: our parent, its parent and so on: the last but one is the worker.
        scratch: removed with the command.
        command: the program and its arguments.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while child.poll() is None:
        if not _alive(above):
            _kill_family()
            shutil.rmtree(scratch, ignore_errors=True)
            if _alive(above[:-1]):  # only Ray is dead: the driver is told once the worker is, too
                os.kill(above[-2], signal.SIGKILL)
            return _LOST
        time.sleep(_SECONDS)
    _kill_family()
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _alive(above: Sequence[int]) -> bool:
    """Whether each process is still the parent of the one before; a zombie is not alive."""
    try:
        process = psutil.Process()
        for pid in above:
            if process.ppid() != pid:
                return False
            process = psutil.Process(pid)
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _kill_family() -> None:
    for process in psutil.Process().children(recursive=True):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def start_guard(worker: str, raylet: str, scratch: str, *command: str) -> int:
    """Run a command with a guard, and wait for the guard."""
    above = [os.getpid(), int(worker), int(raylet)]
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return guard(above, Path(scratch), command)


if __name__ == "__main__":
    sys.exit(start_guard(*sys.argv[1:]))
