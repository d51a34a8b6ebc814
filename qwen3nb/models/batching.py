"""Batches of texts.

Padding is wasted work, so texts of similar length share a batch, and equal texts are encoded once.
Neither changes a vector; results are in input order.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def batches_by_tokens(
    lengths: Sequence[int],
    *,
    budget: int | None = None,
    size: int | None = None,
    padded: bool = False,
) -> Iterator[list[int]]:
    """Yield batches of indices with at most ``budget`` tokens each, longest texts first.

    If memory is too small, the first batch fails. A text longer than the budget gets its own batch.

    >>> list(batches_by_tokens([3, 9, 1, 5], budget=9))
    [[1], [3, 0, 2]]
    >>> list(batches_by_tokens([3, 9, 1, 5], budget=9, padded=True))
    [[1], [3], [0, 2]]

    Args:
        lengths: tokens per text.
        budget: tokens per batch; None for no limit.
        size: maximum number of texts per batch; None for no limit.
        padded: count padding: a batch costs its longest text times its number of texts.

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
        full = budget is not None and tokens + cost > budget
        if batch and (full or len(batch) == size):
            yield batch
            batch, tokens, cost = [], 0, lengths[index]
        batch.append(index)
        tokens += cost
    if batch:
        yield batch


def deduplicate(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the distinct texts in order of appearance, and each text's position among them.

    >>> deduplicate(["a", "b", "a"])
    (['a', 'b'], [0, 1, 0])
    """
    positions: dict[str, int] = {}
    where = [positions.setdefault(text, len(positions)) for text in texts]
    return list(positions), where


def texts_of(inputs: Iterable[Any]) -> list[Any]:
    """Return the texts of a list, or of MTEB's batches."""
    texts: list[Any] = []
    for item in inputs:
        texts.extend(item["text"] if isinstance(item, dict) else [item])
    return texts
