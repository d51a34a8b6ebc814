"""A model behind an OpenAI-compatible endpoint, ``api:URL#MODEL`` or ``api:URL#MODEL@VERSION``.

vLLM, text-embeddings-inference, llama.cpp's server and OpenAI speak it: a request has ``model``,
``input`` (a list of texts) and ``encoding_format``; an answer has ``data``, each with ``index``
and ``embedding`` (numbers, or little-endian float32 in base64), and ``usage``, in tokens.

What runs behind an address cannot be verified. Without a version it is therefore another model in
every run: neither its vectors nor its records are used again. With one, both are; change it when
the server's model or its options change.
"""

from __future__ import annotations

import base64
import json
import math
import os
import time
import uuid
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple, TypedDict
from urllib.parse import SplitResult, quote, unquote, urlsplit

import numpy as np

from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds.source import Kind, Source, safe_label
from qwen3nb.models.options import ModelOptions
from qwen3nb.models.types import EncoderError, SpecError, Vectors
from qwen3nb.utils.bounded_answers import AnswerError, Deadline, bounded_content, seconds_of
from qwen3nb.utils.secrets import API_HOSTS, API_KEY, gets_key, host_of, known_secrets

_OPENAI = "OPENAI_API_KEY"  # sent to OpenAI only
_SPEC_FORM = "api:URL#MODEL or api:URL#MODEL@VERSION, such as api:http://localhost:8000/v1#my-model"
_TIMEOUT_VARIABLE = "QWEN3NB_API_TIMEOUT"
# Seconds of silence: of a server that has never answered, and of one that has. A model may compute
# or write for more than a minute before the first byte of its answer.
_SECONDS_AT_FIRST = 45.0
_SECONDS = 120.0
_MOST_TRIES = 5
_MOST_TOKENS = 10**9  # of a request
_LONGEST_WAIT = 120.0  # that a server may ask for, in seconds
_SECONDS_TO_CONNECT = 10.0
_SECONDS_OF_HEAD = 10.0  # beside those of silence, if the head of an answer comes byte by byte
_LONGEST_HEAD = 3600.0  # seconds until an answer begins, at most
_LONGEST_ANSWER = 60.0  # seconds from its head until it is complete
_LARGEST_REFUSAL = 1 << 20  # bytes that are read of an error
_FIRST_ANSWER = 8 << 20  # bytes of an answer with one vector, of unknown width
_BYTES_PER_NUMBER, _BYTES_PER_VECTOR = 40, 1000  # of JSON, at most
_VALUES_BESIDE, _VALUES_PER_VECTOR = 1000, 10  # lists and objects in an answer, at most
_MOST_DIGITS = 300  # of a number that Python's floats hold
_RETRIED_STATUSES = (408, 429, 500, 502, 503, 504)
_REFUSED_STATUSES = (400, 413, 422)  # too many texts, too long a text, or an empty one


class ApiError(SpecError, EncoderError):
    """A server that cannot be used, or an answer that must not be; never holds a key."""


class RefusedError(ApiError):
    """A server does not take these texts: too many, too long, or empty."""


class Endpoint(NamedTuple):
    """What a spec names."""

    url: str  # without a slash at its end; ``/embeddings`` follows
    model: str  # as the server calls it
    version: str  # stated by the user; empty for none

    @classmethod
    def parse(cls, spec: str) -> Endpoint:
        """Read a spec.

        Raises:
            SpecError: it is not of the form, or its address may hold a secret, which is not
                repeated.
        """
        address, _, model_part = spec.removeprefix("api:").partition("#")
        if "?" in address or "@" in address:
            raise SpecError(
                "api: an address with a user, a password or a query may hold a secret, and specs "
                f"are in records and on pages; give the key in {API_KEY}, and the plain address"
            )
        model, version = unquote(model_part), ""
        # Of the name as it stands: %40 is an @ of the model, not one before a version.
        if "@" in model_part:
            model, _, version = model.rpartition("@")
        parts = _http_address(address)  # in lower case
        if parts is None or not model.strip():
            raise SpecError(f"expected {_SPEC_FORM}; got {spec!r:.200}")
        path = urlsplit(address).path.rstrip("/")  # in its own case
        url = f"{parts.scheme}://{parts.netloc}{path}"
        if parts.path:
            url = url.removesuffix("/embeddings")  # which each request adds
        else:  # http://localhost:8000 alone: where such servers usually are
            url = f"{url}/v1"
        return cls(url, model, version)

    @property
    def spec(self) -> str:
        """The spec, the same for all spellings of an address."""
        url = self.url
        if not urlsplit(url).path:  # without a slash, the address would get /v1
            url = f"{url}/"
        model = self.model
        if self.version or "@" in model:
            model = f"{model}@{self.version}"
        return f"api:{url}#{quote(model, safe='/:@')}"


