"""The harness of every benchmark: methods that take turns, and tables.

Methods take turns in one process, after an untimed call each, and the median of the rounds counts,
so that other work on the machine slows all of them. CPU seconds are those of all threads, which
load hardly affects.
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeVar

from qwen3nb.utils.format import aligned
from qwen3nb.utils.hardware import processor

T = TypeVar("T")


@dataclass(frozen=True)
class Timing:
    """Median seconds of a method, and CPU seconds of all its threads."""

    seconds: float
    cpu: float


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


def machine() -> str:
    """Describe what speed depends on besides the code."""
    import torch

    waiting = os.environ.get("OMP_WAIT_POLICY", "not set")
    return (
        f"{processor()}, {torch.get_num_threads()} threads, OMP_WAIT_POLICY {waiting}, "
        f"load {os.getloadavg()[0]:.1f}, PyTorch {torch.__version__}"
    )


def table(
    *title: str, rows: Iterable[Mapping[str, Any]], shown: str = "", notes: Iterable[str] = ()
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
