"""Run child processes that are stopped together, with all their descendants."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import click

from qwen3nb.cluster.processes import guarded

__all__ = ["STOPPED", "Children", "Interrupted", "Stopped", "interrupted_by_signals"]

STOPPED = -signal.SIGTERM  # status of what was not started, since all are stopped
_SIGNALS = (signal.SIGTERM, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else []))
_PATIENCE = 5.0  # seconds in which a guard ends a run


class Interrupted(KeyboardInterrupt):
    """Interrupted by a signal other than that of Ctrl-C.

    Attributes:
        number: the signal's number.
    """

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Stopped(click.ClickException):
    """A command was interrupted; the message says how to resume it.

    Its status is that of a shell: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, message: str, interruption: KeyboardInterrupt | None = None) -> None:
        super().__init__(message)
        number = interruption.number if isinstance(interruption, Interrupted) else signal.SIGINT
        self.exit_code = 128 + number  # type: ignore[misc]


class Children:
    """Processes that run until they end, all are stopped, or this process is gone; thread-safe."""

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
                    guarded(command),
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
        """End the running processes with all their descendants, and refuse new ones.

        Files are written atomically, so no process needs a warning first.
        """
        with self._lock:
            self._stopped = True
            running = list(self._running)
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(_PATIENCE)
            except subprocess.TimeoutExpired:  # the guard is stopped, or a process cannot be killed
                process.kill()


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Treat SIGTERM and a closed terminal as Ctrl-C; does so in the main thread alone.

    A signal that is ignored, as SIGHUP is below ``nohup``, stays so.

    Raises:
        Interrupted: as a KeyboardInterrupt of another signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    earlier = {number: signal.getsignal(number) or signal.SIG_DFL for number in _SIGNALS}
    heeded = [number for number in earlier if earlier[number] is not signal.SIG_IGN]
    for number in heeded:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, earlier[number])
