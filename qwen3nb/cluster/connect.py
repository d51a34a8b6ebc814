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
    own = {name: value for name, value in _SETTINGS.items() if name not in os.environ}
    with _environment({_AUTHENTICATION: os.environ.get(_AUTHENTICATION)}):
        with _environment(dict.fromkeys(own)):
            os.environ.update(own)
            at_term = signal.getsignal(signal.SIGTERM)  # Ray would replace it in the main thread
            try:
                ray.init(address=target, **options)
            except Exception as error:  # noqa: BLE001 - Ray raises bare ones, too
                ray.shutdown()
                what = "start Ray on this machine" if target == LOCAL else f"join Ray at {target}"
                raise ClusterError(f"cannot {what}: {error}") from None
            finally:
                if threading.current_thread() is threading.main_thread():
                    signal.signal(signal.SIGTERM, at_term)
        try:
            yield ray
        finally:
            ray.shutdown()


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


@contextmanager
def _environment(after: Mapping[str, str | None]) -> Iterator[None]:
    """Give variables of the environment these values after a block; None removes one."""
    try:
        yield
    finally:
        for name, value in after.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
