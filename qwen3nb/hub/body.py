"""The body of an answer: not too slow, resumed where it was cut, compared with its digest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from qwen3nb.hub.digests import FileDigest, FileFacts
from qwen3nb.hub.http_library import httpx
from qwen3nb.hub.patience import Patience, Silence

_LEAST = 64  # bytes per second; what comes slower counts as silence


class Body(httpx.SyncByteStream):
    """A stream of bytes that takes the place of an answer's own.

    Args:
        answer: the answer.
        patience: of the request.
        facts: what is known of the whole content.
        resume: asks for the rest from an offset, after an error; raises if that is of no use.
        check: called with the digest of the whole content; raises if it is another.
    """

    def __init__(
        self,
        answer: Any,
        *,
        patience: Patience,
        facts: FileFacts,
        resume: Callable[[Exception, int], tuple[Any, int]],
        check: Callable[[FileDigest], None],
    ) -> None:
        self._stream = answer.stream
        self._patience = patience
        self._digest = FileDigest(facts)
        self._resume, self._check = resume, check

    def __iter__(self) -> Iterator[bytes]:
        """Yield the content, across interruptions."""
        known = 0  # bytes at the start of the stream that came before
        while True:
            try:
                for data in self._new(known):
                    self._digest.update(data)
                    yield data
                break
            except (httpx.TransportError, Silence) as error:
                self._stream.close()
                answer, offset = self._resume(error, self._digest.size)
                self._stream, known = answer.stream, self._digest.size - offset
        self._check(self._digest)

    def close(self) -> None:
        """Close the stream of the answer."""
        self._stream.close()

    def _new(self, known: int) -> Iterator[bytes]:
        """Yield what follows the first ``known`` bytes.

        Raises:
            Silence: hardly anything new comes.
        """
        since, size = time.monotonic(), 0
        for data in self._stream:
            skipped = min(known, len(data))
            known -= skipped
            size += len(data) - skipped
            if size >= _LEAST * self._patience.limit / 2:
                self._patience.progress()
                since, size = time.monotonic(), 0
            elif not known and time.monotonic() - since > self._patience.of_a_try():
                raise Silence
            if len(data) > skipped:
                yield data[skipped:]
