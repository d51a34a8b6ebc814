"""Table cells: the text shown, the value sorted by, and the highlighting."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.metrics.intervals import Interval


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str  # what is shown; for a missing value, the reason, such as ``not run``
    detail: str = ""  # shown below in smaller type, such as an interval or a reason
    link: str = ""  # target, relative to the page
    strong: bool = False  # whether it is the best value of its column
    second: bool = False  # whether it is the second-best value
    value: float | None = None  # the unrounded number behind the text, for sorting and CSV
    interval: tuple[float, float] | None = None  # its unrounded ends
    std: str = ""  # standard deviation, formatted; shown as a subscript
    mark: str = ""  # a symbol explained in the table's legend
    id: str = ""  # of the first cell of a row, the anchor of the row on a page
    code: bool = False  # whether it is a command to copy, which is shown as it is


def as_cell(value: Any) -> Cell:
    """Return the cell of a plain value.

    Args:
        value: text or an integer, shown as it is; a float, with three decimals; an aggregate, with
            its interval; ``(value, detail)``; True or False for a strong "yes" or a "no"; None
            for no value; or a cell, for what needs more (see `number`).
    """
    if isinstance(value, Cell):
        return value
    if isinstance(value, tuple):
        return replace(as_cell(value[0]), detail=value[1])
    if isinstance(value, bool):
        return Cell("yes" if value else "no", strong=value)
    if isinstance(value, float | Aggregate):
        return number(value)
    return Cell("–" if value is None else str(value))


def score_text(score: Aggregate, spec: str = ".3f") -> str:
    """Return a score with its interval: ``0.529 [0.491, 0.567]``; or why it is undefined."""
    cell = number(score, spec)
    return f"{cell.text} {cell.detail}".strip()


def number(
    value: Aggregate | float | None,
    spec: str = ".3f",
    *,
    interval: Interval | None = None,
    absent: str = "–",
    **more: Any,
) -> Cell:
    """Return a cell with a number, which is also its value for sorting and CSV.

    Args:
        value: the number; or an aggregate, with its interval or the reason it is undefined.
        spec: format of the number and of the ends of its interval, such as ``+.3f``.
        interval: shown below the number.
        absent: shown for None.
        more: other fields of the cell, such as ``detail``, ``link`` or ``strong``.

    >>> number(0.25, interval=(0.2, 0.3)).detail, number(None, absent="not run").text
    ('[0.200, 0.300]', 'not run')
    """
    if isinstance(value, Aggregate):
        if value.value is None:
            return Cell("undefined", value.undefined, **{**more, "strong": False})
        ends = None if value.low is None or value.high is None else (value.low, value.high)
        return number(value.value, spec, interval=ends, **more)
    if value is None:
        return Cell(absent, **more)
    if interval is not None:
        more["detail"] = "[{}]".format(", ".join(format(end, spec) for end in interval))
    return Cell(format(value, spec), value=value, interval=interval, **more)
