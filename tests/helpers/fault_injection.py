"""Kills at every file operation of an action and half-way through writes, and system errors.

A test describes what to disturb by a `Scenario` in a module of helpers, and runs it in a server,
a program of its own that loads the heavy libraries once and forks for every scenario:

    @pytest.fixture(scope="module")
    def faults():
        with fault_server("helpers.folder_scenarios") as run:
            yield run

    def test_a_kill_loses_nothing(faults):
        assert faults("EXTRACT").broken == []

A scenario's folder always has the same path, so that paths in what is written do not differ
between trials. It is `QWEN3NB_HOME` too, and the cache is in it.

*Operations* are counted below that folder only: opening for writing, write, fsync, truncate,
rename (and replace), link, symlink, unlink, mkdir, rmdir. They are seen by an audit hook, and where
Python raises no event by wrapping: ``os.write`` and its like, and the raw file below every buffered
one, so that a buffer is lost in a kill as it is in life. Code that is not Python's writes unseen;
numpy and shutil are made to write through Python. A program that another program starts is not
followed.

What SIGKILL leaves is what the files hold at that moment, without the buffers of the process and
its locks. So one run stops before each operation, and half-way through each write, to copy the
folder if it is in no state that was copied before; each copy is then where the next run starts:
`Scenario.check`, the action again, a comparison with an undisturbed run.

A system error such as a full disk is raised by the n-th operation and by all later ones, except
those that free space where the file system can still be written. After it, the action runs again.

A clock jumps at the n-th operation, a day back or ten years on: that of Python, for which the files
are then of another day. On a slow disk every operation takes milliseconds, while a second process
does the same, and a third one reads.

Tests try a sample of the operations; `.ci/faults` tries every one.
"""

from __future__ import annotations

import builtins
import errno
import functools
import importlib
import io
import json
import math
import os
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from pathlib import Path

from helpers import REPOSITORY

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
LEFTOVERS = (".tmp", ".old")
FREEING = ("rename", "unlink", "rmdir")
_SLOWEST = 0.01  # seconds of an operation on a slow disk
_JUMPS = (-86_400, 10 * 365 * 86_400)  # seconds: a day back, ten years on
_STILL_RUNNING = os.WEXITED | os.WNOHANG | os.WNOWAIT


