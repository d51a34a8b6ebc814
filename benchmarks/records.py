"""How long, and in how much memory, do 3,000 records load, compare, make tables, verify?

    python -m benchmarks.records --models 10 --tasks 5 --seeds 1 --queries 2000
    python -m benchmarks.records --folder records --only compare

The limits are for the default size, 3,000 records of 1.1 GB, on two cores. Each task runs in a
process of its own; its processor time and its memory include those of the processes that it starts.

The records are synthetic, written as those of an evaluation are. Each query has one relevant
document, as in MS MARCO; its rank is drawn from the difficulty of the query and the skill of the
model, and the scores follow from the rank. The aggregates follow from the scores, so that
`qwen3nb verify` holds.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil

from benchmarks.options import PYTHON, command
from qwen3nb.bench.harness import table, timed
from qwen3nb.metrics.aggregate import means
from qwen3nb.metrics.intervals import Array
from qwen3nb.records.record import Environment, ModelInfo, MTEBScore, Result, RunCost, TaskInfo
from qwen3nb.records.side_files import QueryScores
from qwen3nb.tiers import TIERS, is_search
from qwen3nb.utils.atomic_files import read_json, sha256_json, write_json
from qwen3nb.utils.hardware import cores

_MAIN = "nDCG@10"
_TOP = 10
_JOBS = 3000  # of the plan
_EVERY = 0.05  # seconds between two looks at the memory
_LOAD = "import qwen3nb as q; records = q.load_results()"
_CLI = ("-m", "qwen3nb.cli.main")
_IMPORTS = "from qwen3nb.execution.sweep import SweepPlan"
_PLAN = (
    f"{_IMPORTS}; names = tuple(f'runs/a/checkpoint-{{i}}' for i in range({_JOBS} // 2)); "
    f"assert len(SweepPlan(names, ('smoke', 'fast')).jobs()) == {_JOBS}"
)
_TABLES = (*_CLI, "tables", "--tier", "full", "--format", "csv", "--out", "OUT")


@dataclass(frozen=True)
class Task:
    """Something to do with many records."""

    arguments: tuple[str, ...]  # of Python; ``OUT`` is a folder to write to
    seconds: float  # the limit for 50 models, 20 tasks, 3 seeds and 6,980 queries, on two cores
    gigabytes: float = float("inf")  # likewise
    start: str = ""  # code whose time is not counted, such as imports that outlast the work


TASKS = {
    "load_results": Task(("-c", _LOAD), 10, 0.3),
    "leaderboard": Task(("-c", f"{_LOAD}; q.leaderboard(records, tasks=records.tasks)"), 60, 2),
    "compare": Task(("-c", f"{_LOAD}; q.compare(records)"), 60, 2),
    "tables": Task(_TABLES, 60, 2),
    "verify --checksums": Task((*_CLI, "verify", "--checksums"), 60),
    "verify": Task((*_CLI, "verify"), 300),
    f"plan of {_JOBS:,} jobs": Task(("-c", _PLAN), 2, start=_IMPORTS),
}


@dataclass(frozen=True)
class TaskTiming:
    """What a task took: wall-clock and processor seconds, peak memory of all its processes."""

    name: str
    seconds: float
    cpu: float
    gigabytes: float


@dataclass(frozen=True)
class RecordSet:
    """The records to write: each model on each task with each seed."""

    models: int = 50
    tasks: int = 20  # number of tasks; the first are the searches of the tier ``full``
    seeds: int = 3
    queries: int = 6980  # queries of each task
    # whether records keep the ids of each query's best documents, as those of `eval` do
    top: bool = True

    def __len__(self) -> int:
        """Number of records."""
        return self.models * self.tasks * self.seeds

    def task_keys(self) -> list[str]:
        """Return the names of the tasks."""
        real = [key for key in TIERS["full"].task_keys if is_search(key)]
        return [*real, *(f"Synthetic{i:03d}" for i in range(self.tasks))][: self.tasks]


def bench_records(
    *,
    models: int = 50,
    tasks: int = 20,
    seeds: int = 3,
    queries: int = 6980,
    top: bool = True,
    folder: str = "",
    only: str = "",
) -> list[TaskTiming]:
    """Write synthetic records, kept in a folder if one is given, then time what reads them.

    Raises:
        ValueError: no such task, ``folder`` has other files, or a task failed; with its output.
    """
    selected = {name: each for name, each in TASKS.items() if only in ("", name)}
    if not selected:
        raise ValueError(f"task: expected one of {', '.join(TASKS)}; got {only!r}")
    records, timings = RecordSet(models, tasks, seeds, queries, top), []
    with tempfile.TemporaryDirectory() as scratch:
        results = prepared(records, Path(folder or f"{scratch}/results"))
        for name, task in selected.items():
            given = [each.replace("OUT", f"{scratch}/tables") for each in task.arguments]
            timing = _timed(name, given, results)
            if task.start:
                start = _timed(name, ["-c", task.start], results)
                seconds, cpu = timing.seconds - start.seconds, timing.cpu - start.cpu
                timing = replace(timing, seconds=max(0.0, seconds), cpu=max(0.0, cpu))
            timings.append(timing)
            print(f"{name}: {timing.seconds:.1f} s", flush=True)
    return timings


def shown(timings: list[TaskTiming]) -> str:
    """The timings as a table, with the limits."""
    rows = []
    for each in timings:
        limit = TASKS[each.name]
        within = each.seconds <= limit.seconds and each.gigabytes <= limit.gigabytes
        rows.append(
            {
                "task": each.name,
                "wall": f"{each.seconds:.1f} s",
                "processor": f"{each.cpu:.1f} s",
                "peak memory": f"{each.gigabytes:.2f} GB",
                "limit": f"{limit.seconds:g} s, {limit.gigabytes:g} GB",
                "within": "yes" if within else "no",
            }
        )
    return table(rows=rows)


def prepared(records: RecordSet, folder: Path) -> Path:
    """Write the records to ``folder``, unless they are there already, and return it.

    Raises:
        ValueError: the folder has other files, or other records.
    """
    note, wanted = folder / "synthetic.json", asdict(records)
    if note.is_file() and read_json(note) == wanted:
        return folder
    if folder.is_dir() and any(folder.iterdir()):
        raise ValueError(f"{folder}: expected an empty folder, or {len(records)} such records")
    _, took = timed(lambda: write_records(folder, records))
    size = sum(file.stat().st_size for file in folder.rglob("*.*"))
    print(f"{len(records):,} records written: {took.seconds:.0f} s, {size / 1e9:.2f} GB")
    write_json(note, wanted)
    return folder


def _timed(name: str, arguments: list[str], results: Path) -> TaskTiming:
    """Run a task on the records in ``results``."""
    environment = {**os.environ, "QWEN3NB_RESULTS": str(results)}
    with tempfile.TemporaryFile() as output:

        def run() -> tuple[int, float, float]:
            child = subprocess.Popen(
                [PYTHON, *arguments], env=environment, stdout=output, stderr=output
            )
            peak, done = [0], threading.Event()
            watch = threading.Thread(target=_watch, args=(child.pid, peak, done), daemon=True)
            watch.start()
            _, status, usage = os.wait4(child.pid, 0)
            done.set()
            watch.join()
            child.returncode = os.waitstatus_to_exitcode(status)
            memory = max(peak[0], usage.ru_maxrss * 1024)
            return child.returncode, usage.ru_utime + usage.ru_stime, memory / 1e9

        (code, cpu, gigabytes), took = timed(run)
        if code:
            output.seek(0)
            raise ValueError(f"{name}: failed\n{output.read().decode(errors='replace')}")
    return TaskTiming(name, took.seconds, cpu, gigabytes)


def _watch(pid: int, peak: list[int], done: threading.Event) -> None:
    """Note the memory of a process and of all below it; pages that they share count for each."""
    while not done.wait(_EVERY):
        total = 0
        try:
            first = psutil.Process(pid)
            for process in (first, *first.children(recursive=True)):
                total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
        peak[0] = max(peak[0], total)


def write_records(folder: Path, records: RecordSet, *, processes: int = 0) -> int:
    """Write the records to ``folder`` and return how many there are.

    Args:
        folder: where `load_results` finds them.
        records: what to write.
        processes: number of processes; 0 for one per core.
    """
    groups = list(product(range(records.tasks), range(records.seeds)))
    write = partial(_write_group, folder, records)
    processes = min(processes or cores(), len(groups))
    if processes == 1:
        return sum(map(write, groups))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        return sum(pool.map(write, groups))


def _write_group(folder: Path, records: RecordSet, group: tuple[int, int]) -> int:
    """Write the records of all models on one task with one seed."""
    for result in _results(records, *group):
        result.save(folder)
    return records.models


def _results(records: RecordSet, task: int, seed: int) -> Iterator[Result]:
    rng = np.random.default_rng([0, task])  # the same data for every seed
    n = records.queries
    queries = tuple(str(each) for each in rng.permutation(10 * n)[:n])
    difficulty = rng.normal(0, 1.5, n)
    environment, key = Environment.current(), records.task_keys()[task]
    for model in range(records.models):
        own = np.random.default_rng([0, task, seed, model])
        skill = 1 - model / records.models / 2
        ranks = np.ceil(np.exp(difficulty + own.normal(1.5 - skill, 1, n)))
        scores = QueryScores(queries, _scores(ranks))
        documents = own.integers(0, 1000 * n, (n, _TOP)).astype(str).tolist()
        top = {"top": dict(zip(queries, documents, strict=True))} if records.top else {}
        spec = f"runs/synthetic/checkpoint-{model}"
        metrics = means(dict(scores))
        value = metrics[_MAIN].value
        yield Result(
            model=_model(model, spec),
            task=TaskInfo(
                name=key,
                type="Retrieval",
                main_metric=_MAIN,
                dataset=f"synthetic/{key}",
                revision=sha256_json([key, n])[:12],
                size={"documents": 1000 * n, "queries": n},
                mteb=None if value is None else MTEBScore("ndcg_at_10", value),
                splits=("test",),
                subsets=("default",),
                languages=("eng-Latn",),
            ),
            metrics=metrics,
            per_query=scores,
            seed=seed,
            config={"checkpoint": spec, "tier": "full", "seed": seed, **top},
            environment=environment,
            cost=RunCost(seconds=1.0, texts=n, encoded=n, texts_per_second=float(n)),
            run=f"synthetic-{model}-{seed}",
            finished="2026-01-01T00:00:00+00:00",
        )


def _scores(ranks: Array) -> dict[str, Array]:
    """The metrics of searches whose relevant document has these ranks."""
    return {
        _MAIN: np.where(ranks <= 10, 1 / np.log2(1 + ranks), 0.0),
        "MRR@10": np.where(ranks <= 10, 1 / ranks, 0.0),
        "MAP@100": np.where(ranks <= 100, 1 / ranks, 0.0),
        "Recall@10": (ranks <= 10).astype(float),
        "Recall@100": (ranks <= 100).astype(float),
    }


def _model(number: int, spec: str) -> ModelInfo:
    settings = {
        "model": {"kind": "synthetic", "weights": sha256_json(number)},
        "prompts": {},
        "max_length": 512,
        "normalize": True,
        "dtype": "float32",
    }
    label = f"synthetic-checkpoint-{number}"
    return ModelInfo(label, sha256_json(settings), spec, settings, parameters=1000)


if __name__ == "__main__":
    command(bench_records, shown)
