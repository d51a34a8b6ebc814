"""Join a Ray cluster, or start one on this machine; Ray is an extra and loaded only here.

An address is ``local`` (a Ray of our own on this machine, ended afterwards), ``auto`` (the
cluster that this machine is a node of, or that ``RAY_ADDRESS`` names), ``host:port`` (the same
by name) or ``ray://host:port`` (a cluster seen from outside, through its client port).
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click

LOCAL = "local"

_PATIENCE = 5.0  # seconds for an address to answer; Ray itself would wait for minutes
# How an HTTP/2 client opens a connection, with empty settings: every gRPC server answers.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
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
    ray = _ray()
    if ray.is_initialized():
        yield ray
        return
    target = _answering(address)
    with _kept(_AUTHENTICATION):
        with _defaults(_SETTINGS), _own_signals():
            _join(ray, target)
        try:
            yield ray
        finally:
            ray.shutdown()


def _join(ray: Any, target: str) -> None:
    try:
        ray.init(address=target, **_quiet(target))
    except Exception as error:  # noqa: BLE001 - Ray raises bare ones, too
        ray.shutdown()
        what = "start Ray on this machine" if target == LOCAL else f"join Ray at {target}"
        raise ClusterError(f"cannot {what}: {error}") from None


def _ray() -> Any:
    """Return the module; its import starts nothing."""
    try:
        import ray
    except ImportError:
        raise ClusterError(
            "--ray needs Ray, which is not installed: pip install 'qwen3nb[ray]'"
        ) from None
    return ray


def _quiet(target: str) -> dict[str, Any]:
    """Return options of ``ray.init``: no log lines; for a Ray of our own, no dashboard."""
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if target == LOCAL:
        quiet |= {"include_dashboard": False, "object_store_memory": _STORE}
    return quiet


def _answering(address: str) -> str:
    """Return the address that Ray is to join, after it has answered.

    Raises:
        ClusterError: it is malformed, names no cluster, or does not answer.
    """
    if address == LOCAL:
        return address
    target = _running_cluster() if address == "auto" else address
    scheme, _, rest = target.rpartition("://")
    host, _, port = rest.rpartition(":")
    if scheme not in ("", "ray") or not host or not port.isdigit():
        raise ClusterError(
            f"{target!r} is no address of a Ray cluster; "
            "expected auto, host:port or ray://host:port, or nothing for a Ray on this machine"
        )
    if problem := _no_answer(host.strip("[]"), int(port)):
        raise ClusterError(
            f"no Ray cluster answers at {target}: {problem}. Start one with "
            "`ray start --head`, or give --ray no address for a Ray on this machine"
        )
    # Ray shows the token of this machine's own cluster, if it has one, to what it finds by itself.
    return address if address == "auto" and not os.environ.get("RAY_ADDRESS") else target


def _running_cluster() -> str:
    """Return the address of the cluster that this machine belongs to."""
    from ray._private.services import find_bootstrap_address

    if given := os.environ.get("RAY_ADDRESS") or find_bootstrap_address(None):
        return str(given)
    raise ClusterError(
        "this machine belongs to no Ray cluster, and RAY_ADDRESS is not set. Start one with "
        "`ray start --head`, or give --ray no address for a Ray on this machine"
    )


def _no_answer(host: str, port: int) -> str:
    """Return why nothing at ``host`` speaks gRPC; empty if something does."""
    try:
        with socket.create_connection((host, port), timeout=_PATIENCE) as connection:
            connection.settimeout(_PATIENCE)
            connection.sendall(_PREFACE)
            answer = connection.recv(9)
    except OSError as error:
        return str(error)
    return "what listens there is not Ray" if not answer or answer[:4] == b"HTTP" else ""


@contextmanager
def _defaults(settings: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment that have no value yet, for the length of a block."""
    own = {name: value for name, value in settings.items() if name not in os.environ}
    os.environ.update(own)
    try:
        yield
    finally:
        for name in own:
            os.environ.pop(name, None)


@contextmanager
def _kept(name: str) -> Iterator[None]:
    """Give a variable of the environment its present value back after a block."""
    before = os.environ.get(name)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = before


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep our way of ending at SIGTERM; Ray would replace it in the main thread."""
    earlier = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, earlier)
