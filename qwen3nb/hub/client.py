"""Send the requests of the hub's libraries, with limits, retries and checks.

`HubGuard.guarded` replaces the method of a client that all its requests pass. A request is
tried again while its `Patience` lasts; then, and for what no retry mends, it ends in a
`HubError`. What another try cannot help is left to the library that asks, such as a 404.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from qwen3nb.hub.body import Body
from qwen3nb.hub.digests import FileDigest, FileFacts, FileKey, file_key, hub_path, listed_files
from qwen3nb.hub.errors import NOT_A_HUB, HubError, server_name, status_reason
from qwen3nb.hub.failures import retry_after, status_error, transport_failure
from qwen3nb.hub.http_library import httpx
from qwen3nb.hub.patience import Patience, Silence, bounded

_RETRIED = (408, 429, 500, 502, 503, 504)
_REDIRECTS = 10
_HUBS = ("https://huggingface.co", "https://hf.co")
_FORGET = 60.0  # seconds after which a hub that could not be used is tried again
_SMALL = 1 << 20  # bytes of a file that is fetched to see whether ids are digests
_CHUNK = 1 << 16
_FAILED = (httpx.TransportError, Silence)


@dataclass(frozen=True)
class _Call:
    """A request with what its tries share.

    Attributes:
        send: sends one request, without following redirects.
        request: the request.
        patience: time without progress.
        key: the file of the hub it asks for, if any.
        follow: whether content on another server is fetched here, not by the library.
        body: what it sends, if any.
    """

    send: Callable[[Any], Any]
    request: Any
    patience: Patience
    key: FileKey | None
    follow: bool
    body: _RequestBody | None

    @property
    def streamed(self) -> bool:
        """Whether it sends a file, which only the library can begin again."""
        return self.body is not None and not self.body.again

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice does no harm."""
        return not self.streamed and "/commit/" not in str(self.request.url)

    def moved(self) -> float:
        """Return the time of the last byte that was sent of a body."""
        return self.body.moved if self.body is not None else 0.0

    @property
    def whole(self) -> bool:
        """Whether it asks for all of a file."""
        headers = self.request.headers
        return self.key is not None and self.request.method == "GET" and "range" not in headers


class _RequestBody(httpx.SyncByteStream):
    """The body of a request, in small pieces, with the time of the last one."""

    def __init__(self, body: Any) -> None:
        self._body = body
        self.again = isinstance(body, httpx.ByteStream)
        self.moved = time.monotonic()

    def __iter__(self) -> Iterator[bytes]:
        for data in self._body:
            for start in range(0, len(data), _CHUNK):
                self.moved = time.monotonic()
                yield data[start : start + _CHUNK]

    def close(self) -> None:
        self._body.close()


