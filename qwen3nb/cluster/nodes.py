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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import click

from qwen3nb import paths
from qwen3nb.records.record import Environment
from qwen3nb.utils.atomic_files import sha256_file, sha256_json
from qwen3nb.utils.children import keep_exit_statuses
from qwen3nb.utils.code_version import code_digest
from qwen3nb.utils.progress import tqdm
from qwen3nb.utils.secrets import passed_names

LOCAL = "local"  # the address of a temporary Ray on this machine
TEMPORARY = "temporary folder"  # the name of a fact

# What Ray has is loaded late, and has few types.
Ray: TypeAlias = Any  # the module
Reference: TypeAlias = Any  # stands for the result of a call
Facts: TypeAlias = Callable[[], dict[str, str]]  # facts of a machine, by name

_ADVICE = "Start one with `ray start --head`, or give --ray no address for a Ray on this machine"
HOW_TO_RESUME = "What has finished is kept; repeat the command to resume"
_PATIENCE = 5.0  # timeout in seconds; Ray itself waits for minutes
_SECONDS_TO_ANSWER = 300.0  # for a node that reports its facts
_SECONDS_BETWEEN_LOOKS = 0.5  # for a first node
_SECONDS_BETWEEN_CHECKS = 5.0  # of the head, and for nodes that are left
_SECONDS_WITHOUT_NODES = 600.0  # until the end
# How a connection of gRPC begins: a preface and a frame of type 4, the settings, from either side.
# The head of a frame has nine bytes: three of its length, its type, and more.
_SETTINGS_TYPE = b"\x04"
_FRAME_HEAD = 9
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + _SETTINGS_TYPE + bytes(5)
# Seconds in which Ray connects again to a restarted head, by the variable that sets them. Then it
# ends the process without a word, or, as a client, raises errors. Ours comes before that.
_RECONNECTION = ("RAY_gcs_rpc_server_reconnect_timeout_s", 60.0)
_RECONNECTION_OF_CLIENT = ("RAY_CLIENT_RECONNECT_GRACE_PERIOD", 30.0)
_SHARE_TO_WAIT = 2 / 3  # of these seconds
_CLOCK_TOLERANCE = 60.0  # seconds that the clock of a node may differ
# Default settings of Ray, set before it is loaded; the environment takes precedence.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no usage reports
    "RAY_task_oom_retries": "3",  # otherwise a run too large for its node is repeated forever
    # Workers begin at low priority. On a busy machine that takes longer than a minute, after which
    # Ray would begin with another one, over and over.
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_BACKEND_LOG_LEVEL": "fatal",  # of this process too, whose log is the terminal
    # What Ray would print in this process: for a node that died, hundreds of lines.
    "RAY_DEDUP_LOGS_SKIP_REGEX": "^",
}
_AUTHENTICATION = "RAY_AUTH_MODE"  # set by our own Ray; would prevent connecting to another
_BYTES_OF_STORE = 512 << 20  # shared memory of our own Ray, used only for files of runs


class ClusterError(click.ClickException):
    """No cluster to work on; the message says what to do."""


class _Absence:
    """The time for which something that should be there is not."""

    def __init__(self) -> None:
        """Begin with its presence."""
        self._since: float | None = None  # by the monotonic clock

    def end(self) -> None:
        """Note that it is there."""
        self._since = None

    def go_on(self, *, notice: str, error: str, patience: float) -> None:
        """Note that it is not: print the notice once; raise the error after seconds of patience."""
        current_time = time.monotonic()
        if self._since is None:
            self._since = current_time
            tqdm.write(notice, file=sys.stderr)
        elif current_time > self._since + patience:
            raise ClusterError(f"{error}. {HOW_TO_RESUME}")


class Head:
    """The head of a cluster, which may be restarted while the cluster is used."""

    def __init__(self, target: str) -> None:
        """Look at ``target``: ``host:port``, or ``ray://host:port`` for its server of clients."""
        variable, seconds = _RECONNECTION
        if target.startswith("ray://"):
            variable, seconds = _RECONNECTION_OF_CLIENT
        self.address = target.removeprefix("ray://")
        self._patience = _SHARE_TO_WAIT * float(os.environ.get(variable, seconds))
        self._absence = _Absence()

    def answers(self) -> bool:
        """Return whether the head answers; print once that it does not.

        Raises ClusterError before the time is over in which Ray connects to a restarted head.
        """
        try:
            _connection(self.address).close()
        except OSError as error:
            problem = f"Ray's head at {self.address} does not answer ({error})"
            wait = f"waiting up to {self._patience:.0f} s for its restart"
            self._absence.go_on(notice=f"{problem}; {wait}", error=problem, patience=self._patience)
            return False
        self._absence.end()
        return True


