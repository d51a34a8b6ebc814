"""Connect to a Ray cluster or start one, and check that its nodes are equivalent.

Before the first run, every node reports its versions, code, notebooks and models, and the library
for linear layers, which the driver selects for all. If any two nodes differ, nothing is run: a
table with rows from different programs would compare the programs.

Ray is an extra and loaded only here. An address is ``local`` (a temporary Ray on this machine),
``auto`` (the cluster of this machine, or the one in ``RAY_ADDRESS``), ``host:port`` (the same by
name) or ``ray://host:port`` (a client outside the cluster).
"""

from __future__ import annotations

import getpass
import logging
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click

from qwen3nb import paths
from qwen3nb.records.record import Environment
from qwen3nb.utils.atomic_files import sha256_file, sha256_json
from qwen3nb.utils.code_version import code_digest
from qwen3nb.utils.journal import known_digests, remember_digests
from qwen3nb.utils.secrets import passed_names

LOCAL = "local"

_START = "Start one with `ray start --head`, or give --ray no address for a Ray on this machine"
_PATIENCE = 5.0  # timeout in seconds; Ray itself waits for minutes
# Default settings of Ray; the environment takes precedence.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no usage reports
    "RAY_task_oom_retries": "3",  # otherwise a run too large for its node is repeated forever
    "RAY_DEDUP_LOGS": "0",
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
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if target == LOCAL:
        options |= {"include_dashboard": False, "object_store_memory": _STORE}
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
    authentication = os.environ.get(_AUTHENTICATION)
    at_term = signal.getsignal(signal.SIGTERM)  # Ray would replace it in the main thread
    try:
        ray.init(address=target, **options)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, at_term)
    except Exception as error:  # noqa: BLE001 - Ray raises bare Exceptions
        ray.shutdown()
        what = "start Ray on this machine" if target == LOCAL else f"join Ray at {target}"
        raise ClusterError(f"cannot {what}: {error}") from None
    try:
        yield ray
    finally:
        ray.shutdown()
        os.environ.pop(_AUTHENTICATION, None)
        if authentication is not None:
            os.environ[_AUTHENTICATION] = authentication


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
                "this machine belongs to no Ray cluster, and RAY_ADDRESS is not set. " + _START
            )
    scheme, _, rest = target.rpartition("://")
    host, _, port = rest.rpartition(":")
    if scheme not in ("", "ray") or not host or not port.isdigit():
        raise ClusterError(
            f"{target!r} is not the address of a Ray cluster; "
            "expected auto, host:port or ray://host:port, or nothing for a Ray on this machine"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_PATIENCE).close()
    except OSError as error:
        raise ClusterError(f"no Ray cluster answers at {target}: {error}. {_START}") from None
    # Resolve the address here: Ray sends this machine's token to clusters that it discovers.
    return address if address == "auto" and not os.environ.get("RAY_ADDRESS") else target


DRIVER = "this machine"
_DIGITS = 12  # digits of digests in messages

# Prefixes of variables that a node takes from the driver, unless it sets them itself.
_BEGINNINGS = """
    QWEN3NB_ HF_ HUGGING TRANSFORMERS_ TOKENIZERS_ MTEB_ OMP_ MKL_ OPENBLAS_ RAYON_ TORCH_ PYTORCH_
    CUBLAS_ NVIDIA_TF32_ PYTHONHASHSEED PYTHONWARNINGS http_proxy https_proxy no_proxy HTTP_PROXY
    HTTPS_PROXY NO_PROXY
"""
_SENT = tuple(_BEGINNINGS.split())
_OWN = ("QWEN3NB_CACHE", "QWEN3NB_RESULTS", "QWEN3NB_BOOK", "QWEN3NB_RUN_LOG")


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
    alive = [each for each in ray.nodes() if each["Alive"]]
    names = [each.get("NodeName") or each["NodeManagerAddress"] for each in alive]
    nodes = []
    for each, name in zip(alive, names, strict=True):
        id_, has = each["NodeID"], each["Resources"]
        node = Node(
            id_,
            name if names.count(name) == 1 else f"{name} ({id_[:6]})",
            int(has.get("CPU", 0)),
            has.get("GPU", 0.0),
            int(has.get("memory", 0)),
        )
        nodes.append(node)
    return sorted((node for node in nodes if node.cpus), key=lambda node: node.name)


def sent_environment() -> dict[str, str]:
    """Return the environment variables of this process that runs on nodes need.

    They may contain a token for the hub: they are arguments of tasks, and never printed.
    """
    from qwen3nb.models.inference.onednn_linear import LINEAR, linear_library  # loads torch

    passed = passed_names()
    sent = {
        name: value
        for name, value in os.environ.items()
        if (name.startswith(_SENT) and name not in _OWN) or name in passed
    }
    return sent | {"QWEN3NB_HOME": str(paths.root()), LINEAR: linear_library()}


