"""Sessions with the hub: a time in which its libraries use a guarded client."""

from __future__ import annotations

import functools
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from qwen3nb.hub.errors import HubError, hub_reason

_VARIABLE, _SECONDS = "QWEN3NB_HUB_TIMEOUT", 8.0
_REMEMBERED = 30.0  # seconds for which the answer to a probe holds


@contextmanager
def hub_session() -> Iterator[None]:
    """Guard all requests of the hub's libraries within the block; see `client.HubGuard`.

    A session within a session is part of it: a hub that could not be used is not asked again
    for a minute. The libraries' messages about their own retries are not shown, because these
    have the addresses. Downloads go over HTTP, whose silence is noticed, not through xet.
    A request raises a `HubError` if ``QWEN3NB_HUB_TIMEOUT`` or ``HF_ENDPOINT`` is invalid.
    """
    from huggingface_hub import constants, set_client_factory
    from huggingface_hub.utils import _http as shared
    from huggingface_hub.utils import logging

    earlier: Any = shared._GLOBAL_CLIENT_FACTORY
    if isinstance(earlier, _Guarded):
        yield
        return
    settings: Any = constants
    xet, verbosity = settings.HF_HUB_DISABLE_XET, logging.get_verbosity()
    set_client_factory(_Guarded(earlier))
    settings.HF_HUB_DISABLE_XET = True
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        settings.HF_HUB_DISABLE_XET = xet
        set_client_factory(earlier)


class _Guarded:
    """Make the clients that another factory makes, guarded; all of them by one guard."""

    def __init__(self, earlier: Any) -> None:
        self._earlier = earlier

    def __call__(self) -> Any:
        return self._guard.guarded(self._earlier())

    @functools.cached_property
    def _guard(self) -> Any:
        from huggingface_hub import constants

        from qwen3nb.hub.client import HubGuard

        return HubGuard(constants.ENDPOINT, limit=silence_limit())


def silence_limit() -> float:
    """Return the seconds that the hub may be silent in all, retries included; by default 8.

    Raises:
        HubError: ``QWEN3NB_HUB_TIMEOUT`` is not a positive number.
    """
    text = os.environ.get(_VARIABLE, "")
    try:
        seconds = float(text) if text else _SECONDS
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < math.inf:
        raise HubError(f"{_VARIABLE}: expected seconds, such as 60; got {text[:40]!r}")
    return seconds


def hub_reachable() -> bool:
    """Return whether the hub can be used; see `hub_problem`."""
    return not hub_problem()


def hub_problem() -> str:
    """Return why the hub cannot be used, as one line; empty if it can.

    One request is made, at most every half minute; with ``HF_HUB_OFFLINE`` set, none.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    moment = int(time.monotonic() // _REMEMBERED)
    return _probe(constants.ENDPOINT, moment=moment)


@functools.lru_cache(maxsize=1)
def _probe(endpoint: str, *, moment: int) -> str:
    """Ask ``endpoint``; ``moment`` only tells one question from the next."""
    from huggingface_hub import get_session

    try:
        with hub_session():
            get_session().get(f"{endpoint}/api/models?limit=1")
    except Exception as error:  # noqa: BLE001 - the client's errors pass through
        return hub_reason(error)
    return ""
