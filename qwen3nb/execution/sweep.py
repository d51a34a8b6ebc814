"""Run several notebooks in parallel, on this machine or on a Ray cluster.

Each run is a separate process, so a failure or lack of memory does not stop the others. A run
already finished with the same inputs is not run again. With GPUs, each run uses one of them.
Processes are started by `qwen3nb.execution.executors`.

A plan is model × tier × notebook, from options or a TOML file with the fields of `SweepPlan`.
Relative paths are resolved against the working directory, then the project root.
"""

import signal
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import nbformat
from pydantic import ConfigDict, Field, Strict, StrictBool, StrictStr

from qwen3nb import paths
from qwen3nb.answers.all_results import write_all_results
from qwen3nb.cluster.nodes import is_seen
from qwen3nb.evaluation.mteb.availability import weight_bytes
from qwen3nb.execution.executors import (
    Command,
    Executor,
    LocalExecutor,
    RayExecutor,
    RunOutcome,
    on_cluster,
)
from qwen3nb.execution.interruption import Interrupted, interrupted_by_signals
from qwen3nb.execution.notebook import (
    finished_page,
    page_path,
    partial_folder,
    resolved_parameters,
    settle,
)
from qwen3nb.execution.parameters import (
    Declared,
    ParameterError,
    cached_call,
    cached_calls,
    model_of,
    read_notebook,
    read_parameters,
    typed_parameters,
)
from qwen3nb.execution.parts import parts_of, tasks_memory
from qwen3nb.execution.publish import NotebookRun, named_models
from qwen3nb.execution.shares import LastOne, Share
from qwen3nb.execution.study_paths import NewValues, Values
from qwen3nb.records.failures import FailedRun, failed_run, failed_runs
from qwen3nb.utils.atomic_files import claim, exclusive_lock, sha256_json
from qwen3nb.utils.children import last_line
from qwen3nb.utils.choices import split_names
from qwen3nb.utils.format import by_number
from qwen3nb.utils.hardware import available_memory, cores
from qwen3nb.utils.progress import tqdm
from qwen3nb.utils.schema import read_toml
from qwen3nb.utils.secrets import known_secrets
from qwen3nb.utils.terminal import uncoloured, visible

# Memory of libraries and kernel, and factor for weights converted on reading.
_BASE_MEMORY = 3 << 29
_TIMES_WEIGHTS = 3
_MOST_MATCHES = 100_000  # files and folders of a glob
_OF_THE_SYSTEM = (("/", "proc"), ("/", "sys"))  # what the kernel shows as folders
_MOST_AT_ONCE = 4  # runs, unless the user asks for more
_SECONDS_BETWEEN_WAKES = 0.5


@dataclass(frozen=True)
class Job:
    """A notebook and its parameters."""

    notebook: str  # its name or path
    parameters: Values  # values by name
    page_name: str = ""  # name of the page; by default see `page_names.page_name`

    @property
    def name(self) -> str:
        """Name of the page."""
        return paths.page_key(self.page)

    @property
    def page(self) -> Path:
        """Path of the page."""
        _values, page = self.resolved()
        return page

    @property
    def values(self) -> NewValues:
        """Values of all parameters, with defaults filled in."""
        return resolved_parameters(self.notebook_file, self.parameters)

    @property
    def notebook_file(self) -> Path:
        """The notebook."""
        return cached_call(paths.find_notebook, self.notebook)

    @property
    def log(self) -> Path:
        """The file that gets its output."""
        return paths.results() / "logs" / f"{self.name}.log"

    def resolved(self) -> tuple[NewValues, Path]:
        """Return the values and the page."""
        values = self.values
        return values, page_path(self.notebook_file, values, name=self.page_name)

    def finished(self) -> bool:
        """Return whether a finished page with the same inputs exists."""
        return finished_page(self.notebook_file, self.parameters, name=self.page_name) is not None


