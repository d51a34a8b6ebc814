"""Sessions with the hub: a time in which its libraries use a guarded client."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from qwen3nb.hub.errors import hub_reason

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

    from qwen3nb.hub.client import HubGuard

    earlier: Any = shared._GLOBAL_CLIENT_FACTORY
    if isinstance(earlier, HubGuard):
        yield
        return
    settings: Any = constants
    xet, verbosity = settings.HF_HUB_DISABLE_XET, logging.get_verbosity()
    set_client_factory(HubGuard(earlier))
    settings.HF_HUB_DISABLE_XET = True
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        settings.HF_HUB_DISABLE_XET = xet
        set_client_factory(earlier)


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
