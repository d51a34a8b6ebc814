"""Processes that end with the one that started them, with all their descendants.

Killing a process does not end its children: neither the kernel of a notebook, which has its own
session, nor the workers of that kernel. Every long run therefore has a guard process as its parent.
The guard ends the run with all descendants on SIGTERM, or once the process that requested it is
gone, however that died; it also ends leftover descendants of a finished run. It checks its own
parent every fifth of a second, so neither busy native code nor a reused process id can deceive it.
If the guard itself is killed on Linux, so is the run.

On Linux, orphaned descendants become children of the guard, so none is missed. Elsewhere, the guard
misses descendants whose parents are all gone.

Ray ends its workers and their children, but nothing if the node's Ray is killed. The guard of a run
on a cluster therefore also watches the worker and the node's Ray; its parent is a process that only
waits for it, which Ray ends in its place.

This file runs as a program without the package, to start quickly:

    python -P processes.py ORDERS COMMAND...
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress

# Imports are minimal and late: a run waits for its guard.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any, TypedDict, Unpack

    class Orders(TypedDict, total=False):
        """What a guard does, besides running a command; see `guard` and `main`."""

        owners: Sequence[int]
        remove: Iterable[Path | str]
        scratch: bool
        if_lost: str
        waiter: bool


_SECONDS = 0.2  # between two looks
_MOMENT = 2.0  # seconds for processes that clean up after others
_PATIENCE = 4.0  # seconds to wait for a killed process
_DEATH_SIGNAL, _SUBREAPER = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER
# Command prefixes of processes that remove shared memory and temporary files after their users:
# resource trackers of multiprocessing and joblib, and other guards.
_CLEANERS = (
    "from multiprocessing.resource_tracker import ",
    "from joblib.externals.loky.backend.resource_tracker import ",
    "from loky.backend.resource_tracker import ",
    __file__,
)


def guarded(command: Sequence[str], **orders: Unpack[Orders]) -> list[str]:
    """Return the command that runs ``command`` with a guard; this process must start it.

    Its status and output are those of ``command``. On SIGTERM, it ends with all descendants of
    ``command``; it passes SIGINT on. No guard on Windows. The owner is this process by default.
    """
    if os.name != "posix":
        return list(command)
    text = json.dumps({"owners": [os.getpid()], **orders}, default=str)
    return [sys.executable, "-P", __file__, text, *command]


def start_guarded(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: Path | None = None,
    folder: Path | None = None,
    **orders: Unpack[Orders],
) -> subprocess.Popen[bytes]:
    """Start a command with a guard, in a session of its own: Ctrl-C reaches only this process.

    Args:
        command: the command.
        environment: all its variables.
        log: the file that gets its output; by default it prints where this process does.
        folder: its working directory; by default that of this process.
        orders: see `guarded`.
    """
    from qwen3nb.utils.signals import heed_children

    heed_children()
    with ExitStack() as stack:
        output = stack.enter_context(log.open("wb")) if log else None
        return subprocess.Popen(
            guarded(command, **orders),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT if log else None,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )


def run_guarded(
    command: Sequence[str],
    *,
    scratch: Path,
    log: Path,
    environment: Mapping[str, str],
    folder: Path,
) -> int:
    """Run a command from a Ray task and return its exit status, negative for a signal.

    ``log`` gets its output; ``scratch`` is removed if the worker or the raylet dies.
    """
    process = start_guarded(
        command,
        environment=environment,
        log=log,
        folder=folder,
        owners=[os.getpid(), os.getppid()],
        if_lost=str(scratch),
        waiter=True,
    )
    return process.wait()


def guard(
    command: Sequence[str],
    *,
    owners: Sequence[int],
    remove: Iterable[str] = (),
    scratch: bool = False,
    if_lost: str = "",
) -> int:
    """Run a command until it ends, an owner is gone or a signal arrives; return its status.

    ``owners`` are process ids of the parent, its parent and so on. Files to ``remove`` and, with
    ``scratch``, a folder for temporary files are removed afterwards; the folder ``if_lost`` if an
    owner is gone.
    """
    environment = {**os.environ, "JPY_PARENT_PID": str(os.getpid())}  # process watched by a kernel
    leftovers = [*remove]
    if scratch:
        import tempfile

        environment["TMPDIR"] = tempfile.mkdtemp(prefix="qwen3nb-")
        leftovers.append(environment["TMPDIR"])
    with _signals() as received:
        child = _started(command, environment)
        ended = _watched(child, owners, received)
        _end_family(child)
    lost = not _alive(owners)
    if lost and if_lost:
        leftovers.append(if_lost)
    _remove(leftovers)
    if lost and _alive(owners[:-1]):  # only Ray is dead: the driver notices once the worker is
        os.kill(owners[-2], signal.SIGKILL)
    if not ended:
        return -signal.SIGKILL
    return child.returncode


def _remove(leftovers: Iterable[str]) -> None:
    """Remove files and folders, as far as that is possible."""
    for path in leftovers:
        import shutil

        shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):  # a folder, or gone
            os.unlink(path)  # noqa: PTH108 - without the import of pathlib


@contextmanager
def _signals() -> Iterator[Callable[[float], set[int]]]:
    """Yield a function that waits for seconds or a signal, and returns the received signals."""
    reading, writing = os.pipe()
    for end in (reading, writing):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)

    def received(seconds: float) -> set[int]:
        ready, _, _ = select.select([reading], [], [], seconds)
        if not ready:
            return set()
        return set(os.read(reading, 512))

    yield received


def _started(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a command that, on Linux, dies with this process."""
    me = os.getpid()
    system = ctypes.CDLL(None) if sys.platform == "linux" else None
    if system:
        system.prctl(_SUBREAPER, 1, 0, 0, 0)

    def die_with_guard() -> None:  # the signal is sent when the starting thread ends: the only one
        if system:
            system.prctl(_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != me:
            os._exit(1)

    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
        preexec_fn=die_with_guard,
    )


