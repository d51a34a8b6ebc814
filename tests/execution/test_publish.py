"""Turning an executed notebook into a page."""

import nbformat
import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest
from helpers.notebooks import notebook_of

from qwen3nb.execution.publish import NotebookRun, clean, without_empty_sections
from qwen3nb.records.record import Environment
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table


def test_cleaning_drops_widgets_and_progress_and_names_the_page():
    node = notebook_of("a", "b")
    widget = nbformat.v4.new_output(
        "display_data", {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "0%"}
    )
    noise = nbformat.v4.new_output("stream", name="stderr", text=" 10%|#\r 100%|##\nreal warning\n")
    only_noise = nbformat.v4.new_output("stream", name="stderr", text="3it/s\r")
    node.cells[2].outputs = [widget, noise, only_noise]
    cleaned = clean(node, title="m · smoke")
    assert cleaned.cells[0].source == "# m · smoke"
    assert [output.text for output in cleaned.cells[2].outputs] == ["real warning"]
    assert "remove-cell" in cleaned.cells[1].metadata.tags
    assert node.cells[0].source == "# A page"


def notebook(*cells):
    """Make a notebook: Markdown from strings, code from pairs of a source and an output."""
    node = nbformat.v4.new_notebook()
    for cell in cells:
        if isinstance(cell, str):
            node.cells.append(nbformat.v4.new_markdown_cell(cell))
        else:
            data = {"text/plain": cell[1]}
            outputs = [nbformat.v4.new_output("display_data", data)] if cell[1] else []
            node.cells.append(nbformat.v4.new_code_cell(cell[0], outputs=outputs))
    return node


TABLE, NOTHING, LOAD = ("table", "a table"), ("table", ""), ("rows = load()", "")


@pytest.mark.parametrize(
    ("cells", "kept"),
    [
        (["# T", LOAD, "## A", TABLE, "## B", NOTHING], 4),
        (["# T", "## A\n\nSays what it shows.", NOTHING, "## B", TABLE], 3),
        (["# T", "## A", LOAD, "## B", TABLE], 5),  # code that shows nothing by design
        (["# T", "## A", LOAD, NOTHING, "## B", TABLE], 3),
        (["# T", "## A", NOTHING, TABLE], 4),
        (["# T", "## A", NOTHING, "Text of its own."], 4),
        (["# T", "## A", ("table", "None")], 1),
        (["# T", "## A", "### B", NOTHING, "## C", TABLE], 3),  # nothing is left below A
        (["# T", "## A", "### B", TABLE, "### C", NOTHING], 4),
        (["# T", "## A", "Text.", "### B", NOTHING], 3),
        (["# T", NOTHING], 2),
        ([TABLE, "## A", TABLE], 3),
        (["# T", "## A", ("%time x", ""), "## B", TABLE], 5),
    ],
)
def test_a_section_that_shows_nothing_is_not_on_the_page(cells, kept):
    node = notebook(*cells)
    assert len(without_empty_sections(node).cells) == kept
    assert len(node.cells) == len(cells)


def test_a_page_says_what_it_was_made_with(home):
    node = notebook_of("pass")
    NotebookRun("p", {}, home / "book" / "runs" / "p.ipynb").succeed(node, key="k")
    ours = nbformat.read(home / "book" / "runs" / "p.ipynb", as_version=4).metadata.qwen3nb
    assert ours.versions["torch"] == Environment.current().versions["torch"]
    assert set(ours.versions) >= {"qwen3nb", "transformers", "sentence-transformers", "mteb"}
    assert ours.commit == ""  # not a checkout


def test_a_page_has_no_style_but_the_books_and_no_cursor_movements():
    table = Table(("a",), ((Cell("x"),),), caption="c")
    node = notebook_of("a", "b")
    bare = table.to_html()
    glued = {"application/papermill.record/text/html": table._repr_html_()}
    node.cells[2].outputs = [
        nbformat.v4.new_output("display_data", {"text/html": table._repr_html_()}),
        nbformat.v4.new_output("display_data", glued),
        nbformat.v4.new_output("stream", name="stderr", text="\x1b[A\n\x1b[A"),
    ]
    shown = [output.data for output in clean(node).cells[2].outputs]
    assert shown == [{"text/html": bare}, {"application/papermill.record/text/html": bare}]
