"""Encode any number of texts block by block, for a corpus whose vectors are not to be held."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.types import EncoderError, Vectors
from qwen3nb.utils.progress import tqdm

__all__ = ["block_size", "encode_blocks"]

_BYTES = 32 << 20  # of the vectors of a block: large enough to batch texts of similar length
_MOST = 32_768  # texts of a block, which are in memory too


def block_size(dimension: int) -> int:
    """Return the number of texts of a block."""
    return max(1, min(_MOST, _BYTES // (4 * max(1, dimension))))


def encode_blocks(
    encoder: Encoder,
    texts: Iterable[str],
    *,
    size: int | None = None,
    total: int | None = None,
    first: int = 0,
    **options: Any,
) -> Iterator[Vectors]:
    """Yield the vectors of ``texts``, in order, in blocks (n, D) of float32.

    The vectors depend neither on ``size`` nor on the texts of the same block.

    Args:
        encoder: any encoder.
        texts: any number of strings.
        size: texts per block; None for 32 MiB of vectors.
        total: number of texts, if known; if it takes several blocks, a bar shows them.
        first: position of the first text in a larger input, for errors.
        options: options of `Encoder.encode`, such as ``role``.

    Raises:
        EncoderError: a text that cannot be encoded; the message says where its block starts.
    """
    size = size or block_size(encoder.dimension)
    rows, source = 0, iter(texts)
    shown = encoder.show_progress and total is not None and total > size
    with tqdm(
        total=total, desc=f"{encoder.label}: corpus", unit=" texts", leave=False, disable=not shown
    ) as bar:
        while part := list(itertools.islice(source, size)):
            yield _encoded(encoder, part, first + rows, options)
            rows += len(part)
            bar.update(len(part))


def _encoded(encoder: Encoder, part: list[str], start: int, options: dict[str, Any]) -> Vectors:
    try:
        vectors: Vectors = encoder.encode(part, **options)
    except EncoderError as error:
        if not start:
            raise
        raise EncoderError(f"counting from text {start}: {error}") from None
    return vectors