class HubGuard:
    """What is known of a hub while a session lasts, and the way its requests are sent.

    Args:
        endpoint: address of the hub.
        limit: seconds that it may be silent, over all tries of a request.
    """

    def __init__(self, endpoint: str, *, limit: float) -> None:
        self._endpoint, self._limit = endpoint, limit
        server_name(endpoint)  # refuses what is no address, which the next line would show
        self._hub = server_name(str(httpx.URL(endpoint)))  # as it is in requests
        self._servers = {self._hub, *_HUBS}
        self._files: dict[FileKey, FileFacts] = {}
        self._addresses: dict[str, FileKey] = {}  # of content that is not under a file's own
        self._failed: tuple[float, HubError] | None = None
        self._git_ids = True if self._hub in _HUBS else None

    def guarded(self, client: Any) -> Any:
        """Return ``client`` with its requests guarded."""
        client.send = partial(self._send, client.send)
        return client

    def _send(
        self,
        send: Callable[..., Any],
        request: Any,
        *,
        stream: bool = False,
        follow_redirects: Any = True,
        **options: Any,
    ) -> Any:
        address = str(request.url)
        key = file_key(address, self._endpoint) or self._addresses.get(address)
        reads = request.method in ("GET", "HEAD")
        if reads and key is None and server_name(address) not in self._servers:
            options |= {"stream": stream, "follow_redirects": follow_redirects}
            return self._elsewhere(partial(send, request, **options))
        self._raise_again()
        call = _Call(
            send=partial(send, stream=True, follow_redirects=False, **options),
            request=request,
            patience=Patience(self._limit),
            key=key,
            follow=follow_redirects is not False,
            body=_split(request),
        )
        if call.whole:
            request.headers["Accept-Encoding"] = "identity"  # digests are of what is stored
        try:
            answer = self._checked(call, self._answer(call))
            if not stream:
                self._read(call, answer)
        except HubError as error:
            raise self._remembered(error) from None
        return answer

    def _elsewhere(self, call: Callable[[], Any]) -> Any:
        """Ask another server than the hub, such as one that counts downloads: once and shortly."""
        try:
            return bounded(call, self._limit / 5)
        except Silence:
            raise httpx.ConnectTimeout("no answer in time") from None

    def _raise_again(self) -> None:
        if self._failed is not None and time.monotonic() - self._failed[0] < _FORGET:
            raise self._failed[1]

    def _remembered(self, error: HubError) -> HubError:
        if error.lasting and (self._failed is None or self._failed[1] is not error):
            self._failed = time.monotonic(), error
        return error

    def _answer(self, call: _Call) -> Any:
        """Return the answer to the last try, after redirects, its body unread."""
        while True:
            try:
                answer = self._redirected(call)
            except _FAILED as error:
                self._pause(call, error)
                continue
            if answer.status_code not in _RETRIED:
                return answer
            failure = status_error(answer.headers, answer.status_code, str(answer.request.url))
            wait = retry_after(answer.headers)
            if call.streamed and (wait or 0) < self._limit:
                return answer  # the library can begin the upload again
            answer.close()
            call.patience.pause(failure, seconds=wait)

    def _pause(self, call: _Call, error: Exception) -> None:
        """Wait before another try, if one may help; else raise."""
        failure = transport_failure(error, str(call.request.url), limit=self._limit)
        if call.streamed and failure.tries is None and not isinstance(error, Silence):
            raise error  # likewise
        if not (call.repeatable or failure.unsent):
            raise failure.error from None
        call.patience.pause(failure.error, tries=failure.tries)

    def _redirected(self, call: _Call) -> Any:
        request = call.request
        for _ in range(_REDIRECTS):
            seconds = call.patience.of_a_try() if call.repeatable else self._limit
            request.extensions = {
                **request.extensions,
                "timeout": dict.fromkeys(("connect", "read", "write", "pool"), seconds),
            }
            answer = bounded(partial(call.send, request), seconds, moved=call.moved)
            self._note(call, answer)
            if not answer.has_redirect_location:
                return answer
            following = self._following(call, answer)
            if following is None:
                return answer
            answer.close()
            request = following
        raise HubError(
            f"the hub {server_name(str(request.url))} redirects in a circle; check HF_ENDPOINT "
            "and the proxy"
        )

    def _following(self, call: _Call, answer: Any) -> Any:
        """Return the request that a redirect asks for; None if it is left to the library."""
        following, old = answer.next_request, str(answer.request.url)
        new = "" if following is None else str(following.url)
        schemes = urlsplit(old).scheme, urlsplit(new).scheme
        if schemes not in (("http", "http"), ("http", "https"), ("https", "https")):
            raise HubError(
                f"the hub {server_name(old)} redirects to an address that is not followed "
                f"({schemes[1][:10] or 'invalid'}:); check the network and HF_ENDPOINT"
            )
        if server_name(new) in (server_name(old), *self._servers):
            if call.key is not None:
                self._addresses[new] = call.key
            return following
        if call.key is None and urlsplit(new).hostname != urlsplit(old).hostname:
            raise HubError(
                f"the hub {server_name(old)} redirects to another server, {server_name(new)}, "
                "perhaps a network's login page; check the network and HF_ENDPOINT"
            )
        if call.key is not None:
            self._addresses[new] = call.key
        return following if call.follow else None

    def _note(self, call: _Call, answer: Any) -> None:
        """Remember what the headers say of a file."""
        key, address = call.key, str(answer.request.url)
        if key is None or answer.status_code >= 400 or server_name(address) not in self._servers:
            return
        commit = answer.headers.get("x-repo-commit")
        if commit and len(key.revision) == 40 and commit != key.revision:
            raise HubError(
                f"{key.path}: the hub {server_name(address)} sent it at another revision than "
                f"{key.revision[:12]}; try again"
            )
        own = answer.status_code == 200
        facts = FileFacts.of_headers(answer.headers, own=own)
        self._files[key] = self._files.get(key, FileFacts()).also(facts)

    def _checked(self, call: _Call, answer: Any) -> Any:
        """Return ``answer`` with a body that is checked while it is read."""
        page = answer.headers.get("content-type", "").lower().startswith("text/html")
        named = call.key is not None and call.key.path.lower().endswith((".html", ".htm"))
        if page and not named and answer.status_code < 300:
            answer.close()
            raise HubError(f"the hub {server_name(str(answer.request.url))}: {NOT_A_HUB}")
        if call.request.method == "HEAD":
            return answer
        facts = FileFacts()
        if call.whole and answer.status_code == 200 and "content-encoding" not in answer.headers:
            facts = self._files.get(call.key, facts)  # type: ignore[arg-type]
        return self._with_body(call, answer, facts, check=partial(self._check_content, call, facts))

    def _with_body(
        self, call: _Call, answer: Any, facts: FileFacts, *, check: Callable[[FileDigest], None]
    ) -> Any:
        resume = partial(self._resume, call)
        answer.stream = Body(
            answer, patience=call.patience, facts=facts, resume=resume, check=check
        )
        return answer

    def _resume(self, call: _Call, error: Exception, offset: int) -> tuple[Any, int]:
        """Return an answer with the rest of a content, and where that begins."""
        try:
            if call.request.method != "GET" or (call.key is not None and not call.whole):
                raise transport_failure(error, str(call.request.url), limit=self._limit).error
            self._pause(call, error)
            headers = dict(call.request.headers)
            if call.whole and offset:
                headers["range"] = f"bytes={offset}-"
            again = httpx.Request("GET", call.request.url, headers=headers)
            answer = self._answer(replace(call, request=again, follow=True))
        except HubError as final:
            raise self._remembered(final) from None
        start = answer.headers.get("content-range", "").removeprefix("bytes ").partition("-")[0]
        if answer.status_code == 200:
            return answer, 0
        if answer.status_code == 206 and start == str(offset):
            return answer, offset
        answer.close()
        raise HubError(
            f"the hub {server_name(str(call.request.url))} cut a download and does not continue "
            f"it: {status_reason(answer.status_code)}"
        )

    def _check_content(self, call: _Call, facts: FileFacts, digest: FileDigest) -> None:
        problem = facts.problem(digest)
        if call.key is None:
            return
        by_git = facts.sha256 is None and facts.git is not None
        if problem is None:
            if by_git and facts.size is not None:
                self._git_ids = True
            return
        made_up = by_git and digest.size == facts.size and not facts.git_certain
        if made_up and self._makes_up_ids(call):
            return
        raise HubError(
            f"{call.key.path}: the hub {self._hub} sent another content than it "
            f"lists ({problem}); nothing of it was kept; try again, and check the proxy"
        )

    def _makes_up_ids(self, call: _Call) -> bool:
        """Return whether the hub's ids are no digests, as those of some look-alikes.

        They are if one other small file of the repository agrees with its id.
        """
        if self._git_ids is not None:
            return not self._git_ids
        assert call.key is not None  # noqa: S101 - of a file
        others = [
            (facts, key)
            for key, facts in self._files.items()
            if replace(key, path="") == replace(call.key, path="")
            and key != call.key
            and facts.git is not None
            and facts.size is not None
            and facts.size <= _SMALL
        ]
        for facts, key in sorted(others, key=lambda each: (each[0].size, each[1].path))[:3]:
            digest = FileDigest(facts)
            digest.update(self._content(call, key))
            if facts.problem(digest) is None:
                self._git_ids = True
                return False
            self._git_ids = False
        return True

    def _content(self, call: _Call, key: FileKey) -> bytes:
        prefix = "" if key.kind == "model" else f"{key.kind}s/"
        path = f"{prefix}{key.id}/resolve/{quote(key.revision, safe='')}/{quote(key.path)}"
        known = server_name(str(call.request.url)) in self._servers
        headers = {
            name: value
            for name, value in call.request.headers.items()
            if name != "host" and (known or name != "authorization")
        }
        request = httpx.Request("GET", f"{self._endpoint}/{path}", headers=headers)
        patience = Patience(self._limit)
        again = replace(call, request=request, key=key, patience=patience, follow=True)
        answer = self._answer(again)
        nothing = FileFacts()
        return bytes(self._with_body(again, answer, nothing, check=lambda _: None).read())

    def _read(self, call: _Call, answer: Any) -> None:
        """Read an answer at once; what the hub's interface sends must be JSON."""
        answer.read()
        address = str(call.request.url)
        path = hub_path(address, self._endpoint)
        read = call.request.method == "GET" or "/paths-info/" in path
        if not read or not path.startswith("api/") or answer.status_code >= 300:
            return
        try:
            listed = listed_files(address, self._endpoint, answer.content)
        except HubError:
            raise
        except (ValueError, RecursionError):
            raise HubError(f"the hub {server_name(address)}: {NOT_A_HUB}") from None
        for key, facts in listed.items():
            self._files[key] = facts.also(self._files.get(key, FileFacts()))


def _split(request: Any) -> _RequestBody | None:
    """Let the body of a request be sent in pieces; return it."""
    if request.method in ("GET", "HEAD"):
        return None
    request.stream = _RequestBody(request.stream)
    return request.stream
