"""Read the labels of a classification once, where MTEB reads them row by row.

MTEB gives a column of a data set to scikit-learn, which iterates over it some twenty times for each
of ten experiments. A column of the library `datasets` decodes every row anew each time. For 25,000
texts that takes minutes for each model, and the scores are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasets import Dataset
    from mteb import AbsTask


@contextmanager
def labels_read_once(task: AbsTask) -> Iterator[None]:
    """Inside the block, a classification reads the labels of a split as a list.

    Args:
        task: of any type; other types stay as they are.
    """
    if task.metadata.type != "Classification":
        yield
        return
    any_task: Any = task
    scores_of, draw = any_task._calculate_scores, any_task._undersample_data

    def scores_of_lists(labels: Sequence[Any], predictions: Any) -> Any:
        return scores_of(labels[:], predictions)

    def draw_by_lists(split: Dataset, *options: Any, **named: Any) -> Any:
        return draw(_Split(split), *options, **named)

    any_task._calculate_scores, any_task._undersample_data = scores_of_lists, draw_by_lists
    try:
        yield
    finally:
        del any_task._calculate_scores, any_task._undersample_data


class _Split:
    """A split whose columns are lists."""

    def __init__(self, rows: Dataset) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, column: str) -> list[Any]:
        values: list[Any] = self._rows[column][:]
        return values

    def select(self, positions: list[int]) -> Dataset:
        """Return the rows at these positions."""
        return self._rows.select(positions)
