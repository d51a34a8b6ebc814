"""Say what the errors of the HTTP library and the answers of a server mean."""

from __future__ import annotations

import email.utils
import errno
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from qwen3nb.hub.errors import HubError, server_name, status_reason
from qwen3nb.hub.http_library import httpx
from qwen3nb.hub.patience import Silence

_NO_ROUTE = (errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL)


@dataclass(frozen=True)
class Failure:
    """Why a try failed.

    Attributes:
        error: what to raise if it was the last one.
        tries: how often to try in all; None for as long as patience lasts.
        unsent: whether the server never got the request.
    """

    error: HubError
    tries: int | None = None
    unsent: bool = False


def transport_failure(error: Exception, address: str, *, limit: float) -> Failure:
    """Return what an error of the transport means.

    Args:
        error: from the HTTP library, or `Silence`.
        address: of the request.
        limit: seconds that the hub may be silent.
    """
    server = server_name(address)
    unsent = isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout))
    if isinstance(error, (Silence, httpx.TimeoutException)):
        text = (
            f"{server} sent nothing, or hardly anything, for {limit:g} s; check the network, or "
            "set QWEN3NB_HUB_TIMEOUT to more seconds"
        )
        return Failure(_lasting(text), unsent=unsent)
    if isinstance(error, httpx.ProxyError):
        return Failure(_lasting(f"the proxy refuses {server}; check HTTPS_PROXY"), tries=2)
    if isinstance(error, httpx.UnsupportedProtocol):
        return Failure(_lasting(f"{server} is not the address of a hub; check HF_ENDPOINT"), 1)
    for each in _causes(error):
        if reason := _of_system(each, server):
            tries = 1 if isinstance(each, ssl.SSLError) else 2
            return Failure(_lasting(reason), tries, unsent)
    text = f"{server} cut the connection, again and again; try again later"
    return Failure(HubError(f"the hub {text}"), unsent=unsent)


def _of_system(error: BaseException, server: str) -> str | None:
    """Return what an error of the operating system or of TLS means; None for a cut."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"{server} has a certificate that is not accepted ({error.verify_message}); check the "
            "clock of this machine, the proxy and SSL_CERT_FILE"
        )
    if isinstance(error, ssl.SSLError):
        return f"{server} gives no secure connection (TLS); check HF_ENDPOINT and the proxy"
    if isinstance(error, socket.gaierror):
        return f"{server} has a name that is not known; check the network and HF_ENDPOINT"
    if isinstance(error, ConnectionRefusedError):
        return f"{server} refuses connections; check the network and HF_ENDPOINT"
    if isinstance(error, OSError) and error.errno in _NO_ROUTE:
        return f"{server} cannot be reached: there is no route to it; check the network"
    return None


def status_error(answer: Mapping[str, str], status: int, address: str) -> HubError:
    """Return the error for a status that another try may mend; ``answer`` has the headers."""
    wait = retry_after(answer)
    asks = "" if wait is None else f"; it asks to wait {wait:,.0f} s"
    return HubError(f"the hub {server_name(address)}: {status_reason(status)}{asks}", lasting=True)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a server asks to wait for, as a number or as a date."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdecimal():
        return float(value[:9])
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, TypeError, OverflowError):
        return None


def _lasting(text: str) -> HubError:
    return HubError(text if text.startswith("the ") else f"the hub {text}", lasting=True)


def _causes(error: BaseException) -> Iterator[BaseException]:
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__ or each.__context__
