"""Servers that send too much, too slowly or nonsense: one error, in bounded time and memory."""

import gzip
import socket
import threading
import tracemalloc
from contextlib import contextmanager

import pytest

from qwen3nb.models.generation import load_generator
from qwen3nb.models.kinds import api
from qwen3nb.models.kinds.api import ApiError
from qwen3nb.models.load import load_encoder
from qwen3nb.utils.secrets import REMOVED

pytestmark = pytest.mark.usefixtures("waits")
KEY = "a-key-of-mine-1234"
HEAD = b"HTTP/1.1 200 OK\r\n"
pauses = threading.Event().wait  # time.sleep is that of the fixture
VECTOR = b'{"data":[{"index":0,"embedding":[3,4,0]}]}'


@contextmanager
def answering(reply):
    """A model whose server answers each request by ``reply(connection)``, in bytes."""
    closing = threading.Event()

    def answer(connection):
        with connection:
            try:
                connection.recv(1 << 16)
                reply(connection)
                connection.shutdown(socket.SHUT_WR)
                closing.wait(5)  # a reset would reach the client before the answer
            except OSError:
                return  # the client has gone

    def serve():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=serve, daemon=True).start()
        yield f"api:http://127.0.0.1:{server.getsockname()[1]}/v1#m"
        closing.set()
        server.shutdown(socket.SHUT_RDWR)


def whole(body, *, status=b"200 OK", headers=b""):
    head = b"HTTP/1.1 " + status + b"\r\nContent-Length: %d\r\n" % len(body) + headers + b"\r\n"
    return lambda connection: connection.sendall(head + body)


def packed(body, name):
    return whole(body, headers=b"Content-Encoding: " + name + b"\r\n")


def endless(start, part, *, pause=0.0):
    def reply(connection):
        connection.sendall(start)
        while True:
            connection.sendall(part)
            pauses(pause)

    return reply


def waiting(header):
    return whole(b"", status=b"429 Too Many", headers=b"Retry-After: " + header + b"\r\n")


LONG = b'{"data":[{"index":0,"embedding":['
FAULTS = {
    "an endless answer": (endless(HEAD + b"\r\n" + LONG, b"1," * 50_000), "more than 8,38"),
    "objects": (whole(b'{"data":[' + b"{}," * 2_000_000 + b"1]}"), "expected JSON"),
    "a byte at a time": (endless(HEAD + b"\r\n", b" ", pause=0.02), "takes more than 0 s"),
    "a head at a time": (endless(HEAD + b"X: ", b"a", pause=0.02), "did not begin in 0.3 s"),
    "continue": (endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n", pause=0.01), "did not begin"),
    "a large head": (endless(HEAD + b"X: ", b"a" * 9_999), "no connection"),
    "a bomb": (packed(gzip.compress(b" " * (1 << 26)), b"gzip"), "more than 8,38"),
    "not packed": (packed(VECTOR, b"gzip"), "is not packed by 'gzip'"),
    "packed otherwise": (packed(VECTOR, b"zstd"), "by 'zstd'; expected gzip, or plain"),
    "a wrong length": (whole(VECTOR, headers=b"Content-Length: 5\r\n"), "no connection"),
    "no HTTP": (lambda connection: connection.sendall(b"SSH-2.0-x\r\n"), "no connection"),
    "a large number": (whole(LONG + b"9" * 900 + b",1]}]}"), "is not finite"),
    "infinity": (whole(LONG + b"1e999,Infinity]}]}"), "is not finite"),
    "a year": (waiting(b"31536000"), "it asks to wait 31,536,000 s"),
    "a long number": (waiting(b"9" * 5000), "it asks to wait 999,999,999 s"),
    "the past": (waiting(b"-5"), "status 429"),
    "no date": (waiting(b"Mon, 99999999999 Nov 2026 00:00:00 GMT"), "status 429"),
    "the key": (whole(b'{"error":"%s"}' % KEY.encode(), status=b"401 " + KEY.encode()), "a key"),
    "the key, again": (
        whole(b"Bearer " + KEY.encode()),
        f"got 'Bearer {REMOVED}".replace("[", "."),
    ),
    "the key of others": (whole(b'["Bearer abcdefgh12345678"]', status=b"500 X"), r"Bearer \[rem"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_hostile_answer_is_one_error_in_bounded_time_and_memory(name, monkeypatch):
    reply, message = FAULTS[name]
    monkeypatch.setenv("QWEN3NB_API_KEY", KEY)
    # Short only where that is what ends: a busy machine takes longer for any answer.
    monkeypatch.setattr(api, "_LONGEST_HEAD", 0.3 if "did not begin" in message else 20)
    monkeypatch.setattr(api, "_LONGEST_ANSWER", 0.3 if "at a time" in name else 20)
    tracemalloc.start()
    try:
        with answering(reply) as spec, pytest.raises(ValueError, match=message) as caught:
            load_encoder(spec, cache=False).encode(["a text"])
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 100 << 20
    assert isinstance(caught.value, ApiError) or "not finite" in message
    assert KEY not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [b"gzip", b"x-gzip", b"GZIP"])
def test_a_packed_answer_is_read(name):
    with answering(packed(gzip.compress(VECTOR), name)) as spec:
        assert load_encoder(spec, cache=False).dimension == 3


@pytest.mark.parametrize("reply", [lambda _: pauses(5), FAULTS["continue"][0]])
def test_a_silent_server_is_known_before_a_slow_model(reply, monkeypatch):
    """A model that writes may be silent for two minutes, but not the list of models."""
    monkeypatch.setattr(api, "_SECONDS_AT_FIRST", 0.2)
    monkeypatch.setattr(api, "_SECONDS_OF_HEAD", 0.1)
    problem = r"no answer for 0\.2 s|did not begin in 0\.3"
    with answering(reply) as spec, pytest.raises(ApiError, match=problem):
        load_generator(spec).generate("a prompt", max_tokens=1)


def test_a_request_that_took_too_long_is_not_held_against_the_next(monkeypatch):
    with answering(whole(VECTOR)) as spec:
        encoder = load_encoder(spec, cache=False)
        monkeypatch.setattr(api, "_LONGEST_HEAD", 0.0)
        encoder._client._deadline._cut()
        monkeypatch.setattr(api, "_LONGEST_HEAD", 20.0)
        assert encoder.encode(["a text"]).shape == (1, 3)
