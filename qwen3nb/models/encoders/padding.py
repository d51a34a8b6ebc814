"""Whether a text's vector depends on the padding of its batch, and what to do about it.

A batch of texts is padded to the longest. Most models ignore the padding; some do not, such as
FNet, whose Fourier transform has no mask, or ConvBERT, whose convolutions read beyond the last
token. Their vectors would depend on the texts next to them.

Such a model is found when it is loaded. Its texts are encoded in batches of equal length, and its
identity says so. If its vectors change even then, as with random attention, it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from qwen3nb.models.types import SpecError, Vectors

UNPADDED = {"padding": "none"}  # a setting of encoders whose texts are not padded
# The largest change of a vector that rounding explains, as a share of its length.
TOLERANCE = {"float32": 1e-5, "int8": 1e-5, "float16": 1e-2, "bfloat16": 5e-2}
# From short to long: padding is a part of the row for one text, and most of it for another.
_REPEATS = (1, 6, 16)
LONGEST = 40  # tokens of a text that is tried


def probe_texts(words: str = "a text") -> list[str]:
    """Return texts of three lengths."""
    return [" ".join([words] * count) for count in _REPEATS]


def depends_on_padding(
    encode: Callable[[Sequence[str]], Vectors], *, words: str = "a text", dtype: str = "float32"
) -> bool:
    """Return whether a text has another vector in a padded batch than alone.

    Args:
        encode: from texts to vectors (N, D), in one batch.
        words: a text that has tokens.
        dtype: dtype that the model runs in.
    """
    texts = probe_texts(words)
    *shorter_texts, _ = texts
    vectors_alone = np.concatenate([encode([text]) for text in shorter_texts])
    vectors_padded = encode(texts)[: len(shorter_texts)]
    return _largest_change(vectors_padded, vectors_alone) > TOLERANCE[dtype]


def check_repeatable(
    encode: Callable[[Sequence[str]], Vectors],
    label: str,
    *,
    words: str = "a text",
    dtype: str = "float32",
) -> None:
    """Refuse a model whose vectors change without padding, too; for arguments see above.

    Raises:
        SpecError: a text has another vector in a batch of texts of its length than alone.
    """
    # The same text alone and three times: nothing is padded, so nothing should change.
    text = probe_texts(words)[1]
    vector_alone = encode([text])
    vectors_of_batch = encode([text, text, text])
    expected = np.repeat(vector_alone, 3, axis=0)
    change = _largest_change(vectors_of_batch, expected)
    if change > TOLERANCE[dtype]:
        raise SpecError(
            f"{label}: the vector of a text changes with its batch by {change:.1%} of its length, "
            "even without padding, so no score can be repeated. Use another model"
        )


def _largest_change(vectors: Vectors, expected: Vectors) -> float:
    """Return the largest distance of rows (N, D) from those expected, as a share of their length.

    Not a number counts as infinite.
    """
    distances = np.linalg.norm(vectors - expected, axis=1)
    lengths = np.linalg.norm(expected, axis=1)
    shares = distances / np.maximum(lengths, np.finfo(np.float32).tiny)
    return float(np.nan_to_num(shares, nan=np.inf).max())
