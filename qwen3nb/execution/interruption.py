"""Interruptions: signals that end a command as Ctrl-C does."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

_SIGNALS = [signal.SIGTERM]
if hasattr(signal, "SIGHUP"):  # not on Windows
    _SIGNALS.append(signal.SIGHUP)


class SignalInterrupt(KeyboardInterrupt):
    """An interruption by a signal other than SIGINT."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Interrupted(click.ClickException):
    """A command was interrupted; the message says how to resume it.

    Its status is that of a shell: 130 for Ctrl-C, 143 for SIGTERM.
    """

    def __init__(self, message: str, interruption: KeyboardInterrupt | None = None) -> None:
        super().__init__(message)
        number = getattr(interruption, "number", signal.SIGINT)
        self.exit_code = 128 + number  # type: ignore[misc]


@contextmanager
def interrupted_by_signals() -> Iterator[None]:
    """Treat SIGTERM and a closed terminal as Ctrl-C, in the main thread.

    Ignored signals, such as SIGHUP with ``nohup``, stay ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise SignalInterrupt(number)

    earlier_handlers = {}
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        # An ignored signal stays ignored, such as SIGHUP under nohup.
        if handler is not signal.SIG_IGN:
            earlier_handlers[number] = handler or signal.SIG_DFL  # None: not set by Python
    for number in earlier_handlers:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in earlier_handlers.items():
            signal.signal(number, handler)
