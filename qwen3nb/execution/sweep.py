"""Run several notebooks on this machine in parallel.

Each run is a separate process, so that a failure or lack of memory in one does not stop
the others. A run already finished with the same inputs is not run again. With GPUs, each
run uses one of them.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import nbformat

from qwen3nb import paths
from qwen3nb.evaluation.mteb.preflight import weight_bytes
from qwen3nb.execution.attempt import LOG, Attempt
from qwen3nb.execution.notebook import (
    finished_page,
    page_path,
    partial_folder,
    resolved_parameters,
)
from qwen3nb.execution.parameters import Once, ParameterError
from qwen3nb.execution.subprocesses import Children, interrupted_by_sigterm
from qwen3nb.models.sources.resolve import find_source
from qwen3nb.records.failures import failed_run
from qwen3nb.utils.hardware import available_memory, cores, gpus
from qwen3nb.utils.progress import tqdm
from qwen3nb.utils.secrets import secret_values, without

__all__ = ["Job", "Outcome", "Stopped", "check_jobs", "fitting", "sweep"]

# Memory of libraries and kernel, and factor for weights read in one format, kept in another.
_BASE_MEMORY = 3 << 29
_TIMES_WEIGHTS = 3


class Stopped(click.ClickException):
    """The sweep was interrupted; the message says how to resume it."""

    exit_code = 130


@dataclass(frozen=True)
class Job:
    """A notebook and its parameters."""

    notebook: str
    parameters: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name of the page."""
        return paths.page_key(self.page)

    @property
    def page(self) -> Path:
        """Path of the page."""
        return self.resolved(Once())[1]

    @property
    def values(self) -> dict[str, Any]:
        """Values of all parameters, with defaults filled in."""
        return resolved_parameters(paths.find_notebook(self.notebook), self.parameters)

    def resolved(self, once: Once) -> tuple[dict[str, Any], Path]:
        """Return the values and the page; jobs share what they resolve through ``once``."""
        notebook = once(paths.find_notebook, self.notebook)
        values = resolved_parameters(notebook, self.parameters, once=once)
        return values, page_path(notebook, values, once=once)

    def finished(self, once: Once | None = None) -> bool:
        """Return whether a finished page with the same inputs exists."""
        once = once or Once()
        notebook = once(paths.find_notebook, self.notebook)
        return finished_page(notebook, self.parameters, once=once) is not None


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job.

    Attributes:
        job: the job.
        status: ``done``, ``reused`` or ``failed``.
        seconds: duration of the job.
        log: file with its output.
        reason: why it failed, on one line.
    """

    job: Job
    status: str
    seconds: float
    log: Path
    reason: str = ""


@dataclass
class _Workers:
    """Settings and resources for running jobs in parallel, with one GPU each if available."""

    at_once: int
    fresh: bool
    gpus: queue.Queue[str] | None
    children: Children

    @contextmanager
    def environment(self, log: Path) -> Any:
        """Yield the environment of a run, with a GPU that no other run uses meanwhile."""
        threads = str(max(1, cores() // self.at_once))
        shared = {
            "OMP_NUM_THREADS": threads,
            # Threads that spin while waiting take cores away from other runs.
            "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
            "TOKENIZERS_PARALLELISM": "false",
            LOG: str(log),
        }
        if self.gpus is None:
            yield {**os.environ, **shared}
            return
        gpu = self.gpus.get()
        try:
            yield {**os.environ, **shared, "CUDA_VISIBLE_DEVICES": gpu}
        finally:
            self.gpus.put(gpu)


def sweep(
    jobs: Sequence[Job], *, at_once: int = 0, fresh: bool = False, show_progress: bool = True
) -> list[Outcome]:
    """Run every job and return the outcomes in the order of ``jobs``.

    Args:
        jobs: the jobs; all are checked before the first one starts.
        at_once: parallel processes; 0 for `fitting`. With GPUs, at most one per GPU.
        fresh: run jobs again even if their page is up to date.
        show_progress: whether to show a progress bar and a line per finished job.

    Raises:
        ParameterError: a job is invalid; nothing was run.
        Stopped: interrupted by Ctrl-C or SIGTERM. Running jobs were killed; pages are intact.
    """
    check_jobs(jobs)
    devices = gpus()
    at_once = min(at_once or fitting(jobs), len(devices) or len(jobs) or 1)
    workers = _Workers(at_once, fresh, _queue_of(devices), Children())
    outcomes: dict[int, Outcome] = {}
    bar = tqdm(total=len(jobs), desc="notebooks", unit="run", disable=not show_progress)
    try:
        with interrupted_by_sigterm(), bar, ThreadPoolExecutor(at_once) as pool:
            waiting = {pool.submit(_run, job, workers): i for i, job in enumerate(jobs)}
            try:
                for future in as_completed(waiting):
                    outcomes[waiting[future]] = future.result()
                    _print_outcome(future.result(), bar)
            except BaseException:
                workers.children.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
    except KeyboardInterrupt:
        raise Stopped(
            f"stopped after {len(outcomes)} of {len(jobs)} runs. "
            "Repeat the command to resume; finished runs are not run again"
        ) from None
    return [outcomes[index] for index in range(len(jobs))]


def _queue_of(devices: Sequence[str]) -> queue.Queue[str] | None:
    if not devices:
        return None
    waiting: queue.Queue[str] = queue.Queue()
    for device in devices:
        waiting.put(device)
    return waiting


def _print_outcome(outcome: Outcome, bar: Any) -> None:
    bar.update(1)
    if not bar.disable:
        bar.write(f"  {outcome.status:7} {outcome.seconds:6.1f} s  {outcome.job.name}")
        if outcome.reason:
            bar.write(f"          {outcome.reason}\n          see {paths.shown(outcome.log)}")


def check_jobs(jobs: Sequence[Job]) -> None:
    """Check that all jobs can run and that no two write the same page.

    Raises:
        ParameterError: an invalid job, or two jobs with the same page.
        FileNotFoundError: no such notebook.
    """
    pages: dict[Path, Job] = {}
    one_gpu_each = bool(gpus())
    once = Once()
    for job in jobs:
        values, page = job.resolved(once)
        other = pages.setdefault(page, job)
        if other is not job:
            theirs = other.values
            differ = [name for name in values if values[name] != theirs[name]]
            how = f"differ in {', '.join(differ)}" if differ else "are the same"
            name = paths.page_key(page)
            raise ParameterError(f"two runs would write the page {name}; they {how}")
        device = str(values.get("device", ""))
        if one_gpu_each and re.fullmatch(r"cuda:[1-9]\d*", device):
            raise ParameterError(
                f"device is {device!r}, but each run of a sweep sees only one GPU; use 'cuda'"
            )


def fitting(jobs: Sequence[Job]) -> int:
    """Return how many jobs fit in parallel: one per core, at most four, as memory allows."""
    # Jobs on one checkpoint need the same memory; without one, that of the notebook's default.
    kinds = {job.parameters.get("checkpoint") or (job.notebook,): job for job in jobs}
    largest = max(map(_weights, kinds.values()), default=0)
    fit = available_memory() // (_BASE_MEMORY + _TIMES_WEIGHTS * largest)
    return max(1, min(4, cores(), fit))


def _weights(job: Job) -> int:
    """Return the size in bytes of the model weights of a job on disk."""
    values = job.values
    return weight_bytes(find_source(values["checkpoint"])) if "checkpoint" in values else 0


def _run(job: Job, workers: _Workers) -> Outcome:
    started = time.time()
    log = paths.results() / "logs" / f"{job.name}.log"
    try:
        reused = not workers.fresh and job.finished()
    except (ValueError, OSError):  # a broken model; its run reports the cause
        reused = False
    if reused:
        return Outcome(job, "reused", time.time() - started, log)
    log.parent.mkdir(parents=True, exist_ok=True)
    with workers.environment(log) as environment:
        status = workers.children.run(_command(job, workers), log=log, environment=environment)
    stopped = workers.children.stopped  # killed by us: not a failure
    reason = _reason(job, status, started=started, log=log) if status and not stopped else ""
    return Outcome(job, "failed" if status else "done", time.time() - started, log, reason)


def _command(job: Job, workers: _Workers) -> list[str]:
    command = [sys.executable, "-m", "qwen3nb.cli.main", "run", job.notebook]
    command += ["--fresh"] if workers.fresh else []
    for name, value in job.parameters.items():
        command += ["-p", name, str(value)]
    return command


def _reason(job: Job, status: int, *, started: float, log: Path) -> str:
    """Return why a job failed; write its page if the process died before doing so."""
    note = failed_run(job.name)
    began = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(started))
    if note is None or note.started < began:
        notebook = paths.find_notebook(job.notebook)
        partial = partial_folder() / f"{job.name}.ipynb"
        executed = partial if partial.is_file() else None
        attempt = Attempt(
            paths.notebook_name(notebook), job.values, job.page, executed, started, str(log)
        )
        attempt.fail(nbformat.read(notebook, as_version=4), _ended(status), _last_line(log),
                     secrets=secret_values())  # fmt: skip
        note = failed_run(job.name)
    return without(secret_values(), note.reason if note else _ended(status))


def _ended(status: int) -> str:
    if status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
