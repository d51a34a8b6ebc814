"""Several notebook runs on this machine, some at a time.

Each run is a process of its own, so that one that fails, or runs out of memory, takes
no other with it. A run that was finished with the same inputs is not run again.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from qwen3nb import paths
from qwen3nb.run.notebook import find_notebook, finished_page, page_path, resolved_parameters

__all__ = ["Job", "Outcome", "sweep"]


@dataclass(frozen=True)
class Job:
    """A notebook and its parameters."""

    notebook: str
    parameters: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The name of the page it makes."""
        notebook = find_notebook(self.notebook)
        return page_path(notebook, resolved_parameters(notebook, self.parameters)).stem


@dataclass(frozen=True)
class Outcome:
    """What came of a job.

    Attributes:
        job: the job.
        status: ``done``, ``reused`` or ``failed``.
        seconds: how long it took.
        log: what it printed.
    """

    job: Job
    status: str
    seconds: float
    log: Path


def sweep(jobs: Sequence[Job], *, at_once: int = 0, show_progress: bool = True) -> list[Outcome]:
    """Run every job; the outcomes are in the order of ``jobs``.

    Args:
        jobs: what to run. All parameters are checked before the first one starts.
        at_once: processes at a time; 0 for one per core, at most four.
        show_progress: whether to show a bar, with a line per finished job.

    Raises:
        ParameterError: parameters of some job are wrong; nothing was run.
    """
    for job in jobs:
        resolved_parameters(find_notebook(job.notebook), job.parameters)
    at_once = at_once or min(4, os.cpu_count() or 1)
    outcomes: dict[int, Outcome] = {}
    bar = tqdm(total=len(jobs), desc="notebooks", unit="run", disable=not show_progress)
    with bar, ThreadPoolExecutor(at_once) as pool:
        waiting = {pool.submit(_run, job, at_once): index for index, job in enumerate(jobs)}
        for future in as_completed(waiting):
            outcome = future.result()
            outcomes[waiting[future]] = outcome
            bar.update(1)
            if show_progress:
                bar.write(f"  {outcome.status:7} {outcome.seconds:6.1f} s  {outcome.job.name}")
    return [outcomes[index] for index in range(len(jobs))]


def _run(job: Job, at_once: int) -> Outcome:
    started = time.perf_counter()
    log = paths.results() / "logs" / f"{job.name}.log"
    if finished_page(find_notebook(job.notebook), job.parameters):
        return Outcome(job, "reused", time.perf_counter() - started, log)
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "qwen3nb.run.cli", "run", job.notebook]
    for name, value in job.parameters.items():
        command += ["-p", name, str(value)]
    threads = str(max(1, (os.cpu_count() or 1) // at_once))
    environment = {**os.environ, "OMP_NUM_THREADS": threads, "TOKENIZERS_PARALLELISM": "false"}
    with log.open("w", encoding="utf-8") as file:
        done = subprocess.run(
            command, stdout=file, stderr=subprocess.STDOUT, env=environment, check=False
        )
    status = "failed" if done.returncode else "done"
    return Outcome(job, status, time.perf_counter() - started, log)