def sweep(
    jobs: Sequence[Job],
    *,
    at_once: int = 0,
    fresh: bool = False,
    show_progress: bool = True,
    ray: str = "",
    gpus_each: float = 1.0,
) -> list[RunOutcome]:
    """Run every job and return the outcomes in the order of ``jobs``.

    Args:
        jobs: the jobs; all are checked before the first one starts.
        at_once: parallel processes; 0 for `fitting`. With GPUs, at most one per GPU. On a cluster,
            per smallest node.
        fresh: run jobs again even if their page is up to date.
        show_progress: whether to show a progress bar and a line per finished job.
        ray: a Ray cluster for the runs, see `qwen3nb.cluster.nodes`; empty: this machine.
        gpus_each: GPUs per run on a cluster with GPUs; fractions share a GPU.

    Raises:
        ParameterError: a job is invalid; nothing was run.
        ClusterError: no cluster, or none of its nodes equals this machine; or it was lost.
        Interrupted: interrupted by Ctrl-C, SIGTERM or SIGHUP. Running jobs were killed; pages are
            intact.
    """
    check_jobs(jobs)
    running = _RunningSweep(jobs, fresh=fresh, show_progress=show_progress)
    with (
        running.interruptible(),
        _executor(jobs, ray=ray, at_once=at_once, gpus_each=gpus_each) as executor,
    ):
        running.run(range(len(jobs)), executor)
    write_all_results()  # also if all are reused: an earlier sweep may have been killed
    return running.outcomes_in_order()


@dataclass(frozen=True)
class SharedSweep:
    """What one process did of a sweep that several share."""

    outcomes: list[RunOutcome]
    left: list[str]  # names of the runs that other processes are at, or that come last
    is_last: bool  # whether it has to build the book


@contextmanager
def sweep_share(
    jobs: Sequence[Job], share: Share, *, at_once: int = 0, show_progress: bool = True
) -> Iterator[SharedSweep]:
    """Run a share of the jobs; in the block, the last process can build the book.

    Notebooks that read the results are run by the last process, after all others. A job that has
    failed in another process meanwhile is tried again by the last one alone.

    Args:
        jobs: those of all processes.
        share: of this process.
        at_once: as for `sweep`.
        show_progress: as for `sweep`.

    Raises:
        ParameterError, Interrupted: as `sweep`.
    """
    check_jobs(jobs)
    names = [job.name for job in jobs]
    come_last = [index for index, job in enumerate(jobs) if _reads_results(job)]
    others = [index for index in range(len(jobs)) if index not in come_last]
    in_turn = share.in_turn([others[first :: share.count] for first in range(share.count)])
    running = _RunningSweep(jobs, fresh=False, show_progress=show_progress)
    file = paths.results() / f"sweep-{sha256_json(names)[:12]}"
    with LastOne(file) as last_one:
        with running.interruptible(), _executor(jobs, ray="", at_once=at_once) as executor:
            running.run(in_turn, executor, leave_to_others=True)
            left = [index for index in others if index not in running.outcomes]
            if left:
                last_one.waits_for([names[index] for index in left])
            if last_one.is_this():
                running.run(left, executor)
                running.run(come_last, executor)
        is_last = last_one.is_this()
        if is_last:
            write_all_results()
        names_left = [name for index, name in enumerate(names) if index not in running.outcomes]
        yield SharedSweep(running.outcomes_in_order(), names_left, is_last)