def tree(folder, *, hidden=False):
    """The bytes of every file below ``folder`` by its path, without leftovers and the cache."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
        and (hidden or not any(_is_leftover(part) for part in file.relative_to(folder).parts))
        and ".cache" not in file.relative_to(folder).parts
    }


def leftovers(folder):
    """Temporary files and folders below ``folder``, in the cache too."""
    return sorted(str(f.relative_to(folder)) for f in folder.rglob(".*") if _is_leftover(f.name))


def _is_leftover(name):
    return name.startswith(".") and name.endswith(LEFTOVERS)


@dataclass(frozen=True)
class Scenario:
    """What is disturbed. Every function takes the folder.

    Attributes:
        act: the action, such as a command; raises if it fails. It must give the same bytes each
            time. It runs once in the server itself, which loads what it needs.
        prepare: writes what is there before; runs once, as each trial gets a copy. What only
            takes time to copy belongs next to the folder, in ``folder.parent``.
        content: what must be equal after another run; by default the `tree`.
        check: raises if something is lost after a kill; by default the content is that of before
            or that of after, whole. With it, an error may leave a part for the next run to finish.
        by_two: whether two processes may do it at once, with the same result.
    """

    act: Callable[[Path], object]
    prepare: Callable[[Path], object] = lambda folder: None
    content: Callable[[Path], dict] = tree
    check: Callable[[Path], None] | None = None
    by_two: bool = True


@dataclass(frozen=True)
class Report:
    """The number of trials, and those that lost something, with the reason."""

    tried: int
    broken: list


class Operations:
    """Counts this process's file operations below ``work``, and copies it to ``target`` at each.

    There is no way back, as audit hooks stay: this is for a forked child.
    """

    def __init__(self, work, target):
        self.work, self.target = work, target
        self.seen, self.points, self.active = [], [], False
        self.error = None  # the number of the first operation that fails, and its errno
        self.first_struck = ""
        self.jump = (0, 0)  # the number of the operation at which the clock jumps, and its seconds
        self.delays = None  # random, of every operation
        self._lock, self._states = threading.RLock(), set()
        self._install()

    def hit(self, kind, path):
        """Count an operation, and copy the folder before it; return its number, or 0 elsewhere."""
        if not self.active or path is None or not f"{path}/".startswith(f"{self.work}/"):
            return 0
        with self._lock:
            self.seen.append(f"{kind} {os.path.relpath(path, self.work)}")
            if self.delays is not None:
                time.sleep(self.delays.uniform(0, _SLOWEST))
            if len(self.seen) == self.jump[0]:
                set_clock(self.jump[1])
            if self.error is None:
                self._copy(f"before {len(self.seen)}")
            elif len(self.seen) >= self.error[0]:
                code = self.error[1]
                if code == errno.EROFS or kind not in FREEING:
                    self.first_struck = self.first_struck or f"{kind} {path}"
                    raise OSError(code, os.strerror(code), str(path))
            return len(self.seen)

    def _copy(self, point):
        state = hash(tuple(map(_state, sorted(self.work.rglob("*")))))
        if state not in self._states:
            self._states.add(state)
            shutil.copytree(self.work, self.target / point, symlinks=True)
            self.points.append(point)

    def _install(self):
        sys.addaudithook(self._audit)
        for name in ("write", "pwrite"):
            setattr(os, name, self._wrapped_write(getattr(os, name)))
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._wrapped_sync(getattr(os, name)))
        shutil._USE_CP_SENDFILE = False  # files are copied through Python
        io.open = builtins.open = self._wrapped_open(io.open)
        for name in ("numpy.lib.format", "numpy.lib._format_impl"):
            if name in sys.modules:
                sys.modules[name].isfileobj = lambda file: False

    def _audit(self, event, values):
        if not self.active:
            return
        if event == "open":
            path, _, flags = values
            if isinstance(flags, int) and flags & WRITING and not isinstance(path, int):
                self.hit("open", _absolute(path))
        elif event in ("os.remove", "os.rmdir"):
            self.hit("unlink" if event == "os.remove" else "rmdir", _absolute(*values))
        elif event == "os.mkdir":
            self.hit("mkdir", _absolute(values[0], values[2]))
        elif event in ("os.rename", "os.link", "os.symlink"):
            self.hit(event.removeprefix("os."), _absolute(values[1], values[-1]))
        elif event == "os.truncate":
            path = _of_descriptor(values[0]) if isinstance(values[0], int) else values[0]
            self.hit("truncate", _absolute(path))

    def _wrapped_write(self, real):
        @functools.wraps(real)
        def write(descriptor, data, *offset):
            def at(part, start=0):
                return real(descriptor, part, *(each + start for each in offset))

            return self._counted_write(descriptor, data, at, positioned=bool(offset))

        return write

    def _counted_write(self, descriptor, data, write, *, positioned=False):
        """Count a write, and do it in halves, with a copy between them."""
        flat = memoryview(data).cast("B")
        number, half = self.hit("write", _of_descriptor(descriptor)), len(flat) // 2
        if not number:
            return write(flat)
        done = write(flat[:half])
        with self._lock:
            if self.error is None:
                self._copy(f"in the middle of {number}")
        return done + (write(flat[half:], half) if positioned else write(flat[half:]))

    def _wrapped_sync(self, real):
        @functools.wraps(real)
        def sync(descriptor):
            self.hit("fsync", _of_descriptor(descriptor))
            real(descriptor)

        return sync

    def _wrapped_open(self, real):
        operations = self

        class Raw(io.FileIO):
            """The raw file, whose writes are counted."""

            def write(self, data):
                return operations._counted_write(self.fileno(), data, super().write)

            def truncate(self, size=None):
                operations.hit("truncate", _of_descriptor(self.fileno()))
                return super().truncate(size)

        @functools.wraps(real)
        def opened(
            file, mode="r", buffering=-1, encoding=None, errors=None, newline=None, *rest, **named
        ):
            if not set(mode) & set("wax+"):
                return real(file, mode, buffering, encoding, errors, newline, *rest, **named)
            raw = Raw(file, mode.replace("b", "").replace("t", ""), *rest, **named)
            if buffering == 0:
                return raw
            size = buffering if buffering > 1 else io.DEFAULT_BUFFER_SIZE
            buffer = (io.BufferedRandom if "+" in mode else io.BufferedWriter)(raw, size)
            if "b" in mode:
                return buffer
            text = io.TextIOWrapper(buffer, encoding, errors, newline, buffering == 1)
            text.mode = mode
            return text

        return opened


def _of_descriptor(descriptor):
    try:
        path = os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - a string
        return path.removesuffix(" (deleted)")
    except OSError:
        return None


def _absolute(path, folder=-1):
    path = os.fsdecode(path)
    if folder not in (-1, None) and not os.path.isabs(path):  # noqa: PTH117 - a string
        path = f"{_of_descriptor(folder)}/{path}"
    return os.path.abspath(path)  # noqa: PTH100 - a string, and links are kept


def _state(path):
    """A file's name and what it holds; of a link, where it leads."""
    if path.is_symlink():
        return path, path.readlink()
    return path, path.read_bytes() if path.is_file() else None


