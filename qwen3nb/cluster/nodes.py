"""Connect to a Ray cluster or start one, and check that its nodes are equivalent.

Before the first run, every node reports its versions, code and notebooks, the library for linear
layers, which the driver selects for all, whether it sees the folders of models and data, and
whether it can write its own. A node that differs from this machine is refused: a table with rows
from different programs would compare the programs. The process of each run compares them again,
with its models; see `qwen3nb.execution.child`.

Ray is an extra and loaded only here. An address is ``local`` (a temporary Ray on this machine),
``auto`` (the cluster of this machine, or the one in ``RAY_ADDRESS``), ``host:port`` (the same by
name) or ``ray://host:port`` (a client outside the cluster).
"""

from __future__ import annotations

import getpass
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from qwen3nb import paths
from qwen3nb.records.record import Environment
from qwen3nb.utils.atomic_files import sha256_file, sha256_json
from qwen3nb.utils.children import keep_exit_statuses
from qwen3nb.utils.code_version import code_digest
from qwen3nb.utils.progress import tqdm
from qwen3nb.utils.secrets import passed_names

LOCAL, TEMPORARY = "local", "temporary folder"

_ADVICE = "Start one with `ray start --head`, or give --ray no address for a Ray on this machine"
KEPT = "What has finished is kept; repeat the command to resume"
_PATIENCE = 5.0  # timeout in seconds; Ray itself waits for minutes
_ANSWER = 300.0  # seconds for a node to report its facts
_LOOK, _ABSENT = 5.0, 600.0  # seconds between checks for nodes, and without one until the end
# How a connection of gRPC begins: a preface and a frame of type 4, the settings, from either side.
_SETTINGS_TYPE = b"\x04"
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _SETTINGS_TYPE + bytes(5)
_GONE = 15.0  # seconds until a head that does not answer counts as dead; half of a client's 30
_CLOCK = 60.0  # seconds that the clock of a node may differ
# Default settings of Ray; the environment takes precedence.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no usage reports
    "RAY_task_oom_retries": "3",  # otherwise a run too large for its node is repeated forever
    "RAY_DEDUP_LOGS": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # of this process too, whose log is the terminal
}
_AUTHENTICATION = "RAY_AUTH_MODE"  # set by our own Ray; would prevent connecting to another
_STORE = 512 << 20  # bytes of shared memory of our own Ray, used only for files of runs


class ClusterError(click.ClickException):
    """No cluster to work on; the message says what to do."""


@contextmanager
def connected(address: str = LOCAL) -> Iterator[Any]:
    """Yield the module ``ray``, connected to a cluster; stop a Ray started here afterwards.

    An existing connection of this process is used, and kept.

    Raises:
        ClusterError: Ray is not installed, or no cluster answers at ``address``.
    """
    try:
        import ray
    except ImportError:
        raise ClusterError(
            "--ray needs Ray, which is not installed: pip install 'qwen3nb[ray]'"
        ) from None
    if ray.is_initialized():
        yield ray
        return
    target = _answering(address)
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    authentication = os.environ.get(_AUTHENTICATION)
    try:
        _start(ray, target)
    except Exception as error:  # noqa: BLE001 - Ray raises bare Exceptions
        ray.shutdown()
        attempt = f"join Ray at {target}"
        if target == LOCAL:
            attempt = "start Ray on this machine"
        raise ClusterError(f"cannot {attempt}: {cause(error)}") from None
    connection_ended = threading.Event()
    head = target.removeprefix("ray://")
    if head == target:
        head = ray.get_runtime_context().gcs_address
    threading.Thread(target=_watch, args=(head, connection_ended), daemon=True).start()
    try:
        yield ray
    finally:
        connection_ended.set()
        ray.shutdown()
        os.environ.pop(_AUTHENTICATION, None)
        if authentication is not None:
            os.environ[_AUTHENTICATION] = authentication


def _start(ray: Any, target: str) -> None:
    """Connect to a cluster or start one; nothing is printed, and our handler of SIGTERM stays."""
    logging.getLogger("ray.util.client.logsclient").disabled = True
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if target == LOCAL:
        options |= {"include_dashboard": False, "object_store_memory": _STORE}
    handler = signal.getsignal(signal.SIGTERM)  # Ray would replace it in the main thread
    keep_exit_statuses()
    with _silent():
        ray.init(address=target, **options)
    # No public option turns off the dumps of nodes that died.
    ray._private.worker._worker_logs_enabled = False
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


@contextmanager
def _silent() -> Iterator[None]:
    """Discard what C++ code writes to the standard error while it starts."""
    terminal = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)


