"""Print tables on a terminal."""

import sys

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from qwen3nb.report.render.table import Cell, Table
from qwen3nb.utils.terminal import coloured, visible

_PIPE = 120  # width when the output is a file or a pipe
_STYLES = {"PASSED": "green", "WARNING": "yellow", "FAILED": "bold red"}


def print_table(table: Table) -> None:
    """Print ``table``, with verdicts in colour if the terminal supports it.

    Text is printed literally, never interpreted as markup or control codes. Intervals are not
    broken across lines.
    """
    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False)
    for index, column in enumerate(table.columns):
        whole = any(row[index].text.startswith("[") or row[index].interval for row in table.rows)
        shown.add_column(_plain(column), overflow="fold", no_wrap=whole)
    for row in table.rows:
        shown.add_row(*[_cell(cell) for cell in row])
    console = Console(file=coloured(sys.stdout))
    if not console.is_terminal:
        console.width = max(console.width, _PIPE)
    console.print(shown)
    for note in filter(None, (table.data.text, table.note)):
        console.print(_plain(note))


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