class Cluster(NamedTuple):
    """A connection: the module ``ray``, and the head; None if somebody else has connected."""

    ray: Ray
    head: Head | None = None


@contextmanager
def connected(address: str = LOCAL) -> Iterator[Cluster]:
    """Yield a connection to a cluster; stop a Ray started here afterwards.

    An existing connection of this process is used, and kept.

    Raises:
        ClusterError: Ray is not installed, or no cluster answers at ``address``.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise ClusterError(
            "--ray needs Ray, which is not installed: pip install 'qwen3nb[ray]'"
        ) from None
    if ray.is_initialized():
        yield Cluster(ray)
        return
    target = _answering_address(address)
    authentication = os.environ.get(_AUTHENTICATION)
    try:
        _start(ray, target)
    except Exception as error:  # noqa: BLE001 - Ray raises bare Exceptions
        ray.shutdown()
        attempt = f"join Ray at {target}"
        if target == LOCAL:
            attempt = "start Ray on this machine"
        raise ClusterError(f"cannot {attempt}: {cause(error)}") from None
    if not target.startswith("ray://"):
        target = ray.get_runtime_context().gcs_address
    try:
        yield Cluster(ray, Head(target))
    except ConnectionError as error:  # of a client
        raise ClusterError(f"the connection to Ray is lost: {error}. {HOW_TO_RESUME}") from None
    finally:
        ray.shutdown()
        os.environ.pop(_AUTHENTICATION, None)
        if authentication is not None:
            os.environ[_AUTHENTICATION] = authentication


def _start(ray: Ray, target: str) -> None:
    """Connect to a cluster or start one; nothing is printed, and our handler of SIGTERM stays."""
    # This logger prints a traceback if the connection ends; `Head` says so in one line.
    logging.getLogger("ray.util.client.logsclient").disabled = True
    options: dict[str, object] = {"log_to_driver": False, "logging_level": logging.CRITICAL}
    if target == LOCAL:
        options["include_dashboard"] = False
        options["object_store_memory"] = _BYTES_OF_STORE
    # Ray sets a handler of its own, which is undone below.
    our_handler = signal.getsignal(signal.SIGTERM)
    keep_exit_statuses()  # before Ray starts its processes
    with _silent():
        ray.init(address=target, **options)
    if threading.current_thread() is threading.main_thread():  # where Ray sets its own handler
        signal.signal(signal.SIGTERM, our_handler)


@contextmanager
def _silent() -> Iterator[None]:
    """Discard what C++ code writes to the standard error while it starts."""
    # C++ code writes to the descriptor itself, whatever sys.stderr is.
    standard_error = 2
    terminal = os.dup(standard_error)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, standard_error)
        yield
    finally:
        os.dup2(terminal, standard_error)
        os.close(terminal)
        os.close(nowhere)


def _connection(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE)


def _answering_address(address: str) -> str:
    """Return the address to connect to; raise ClusterError if it does not answer."""
    if address == LOCAL:
        return address
    target = address
    if address == "auto":
        target = _address_of_this_machine()
    # Such as ray://10.0.0.2:10001, or 10.0.0.2:6379 with an empty scheme.
    scheme, _, server = target.rpartition("://")
    host, _, port = server.rpartition(":")
    if scheme not in ("", "ray") or not host or not port.isdigit():
        raise ClusterError(
            f"{target!r} is not the address of a Ray cluster; "
            "expected auto, host:port or ray://host:port, or nothing for a Ray on this machine"
        )
    try:
        # Fails at once if nobody answers; Ray would wait for minutes.
        _greet(server)
    except (OSError, UnicodeError) as error:
        raise ClusterError(f"no Ray cluster answers at {target}: {error}. {_ADVICE}") from None
    if address == "auto" and not os.environ.get("RAY_ADDRESS"):
        return address  # Ray sends this machine's token only to clusters that it discovers itself
    return target


def _address_of_this_machine() -> str:
    """Return the address of the cluster that this machine belongs to."""
    address = os.environ.get("RAY_ADDRESS")
    if address:
        return address
    # `ray start` leaves the address of its cluster here; the documentation of `ray.init` says so.
    folder = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir())
    file = folder / "ray" / "ray_current_cluster"
    if not file.is_file():
        raise ClusterError(
            "this machine belongs to no Ray cluster, and RAY_ADDRESS is not set. " + _ADVICE
        )
    return file.read_text(encoding="utf-8").strip()


def _greet(server: str) -> None:
    """Raise OSError unless a server speaks the protocol of Ray, which is that of gRPC."""
    with _connection(server) as connection:
        connection.sendall(_GREETING)
        answer = connection.recv(_FRAME_HEAD)
    frame_type = answer[3:4]
    is_encrypted = os.environ.get("RAY_USE_TLS", "0") != "0"
    if frame_type != _SETTINGS_TYPE and not is_encrypted:
        raise OSError("what listens there is not Ray")


_DIGITS = 12  # digits of digests in messages

# Prefixes of variables that a node takes from the driver, unless it sets them itself.
_PREFIXES = """
    QWEN3NB_ HF_ HUGGING TRANSFORMERS_ TOKENIZERS_ MTEB_ OMP_ MKL_ OPENBLAS_ RAYON_ TORCH_ PYTORCH_
    CUBLAS_ NVIDIA_TF32_ PYTHONHASHSEED PYTHONWARNINGS http_proxy https_proxy no_proxy HTTP_PROXY
    HTTPS_PROXY NO_PROXY
