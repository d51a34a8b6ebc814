"""The Hugging Face hub: requests with limits, downloads that are checked, errors in one line.

huggingface_hub resumes downloads and stores files. The guard of a session adds one time limit over
all attempts of a request, a check for HTML pages in place of answers, and one-line errors: the
library's own retries wait for minutes, or as long as a server requests. Errors do not repeat text
sent by a server or queries of addresses: both may contain tokens.

huggingface_hub compares sizes. Large files, which the hub identifies by SHA-256, are also compared
with it before their first use.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from qwen3nb.utils.atomic_files import sha256_file
from qwen3nb.utils.bounded_answers import AnswerError, bounded_content, seconds_of
from qwen3nb.utils.journal import remembered_digest
from qwen3nb.utils.secrets import WITHHELD_VARIABLE, known_secrets

if TYPE_CHECKING:
    from httpx import Request, Response
    from huggingface_hub.hf_api import RepoFile

    Send = Callable[..., Response]

_TIMEOUT_VARIABLE = "QWEN3NB_HUB_TIMEOUT"
_DEFAULT_SECONDS = 8.0
_RETRIED = (408, 429, 500, 502, 503, 504)
_TRIES = 4
_LARGEST_ANSWER = 32 << 20  # bytes of a listing or a card; a listing has a page per 1,000 files
# Bytes of a file that is sent without a length, if its size is unknown; those of a hub have 10 MB.
_LARGEST_OF_UNKNOWN_SIZE = 1 << 30
_LONGEST_ANSWER = 60.0  # seconds from its head until it is complete
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
    from huggingface_hub.utils import _http, logging

    # The library has no public way to ask for the present factory, which a session restores.
    create_client: Any = _http._GLOBAL_CLIENT_FACTORY
    # A session within another one is the same session.
    is_within_session = isinstance(create_client, _HubGuard)
    if is_within_session:
        yield
        return
    settings: Any = constants
    disable_xet = settings.HF_HUB_DISABLE_XET
    verbosity = logging.get_verbosity()
    set_client_factory(_HubGuard(create_client))
    # Over HTTP, unlike xet, a stalled transfer is noticed.
    settings.HF_HUB_DISABLE_XET = True
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        settings.HF_HUB_DISABLE_XET = disable_xet
        set_client_factory(create_client)


class _HubGuard:
    """Creates the clients of a session, and remembers an unreachable hub."""

    def __init__(self, create_client: Callable[[], Any]) -> None:
        self._create_client = create_client
        self._failure: HubError | None = None
        self._time_of_failure = 0.0
        self._sizes: dict[str, int] = {}  # of files in bytes, by their address

    def __call__(self) -> Any:
        """Return a new client with its requests guarded."""
        from huggingface_hub import constants

        self._hub = server_name(constants.ENDPOINT)
        self._limit = silence_limit()
        client = self._create_client()
        client.send = partial(self._send, client.send)
        return client

    def _send(
        self,
        send: Send,
        request: Request,
        *,
        stream: bool = False,
        **options: Any,
    ) -> Response:
        """Send a request in place of the client's method, ``send``."""
        is_to_hub = server_name(str(request.url)) == self._hub
        # Soon after the hub failed for good, as without a network, requests fail at once.
        if is_to_hub:
            self._raise_recent_failure()
        # Always a stream: the head of an answer is checked before its body is read.
        send_with_options = partial(send, stream=True, **options)
        try:
            return self._answer(send_with_options, request, stream=stream)
        except HubError as error:
            if is_to_hub and error.lasting:  # other requests would fail, too
                self._failure = error
                self._time_of_failure = time.monotonic()
            raise

    def _raise_recent_failure(self) -> None:
        """Raise the failure that made the hub unusable less than a minute ago, if there is one."""
        seconds_since_failure = time.monotonic() - self._time_of_failure
        if self._failure is not None and seconds_since_failure < _FORGET:
            raise self._failure

    def _answer(self, send: Send, request: Request, *, stream: bool) -> Response:
        """Return the checked answer to the last attempt of a request; only reads are repeated."""
        end = time.monotonic() + self._limit
        is_read = request.method in ("GET", "HEAD")
        seconds = self._limit
        if is_read:
            seconds /= 2
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), seconds)
        request.extensions = {**request.extensions, "timeout": timeouts}
        for attempt in range(1, _TRIES + 1):
            wait = self._limit / 20 * 2**attempt
            try:
                answer = send(request)
            except httpx_of_hub().TransportError as error:
                is_timeout = isinstance(error, httpx_of_hub().TimeoutException)
                if not is_read and not is_timeout:
                    raise  # the library sends it again
                failure = hub_error(error)
            else:
                if answer.status_code not in _RETRIED:
                    if stream:
                        self._bound(answer)
                    else:
                        self._note_size(answer)
                        answer = _read(answer)
                    return _checked(answer)
                requested_wait = _requested_wait(answer)
                if requested_wait is not None:
                    wait = requested_wait
                if not is_read and wait < self._limit:
                    return answer  # likewise
                answer.close()
                failure = _refusal(answer, requested_wait)
            is_last_attempt = attempt == _TRIES or time.monotonic() + wait >= end
            if not is_read or is_last_attempt:
                raise failure from None
            time.sleep(wait)
        raise AssertionError

    def _note_size(self, answer: Response) -> None:
        """Note the size of a file, if that is what an answer states."""
        headers = answer.headers
        size = headers.get("x-linked-size") or headers.get("content-length", "")
        is_packed = "content-encoding" in headers
        if answer.request.method == "HEAD" and size.isdecimal() and not is_packed:
            self._sizes[headers.get("location", str(answer.url))] = int(size)

    def _bound(self, answer: Any) -> None:
        """Let the content of an answer be no larger than its file."""
        has_length = "content-length" in answer.headers
        is_packed = "content-encoding" in answer.headers
        if has_length and not is_packed:  # so many bytes follow, and no more
            return
        most_bytes = self._sizes.get(str(answer.url), _LARGEST_OF_UNKNOWN_SIZE)
        answer.iter_bytes = partial(_bounded_parts, answer.iter_bytes, most_bytes)


