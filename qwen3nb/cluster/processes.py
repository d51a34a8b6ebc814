"""A process of a Ray task that ends when its worker does, or the node's Ray, with its family.

Ray ends only its own workers. What a worker has started lives on, and a notebook's kernel has a
session of its own. A guard is therefore the parent of the process: it looks every fifth of a
second whether the worker and the raylet above it still live; if not, Ray counts the task as lost
and repeats it elsewhere, so the guard kills the process with all its descendants, and removes
what they have written.

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


def guard(worker: int, raylet: int, scratch: Path, command: Sequence[str]) -> int:
    """Run a command until it ends or its worker or raylet is gone; return a shell's status."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0)
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    while child.poll() is None:
        if not _serves(worker, raylet):
            _kill_family()
            shutil.rmtree(scratch, ignore_errors=True)
            if os.getppid() == worker:  # else the driver is not told until the worker ends
                os.kill(worker, signal.SIGKILL)
            return _LOST
        time.sleep(_SECONDS)
    _kill_family()
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def _serves(worker: int, raylet: int) -> bool:
    """Whether our parent is still the worker, and its parent a raylet that lives."""
    try:
        return (
            os.getppid() == worker
            and psutil.Process(worker).ppid() == raylet
            and psutil.Process(raylet).status() != psutil.STATUS_ZOMBIE
        )
    except psutil.NoSuchProcess:
        return False


def _kill_family() -> None:
    for process in psutil.Process().children(recursive=True):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


if __name__ == "__main__":
    _worker, _raylet, _scratch, *_command = sys.argv[1:]
    sys.exit(guard(int(_worker), int(_raylet), Path(_scratch), _command))
