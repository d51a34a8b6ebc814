"""Answers of web servers, bounded in unpacked bytes and in time.

A server may send without end, one byte a second, or a few bytes that unpack to gibibytes. The time
limits of an HTTP client are those of one read from its socket, and it unpacks all that it reads.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

_LEAST_RATE = 100_000  # bytes a second that a large answer must have
_AT_ONCE = 1 << 20  # bytes that are unpacked at once
_BY_ZLIB = ("gzip", "x-gzip", "deflate")
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS  # zlib sees from the first bytes which it is


def seconds_of(variable: str, *, default: float) -> float:
    """Return the seconds that an environment variable states, such as those of silence.

    Raises:
        ValueError: they are not a positive number.
    """
    text = os.environ.get(variable, "")
    if not text:
        return default
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    is_valid = 0 < seconds < math.inf
    if not is_valid:
        raise ValueError(f"{variable}: expected seconds, such as 60; got {text[:40]!r}")
    return seconds


class Response(Protocol):
    """A response of httpx, or of another library with its interface."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers by name, in any case."""
        ...

    def iter_raw(self) -> Iterator[bytes]:
        """Yield the parts of the content as they come, packed."""
        ...


class AnswerError(ValueError):
    """An answer that is too large, too slow, or packed in a way that was not requested."""


def bounded_content(
    response: Response, *, most_bytes: int, seconds: float, cut: bool = False
) -> bytes:
    """Read the content of a response, unpacked.

    Args:
        response: a stream, of which nothing was read.
        most_bytes: the largest content.
        seconds: in which it is complete, beside the time of its bytes at 100 kB/s.
        cut: return the beginning of a larger content; else it is an error.

    Raises:
        AnswerError: larger or slower, or not packed by gzip or zlib as it says.
    """
    content = bytearray()
    for part in _unpacked(response, _parts_in_time(response, seconds)):
        content += part
        if len(content) > most_bytes:
            if cut:
                break
            raise AnswerError(f"the answer has more than {most_bytes:,} bytes")
    return bytes(content[:most_bytes])


def _parts_in_time(response: Response, seconds: float) -> Iterator[bytes]:
    """Yield what a response sends, until it takes too long."""
    started = time.monotonic()
    received = 0  # bytes
    for part in response.iter_raw():
        received += len(part)
        limit = seconds + received / _LEAST_RATE
        if time.monotonic() - started > limit:
            raise AnswerError(f"the answer takes more than {limit:,.0f} s")
        yield part


def _unpacked(response: Response, parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the content of parts, at most a mebibyte at once."""
    packing = response.headers.get("content-encoding", "").strip().lower()
    if packing in ("", "identity"):
        yield from parts
        return
    if packing not in _BY_ZLIB:
        raise AnswerError(f"the answer is packed by {packing!r:.40}; expected gzip, or plain bytes")
    unpacker = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        for part in parts:
            rest = part
            while rest:
                yield unpacker.decompress(rest, _AT_ONCE)
                rest = unpacker.unconsumed_tail
        yield unpacker.flush()
    except zlib.error:
        raise AnswerError(f"the answer is not packed by {packing!r}, as it says") from None


class Deadline:
    """Ends a request whose answer does not begin, also if its head comes byte by byte.

    The client must have one connection. It gets `trace` as an extension of each request.

    Attributes:
        is_over: whether the last request was ended.
    """

    def __init__(self) -> None:
        self.is_over = False
        self._stream: Any = None  # of the connection, which later requests use again

    def trace(self, event: str, info: dict[str, Any]) -> None:
        """Note the connection; called by the client at each of its steps."""
        connects = ("connection.connect_tcp.complete", "connection.start_tls.complete")
        if event.endswith(connects):
            self._stream = info["return_value"]

    @contextmanager
    def of(self, seconds: float) -> Iterator[None]:
        """Cut the connection if the block takes longer than ``seconds``."""
        self.is_over = False
        timer = threading.Timer(seconds, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _cut(self) -> None:
        self.is_over = True
        connection = self._stream and self._stream.get_extra_info("socket")
        with suppress(OSError, AttributeError):  # closed by now
            connection.shutdown(socket.SHUT_RDWR)
