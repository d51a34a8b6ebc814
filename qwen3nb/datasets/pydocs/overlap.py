"""Recognise texts that repeat a benchmark, so that no model is trained on what measures it.

Texts are compared as words: case, white space and punctuation do not count. A text repeats
the benchmark if it holds eight consecutive words of a benchmark text, or all words of one
that has fewer than eight.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["RUN", "BenchmarkTexts"]

RUN = 8  # consecutive words that two texts may not share
_HEAD = 2  # words by which short benchmark texts are looked up
_WORD = re.compile(r"[^\W_]+")


class BenchmarkTexts:
    """The texts of a benchmark, to compare others with."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Index ``texts``; those without any word are left out."""
        split = {words for text in texts if (words := _words(text))}
        self._runs = {run for words in split for run in _runs(words, RUN)}
        self._short: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
        for words in split:
            if len(words) < RUN:
                self._short.setdefault(words[:_HEAD], set()).add(words)

    def repeated(self, text: str) -> str:
        """Return the words of the benchmark that ``text`` repeats, or an empty string."""
        words = _words(text)
        copied = next((run for run in _runs(words, RUN) if run in self._runs), ())
        return " ".join(copied or self._short_text(words))

    def _short_text(self, words: tuple[str, ...]) -> tuple[str, ...]:
        for size in range(1, _HEAD + 1):
            for start, head in enumerate(_runs(words, size)):
                for short in self._short.get(head, ()):
                    if words[start : start + len(short)] == short:
                        return short
        return ()


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(text.casefold()))


def _runs(words: Sequence[str], size: int) -> Iterable[tuple[str, ...]]:
    """All runs of ``size`` consecutive words."""
    return zip(*(words[start:] for start in range(size)), strict=False)