"""
_PREFIXES_SENT = tuple(_PREFIXES.split())
_SET_BY_NODE = ("QWEN3NB_CACHE", "QWEN3NB_RESULTS", "QWEN3NB_BOOK", "QWEN3NB_RUN_LOG")


@dataclass(frozen=True)
class Node:
    """A node for runs: Ray's id, address or name, and resources."""

    id: str
    name: str
    cpus: int
    gpus: float
    memory: int


def nodes_of(ray: Ray) -> list[Node]:
    """Return the live nodes with at least one core, with unique names.

    Several nodes of one machine share its address, and are distinguished by Ray's names.
    """
    descriptions = [description for description in ray.nodes() if description["Alive"]]
    count_by_name = Counter(description["NodeName"] for description in descriptions)
    nodes = []
    for description in descriptions:
        name = description["NodeName"]  # its address, unless it was given another one
        resources = description["Resources"]
        if count_by_name[name] > 1:  # several nodes on one machine
            name = f"{name} ({description['NodeID'][:6]})"
        node = Node(
            id=description["NodeID"],
            name=name,
            cpus=int(resources.get("CPU", 0)),
            gpus=resources.get("GPU", 0.0),
            memory=int(resources.get("memory", 0)),
        )
        if node.cpus:  # others take no runs
            nodes.append(node)
    return sorted(nodes, key=lambda node: node.name)


def sent_environment() -> dict[str, str]:
    """Return the environment variables of this process that runs on nodes need.

    They may contain a token for the hub: they are arguments of tasks, and never printed.
    """
    from qwen3nb.models.inference.onednn_linear import LINEAR, linear_library  # loads torch

    admitted_by_user = passed_names()
    environment = {}
    for name, value in os.environ.items():
        is_setting = name.startswith(_PREFIXES_SENT) and name not in _SET_BY_NODE
        if is_setting or name in admitted_by_user:
            environment[name] = value
    environment["QWEN3NB_HOME"] = str(paths.root())
    # Every node must multiply by the same library, or the numbers would differ.
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
    return facts | {"code": code_digest()[:_DIGITS], "linear layers": _fact(linear_library)}


def run_facts() -> dict[str, str]:
    """Return `software_facts`, and those that only a run of a notebook depends on."""
    facts = software_facts()
    folder = paths.notebooks()
    digests = [sha256_file(folder / f"{name}.ipynb") for name in paths.notebook_names()]
    if digests:
        facts["notebooks"] = _short_digest(digests)
    else:
        facts["notebooks"] = f"none in {folder}"
    # A node that cannot write there has another fact than this machine, so it is refused.
    facts["cache"] = _fact(lambda: _try_to_write(paths.cache()))
    facts[TEMPORARY] = _fact(lambda: _try_to_write(Path(tempfile.gettempdir())))
    return facts