def set_clock(seconds):
    """Let Python's clock differ from the real one by ``seconds``, in this process and for good."""
    shift = timedelta(seconds=seconds)

    class Shifted(datetime):
        """A date of another day."""

        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + shift

    seconds_now, nanoseconds_now = time.time, time.time_ns
    time.time = lambda: seconds_now() + seconds
    time.time_ns = lambda: nanoseconds_now() + int(seconds * 1e9)
    for name, module in list(sys.modules.items()):
        if name.startswith("qwen3nb") and getattr(module, "datetime", None) is datetime:
            module.datetime = Shifted


class _Trials:
    """All trials of one scenario; runs in the server.

    Each tries at most ``most`` of the operations, spread over all; 0: every one.
    """

    def __init__(self, scenario, base):
        self.scenario, self.base, self.work = scenario, base, base / "work"
        self.work.mkdir(parents=True)
        os.environ["QWEN3NB_HOME"] = str(self.work)
        os.environ["QWEN3NB_CACHE"] = str(self.work / ".cache")
        scenario.prepare(self.work)
        shutil.copytree(self.work, base / "template", symlinks=True)
        self.before = scenario.content(self.work)
        scenario.act(self.work)
        self.after = scenario.content(self.work)

    def kills(self, most):
        """Go on after a kill at every operation, and in the middle of every write."""
        operations, points = _forked(self._copied)
        broken, sample = [], _sample(points, most)
        for point in sample:
            shutil.rmtree(self.work)
            (self.base / "copies" / point).rename(self.work)
            if problem := self._problem():
                at = int(point.split()[-1])
                broken.append(f"{point} ({operations[at - 1]}): {problem}")
        return Report(len(sample), broken)

    def _copied(self):
        """Return the operations of an undisturbed run and the points at which it was copied."""
        operations = self._operations()
        self.scenario.act(self.work)
        operations.active = False
        if problem := self._differs():
            raise AssertionError(f"undisturbed: {problem}")
        return operations.seen, operations.points

    def _counted(self):
        """Return the operations of an undisturbed run, of which none is copied."""
        operations = self._operations()
        operations.error = (math.inf, 0)
        self.scenario.act(self.work)
        operations.active = False
        return operations.seen

    def _operations(self):
        """Return what counts the operations of the next run, on the folder as it was before."""
        operations = Operations(self.work, self.base / "copies")
        shutil.rmtree(self.work)
        shutil.copytree(self.base / "template", self.work, symlinks=True)
        operations.active = True
        return operations

    def errors(self, code, most):
        """Let ``code`` strike at an operation; the file system works again after it."""
        return self._at_operations(most or 10**9, [lambda at: self._struck(at, code)])

    def jumps(self, most):
        """Let the clock jump at an operation, and run the action again when it is right."""
        trials = [functools.partial(self._jumped, seconds=each) for each in _JUMPS]
        return self._at_operations(most or 10**9, trials)

    def _at_operations(self, most, trials):
        """Return the report of trials that are disturbed at an operation."""
        operations = _forked(self._counted)
        points = _sample(range(1, len(operations) + 1), most)
        broken = []
        for at in points:
            for trial in trials:
                problem, goes_on = _forked(lambda at=at, trial=trial: trial(at))
                if goes_on:  # in another process, for which that one is dead
                    problem = _forked(self._problem)
                if problem:
                    broken.append(f"{operations[at - 1]}: {problem}")
        return Report(len(points) * len(trials), broken)

    def _struck(self, at, code):
        """Return what is wrong with how an error is told, or with the folder it leaves.

        And whether to go on from there.
        """
        operations = self._operations()
        operations.error, failed = (at, code), False
        try:
            self.scenario.act(self.work)
        except AssertionError as error:  # of the exit status, with what was printed
            failed = True
            if not str(error).splitlines()[-1].startswith("Error: "):
                return f"not told in one line: {error}", False
        except OSError as error:  # which the command line tells in one line
            failed = True
            if str(self.base) not in str(error):
                return f"names no file: {error!r}", False
        operations.active = False
        litter = [] if code == errno.EROFS else leftovers(self.work)
        if litter:
            return f"left over: {', '.join(litter)}", False
        if failed and self.scenario.check is not None:
            return "", True
        content = self.scenario.content(self.work)
        if not failed:
            return _difference(content, self.after), False
        # What was renamed is whole, but perhaps not on disk yet: an error says so.
        kind, _, path = operations.first_struck.partition(" ")
        if kind == "fsync" and Path(path).is_dir() and content == self.after:
            return "", False
        return _difference(content, self.before), False

    def _jumped(self, at, *, seconds):
        """Return what is wrong after a run in which the clock jumped; then go on without."""
        operations = self._operations()
        operations.error, operations.jump = (math.inf, 0), (at, seconds)
        self.scenario.act(self.work)
        differs = self._differs()
        return differs, not differs

    def slow(self, seed):
        """Run the action on a slow disk, twice at once if it can, while a reader looks."""
        shutil.rmtree(self.work)
        shutil.copytree(self.base / "template", self.work, symlinks=True)
        writers = range(2 if self.scenario.by_two else 1)
        running = [_started(functools.partial(self._slowly, seed + writer)) for writer in writers]
        broken = []
        while any(os.waitid(os.P_PID, pid, _STILL_RUNNING) is None for pid, _ in running):
            if self.scenario.check is not None and not broken:
                broken += filter(None, [_forked(self._read)])
            time.sleep(0.02)
        broken += filter(None, [_ended(*each) for each in running])
        if not broken:
            broken += filter(None, [self._differs(), self._problem()])
        return Report(len(running), broken)

    def _slowly(self, seed):
        """Run the action with a random delay before each operation."""
        operations = Operations(self.work, self.base / "copies")
        operations.error, operations.delays = (math.inf, 0), random.Random(seed)
        operations.active = True
        self.scenario.act(self.work)
        return ""

    def _read(self):
        """Return what a reader finds wrong."""
        try:
            self.scenario.check(self.work)
        except Exception:  # noqa: BLE001 - whatever it is, it is reported
            return traceback.format_exc(limit=-4)
        return ""

    def _problem(self):
        """Return what is wrong with the folder that a kill left, or with the run after it."""
        try:
            if self.scenario.check is not None:
                self.scenario.check(self.work)
            else:
                content = self.scenario.content(self.work)
                odd = _difference(content, self.after)
                assert content in (self.before, self.after), f"neither old nor new: {odd}"
            self.scenario.act(self.work)
        except BaseException:  # noqa: BLE001 - whatever it is, it is reported
            return traceback.format_exc(limit=-4)
        return self._differs()

    def _differs(self):
        left = leftovers(self.work)
        differs = _difference(self.scenario.content(self.work), self.after)
        return differs or (f"left over: {', '.join(left)}" if left else "")


