"""One-line errors of the hub: the cause and what to do.

Text sent by a server and queries of addresses are not repeated: both may contain tokens.
"""

import os
import re
import socket
import ssl
from collections.abc import Iterator
from urllib.parse import urlsplit

from qwen3nb.utils.secrets import WITHHELD, known_secrets

NOT_A_HUB = (
    "the answer is not from a hub but perhaps from a proxy or a login page; log in to the "
    "network, then check HF_ENDPOINT and the proxy"
)
_BY_STATUS = {
    401: "access needs a login, or there is no such name (401); check the name, then log in "
    "with `hf auth login`",
    403: "access is restricted (403); ask for access on its page, then log in with `hf auth login`",
    404: "there is no such repository, revision or file (404); check the name",
    407: "the proxy needs a login (407); check HTTPS_PROXY",
    429: "it limits the number of requests (429); try again later, or log in with `hf auth login`",
}
_BY_CLASS = {
    "FileMetadataError": NOT_A_HUB,
    "JSONDecodeError": NOT_A_HUB,
    "RecursionError": NOT_A_HUB,
    "TooManyRedirects": "its addresses redirect in a loop; check HF_ENDPOINT and the proxy",
    "OfflineModeIsEnabled": "HF_HUB_OFFLINE is set; unset it to use the hub",
    "IncompleteSnapshotError": "the hub's cache has only a part of it; try again with a network",
    "LocalEntryNotFoundError": "it is not in the hub's cache, and the hub cannot be used",
}
_OTHER_SIZE = "a file is not what the hub lists (another size); it was removed; try again"
# What errors of the operating system and of TLS mean.
_SYSTEM = {
    ssl.SSLError: "gives no secure connection (TLS); check HF_ENDPOINT, the proxy, SSL_CERT_FILE "
    "and this machine's clock",
    socket.gaierror: "has an unknown host name; check the network and HF_ENDPOINT",
    ConnectionRefusedError: "refuses connections; check the network and HF_ENDPOINT",
}
_ADDRESS = re.compile(r"https?://[^\s'\"]*")


class HubError(ValueError):
    """The hub is unreachable or sent an invalid answer; one line with the cause and what to do.

    Attributes:
        lasting: whether other requests would fail for the same reason, such as no network.
    """

    def __init__(self, message: str, *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


def hub_reason(error: BaseException) -> str:
    """Return the cause of an error that the hub or one of its libraries raised, as one line."""
    chain = list(causes(error))
    for each in chain:
        if isinstance(each, HubError):
            return str(each)
    for each in chain:
        status = getattr(getattr(each, "response", None), "status_code", None)
        if isinstance(status, int):
            address = str(getattr(each.response, "url", ""))  # type: ignore[attr-defined]
            return f"the hub {server_name(address)}: {status_reason(status)}"
    for each in chain:
        if reason := _transport_reason(each):
            return reason
    names = {type(each).__name__ for each in chain}
    if "DatasetNotFoundError" in names:  # has lost its cause
        return status_reason(403 if "gated" in str(error) else 404)
    for name, reason in _BY_CLASS.items():
        if name in names:
            return reason
    while error.__cause__ is not None and str(error.__cause__).strip():
        error = error.__cause__
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if line.startswith("Consistency check failed"):
        return _OTHER_SIZE
    line = known_secrets().without(_ADDRESS.sub("[address]", line))
    return "".join(each if each.isprintable() else " " for each in line)[:200]


def hub_error(error: BaseException) -> HubError:
    """Return an error of the hub or of its libraries as a `HubError`.

    An answer that the libraries cannot read is taken as one not sent by a hub.
    """
    if isinstance(error, KeyError | TypeError | AttributeError | AssertionError):
        return HubError(NOT_A_HUB)
    reason = hub_reason(error)
    lasting = "HF_HUB_OFFLINE" in reason or any(
        text and "cut the connection" not in text for text in map(_transport_reason, causes(error))
    )
    return HubError(reason, lasting=getattr(error, "lasting", lasting))


def _transport_reason(error: BaseException) -> str:
    """Return what an error of the transport means, and what to do; empty for other errors."""
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

    if not isinstance(error, httpx.TransportError):
        return ""
    request = getattr(error, "_request", None)  # of the last redirect
    name = "" if request is None else server_name(str(request.url))
    if isinstance(error, httpx.TimeoutException):
        return (
            f"the hub {name} sent nothing, or hardly anything, for too long; check the network, or "
            "set QWEN3NB_HUB_TIMEOUT to more seconds"
        )
    if isinstance(error, httpx.ProxyError):
        return f"the proxy refuses {name}; check HTTPS_PROXY"
    for each in causes(error):
        for kind, reason in _SYSTEM.items():
            if isinstance(each, kind):
                return f"the hub {name} {reason}"
    return f"the hub {name} cut the connection, again and again; try again later"


def status_reason(status: int) -> str:
    """Return what an HTTP status means here, and what to do."""
    reason = _BY_STATUS.get(status, f"it returned status {status}; try again later")
    name = os.environ.get(WITHHELD, "")
    if name and status in (401, 403):
        reason += f". This notebook does not see {name}: run it with `--pass-env {name}`"
    return reason


def server_name(address: str) -> str:
    """Return scheme, host and port of an address, without user, password, path and query.

    Raises:
        HubError: not an address.
    """
    try:
        parts = urlsplit(address)
        valid = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        valid = False
    if not valid or not address.isprintable():
        raise HubError(
            "expected an address such as https://huggingface.co; check HF_ENDPOINT and the proxy"
        )
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"[:200]


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, each once."""
    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if id(each) not in seen:
            seen.add(id(each))
            yield each
            left += [e for e in (each.__context__, each.__cause__) if e is not None]
