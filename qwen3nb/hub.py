"""The Hugging Face hub: requests with limits, downloads that are checked, errors in one line.

huggingface_hub resumes downloads and stores files. The guard of a session adds one time limit over
all attempts of a request, a check for HTML pages in place of answers, and one-line errors: the
library's own retries wait for minutes, or as long as a server requests. Errors do not repeat text
sent by a server or queries of addresses: both may contain tokens.

huggingface_hub compares sizes. Large files, which the hub identifies by SHA-256, are also compared
with it before their first use.
"""

import functools
import math
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from qwen3nb.utils.atomic_files import sha256_file
from qwen3nb.utils.journal import remembered_digest
from qwen3nb.utils.secrets import WITHHELD, known_secrets

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


_COMMIT = re.compile("[0-9a-f]{40}")
_SHA256 = re.compile("[0-9a-f]{64}")


def cached_snapshot(
    id_: str, *, kind: str, revision: str | None, files: list[str] | None = None
) -> Path:
    """Download what is not in the hub's cache yet, and return the folder of the snapshot.

    Without a pinned revision, the cached snapshot is used while the hub is unreachable.

    Args:
        id_: id of the repository.
        kind: ``model`` or ``dataset``.
        revision: a commit or branch; None for the main branch.
        files: patterns of file names; None for all.

    Raises:
        HubError: the hub is unreachable, has no such repository, or sent an invalid answer.
    """
    from huggingface_hub import snapshot_download

    def snapshot(**more: Any) -> Path:
        options: Any = {"repo_type": kind, "revision": revision, "allow_patterns": files, **more}
        return Path(snapshot_download(id_, **options))

    with hub_session():
        try:
            folder = snapshot()
            if _check_cached(folder):  # damaged files were removed: try again
                folder = snapshot()
                _refuse(_check_cached(folder))
            if not any(file.is_file() for file in folder.rglob("*")):
                # Discard the empty listing.
                listed = folder.parent.parent / "trees" / f"{folder.name}.json"
                listed.unlink(missing_ok=True)
                raise HubError("the hub lists no file that is used; check the name")
        except Exception as error:  # noqa: BLE001 - the libraries' errors pass through
            final = hub_error(error)
            if not final.lasting or revision is not None:
                raise final from None
            try:
                folder = snapshot(local_files_only=True)
            except Exception:  # noqa: BLE001 - likewise; the first error says more
                raise final from None
            _refuse(_check_cached(folder))
    return folder


def download_into(
    folder: Path, id_: str, *, kind: str, revision: str | None, files: list[str] | None = None
) -> set[str]:
    """Download the files of a repository into ``folder``, except those already there.

    Returns:
        The names of the files, all of them complete.

    Raises:
        HubError: see `cached_snapshot`. Completed files are kept.
    """
    from huggingface_hub import snapshot_download

    options: Any = {"repo_type": kind, "local_dir": folder, "allow_patterns": files}
    with hub_session():
        try:
            commit, listed = listing(id_, kind=kind, revision=revision)
            snapshot_download(id_, revision=commit, **options)
        except Exception as error:  # noqa: BLE001 - the libraries' errors pass through
            raise hub_error(error) from None
    wanted = {
        folder / name: (each.size, each.lfs.sha256 if each.lfs else "")
        for name, each in listed.items()
        if files is None or any(fnmatch(name, pattern) for pattern in files)
    }
    _refuse(_remove_damaged(wanted))
    return {str(file.relative_to(folder)) for file in wanted}


def listing(id_: str, *, kind: str, revision: str | None) -> tuple[str, dict[str, Any]]:
    """Return the commit of a revision, and its files as huggingface_hub's ``RepoFile``.

    Call it in a session; errors are those of the hub's libraries.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    api, commit = HfApi(), revision or ""
    if not _COMMIT.fullmatch(commit):
        commit = str(api.repo_info(id_, repo_type=kind, revision=revision).sha)
        if not _COMMIT.fullmatch(commit):
            raise HubError(NOT_A_HUB)
    entries = api.list_repo_tree(id_, repo_type=kind, revision=commit, recursive=True)
    return commit, {each.path: each for each in entries if isinstance(each, RepoFile)}


def _check_cached(folder: Path) -> list[Path]:
    """Remove and return the files of a cached snapshot whose content does not match.

    The cache names large files by their SHA-256. Each file is read once.
    """
    links = [file for file in sorted(folder.rglob("*")) if file.is_symlink()]
    return _remove_damaged({file: (None, file.readlink().name) for file in links})


def _remove_damaged(expected: dict[Path, tuple[int | None, str]]) -> list[Path]:
    """Remove and return the files of a wrong size or SHA-256, where these are known."""
    damaged = []
    for file, (size, digest) in expected.items():
        whole = size is None or (file.is_file() and file.stat().st_size == size)
        if whole and _SHA256.fullmatch(digest) and file.is_file():
            whole = digest == remembered_digest([file], partial(sha256_file, file), kind="sha256")
        if not whole:
            file.resolve().unlink(missing_ok=True)
            file.unlink(missing_ok=True)
            damaged.append(file)
    return damaged


def _refuse(damaged: list[Path]) -> None:
    for file in damaged:
        raise HubError(
            f"{file}: not what the hub lists; it was removed; try again, and check the proxy"
        )
