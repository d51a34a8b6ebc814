"""Join a Ray cluster, or start one; what its nodes offer, and whether they would compute the same.

Before the first run, every node says which versions, code, notebooks and models it has, and which
library computes its linear layers. The driver says the same of itself, and chooses that library
for all. If any two differ, nothing is run: a table whose rows come from different programs
compares the programs.

Ray is an extra and loaded only here. An address is ``local`` (a Ray of our own on this machine,
ended afterwards), ``auto`` (the cluster that this machine is a node of, or that ``RAY_ADDRESS``
names), ``host:port`` (the same by name) or ``ray://host:port`` (a cluster seen from outside).
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
from qwen3nb.utils.files.journal import known_digests, remember_digests
from qwen3nb.utils.secrets import passed_names

LOCAL = "local"

_START = "Start one with `ray start --head`, or give --ray no address for a Ray on this machine"
_PATIENCE = 5.0  # seconds for an address to answer; Ray itself would wait for minutes
# Settings of Ray that hold unless the environment says otherwise.
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",  # no report of ours to Ray's makers
    "RAY_task_oom_retries": "3",  # else a run too large for its node is repeated forever
    "RAY_DEDUP_LOGS": "0",
}
_AUTHENTICATION = "RAY_AUTH_MODE"  # set by a Ray of our own; it would bar us from another
_STORE = 512 << 20  # bytes of shared memory of a Ray of our own: only the files of runs pass it


class ClusterError(click.ClickException):
    """No cluster to work on; the message says what to do."""


@contextmanager
def connected(address: str = LOCAL) -> Iterator[Any]:
    """Yield the module ``ray``, connected to a cluster; end afterwards what was started here.

    A connection that this process already has is used, and left as it is.

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
    except Exception as error:  # noqa: BLE001 - Ray raises bare ones, too
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
    """Return the address that Ray is to join, after it has answered, or raise ClusterError."""
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
    # Ray shows the token of this machine's own cluster, if it has one, to what it finds by itself.
    return address if address == "auto" and not os.environ.get("RAY_ADDRESS") else target


DRIVER = "this machine"
_DIGITS = 12  # of a digest, where it is shown

# Variables that a node takes from the driver, by how they begin, but for those of its own.
_BEGINNINGS = """
    QWEN3NB_ HF_ HUGGING TRANSFORMERS_ TOKENIZERS_ MTEB_ OMP_ MKL_ OPENBLAS_ RAYON_ TORCH_ PYTORCH_
    CUBLAS_ NVIDIA_TF32_ PYTHONHASHSEED PYTHONWARNINGS http_proxy https_proxy no_proxy HTTP_PROXY
    HTTPS_PROXY NO_PROXY
"""
_SENT = tuple(_BEGINNINGS.split())
_OWN = ("QWEN3NB_CACHE", "QWEN3NB_RESULTS", "QWEN3NB_BOOK", "QWEN3NB_RUN_LOG")


@dataclass(frozen=True)
class Node:
    """A node that can take runs: Ray's id, its address or given name, what it offers."""

    id: str
    name: str
    cpus: int
    gpus: float
    memory: int


def nodes_of(ray: Any) -> list[Node]:
    """Return the living nodes with at least one core, by name; names differ.

    Several nodes of one machine share its address; Ray's names tell them apart.
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
    """Return the variables that runs on nodes get: those of this process that concern them.

    They may hold a token for the hub: they are arguments of tasks, and never printed.
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
    """Return the variables of a run on this node: its own, those sent, and a cache of its own.

    The cache is that of ``QWEN3NB_CACHE`` in the node's environment, else a folder of temporary
    files: the cache's database must not lie on a disk that nodes share.
    """
    cache = Path(tempfile.gettempdir()) / f"qwen3nb-cache-{getpass.getuser()}"
    return {"QWEN3NB_CACHE": str(cache), **os.environ, **sent}


@dataclass(frozen=True)
class Question:
    """What a node is asked."""

    models: tuple[str, ...] = ()  # models as given, whose content counts
    adapters: tuple[str, ...] = ()  # folders of adapters, likewise
    # the driver's memory of digests: files on a shared disk are not read again
    digests: Mapping[str, str] = field(default_factory=dict, repr=False)


def facts_here(question: Question) -> dict[str, str]:
    """Return what this process's results depend on, by name."""
    # They load torch, which a worker of Ray does not need.
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
    """Return a fact, the digest of one, or the first line of why there is none."""
    try:
        fact = function()
        return fact if isinstance(fact, str) else _digest(fact)
    except (ValueError, OSError, ImportError, RuntimeError) as error:
        return f"none ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''})"


def agree(facts: Mapping[str, Mapping[str, str]]) -> None:
    """Raise ClusterError if machines differ; it names the facts, and what each machine has."""
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
            "the nodes would not compute the same, so nothing was run. Make them alike, or start "
            "the cluster without those that differ:\n" + "\n".join(lines)
        )


def check_nodes(
    ray: Any, nodes: Iterable[Node], *, models: Iterable[str] = (), adapters: Iterable[str] = ()
) -> None:
    """Check that the nodes and this machine have the same versions, code and models.

    Raise ClusterError if they differ, or if a node cannot say.
    """
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    question = Question(tuple(models), tuple(adapters))
    facts = {DRIVER: facts_here(question)}
    question = replace(question, digests=known_digests())
    request = question, sent_environment(), str(Path.cwd())
    answers = {}
    for node in nodes:  # all gather theirs at once
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
