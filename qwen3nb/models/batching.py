"""Batches of texts.

Padding is wasted work, so texts of similar length share a batch, and equal texts are encoded once.
Neither changes a vector; results are in input order.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from qwen3nb.models.types import EncoderError

Row = TypeVar("Row")


def batches_by_tokens(
    lengths: Sequence[int],
    *,
    budget: int | None = None,
    size: int | None = None,
    padded: bool = False,
    shares: int = 0,
    least: int = 1,
) -> Iterator[list[int]]:
    """Yield batches of indices with at most ``budget`` tokens each, longest texts first.

    If memory is too small, the first batch fails. A text longer than the budget gets its own batch.

    >>> list(batches_by_tokens([3, 9, 1, 5], budget=9))
    [[1], [3, 0, 2]]
    >>> list(batches_by_tokens([3, 9, 1, 5], budget=9, padded=True))
    [[1], [3], [0, 2]]
    >>> list(batches_by_tokens([1] * 8, budget=9, shares=2))
    [[0, 1, 2, 3], [4, 5], [6], [7]]

    Args:
        lengths: tokens per text.
        budget: tokens per batch; None for no limit.
        size: maximum number of texts per batch; None for no limit.
        padded: count padding: a batch costs its longest text times its number of texts.
        shares: with a budget, batches shrink, so that workers that take one after another end
            together: each has at most one in so many of the tokens left; 0 for equal batches.
        least: tokens that a batch may have whatever is left.

    Raises:
        ValueError: ``budget`` or ``size`` is not positive.
    """
    for name, value in (("token budget", budget), ("batch size", size)):
        if value is not None and value < 1:
            raise ValueError(f"expected a {name} of at least 1; got {value}")
    batch: list[int] = []
    batch_tokens = 0
    tokens_left = sum(lengths)
    longest_first = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    for index in longest_first:
        tokens = lengths[index]
        if padded and batch:
            tokens = lengths[batch[0]]  # padded to the first, which is the longest
        room = budget
        if budget is not None and shares:  # less and less, as fewer tokens are left
            share = max(least, tokens_left // shares)
            room = min(budget, share)
        is_full = room is not None and batch_tokens + tokens > room
        if batch and (is_full or len(batch) == size):
            yield batch
            tokens_left -= batch_tokens
            batch = []
            batch_tokens = 0
            tokens = lengths[index]
        batch.append(index)
        batch_tokens += tokens
    if batch:
        yield batch


def batches_by_characters(
    rows: Iterable[Row], most: int, *, text: Callable[[Row], str]
) -> Iterator[list[Row]]:
    """Yield lists of rows whose texts have ``most`` characters together, or a little more.

    Args:
        rows: texts, or what has one.
        most: characters at which a list ends; each text counts one more than it has.
        text: returns the text of a row.

    >>> list(batches_by_characters(["ab", "", "c", "d"], 4, text=str))
    [['ab', ''], ['c', 'd']]
    """
    batch: list[Row] = []
    characters = 0
    for row in rows:
        batch.append(row)
        characters += len(text(row)) + 1  # or empty texts would never fill a batch
        if characters >= most:
            yield batch
            batch = []
            characters = 0
    if batch:
        yield batch


def deduplicate(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the distinct texts in order of appearance, and each text's position among them.

    >>> deduplicate(["a", "b", "a"])
    (['a', 'b'], [0, 1, 0])
    """
    numbers: dict[str, int] = {}
    positions = []
    for text in texts:
        positions.append(numbers.setdefault(text, len(numbers)))
    return list(numbers), positions


def texts_of(inputs: Iterable[Any]) -> list[Any]:
    """Return the texts of a list, or of MTEB's batches."""
    texts: list[Any] = []
    for item in inputs:
        if isinstance(item, dict):
            texts.extend(item["text"])
        else:
            texts.append(item)
    return texts


def check_texts(texts: Iterable[str], first: int = 0) -> None:
    """Raise EncoderError for the first text that is not valid Unicode, with its index.

    Indices begin with ``first``.
    """
    for index, text in enumerate(texts, start=first):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise EncoderError(f"text {index} is not valid Unicode: {text!r:.80}") from None