def _difference(content, expected):
    odd = sorted(
        key for key in content.keys() | expected.keys() if content.get(key) != expected.get(key)
    )
    return f"differs in {', '.join(map(str, odd[:5]))}" if odd else ""


def _sample(points, most):
    """At most ``most`` of the points, spread over all; 0: all."""
    if not most:
        return list(points)
    return list(points)[:: max(1, len(points) // most)]


def _forked(action):
    """Run ``action`` in a child; return what it returns, through JSON."""
    return _ended(*_started(action))


def _started(action):
    """Start ``action`` in a child; return its id and the end of a pipe for `_ended`."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status, text = 1, ""
        try:
            os.close(reading)
            text = json.dumps(action())
            status = 0
        except BaseException:  # noqa: BLE001 - a child never returns to the loop
            text = traceback.format_exc()
        finally:
            with io.FileIO(writing, "w") as pipe:
                pipe.write(text.encode())
            os._exit(status)
    os.close(writing)
    return child, reading


def _ended(child, reading):
    """Wait for a child; return what it returned."""
    with io.FileIO(reading) as pipe:
        text = pipe.readall().decode()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, text or f"exit status {status}"
    return json.loads(text)


@contextmanager
def fault_server(module):
    """Yield ``run(name)``, which runs the trials of a scenario of ``module``; returns a `Report`.

    ``run(name, errno.ENOSPC)`` tries that system error instead of kills, ``run(name, "clock")`` a
    clock that jumps, and ``run(name, "slow")`` a slow disk; ``most`` operations at most, 0: all.
    Files are in memory, where there is such a file system.
    """
    paths = [str(REPOSITORY), str(REPOSITORY / "tests"), os.environ.get("PYTHONPATH", "")]
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108 - below it
    with (
        tempfile.TemporaryDirectory(dir=memory) as folder,
        tempfile.TemporaryFile("w+") as log,
        subprocess.Popen(
            [sys.executable, "-m", "helpers.fault_injection", module, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        ) as process,
    ):

        def run(name, disturbance="kill", *, most=None):
            if most is None:  # of errors, each of which is a run
                most = 10 if isinstance(disturbance, int) else 0
            process.stdin.write(f"{name} {disturbance} {most}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            log.seek(0)
            assert answer.startswith("{"), json.loads(answer) if answer else log.read()[-3000:]
            return Report(**json.loads(answer))

        try:
            yield run
        finally:
            process.stdin.close()
            process.wait(timeout=240)


def serve(module, folder):
    """Answer names of scenarios, a line each, with a line of JSON until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an action prints is no answer
    os.fsync = lambda descriptor: None  # no power fails here, and disks are slow
    for name, disturbance, most in map(str.split, sys.stdin):
        try:
            scenario = getattr(importlib.import_module(module), name)
            trials = _Trials(scenario, Path(folder) / f"{name}-{disturbance}")
            answer = asdict(_report(trials, disturbance, int(most)))
        except BaseException:  # noqa: BLE001 - the test shows it
            answer = traceback.format_exc()
        print(json.dumps(answer), file=answers, flush=True)


def _report(trials, disturbance, most):
    if disturbance == "kill":
        return trials.kills(most)
    if disturbance == "clock":
        return trials.jumps(most)
    if disturbance == "slow":
        return trials.slow(most)
    return trials.errors(int(disturbance), most)


if __name__ == "__main__":
    from helpers.fault_injection import serve as imported  # not as __main__: scenarios import it

    imported(*sys.argv[1:])
