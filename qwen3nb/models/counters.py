"""Counters that a model keeps while it works."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Stats:
    """Work done by an encoder so far."""

    texts: int = 0  # texts requested, duplicates included
    encoded: int = 0  # distinct texts that went through the model: cache misses
    cached: int = 0  # distinct texts read from the cache: cache hits
    damaged: int = 0  # stored vectors that failed their checksum and were computed again
    seconds: float = 0.0  # time spent in the model
    cut: int = 0  # encoded texts truncated to the maximum length
    unchecked: int = 0  # texts read from the cache that are long enough to have been truncated
    empty: int = 0  # empty or blank texts, duplicates included
    # texts with a special token of the tokenizer, such as ``<|endoftext|>``, which is read as that
    # token; duplicates included
    special: int = 0