class _RunningSweep:
    """The jobs of a sweep, and what has become of them so far."""

    def __init__(self, jobs: Sequence[Job], *, fresh: bool, show_progress: bool) -> None:
        self.outcomes: dict[int, RunOutcome] = {}  # by the job's position
        self._jobs = jobs
        self._fresh = fresh
        self._starts: dict[int, float] = {}  # in seconds of `time.monotonic`
        self._bar = tqdm(total=len(jobs), desc="notebooks", unit="run", disable=not show_progress)
        self._failures_before = {failure.page: failure for failure in failed_runs()}

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Let signals end the block as Ctrl-C does, with an error that says what has run."""
        try:
            with interrupted_by_signals(), self._bar:
                yield
        except KeyboardInterrupt as interruption:
            ended = [
                (self._jobs[index], start)
                for index, start in list(self._starts.items())
                if index not in self.outcomes
            ]
            raise Interrupted(
                f"stopped after {len(self.outcomes)} of {len(self._jobs)} runs. Repeat the command "
                f"to resume; finished runs are not run again{_stopped_text(ended)}",
                interruption,
            ) from None

    def run(
        self, positions: Sequence[int], executor: Executor, *, leave_to_others: bool = False
    ) -> None:
        """Run the jobs at these positions, in this order; stop all if that is interrupted.

        With ``leave_to_others``, jobs that another sweep is at, or has failed at since this one
        began, have no outcome. Without, they are waited for.
        """

        def run(index: int) -> RunOutcome | None:
            self._starts[index] = time.monotonic()
            if leave_to_others:
                return self._run_unless_elsewhere(self._jobs[index], executor)
            return self._run(self._jobs[index], executor)

        with ThreadPoolExecutor(executor.at_once) as pool:
            indices = {pool.submit(run, index): index for index in positions}
            try:
                for future in _as_they_end(indices, executor):
                    outcome = future.result()
                    if outcome is not None:
                        self.outcomes[indices[future]] = outcome
                        _print_outcome(outcome, self._bar)
            except BaseException:  # Ctrl-C, too
                executor.stop()
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def outcomes_in_order(self) -> list[RunOutcome]:
        """Return the outcomes so far in the order of the jobs."""
        return [self.outcomes[index] for index in sorted(self.outcomes)]

    def _run_unless_elsewhere(self, job: Job, executor: Executor) -> RunOutcome | None:
        """Run a job; None if another sweep is at it, or has failed at it meanwhile."""
        log = job.log
        log.parent.mkdir(parents=True, exist_ok=True)
        with claim(log, purpose="sweeps") as is_ours:
            failure = failed_run(job.name)
            is_new = failure is not None and failure != self._failures_before.get(job.name)
            if is_new or not is_ours:
                return None
            return _run_or_reuse(job, executor, log, fresh=self._fresh)

    def _run(self, job: Job, executor: Executor) -> RunOutcome:
        """Run a job unless its page is finished, possibly by another sweep meanwhile."""
        log = job.log
        log.parent.mkdir(parents=True, exist_ok=True)

        def say_that_it_waits() -> None:
            tqdm.write(f"another sweep runs {job.name}; waiting for its end")

        with exclusive_lock(
            log, purpose="sweeps", on_wait=say_that_it_waits, give_up=lambda: executor.stopped
        ):
            return _run_or_reuse(job, executor, log, fresh=self._fresh)


def _as_they_end(
    futures: Iterable[Future[RunOutcome | None]], executor: Executor
) -> Iterator[Future[RunOutcome | None]]:
    """Yield each future that has ended; watch the nodes meanwhile."""
    pending = set(futures)
    while pending:
        # Python handles signals only in this thread, and not while it waits for a lock if the
        # system delivers them to one of Ray's threads: wake up regularly.
        ended, pending = wait(pending, timeout=_SECONDS_BETWEEN_WAKES, return_when=FIRST_COMPLETED)
        if isinstance(executor, RayExecutor):
            executor.check_presence_of_nodes()
        yield from ended


def _executor(
    jobs: Sequence[Job], *, ray: str, at_once: int = 0, gpus_each: float = 1.0
) -> AbstractContextManager[Executor]:
    """Return the executor of the jobs: this machine, or a cluster."""
    if not ray:
        most_at_once = at_once or fitting(jobs)
        count = min(most_at_once, max(1, len(jobs)))
        # Needs no end of its own, unlike a connection to a cluster.
        return nullcontext(LocalExecutor(count))
    if any(job.values.get("output_dir") for job in jobs):
        raise ParameterError(
            "nodes of a cluster do not write to a folder of results; this machine publishes their "
            "files. Give no output_dir; QWEN3NB_RESULTS moves all results"
        )
    folders = _folders_of_nodes(jobs)
    return on_cluster(ray, at_most=len(jobs), at_once=at_once, gpus_each=gpus_each, folders=folders)


def _folders_of_nodes(jobs: Sequence[Job]) -> list[str]:
    """Return the folders of models and data that the nodes of a cluster must see."""
    names: set[str] = set()
    for job in jobs:
        if not _runs_here(job):
            values = job.values
            names.update(named_models(values), split_names(values.get("data") or ""))
    return sorted(name for name in names if is_seen(name))


def _stopped_text(starts: Sequence[tuple[Job, float]]) -> str:
    """Return a line per run that was stopped: its name, its seconds, the last line of its log."""
    lines = []
    for job, start in starts:
        printed = ""
        with suppress(OSError):  # it had not begun to print
            printed = visible(uncoloured(known_secrets().without(last_line(job.log))))
        seconds = time.monotonic() - start
        lines.append(
            f"\n  {job.name} ran for {seconds:.0f} s; its log ends: {printed or 'nothing'}"
        )
    return "".join(lines)


def _print_outcome(outcome: RunOutcome, bar: Any) -> None:
    """Advance the progress bar, and print a line on a run that has ended."""
    bar.update(1)
    if bar.disable:
        return
    line = f"  {outcome.status:7} {outcome.seconds:6.1f} s  {outcome.name}"
    if outcome.node:
        line += f"  on {outcome.node}"
    bar.write(line)
    if outcome.reason:
        bar.write(f"          {outcome.reason}\n          see {paths.shown(outcome.log)}")


def failures_text(failures: Iterable[RunOutcome]) -> str:
    """Return the cause and log of each failed run, two lines each."""
    lines = []
    for failure in failures:
        lines.append(f"{failure.name}: {failure.reason}")
        lines.append(f"  see {paths.shown(failure.log)}")
    return "\n".join(lines)


def check_jobs(jobs: Sequence[Job]) -> None:
    """Raise ParameterError or FileNotFoundError if a job cannot run, or two have one page."""
    jobs_by_page: dict[Path, Job] = {}
    with cached_calls():
        for job in jobs:
            values, page = job.resolved()
            first_job = jobs_by_page.setdefault(page, job)
            if first_job is job:
                continue
            other_values = first_job.values
            differing = [name for name in values if values[name] != other_values[name]]
            raise ParameterError(
                f"two runs would write the page {paths.page_key(page)}; they differ in "
                f"{', '.join(differing) or 'nothing'}"
            )


def fitting(jobs: Sequence[Job]) -> int:
    """Return how many jobs fit in parallel: one per core, at most four, as memory allows."""
    # Jobs on one checkpoint need the same memory; without one, that of the default model.
    job_by_need = {job.parameters.get("checkpoint") or (job.notebook,): job for job in jobs}
    largest_need = max((memory(job) for job in job_by_need.values()), default=_BASE_MEMORY)
    count = min(_MOST_AT_ONCE, cores(), available_memory() // largest_need)
    return max(1, count)


def memory(job: Job) -> int:
    """Return the bytes that a job may need: for libraries and kernel, and for its weights."""
    values = job.values
    if "checkpoint" not in values:
        return _BASE_MEMORY
    return _BASE_MEMORY + _TIMES_WEIGHTS * weight_bytes(model_of(values))


def needs_gpu(job: Job) -> bool:
    """Return whether a job may encode with weights: all but BM25 and random vectors do."""
    values = job.values
    if "checkpoint" not in values:  # such as a notebook of the user
        return True
    source = model_of(values)
    return not all(part.kind.weightless for part in source.parts or (source,))


def _run_or_reuse(job: Job, executor: Executor, log: Path, *, fresh: bool) -> RunOutcome:
    """Run a job unless its page is finished; this process holds the lock of its log."""
    started = time.monotonic()
    # Looked up under the lock: another sweep may have finished the page meanwhile.
    if fresh or not reusable(job):
        return _execute(job, executor, log, fresh=fresh)
    return RunOutcome(
        name=job.name,
        seconds=time.monotonic() - started,
        notebook=job.notebook,
        log=log,
        reused=True,
    )


def _execute(job: Job, executor: Executor, log: Path, *, fresh: bool) -> RunOutcome:
    """Run a job in a process of its own; if it fails, the outcome has the reason."""
    started = time.time()  # for the page of a failure
    clock = time.monotonic()  # for the duration, even if the other clock is set meanwhile
    earlier_failure = failed_run(job.name)
    command = _command(job, fresh=fresh)
    # An evaluation may be divided among the nodes; its own run then finds the records.
    if isinstance(executor, RayExecutor) and job.notebook == "eval":
        command = _run_parts(command, job.values, executor)
    outcome = executor.run(command, log=log)
    seconds = outcome.seconds or time.monotonic() - clock
    outcome = replace(outcome, notebook=job.notebook, log=log, seconds=seconds)
    was_stopped = executor.stopped
    if outcome.exit_status == 0 or was_stopped:
        return outcome
    reason = _reason_of_failure(job, outcome, started, earlier_failure)
    return replace(outcome, reason=reason)


def _run_parts(command: Command, values: Values, executor: RayExecutor) -> Command:
    """Run an evaluation in parts; return the command of its page, which needs their records.

    What a part fails to evaluate is left to the run of the page, which reports it.
    """
    try:
        parts = parts_of(values, slots=executor.slots, runs=executor.at_once)
        whole = replace(command, memory=command.memory + tasks_memory(values))
    except (ValueError, OSError):  # such as a broken model; reported by its run
        return command
    if not parts:
        return whole

    def run_part(number: int, tasks: Sequence[str]) -> int:
        log = paths.results() / "logs" / f"{command.name}.part-{number}.log"
        memory_of_part = command.memory + tasks_memory(values, tasks)
        part = replace(command, part={"only": tasks, **values}, memory=memory_of_part)
        return executor.run(part, log=log).exit_status

    numbers = range(1, len(parts) + 1)
    with ThreadPoolExecutor(len(parts)) as pool:
        failed = any(list(pool.map(run_part, numbers, parts)))  # raises the first error of a part
    # Without a failure, all records are there, and the page encodes nothing.
    command = whole if failed else replace(command, needs_gpu=False)
    if executor.nodes_see_records:
        return command
    # The nodes share no disk: only this machine has the records of all parts.
    return replace(command, on_this_machine=True)


def reusable(job: Job) -> bool:
    """Return whether a job's page can be reused; if so, remove leftovers of a killed run."""
    try:
        finished = job.finished()
    except (ValueError, OSError):  # a broken model, reported by its run
        return False
    if finished:
        settle(job.page)
    return finished