def _watched(
    child: subprocess.Popen[bytes], owners: Sequence[int], received: Callable[[float], set[int]]
) -> bool:
    """Wait until a child ends; return False if it has to be ended."""
    while not _reaped(child):
        numbers = received(_SECONDS)
        if not _alive(owners) or {signal.SIGTERM, signal.SIGHUP} & numbers:
            return _reaped(child)
        if signal.SIGINT in numbers:
            with suppress(ProcessLookupError, PermissionError):  # it has just ended
                os.killpg(child.pid, signal.SIGINT)
    return True


def _reaped(child: subprocess.Popen[bytes]) -> bool:
    """Reap ended processes, including orphans; return whether ``child`` has ended."""
    with suppress(ChildProcessError):  # none is left
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child.pid:
                child.returncode = os.waitstatus_to_exitcode(status)
    return child.returncode is not None


def _alive(owners: Sequence[int]) -> bool:
    """Return whether each process is still the parent of the previous one, and not a zombie."""
    if not owners or os.getppid() != owners[0]:
        return False
    if len(owners) == 1:
        return True
    import psutil

    try:
        process = psutil.Process(owners[0])
        for pid in owners[1:]:
            if process.ppid() != pid:
                return False
            process = psutil.Process(pid)
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _end_family(child: subprocess.Popen[bytes]) -> None:
    """Kill all descendants; processes that clean up get some time first."""
    started = time.monotonic()
    while not _reaped(child) or _has_family():
        import psutil

        elapsed = time.monotonic() - started
        if elapsed > _PATIENCE:
            return
        for process in _family():
            with suppress(psutil.Error):  # gone, or of another user
                if elapsed > _MOMENT or not _cleans_up(process):
                    process.kill()
        time.sleep(0.01)


def _cleans_up(process: Any) -> bool:
    """Return whether a process removes files after others; False also if it cannot be seen."""
    import psutil

    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return any(word.startswith(_CLEANERS) for word in words)


def _has_family() -> bool:
    """Return whether there is a descendant; fast on Linux, elsewhere by a search."""
    if sys.platform != "linux":
        return bool(_family())
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def _family() -> list[Any]:
    import psutil

    return list(psutil.Process().children(recursive=True))


def _end_as(status: int) -> None:
    """Exit with the status of another process: by the same signal if one killed it."""
    if status < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if -status != signal.SIGKILL:
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


def main(text: str, *command: str) -> None:
    """Guard a command, and exit with its status.

    ``text`` has keywords of `guard` as JSON, and ``waiter``: whether to put a waiting process
    between the first owner and the guard.
    """
    orders = json.loads(text)
    if hasattr(signal, "SIGCHLD"):  # where ignored, the status of a child is lost
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if orders.pop("waiter", False):
        waiter = os.getpid()
        pid = os.fork()
        if pid:
            _end_as(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        orders["owners"].insert(0, waiter)
    _end_as(guard(command, **orders))


if __name__ == "__main__":
    main(*sys.argv[1:])
