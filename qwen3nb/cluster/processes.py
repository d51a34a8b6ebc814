"""Processes that end with the one that started them, with all their descendants.

Killing a process does not end its children: neither the kernel of a notebook, which has its own
session, nor the workers of that kernel. Every long run therefore has a guard process as its parent.
The guard ends the run with all descendants on SIGTERM, or once the process that requested it is
gone, however that died; it also ends leftover descendants of a finished run. It checks its own
parent every fifth of a second, so neither busy native code nor a reused process id can deceive it.
If the guard itself is killed on Linux, so is the run.

On Linux, orphaned descendants become children of the guard, so none is missed. Elsewhere, the guard
misses descendants whose parents are all gone.

Ray ends its workers and their children, but no kernel, and nothing at all if the node's Ray is
killed and stays a zombie. The guard of a run on a cluster therefore also watches the worker and the
node's Ray; its parent is a process that only waits for it, which Ray ends in its place.

This file runs as a program without the package, to start quickly:

    python -P processes.py ORDERS COMMAND...
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import signal
import subprocess
import sys
import time
from contextlib import suppress

# Imports are minimal and late: a run waits for its guard.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path
    from typing import TypedDict, Unpack

    import psutil

    class Orders(TypedDict, total=False):
        """What a guard does, besides running a command; see `guard` and `main`."""

        owners: Sequence[int]
        remove: Iterable[Path | str]
        scratch: bool
        remove_if_lost: str
        with_waiter: bool


_SECONDS_BETWEEN_LOOKS = 0.2  # at the owners
_SECONDS_TO_END = 5.0  # for a guard that ends a run
_SECONDS_TO_CLEAN_UP = 2.0  # for processes that clean up after others
_SECONDS_TO_COPY = 5.0  # for what a process printed last
_SECONDS_TO_DIE = 4.0  # for a killed process
_SECONDS_BETWEEN_KILLS = 0.01  # of descendants that start others meanwhile
# Requests of the system call prctl, on Linux.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# Command prefixes of processes that remove shared memory and temporary files after their users:
# resource trackers of multiprocessing and joblib, and other guards.
_CLEANERS = (
    "from multiprocessing.resource_tracker import ",
    "from joblib.externals.loky.backend.resource_tracker import ",
    "from loky.backend.resource_tracker import ",
    __file__,
)


def guarded_command(command: Sequence[str], **orders: Unpack[Orders]) -> list[str]:
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
        log: the file that gets its output, without secrets; by default it prints where this
            process does.
        folder: its working directory; by default that of this process.
        orders: see `guarded_command`.
    """
    from qwen3nb.utils.children import keep_exit_statuses

    keep_exit_statuses()
    guarded = guarded_command(command, **orders)
    if log is not None:
        return LoggedProcess(guarded, environment=environment, log=log, folder=folder)
    return subprocess.Popen(
        guarded,
        stdin=subprocess.DEVNULL,
        env=dict(environment),
        cwd=folder,
        start_new_session=True,  # Ctrl-C in the terminal then reaches only this process
    )


class LoggedProcess(subprocess.Popen[bytes]):
    """A process in a session of its own, whose output is written to a file without secrets.

    The output comes by a pipe, so that what any descendant prints is cleaned, too.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        log: Path,
        folder: Path | None,
    ) -> None:
        import threading

        from qwen3nb.utils.secrets import copy_without_secrets

        log.write_bytes(b"")  # if it cannot be written, nothing is started
        reader, writer = os.pipe()
        source = os.fdopen(reader, "rb", buffering=0)
        # The guard holds the pipe, too. If this process is killed, what runs is killed soon; until
        # then it can print, and does not report a broken pipe as its failure.
        held = (reader,) if os.name == "posix" else ()
        with os.fdopen(writer, "wb") as output:
            super().__init__(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
                pass_fds=held,
            )
        self._copying = threading.Thread(
            target=copy_without_secrets, args=(source, log), daemon=True
        )
        self._copying.start()

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; its output is then in the file."""
        status = super().wait(timeout)
        self._copying.join(_SECONDS_TO_COPY)
        return status

    def poll(self) -> int | None:
        """Return its exit status, with its output in the file; None if it runs."""
        status = super().poll()
        if status is not None:
            self._copying.join(_SECONDS_TO_COPY)
        return status


