"""The code of a page of results is in one fold at its end."""

from types import SimpleNamespace

import pytest

pytest.importorskip("sphinx", reason="extra book is not installed")

from docutils import nodes
from docutils.utils import new_document

from qwen3nb.book.code_fold import CodeFold


def page(*cells):
    """A page with a title, and cells: the code of each, and its output if there is one."""
    document = new_document("page")
    section = nodes.section("", nodes.title(text="Scores"))
    for code, output in cells:
        cell = nodes.container(nb_element="cell_code", hide_mode="input")
        source = nodes.container("", nodes.literal_block(text=code), nb_element="cell_code_source")
        cell += source
        if output:
            cell += nodes.container("", nodes.paragraph(text=output), nb_element="cell_code_output")
        section += cell
    document += section
    return document


def folded(document, name):
    transform = CodeFold(document)
    transform.document.settings.env = SimpleNamespace(docname=name)
    transform.run()
    return [node.astext().strip() for node in document.children[0].children]


def test_the_code_of_all_cells_stands_behind_their_outputs():
    texts = folded(page(("import q", ""), ("board.table()", "0.627")), "runs/leaderboard")
    assert texts[:2] == ["Scores", "0.627"]  # nothing is left of a cell without an output
    assert texts[2].startswith('<details class="q-code">')
    assert texts[3:] == ["import q", "board.table()", "</details>"]


def test_lessons_keep_their_code_and_pages_without_code_have_no_fold():
    assert folded(page(("1 + 1", "2")), "guide/caching") == ["Scores", "1 + 1\n\n2"]
    assert folded(page(), "runs/card") == ["Scores"]
