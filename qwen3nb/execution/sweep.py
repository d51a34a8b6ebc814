"""Run several notebooks on this machine, some of them in parallel.

Each run is a process of its own, so that one that fails or runs out of memory does not
stop the others. A run that was finished with the same inputs is not run again. Where there
are GPUs, each run has one of its own.
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
from tqdm import tqdm

from qwen3nb import paths
from qwen3nb.execution.attempt import LOG, Attempt
from qwen3nb.execution.notebook import (
    finished_page,
    page_path,
    partial_folder,
    resolved_parameters,
)
from qwen3nb.execution.parameters import ParameterError
from qwen3nb.execution.subprocesses import Children, interrupted_by_sigterm
from qwen3nb.models.sources.resolve import find_source
from qwen3nb.records.failures import failed_run
from qwen3nb.utils.hardware import available_memory, cores, gpus
from qwen3nb.utils.secrets import secret_values, without

__all__ = ["Job", "Outcome", "Stopped", "check_jobs", "fitting", "sweep"]

# Libraries and a kernel; and the weights, which are read in one format and kept in another.
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
        """The name of the page it makes."""
        return self.page.stem

    @property
    def page(self) -> Path:
        """The page it makes."""
        return page_path(paths.find_notebook(self.notebook), self.values)

    @property
    def values(self) -> dict[str, Any]:
        """All parameters, defaults filled in."""
        return resolved_parameters(paths.find_notebook(self.notebook), self.parameters)

    def finished(self) -> bool:
        """Whether its page exists, finished with the same inputs."""
        return finished_page(paths.find_notebook(self.notebook), self.parameters) is not None


@dataclass(frozen=True)
class Outcome:
    """The outcome of a job.

    Attributes:
        job: the job.
        status: ``done``, ``reused`` or ``failed``.
        seconds: how long it took.
        log: what it printed.
        reason: why it failed, in a line.
    """

    job: Job
    status: str
    seconds: float
    log: Path
    reason: str = ""


@dataclass
class _Workers:
    """Where jobs run: a number at once, each with a GPU if there are any."""

    at_once: int
    fresh: bool
    gpus: queue.Queue[str] | None
    children: Children

    @contextmanager
    def environment(self, log: Path) -> Any:
        """The environment of a run, with a GPU that no other has meanwhile."""
        threads = str(max(1, cores() // self.at_once))
        shared = {
            "OMP_NUM_THREADS": threads,
            # Threads that spin while they wait take the cores from the other runs.
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
    """Run every job; returns the outcomes in the order of ``jobs``.

    Args:
        jobs: the jobs; all are checked before the first one starts.
        at_once: parallel processes; 0 for `fitting`. With GPUs, at most one per GPU.
        fresh: run jobs again even if their page is finished.
        show_progress: whether to show a bar, with a line per finished job.

    Raises:
        ParameterError: a job is invalid; nothing was run.
        Stopped: by Ctrl-C or SIGTERM. Running jobs were killed; pages are whole or unchanged.
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
            f"stopped; {len(outcomes)} of {len(jobs)} runs had ended. "
            "Run the same command to resume: finished runs are not run again"
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
    """Refuse jobs that cannot run or that would overwrite each other's page.

    Raises:
        ParameterError: an invalid job, or two with the same page; names them.
        FileNotFoundError: no such notebook.
    """
    pages: dict[str, Job] = {}
    one_gpu_each = bool(gpus())
    for job in jobs:
        values = job.values
        other = pages.setdefault(job.name, job)
        if other is not job:
            differ = [name for name in values if values[name] != other.values[name]]
            how = f"differ in {', '.join(differ)}" if differ else "are the same"
            raise ParameterError(f"two runs would make the page {job.name}; they {how}")
        device = str(values.get("device", ""))
        if one_gpu_each and re.fullmatch(r"cuda:[1-9]\d*", device):
            raise ParameterError(
                f"device is {device!r}; each run of a sweep sees one GPU only: use 'cuda'"
            )


def fitting(jobs: Sequence[Job]) -> int:
    """How many of these can run in parallel: one per core, at most four, as memory allows."""
    largest = max((_weights(job) for job in jobs), default=0)
    fit = available_memory() // (_BASE_MEMORY + _TIMES_WEIGHTS * largest)
    return max(1, min(4, cores(), fit))


def _weights(job: Job) -> int:
    """Bytes of the weights of a job's model on disk."""
    values = job.values
    source = find_source(values["checkpoint"]) if "checkpoint" in values else None
    parts = [] if source is None else [source, *source.parts]
    folders = [part.folder for part in parts if part.folder is not None]
    return sum(file.stat().st_size for each in folders for file in each.glob("*.safetensors"))


def _run(job: Job, workers: _Workers) -> Outcome:
    started = time.time()
    log = paths.results() / "logs" / f"{job.name}.log"
    try:
        reused = not workers.fresh and job.finished()
    except (ValueError, OSError):  # a broken model: its run reports how
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
    """Why a job failed; writes its page if the process died before it could."""
    note = failed_run(job.name)
    began = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(started))
    if note is None or note.started < began:
        notebook = paths.find_notebook(job.notebook)
        partial = partial_folder() / job.page.name
        executed = partial if partial.is_file() else None
        attempt = Attempt(notebook.stem, job.values, job.page, executed, started, str(log))
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