def _runs_here(job: Job) -> bool:
    """Return whether a job has to run on this machine, where its records or its model are."""
    return _reads_results(job) or "output" in job.values


def _reads_results(job: Job) -> bool:
    """Return whether the notebook of a job reads the records of all."""
    notebook = cached_call(read_notebook, job.notebook_file)
    return bool(notebook["metadata"]["qwen3nb"].get("reads") == "results")


def _command(job: Job, *, fresh: bool) -> Command:
    """Return the command of a job: ``qwen3nb run NOTEBOOK -p NAME VALUE``."""
    arguments = ["run", job.notebook]
    if fresh:
        arguments.append("--fresh")
    if job.page_name:
        arguments += ["--page", job.page_name]
    for name, value in job.parameters.items():
        arguments += ["-p", name, str(value)]
    return Command(
        name=job.name,
        arguments=tuple(arguments),
        page=job.page,
        memory=memory(job),
        needs_gpu=needs_gpu(job),
        on_this_machine=_runs_here(job),
        models=named_models(job.values),
    )


def _reason_of_failure(
    job: Job, outcome: RunOutcome, started: float, earlier_failure: FailedRun | None
) -> str:
    """Return why a job failed; write its page if the process died before doing so."""
    failure = failed_run(job.name)
    ending = _ending(outcome.exit_status)
    if failure is None or failure == earlier_failure:  # the process died without noting any
        write_failed_page(job, outcome, started, ending)
        failure = failed_run(job.name)
    reason = ending
    if failure is not None:
        reason = failure.reason
    return known_secrets().without(reason)