def _try_to_write(folder: Path) -> str:
    """Return that a megabyte can be written to a folder, or raise OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(os.urandom(1 << 20))
    return "writable"


def model_facts(models: Iterable[str]) -> dict[str, str]:
    """Return the content of models and adapters, given by their specs."""
    from qwen3nb.models.kinds.lora import CONFIG, adapter_fingerprint

    facts = {}
    for spec in models:
        facts[f"model {spec}"] = _fact(partial(_described_model, spec))
        folder = Path(spec).expanduser()
        if (folder / CONFIG).is_file():  # also without its base
            facts[f"adapter {spec}"] = _fact(partial(adapter_fingerprint, folder))
    return facts


def _described_model(spec: str) -> object:
    from qwen3nb.models.kinds.resolve import find_source
    from qwen3nb.models.kinds.source import described

    return described(find_source(spec))


def _short_digest(value: object) -> str:
    return sha256_json(value)[:_DIGITS]


def _fact(compute: Callable[[], object]) -> str:
    """Return a fact that is a text, the digest of any other, or why it cannot be computed."""
    try:
        fact = compute()
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        # The reason stands for the fact, so this machine differs from one that has it.
        lines = str(error).splitlines() or [""]
        return f"none ({type(error).__name__}: {lines[0]})"
    if isinstance(fact, str):
        return fact
    return _short_digest(fact)


def difference(expected: Mapping[str, str], reported: Mapping[str, str]) -> str:
    """Return the facts in which a node differs from this machine; empty if in none."""
    if expected and not reported:
        return "it reports neither versions nor code; is this version of qwen3nb installed there?"
    differences = []
    for name in dict.fromkeys((*expected, *reported)):  # a fact may be missing on one side
        fact_there = reported.get(name) or "none"
        fact_here = expected.get(name) or "none"
        if fact_there != fact_here:
            differences.append(f"{name}: {fact_there} there, {fact_here} here")
    return "; ".join(differences)


def is_seen(folder: str) -> bool:
    """Return whether this machine sees a folder, relative to the working directory or the root."""
    return Path(folder).expanduser().is_dir() or (paths.root() / folder).is_dir()


@dataclass(frozen=True)
class NodeReport:
    """What a node says of itself, as a run would see it."""

    facts: dict[str, str]
    unseen: list[str]  # the folders that it needs, and does not see
    time: float  # by its clock, in seconds since the epoch


def report_of_node(
    facts: Facts,
    environment: Mapping[str, str],
    working_directory: str,
    needed_folders: Iterable[str],
) -> NodeReport:
    """Return the report of the node that this runs on."""
    os.environ.update(node_environment(environment))
    if Path(working_directory).is_dir():
        os.chdir(working_directory)
    unseen = [folder for folder in needed_folders if not is_seen(folder)]
    return NodeReport(facts(), unseen, time.time())


def cause(error: Exception) -> str:
    """Return why Ray gave up a task, on one line; its own text may have fifty."""
    lines = str(error).strip().splitlines() or ["no reason"]
    kind = type(error).__name__
    if kind == "GetTimeoutError":
        return f"no answer within {_SECONDS_TO_ANSWER:.0f} s"
    # Ray's text is a traceback, whose last line is the reason.
    if kind != "OutOfMemoryError":
        return f"{kind}: {lines[-1].strip()}"
    # Such as "1 worker(s) were killed. Memory on the node (IP: 10.0.0.2, ID: 96) was 10.2GB used".
    _, word, facts = lines[0].rpartition("Memory")
    usage = re.sub(r", ID: \w+", "", f"{word}{facts}")
    return f"Ray ended it: {usage}. Use fewer runs at once (--at-once) or nodes with more memory"


def _take_a_core() -> None:
    """Do nothing, as a task: an autoscaler adds a node for one that waits for a core."""


class KnownNodes:
    """The examined nodes of a cluster, and those refused. Thread-safe."""

    def __init__(
        self,
        cluster: Cluster,
        facts: Facts = dict,
        folders: Sequence[str] = (),
    ) -> None:
        """Compare ``facts`` of nodes (none: not at all), and whether they see needed folders."""
        self._ray, self._head = cluster
        self._facts = facts
        self.expected = facts()  # of this machine, by name; none: nodes are not compared
        self._folders = folders  # of models and data
        self._names: dict[str, str] = {}  # of those examined, by Ray's id
        self._refused: dict[str, str] = {}  # the reasons, likewise
        self._lock = threading.RLock()  # reentrant: `examine` calls `refuse`
        self._last_check = 0.0  # time of the monotonic clock
        self._absence = _Absence()  # of nodes for runs

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

    def wait_for_one(self) -> None:
        """Wait until the cluster has a node with cores, as of an autoscaler that starts with none.

        Raises ClusterError after ten minutes; see `check_presence`.
        """
        if nodes_of(self._ray):
            return
        task = self._ray.remote(_take_a_core).remote()
        while not nodes_of(self._ray):
            self.check_presence()
            self._ray.wait([task], timeout=_SECONDS_BETWEEN_LOOKS)

    def _accepted(self) -> list[Node]:
        return [node for node in nodes_of(self._ray) if node.id not in self._refused]

    def usable(self) -> list[Node]:
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
            self.usable()
        for node in new:
            tqdm.write(f"node {self.name(node)} is refused: {reasons[node]}", file=sys.stderr)

    def examine(self) -> bool:
        """Refuse nodes that joined since the last call and differ; return whether there are any."""
        if not self.expected:
            return False
        reasons: dict[str, str] = {}
        with self._lock:
            new = [node for node in nodes_of(self._ray) if node.id not in self._names]
            self._names |= {node.id: node.name for node in new}
            requested = time.time()
            reports = [self._request_report(node) for node in new]
            if reports:  # which all nodes write in parallel
                self._ray.wait(reports, num_returns=len(reports), timeout=_SECONDS_TO_ANSWER)
            for node, report in zip(new, reports, strict=True):
                reason = self._reason_to_refuse(report, requested=requested)
                if reason:
                    reasons[node.id] = reason
            if reasons:
                self.refuse(reasons)
        return bool(reasons)

    def _request_report(self, node: Node) -> Reference:
        """Let a node write its report; return Ray's reference to it."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        # On this node only (not soft), and in a process that ends afterwards (max_calls=1), as the
        # task changes its environment.
        task = self._ray.remote(max_calls=1)(report_of_node).options(
            num_cpus=0,  # waits for no run on that node
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False),
        )
        return task.remote(self._facts, sent_environment(), str(Path.cwd()), self._folders)

    def _reason_to_refuse(self, reference: Reference, *, requested: float) -> str:
        """Return why a node is refused, from its report; empty if it is not, or is gone.

        Args:
            reference: Ray's reference to what `report_of_node` returns, if that has ended.
            requested: when that was requested, in seconds since the epoch.
        """
        errors = self._ray.exceptions
        try:
            report = self._ray.get(reference, timeout=0)
        except (errors.TaskUnschedulableError, errors.NodeDiedError):
            return ""  # the node is gone
        except errors.RayError as error:
            reason = f"it reports no version of qwen3nb ({cause(error)})"
            return f"{reason}; is this one installed there?"
        differing = difference(self.expected, report.facts)
        if differing:
            return differing
        # The report was written between the request and now, unless the node's clock is wrong.
        current_time = time.time()
        is_early = report.time <= requested - _CLOCK_TOLERANCE
        is_late = report.time >= current_time + _CLOCK_TOLERANCE
        if is_early or is_late:
            return f"its clock differs by {report.time - current_time:+.0f} s"
        if report.unseen:
            rule = "models and data must be under the same path on all, as on a shared disk"
            return f"it does not see {', '.join(report.unseen)}; {rule}"
        return ""

    def check_presence(self, *, cpus: float = 1, gpus: float = 0) -> None:
        """Print once that no node is there for runs; raise ClusterError after ten minutes without.

        Also raises it if the head is gone. Checks every few seconds only; Ray itself would wait
        silently, forever.
        """
        current_time = time.monotonic()
        if current_time < self._last_check + _SECONDS_BETWEEN_CHECKS:
            return
        self._last_check = current_time
        # Without its head, Ray would wait to list the nodes.
        if self._head is not None and not self._head.answers():
            return
        # Ray itself would wait for nodes forever, without a word.
        if any(node.cpus >= cpus and node.gpus >= gpus for node in self._accepted()):
            self._absence.end()
            return
        minutes = f"{_SECONDS_WITHOUT_NODES / 60:.0f} min"
        wait = f"waiting up to {minutes} for one to join (Ctrl-C ends this)"
        self._absence.go_on(
            notice=f"no node for runs is there; {wait}. {HOW_TO_RESUME}",
            error=f"no node for runs for {minutes}",
            patience=_SECONDS_WITHOUT_NODES,
        )
