"""The vectors of a corpus that is read several times: in memory, or in a file if they are many.

One pass over a corpus needs no store: `search` takes the blocks as they are encoded. Above a
quarter of the available memory, the vectors go to a file next to the embedding cache. The file has
no name, so that nothing is left of it after a crash, and it is read, not mapped, so that it adds
nothing to the memory of the process.

Shapes: N rows, D dimensions.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qwen3nb import paths
from qwen3nb.models.encoders.base import Encoder
from qwen3nb.utils.hardware import available_memory
from qwen3nb.vectors.block_file import Floats, fill, write_all
from qwen3nb.vectors.encode_file import encode_blocks

BLOCK = 65_536  # vectors, as FAISS adds them to an index


class VectorStore:
    """Vectors of ``shape`` (N, D), read by blocks and by rows, wherever they are."""

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
        return cls(lambda first, count: array[first : first + count], array.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def blocks(self, size: int = BLOCK) -> Iterator[Floats]:
        """Yield all vectors, in blocks (size, D); the last may be smaller."""
        for first in range(0, len(self), size):
            yield self._read(first, min(size, len(self) - first))

    def everything(self) -> Floats:
        """Return all vectors (N, D)."""
        return self._read(0, len(self))

    def mapped(self, transform: Callable[[Floats], Floats]) -> VectorStore:
        """Return a store of vectors that ``transform`` maps, row by row, when they are read."""
        dimension = transform(self._read(0, min(1, len(self)))).shape[1]
        return VectorStore(
            lambda first, count: transform(self._read(first, count)), (len(self), dimension)
        )

    def rows(self, positions: NDArray[np.int64]) -> Floats:
        """Return the vectors (n, D) at ``positions`` (n,), in their order."""
        vectors = np.empty((len(positions), self.shape[1]), dtype=np.float32)
        for row, position in enumerate(positions.tolist()):
            vectors[row] = self._read(position, 1)[0]
        return vectors


@contextmanager
def stored_vectors(
    encoder: Encoder,
    texts: Iterable[str],
    *,
    total: int,
    limit: int | None = None,
    transform: Callable[[Floats], Floats] | None = None,
    **options: Any,
) -> Iterator[VectorStore]:
    """Encode ``texts`` and keep their vectors inside the block.

    Args:
        encoder: any encoder.
        texts: the texts.
        total: number of texts, N.
        limit: bytes of vectors above which they go to a file; None for a quarter of the memory.
        transform: maps each block (n, D) to the one that is kept, row by row.
        options: options of `Encoder.encode`, such as ``role``.

    Raises:
        EncoderError: a text that cannot be encoded.
        ValueError: a number of texts other than ``total``.
        OSError: the file cannot be written.
    """
    blocks = encode_blocks(encoder, texts, total=total, **options)
    if transform is not None:
        blocks = map(transform, blocks)
    dimension = encoder.dimension
    if 4 * total * dimension <= (available_memory() // 4 if limit is None else limit):
        vectors = np.empty((total, dimension), dtype=np.float32)
        for first, part in _numbered(blocks, total):
            vectors[first : first + len(part)] = part
        yield VectorStore.of(vectors)
        return
    paths.cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=paths.cache(), buffering=0) as handle:
        for _, part in _numbered(blocks, total):
            write_all(part, handle)

        def read(first: int, count: int) -> Floats:
            rows = np.empty((count, dimension), dtype=np.float32)
            handle.seek(4 * dimension * first)
            if not fill(rows, handle):
                raise OSError(f"the file of vectors ends before row {first + count}")
            return rows

        yield VectorStore(read, (total, dimension))


def _numbered(blocks: Iterable[Floats], total: int) -> Iterator[tuple[int, Floats]]:
    """Yield each block with the number of its first row; refuse another number of rows."""
    first = 0
    for part in blocks:
        if first + len(part) <= total:
            yield first, part
        first += len(part)
    if first != total:
        raise ValueError(f"expected {total} texts; got {first}")