def _bounded_parts(
    iter_bytes: Callable[..., Iterator[bytes]], most_bytes: int, chunk_size: int | None = None
) -> Iterator[bytes]:
    """Yield the content of an answer, unpacked; raise HubError before it has too many bytes."""
    received = 0
    for part in iter_bytes(chunk_size):
        received += len(part)
        if received > most_bytes:
            raise HubError(
                f"a file is not what the hub lists (more than {most_bytes:,} bytes); try again, "
                "and check the proxy"
            )
        yield part


def _read(answer: Response) -> Response:
    """Return an answer with its content, which is bounded in size and time.

    Raises:
        HubError: it is larger or slower than an answer of a hub, or packed in another way.
    """
    if answer.request.method == "HEAD":  # whose length is that of a file, which does not follow
        answer.read()
        return answer
    try:
        content = bounded_content(answer, most_bytes=_LARGEST_ANSWER, seconds=_LONGEST_ANSWER)
    except AnswerError as error:
        answer.close()
        message = f"the hub {server_name(str(answer.url))}: {error}; {NOT_A_HUB}"
        raise HubError(message, lasting=True) from None
    headers = httpx_of_hub().Headers(answer.headers)
    for name in ("content-encoding", "content-length", "transfer-encoding"):
        headers.pop(name, None)  # of the content as it was sent
    return httpx_of_hub().Response(
        answer.status_code,
        headers=headers,
        content=content,
        request=answer.request,
        extensions=answer.extensions,
        history=answer.history,
    )


def httpx_of_hub() -> Any:
    """Return the httpx that huggingface_hub uses."""
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

    return httpx


def _requested_wait(answer: Response) -> float | None:
    """Return the seconds that a server asks to wait, or None."""
    header = answer.headers.get("retry-after", "")
    if not header.isascii() or not header.isdecimal():
        return None
    return float(header[:9])


def _refusal(answer: Response, wait: float | None) -> HubError:
    """Return the error for an answer that says to try again later."""
    message = f"the hub {server_name(str(answer.url))}: {status_reason(answer.status_code)}"
    if wait is not None:
        message += f"; it asks to wait {wait:,.0f} s"
    return HubError(message, lasting=True)


def silence_limit() -> float:
    """Return the seconds that the hub may stay silent, retries included; by default 8.

    Raises:
        HubError: ``QWEN3NB_HUB_TIMEOUT`` is not a positive number.
    """
    try:
        return seconds_of(_TIMEOUT_VARIABLE, default=_DEFAULT_SECONDS)
    except ValueError as error:
        raise HubError(str(error)) from None