def node_environment(sent: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a run on this node: its own, those sent, and a local cache.

    The cache is ``QWEN3NB_CACHE`` in the node's environment, else a temporary folder: it must not
    be on a disk shared by nodes.
    """
    cache = Path(tempfile.gettempdir()) / f"qwen3nb-cache-{getpass.getuser()}"
    return {"QWEN3NB_CACHE": str(cache), **os.environ, **sent}


@dataclass(frozen=True)
class Question:
    """The models and adapters that a node has to report."""

    models: tuple[str, ...] = ()  # models as given, compared by content
    adapters: tuple[str, ...] = ()  # folders of adapters, likewise
    # digests known to the driver: files on a shared disk are not read again
    digests: Mapping[str, str] = field(default_factory=dict, repr=False)


def facts_here(question: Question) -> dict[str, str]:
    """Return the facts that results of this process depend on, by name."""
    # These load torch, which a Ray worker does not need.
    from qwen3nb.models.inference.onednn_linear import linear_library
    from qwen3nb.models.kinds.lora import adapter_fingerprint
    from qwen3nb.models.kinds.resolve import find_source
    from qwen3nb.models.kinds.source import described

    environment = Environment.current()
    notebooks = [paths.notebooks() / f"{name}.ipynb" for name in paths.notebook_names()]
    facts = {"python": environment.python, **environment.versions}
    facts["code"] = code_digest()[:_DIGITS]
    facts["notebooks"] = f"none in {paths.notebooks()}"
    if notebooks:
        facts["notebooks"] = _digest([sha256_file(file) for file in notebooks])
    facts["linear layers"] = _or_error(linear_library)
    for spec in question.models:
        facts[f"model {spec}"] = _or_error(lambda: described(find_source(spec)))  # noqa: B023
    for name in question.adapters:
        folder = Path(name).expanduser()
        facts[f"adapter {name}"] = _or_error(lambda: adapter_fingerprint(folder))  # noqa: B023
    return facts


def _digest(value: Any) -> str:
    return sha256_json(value)[:_DIGITS]


def _or_error(function: Callable[[], Any]) -> str:
    """Return a fact, its digest, or the first line of the error."""
    try:
        fact = function()
        return fact if isinstance(fact, str) else _digest(fact)
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        return f"none ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"


def agree(facts: Mapping[str, Mapping[str, str]]) -> None:
    """Raise ClusterError if machines differ, with the facts and values of each machine."""
    lines = []
    for name in dict.fromkeys(name for own in facts.values() for name in own):
        having: dict[str, list[str]] = {}
        for machine, own in facts.items():
            having.setdefault(own.get(name) or "none", []).append(machine)
        if len(having) > 1:
            each = (f"{value} on {', '.join(machines)}" for value, machines in having.items())
            lines.append(f"  {name}: {'; '.join(each)}")
    if lines:
        raise ClusterError(
            "the nodes differ, so nothing was run. Make them equal, or start "
            "the cluster without those that differ:\n" + "\n".join(lines)
        )


def check_nodes(
    ray: Any, nodes: Iterable[Node], *, models: Iterable[str] = (), adapters: Iterable[str] = ()
) -> None:
    """Check that the nodes and this machine have the same versions, code and models.

    Raises ClusterError if they differ, or if a node fails to report.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    question = Question(tuple(models), tuple(adapters))
    facts = {DRIVER: facts_here(question)}
    question = replace(question, digests=known_digests())
    request = question, sent_environment(), str(Path.cwd())
    answers = {}
    for node in nodes:  # all nodes collect in parallel
        here = NodeAffinitySchedulingStrategy(node.id, soft=False)
        task = ray.remote(max_calls=1)(facts_of_node).options(
            num_cpus=0, max_retries=0, scheduling_strategy=here, name=f"facts of {node.name}"
        )
        answers[node.name] = task.remote(*request)
    for name, answer in answers.items():
        try:
            facts[name] = ray.get(answer)
        except ray.exceptions.RayError as error:
            lines = str(error).strip().splitlines()
            raise ClusterError(
                f"node {name} cannot run qwen3nb: {lines[-1] if lines else error!r}. Install the "
                "same version there, in the environment that Ray was started from"
            ) from None
    agree(facts)


def facts_of_node(
    question: Question, environment: Mapping[str, str], folder: str
) -> dict[str, str]:
    """Return the facts of this node, as a run would see them; called by Ray, once per worker."""
    os.environ.update(node_environment(environment))
    if Path(folder).is_dir():
        os.chdir(folder)
    remember_digests(question.digests)
    return facts_here(question)
