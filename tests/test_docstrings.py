"""Every docstring is valid reStructuredText: tables and lists come out as they were meant."""

import ast
import io
import re
from collections.abc import Iterator
from pathlib import Path

import docutils.core
import pytest
from docutils.frontend import get_default_settings
from docutils.parsers.rst import Parser
from docutils.readers.standalone import Reader
from sphinx.ext.napoleon import Config, GoogleDocstring

PACKAGE = Path(__file__).parents[1] / "qwen3nb"
CONFIG = Config(napoleon_use_param=False, napoleon_use_ivar=True)
SETTINGS = get_default_settings(Parser, Reader)  # once; the options take longer than a docstring
SETTINGS.report_level = 2
SETTINGS.halt_level = 5
# A sentence on one line, without a character of markup: nothing in it can be rendered wrongly.
PLAIN = re.compile(r"[A-Za-z][^\n`*|_\\<>\[\]]*[^\n`*|_\\<>\[\]:][.?!]")
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def docstrings(source: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, DOCUMENTED) and (text := ast.get_docstring(node)):
            yield getattr(node, "name", "module"), text


def warnings(text: str) -> str:
    """What docutils warns of; lines after ``\\b``, which click leaves as they are, are literal."""
    text = re.sub(r"^\x08\n((?:.+\n?)+)", lambda m: "::\n\n" + indented(m[1]), text, flags=re.M)
    if PLAIN.fullmatch(text):
        return ""
    SETTINGS.warning_stream = io.StringIO()
    docutils.core.publish_doctree(str(GoogleDocstring(text, CONFIG)), settings=SETTINGS)
    return SETTINGS.warning_stream.getvalue()


def indented(lines: str) -> str:
    return "".join(f"    {line}\n" for line in lines.splitlines())


@pytest.mark.integration  # seconds for all rooms
@pytest.mark.parametrize("room", sorted({file.parent for file in PACKAGE.rglob("*.py")}))
def test_docstrings_are_rendered_without_warnings(room):
    wrong = {
        f"{file.name}: {name}": found
        for file in sorted(room.glob("*.py"))
        for name, text in docstrings(file.read_text(encoding="utf-8"))
        if (found := warnings(text))
    }
    assert wrong == {}


def test_a_table_that_was_reflowed_is_found():
    assert warnings("Has a table.\n\n    one    a\n    two    b\n      and more\n  less\n")
    assert warnings("Has a table::\n\n    one    a\n    two    b\n           and more\n") == ""


@pytest.mark.parametrize(
    ("file", "first", "second"),
    [
        ("analysis/stats/paired_tests.py", "    equal systems ", "    constant differences "),
        ("metrics/intervals.py", "    student ", "    wilson "),
    ],
)
def test_rows_of_tables_stand_on_lines_of_their_own(file, first, second):
    (text, *_) = (text for _, text in docstrings((PACKAGE / file).read_text()))
    lines = text.splitlines()
    assert any(line.startswith(first) for line in lines)
    assert any(line.startswith(second) for line in lines)