def _ending(exit_status: int) -> str:
    """Say how a process ended."""
    if exit_status < 0:
        return f"killed by {signal.Signals(-exit_status).name}"
    return f"ended with status {exit_status}"


def write_failed_page(job: Job, outcome: RunOutcome, started: float, ending: str) -> None:
    """Write the page of a run whose process died; its message is the last line that it printed."""
    notebook = paths.find_notebook(job.notebook)
    partial = None
    file = partial_folder() / f"{job.name}.ipynb"
    if file.is_file():
        partial = file
    run = NotebookRun(
        notebook=paths.notebook_name(notebook),
        values=job.values,
        page=job.page,
        partial=partial,
        started=started,
        # This object is made only now, so the time that the process ran is added.
        before=outcome.seconds,
        log=str(outcome.log),
    )
    message = last_line(outcome.log) or "it printed nothing"
    run.fail(nbformat.read(notebook, as_version=4), ending, message)


_Names = tuple[Annotated[str, Strict(), Field(min_length=1)], ...]


class PlannedRun(NamedTuple):
    """An additional run: a notebook with its own parameters."""

    notebook: StrictStr
    parameters: NewValues = {}  # noqa: RUF012 - never changed


@dataclass(frozen=True)
class SweepPlan:
    """The runs of a sweep and how to run them."""

    __pydantic_config__ = ConfigDict(extra="forbid")
    models: _Names = ()  # for the notebooks that declare ``checkpoint``; globs are expanded
    tiers: _Names = ()  # for the notebooks that declare ``tier``
    notebooks: _Names = ()  # names; ``eval`` if these and ``runs`` are empty
    # for every notebook that declares them
    parameters: NewValues = field(default_factory=dict)
    runs: tuple[PlannedRun, ...] = ()  # further notebooks with their own parameters
    at_once: Annotated[int, Strict(), Field(ge=0)] = 0  # parallel processes; 0: as many as fit
    book: StrictBool = True  # whether to build the book afterwards
    ray: StrictStr = ""  # address of a Ray cluster; empty: runs on this machine
    # GPUs of a run on a cluster that has any
    gpus_each: Annotated[float, Strict(), Field(gt=0)] = 1.0
    pass_env: _Names = ()  # names of secret variables passed to kernels
    # like ``parameters``, as strings from the command line
    typed: dict[str, str] = field(default_factory=dict)

    def jobs(self) -> list[Job]:
        """Return all runs; a value that no notebook uses, or a glob without a match, is refused."""
        declared = self._declared_parameters()
        shared = {name: self._shared_values(parameters) for name, parameters in declared.items()}
        self._refuse_unused(declared)
        models: list[str] = []
        for model in self.models:
            models += expanded(model)
        jobs: list[Job] = []
        for name in self._notebooks:
            # A notebook without the parameter, or no value for it, gives one empty choice.
            for model_choice in _choices("checkpoint", models, declared[name]):
                for tier_choice in _choices("tier", self.tiers, declared[name]):
                    jobs.append(Job(name, {**shared[name], **model_choice, **tier_choice}))
        for name, parameters in self.runs:
            jobs.append(Job(name, {**shared[name], **parameters}))
        return jobs

    def _declared_parameters(self) -> dict[str, Declared]:
        """Return the parameters that each notebook of the plan declares."""
        names = [*self._notebooks, *(name for name, _ in self.runs)]
        declared: dict[str, Declared] = {}
        for name in dict.fromkeys(names):
            declared[name] = read_parameters(paths.find_notebook(name))
        return declared

    @property
    def _notebooks(self) -> Sequence[str]:
        """The notebooks for every model and tier: ``eval`` if the plan names none."""
        has_only_runs = self.runs and not self.models and not self.tiers
        if self.notebooks or has_only_runs:
            return self.notebooks
        return ("eval",)

    def _shared_values(self, declared: Declared) -> Values:
        """Return the values that a notebook declares."""
        values = {name: value for name, value in self.parameters.items() if name in declared}
        texts = {name: value for name, value in self.typed.items() if name in declared}
        return {**values, **typed_parameters(declared, texts)}

    def _refuse_unused(self, declared: Mapping[str, Declared]) -> None:
        """Raise if a given value is not a parameter of any notebook."""
        known_names: set[str] = set()
        for parameters in declared.values():
            known_names.update(parameters)
        names = [*self.parameters, *self.typed]
        if self.models:
            names.append("checkpoint")
        if self.tiers:
            names.append("tier")
        unknown = [name for name in names if name not in known_names]
        if unknown:
            unknown_names = ", ".join(map(repr, unknown))
            notebooks = ", ".join(declared)
            raise ParameterError(
                f"unknown parameter {unknown_names}: none of {notebooks} declares it. "
                f"Known parameters: {', '.join(sorted(known_names))}"
            )