def _checked(answer: Response) -> Response:
    """Return an answer that a hub may have sent.

    Raises:
        HubError: an HTML page, or a listing with a file name that leaves the folder.
    """
    if answer.status_code >= 300:  # redirects and errors are left to the library
        return answer
    path = answer.url.path
    content_type = answer.headers.get("content-type", "").lower()
    is_page = content_type.startswith("text/html")
    is_page_requested = path.lower().endswith((".html", ".htm"))
    if is_page and not is_page_requested:
        answer.close()
        raise HubError(f"the hub {server_name(str(answer.url))}: {NOT_A_HUB}")
    is_file_listing = "/api/" in path and "/tree/" in path
    if is_file_listing:
        for entry in answer.json():
            _check_file_name(str(entry["path"]))
    return answer


def _check_file_name(name: str) -> None:
    """Refuse the name of a file that would be written outside of its folder, or hide there."""
    parts = name.replace("\\", "/").split("/")
    begins_with_drive = re.match(r"[A-Za-z]:", name) is not None  # C:\file
    # An empty part is that of an absolute path, as in /etc/passwd.
    leaves_folder = begins_with_drive or any(part in ("", ".", "..") for part in parts)
    is_hidden = parts[0] == ".cache" or not name.isprintable()
    if leaves_folder or is_hidden:
        raise HubError(
            f"the repository lists a file named {ascii(name)[:100]}, which would be "
            "written outside of its folder or hide there; nothing was downloaded; tell "
            "its owner"
        )


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
    return _problem_at(constants.ENDPOINT, moment=moment)


@functools.lru_cache(maxsize=1)
def _problem_at(endpoint: str, *, moment: int) -> str:
    """Return why an endpoint cannot be used; ``moment`` only serves as a key of the cache."""
    from huggingface_hub import get_session

    # The moment is not used here: as a key of the cache, it lets a result expire.
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
_BY_SYSTEM_ERROR = {
    ssl.SSLError: "gives no secure connection (TLS); check HF_ENDPOINT, the proxy, SSL_CERT_FILE "
    "and this machine's clock",
    socket.gaierror: "has an unknown host name; check the network and HF_ENDPOINT",
    ConnectionRefusedError: "refuses connections; check the network and HF_ENDPOINT",
}
_CUT_CONNECTION = "cut the connection"
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
    # What says most comes first: our own error, the status of an answer, then the connection.
    chain = list(causes(error))
    for cause in chain:
        if isinstance(cause, HubError):
            return str(cause)
    for cause in chain:
        reason = _refusal_reason(cause)
        if reason:
            return reason
    for cause in chain:
        reason = _transport_reason(cause)
        if reason:
            return reason
    names = {type(cause).__name__ for cause in chain}
    if "DatasetNotFoundError" in names:  # has lost its cause
        if "gated" in str(error):
            return status_reason(403)
        return status_reason(404)
    for name, reason in _BY_CLASS.items():
        if name in names:
            return reason
    return _first_line(error)


def _refusal_reason(error: BaseException) -> str:
    """Return what the status of an error's answer means; empty for an error without an answer."""
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if not isinstance(status, int):
        return ""
    address = str(getattr(response, "url", ""))
    return f"the hub {server_name(address)}: {status_reason(status)}"


def _first_line(error: BaseException) -> str:
    """Return the first line of an error's cause, without addresses and secrets."""
    cause = error
    # The innermost cause that has a text says most.
    while cause.__cause__ is not None and str(cause.__cause__).strip():
        cause = cause.__cause__
    lines = str(cause).strip().splitlines() or [type(cause).__name__]
    first_line = lines[0]
    if first_line.startswith("Consistency check failed"):  # by the hub's library
        return _OTHER_SIZE
    without_addresses = _ADDRESS.sub("[address]", first_line)
    without_secrets = known_secrets().without(without_addresses)
    characters = [letter if letter.isprintable() else " " for letter in without_secrets]
    return "".join(characters)[:200]


def hub_error(error: BaseException) -> HubError:
    """Return an error of the hub or of its libraries as a `HubError`.

    An answer that the libraries cannot read is taken as one not sent by a hub.
    """
    # The library stumbles in these ways over answers that are not those of a hub.
    is_unreadable = isinstance(error, KeyError | TypeError | AttributeError | AssertionError)
    if is_unreadable:
        return HubError(NOT_A_HUB)
    reason = hub_reason(error)
    if isinstance(error, HubError):
        return HubError(reason, lasting=error.lasting)
    is_lasting = "HF_HUB_OFFLINE" in reason
    for cause in causes(error):
        transport_reason = _transport_reason(cause)
        # A cut connection may hold next time; a wrong host name stays wrong.
        if transport_reason and _CUT_CONNECTION not in transport_reason:
            is_lasting = True
    return HubError(reason, lasting=is_lasting)


