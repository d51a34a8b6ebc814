"""What a model counts while it works."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Stats"]


@dataclass
class Stats:
    """What an encoder did so far.

    Attributes:
        texts: texts asked for, duplicates included.
        encoded: distinct texts that went through the model: the cache's misses.
        cached: distinct texts that came from the cache: its hits.
        damaged: stored vectors that failed their checksum and were computed again.
        seconds: time spent in the model.
        cut: texts longer than the maximum length, which were cut.
        empty: texts without a token of their own.
    """

    texts: int = 0
    encoded: int = 0
    cached: int = 0
    damaged: int = 0
    seconds: float = 0.0
    cut: int = 0
    empty: int = 0
