"""Plausible sizes of a Qwen3, to be checked before anything is built."""

from __future__ import annotations

__all__ = ["WHOLE_NUMBERS"]

# Settings that are whole numbers, and their ranges.
WHOLE_NUMBERS = {
    "vocab_size": (1, 10_000_000),
    "hidden_size": (1, 65_536),
    "intermediate_size": (1, 1_000_000),
    "num_hidden_layers": (1, 1_000),
    "num_attention_heads": (1, 1_024),
    "num_key_value_heads": (1, 1_024),
    "max_position_embeddings": (1, 1_000_000_000),
}
