"""Run child processes that are stopped together, with all their descendants."""

from __future__ import annotations

import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["STOPPED", "Children", "interrupted_by_sigterm", "kill_tree"]

STOPPED = -signal.SIGTERM  # status of what was not started, since all are stopped


class Children:
    """Processes that run until they end or all are stopped; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    def run(self, command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> int:
        """Run a command with its output in ``log`` and return the exit status.

        The child has its own session: Ctrl-C reaches only the parent, which then stops it.
        """
        with log.open("wb") as file:
            with self._lock:
                if self._stopped:
                    return STOPPED
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    env=dict(environment),
                    start_new_session=True,
                )
                self._running.add(process)
            status = process.wait()
        with self._lock:
            self._running.discard(process)
        return status

    def stop(self) -> None:
        """Kill the running processes with their kernels, and refuse new ones."""
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            kill_tree(process.pid)


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants, kernels included.

    Files are written atomically, so no process needs a warning first.
    """
    import psutil

    try:
        parent = psutil.Process(pid)
        family = [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return
    for process in reversed(family):
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    deadline = time.monotonic() + 10
    while any(map(_runs, family)) and time.monotonic() < deadline:
        time.sleep(0.02)


def _runs(process: Any) -> bool:
    """Whether a process is still running; a zombie is not."""
    import psutil

    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@contextmanager
def interrupted_by_sigterm() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C in the main thread; other threads cannot set a handler."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    earlier = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)
