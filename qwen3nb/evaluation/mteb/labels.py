"""Read the labels of a classification once, where MTEB reads them row by row.

MTEB gives a column of a data set to scikit-learn, which iterates over it some twenty times for each
of ten experiments, or looks at one row after the other to draw what a classifier learns from. A
column of the library `datasets` decodes each row anew. For 25,000 texts that takes minutes for
each model, and the scores are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    readers = _READERS.get(task.metadata.type, {})
    replaced = [name for name in readers if hasattr(task, name)]  # other releases may lack one
    for name in replaced:
        setattr(task, name, _reading_first(getattr(task, name), readers[name]))
    try:
        yield
    finally:
        for name in replaced:
            delattr(task, name)


def _reading_first(method: Callable[..., Any], read: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a method of a task whose first argument is read before the call."""

    def with_read_data(data: Any, *others: Any, **options: Any) -> Any:
        return method(read(data), *others, **options)

    return with_read_data


def _values(column: Sequence[Any]) -> Sequence[Any]:
    return column[:]


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


# By type of task: methods of MTEB, and how to read their first argument.
_READERS: dict[str, dict[str, Callable[[Any], Any]]] = {
    "Classification": {"_calculate_scores": _values, "_undersample_data": _Split},
    "MultilabelClassification": {"_undersample_data_indices": _values},
}