def _transport_reason(error: BaseException) -> str:
    """Return what an error of the transport means, and what to do; empty for other errors."""
    httpx = httpx_of_hub()
    if not isinstance(error, httpx.TransportError):
        return ""
    server = ""
    last_request = getattr(error, "_request", None)  # after all redirects
    if last_request is not None:
        server = server_name(str(last_request.url))
    if isinstance(error, httpx.TimeoutException):
        return (
            f"the hub {server} sent nothing, or hardly anything, for too long; check the network, "
            "or set QWEN3NB_HUB_TIMEOUT to more seconds"
        )
    if isinstance(error, httpx.ProxyError):
        return f"the proxy refuses {server}; check HTTPS_PROXY"
    # Below httpx's error is often one of TLS or of the operating system, which says more.
    for cause in causes(error):
        for system_error, reason in _BY_SYSTEM_ERROR.items():
            if isinstance(cause, system_error):
                return f"the hub {server} {reason}"
    return f"the hub {server} {_CUT_CONNECTION}, again and again; try again later"


def status_reason(status: int) -> str:
    """Return what an HTTP status means here, and what to do."""
    reason = _BY_STATUS.get(status, f"it returned status {status}; try again later")
    name = os.environ.get(WITHHELD_VARIABLE, "")
    if name and status in (401, 403):
        reason += f". This notebook does not see {name}: run it with `--pass-env {name}`"
    return reason


def server_name(address: str) -> str:
    """Return scheme, host and port of an address, without user, password, path and query.

    Raises:
        HubError: not an address.
    """
    invalid_address = HubError(
        "expected an address such as https://huggingface.co; check HF_ENDPOINT and the proxy"
    )
    try:
        parts = urlsplit(address)
        _ = parts.port  # raises for one that is no number
    except ValueError:
        raise invalid_address from None
    is_http = parts.scheme in ("http", "https") and bool(parts.hostname)
    if not is_http or not address.isprintable():
        raise invalid_address
    host_and_port = parts.netloc.rpartition("@")[2]  # without user:password@
    return f"{parts.scheme}://{host_and_port}"[:200]


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, each once."""
    pending: list[BaseException | None] = [error]
    seen: set[int] = set()
    while pending:
        cause = pending.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        # Taken from the end: the direct cause comes first.
        pending += [cause.__context__, cause.__cause__]


_COMMIT = re.compile("[0-9a-f]{40}")
_SHA256 = re.compile("[0-9a-f]{64}")
_GIT_SHA1 = re.compile("[0-9a-f]{40}")


def cached_snapshot(
    id_: str,
    *,
    kind: str,
    revision: str | None,
    files: list[str] | None = None,
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

    download = partial(
        snapshot_download,
        id_,
        repo_type=kind,
        revision=revision,
        allow_patterns=files,
    )
    with hub_session():
        try:
            return _downloaded_snapshot(download)
        except Exception as error:  # noqa: BLE001 - the libraries' errors pass through
            first_failure = hub_error(error)
        # An earlier copy may stand in for the main branch, not for a revision that was asked for.
        may_use_cache = first_failure.lasting and revision is None
        if not may_use_cache:
            raise first_failure
        try:
            folder = Path(download(local_files_only=True))
        except Exception:  # noqa: BLE001 - likewise; the first error says more
            raise first_failure from None
        _raise_if_any(_remove_damaged_links(folder))
    return folder


def _downloaded_snapshot(download: Callable[[], str]) -> Path:
    """Return the folder of a download; it is repeated once if files are damaged."""
    folder = Path(download())
    has_damaged_files = bool(_remove_damaged_links(folder))
    if has_damaged_files:
        folder = Path(download())
        _raise_if_any(_remove_damaged_links(folder))
    _check_not_empty(folder)
    return folder


def _check_not_empty(folder: Path) -> None:
    """Refuse a snapshot without files, and discard its listing."""
    if any(file.is_file() for file in folder.rglob("*")):
        return
    file_listing = folder.parent.parent / "trees" / f"{folder.name}.json"
    file_listing.unlink(missing_ok=True)
    raise HubError("the hub lists no file that is used; check the name")


def download_into(
    folder: Path,
    id_: str,
    *,
    kind: str,
    revision: str | None,
    files: list[str] | None = None,
    by_size: bool = False,
) -> set[str]:
    """Download the files of a repository into ``folder``, except those already there.

    With ``by_size``, small files are compared with the hub's listing by their size alone.

    Returns:
        The names of the files, all of them complete.

    Raises:
        HubError: see `cached_snapshot`. Completed files are kept.
    """
    from huggingface_hub import snapshot_download

    with hub_session():
        try:
            commit, hub_files = listing(id_, kind=kind, revision=revision)
            snapshot_download(
                id_,
                repo_type=kind,
                revision=commit,
                local_dir=folder,
                allow_patterns=files,
            )
        except Exception as error:  # noqa: BLE001 - the libraries' errors pass through
            raise hub_error(error) from None
    # Sizes and digests that the hub lists, of the wanted files.
    expected_contents: dict[Path, FileContent] = {}
    names: set[str] = set()
    for name, hub_file in hub_files.items():
        is_wanted = files is None or any(fnmatch(name, pattern) for pattern in files)
        if is_wanted:
            names.add(name)
            expected_contents[folder / name] = FileContent.of_hub(hub_file, by_size=by_size)
    damaged = _remove_damaged(expected_contents)
    advice = ""
    if damaged and _GIT_SHA1.fullmatch(expected_contents[damaged[0]].digest):
        advice = "; for a hub whose listing has no digests of git: `qwen3nb fetch --by-size`"
    _raise_if_any(damaged, advice)
    return names


def listing(id_: str, *, kind: str, revision: str | None) -> tuple[str, dict[str, RepoFile]]:
    """Return the commit of a revision, and its files by name.

    Call it in a session; errors are those of the hub's libraries.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.hf_api import RepoFile

    api = HfApi()
    # A branch or a tag is looked up, so that all files are of one commit.
    commit = revision or ""
    if not _COMMIT.fullmatch(commit):
        commit = str(api.repo_info(id_, repo_type=kind, revision=revision).sha)
        if not _COMMIT.fullmatch(commit):
            raise HubError(NOT_A_HUB)
    entries = api.list_repo_tree(id_, repo_type=kind, revision=commit, recursive=True)
    return commit, {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}


