"""Child processes, whose exit status this process learns although it ignores SIGCHLD.

A program inherits ignored signals from the one that started it: from a shell's `&`, nohup, or some
servers. Where SIGCHLD is ignored, the system drops the exit status of every child, and Python takes
each for a success.

What a child printed last often says why it failed; see `last_line`.
"""

import ctypes
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path


def run_program(
    command: Sequence[str],
    *,
    timeout: float | None = None,
    environment: Mapping[str, str] | None = None,
    own_session: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; return its exit status and its output as texts.

    Args:
        command: the command.
        timeout: seconds after which it is killed, and `subprocess.TimeoutExpired` raised.
        environment: all its variables; by default those of this process.
        own_session: whether it gets a session of its own: Ctrl-C then reaches only this process.
    """
    keep_exit_statuses()  # or a failed command could look like a success
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
        env=environment,
        start_new_session=own_session,
    )


def keep_exit_statuses() -> None:
    """Let this process learn how its children end, even if it was started with SIGCHLD ignored.

    The setting is one of the whole process, so it stays once it is made. To be called, from any
    thread, before a child is started in another way than by `run_program`.
    """
    if not hasattr(signal, "SIGCHLD"):  # Windows
        return
    # Inherited from a shell's & or nohup: the exit status of every child would be lost.
    if signal.getsignal(signal.SIGCHLD) is not signal.SIG_IGN:
        return
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        return
    # Python sets signals in its main thread only; the function of the C library does in any.
    libc = ctypes.CDLL(None)
    libc.signal.argtypes = (ctypes.c_int, ctypes.c_void_p)
    libc.signal.restype = ctypes.c_void_p
    default_handler = None  # SIG_DFL is a null pointer
    libc.signal(signal.SIGCHLD, default_handler)


def last_line(log: Path) -> str:
    """Return the last line of an output that is not blank; empty if there is none."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in reversed(lines):
        if line.strip():
            return line.strip()
    return ""
