"""Turning an executed notebook into a page."""

import nbformat
import papermill  # noqa: F401 - first, as its command does: it loads our engine
from helpers.notebooks import notebook_of

from qwen3nb.execution.publish import clean, is_widget_warning
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


def test_a_section_that_needs_output_is_left_out_without_it():
    node = notebook_of("a", "b", "c")
    first, second, plain = (nbformat.v4.new_markdown_cell(f"## {name}") for name in "xyz")
    for head in (first, second):
        head.metadata["tags"] = ["needs-output"]
    node.cells[2:] = [first, node.cells[2], second, node.cells[3], plain, node.cells[4]]
    node.cells[3].outputs = [nbformat.v4.new_output("stream", text="a table")]
    # Only a progress bar: nothing that the page keeps.
    node.cells[5].outputs = [nbformat.v4.new_output("stream", name="stderr", text="3it/s\r")]
    kept = [cell.source for cell in clean(node).cells[2:]]
    assert kept == ["## x", "a", "## z", "c"]


def test_a_warning_about_missing_widgets_is_known_and_no_other():
    assert is_widget_warning("tqdm/auto.py:21: TqdmWarning: IProgress not found.")
    assert not is_widget_warning("UserWarning: something else")
