"""Vectors that are read several times, in memory or in a file without a name.

Above a quarter of the available memory, they are stored in a file next to the embedding cache. The
file has no name, so a crash leaves nothing behind, and it is read, not mapped, so it does not count
as memory of the process.

Shapes: N vectors, D dimensions.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Unpack

import numpy as np
from numpy.typing import NDArray

from qwen3nb import paths
from qwen3nb.utils.hardware import available_memory
from qwen3nb.vectors.block_file import Floats, fill, write_all
from qwen3nb.vectors.encode_file import EncodingOptions, TextEncoder, encode_blocks

BLOCK = 65_536  # vectors added to a FAISS index at once


class VectorStore:
    """Vectors of ``shape`` (N, D), read by blocks or rows from memory or disk."""

    def __init__(self, read: Callable[[int, int], Floats], shape: tuple[int, int]) -> None:
        """Wrap ``read`` (first row, number of rows)."""
        self._read = read
        self.shape = shape

    @classmethod
    def of(cls, vectors: Floats | VectorStore) -> VectorStore:
        """Return a store of an array (N, D), or the store itself."""
        if isinstance(vectors, VectorStore):
            return vectors
        if vectors.ndim != 2:
            raise ValueError(f"expected vectors (N, D); got {vectors.shape}")
        array = np.ascontiguousarray(vectors, dtype=np.float32)
        return cls(lambda start, count: array[start : start + count], array.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self, size: int = BLOCK) -> Iterator[Floats]:
        """Yield all vectors, in blocks (size, D); the last may be smaller."""
        for start in range(0, len(self), size):
            yield self._read(start, min(size, len(self) - start))

    def everything(self) -> Floats:
        """Return all vectors (N, D)."""
        return self._read(0, len(self))

    def mapped(self, transform: Callable[[Floats], Floats]) -> VectorStore:
        """Return a store that applies ``transform`` to vectors when they are read, row by row."""
        first_row = self._read(0, min(1, len(self)))
        dimension = transform(first_row).shape[1]

        def read(start: int, count: int) -> Floats:
            return transform(self._read(start, count))

        return VectorStore(read, (len(self), dimension))

    def rows(self, positions: NDArray[np.int64]) -> Floats:
        """Return the vectors (n, D) at ``positions`` (n,), in their order."""
        vectors = np.empty((len(positions), self.shape[1]), dtype=np.float32)
        for row, position in enumerate(positions.tolist()):
            vectors[row] = self._read(position, 1)[0]
        return vectors


@contextmanager
def stored_vectors(
    encoder: TextEncoder,
    texts: Iterable[str],
    *,
    total: int,
    limit: int | None = None,
    transform: Callable[[Floats], Floats] | None = None,
    **options: Unpack[EncodingOptions],
) -> Iterator[VectorStore]:
    """Encode ``texts`` and yield a store of their vectors.

    Args:
        encoder: any encoder.
        texts: the texts.
        total: number of texts, N.
        limit: bytes above which vectors are stored in a file; None for a quarter of the memory.
        transform: applied to each block (n, D), row by row, before it is stored.
        options: options of `Encoder.encode`, such as ``role``.

    Raises:
        EncoderError: a text that cannot be encoded.
        ValueError: a number of texts other than ``total``.
        OSError: the file cannot be written.
    """
    blocks = encode_blocks(encoder, texts, total=total, **options)
    if transform is not None:
        blocks = map(transform, blocks)
    if limit is None:
        limit = available_memory() // 4
    shape = (total, encoder.dimension)
    if 4 * total * encoder.dimension <= limit:  # 4 bytes of a float32
        yield VectorStore.of(_in_memory(blocks, shape))
    else:
        with _in_file(blocks, shape) as store:
            yield store


def _in_memory(blocks: Iterable[Floats], shape: tuple[int, int]) -> Floats:
    vectors = np.empty(shape, dtype=np.float32)
    for start, block in _numbered(blocks, len(vectors)):
        vectors[start : start + len(block)] = block
    return vectors


@contextmanager
def _in_file(blocks: Iterable[Floats], shape: tuple[int, int]) -> Iterator[VectorStore]:
    total, dimension = shape
    paths.cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=paths.cache(), buffering=0) as handle:
        for _, block in _numbered(blocks, total):
            write_all(block, handle)

        def read(start: int, count: int) -> Floats:
            rows = np.empty((count, dimension), dtype=np.float32)
            handle.seek(4 * dimension * start)
            if not fill(rows, handle):
                raise OSError(f"the file of vectors ends before row {start + count}")
            return rows

        yield VectorStore(read, shape)


def _numbered(blocks: Iterable[Floats], total: int) -> Iterator[tuple[int, Floats]]:
    """Yield each block with the number of its first row; check that there are ``total`` rows."""
    start = 0
    for block in blocks:
        if start + len(block) <= total:
            yield start, block
        start += len(block)
    if start != total:
        raise ValueError(f"expected {total} texts; got {start}")