def _remove_damaged_links(folder: Path) -> list[Path]:
    """Remove and return the files of a cached snapshot whose content does not match.

    The cache names large files by their SHA-256. Small ones are called as the server likes: behind
    a proxy, not always by git's digest. Each file is read once.
    """
    expected_contents: dict[Path, FileContent] = {}
    for file in sorted(folder.rglob("*")):
        if file.is_symlink():
            name_in_cache = file.readlink().name
            if _SHA256.fullmatch(name_in_cache):
                expected_contents[file] = FileContent(size=None, digest=name_in_cache)
    return _remove_damaged(expected_contents)


class FileContent(NamedTuple):
    """What is known of a file's content."""

    size: int | None  # in bytes; None if it is not known
    digest: str  # SHA-256 of a large file, git's SHA-1 of a small one; else it is not known

    @classmethod
    def of_hub(cls, hub_file: RepoFile, *, by_size: bool) -> FileContent:
        """Return what the hub lists; ``by_size``, of a small file only its size."""
        if hub_file.lfs is None:
            return cls(hub_file.size, "" if by_size else hub_file.blob_id)
        return cls(hub_file.size, hub_file.lfs.sha256)

    def is_in(self, file: Path) -> bool:
        """Return whether a file has this content, as far as it is known."""
        if not file.is_file():
            return self.size is None  # such as a link to a folder
        has_other_size = self.size is not None and file.stat().st_size != self.size
        if has_other_size:
            return False
        if _SHA256.fullmatch(self.digest):
            digest = remembered_digest([file], partial(sha256_file, file), kind="sha256")
            return digest == self.digest
        if _GIT_SHA1.fullmatch(self.digest):
            return _git_sha1(file) == self.digest
        return True


def _git_sha1(file: Path) -> str:
    """Return the digest by which git names the content of a file, here a small one."""
    content = file.read_bytes()
    header = b"blob %d\0" % len(content)
    return hashlib.sha1(header + content, usedforsecurity=False).hexdigest()


def _remove_damaged(expected_contents: Mapping[Path, FileContent]) -> list[Path]:
    """Remove and return the files with other content than they should have."""
    damaged: list[Path] = []
    for file, content in expected_contents.items():
        if not content.is_in(file):
            file.resolve().unlink(missing_ok=True)
            file.unlink(missing_ok=True)
            damaged.append(file)
    return damaged


def _raise_if_any(damaged: list[Path], advice: str = "") -> None:
    if damaged:
        raise HubError(
            f"{damaged[0]}: not what the hub lists; it was removed; try again, and check the proxy"
            f"{advice}"
        )