def _watch(head: str, ended: threading.Event) -> None:
    """End this process if the head is gone, as Ray would later, in a minute and without a word."""
    seen = time.monotonic()
    while not ended.wait(1):
        try:
            _connection(head).close()
            seen = time.monotonic()
        except OSError as error:
            if time.monotonic() - seen > _GONE:
                print(
                    f"\nError: Ray's head at {head} no longer answers ({error}). {KEPT}",
                    file=sys.stderr,
                    flush=True,
                )
                os._exit(1)


def _connection(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE)


def _answering(address: str) -> str:
    """Return the address to connect to; raise ClusterError if it does not answer."""
    if address == LOCAL:
        return address
    target = address
    if address == "auto":
        from ray._private.services import find_bootstrap_address

        target = os.environ.get("RAY_ADDRESS") or find_bootstrap_address(None)
        if not target:
            raise ClusterError(
                "this machine belongs to no Ray cluster, and RAY_ADDRESS is not set. " + _ADVICE
            )
    scheme, _, rest = target.rpartition("://")
    host, _, port = rest.rpartition(":")
    if scheme not in ("", "ray") or not host or not port.isdigit():
        raise ClusterError(
            f"{target!r} is not the address of a Ray cluster; "
            "expected auto, host:port or ray://host:port, or nothing for a Ray on this machine"
        )
    try:
        with _connection(rest) as connection:
            connection.sendall(_GREETING)
            encrypted = os.environ.get("RAY_USE_TLS", "0") != "0"
            if connection.recv(9)[3:4] != _SETTINGS_TYPE and not encrypted:
                raise OSError("what listens there is not Ray")
    except (OSError, UnicodeError) as error:
        raise ClusterError(f"no Ray cluster answers at {target}: {error}. {_ADVICE}") from None
    if address == "auto" and not os.environ.get("RAY_ADDRESS"):
        return address  # Ray sends this machine's token only to clusters that it discovers itself
    return target


_DIGITS = 12  # digits of digests in messages

# Prefixes of variables that a node takes from the driver, unless it sets them itself.
_BEGINNINGS = """
    QWEN3NB_ HF_ HUGGING TRANSFORMERS_ TOKENIZERS_ MTEB_ OMP_ MKL_ OPENBLAS_ RAYON_ TORCH_ PYTORCH_
    CUBLAS_ NVIDIA_TF32_ PYTHONHASHSEED PYTHONWARNINGS http_proxy https_proxy no_proxy HTTP_PROXY
    HTTPS_PROXY NO_PROXY
"""
_SENT = tuple(_BEGINNINGS.split())
_OF_NODE = ("QWEN3NB_CACHE", "QWEN3NB_RESULTS", "QWEN3NB_BOOK", "QWEN3NB_RUN_LOG")


@dataclass(frozen=True)
class Node:
    """A node for runs: Ray's id, address or name, and resources."""

    id: str
    name: str
    cpus: int
    gpus: float
    memory: int


def nodes_of(ray: Any) -> list[Node]:
    """Return the live nodes with at least one core, with unique names.

    Several nodes of one machine share its address, and are distinguished by Ray's names.
    """
    descriptions = [description for description in ray.nodes() if description["Alive"]]
    names = [_node_name(description) for description in descriptions]
    nodes = []
    for description, name in zip(descriptions, names, strict=True):
        resources = description["Resources"]
        if names.count(name) > 1:
            name = f"{name} ({description['NodeID'][:6]})"
        node = Node(
            id=description["NodeID"],
            name=name,
            cpus=int(resources.get("CPU", 0)),
            gpus=resources.get("GPU", 0.0),
            memory=int(resources.get("memory", 0)),
        )
        if node.cpus:
            nodes.append(node)
    return sorted(nodes, key=lambda node: node.name)


def _node_name(description: Mapping[str, str]) -> str:
    return description.get("NodeName") or description["NodeManagerAddress"]


def sent_environment() -> dict[str, str]:
    """Return the environment variables of this process that runs on nodes need.

    They may contain a token for the hub: they are arguments of tasks, and never printed.
    """
    from qwen3nb.models.inference.onednn_linear import LINEAR, linear_library  # loads torch

    passed = passed_names()
    environment = {}
    for name, value in os.environ.items():
        if name in passed or (name.startswith(_SENT) and name not in _OF_NODE):
            environment[name] = value
    environment["QWEN3NB_HOME"] = str(paths.root())
    environment[LINEAR] = linear_library()
    return environment


