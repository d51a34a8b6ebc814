"""Calls that a file of others may make endless, bounded in processor time and memory."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Callable
from contextlib import suppress

_DONE, _FAILED = b"=", b"!"  # how the answer of the other process begins
_WAITING = 6  # times as long may a copy last that waits, such as for a thread that it lacks


class BoundError(ValueError):
    """A call that failed, or took too long, too much memory or a too large text; says which."""


def bounded_text(call: Callable[[], str], *, seconds: int, memory: int, most_bytes: int) -> str:
    """Return the text that ``call`` returns in a copy of this process.

    The copy has one thread, so the call must not wait for others. Where no process can be copied
    (Windows), it runs here without limits.

    Args:
        call: what may have no end.
        seconds: of processor time; a call that waits may last six times as long.
        memory: bytes beside those that this process has.
        most_bytes: of the text in UTF-8.

    Raises:
        BoundError: it took more, or raised an error.
    """
    if not hasattr(os, "fork"):
        return call()
    reading, writing = os.pipe()
    with warnings.catch_warnings():  # of threads, which the copy does not have
        warnings.simplefilter("ignore", DeprecationWarning)
        copy = os.fork()
    if copy == 0:
        _answer(call, writing, seconds=seconds, memory=memory)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        answer = stream.read(most_bytes + 2)
    with suppress(ProcessLookupError, ChildProcessError):  # ended, where SIGCHLD is ignored
        os.kill(copy, signal.SIGKILL)  # if it writes more
        os.waitpid(copy, 0)
    if not answer:
        raise BoundError(f"it takes more than {seconds} s, or {memory >> 20:,} MiB")
    if len(answer) > most_bytes + 1:
        raise BoundError(f"it gives more than {most_bytes:,} bytes")
    text = answer[1:].decode("utf-8", errors="replace")
    if answer.startswith(_FAILED):
        raise BoundError(text)
    return text


def _answer(call: Callable[[], str], writing: int, *, seconds: int, memory: int) -> None:
    """Write the text of a call, or its error, and end this process at once."""
    try:
        _limit(seconds, memory)
        try:
            content = _DONE + call().encode("utf-8", errors="replace")
        except MemoryError:
            content = _FAILED + f"it needs more than {memory >> 20:,} MiB".encode()
        except Exception as error:  # noqa: BLE001 - of any library; the caller says what failed
            reason = f"{type(error).__name__}: {error}"[:1000]
            content = _FAILED + reason.encode("utf-8", errors="replace")
        with os.fdopen(writing, "wb") as stream:
            stream.write(content)
    finally:
        # Without what a process does at its end: that is of the one it is a copy of.
        os.kill(os.getpid(), signal.SIGKILL)


def _limit(seconds: int, memory: int) -> None:
    """Limit what this process may use from now on."""
    import resource

    import psutil

    signal.signal(signal.SIGXCPU, signal.SIG_DFL)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(_WAITING * seconds)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    most = psutil.Process().memory_info().vms + memory
    with suppress(ValueError, OSError):  # a system that does not limit memory so
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
