"""What is printed fits the terminal, and no name is cut."""

import pytest
from rich.console import Console

from qwen3nb.report.render import console
from qwen3nb.report.render.table import Cell, Table, number

NAMES = ("MassiveScenarioClassification-en", "ToxicConversationsClassification", "SciFact")


@pytest.fixture(params=[60, 80, 120])
def screen(request, monkeypatch, capsys):
    """A terminal of some width: prints with what is given, and returns the lines."""

    def terminal(**_):
        import sys

        return Console(file=sys.stdout, width=request.param, force_terminal=True, no_color=True)

    monkeypatch.setattr(console, "Console", terminal)

    def printed(show, *values, **options):
        show(*values, **options)
        text = capsys.readouterr().out
        lines = [line.replace("\x1b[1m", "").replace("\x1b[2m", "") for line in text.splitlines()]
        lines = [line.replace("\x1b[0m", "").replace("\x1b[4m", "") for line in lines]
        assert max(map(len, lines)) <= request.param
        return lines

    printed.width = request.param
    return printed


def table(*heads, rows=NAMES):
    cells = (number(0.7124, interval=(-0.1, 0.9)), Cell("8 queries, judged by three people"))
    return Table(("task", "score", *heads), tuple((Cell(name), *cells) for name in rows))


def test_names_are_whole_and_lines_fit(screen):
    lines = screen(console.print_table, table("how many"))
    for name in NAMES:
        assert sum(name in line for line in lines) == 1
    assert "[−0.100, 0.900]" in "\n".join(lines)  # whole, and with the minus of pages


def test_a_table_without_room_is_printed_as_blocks(screen):
    name = "x" * (screen.width - 5)
    lines = screen(console.print_table, table("how\nmany", rows=[name]))
    assert [line.rstrip() for line in lines] == [
        name,
        "  score: 0.712 [−0.100, 0.900]",
        "  how many: 8 queries, judged by three people",
    ]


def test_the_first_table_with_room_is_printed(screen):
    wide = Table(("a", "b"), ((Cell("y" * 50), Cell("y" * 28)),))
    narrow = Table(("only",), ((Cell("y" * 50),),))
    lines = screen(console.print_table, wide, narrow)
    assert ("only" in lines[0]) == (screen.width < 80)


def test_a_text_is_wrapped_between_words(screen):
    words = [f"word-{number}" for number in range(40)]
    lines = screen(console.print_text, " ".join(words))
    assert " ".join(lines).split() == words


def test_a_file_gets_lines_of_any_length_and_signs_for_programs(capsys):
    text = " ".join(["-0.5"] * 60)
    console.print_text(text)
    assert capsys.readouterr().out == f"{text}\n"
    console.print_table(table("n"))
    assert "[-0.100, 0.900]" in capsys.readouterr().out
