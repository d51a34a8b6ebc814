"""Which texts go through the model together.

Padding is work thrown away, so texts of like length share a batch; equal texts are
encoded once. Neither changes a vector: results are put back where they belong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

__all__ = ["batches_by_length", "batches_by_tokens", "deduplicate"]


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


def batches_by_tokens(
    lengths: Sequence[int], *, budget: int, size: int | None = None, padded: bool = False
) -> Iterator[list[int]]:
    """Indices in batches of at most ``budget`` tokens, the longest texts first.

    The longest come first so that memory runs out at once or not at all. A text longer
    than the budget is a batch of its own.

    >>> list(batches_by_tokens([3, 9, 1, 5], budget=9))
    [[1], [3, 0, 2]]
    >>> list(batches_by_tokens([3, 9, 1, 5], budget=9, padded=True))
    [[1], [3], [0, 2]]

    Args:
        lengths: tokens per text.
        budget: tokens per batch.
        size: texts per batch at most; None for no limit.
        padded: whether padding counts: a batch then costs its longest text times its
            number of texts.

    Raises:
        ValueError: ``budget`` or ``size`` is not positive.
    """
    for name, value in (("token budget", budget), ("batch size", size)):
        if value is not None and value < 1:
            raise ValueError(f"expected a {name} of at least 1; got {value}")
    batch: list[int] = []
    tokens = 0
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        cost = lengths[batch[0]] if padded and batch else lengths[index]
        if batch and (tokens + cost > budget or len(batch) == size):
            yield batch
            batch, tokens, cost = [], 0, lengths[index]
        batch.append(index)
        tokens += cost
    if batch:
        yield batch
