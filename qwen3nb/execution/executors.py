"""Executors of the runs of a sweep: this machine, or a Ray cluster.

Both run ``qwen3nb run NOTEBOOK`` as a separate process. On a cluster, a run writes to scratch space
of its node, and only this machine publishes its files: completely or not at all, records after the
files that they name, and the page last, as it marks the run as finished.
"""

from __future__ import annotations

import functools
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from qwen3nb import paths
from qwen3nb.cluster.nodes import (
    HOW_TO_RESUME,
    LOCAL,
    ClusterError,
    KnownNodes,
    Node,
    Ray,
    Reference,
    cause,
    connected,
    difference,
    model_facts,
    run_facts,
    sent_environment,
)
from qwen3nb.cluster.processes import end_guarded, start_guarded
from qwen3nb.cluster.runs import Delivery, Request, other_model, run_on_node, unpacked
from qwen3nb.execution.publish import LOG
from qwen3nb.execution.study_paths import Values
from qwen3nb.records.failures import forget_failure
from qwen3nb.records.record import CHECKSUMS, in_checksums
from qwen3nb.records.side_files import EVALUATES, named_files, remove_unnamed
from qwen3nb.records.verification import SUMMARY
from qwen3nb.utils.atomic_files import (
    claim,
    exclusive_lock,
    new_file,
    read_json,
    temporary_folder,
    write_text,
)
from qwen3nb.utils.hardware import cores, gpus
from qwen3nb.utils.secrets import known_secrets

STOPPED = -signal.SIGTERM  # status of runs not started after a stop
_REPEATS = 3  # repetitions of a run whose node was lost
_MOST_QUEUED = 128  # runs, enough to keep all nodes busy
_RUNS_PER_NODE = 4  # at a time, on a node without GPUs


@dataclass(frozen=True)
class Command:
    """A run of ``qwen3nb`` in a separate process."""

    name: str  # name of its page in logs
    arguments: tuple[str, ...]  # of the command line
    page: Path  # path of its page
    memory: int = 0  # bytes that it may need
    needs_gpu: bool = True  # whether it encodes with weights, as far as that is known
    on_this_machine: bool = False  # whether it has to run on this machine
    models: tuple[str, ...] = ()  # the models and adapters that it runs
    part: Values = field(default_factory=dict)  # of an evaluation; see `parts`

    @property
    def program(self) -> list[str]:
        """The program on this machine, with its arguments."""
        return [sys.executable, "-m", "qwen3nb.cli.main", *self.arguments]

    @property
    def is_evaluation(self) -> bool:
        """Whether it runs ``eval.ipynb``; other notebooks may run further models."""
        return self.arguments[:2] == ("run", "eval")


@dataclass(frozen=True)
class RunOutcome:
    """The outcome of a run."""

    name: str  # name of its page
    exit_status: int = 0  # negative for a signal
    seconds: float = 0.0  # its duration; 0 if unknown
    node: str = ""  # the cluster's node; empty for this machine
    notebook: str = ""  # the notebook, as a sweep names it
    log: Path = Path()  # file with its output
    reason: str = ""  # why it failed, on one line
    reused: bool = False  # whether its page existed

    @property
    def status(self) -> str:
        """``done``, ``reused`` or ``failed``."""
        if self.reused:
            return "reused"
        if self.exit_status:
            return "failed"
        return "done"


class LocalExecutor:
    """Runs commands as child processes, each with its own GPU if there are any.

    They end with this process. Thread-safe.
    """

    def __init__(self, at_once: int) -> None:
        """Run at most ``at_once`` at a time, and one per GPU."""
        devices = gpus()
        slots = [""] * at_once  # runs without a GPU
        if devices:
            slots = devices[:at_once]  # one run per GPU
        self.at_once = len(slots)
        self.stopped = False
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._slots: queue.Queue[str] = queue.Queue()  # those free, by their GPU
        for slot in slots:
            self._slots.put(slot)

    def run(self, command: Command, *, log: Path) -> RunOutcome:
        """Run a command with its output in ``log``, and wait for its end."""
        gpu = self._slots.get()  # waits for a free slot
        try:
            threads = cores() // self.at_once
            environment = {**os.environ, **_variables_of_run(threads, log)}
            if gpu:
                environment["CUDA_VISIBLE_DEVICES"] = gpu
            log.write_bytes(b"")  # that of an earlier run is not shown for this one
            with self._lock:
                # Under the lock: `stop` either ends this process, or it is not started.
                if self.stopped:
                    return RunOutcome(command.name, STOPPED)
                process = start_guarded(command.program, environment=environment, log=log)
                self._running.add(process)
            status = process.wait()
            with self._lock:
                self._running.discard(process)
            return RunOutcome(command.name, status)
        finally:
            self._slots.put(gpu)

    def stop(self) -> None:
        """End the running processes with all their descendants, and refuse new ones."""
        with self._lock:
            self.stopped = True
            running = list(self._running)
        end_guarded(running)