def end_guarded(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End processes of `start_guarded` with all their descendants.

    Files are written atomically, so no process needs a warning first.
    """
    for process in processes:
        # All of them first, so that they end at the same time.
        process.terminate()
    for process in processes:
        try:
            process.wait(_SECONDS_TO_END)
        except subprocess.TimeoutExpired:  # a suspended guard, or a process not to be killed
            process.kill()


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
    # This process is a worker of Ray; its parent is the raylet, the node's Ray itself.
    worker, raylet = os.getpid(), os.getppid()
    process = start_guarded(
        command,
        environment=environment,
        log=log,
        folder=folder,
        owners=[worker, raylet],
        remove_if_lost=str(scratch),
        with_waiter=True,  # Ray kills its worker's child: the waiter, and not the guard
    )
    return process.wait()


def guard(
    command: Sequence[str],
    *,
    owners: Sequence[int],
    remove: Iterable[str] = (),
    scratch: bool = False,
    remove_if_lost: str = "",
) -> int:
    """Run a command until it ends, an owner is gone or a signal arrives; return its status.

    ``owners`` are process ids of the parent, its parent and so on. Files to ``remove`` and, with
    ``scratch``, a folder for temporary files are removed afterwards; the folder
    ``remove_if_lost`` if an owner is gone.
    """
    # The kernel of a notebook ends by itself if the process of this variable is gone.
    environment = {**os.environ, "JPY_PARENT_PID": str(os.getpid())}
    leftovers = list(remove)
    if scratch:
        import tempfile

        environment["TMPDIR"] = tempfile.mkdtemp(prefix="qwen3nb-")
        leftovers.append(environment["TMPDIR"])
    # Before the child is started, so that no signal can end the guard and leave the child.
    signals = _caught_signals()
    child = _start_child(command, environment)
    ended_by_itself = _wait_for_end(child, owners, signals)
    _kill_descendants(child)
    an_owner_is_gone = not _are_alive(owners)
    if an_owner_is_gone and remove_if_lost:
        leftovers.append(remove_if_lost)
    # Only after the descendants are dead, which would write new files.
    _remove(leftovers)
    if an_owner_is_gone:
        # Last, as the driver may then repeat the run on another node.
        _kill_worker_of_dead_ray(owners)
    if ended_by_itself:
        return child.returncode
    return -signal.SIGKILL


def _kill_worker_of_dead_ray(owners: Sequence[int]) -> None:
    """Kill the worker if only Ray itself is gone: the driver notices that once the worker is.

    Ray's workers end by themselves, unless it is a zombie, which they take for alive.
    """
    *waiter_and_worker, _raylet = owners
    if waiter_and_worker and _are_alive(waiter_and_worker):
        worker = waiter_and_worker[-1]
        os.kill(worker, signal.SIGKILL)


def _remove(leftovers: Iterable[str]) -> None:
    """Remove files and folders, as far as that is possible."""
    for path in leftovers:
        import shutil

        shutil.rmtree(path, ignore_errors=True)
        with suppress(OSError):  # a folder, or gone
            os.unlink(path)  # noqa: PTH108 - without the import of pathlib


def _caught_signals() -> queue.SimpleQueue[int]:
    """Let signals no longer end this process; return a queue that gets the number of each."""
    # A handler may interrupt the `get` of this kind of queue, and ends its wait by `put`.
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, lambda number, _frame: signals.put(number))
    return signals


def _start_child(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a command that, on Linux, dies with this process."""
    guard_pid = os.getpid()
    libc = None
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # orphans become children of the guard

    def die_with_guard() -> None:
        # Linux sends the signal when the thread that started the child ends: the guard's only one.
        if libc is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != guard_pid:  # it died before the request
            os._exit(1)  # sys.exit would run the guard's clean-up in this copy of it

    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        env=environment,
        start_new_session=True,
        preexec_fn=die_with_guard,
    )


