"""Counters that a model keeps while it works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Stats:
    """Work done by an encoder so far.

    Attributes:
        texts: texts requested, duplicates included.
        encoded: distinct texts that went through the model: cache misses.
        cached: distinct texts read from the cache: cache hits.
        damaged: stored vectors that failed their checksum and were computed again.
        seconds: time spent in the model.
        cut: encoded texts truncated to the maximum length.
        unchecked: texts read from the cache that are long enough to have been truncated.
        empty: empty or blank texts, duplicates included.
        special: texts with a special token of the tokenizer, such as ``<|endoftext|>``, which
            is read as that token; duplicates included.
    """

    texts: int = 0
    encoded: int = 0
    cached: int = 0
    damaged: int = 0
    seconds: float = 0.0
    cut: int = 0
    unchecked: int = 0
    empty: int = 0
    special: int = 0
