"""Sessions with the hub, in which its libraries use a guarded HTTP client.

huggingface_hub resumes downloads and stores files. The guard adds one time limit over all attempts
of a request, a check for HTML pages in place of answers, and one-line errors: the library's own
retries wait for minutes, or as long as a server requests.
"""

import functools
import math
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from qwen3nb.hub.errors import (
    NOT_A_HUB,
    HubError,
    hub_error,
    hub_reason,
    server_name,
    status_reason,
)

_VARIABLE, _SECONDS = "QWEN3NB_HUB_TIMEOUT", 8.0
_RETRIED = (408, 429, 500, 502, 503, 504)
_TRIES = 4
_FORGET = 60.0  # seconds before an unreachable hub is tried again
_REMEMBERED = 30.0  # seconds for which the result of a probe is reused


@contextmanager
def hub_session() -> Iterator[None]:
    """Guard all requests of the hub's libraries within the block.

    Nested sessions are one session: an unreachable hub is not tried again for a minute. The
    libraries' messages about their own retries are hidden, because they contain addresses.
    Downloads use HTTP, where a stalled transfer is noticed, not xet. A request raises a `HubError`
    if ``QWEN3NB_HUB_TIMEOUT`` or ``HF_ENDPOINT`` is invalid.
    """
    from huggingface_hub import constants, set_client_factory
    from huggingface_hub.utils import _http as shared
    from huggingface_hub.utils import logging

    earlier: Any = shared._GLOBAL_CLIENT_FACTORY
    if isinstance(earlier, _HubGuard):
        yield
        return
    settings: Any = constants
    xet, verbosity = settings.HF_HUB_DISABLE_XET, logging.get_verbosity()
    set_client_factory(_HubGuard(earlier))
    settings.HF_HUB_DISABLE_XET = True
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        settings.HF_HUB_DISABLE_XET = xet
        set_client_factory(earlier)


class _HubGuard:
    """Creates the clients of a session, and remembers an unreachable hub."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._failed: tuple[float, HubError] | None = None

    def __call__(self) -> Any:
        """Return a new client with its requests guarded."""
        from huggingface_hub import constants

        self._hub, self._limit = server_name(constants.ENDPOINT), silence_limit()
        client = self._make()
        client.send = partial(self._send, client.send)
        return client

    def _send(self, send: Callable[..., Any], request: Any, **options: Any) -> Any:
        ours = server_name(str(request.url)) == self._hub
        if ours and self._failed is not None and time.monotonic() - self._failed[0] < _FORGET:
            raise self._failed[1]
        try:
            return self._answer(send, request, **options)
        except HubError as error:
            if ours and error.lasting:
                self._failed = time.monotonic(), error
            raise

    def _answer(
        self, send: Callable[..., Any], request: Any, *, stream: bool = False, **options: Any
    ) -> Any:
        """Return the checked answer to the last attempt of a request; only reads are repeated."""
        from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

        end, reads = time.monotonic() + self._limit, request.method in ("GET", "HEAD")
        seconds = self._limit / 2 if reads else self._limit
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), seconds)
        request.extensions = {**request.extensions, "timeout": timeouts}
        for number in range(1, _TRIES + 1):
            wait = self._limit / 20 * 2**number
            try:
                answer = send(request, stream=True, **options)
                if answer.status_code not in _RETRIED:
                    if not stream:
                        answer.read()
                    return _checked(answer)
                header = answer.headers.get("retry-after", "")
                wait = float(header[:9]) if header.isascii() and header.isdecimal() else wait
                if not reads and wait < self._limit:
                    return answer  # the library sends it again
                answer.close()
                name, reason = server_name(str(answer.url)), status_reason(answer.status_code)
                asks = f"; it asks to wait {wait:,.0f} s" * bool(header)
                failure = HubError(f"the hub {name}: {reason}{asks}", lasting=True)
            except httpx.TransportError as error:
                if not reads and not isinstance(error, httpx.TimeoutException):
                    raise  # likewise
                failure = hub_error(error)
            if not reads or number == _TRIES or time.monotonic() + wait >= end:
                raise failure from None
            time.sleep(wait)
        raise AssertionError


def silence_limit() -> float:
    """Return the seconds that the hub may stay silent, retries included; by default 8.

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


def _checked(answer: Any) -> Any:
    """Return an answer that a hub may have sent.

    Raises:
        HubError: an HTML page, or a listing with a file name that leaves the folder.
    """
    path, success = answer.url.path, answer.status_code < 300
    page = answer.headers.get("content-type", "").lower().startswith("text/html")
    if page and success and not path.lower().endswith((".html", ".htm")):
        answer.close()
        raise HubError(f"the hub {server_name(str(answer.url))}: {NOT_A_HUB}")
    if success and "/api/" in path and "/tree/" in path:
        for name in [str(entry["path"]) for entry in answer.json()]:
            parts = name.replace("\\", "/").split("/")
            outside = {"", ".", ".."} & set(parts) or re.match(r"[A-Za-z]:", name)
            if outside or not name.isprintable() or parts[0] == ".cache":
                raise HubError(
                    f"the repository lists a file named {ascii(name)[:100]}, which would be "
                    "written outside of its folder or hide there; nothing was downloaded; tell "
                    "its owner"
                )
    return answer


def hub_reachable() -> bool:
    """Return whether the hub can be used; see `hub_problem`."""
    return not hub_problem()


def hub_problem() -> str:
    """Return why the hub cannot be used, in one line; empty if it can.

    Makes one request, at most every half minute; none if ``HF_HUB_OFFLINE`` is set.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    moment = int(time.monotonic() // _REMEMBERED)
    return _probe(constants.ENDPOINT, moment=moment)


@functools.lru_cache(maxsize=1)
def _probe(endpoint: str, *, moment: int) -> str:
    """Request ``endpoint``; ``moment`` only serves as a key of the cache."""
    from huggingface_hub import get_session

    try:
        with hub_session():
            get_session().get(f"{endpoint}/api/models?limit=1")
    except Exception as error:  # noqa: BLE001 - the client's errors pass through
        return hub_reason(error)
    return ""