def _http_address(address: str) -> SplitResult | None:
    """Return the parts of an address in lower case; None unless it is one of a web server."""
    try:
        parts = urlsplit(address.lower())
        has_port_zero = parts.port == 0  # a ValueError if the port is no number, or too large
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or has_port_zero:
        return None
    return parts


@dataclass(frozen=True)
class Answer:
    """What a server sends."""

    status: int
    headers: Mapping[str, str]
    content: bytes

    def json(self) -> Any:
        """Return the content as JSON; raise ValueError or RecursionError if it is none."""
        return json.loads(self.content, parse_int=_whole)

    def check_values(self, *, most: int) -> None:
        """Raise ValueError for more than ``most`` lists and objects, which take much memory."""
        if self.content.count(b"[") + self.content.count(b"{") > most:
            raise ValueError

    @property
    def excerpt(self) -> str:
        """The first words, as one line without secrets."""
        return _clean(self.content[:2000].decode("utf-8", errors="replace"))[:80]


class ApiClient:
    """Sends requests, and the key of its host, to one address of a server alone.

    Answers are bounded in size and time. A server that is busy or silent is asked again. It may be
    silent for `QWEN3NB_API_TIMEOUT` seconds: by default 45 at first, and 120 once it has answered.

    Attributes:
        url: the address.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        action: str,
        *,
        if_silent: str = "try a smaller batch_size",
    ) -> None:
        """Open a client.

        Args:
            endpoint: the server and its model.
            action: such as ``embeddings``.
            if_silent: what to try if no answer comes.

        Raises:
            ApiError: ``QWEN3NB_API_TIMEOUT`` is not a positive number.
        """
        from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

        self.endpoint = endpoint
        self.action = action
        self.url = f"{endpoint.url}/{action}"
        self._tries = _MOST_TRIES  # for a server that is not there, or silent
        self._seconds = _seconds_of_silence(_SECONDS)
        self._if_silent = f"{if_silent}, or set {_TIMEOUT_VARIABLE} to more seconds"
        self.headers: dict[str, str] = {"Accept-Encoding": "gzip"}
        self._deadline = Deadline()
        key = _key(endpoint)
        if key:
            self.headers["Authorization"] = f"Bearer {key}"
        host = urlsplit(endpoint.url).hostname
        is_on_this_machine = host in ("localhost", "127.0.0.1", "::1")
        self._http = httpx.Client(
            headers=self.headers,
            follow_redirects=False,  # texts and key go to no other host
            limits=httpx.Limits(max_connections=1),
            trust_env=not is_on_this_machine,  # a proxy of the environment is for other machines
        )
        weakref.finalize(self, self._http.close)

    @contextmanager
    def first_request(self) -> Iterator[None]:
        """Ask only once in a block, and wait less: a server that is not there is soon known."""
        self._tries = 1
        self._seconds = _seconds_of_silence(_SECONDS_AT_FIRST)
        try:
            yield
        finally:
            self._tries = _MOST_TRIES
            self._seconds = _seconds_of_silence(_SECONDS)

    def greet(self) -> None:
        """Ask for the names of the models, which takes no computing; any answer will do.

        Raises ApiError if the server is silent; other errors are left to the next request.
        """
        from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

        with self.first_request():
            try:
                self._send("GET", f"{self.endpoint.url}/models")
            except httpx.TimeoutException:
                raise self._silence() from None
            except (httpx.TransportError, ApiError):
                if self._deadline.is_over:
                    raise self._late_head() from None

    def _silence(self) -> ApiError:
        return ApiError(f"{self.url}: no answer for {self._seconds:g} s; {self._if_silent}")

    def _late_head(self) -> ApiError:
        seconds = f"{self._longest_head:g} s"
        return ApiError(f"{self.url}: the answer did not begin in {seconds}; {self._if_silent}")

    @property
    def _longest_head(self) -> float:
        """Seconds until an answer begins, also if its head comes byte by byte."""
        return min(_LONGEST_HEAD, self._seconds + _SECONDS_OF_HEAD)

    def post(self, body: Mapping[str, Any], *, about: str, most_bytes: int) -> Answer:
        """Return the answer to a request.

        Args:
            body: the request.
            about: what is sent, for errors, such as ``3 texts are``.
            most_bytes: the largest answer that is read.

        Raises:
            RefusedError: it does not take these texts.
            ApiError: it cannot be used; says why and what to do.
        """
        from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

        for attempt in range(1, _MOST_TRIES + 1):
            wait = 0.5 * 2**attempt  # seconds until the next attempt, unless the server says
            most_attempts = self._tries
            try:
                answer = self._send("POST", self.url, body, most_bytes=most_bytes)
            except httpx.TimeoutException:
                failure = self._silence()
            except httpx.TransportError as error:
                if self._deadline.is_over:
                    raise self._late_head() from None
                reason = f"no connection ({_clean(str(error))}); is the server running?"
                failure = ApiError(f"{self.url}: {reason}")
            else:
                if answer.status == 200:
                    return answer
                most_attempts = _MOST_TRIES  # the server is there, though busy
                reason = self._refusal(answer, about)
                wait = _retry_after(answer.headers.get("retry-after", ""), wait)
                is_too_long = wait > _LONGEST_WAIT
                if is_too_long:
                    reason += f"; it asks to wait {wait:,.0f} s"
                failure = ApiError(f"{self.url}: {reason}")
                if is_too_long:
                    break
            if attempt >= most_attempts:
                break
            time.sleep(wait)
        raise failure

    def _send(
        self,
        method: str,
        url: str,
        body: Mapping[str, Any] | None = None,
        *,
        most_bytes: int = _FIRST_ANSWER,
    ) -> Answer:
        """Return the answer to one attempt.

        Raises:
            ApiError: it is too large, too slow, or packed in an unknown way.
        """
        from huggingface_hub.utils import httpx  # type: ignore[attr-defined]

        trace = {"trace": self._deadline.trace}
        timeout = httpx.Timeout(self._seconds, connect=_SECONDS_TO_CONNECT)
        with ExitStack() as stack:
            with self._deadline.of(self._longest_head):
                stream = self._http.stream(
                    method, url, json=body, extensions=trace, timeout=timeout
                )
                response = stack.enter_context(stream)
            is_refusal = response.status_code != 200
            if is_refusal:
                most_bytes = _LARGEST_REFUSAL
            try:
                content = bounded_content(
                    response, most_bytes=most_bytes, seconds=_LONGEST_ANSWER, cut=is_refusal
                )
            except AnswerError as error:
                raise ApiError(
                    f"{url}: {_clean(str(error))}; is this an OpenAI-compatible server?"
                ) from None
            return Answer(response.status_code, response.headers, content)

    def _refusal(self, answer: Answer, about: str) -> str:
        """Return why a server that may be asked again has not answered.

        Raises:
            RefusedError: it does not take these texts.
            ApiError: it will not answer.
        """
        text = _message(answer)
        reason = f"status {answer.status}"
        if text:
            reason += f", {text!r}"
        # Too many or too long texts, such as 413: fewer at once may do.
        if answer.status in _REFUSED_STATUSES or "too large" in text:
            raise RefusedError(f"{self.url}: {about} refused ({reason})")
        if answer.status not in _RETRIED_STATUSES:  # unlike 429 or 503, it will not pass
            raise ApiError(f"{self.url}: {self._lasting_reason(answer.status, reason)}")
        return reason

    def _lasting_reason(self, status: int, reason: str) -> str:
        """Return why a request that will not succeed failed, and what to do."""
        url = self.endpoint.url
        needs_key = status in (401, 403)
        if needs_key and os.environ.get(API_KEY) and not gets_key(url):
            return (
                f"it needs a key (status {status}), and {API_KEY} is for hosts that stand on the "
                f"command line or in {API_HOSTS}; set {API_HOSTS}={host_of(url)}"
            )
        if needs_key:
            return (
                f"it needs a key (status {status}): set {API_KEY}. {_OPENAI} is sent to OpenAI only"
                f", and by a notebook only with `--pass-env {_OPENAI}`"
            )
        if 300 <= status < 400:
            return f"it redirects (status {status}), which is not followed; give the last address"
        if status == 404:
            return self._not_found(reason)
        return reason

    def _not_found(self, reason: str) -> str:
        """Return why a server does not find an address: it has other models, or none there."""
        try:
            rows = self._send("GET", f"{self.endpoint.url}/models").json()["data"]
            names = ", ".join(_clean(str(row["id"])) for row in rows[:20])
        except Exception:  # noqa: BLE001 - a list that not every server has; the 404 is the error
            return (
                f"{reason}; expected the address that has /{self.action}: http://…/v1, or http://…/"
            )
        return f"it has no model {self.endpoint.model!r}; it has {names} ({reason})"


class _Body(TypedDict):
    """A request for vectors."""

    model: str
    input: list[str]
    encoding_format: str


class ApiEncoder(Encoder):
    """Vectors as a server sends them, for texts with our prompts.

    `stats.tokens` counts the tokens that the server states in ``usage``. A server that refuses a
    batch gets smaller ones. A blank text that it refuses has the vector zero.
    """

    device = "server"

    def __init__(self, source: Source, options: ModelOptions) -> None:
        """Ask the server for a first vector.

        Raises:
            SpecError: options that are for models that run here.
            ApiError: the server cannot be used.
        """
        _refuse_options(source, options)
        self.endpoint = Endpoint.parse(source.spec)
        self._client = ApiClient(self.endpoint, "embeddings")
        self._tokens = 0  # that the server has stated since the last batch
        first_vectors = self._first_vector()  # (1, D)
        self.width = first_vectors.shape[1]
        length = float(np.linalg.norm(first_vectors))
        self.normalize = abs(length - 1) < 1e-3  # as the server does, unless the user decides
        if options.normalize is not None:
            self.normalize = options.normalize
        # Only a user who leaves lengths as they are wants them to count.
        similarity = "dot" if options.normalize is False else "cosine"
        if not self.endpoint.version:  # the model behind it may change
            options = replace(options, cache=False)
        settings = {
            "fingerprint": source.revision,
            "dimension": self.width,
            "normalize": self.normalize,
            "similarity": similarity,
        }
        super().__init__(source, options, settings=settings)

    def _first_vector(self) -> Vectors:
        """Return the vector (1, D) of a text, without trying again if the server is not there."""
        self._format = "base64"
        with self._client.first_request():
            try:
                return self._request(["a text"])
            except RefusedError:  # as some servers do that send numbers only
                self._format = "float"
                return self._request(["a text"])

    def _embed(self, texts: Sequence[str]) -> Vectors:
        vectors = np.zeros((len(texts), self.width), dtype=np.float32)
        rows_left = [row for row, text in enumerate(texts) if text.strip()]
        size = self.batch_size
        while rows_left:
            batch = rows_left[:size]
            try:
                vectors[batch] = self._request([texts[row] for row in batch])
            except RefusedError as error:
                if len(batch) == 1:  # it is not their number
                    raise _too_long(error, texts[batch[0]]) from None
                size = len(batch) // 2  # for this batch again, and all that follow
            else:
                rows_left = rows_left[size:]
        # Blank texts go alone, because servers may refuse a batch that has one.
        for row, text in enumerate(texts):
            if not text.strip():
                vectors[row] = self._blank_vector(text)
        self.stats.tokens += self._tokens
        self._tokens = 0
        if self.normalize:
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors /= np.where(lengths > 0, lengths, 1)
        return vectors

    def _blank_vector(self, text: str) -> Vectors:
        """Return the vector (D,) of a blank text; zero, as without a token, if it is refused."""
        try:
            (vector,) = self._request([text])
        except RefusedError:
            return np.zeros(self.width, dtype=np.float32)
        return vector

    def _request(self, texts: list[str]) -> Vectors:
        """Return the vectors (N, D) of a batch of texts, as sent.

        Raises:
            ApiError: see `ApiClient.post`; or the answer is not a vector for each text, all of one
                width.
        """
        body: _Body = {
            "model": self.endpoint.model,
            "input": texts,
            "encoding_format": self._format,
        }
        # Not set yet for the first answer, which defines it.
        first_width: int | None = getattr(self, "width", None)
        vector_bytes = (first_width or 0) * _BYTES_PER_NUMBER + _BYTES_PER_VECTOR
        most_bytes = _FIRST_ANSWER + len(texts) * vector_bytes
        answer = self._client.post(body, about=f"{len(texts)} texts are", most_bytes=most_bytes)
        try:
            answer.check_values(most=_VALUES_BESIDE + _VALUES_PER_VECTOR * len(texts))
            content = answer.json()
            # In any order, each with the position of its text as ``index``.
            rows = sorted(content["data"], key=lambda row: row["index"])
            indices = [row["index"] for row in rows]
            vectors = np.array([_vector(row["embedding"]) for row in rows], dtype=np.float32)
            self._tokens += _stated_tokens(content.get("usage"))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ApiError(
                f"{self._client.url}: expected JSON with data, each with index and embedding "
                f"(numbers or base64), got {answer.excerpt!r}; is this an OpenAI-compatible server?"
            ) from None
        width = first_width or vectors.shape[-1]
        has_all_indices = indices == list(range(len(texts)))
        has_shape = vectors.shape == (len(texts), width) and width > 0
        if not (has_all_indices and has_shape):
            raise ApiError(
                f"{self._client.url}: expected indices 0 to {len(texts) - 1} and vectors "
                f"({len(texts)}, {width}); got indices {indices!s:.60} and {vectors.shape}"
            )
        return vectors


def _refuse_options(source: Source, options: ModelOptions) -> None:
    """Refuse options that a server decides about."""
    names = ("pooling", "max_length", "prefix", "append_eos")
    refused = [name for name in names if getattr(options, name)]
    if refused:
        raise SpecError(
            f"{source.label}: {' and '.join(refused)} cannot be set for a model behind a server, "
            "which decides about them; set prompts here, and the others where it is started"
        )


def _seconds_of_silence(default: float) -> float:
    """Return the seconds for which a server may be silent."""
    try:
        return seconds_of(_TIMEOUT_VARIABLE, default=default)
    except ValueError as error:
        raise ApiError(str(error)) from None


def _key(endpoint: Endpoint) -> str:
    """Return the key for a server; empty for none."""
    key = ""
    if gets_key(endpoint.url):
        key = os.environ.get(API_KEY, "")
    if not key and endpoint.url.startswith("https://api.openai.com/"):
        key = os.environ.get(_OPENAI, "")
    return key


def _too_long(error: RefusedError, text: str) -> RefusedError:
    """Return the error about a text that is refused alone."""
    return RefusedError(
        f"{error}. The text has {len(text):,} characters: {text!r:.60}. If it is too long, start "
        "the server so that it cuts or takes such texts: TEI --auto-truncate; vLLM "
        "--max-model-len; llama-server -c, -b and -ub, up to what the model was trained on"
    )


def _whole(digits: str) -> int | float:
    """Return a whole number of JSON; infinity for one that no float holds."""
    if len(digits) <= _MOST_DIGITS:
        return int(digits)
    return math.inf


def _stated_tokens(usage: object) -> int:
    """Return the tokens that a server states for a request; 0 for what no number of tokens can be.

    It is no part of the vectors, so a wrong one must not lose them.
    """
    if not isinstance(usage, dict):
        return 0
    for name in ("total_tokens", "prompt_tokens"):
        tokens = usage.get(name)
        # JSON's true would count as 1, as Python's bool is an int.
        if isinstance(tokens, bool) or not isinstance(tokens, int | float):
            continue
        if 0 < tokens <= _MOST_TOKENS:  # neither negative, infinite nor absurd
            return int(tokens)
    return 0


def _vector(embedding: Any) -> Any:
    """Return the numbers of a vector, sent as such or as float32 in base64."""
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), dtype="<f4")
    return embedding


def _message(answer: Answer) -> str:
    """Return what a server says of an error, in one line; empty for nothing that can be read."""
    try:
        content = answer.json()
    except (ValueError, RecursionError):
        return ""
    # Such as {"error": {"message": "too long"}}, {"message": "too long"} or {"detail": "too long"}:
    # each name leads one level deeper.
    for name in ("error", "message", "detail"):
        if isinstance(content, dict) and name in content:
            content = content[name]
    return _clean(str(content))


def _clean(text: str) -> str:
    """Return what a server or library wrote as one line without secrets."""
    line = " ".join(known_secrets().without(text).split())
    printable = [character for character in line if character.isprintable()]
    return "".join(printable[:200])


def _retry_after(header: str, wait: float) -> float:
    """Return the seconds that a header asks to wait, as a number or a date; else ``wait``."""
    if header.isascii() and header.isdecimal():
        return float(header[:9])
    try:
        return max(0.0, (parsedate_to_datetime(header) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError, OverflowError):
        return wait


class Api(Kind):
    """A model behind an OpenAI-compatible endpoint."""

    name = "api"
    library = ""
    of_others = True

    def named(self, spec: str) -> Source | None:
        """Return the source of an endpoint, known by its version, or by the run without one."""
        if not spec.startswith("api:") or "+" in spec:
            return None
        endpoint = Endpoint.parse(spec)
        label = f"api-{endpoint.model}"
        version = f"none, run {uuid.uuid4().hex}"  # another one in every run: nothing is shared
        if endpoint.version:
            label += f"-{endpoint.version}"
            version = endpoint.version
        return Source(endpoint.spec, self, safe_label(label), revision=version)

    def load(self, source: Source, options: ModelOptions) -> Any:
        """Return the encoder, which has asked the server once."""
        return ApiEncoder(source, options)


API = Api()
