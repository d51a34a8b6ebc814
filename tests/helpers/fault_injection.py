"""Faults at every file operation of an action: a kill, half a write, a system error.

A test describes what to disturb by a `Scenario` in a module of helpers, and runs it in a server,
a program of its own that loads the heavy libraries once and forks for every trial:

    @pytest.fixture(scope="module")
    def faults():
        with fault_server("helpers.folder_scenarios") as run:
            yield run

    def test_a_kill_loses_nothing(faults):
        assert faults("EXTRACT").broken == []

    def test_a_full_disk_is_one_line(faults):
        assert faults("EXTRACT", errno.ENOSPC).broken == []

The scenario's folder is always the same path, ``<server folder>/<NAME>/work``, so that paths in
what is written do not differ between trials. It is `QWEN3NB_HOME` too, and the cache is in it.

*Operations* are counted below that folder only: opening for writing, write, fsync, truncate,
rename (and replace), link, symlink, unlink, mkdir, rmdir. They are seen by an audit hook, and where
Python raises no event by wrapping: ``os.write`` and its like, and the raw file below every buffered
one, so that a buffer is lost in a kill as it is in life. Code that is not Python's writes unseen;
numpy and shutil are made to write through Python. A program that another program starts is not
followed.

*Kills*: what SIGKILL leaves is what the files hold at that moment, without the buffers of the
process and its locks. So one run stops before each operation, and half-way through each write, to
copy the folder if it is in no state that was copied before; each copy is then where the next run
starts: `Scenario.check`, the action again, a comparison with an undisturbed run.

*Errors* are raised by the n-th operation, and of those that last, such as a full disk, by all
later ones of the same kinds too; the first write to a full disk writes half of its bytes.
"""

from __future__ import annotations

import builtins
import errno
import functools
import importlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from helpers import REPOSITORY

WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
LEFTOVERS = (".tmp", ".old")
_ALLOCATE = {"open", "write", "fsync", "mkdir", "link", "symlink", "truncate"}
_EVERY = _ALLOCATE | {"rename", "unlink", "rmdir"}
# The operations that an error can strike, and whether it lasts.
ERRORS = {
    errno.ENOSPC: (_ALLOCATE, True),
    errno.EDQUOT: (_ALLOCATE, True),
    errno.EROFS: (_EVERY, True),
    errno.EIO: (_EVERY - {"unlink", "rmdir"}, False),
    errno.EMFILE: ({"open"}, False),
}


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
            or that of after, whole.
        only: how the operations begin that are disturbed; by default, all are.
        refusal: raises if an error is not told well; it gets the exception.
    """

    act: Callable[[Path], object]
    prepare: Callable[[Path], object] = lambda folder: None
    content: Callable[[Path], dict] = tree
    check: Callable[[Path], None] | None = None
    refusal: Callable[[BaseException], None] = lambda error: None
    only: tuple[str, ...] = ("",)


@dataclass(frozen=True)
class Report:
    """The number of trials, and those that lost something or told it badly, with the reason."""

    tried: int
    broken: list


class Operations:
    """Counts this process's file operations below ``root``, and strikes at one of them.

    There is no way back, as audit hooks stay: this is for a forked child.
    """

    def __init__(self, root):
        self.root, self.strike = str(root), None
        self.seen, self.active = [], False
        self._lock = threading.RLock()
        self._install()

    @contextmanager
    def watched(self, strike):
        """Count the operations of the block, and let ``strike`` act on each."""
        self.strike, self.seen, self.active = strike, [], True
        try:
            yield
        finally:
            self.active = False

    def hit(self, kind, path, *, name=None):
        """Count an operation; return its number if only half of it is to be done at first, or 0."""
        if not self.active or not self._inside(path):
            return 0
        with self._lock:
            self.seen.append(f"{kind} {os.path.relpath(path, self.root)}")
            number = len(self.seen)
            return number if self.strike(number, self.seen[-1], name) else 0

    def _inside(self, path):
        return path is not None and f"{path}/".startswith(f"{self.root}/")

    def _install(self):
        sys.addaudithook(self._audit)
        for name in ("write", "pwrite"):
            setattr(os, name, self._wrapped_write(getattr(os, name)))
        for name in ("fsync", "fdatasync"):
            setattr(os, name, self._wrapped_sync(getattr(os, name)))
        shutil._USE_CP_SENDFILE = False  # files are copied through Python
        io.open = builtins.open = self._wrapped_open(io.open)
        if "numpy" in sys.modules:
            for name in ("numpy.lib.format", "numpy.lib._format_impl"):
                if name in sys.modules:
                    sys.modules[name].isfileobj = lambda file: False

    def _audit(self, event, values):
        if not self.active:
            return
        if event == "open":
            path, _, flags = values
            if isinstance(flags, int) and flags & WRITING and not isinstance(path, int):
                self.hit("open", _absolute(path), name=path)
        elif event in ("os.remove", "os.rmdir"):
            kind = "unlink" if event == "os.remove" else "rmdir"
            self.hit(kind, _absolute(values[0], values[1]), name=values[0])
        elif event == "os.mkdir":
            self.hit("mkdir", _absolute(values[0], values[2]), name=values[0])
        elif event in ("os.rename", "os.link", "os.symlink"):
            target = _absolute(values[1], values[-1])
            self.hit(event.removeprefix("os."), target, name=values[1])
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
        """Count a write, and do it in halves if `strike` wants to see it half done."""
        flat = memoryview(data).cast("B")
        number, half = self.hit("write", _of_descriptor(descriptor)), len(flat) // 2
        if not number:
            return write(flat)
        done = write(flat[:half])
        with self._lock:
            goes_on = self.strike.after_half(number)
        if not goes_on:
            return done
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


class Copies:
    """Copies the folder before every operation, and in the middle of every write."""

    def __init__(self, work, target, *, only):
        self.work, self.target, self.only = work, target, only
        self.points, self._states = [], set()

    def __call__(self, number, operation, name):
        if not operation.startswith(self.only):
            return False
        self._copy(f"before {number}")
        return operation.startswith("write ")

    def after_half(self, number):
        """Copy; the other half follows."""
        self._copy(f"in the middle of {number}")
        return True

    def _copy(self, point):
        state = hash(tuple(map(_state, sorted(self.work.rglob("*")))))
        if state not in self._states:
            self._states.add(state)
            shutil.copytree(self.work, self.target / point, symlinks=True)
            self.points.append(point)


class Fail:
    """An error of the ``at``-th operation, and of later ones if it lasts."""

    def __init__(self, at, code):
        self.at, self.code = at, code
        self.kinds, self.lasting = ERRORS[code]

    def __call__(self, number, operation, name):
        kind = operation.split()[0]
        if kind not in self.kinds or not (number == self.at or (self.lasting and number > self.at)):
            return False
        if number == self.at and kind == "write" and self.lasting:
            return True
        arguments = () if name is None else (os.fsdecode(name),)
        raise OSError(self.code, os.strerror(self.code), *arguments)

    def after_half(self, number):
        """Nothing more: it was a short write."""
        return False


class _Trials:
    """All trials of one scenario; runs in the server."""

    def __init__(self, scenario, base):
        self.scenario, self.base = scenario, base
        self.work, self.template = base / "work", base / "template"
        self.work.mkdir(parents=True)
        os.environ["QWEN3NB_HOME"] = str(self.work)
        os.environ["QWEN3NB_CACHE"] = str(self.work / ".cache")
        scenario.prepare(self.work)
        shutil.copytree(self.work, self.template, symlinks=True)
        self.before = scenario.content(self.work)
        scenario.act(self.work)
        self.after = scenario.content(self.work)

    def kills(self):
        """Go on after a kill at every operation, and in the middle of every write."""
        operations, points = self._in_child(self._copied)
        broken = []
        for point in points:
            shutil.rmtree(self.work)
            (self.base / "copies" / point).rename(self.work)
            if problem := self._problem():
                at = int(point.split()[-1])
                broken.append(f"{point} ({operations[at - 1]}): {problem}")
        return Report(len(points), broken)

    def _copied(self):
        """Return the operations of an undisturbed run and the points at which it was copied."""
        shutil.rmtree(self.base / "copies", ignore_errors=True)
        operations = Operations(self.work)
        copies = Copies(self.work, self.base / "copies", only=self.scenario.only)
        self._restore()
        with operations.watched(copies):
            self.scenario.act(self.work)
        if problem := self._differs(self.after) or self._litter():
            raise AssertionError(f"undisturbed: {problem}")
        return operations.seen, copies.points

    def _problem(self):
        """Return what is wrong with the folder that a kill left, or with the run after it."""
        try:
            self._check()
            self.scenario.act(self.work)
        except BaseException:  # noqa: BLE001 - whatever it is, it is reported
            return traceback.format_exc(limit=-4)
        return self._differs(self.after) or self._litter()

    def _check(self):
        if self.scenario.check is not None:
            self.scenario.check(self.work)
            return
        content = self.scenario.content(self.work)
        assert content in (self.before, self.after), (
            f"neither old nor new: {_difference(content, self.after)}"
        )

    def errors(self, code):
        """Raise the error at every operation that can have it."""
        return Report(*self._in_child(lambda: self._failed(code)))

    def _failed(self, code):
        operations, broken = Operations(self.work), []
        self._restore()
        with operations.watched(lambda number, operation, name: False):
            self.scenario.act(self.work)
        seen = operations.seen
        points = [
            at
            for at, each in enumerate(seen, 1)
            if each.split()[0] in ERRORS[code][0] and each.startswith(self.scenario.only)
        ]
        for at in points:
            self._restore()
            if problem := self._failing(operations, Fail(at, code)):
                broken.append(f"{at} ({seen[at - 1]}): {problem}")
        return len(points), broken

    def _failing(self, operations, strike):
        error = None
        try:
            with operations.watched(strike):
                self.scenario.act(self.work)
        except BaseException as raised:  # noqa: BLE001 - whatever it is, it is reported
            error = raised
        litter = self._litter() if "unlink" not in strike.kinds else ""
        if error is None:
            return self._differs(self.after) or litter
        try:
            self.scenario.refusal(error)
            self._check()
        except AssertionError as bad:
            return f"{bad}; {type(error).__name__}: {error}"
        return litter

    def _restore(self):
        shutil.rmtree(self.work)
        shutil.copytree(self.template, self.work, symlinks=True)

    def _in_child(self, action):
        status, text = _forked(action)
        assert status == 0, text or f"exit status {status}"
        return json.loads(text)

    def _differs(self, expected):
        return _difference(self.scenario.content(self.work), expected)

    def _litter(self):
        left = leftovers(self.work)
        return f"left over: {', '.join(left)}" if left else ""


def _difference(content, expected):
    odd = sorted(
        key for key in content.keys() | expected.keys() if content.get(key) != expected.get(key)
    )
    return f"differs in {', '.join(map(str, odd[:5]))}" if odd else ""


def _forked(action):
    """Run ``action`` in a child; return its exit status and what it returns, as JSON."""
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
    with io.FileIO(reading) as pipe:
        text = pipe.readall().decode()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


@contextmanager
def fault_server(module):
    """Yield ``run(name, code=None)``, which runs the trials of a scenario of ``module``.

    It kills at every operation, or raises the error ``code`` of `ERRORS` at every one that it can
    strike, and returns a `Report`. Files are in memory, where there is such a file system.
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

        def run(name, code=None):
            process.stdin.write(json.dumps([name, code]) + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            log.seek(0)
            assert answer.startswith("{"), json.loads(answer) if answer else log.read()[-3000:]
            return Report(**json.loads(answer))

        try:
            yield run
        finally:
            process.stdin.close()
            process.wait(timeout=60)


def serve(module, folder):
    """Answer requests, one line of JSON each, until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what an action prints is no answer
    os.fsync = lambda descriptor: None  # no power fails here, and disks are slow
    trials = {}
    for line in sys.stdin:
        name, code = json.loads(line)
        try:
            if name not in trials:
                scenario = getattr(importlib.import_module(module), name)
                trials[name] = _Trials(scenario, Path(folder) / name)
            each = trials[name]
            os.environ["QWEN3NB_HOME"] = str(each.work)
            os.environ["QWEN3NB_CACHE"] = str(each.work / ".cache")
            answer = asdict(each.kills() if code is None else each.errors(code))
        except BaseException:  # noqa: BLE001 - the test shows it
            answer = traceback.format_exc()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    from helpers.fault_injection import serve as imported  # not as __main__: scenarios import it

    imported(*sys.argv[1:])
