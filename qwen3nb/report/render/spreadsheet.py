"""Tables as plain columns and as CSV: unrounded numbers, or the text of cells without one."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TypeAlias

from qwen3nb.report.render.cell import Cell
from qwen3nb.utils.format import inert_text

__all__ = ["csv_table", "plain_columns"]

Value: TypeAlias = float | str | None


def plain_columns(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, intervals: bool
) -> tuple[list[str], list[list[Value]]]:
    """Return the names of the columns, each on one line, and each row's numbers or text.

    Args:
        columns: names in the header row.
        rows: cells, one per column.
        intervals: whether two columns with the ends follow a column that has intervals.
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
    """Return the unrounded number, or the text if there is none; with ``spread``, the ends too."""
    words = " ".join(f"{cell.text} {cell.detail}".split()).replace("−", "-")
    value: Value = words if cell.value is None else cell.value
    low, high = cell.interval if cell.interval else (None, None)
    return [value, low, high] if spread else [value]


def csv_table(columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> str:
    """Return CSV with intervals in separate columns; no text is read as a formula."""
    names, values = plain_columns(columns, rows, intervals=True)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(map(inert_text, names))
    for row in values:
        writer.writerow([inert_text(value) if isinstance(value, str) else value for value in row])
    return buffer.getvalue()
