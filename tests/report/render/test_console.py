import re

import pytest

from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.console import forest_lines, print_forest, print_table
from qwen3nb.report.render.forest_plot import ForestRow
from qwen3nb.report.render.table import Table


def test_a_terminal_gets_foreign_text_as_text(capsys):
    print_table(Table(("[bold]x[/]",), ((Cell("\x1b[31mred", "[link=a]b[/link]"),),), "[i]note"))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    for text in ("[bold]x[/]", "\\x1b[31mred", "[link=a]b[/link]", "[i]note"):
        assert text in shown


ROWS = (
    ForestRow("a", 0.5, 0.2, 0.8, clear=True),
    ForestRow("b", -0.1, -0.2, 0.1, clear=False),
    ForestRow("c", None, note="no value"),
)


def test_a_forest_in_text_has_its_points_where_they_belong():
    """From -0.2 to 0.8 in 11 columns a column is 0.1: 0 is in column 2, 0.5 in column 7."""
    width = len("a") + 2 + 11 + 2 + len("+0.500 [+0.200, +0.800]")
    lines = forest_lines(ROWS, xlabel="difference", width=width)
    assert lines == [
        "a    │ ───●───  +0.500 [+0.200, +0.800]",
        "b  ─○┼─         -0.100 [-0.200, +0.100]",
        "   ──┴────────",
        "   -0.2    0.8",
        "   difference",
    ]
    assert forest_lines(ROWS[2:], xlabel="x", width=80) == []


@pytest.mark.parametrize("width", [20, 40, 79, 200])
def test_a_forest_is_as_wide_as_the_terminal_allows(width):
    rows = [ForestRow("a name of a task that is very long indeed", 0.5, 0.2, 0.8), *ROWS]
    lines = forest_lines(rows, xlabel="x", width=width)
    least = 6 + 2 + 10 + 2 + len("+0.500 [+0.200, +0.800]")  # a label, the plot, the numbers
    assert max(map(len, lines)) <= max(width, least)


def test_a_terminal_without_unicode_gets_ascii(capsys, monkeypatch):
    monkeypatch.setattr("rich.console.Console.encoding", "ascii")
    print_forest([*ROWS, ForestRow("é", 0.1)], xlabel="difference")
    shown = capsys.readouterr().out
    assert shown.isascii()
    assert re.search(r"\| +-+\*-+ +\+0\.500", shown)
    assert re.search(r"-o-*\+-", shown)
    assert shown.splitlines()[2].startswith("?")