def node_environment(sent: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a run on this node: its own, those sent, and a local cache.

    The cache is ``QWEN3NB_CACHE`` in the node's environment, else a temporary folder: it must not
    be on a disk shared by nodes.
    """
    cache = Path(tempfile.gettempdir()) / f"qwen3nb-cache-{getpass.getuser()}"
    return {"QWEN3NB_CACHE": str(cache), **os.environ, **sent}


def software_facts() -> dict[str, str]:
    """Return the facts that all results of this process depend on, by name."""
    # Loads torch, which a Ray worker does not need.
    from qwen3nb.models.inference.onednn_linear import linear_library

    environment = Environment.current()
    facts = {"python": environment.python, **environment.versions}
    return facts | {"code": code_digest()[:_DIGITS], "linear layers": _or_error(linear_library)}


def run_facts() -> dict[str, str]:
    """Return `software_facts`, and those that only a run of a notebook depends on."""
    facts = software_facts()
    notebooks = [paths.notebooks() / f"{name}.ipynb" for name in paths.notebook_names()]
    facts["notebooks"] = f"none in {paths.notebooks()}"
    if notebooks:
        facts["notebooks"] = _digest([sha256_file(notebook) for notebook in notebooks])
    facts["cache"] = _or_error(lambda: _written(paths.cache()))
    facts[TEMPORARY] = _or_error(lambda: _written(Path(tempfile.gettempdir())))
    return facts


def _written(folder: Path) -> str:
    """Return that a megabyte can be written to a folder, or raise OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(os.urandom(1 << 20))
    return "writable"


def model_facts(models: Iterable[str]) -> dict[str, str]:
    """Return the content of models and adapters, given by their specs."""
    from qwen3nb.models.kinds.lora import CONFIG, adapter_fingerprint
    from qwen3nb.models.kinds.resolve import find_source
    from qwen3nb.models.kinds.source import described

    facts = {}
    for spec in models:
        facts[f"model {spec}"] = _or_error(lambda: described(find_source(spec)))  # noqa: B023
        folder = Path(spec).expanduser()
        if (folder / CONFIG).is_file():  # also without its base
            facts[f"adapter {spec}"] = _or_error(lambda: adapter_fingerprint(folder))  # noqa: B023
    return facts


def _digest(value: Any) -> str:
    return sha256_json(value)[:_DIGITS]


def _or_error(function: Callable[[], Any]) -> str:
    """Return a fact, its digest, or the first line of the error."""
    try:
        fact = function()
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        lines = str(error).splitlines() or [""]
        return f"none ({type(error).__name__}: {lines[0]})"
    if isinstance(fact, str):
        return fact
    return _digest(fact)


def difference(expected: Mapping[str, str], found: Mapping[str, str]) -> str:
    """Return the facts in which a node differs from this machine; empty if in none."""
    if expected and not found:
        return "it reports neither versions nor code; is this version of qwen3nb installed there?"
    differences = []
    for name in dict.fromkeys((*expected, *found)):
        there = found.get(name) or "none"
        here = expected.get(name) or "none"
        if there != here:
            differences.append(f"{name}: {there} there, {here} here")
    return "; ".join(differences)


def is_seen(folder: str) -> bool:
    """Return whether this machine sees a folder, relative to the working directory or the root."""
    return Path(folder).expanduser().is_dir() or (paths.root() / folder).is_dir()


def facts_of_node(
    environment: Mapping[str, str], folder: str, needed: Iterable[str]
) -> tuple[dict[str, str], list[str], float]:
    """Return this node's facts, as a run would see them, the needed folders it lacks, its time."""
    os.environ.update(node_environment(environment))
    if Path(folder).is_dir():
        os.chdir(folder)
    missing = [folder for folder in needed if not is_seen(folder)]
    return run_facts(), missing, time.time()


def cause(error: Exception) -> str:
    """Return why Ray gave up a task, on one line; its own text may have fifty."""
    lines = str(error).strip().splitlines() or ["no reason"]
    kind = type(error).__name__
    if kind == "GetTimeoutError":
        return f"no answer within {_ANSWER:.0f} s"
    if kind != "OutOfMemoryError":
        return f"{kind}: {lines[-1].strip()}"
    used = re.sub(r"^.*(?=Memory)|, ID: \w+", "", lines[0])
    return f"Ray ended it: {used}. Use fewer runs at once (--at-once) or nodes with more memory"


class KnownNodes:
    """The examined nodes of a cluster, and those refused. Thread-safe."""

    def __init__(
        self, ray: Any, expected: Mapping[str, str] | None = None, folders: Sequence[str] = ()
    ) -> None:
        """Compare nodes with the ``expected`` facts (none: not at all) and needed ``folders``."""
        self._ray, self.expected, self._folders = ray, expected or {}, folders
        self._names: dict[str, str] = {}  # of those examined, by Ray's id
        self._refused: dict[str, str] = {}  # the reasons, likewise
        self._lock = threading.RLock()
        self._last_look = 0.0
        self._absent_since = 0.0  # when there was first no node for runs

    def name(self, node: str) -> str:
        """Return the name of a node, given by Ray's id, which may have joined just now."""
        if node in self._names:
            return self._names[node]
        names = {live.id: live.name for live in nodes_of(self._ray)}
        return names.get(node, node)

    @property
    def selector(self) -> dict[str, str]:
        """Ray's selector of the nodes that are not refused."""
        if not self._refused:
            return {}
        return {"ray.io/node-id": f"!in({','.join(sorted(self._refused))})"}

    def _accepted(self) -> list[Node]:
        return [node for node in nodes_of(self._ray) if node.id not in self._refused]

    def fit(self) -> list[Node]:
        """Return the live nodes that are not refused; raise ClusterError if there is none."""
        nodes = self._accepted()
        if not nodes and nodes_of(self._ray):
            raise ClusterError("every node is refused: " + self._refusals_text())
        return nodes

    def _refusals_text(self) -> str:
        """Return each reason of a refusal, and the nodes that it is for."""
        nodes_by_reason: dict[str, list[str]] = {}
        for node, reason in self._refused.items():
            nodes_by_reason.setdefault(reason, []).append(self.name(node))
        lines = [f"{reason} ({', '.join(nodes)})" for reason, nodes in nodes_by_reason.items()]
        return "\n".join(lines)

    def refuse(self, reasons: Mapping[str, str]) -> None:
        """Refuse nodes for reasons, by Ray's id, and print each once.

        Raises ClusterError if no other node is left.
        """
        with self._lock:
            new = [node for node in reasons if node not in self._refused]
            self._refused |= reasons
            self.fit()
        for node in new:
            tqdm.write(f"node {self.name(node)} is refused: {reasons[node]}", file=sys.stderr)

    def examine(self) -> bool:
        """Refuse nodes that joined since the last call and differ; return whether there are any."""
        reasons = {}
        with self._lock:
            answers = {}
            for node in nodes_of(self._ray):  # all nodes collect in parallel
                if node.id not in self._names:
                    self._names[node.id] = node.name
                    answers[node.id] = self._ask(node)
            started = time.time()
            deadline = time.monotonic() + _ANSWER
            for node_id, answer in answers.items():
                reason = self._objection(answer, started=started, deadline=deadline)
                if reason:
                    reasons[node_id] = reason
            if reasons:
                self.refuse(reasons)
        return bool(reasons)

    def _ask(self, node: Node) -> Any:
        """Let a node report its facts; return Ray's reference to the answer."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        task = self._ray.remote(max_calls=1)(facts_of_node).options(
            num_cpus=0,
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        )
        return task.remote(sent_environment(), str(Path.cwd()), self._folders)

    def _objection(self, answer: Any, *, started: float, deadline: float) -> str:
        """Return why a node is refused, from its answer; empty if it is not, or is gone.

        Args:
            answer: Ray's reference to what `facts_of_node` returns.
            started: when the nodes were asked, in seconds since the epoch.
            deadline: of the answer, by the monotonic clock.
        """
        errors = self._ray.exceptions
        try:
            facts, missing, clock = self._ray.get(
                answer, timeout=max(0, deadline - time.monotonic())
            )
        except (errors.TaskUnschedulableError, errors.NodeDiedError):
            return ""  # the node is gone
        except errors.RayError as error:
            reason = f"it reports no version of qwen3nb ({cause(error)})"
            return f"{reason}; is this one installed there?"
        differing = difference(self.expected, facts)
        if differing:
            return differing
        if not started - _CLOCK < clock < time.time() + _CLOCK:
            return f"its clock differs by {clock - time.time():+.0f} s"
        if missing:
            rule = "models and data must be under the same path on all, as on a shared disk"
            return f"it does not see {', '.join(missing)}; {rule}"
        return ""

    def check_presence(self, *, cpus: float = 1, gpus: float = 0) -> None:
        """Print once that no node is left for runs; raise ClusterError after ten minutes without.

        Checks every few seconds only; Ray itself would wait silently, forever.
        """
        now = time.monotonic()
        if now < self._last_look + _LOOK:
            return
        minutes = f"{_ABSENT / 60:.0f} min"
        if any(node.cpus >= cpus and node.gpus >= gpus for node in self._accepted()):
            self._absent_since = 0.0
        elif not self._absent_since:
            self._absent_since = now
            wait = f"waiting up to {minutes} for one to join (Ctrl-C ends this)"
            tqdm.write(f"no node for runs is left; {wait}. {KEPT}", file=sys.stderr)
        elif now > self._absent_since + _ABSENT:
            raise ClusterError(f"no node for runs for {minutes}. {KEPT}")
        self._last_look = now
