"""Print tables on a terminal."""

import sys
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from qwen3nb.report.render.table import Cell, Table
from qwen3nb.utils.terminal import coloured, visible

_PIPE_WIDTH = 120  # when the output is a file or a pipe
_STYLES = {"PASSED": "green", "WARNING": "yellow", "FAILED": "bold red"}


def print_table(table: Table) -> None:
    """Print ``table``, with verdicts in colour if the terminal supports it.

    Text is printed literally, never interpreted as markup or control codes. Intervals are not
    broken across lines.
    """
    rich_table = RichTable(box=SIMPLE_HEAD, pad_edge=False)
    for index, head in enumerate(table.columns):
        cells = [row[index] for row in table.rows]
        rich_table.add_column(_plain(head), overflow="fold", no_wrap=_has_intervals(cells))
    for row in table.rows:
        rich_table.add_row(*[_rich_text(cell) for cell in row])
    console = _console()
    console.print(rich_table)
    method = table.method if table.rows else ""
    for note in (table.data.text, table.note, method):
        if note:
            console.print(_plain(note))


def print_list(sentences: Sequence[str]) -> None:
    """Print each sentence after a dash, with its further lines below the text."""
    console = _console()
    grid = RichTable.grid(padding=(0, 1))
    grid.add_column()
    grid.add_column(overflow="fold")
    for sentence in sentences:
        grid.add_row("-", _plain(sentence))
    console.print(grid)


def _console() -> Console:
    """Return a console of the standard output; a file or a pipe has no width of its own."""
    console = Console(file=coloured(sys.stdout))
    if not console.is_terminal:
        console.width = max(console.width, _PIPE_WIDTH)
    return console


def _has_intervals(cells: Sequence[Cell]) -> bool:
    return any(cell.interval or cell.text.startswith("[") for cell in cells)


def _rich_text(cell: Cell) -> Text:
    text = _plain(cell.text)
    text.stylize(_STYLES.get(cell.text, ""))  # verdicts have a colour
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
