"""One value per query, from whatever holds it: an array, a list, a Series, a frame, a dictionary.

The rows of a Series, a data frame and a dictionary have names, such as ids of queries. Two columns
are paired by these names, whatever their order. Rows that are only numbered, as those of two parts
of one data frame, are paired by position, unless both columns have the same numbers.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

# A column, or a data frame with a single one.
Column: TypeAlias = ArrayLike | Mapping[str, float]
Numbers: TypeAlias = NDArray[np.float64]


def numbers(values: Column) -> Numbers:
    """Return the numbers of a column as an array (n,).

    >>> numbers({"q1": 0.5, "q2": 1})
    array([0.5, 1. ])

    Raises:
        TypeError: what is no number.
        ValueError: a table of several columns; lists them.
    """
    columns = _columns_by_name(values)
    if len(columns) == 1:
        (values,) = columns.values()
    elif columns:
        names = ", ".join(columns)
        raise ValueError(f"expected one column of numbers; got {names}; choose one of them")
    return _array(values)


def two_columns(table: Any) -> tuple[Any, Any] | None:
    """Return the columns of a table that has two; None of any other, and of plain values."""
    columns = _columns_by_name(table)
    if len(columns) != 2:
        return None
    first, second = columns.values()
    return first, second


def in_order_of(first: Any, values: Any) -> Any:
    """Return ``values`` in the order of the rows of ``first``; unchanged if either has no names.

    Raises:
        ValueError: their rows have other names, or one name twice; names one.
    """
    names = _row_names(first)
    names_of_values = _row_names(values)
    if names is None or names_of_values is None or names == names_of_values:
        return values
    row_of_name = {name: row for row, name in enumerate(names_of_values)}
    are_unique = len(row_of_name) == len(names_of_values) == len(names)
    if are_unique and row_of_name.keys() == set(names):
        rows = [row_of_name[name] for name in names]
        return _plain(values)[rows]
    # Such as two parts of one data frame, whose rows are numbered.
    are_numbered = all(isinstance(name, int) for name in [*names, *names_of_values])
    if are_numbered:
        return values
    unpaired = sorted(map(str, row_of_name.keys() ^ set(names)))
    if not unpaired:
        raise ValueError("expected a value per query; a query occurs more than once")
    raise ValueError(
        f"expected values of the same queries; only one has {unpaired[0]!r} "
        f"({len(unpaired)} in total)"
    )


def _columns_by_name(values: Any) -> dict[str, Any]:
    """Return the columns of a data frame or of scores by metric; none of plain values."""
    if isinstance(values, Mapping):
        columns = {str(name): column for name, column in values.items()}
        is_table = all(isinstance(column, Mapping) for column in columns.values())
        if is_table:
            return columns
        return {}
    if not hasattr(values, "shape"):
        return {}
    # Of pandas and polars, columns are names; of pyarrow, they are the values.
    names: Any = getattr(values, "column_names", None)
    if names is None:
        names = getattr(values, "columns", ())
    return {str(name): values[name] for name in names}


def _row_names(values: Any) -> list[Hashable] | None:
    """Return the names of the rows of a column or a table; None if they have none."""
    columns = _columns_by_name(values)
    if columns:
        values = next(iter(columns.values()))
    if isinstance(values, Mapping):
        return list(values)
    index = getattr(values, "index", None)
    if index is None or callable(index):  # lists have a method of this name
        return None
    names: list[Hashable] = index.tolist()
    return names


def _plain(values: Any) -> NDArray[Any]:
    """Return a column as an array (n,) of its own values."""
    columns = _columns_by_name(values)
    if len(columns) == 1:
        (values,) = columns.values()
    if isinstance(values, Mapping):
        values = list(values.values())
    return np.asarray(values)


def _array(values: Any) -> Numbers:
    if isinstance(values, Mapping):
        values = list(values.values())
    try:
        return np.asarray(values, dtype=np.float64)
    except TypeError:
        raise TypeError(
            f"expected numbers in an array, a Series, a data frame or a dictionary; got "
            f"{type(values).__name__}; of a record, write record.scores.array(metric)"
        ) from None
