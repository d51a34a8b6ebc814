"""Blank texts in sentence-transformers, which fails on a batch without a single token."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from qwen3nb.models.types import Vectors

_COMPANION = "a text"


def beside_blanks(encode: Callable[[Sequence[str]], Vectors], texts: Sequence[str]) -> Vectors:
    """Return ``encode(texts)``, with each blank text encoded beside one that has tokens.

    This is the vector that a blank text has in any larger batch; for most poolings it is zero
    if the tokenizer adds no token of its own. The infinite maximum over no token is none: zero.
    """
    blank = [index for index, text in enumerate(texts) if not text.strip()]
    filled = [index for index, text in enumerate(texts) if text.strip()]
    own = encode([texts[index] for index in filled] or [_COMPANION])
    vectors = np.empty((len(texts), own.shape[1]), dtype=np.float32)
    vectors[filled] = own[: len(filled)]
    for index in blank:
        vector = encode([texts[index], _COMPANION])[0]
        vectors[index] = vector if np.isfinite(vector).all() else 0
    return vectors
