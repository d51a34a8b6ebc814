from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.console import print_table
from qwen3nb.report.render.table import Table


def test_a_terminal_gets_foreign_text_as_text(capsys):
    print_table(Table(("[bold]x[/]",), ((Cell("\x1b[31mred", "[link=a]b[/link]"),),), "[i]note"))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    for text in ("[bold]x[/]", "�[31mred", "[link=a]b[/link]", "[i]note"):
        assert text in shown
