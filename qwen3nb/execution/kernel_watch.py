"""Notice a kernel that does nothing while its client waits for the end of a cell.

A kernel can lose the request of a cell, or its client the reply. Both then wait for ever: the
kernel takes no processor time, and sends no message. Known causes are in ipykernel 7.0 to 7.3:
https://github.com/ipython/ipykernel/pull/1529 and https://github.com/ipython/ipykernel/issues/1554.
Threads of a cell that wait for each other look the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

IDLE_SECONDS = 600.0  # until a kernel counts as stalled
# Seconds of processor time that count as work. In ten minutes, an idle kernel takes 0.2, and one
# that waits for the lock of another process, 2.8.
_LEAST_WORK = 1.0
_SECONDS_BETWEEN_LOOKS = 5.0


class StalledKernelError(RuntimeError):
    """A kernel did nothing for minutes, although a cell had not ended."""


class KernelWatch:
    """Remembers when a kernel last worked or sent a message."""

    def __init__(
        self,
        *,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.idle_seconds = idle_seconds
        self._clock = clock
        self._last_sign = clock()  # of life
        self._last_look = 0.0
        self._work_at_last_sign = 0.0  # seconds of processor time

    def note_message(self) -> None:
        """Note that the kernel has sent a message."""
        self._last_sign = self._clock()

    def has_stalled(self, guard_pid: int | None) -> bool:
        """Return whether a kernel has shown no sign of life for `idle_seconds`.

        ``guard_pid`` is the process that has started the kernel; its descendants are looked at.
        """
        now = self._clock()
        if guard_pid is None or now - self._last_look < _SECONDS_BETWEEN_LOOKS:
            return False
        self._last_look = now
        work = processor_seconds(guard_pid)
        # Less than before: a child has ended, whose time is gone with it.
        if work < self._work_at_last_sign or work - self._work_at_last_sign >= _LEAST_WORK:
            self._work_at_last_sign = work
            self._last_sign = now
        return now - self._last_sign >= self.idle_seconds


def processor_seconds(pid: int) -> float:
    """Return the seconds of processor time of all descendants of a process."""
    import psutil  # not needed by a run that ends within seconds

    seconds = 0.0
    with suppress(psutil.Error):  # the process has ended
        for process in psutil.Process(pid).children(recursive=True):
            with suppress(psutil.Error):  # it has just ended
                times = process.cpu_times()
                seconds += times.user + times.system
    return seconds
