"""The client of the hub's libraries, with a limit of time, checked answers and errors in one line.

`HubGuard` wraps the method of a client that all its requests pass. Requests that failed for a
reason that may pass are sent again until nothing useful has come for the limit; then they end in a
`HubError`. A download that was cut is continued by huggingface_hub.
"""

from __future__ import annotations

import contextvars
import errno
import math
import os
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

from huggingface_hub import constants
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

from qwen3nb.hub.errors import NOT_A_HUB, HubError, causes, server_name, status_reason

_VARIABLE, _SECONDS = "QWEN3NB_HUB_TIMEOUT", 8.0
_RETRIED = (408, 429, 500, 502, 503, 504)
_TRIES = 5  # in a row without anything new
_FORGET = 60.0  # seconds after which a hub that could not be used is tried again
_LEAST = 64  # bytes per second; what comes slower counts as silence
_PASSING = (httpx.TimeoutException, httpx.NetworkError, httpx.RemoteProtocolError, TimeoutError)
# What errors of the operating system and of TLS mean; special ones first.
_SYSTEM = {
    ssl.SSLCertVerificationError: "has a certificate that is not accepted ({}); check the clock of "
    "this machine, the proxy and SSL_CERT_FILE",
    ssl.SSLError: "gives no secure connection (TLS); check HF_ENDPOINT and the proxy",
    socket.gaierror: "has a name that is not known; check the network and HF_ENDPOINT",
    ConnectionRefusedError: "refuses connections; check the network and HF_ENDPOINT",
}
_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL)


class HubGuard:
    """Make the clients of a session, whose hub is remembered if it cannot be used."""

    def __init__(self, make: Callable[[], httpx.Client]) -> None:
        """Guard what ``make`` returns, which takes its settings from the environment."""
        self._make = make
        self._downloads: dict[str, _Patience] = {}
        self._failed: tuple[float, HubError] | None = None

    def __call__(self) -> httpx.Client:
        """Return a new client with its requests guarded."""
        self._hub, self._limit = server_name(constants.ENDPOINT), silence_limit()
        client = self._make()
        client.send = partial(self._send, client.send)  # type: ignore[method-assign]
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
        """Return the checked answer to the last try of a request."""
        address = str(request.url)
        patience = self._downloads.get(address)
        if patience is None or not stream or patience.left() <= 0:
            patience = self._downloads[address] = _Patience(self._limit)
        reads = request.method in ("GET", "HEAD")
        sends_file = not isinstance(request.stream, httpx.ByteStream)
        repeatable = not sends_file and "/commit/" not in address
        while True:
            seconds = patience.of_a_try() if repeatable else self._limit
            timeouts = dict.fromkeys(("connect", "read", "write", "pool"), seconds)
            request.extensions = {**request.extensions, "timeout": timeouts}
            call = partial(send, request, stream=True, **options)
            wait, tries = None, _TRIES
            try:
                answer = _within(seconds, call) if reads else call()
                answer.stream = _Body(answer, patience, resumed=stream)
                if answer.status_code not in _RETRIED:
                    if not stream:
                        answer.read()
                    return _checked(answer)
                header = answer.headers.get("retry-after", "")
                wait = float(header[:9]) if header.isascii() and header.isdecimal() else None
                if sends_file and (wait or 0) < self._limit:
                    return answer  # the library begins the upload again
                answer.close()
                name, reason = server_name(str(answer.url)), status_reason(answer.status_code)
                asks = "" if wait is None else f"; it asks to wait {wait:,.0f} s"
                failure = HubError(f"the hub {name}: {reason}{asks}", lasting=True)
            except (httpx.TransportError, TimeoutError) as error:
                if sends_file and not isinstance(error, httpx.TimeoutException):
                    raise  # likewise
                failure = _transport_error(error, address, limit=self._limit)
                tries = _TRIES if isinstance(error, _PASSING) else 2
            patience.pause(failure, seconds=wait, tries=tries if repeatable else 0)


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


class _Patience:
    """The time and tries of a request without anything new.

    A long download is not limited: each part of it that arrives is new.
    """

    def __init__(self, limit: float) -> None:
        self.limit, self.furthest = limit, 0
        self.progress()

    def progress(self) -> None:
        """Start anew."""
        self.since, self.tries = time.monotonic(), 0

    def left(self) -> float:
        """Return the seconds until nothing more is tried."""
        return self.limit - (time.monotonic() - self.since)

    def of_a_try(self) -> float:
        """Return the seconds that the next try may be silent: half of all, or what is left."""
        return max(min(self.limit / 2, self.left()), self.limit / 20)

    def pause(self, error: HubError, *, seconds: float | None = None, tries: int = _TRIES) -> None:
        """Wait before another try, longer each time, or as long as the server asks for.

        Raises:
            HubError: ``error``, if the wait would take too long or ``tries`` failed.
        """
        wait = self.limit / 20 * 2**self.tries if seconds is None else seconds
        self.tries += 1
        if self.tries >= tries or wait >= self.left():
            self.tries = 0
            raise error from None
        time.sleep(wait)


