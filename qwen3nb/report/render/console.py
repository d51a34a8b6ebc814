"""Print tables on a terminal: no name is cut, no line is wider than the terminal."""

import sys
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from qwen3nb.report.render.table import Cell, Table
from qwen3nb.utils.format import typeset
from qwen3nb.utils.terminal import coloured, visible

_PIPE_WIDTH = 120  # when the output is a file or a pipe
_GAP = 2  # columns of the terminal between those of a table
_STYLES = {"PASSED": "green", "WARNING": "yellow", "FAILED": "bold red"}


def print_table(table: Table, *narrower: Table) -> None:
    """Print a table, with verdicts in colour if the terminal supports it.

    Text is printed literally, never interpreted as markup or control codes. Intervals, and words
    such as names, are not broken across lines.

    Args:
        table: the table to print if it is not too wide.
        narrower: tables to print instead, in this order. If all are too wide, a row of the last
            one is a block of lines.
    """
    console = _console()
    for candidate in (table, *narrower):
        widths = _column_widths(candidate, console.width)
        if widths:
            break
    if widths:
        console.print(_grid(candidate, widths, is_screen=console.is_terminal))
    else:
        _print_blocks(candidate, console)
    method = candidate.method if candidate.rows else ""
    for note in (candidate.data.text, candidate.note, method):
        if note:
            console.print(_plain(note))


def print_text(text: str, *, style: str = "") -> None:
    """Print a text, on a terminal wrapped between words; ``style`` is one of rich."""
    console = _console()
    shown = _plain(_shown(text, is_screen=console.is_terminal), style)
    console.print(shown, soft_wrap=not console.is_terminal)


def print_list(sentences: Sequence[str]) -> None:
    """Print each sentence after a dash, with its further lines below the text."""
    console = _console()
    grid = RichTable.grid(padding=(0, 1))
    grid.add_column()
    grid.add_column(overflow="fold")
    for sentence in sentences:
        grid.add_row("-", _plain(_shown(sentence, is_screen=console.is_terminal)))
    console.print(grid)


def _console() -> Console:
    """Return a console of the standard output; a file or a pipe has no width of its own."""
    console = Console(file=coloured(sys.stdout))
    if not console.is_terminal:
        console.width = max(console.width, _PIPE_WIDTH)
    return console


def _column_widths(table: Table, available: int) -> list[int]:
    """Return the widths of the columns of a table; none if their words do not fit.

    Where the text does not fit, the widest column that can be wrapped gets narrower.
    """
    widths = []
    least_widths = []
    for index, head in enumerate(table.columns):
        cells = [row[index] for row in table.rows]
        lines = [head]
        for cell in cells:
            lines += _lines(cell)
        width = max(map(cell_len, lines))
        widths.append(width)
        if _has_intervals(cells):
            least_widths.append(width)
        else:
            words = " ".join(lines).split()
            least_widths.append(max(map(cell_len, words), default=0))
    room = available - _GAP * (len(widths) - 1)
    if sum(least_widths) > room:
        return []
    while sum(widths) > room:
        slack = [
            (width, index) for index, width in enumerate(widths) if width > least_widths[index]
        ]
        _width, widest = max(slack)
        widths[widest] -= 1
    return widths


def _grid(table: Table, widths: Sequence[int], *, is_screen: bool) -> RichTable:
    """Return a table with a line per row, or more where text is wrapped."""
    grid = RichTable(box=SIMPLE_HEAD, show_edge=False, padding=(0, _GAP - 1, 0, 0), pad_edge=False)
    for head, width in zip(table.columns, widths, strict=True):
        grid.add_column(_plain(head), overflow="fold", width=width)
    for row in table.rows:
        grid.add_row(*[_rich_text(cell, is_screen=is_screen) for cell in row])
    return grid


def _print_blocks(table: Table, console: Console) -> None:
    """Print each row as a block: its first cell, and a line for each of the others."""
    for row in table.rows:
        console.print(_plain(" ".join(_lines(row[0])), "bold"))
        for head, cell in zip(table.columns[1:], row[1:], strict=True):
            text = " ".join(_lines(cell)).strip()
            if text:
                line = f"  {' '.join(head.split())}: {text}"
                console.print(_plain(_shown(line, is_screen=console.is_terminal)))


def _has_intervals(cells: Sequence[Cell]) -> bool:
    return any(cell.interval or cell.text.startswith("[") for cell in cells)


def _lines(cell: Cell) -> list[str]:
    """Return the lines of a cell as they are printed, without style."""
    text = visible(cell.text)
    if cell.std:
        text += f" ± {cell.std}"
    lines = text.split("\n")
    if cell.detail:
        lines += visible(cell.detail).split("\n")
    return lines


def _rich_text(cell: Cell, *, is_screen: bool) -> Text:
    text = _plain(_shown(cell.text, is_screen=is_screen))
    text.stylize(_STYLES.get(cell.text, ""))  # verdicts have a colour
    if cell.strong:
        text.stylize("bold")
    if cell.second:
        text.stylize("underline")
    if cell.std:
        text.append_text(_plain(f" ± {cell.std}", "dim"))
    if cell.detail:
        detail = _shown(cell.detail, is_screen=is_screen)
        text.append("\n").append_text(_plain(detail, "dim"))
    return text


def _shown(text: str, *, is_screen: bool) -> str:
    """Return text with numbers as on pages; a file keeps signs that programs can read."""
    if is_screen:
        return typeset(text)
    return text


def _plain(text: str, style: str = "") -> Text:
    return Text(visible(text), style=style)