def _variables_of_run(threads: int, log: Path) -> dict[str, str]:
    """Return the variables of a run that shares its machine with others."""
    return {
        "OMP_NUM_THREADS": str(max(1, threads)),
        # Threads that spin while waiting would take cores from other runs.
        "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "PASSIVE"),
        "TOKENIZERS_PARALLELISM": "false",
        LOG: str(log),
    }


@contextmanager
def on_cluster(
    address: str,
    *,
    at_most: int,
    at_once: int = 0,
    gpus_each: float = 1.0,
    folders: Sequence[str] = (),
) -> Iterator[RayExecutor]:
    """Yield an executor on the nodes of a Ray cluster that equal this machine.

    Args:
        address: see `qwen3nb.cluster.nodes`.
        at_most: number of runs.
        at_once: runs on the smallest node at a time; 0: one per core, at most four.
        gpus_each: GPUs per run, if nodes have any; fractions share a GPU.
        folders: folders of models and data, which nodes must see.

    Raises:
        ClusterError: no cluster, or none of its nodes equals this machine; nothing was run.
    """
    with connected(address) as cluster:
        environment = sent_environment()
        if address == LOCAL:  # one node, in this environment
            environment["QWEN3NB_CACHE"] = str(paths.cache())
            nodes = KnownNodes(cluster)
        else:
            nodes = KnownNodes(cluster, run_facts, folders)
            nodes.wait_for_one()
            nodes.examine()  # refuses those that differ from this machine
        share = NodeShare.of(nodes.usable(), at_once=at_once, gpus_each=gpus_each)
        # A node checks by this folder whether it sees that of the records.
        with temporary_folder(paths.results() / "sweep") as scratch:
            yield RayExecutor(
                ray=cluster.ray,
                nodes=nodes,
                share=share,
                environment=environment,
                scratch=scratch,
                # Runs wait in Ray's own queue; a pool of threads needs at least one.
                at_once=max(1, min(at_most, _MOST_QUEUED)),
            )


@dataclass(frozen=True)
class NodeShare:
    """The share of a node per run; equal on all nodes, for equal numbers of threads."""

    cpus: int  # cores, and threads
    gpus: float  # GPUs, or a fraction of one; 0 if no node has any
    memory: int  # bytes for runs on the largest node: the maximum request of a run

    @classmethod
    def of(cls, nodes: Sequence[Node], *, at_once: int, gpus_each: float) -> NodeShare:
        """Return the share for ``at_once`` runs on the smallest node."""
        # Where some nodes have GPUs, the others get no runs.
        nodes_for_runs = [node for node in nodes if node.gpus] or list(nodes)
        if not nodes_for_runs:
            raise ClusterError("the cluster has no node with a core for runs; add one")
        fewest_cpus = min(node.cpus for node in nodes_for_runs)
        most_memory = max(node.memory for node in nodes_for_runs)
        most_gpus = max(node.gpus for node in nodes_for_runs)
        if not most_gpus:
            gpus_each = 0.0
        if not at_once:
            at_once = _RUNS_PER_NODE
            if most_gpus:
                at_once = max(1, int(most_gpus / gpus_each))
        # At least one core for each run.
        runs_on_smallest = min(at_once, fewest_cpus)
        return cls(
            cpus=fewest_cpus // runs_on_smallest,
            gpus=gpus_each,
            memory=most_memory,
        )


