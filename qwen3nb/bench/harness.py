"""The harness of every benchmark: methods that take turns, processes of their own, tables.

Methods take turns in one process, after an untimed call each, and the median of the rounds counts,
so that other work on the machine slows all of them. CPU seconds are those of all threads, which
load hardly affects. Peak memory is that of a process that does one thing, above what it had after
its imports.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

from qwen3nb.utils.format import aligned
from qwen3nb.utils.hardware import peak_memory, processor, resident_memory

T = TypeVar("T")
PYTHON = sys.executable


@dataclass(frozen=True)
class Timing:
    """Median seconds of a method, and CPU seconds of all its threads."""

    seconds: float
    cpu: float


@dataclass(frozen=True)
class ChildTiming(Timing):
    """One call in a process of its own."""

    output: Any  # what the call returned, through JSON
    peak: int  # peak memory of the process in bytes
    above: int  # the part of the peak above that before the call
    grown: int  # the part of the peak above the memory before the call


def timed(call: Callable[[], T], *, device: object = "cpu") -> tuple[T, Timing]:
    """Return the result of a call, and what it took until the device had done it."""
    seconds, cpu = time.perf_counter(), time.process_time()
    result = call()
    if str(device).startswith("cuda"):
        import torch

        torch.cuda.synchronize(str(device))
    return result, Timing(time.perf_counter() - seconds, time.process_time() - cpu)


def in_turn(
    methods: Mapping[str, Callable[[], T]],
    *,
    rounds: int,
    after: Callable[[], object] = lambda: None,
    warm: bool = False,
) -> tuple[dict[str, Timing], dict[str, T]]:
    """Return the medians of each method over the rounds, and the result of its untimed first call.

    Args:
        methods: calls by name.
        rounds: number of timed rounds.
        after: called once after every round, such as `MatrixPeak.sample`.
        warm: whether there is no need for an untimed call.
    """
    results = {} if warm else {name: call() for name, call in methods.items()}
    times: dict[str, list[Timing]] = {name: [] for name in methods}
    for _ in range(rounds):
        for name, call in methods.items():
            times[name].append(timed(call)[1])
        after()
    medians = {
        name: Timing(median(each.seconds for each in own), median(each.cpu for each in own))
        for name, own in times.items()
    }
    return medians, results


def in_child(prepare: Callable[..., Callable[[], Any]], *arguments: str | int) -> ChildTiming:
    """Call what ``prepare`` returns in a new process, and measure that call.

    Args:
        prepare: a function of a module or of a script; what it imports, loads and warms is not
            measured.
        arguments: of ``prepare``.

    Raises:
        ValueError: the process failed; with the end of its error output.
    """
    code = "import sys; from qwen3nb.bench.harness import _child; _child(*sys.argv[1:])"
    file, name = prepare.__code__.co_filename, prepare.__name__
    printed = finished([PYTHON, "-c", code, file, name, json.dumps(arguments)])
    return ChildTiming(**json.loads(printed.splitlines()[-1]))


def _child(file: str, name: str, arguments: str) -> None:
    """In the child process: prepare, call, and print what the call took."""
    call = runpy.run_path(file)[name](*json.loads(arguments))
    highest, before = peak_memory() or 0, resident_memory()
    output, timing = timed(call)
    peak = peak_memory() or resident_memory()
    answer = {"output": output, "peak": peak, "above": peak - highest, "grown": peak - before}
    print(json.dumps({**vars(timing), **answer}))


def finished(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """Run a program to its end and return what it printed.

    Raises:
        ValueError: it failed; with the end of its error output.
    """
    done = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = (done.stderr or done.stdout)[-2000:]
        raise ValueError(f"`{' '.join(arguments[1:7])} …` failed:\n{tail}")
    return done.stdout


def machine() -> str:
    """Describe what speed depends on besides the code."""
    import torch

    waiting = os.environ.get("OMP_WAIT_POLICY", "not set")
    return (
        f"{processor()}, {torch.get_num_threads()} threads, OMP_WAIT_POLICY {waiting}, "
        f"load {os.getloadavg()[0]:.1f}, PyTorch {torch.__version__}"
    )


def table(
    *title: str,
    rows: Iterable[Mapping[str, Any]],
    shown: str = "",
    notes: Iterable[str] = (),
) -> str:
    """Return rows as plain text.

    Args:
        title: lines above.
        rows: values by name.
        shown: head and template of each column, such as ``s: {seconds:.2f} | share: {share:.0%}``;
            by default every value as it is. A missing value is a dash.
        notes: lines below.
    """

    def cell(template: str, row: Mapping[str, Any]) -> str:
        try:
            return template.format_map(row)
        except TypeError:  # None has no format
            return "-"

    given = list(rows)
    columns = dict(each.split(": ", 1) for each in shown.split(" | ")) if shown else {}
    heads = list(columns or (given[0] if given else ()))
    cells = [
        tuple(cell(columns[head], row) if shown else str(row[head]) for head in heads)
        for row in given
    ]
    return "\n".join([*title, *(aligned([tuple(heads), *cells]) if heads else ()), *notes])
