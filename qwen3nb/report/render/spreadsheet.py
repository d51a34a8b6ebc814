"""Tables as plain columns: numbers in full, what a cell says where it has none; CSV of them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from typing import TypeAlias

from qwen3nb.report.render.cell import Cell

__all__ = ["csv_table", "plain_columns"]

Value: TypeAlias = float | str | None
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what a spreadsheet takes for the start of one
_NUMBER = re.compile(r"[+-]?[\d.,]+(e[+-]?\d+)?")


def plain_columns(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, intervals: bool
) -> tuple[list[str], list[list[Value]]]:
    """Names of the columns on one line, and each row's numbers or words.

    Args:
        columns: names in the head.
        rows: cells, as many per row as there are columns.
        intervals: follow a column that has intervals by two with their ends.
    """
    wide = [intervals and any(row[i].interval for row in rows) for i in range(len(columns))]
    names: list[str] = []
    for column, spread in zip(columns, wide, strict=True):
        name = " ".join(column.split())
        names += [name, f"{name}, low", f"{name}, high"] if spread else [name]
    values: list[list[Value]] = []
    for row in rows:
        cells = zip(row, wide, strict=True)
        values.append([value for cell, spread in cells for value in _values(cell, spread)])
    return names, values


def _values(cell: Cell, spread: bool) -> list[Value]:
    """The number not rounded, or the words in its place; the ends of the interval if asked for."""
    words = " ".join(f"{cell.text} {cell.detail}".split())
    value: Value = words if cell.value is None else cell.value
    low, high = cell.interval if cell.interval else (None, None)
    return [value, low, high] if spread else [value]


def csv_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """As CSV, intervals in columns of their own; no text is a formula of a spreadsheet."""
    names, values = plain_columns(columns, rows, intervals=True)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(_inert, names))
    for row in values:
        writer.writerow([_inert(value) if isinstance(value, str) else value for value in row])
    return buffer.getvalue()


def _inert(line: str) -> str:
    """Text that no spreadsheet takes for a formula; numbers stay numbers."""
    return f"'{line}" if line.startswith(_FORMULA) and not _NUMBER.fullmatch(line) else line