@dataclass
class RayExecutor:
    """Runs commands as Ray tasks, in processes that end with their worker or node.

    A run whose node was lost is repeated elsewhere, up to three times; failed runs are not. A node
    that differs from this machine is refused: nothing of it is published, and its runs are done
    elsewhere.
    """

    ray: Ray
    nodes: KnownNodes
    share: NodeShare
    environment: dict[str, str]
    scratch: Path  # for deliveries
    at_once: int  # runs at a time
    nodes_see_records: bool = True  # whether all nodes so far see the records of this machine
    stopped: bool = False

    def __post_init__(self) -> None:
        self._model_facts = functools.cache(model_facts)
        self.slots = sum(node.cpus // self.share.cpus for node in self.nodes.usable())  # for runs
        self._here = LocalExecutor(1)
        self._on_node = self.ray.remote(run_on_node)
        self._publishing_lock = threading.Lock()
        self._lock = threading.Lock()
        self._waiting: set[Reference] = set()

    def run(self, command: Command, *, log: Path) -> RunOutcome:
        """Run a command on a node, and publish its files."""
        if command.on_this_machine:
            return self._here.run(command, log=log)
        errors = self.ray.exceptions
        # The reason if it is lost each time; another failure replaces it.
        failure: Exception = RuntimeError("its files were lost with their node")
        losses = 0
        while losses < _REPEATS and not self.stopped:
            try:
                outcome = self._run_on_node(command, log)
            except (errors.ObjectLostError, errors.OwnerDiedError):  # lost with its node
                losses += 1
                continue
            except errors.LocalRayletDiedError:
                raise ClusterError(f"the connection to Ray is lost. {HOW_TO_RESUME}") from None
            except errors.RayError as error:
                # Any failure may come from a node that differs from this machine.
                failure = error
                a_node_was_refused = self.nodes.examine()
                if not a_node_was_refused:
                    break
                continue
            # No outcome: the node was refused, and the loop tries another one.
            if outcome is not None:
                return outcome
        if self.stopped:
            return RunOutcome(command.name, STOPPED)
        write_text(log, f"{known_secrets().without(cause(failure))}\n")
        return RunOutcome(command.name, exit_status=1)

    def _run_on_node(self, command: Command, log: Path) -> RunOutcome | None:
        """Run a command on a node, and publish its files; None if the node was refused."""
        facts = self._facts(command)
        delivery = self._delivery(command, log, facts)
        if delivery is None:  # `stop` came before its start
            return RunOutcome(command.name, STOPPED)
        # A node with other code may deliver no facts.
        objection = difference(facts, getattr(delivery, "facts", {}))
        if not objection:
            objection = self._publish_unless_other_model(command, log, delivery)
        if objection:
            self.nodes.refuse({delivery.node: objection})
            return None
        if not delivery.sees_records:
            # The run of a page then cannot find the records of its parts there.
            self.nodes_see_records = False
        node = self.nodes.name(delivery.node)
        return RunOutcome(
            command.name, exit_status=delivery.status, seconds=delivery.seconds, node=node
        )

    def _publish_unless_other_model(self, command: Command, log: Path, delivery: Delivery) -> str:
        """Publish the files of a delivery; if they are of another model, return which, instead."""
        with (
            unpacked(delivery, get=self.ray.get, within=self.scratch) as folder,
            self._publishing_lock,
        ):
            # Other notebooks may run further models, which the command does not name.
            if command.is_evaluation:
                objection = other_model(folder / "results", command.models)
                if objection:
                    return objection
            # A part has no page; an earlier failure of the page stays noted until it has run.
            unfinished = delivery.status != 0 or bool(command.part)
            publish_files(folder, log=log, page=command.page, failed=unfinished)
        return ""

    def _facts(self, command: Command) -> Mapping[str, str]:
        """Return the facts that a node must share; empty if nodes are not compared."""
        if not self.nodes.expected:
            return {}
        return {**self.nodes.expected, **self._model_facts(command.models)}

    def _delivery(self, command: Command, log: Path, facts: Mapping[str, str]) -> Delivery | None:
        """Return the delivery of a run; None if it was not started after a stop."""
        task = self._on_node.options(
            name=command.name,
            num_cpus=self.share.cpus,
            num_gpus=self.share.gpus * command.needs_gpu,
            memory=min(command.memory, self.share.memory),
            max_retries=_REPEATS,
            retry_exceptions=False,
            scheduling_strategy="SPREAD",
            label_selector=self.nodes.selector,
        )
        request = Request(
            arguments=command.arguments,
            page=str(command.page.relative_to(paths.book())),
            environment=self.environment | _variables_of_run(self.share.cpus, log),
            folder=str(Path.cwd()),
            results=str(paths.results()),
            book=str(paths.book()),
            mark=self.scratch.name,
            models=command.models,
            facts=facts,
            part=command.part,
        )
        with self._lock:
            if self.stopped:
                return None
            reference = task.remote(request)
            self._waiting.add(reference)
        try:
            return cast(Delivery, self.ray.get(reference))
        finally:
            with self._lock:
                self._waiting.discard(reference)

    def check_presence_of_nodes(self) -> None:
        """See `KnownNodes.check_presence`."""
        with suppress(ConnectionError, ValueError):  # while ray:// connects again
            self.nodes.check_presence(cpus=self.share.cpus, gpus=self.share.gpus)

    def stop(self) -> None:
        """Kill the runs on all nodes."""
        with self._lock:
            self.stopped = True
            waiting = list(self._waiting)
        self._here.stop()
        for reference in waiting:
            self.ray.cancel(reference, force=True)


Executor = LocalExecutor | RayExecutor


def publish_files(folder: Path, *, log: Path, page: Path, failed: bool) -> None:
    """Publish the files of a run: records after the files that they name, the page last.

    They are in ``folder`` as the run has written them: ``log``, ``results/`` and ``book/``. Unless
    the run has ``failed`` or is a part, the note of an earlier failure is removed.
    """
    _replace(folder / "log", log)
    targets = _targets(folder)
    with _claimed_records(targets.values()):
        for file in sorted(targets, key=lambda file: _rank(targets[file], page)):
            with exclusive_lock(targets[file]):
                _publish_file(file, targets[file])
    if not failed:
        forget_failure(paths.page_key(page))


@contextmanager
def _claimed_records(targets: Iterable[Path]) -> Iterator[None]:
    """Claim the records among ``targets``, whose files others then leave alone.

    Until a record is there, nothing names its files. After a jump of the clock they look abandoned.
    """
    with ExitStack() as claims:
        for target in targets:
            if _is_record(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                claims.enter_context(claim(target, purpose=EVALUATES))
        yield


def _targets(folder: Path) -> dict[Path, Path]:
    """Return where each file of a run belongs, without those that this machine writes."""
    targets = {}
    for name, top in (("results", paths.results()), ("book", paths.book())):
        for file in sorted((folder / name).rglob("*")):
            path = file.relative_to(folder / name)
            if file.is_file() and path not in (Path(SUMMARY), Path(CHECKSUMS)):
                targets[file] = top / path
    return targets


def _rank(target: Path, page: Path) -> int:
    """Return the place of a file: records come after the files that they name, the page last."""
    if target == page:
        return 2
    if _is_record(target):
        return 1
    return 0


def _is_record(target: Path) -> bool:
    return target.suffix == ".json" and re.fullmatch(r"seed_\d+", target.parent.name) is not None


def _publish_file(file: Path, target: Path) -> None:
    """Publish a file; this process holds the lock of its target."""
    if _is_record(target):
        _publish_record(file, target)
    elif target.suffix == ".jsonl" and target.is_file():
        _append_new_lines(file, target)
    else:
        _replace(file, target)


def _publish_record(file: Path, target: Path) -> None:
    """Replace a record and its checksum; remove what only the old one names, or a failure."""
    files_of_old_record = named_files(target)
    checksum = str(read_json(file).get("checksum", ""))
    with in_checksums(target, checksum):
        _replace(file, target)
        remove_unnamed(target, replaced=files_of_old_record)
        target.with_suffix(".error.txt").unlink(missing_ok=True)


def _append_new_lines(file: Path, target: Path) -> None:
    """Add to a list, to which other runs append, the lines that it lacks."""
    lines = target.read_text(encoding="utf-8").splitlines()
    present = set(lines)
    for line in file.read_text(encoding="utf-8").splitlines():
        if line not in present:
            lines.append(line)
    write_text(target, "".join(f"{line}\n" for line in lines))


def _replace(file: Path, target: Path) -> None:
    """Copy a file atomically."""
    with file.open("rb") as source, new_file(target) as copy:
        shutil.copyfileobj(source, copy, length=1 << 20)
