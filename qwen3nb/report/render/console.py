"""Print tables and forest plots on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.forest_plot import ForestRow
from qwen3nb.report.render.table import Table
from qwen3nb.utils.terminal import coloured, visible

__all__ = ["forest_lines", "print_forest", "print_table", "terminal"]

_PIPE = 120  # width when the output is a file or a pipe
_STYLES = {"PASSED": "green", "WARNING": "yellow", "FAILED": "bold red"}


def print_table(table: Table) -> None:
    """Print ``table``, with verdicts in colour if the terminal supports it.

    Text is printed literally, never interpreted as markup or control codes.
    """
    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False)
    for column in table.columns:
        shown.add_column(_plain(column), overflow="fold")
    for row in table.rows:
        shown.add_row(*[_cell(cell) for cell in row])
    console = terminal()
    console.print(shown)
    if table.note:
        console.print(_plain(table.note))


def terminal() -> Console:
    """Return a console that prints colours; what it prints must hold no control characters."""
    console = Console(file=coloured(sys.stdout))
    if not console.is_terminal:
        console.width = max(console.width, _PIPE)
    return console


def print_forest(rows: Sequence[ForestRow], *, xlabel: str) -> None:
    """Print a forest plot as wide as the terminal, in plain ASCII where it knows no more."""
    console = terminal()
    drawn = forest_lines(rows, xlabel=xlabel, width=console.width)
    try:
        "".join(drawn).encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        drawn = forest_lines(rows, xlabel=xlabel, width=console.width, ascii=True)
    for line in drawn:
        console.print(_plain(line), soft_wrap=True)


@dataclass(frozen=True)
class _Ink:
    """The characters of a forest plot."""

    line: str
    point: str
    open_point: str
    zero: str
    crossing: str
    axis: str


_UNICODE = _Ink("─", "●", "○", "│", "┼", "┴")
_ASCII = _Ink("-", "*", "o", "|", "+", "+")
_LABEL, _LEAST, _MOST = 30, 10, 48  # characters of a label; columns of the plot, at least and most


def forest_lines(
    rows: Sequence[ForestRow], *, xlabel: str, width: int, ascii: bool = False
) -> list[str]:
    """Return a forest plot as text: a line per estimate, then the axis and what it shows.

    A point is filled if the row is clear. Rows without a value are left out.

    Args:
        rows: estimates from top to bottom.
        xlabel: quantity estimated, shown below.
        width: columns of the terminal.
        ascii: whether to use ASCII only.
    """
    shown = [row for row in rows if row.value is not None]
    if not shown:
        return []
    ink = _ASCII if ascii else _UNICODE
    numbers = [_numbers(row) for row in shown]
    longest = min(max(len(row.label) for row in shown), _LABEL)
    room = width - max(map(len, numbers)) - 4
    columns = max(_LEAST, min(_MOST, room - longest))
    label = min(longest, max(6, room - columns))
    ends = [end for row in shown for end in (row.low, row.value, row.high) if end is not None]
    left, right = min(0.0, *ends), max(0.0, *ends)
    lines = [
        f"{_cut(row.label, label, ascii):{label}}  {_bar(row, left, right, columns, ink)}  {text}"
        for row, text in zip(shown, numbers, strict=True)
    ]
    scale = f"{left:.3g}".ljust(columns - len(f"{right:.3g}")) + f"{right:.3g}"
    indent = " " * (label + 2)
    axis = [ink.line] * columns
    axis[_column(0.0, left, right, columns)] = ink.axis
    return [*lines, indent + "".join(axis), indent + scale, indent + xlabel]


def _bar(row: ForestRow, left: float, right: float, columns: int, ink: _Ink) -> str:
    """Return the line of no effect, the interval over it, and the point over both."""
    bar = [" "] * columns
    zero = _column(0.0, left, right, columns)
    bar[zero] = ink.zero
    if row.low is not None and row.high is not None:
        first, last = (_column(end, left, right, columns) for end in (row.low, row.high))
        bar[first : last + 1] = [ink.line] * (last + 1 - first)
        if first <= zero <= last:
            bar[zero] = ink.crossing
    if row.value is not None:
        point = ink.open_point if row.clear is False else ink.point
        bar[_column(row.value, left, right, columns)] = point
    return "".join(bar)


def _column(value: float, left: float, right: float, columns: int) -> int:
    """Return the column, from 0, of a value between the ends of the plot."""
    return round((value - left) / ((right - left) or 1.0) * (columns - 1))


def _numbers(row: ForestRow) -> str:
    text = f"{row.value:+.3f}"
    if row.low is not None and row.high is not None:
        text += f" [{row.low:+.3f}, {row.high:+.3f}]"
    return f"{text}  {row.note}".rstrip()


def _cut(text: str, most: int, ascii: bool) -> str:
    line = visible(" ".join(text.split()))
    line = "".join(c if not ascii or c.isascii() else "?" for c in line)
    end = "." if ascii else "…"
    return line if len(line) <= most else line[: most - 1] + end


def _cell(cell: Cell) -> Text:
    text = _plain(cell.text)
    text.stylize(_STYLES.get(cell.text, ""))
    if cell.strong:
        text.stylize("bold")
    if cell.second:
        text.stylize("underline")
    if cell.std:
        text.append_text(_plain(f" ± {cell.std}", "dim"))
    if cell.detail:
        text.append("\n").append_text(_plain(cell.detail, "dim"))
    return text


def _plain(text: str, style: str = "") -> Text:
    return Text(visible(text), style=style)
