"""Print tables and forest plots on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.forest_plot import ForestRow
from qwen3nb.report.render.format import effect_text
from qwen3nb.report.render.table import Table
from qwen3nb.utils.terminal import coloured, visible

_PIPE = 120  # width when the output is a file or a pipe
_STYLES = {"PASSED": "green", "WARNING": "yellow", "FAILED": "bold red"}


def print_table(table: Table) -> None:
    """Print ``table``, with verdicts in colour if the terminal supports it.

    Text is printed literally, never interpreted as markup or control codes. Columns of intervals
    are never broken.
    """
    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(table.columns):
        whole = any(row[index].text.startswith("[") or row[index].interval for row in table.rows)
        shown.add_column(_plain(column), overflow="fold", no_wrap=whole)
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
    drawn = "\n".join(forest_lines(rows, xlabel=xlabel, width=console.width))
    try:
        drawn.encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        drawn = drawn.translate(_ASCII).encode("ascii", "replace").decode()
    for line in drawn.splitlines():
        console.print(_plain(line), soft_wrap=True)


_ASCII = str.maketrans("─●○│┼┴…", "-*o|++.")  # of the characters of a plot
_LABEL, _LEAST, _MOST = 30, 10, 48  # characters of a label; columns of the plot, at least and most


def forest_lines(rows: Sequence[ForestRow], *, xlabel: str, width: int) -> list[str]:
    """Return a forest plot as text: a line per estimate, then the axis and what it shows.

    A point is filled if the row is clear. Rows without a value are left out. The plot is as wide as
    ``width`` columns allow.
    """
    shown = [(row, row.value) for row in rows if row.value is not None]
    if not shown:
        return []
    numbers = [f"{effect_text(value, row.interval)}  {row.note}".rstrip() for row, value in shown]
    longest = min(max(len(row.label) for row, _ in shown), _LABEL)
    room = width - max(map(len, numbers)) - 4
    columns = max(_LEAST, min(_MOST, room - longest))
    label = min(longest, max(6, room - columns))
    ends = [end for row, value in shown for end in (value, *(row.interval or ()))]
    left, right = min(0.0, *ends), max(0.0, *ends)

    def column(value: float) -> int:
        return round((value - left) / ((right - left) or 1.0) * (columns - 1))

    lines, zero = [], column(0.0)
    for (row, value), text in zip(shown, numbers, strict=True):
        bar = [" "] * columns
        bar[zero] = "│"
        if row.interval:
            first, last = map(column, row.interval)
            bar[first : last + 1] = ["─"] * (last + 1 - first)
            bar[zero] = "┼" if first <= zero <= last else "│"
        bar[column(value)] = "○" if row.clear is False else "●"
        name = visible(" ".join(row.label.split()))
        name = name if len(name) <= label else f"{name[: label - 1]}…"
        lines.append(f"{name:{label}}  {''.join(bar)}  {text}")
    axis = ["─"] * columns
    axis[zero] = "┴"
    scale = f"{left:.3g}".ljust(columns - len(f"{right:.3g}")) + f"{right:.3g}"
    indent = " " * (label + 2)
    return [*lines, *(indent + text for text in ("".join(axis), scale, xlabel))]


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