def _wait_for_end(
    child: subprocess.Popen[bytes], owners: Sequence[int], signals: queue.SimpleQueue[int]
) -> bool:
    """Wait until a child ends; return False if it has to be ended."""
    while not _has_ended(child):
        number = None
        with suppress(queue.Empty):
            number = signals.get(timeout=_SECONDS_BETWEEN_LOOKS)
        # The caller kills a child that has not ended.
        if number in (signal.SIGTERM, signal.SIGHUP) or not _are_alive(owners):
            return _has_ended(child)
        if number == signal.SIGINT:
            # An interrupt is passed on to the whole process group of the child.
            with suppress(ProcessLookupError, PermissionError):  # it has just ended
                os.killpg(child.pid, signal.SIGINT)
    return True


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Return whether a child has ended; see `_any_is_left`."""
    _any_is_left(child)
    return child.returncode is not None


def _any_is_left(child: subprocess.Popen[bytes]) -> bool:
    """Collect the statuses of children that have ended; return whether any other is left.

    On Linux, descendants without a parent are children of the guard, too.
    """
    any_child = -1
    while True:
        try:
            pid, status = os.waitpid(any_child, os.WNOHANG)
        except ChildProcessError:  # no child is left
            return False
        if pid == 0:  # the children that are left still run
            return True
        if pid == child.pid:
            child.returncode = os.waitstatus_to_exitcode(status)


def _are_alive(owners: Sequence[int]) -> bool:
    """Return whether each process is still the parent of the previous one, the first of this."""
    # The system gives a process another parent if its own dies, even if the id is used again.
    if os.getppid() != owners[0]:
        return False
    if len(owners) == 1:  # known without the import of psutil
        return True
    import psutil

    try:
        process = psutil.Process()
        for owner in owners:
            if process.ppid() != owner:
                return False
            process = psutil.Process(owner)
    except psutil.NoSuchProcess:
        return False
    return True


def _kill_descendants(child: subprocess.Popen[bytes]) -> None:
    """Kill all descendants; processes that clean up get some time first."""
    started = time.monotonic()
    while _any_is_left(child):
        import psutil

        elapsed = time.monotonic() - started
        if elapsed > _SECONDS_TO_DIE:
            return
        for process in psutil.Process().children(recursive=True):
            with suppress(psutil.Error):  # gone, or of another user
                # Resource trackers remove shared memory and files of the others, and then end.
                if elapsed > _SECONDS_TO_CLEAN_UP or not _cleans_up(process):
                    process.kill()
        time.sleep(_SECONDS_BETWEEN_KILLS)


def _cleans_up(process: psutil.Process) -> bool:
    """Return whether a process removes files after others."""
    return any(word.startswith(_CLEANERS) for word in process.cmdline())


def _exit_like(status: int) -> None:
    """Exit with the status of another process: by the same signal if one killed it."""
    if status >= 0:
        sys.exit(status)
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # without a dump of this process
    if status != -signal.SIGKILL:  # which nobody can handle
        signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)


def main(text: str, *command: str) -> None:
    """Guard a command, and exit with its status.

    ``text`` has keywords of `guard` as JSON, and ``with_waiter``: whether to put a waiting process
    between the first owner and the guard.
    """
    orders = json.loads(text)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # where ignored, the status of a child is lost
    # Fork: the parent waits, and the child is the guard. Ray kills only the parent.
    if orders.pop("with_waiter", False):
        waiter = os.getpid()
        guard_pid = os.fork()
        if guard_pid != 0:  # this is the waiter
            _, status = os.waitpid(guard_pid, 0)
            _exit_like(os.waitstatus_to_exitcode(status))
        orders["owners"].insert(0, waiter)
    _exit_like(guard(command, **orders))


if __name__ == "__main__":
    main(*sys.argv[1:])