class _Body(httpx.SyncByteStream):
    """The body of an answer that must not come too slowly, or be cut again and again."""

    def __init__(self, answer: Any, patience: _Patience, *, resumed: bool) -> None:
        self._stream, self._patience, self._resumed = answer.stream, patience, resumed
        self._address = str(answer.request.url)
        start = re.match(r"bytes (\d+)", answer.headers.get("content-range", ""))
        self._position = int(start[1]) if start else 0

    def __iter__(self) -> Iterator[bytes]:
        patience, received = self._patience, 0
        try:
            for data in self._stream:
                self._position += len(data)
                received += len(data)
                if received >= _LEAST * patience.limit / 2:
                    patience.since, received = time.monotonic(), 0
                elif patience.left() < patience.limit / 2:
                    raise httpx.ReadTimeout("hardly anything")
                if self._position > patience.furthest:
                    patience.furthest, patience.tries = self._position, 0
                yield data
        except httpx.TransportError as error:
            self.close()
            if not self._resumed:
                raise
            patience.pause(_transport_error(error, self._address, limit=patience.limit))
            raise httpx.RemoteProtocolError("cut") from error  # which the library resumes
        patience.progress()

    def close(self) -> None:
        self._stream.close()


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """Return ``call()``, which runs in a thread of its own and is left behind if it is late.

    A client's own timeouts count anew for every byte of a head and for every address of a name,
    and not at all while a name is looked up.
    """
    outcome: Future[Any] = Future()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
            outcome.set_exception(error)

    threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True).start()
    return outcome.result(seconds)


def _checked(answer: Any) -> Any:
    """Return an answer if a hub may have sent it.

    Raises:
        HubError: it is a page, or a listing with a name that leads out of the folder.
    """
    path, success = answer.url.path, answer.status_code < 300
    page = answer.headers.get("content-type", "").lower().startswith("text/html")
    not_a_hub = HubError(f"the hub {server_name(str(answer.url))}: {NOT_A_HUB}")
    if page and success and not path.lower().endswith((".html", ".htm")):
        answer.close()
        raise not_a_hub
    listing = "/tree/" in path or "/paths-info/" in path
    if not success or "/api/" not in path or not (listing or answer.request.method == "GET"):
        return answer
    try:
        value = answer.json()
    except (ValueError, RecursionError):
        raise not_a_hub from None
    if not isinstance(value, list if listing else (list, dict)):
        raise not_a_hub
    for name in [str(entry["path"]) for entry in value] if listing else []:
        parts = name.replace("\\", "/").split("/")
        outside = {"", ".", ".."} & set(parts) or re.match(r"[A-Za-z]:", name)
        if outside or not name.isprintable() or parts[0] == ".cache":
            raise HubError(
                f"the repository lists a file named {ascii(name)[:100]}, which would be written "
                "outside of its folder or hide there; nothing was downloaded; tell its owner"
            )
    return answer


def _transport_error(error: Exception, address: str, *, limit: float) -> HubError:
    """Return what an error of the transport means, and what to do."""
    unsupported = isinstance(error, httpx.UnsupportedProtocol)
    request = getattr(error, "_request", None)  # of the last redirect
    name = server_name(address if unsupported or request is None else str(request.url))
    if isinstance(error, (httpx.TimeoutException, TimeoutError)):
        reason = (
            f"sent nothing, or hardly anything, for {limit:g} s; check the network, or set "
            "QWEN3NB_HUB_TIMEOUT to more seconds"
        )
    elif isinstance(error, httpx.ProxyError):
        return HubError(f"the proxy refuses {name}; check HTTPS_PROXY", lasting=True)
    elif unsupported:
        reason = "redirects to an address that is not followed; check HF_ENDPOINT"
    else:
        known = (text for each in causes(error) if (text := _system_reason(each)))
        reason = next(known, "cut the connection, again and again; try again later")
    return HubError(f"the hub {name} {reason}", lasting=not reason.startswith("cut"))


def _system_reason(error: BaseException) -> str | None:
    """Return what an error of the operating system or of TLS means; None for a cut."""
    if isinstance(error, OSError) and error.errno in _NO_ROUTE:
        return "cannot be reached: there is no route to it; check the network"
    for kind, reason in _SYSTEM.items():
        if isinstance(error, kind):
            return reason.format(getattr(error, "verify_message", ""))
    return None
