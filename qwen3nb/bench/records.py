"""Benchmark what reads many records: wall, processor time and peak memory of each task.

The records are synthetic (`qwen3nb.bench.synthetic_records`). Each task runs in a process of its
own; its processor time and its memory include those of the processes that it starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from qwen3nb.bench.synthetic_records import RecordSet, write_records
from qwen3nb.utils.atomic_files import read_json, write_json
from qwen3nb.utils.markdown import markdown_table

__all__ = ["RecordsTiming", "Task", "bench_records", "prepared", "records_table", "tasks"]

_JOBS = 3000  # of the plan
_EVERY = 0.05  # seconds between two looks at the memory
_LOAD = "import qwen3nb as q; records = q.load_results()"


@dataclass(frozen=True)
class Task:
    """Something to do with many records.

    Attributes:
        name: what it is.
        arguments: of Python.
        seconds: the limit for 50 models, 20 tasks, 3 seeds and 6,980 queries, on two cores.
        gigabytes: likewise; None without a limit.
        start: code whose time is not counted, such as imports that outlast the work.
    """

    name: str
    arguments: tuple[str, ...]
    seconds: float
    gigabytes: float | None = None
    start: str = ""


@dataclass(frozen=True)
class RecordsTiming:
    """What a task took.

    Attributes:
        task: the task.
        seconds: wall-clock time, with the start of Python unless the task has a ``start``.
        cpu_seconds: processor time.
        gigabytes: peak resident memory, summed over its processes.
    """

    task: Task
    seconds: float
    cpu_seconds: float
    gigabytes: float

    @property
    def within(self) -> bool:
        """Whether the limits are kept."""
        limit = self.task.gigabytes
        fits = limit is None or self.gigabytes <= limit
        return fits and self.seconds <= self.task.seconds


def tasks(output: Path) -> list[Task]:
    """Return the tasks; what they write goes to ``output``."""
    command = ("-m", "qwen3nb.cli.main")
    imports = "from qwen3nb.execution.sweep_plan import SweepPlan"
    plan = (
        f"{imports}; names = tuple(f'runs/a/checkpoint-{{i}}' for i in range({_JOBS} // 2)); "
        f"assert len(SweepPlan(names, ('smoke', 'fast')).jobs()) == {_JOBS}"
    )
    tables = (*command, "tables", "--tier", "full", "--format", "csv", "--out", str(output))
    return [
        Task("load_results", ("-c", _LOAD), 10, 0.3),
        Task("leaderboard", ("-c", f"{_LOAD}; q.leaderboard(records, tasks=records.tasks)"), 60, 2),
        Task("compare", ("-c", f"{_LOAD}; q.compare(records)"), 60, 2),
        Task("tables", tables, 60, 2),
        Task("verify --checksums", (*command, "verify", "--checksums"), 60),
        Task("verify", (*command, "verify"), 300),
        Task(f"plan of {_JOBS:,} jobs", ("-c", plan), 2, start=imports),
    ]


def bench_records(
    records: RecordSet,
    *,
    folder: Path | None = None,
    only: str = "",
    say: Callable[[str], None] = print,
) -> list[RecordsTiming]:
    """Write synthetic records, then time what reads them.

    Args:
        records: how many.
        folder: where to keep them for another run; by default they are deleted.
        only: the task to run; by default all.
        say: called with each line of progress.

    Raises:
        ValueError: no such task, ``folder`` has other files, or a task failed; with its output.
    """
    with tempfile.TemporaryDirectory() as scratch:
        selected = [each for each in tasks(Path(scratch) / "tables") if only in ("", each.name)]
        if not selected:
            names = ", ".join(each.name for each in tasks(Path()))
            raise ValueError(f"task: expected one of {names}; got {only!r}")
        results = prepared(records, folder or Path(scratch) / "results", say=say)
        timings = []
        for task in selected:
            timings.append(_without_start(_timed(task, results), results))
            say(f"{task.name}: {timings[-1].seconds:.1f} s")
    return timings


def prepared(records: RecordSet, folder: Path, *, say: Callable[[str], None] = print) -> Path:
    """Write the records to ``folder``, unless they are there already, and return it.

    Raises:
        ValueError: the folder has other files, or other records.
    """
    note, wanted = folder / "synthetic.json", asdict(records)
    if note.is_file() and read_json(note) == wanted:
        return folder
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"{folder}: expected an empty folder, or {len(records)} such records")
    started = time.perf_counter()
    write_records(folder, records)
    size = sum(file.stat().st_size for file in folder.rglob("*.*"))
    seconds = time.perf_counter() - started
    say(f"{len(records):,} records written: {seconds:.0f} s, {size / 1e9:.2f} GB")
    write_json(note, wanted)
    return folder


def _without_start(timing: RecordsTiming, results: Path) -> RecordsTiming:
    """Subtract what the task's start takes."""
    if not timing.task.start:
        return timing
    start = _timed(replace(timing.task, arguments=("-c", timing.task.start)), results)
    return replace(
        timing,
        seconds=max(0.0, timing.seconds - start.seconds),
        cpu_seconds=max(0.0, timing.cpu_seconds - start.cpu_seconds),
    )


def _timed(task: Task, results: Path) -> RecordsTiming:
    """Run a task on the records in ``results``."""
    environment = {**os.environ, "QWEN3NB_RESULTS": str(results)}
    with tempfile.TemporaryFile() as output:
        started = time.perf_counter()
        child = subprocess.Popen(
            [sys.executable, *task.arguments], env=environment, stdout=output, stderr=output
        )
        peak = _Peak(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        memory = max(peak.stop(), usage.ru_maxrss * 1024)
        if child.returncode:
            output.seek(0)
            raise ValueError(f"{task.name}: failed\n{output.read().decode(errors='replace')}")
    return RecordsTiming(task, seconds, usage.ru_utime + usage.ru_stime, memory / 1e9)


class _Peak:
    """Watch the memory of a process and of those that it starts."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._bytes = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """Return the peak in bytes."""
        self._done.set()
        self._thread.join()
        return self._bytes

    def _watch(self) -> None:
        while not self._done.wait(_EVERY):
            self._bytes = max(self._bytes, _resident(self._pid))


def _resident(pid: int) -> int:
    """Resident memory of a process and of all below it; pages that they share count for each."""
    import psutil

    total = 0
    try:
        first = psutil.Process(pid)
        every = [first, *first.children(recursive=True)]
    except psutil.NoSuchProcess:
        return 0
    for process in every:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def records_table(timings: list[RecordsTiming]) -> str:
    """The timings as a table, with the limits."""
    rows = [
        (
            each.task.name,
            f"{each.seconds:.1f} s",
            f"{each.cpu_seconds:.1f} s",
            f"{each.gigabytes:.2f} GB",
            f"{each.task.seconds:.0f} s"
            + (f", {each.task.gigabytes:g} GB" if each.task.gigabytes else ""),
            "yes" if each.within else "no",
        )
        for each in timings
    ]
    return markdown_table(
        ("task", "wall", "processor", "peak memory", "limit", "within"), rows, cell=str
    )
