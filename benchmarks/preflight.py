"""Does the estimate before an evaluation hold? Minutes and memory planned, and then measured.

    python -m benchmarks.preflight
    python -m benchmarks.preflight --busy 10 --models bm25 --tasks PyDocsRetrieval

Each model and task has a process of its own: it loads the model, estimates, and evaluates without
stored vectors. Memory is that above the loaded model, at its peak. With ``--busy``, so many
processes compute beside it. A ratio of 1.5 means half as much again as was measured.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from benchmarks.options import PYTHON, command, finished
from qwen3nb.bench.harness import machine, table, timed
from qwen3nb.utils.hardware import peak_memory, resident_memory


@dataclass(frozen=True)
class PlannedAndMeasured:
    """A model on a task: what was planned, and what it took."""

    model: str
    task: str
    planned_seconds: float
    seconds: float
    cpu: float  # seconds of all threads
    planned_memory: float  # bytes above the loaded model
    memory: float


@dataclass(frozen=True)
class PreflightBench:
    """All models and tasks."""

    title: str
    runs: tuple[PlannedAndMeasured, ...]

    def table(self) -> str:
        """Estimates beside what was measured, as plain text."""
        rows = []
        for run in self.runs:
            rows.append(
                {
                    "model": run.model,
                    "task": run.task,
                    "planned s": f"{run.planned_seconds:.1f}",
                    "measured s": f"{run.seconds:.1f}",
                    "ratio": f"{run.planned_seconds / run.seconds:.2f}",
                    "CPU s": f"{run.cpu:.1f}",
                    "planned MB": f"{run.planned_memory / 1e6:.0f}",
                    "measured MB": f"{run.memory / 1e6:.0f}",
                    "ratio ": f"{run.planned_memory / max(1.0, run.memory):.2f}",
                }
            )
        return table(machine(), self.title, rows=rows)


def bench_preflight(
    *,
    models: tuple[str, ...] = ("bm25", "all-MiniLM-L6-v2"),
    tasks: tuple[str, ...] = ("AuthorSTS", "PyDocsRetrieval", "PyDocsReranking"),
    busy: int = 0,
) -> PreflightBench:
    """Compare the estimates before evaluations with what these take."""
    runs = []
    with _busy_processes(busy):
        for model in models:
            for task in tasks:
                code = "import sys; from benchmarks.preflight import run; run(*sys.argv[1:])"
                with tempfile.TemporaryDirectory() as folder:
                    printed = finished([PYTHON, "-c", code, model, task, folder])
                measured = json.loads(printed.splitlines()[-1])
                if measured:
                    runs.append(PlannedAndMeasured(model, task, **measured))
    return PreflightBench(f"{busy} busy processes beside", tuple(runs))


@contextmanager
def _busy_processes(count: int) -> Iterator[None]:
    """Let so many processes compute within the block."""
    processes = [subprocess.Popen([PYTHON, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run(spec: str, name: str, folder: str) -> None:
    """In the child process: estimate, evaluate, and print both; null if the model cannot."""
    from qwen3nb.evaluation.evaluate import evaluate
    from qwen3nb.evaluation.mteb.plan import preflight
    from qwen3nb.evaluation.mteb.select import choose_tasks
    from qwen3nb.evaluation.run import Run
    from qwen3nb.models.load import load_model

    if spec == "bm25":  # it has no vectors to keep
        model = load_model(spec, show_progress=False)
    else:
        model = load_model(spec, show_progress=False, cache=False)
    tasks = choose_tasks(tasks=[name])
    ready = preflight(model, tasks, Run(output=folder))
    if ready.minutes is None:
        print("null")
        return
    memory = ready.checks[0].parts
    _, took = timed(lambda: evaluate(model, tasks=tasks, output=folder))
    measured = {
        "planned_seconds": 60 * ready.minutes,
        "seconds": took.seconds,
        "cpu": took.cpu,
        "planned_memory": memory["needed"],
        "memory": (peak_memory() or resident_memory()) - memory["loaded"],
    }
    print(json.dumps(measured))


if __name__ == "__main__":
    command(bench_preflight, PreflightBench.table)
