"""The harness of every benchmark: methods that take turns, and tables.

Methods take turns in one process, after an untimed call each, and the median of the rounds counts,
so that other work on the machine slows all of them. CPU seconds are those of all threads, which
load hardly affects.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TypeAlias, TypeVar

import psutil

from qwen3nb.utils.format import aligned
from qwen3nb.utils.hardware import processor

_QUIET = 0.05  # the share of all cores that other programs may use

T = TypeVar("T")
Row: TypeAlias = Mapping[str, object]  # of a table: values by name


@dataclass(frozen=True)
class Timing:
    """Median seconds of a method, and CPU seconds of all its threads."""

    seconds: float
    cpu: float


def timed(call: Callable[[], T], *, device: object = "cpu") -> tuple[T, Timing]:
    """Return the result of a call, and what it took until the device had done it."""
    started = time.perf_counter()
    cpu_started = time.process_time()
    result = call()
    if str(device).startswith("cuda"):  # which works on after the call returns
        import torch

        torch.cuda.synchronize(str(device))
    seconds = time.perf_counter() - started
    cpu_seconds = time.process_time() - cpu_started
    return result, Timing(seconds, cpu_seconds)


def in_turn(
    methods: Mapping[str, Callable[[], T]],
    *,
    rounds: int,
    after: Callable[[], object] | None = None,
    warm: bool = False,
) -> tuple[dict[str, Timing], dict[str, T]]:
    """Return the medians of each method over the rounds, and the result of its untimed first call.

    Args:
        methods: calls by name.
        rounds: number of timed rounds.
        after: called once after every round, such as `MatrixPeak.sample`.
        warm: whether there is no need for an untimed call.
    """
    results = {}
    if not warm:
        # Untimed: a first call also loads, compiles and fills caches.
        results = {name: call() for name, call in methods.items()}
    timings: dict[str, list[Timing]] = {name: [] for name in methods}
    for _ in range(rounds):
        for name, call in methods.items():
            _, timing = timed(call)
            timings[name].append(timing)
        if after is not None:
            after()
    medians = {name: _median(timings_of_method) for name, timings_of_method in timings.items()}
    return medians, results


def _median(timings: Sequence[Timing]) -> Timing:
    """Return the median of seconds, and of CPU seconds."""
    seconds = [timing.seconds for timing in timings]
    cpu_seconds = [timing.cpu for timing in timings]
    return Timing(median(seconds), median(cpu_seconds))


@dataclass
class OtherWork:
    """What other programs did meanwhile, in cores: 1.5 are one and a half busy cores."""

    cores: float = 0.0

    @property
    def warning(self) -> str:
        """Say that the machine was not quiet; empty if it was."""
        if self.cores < _QUIET * (os.cpu_count() or 1):
            return ""
        return (
            f"the machine was not quiet: other programs used {self.cores:.1f} of "
            f"{os.cpu_count()} cores; measure again when they have ended"
        )


@contextmanager
def other_work() -> Iterator[OtherWork]:
    """Measure what other programs do during the block: all work less that of this process."""
    work = OtherWork()
    started = time.perf_counter()
    ours, all_work = time.process_time(), _busy_seconds()
    yield work
    of_others = _busy_seconds() - all_work - (time.process_time() - ours)
    work.cores = max(0.0, of_others) / (time.perf_counter() - started)


def _busy_seconds() -> float:
    """Return the seconds of all cores that programs, or other machines on them, have used."""
    times = psutil.cpu_times()._asdict()
    idle = times["idle"] + times.get("iowait", 0.0)
    guests = times.get("guest", 0.0) + times.get("guest_nice", 0.0)  # contained in "user"
    return float(sum(times.values()) - idle - guests)


def machine() -> str:
    """Describe what speed depends on besides the code."""
    import torch

    waiting = os.environ.get("OMP_WAIT_POLICY", "not set")
    return (
        f"{processor()}, {torch.get_num_threads()} threads, OMP_WAIT_POLICY {waiting}, "
        f"load {os.getloadavg()[0]:.1f}, PyTorch {torch.__version__}"
    )


def table(*title: str, rows: Iterable[Row], shown: str = "", notes: Iterable[str] = ()) -> str:
    """Return rows as plain text.

    Args:
        title: lines above.
        rows: values by name.
        shown: head and template of each column, such as ``s: {seconds:.2f} | share: {share:.0%}``;
            by default every value as it is. A missing value is a dash.
        notes: lines below.
    """
    rows = list(rows)
    lines = list(title)
    if shown:
        templates: dict[str, str] = {}  # by heading
        # Such as ``s: {seconds:.2f} | share: {share:.0%}``.
        for column in shown.split(" | "):
            heading, template = column.split(": ", 1)
            templates[heading] = template
        cells = []
        for row in rows:
            cells.append(tuple(_cell(template, row) for template in templates.values()))
        lines += aligned([tuple(templates), *cells])
    elif rows:
        names = tuple(rows[0])
        cells = [tuple(str(row[name]) for name in names) for row in rows]
        lines += aligned([names, *cells])
    return "\n".join([*lines, *notes])


def _cell(template: str, row: Row) -> str:
    """Return a cell; a dash for a missing value."""
    try:
        return template.format_map(row)
    except TypeError:  # None has no format
        return "-"