def _choices(name: str, values: Sequence[str], declared: Declared) -> list[dict[str, str]]:
    """Return a parameter with each of its values; one empty choice if a notebook lacks it."""
    if name not in declared or not values:
        return [{}]
    return [{name: value} for value in values]


def expanded(spec: str) -> list[str]:
    """Return the folders that a glob matches, in numerical order; any other ``spec`` unchanged."""
    is_glob = any(character in spec for character in "*?[")
    if not is_glob:
        return [spec]
    pattern = Path(spec).expanduser()
    bases = [Path.cwd(), paths.root()]
    if pattern.is_absolute():
        # Path.glob takes relative patterns only: /data/run-* becomes data/run-* below /.
        bases = [Path(pattern.anchor)]
        pattern = pattern.relative_to(pattern.anchor)
    for base in bases:
        folders = _matching_folders(base, str(pattern), spec=spec)
        if folders:
            folders.sort(key=lambda path: by_number(str(path)))
            return [paths.shown(path) for path in folders]
    places = " or ".join(dict.fromkeys(str(base) for base in bases))
    raise ParameterError(f"no folder matches {spec!r} in {places}")


def _matching_folders(base: Path, pattern: str, *, spec: str) -> list[Path]:
    """Return the folders below ``base`` that a pattern matches, written as ``spec`` in a plan."""
    advice = "name the folder of the models, such as 'runs/*'"
    try:
        matches = list(islice(base.glob(pattern), _MOST_MATCHES + 1))
        folders = [path for path in matches if path.is_dir()]
    except OSError as error:
        raise ParameterError(
            f"{spec!r} matches what cannot be read ({error.filename}: {error.strerror}); {advice}"
        ) from None
    except ValueError as error:  # such as "**x"
        raise ParameterError(f"{spec!r}: {error}; {advice}") from None
    if len(matches) > _MOST_MATCHES:
        raise ParameterError(
            f"{spec!r} matches more than {_MOST_MATCHES:,} files and folders; {advice}"
        )
    for folder in folders:
        if folder.parts[:2] in _OF_THE_SYSTEM:
            raise ParameterError(
                f"{spec!r} matches {folder}, a folder of the system without models; {advice}"
            )
    return folders


def read_plan(file: Path) -> SweepPlan:
    """Read the plan in a TOML file; an unknown key or a value of the wrong type is refused."""
    keys = [name for name in SweepPlan.__dataclass_fields__ if name != "typed"]
    return read_toml(file, SweepPlan, known={"": keys}, refusal=ParameterError)
