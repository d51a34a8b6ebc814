"""Which texts go through the model together.

Padding is work thrown away, so texts of like length share a batch; equal texts are
encoded once. Neither changes a vector: results are put back where they belong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["batches_by_length", "deduplicate"]


def batches_by_length(lengths: Sequence[int], *, size: int) -> Iterator[list[int]]:
    """Indices in batches of at most ``size``, the longest first.

    The longest batch comes first so that memory runs out at once or not at all.

    >>> list(batches_by_length([3, 9, 1, 5], size=2))
    [[1, 3], [0, 2]]

    Raises:
        ValueError: ``size`` is not positive.
    """
    if size < 1:
        raise ValueError(f"expected a batch size of at least 1; got {size}")
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    for start in range(0, len(order), size):
        yield order[start : start + size]


def deduplicate(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """Distinct texts in order of appearance, and each text's place among them.

    >>> deduplicate(["a", "b", "a"])
    (['a', 'b'], [0, 1, 0])
    """
    places: dict[str, int] = {}
    where = [places.setdefault(text, len(places)) for text in texts]
    return list(places), where
