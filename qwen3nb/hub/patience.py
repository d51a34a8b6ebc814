"""How long the hub may be silent: a clock that progress sets back, and waits that end."""

from __future__ import annotations

import contextvars
import os
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from qwen3nb.hub.errors import HubError

_SECONDS = 8.0
_VARIABLE = "QWEN3NB_HUB_TIMEOUT"
_TRIES = 5  # in a row without progress
Outcome = TypeVar("Outcome")


class Silence(TimeoutError):  # noqa: N818 - may be tried again
    """A server sent nothing, or hardly anything, for the time of one try."""


def silence_limit() -> float:
    """Return the seconds that the hub may be silent in all, retries included; by default 8.

    Raises:
        HubError: ``QWEN3NB_HUB_TIMEOUT`` is not a positive number.
    """
    text = os.environ.get(_VARIABLE, "")
    try:
        seconds = float(text) if text else _SECONDS
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise HubError(f"{_VARIABLE}: expected seconds, such as 60; got {text[:40]!r}")
    return seconds


class Patience:
    """The time that a request may go without progress, over all its tries.

    A long download is not limited: each part of it that arrives is progress.
    """

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.progress()

    def progress(self) -> None:
        """Start anew: something useful has arrived."""
        self._since, self._tries = time.monotonic(), 0

    def left(self) -> float:
        """Return the seconds until nothing more is tried."""
        return self.limit - (time.monotonic() - self._since)

    def of_a_try(self) -> float:
        """Return the seconds that the next try may be silent: half of all, or what is left."""
        return max(min(self.limit / 2, self.left()), self.limit / 20)

    def pause(
        self, error: HubError, *, seconds: float | None = None, tries: int | None = None
    ) -> None:
        """Wait before another try, longer each time, or as long as the server asks for.

        Args:
            error: why the last try failed.
            seconds: what the server asks for.
            tries: how many in a row are of use.

        Raises:
            HubError: ``error``, if the wait would take too long or too many tries failed.
        """
        wait = self.limit / 20 * 2**self._tries if seconds is None else seconds
        self._tries += 1
        if self._tries >= (tries or _TRIES) or wait >= self.left():
            raise error
        time.sleep(wait)


def bounded(
    call: Callable[[], Outcome], seconds: float, *, moved: Callable[[], float] | None = None
) -> Outcome:
    """Return ``call()``, which runs in a thread of its own and is left behind if it is late.

    A client's own timeouts count anew with every byte, and not at all while a name is looked up.

    Args:
        call: what may take too long.
        seconds: how long it may take.
        moved: the time of the last byte of an upload; the seconds count from there.

    Raises:
        Silence: it takes longer.
    """
    outcomes: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            outcomes.put((call(), None))
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            outcomes.put((None, error))

    started = time.monotonic()
    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), daemon=True).start()
    while (left := max(started, moved() if moved else 0.0) + seconds - time.monotonic()) > 0:
        try:
            value, error = outcomes.get(timeout=left)
        except queue.Empty:
            continue
        if error is not None:
            raise error
        return value
    raise Silence
