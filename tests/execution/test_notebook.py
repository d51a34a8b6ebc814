"""Running a notebook: its page, what the page shows, reuse, and what a kernel is given."""

import os
import re
import shutil

import nbformat
import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest
from helpers import REPOSITORY
from helpers.notebooks import notebook_of, save

from qwen3nb.cluster.nodes import sent_environment
from qwen3nb.execution.notebook import NotebookError, run_key, run_notebook
from qwen3nb.execution.parameters import check_parameters, declared_parameters
from qwen3nb.execution.publish import NotebookRun, clean, without_empty_sections
from qwen3nb.hub.errors import status_reason
from qwen3nb.records.record import Environment
from qwen3nb.records.store import load_results
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table
from qwen3nb.utils.secrets import known_secrets


@pytest.mark.integration
def test_a_finished_run_is_published_whole_and_reused(checkout):
    path = save(notebook_of("print(x)", "import sys; print('warn', file=sys.stderr)"), "small")
    page = run_notebook(path, {"x": 5}, show_progress=False)
    assert page == checkout / "book" / "runs" / "small-x-5.ipynb"
    node = nbformat.read(page, as_version=4)
    assert any("5" in str(cell.outputs) for cell in node.cells if cell.cell_type == "code")
    assert node.metadata.qwen3nb.parameters == {"x": 5}
    stamp = page.stat().st_mtime_ns
    assert run_notebook(path, {"x": 5}, show_progress=False).stat().st_mtime_ns == stamp
    assert run_notebook(path, {"x": 5}, fresh=True, show_progress=False) == page
    assert page.stat().st_mtime_ns != stamp
    named = run_notebook(path, {"x": 6}, name="small", show_progress=False)
    assert named == page.with_name("small.ipynb")
    assert list((checkout / "results" / "partial").iterdir()) == []


@pytest.mark.integration
def test_tokens_do_not_reach_the_kernel_or_the_page(checkout, monkeypatch):
    """Not by print, in parts, by a table or an error's message; one is admitted by its name."""
    token, word = "hf_secretsecretsecret", 'cor"rect <horse>'
    for name, value in {"HF_TOKEN": token, "DB_PASS": word, "GH_PAT": "admitted-by-name"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("QWEN3NB_PASS_ENV", "GH_PAT")
    cells = (
        "import html, os, sys; word = 'cor\"rect' + ' <horse>'",
        "print(os.environ.get('HF_TOKEN'), os.environ.get('DB_PASS'), 'hf_' + 'secret' * 3)",
        "print(os.environ['GH_PAT'][:8], end='', flush=True); print(os.environ['GH_PAT'][8:])",
        "from IPython.display import HTML; HTML('<i>' + html.escape(word) + '</i>')",
        "print(word + '\\x1b]52;c;YQ==\\x07', file=sys.stderr)",
        "assert x, word + '\\x1b[31m'",
    )
    path = save(notebook_of(*cells), "s")
    page = run_notebook(path, {}, show_progress=False)
    text = page.read_text()
    assert "None None [removed]" in text
    assert "<i>[removed]</i>" in text
    assert "[removed]\\\\x1b]52;c;YQ==\\\\x07" in text
    with pytest.raises(NotebookError, match=r"AssertionError: \[removed\]\\x1b\[31m"):
        run_notebook(path, {"x": 0}, show_progress=False)
    partial = next((checkout / "results" / "partial").iterdir())
    for file in (page, partial, *(checkout / "results" / "failed").iterdir()):
        assert known_secrets().values.kinds(file.read_text()) == [], file
    assert (os.environ["HF_TOKEN"], os.environ["DB_PASS"]) == (token, word)


@pytest.mark.integration
def test_the_page_of_a_run_has_the_sections_that_show_something(checkout):
    file = run_notebook("eval", {"checkpoint": "bm25"}, show_progress=False)
    assert file == checkout / "book" / "runs" / "eval-bm25-smoke.ipynb"
    assert len(load_results()) == 2
    page = nbformat.read(file, as_version=4)
    text = "\n".join(cell.source for cell in page.cells if cell.cell_type == "markdown")
    kept = ["Is the model sound?", "One query by hand", "Try", "How it was made"]
    assert re.findall("^## (.*)", text, re.MULTILINE) == kept
    questions = ["Everything moderately well, or half of it perfectly?"]  # no pairs of sentences
    questions += ["What do the other metrics say?"]
    assert re.findall("^### (.*)", text, re.MULTILINE) == questions
    outputs = [output for cell in page.cells for output in cell.get("outputs", ())]
    assert not [each for each in outputs if each.get("data", {}).get("text/plain") == "None"]
    assert ">None<" not in "".join(str(each.get("data", "")) for each in outputs)


def test_a_changed_input_is_a_new_run(checkout, make_checkpoint):
    node = nbformat.read(REPOSITORY / "notebooks/eval.ipynb", as_version=4)
    declared = declared_parameters(node)

    def key(**given):
        return run_key(node, check_parameters(declared, given))

    assert key(checkpoint="random") == key(checkpoint="random")
    assert key(checkpoint="random") != key(checkpoint="random", seed=1)
    folder = make_checkpoint(checkout / "runs" / "checkpoint-4", seed=1)
    before = key(checkpoint=str(folder))
    shutil.rmtree(folder)
    make_checkpoint(folder, seed=2)
    assert key(checkpoint=str(folder)) != before
    reader = notebook_of("1", qwen3nb={"reads": "results"})
    first = run_key(reader, {})
    file = checkout / "results" / "m" / "seed_0" / "t.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert run_key(reader, {}) != first


def test_a_page_has_no_widgets_progress_styles_or_cursor_movements():
    node = notebook_of("a", "b")
    table = Table(("a",), ((Cell("x"),),), caption="c")
    glued = "application/papermill.record/text/html"
    widget = {"application/vnd.jupyter.widget-view+json": {}, "text/plain": "0%"}
    noise = ("3it/s\r", "\x1b[A\n\x1b[A", " 10%|#\r 100%|##\nreal warning\n")
    node.cells[2].outputs = [
        *(
            nbformat.v4.new_output("display_data", data)
            for data in (
                widget,
                {"text/html": table._repr_html_()},
                {glued: table._repr_html_()},
            )
        ),
        *(nbformat.v4.new_output("stream", name="stderr", text=text) for text in noise),
    ]
    cleaned = clean(node, title="m · smoke")
    assert cleaned.cells[0].source == "# m · smoke"
    *shown, warning = cleaned.cells[2].outputs
    bare = table.to_html()
    assert [output.data for output in shown] == [{"text/html": bare}, {glued: bare}]
    assert warning.text == "real warning"
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
        (["# T", "## A", LOAD, "## B", TABLE], 5),  # code that shows nothing by design
        (["# T", "## A", LOAD, NOTHING, "## B", TABLE], 3),
        (["# T", "## A", NOTHING, "What the table would say."], 1),
        (["# T", "## A", ("table", "None")], 1),
        (["# T", "## A", "### B", NOTHING, "## C", TABLE], 3),  # nothing is left below A
        (["# T", "## A", ("%time x", ""), "## B", TABLE], 5),
    ],
)
def test_a_section_that_shows_nothing_is_not_on_the_page(cells, kept):
    node = notebook(*cells)
    assert len(without_empty_sections(node).cells) == kept
    assert len(node.cells) == len(cells)


def test_a_page_says_what_it_was_made_with(home):
    NotebookRun("p", {}, home / "book" / "runs" / "p.ipynb").succeed(notebook_of("pass"), key="k")
    ours = nbformat.read(home / "book" / "runs" / "p.ipynb", as_version=4).metadata.qwen3nb
    assert ours.versions["torch"] == Environment.current().versions["torch"]
    assert set(ours.versions) >= {"qwen3nb", "transformers", "sentence-transformers", "mteb"}
    assert ours.commit == ""  # not a checkout


@pytest.mark.parametrize(
    ("notebook", "values", "downloads"),
    [
        ("eval", {"checkpoint": "bm25", "tier": "smoke"}, False),
        ("eval", {"checkpoint": "bm25", "tier": "fast"}, True),
        ("eval", {"checkpoint": "bm25", "tier": "smoke", "tasks": "SciFact"}, True),
        ("eval", {"checkpoint": "bm25+lab/model", "tier": "smoke"}, True),
        ("eval", {"checkpoint": "no such model", "tier": "smoke"}, False),
        ("rerank", {"checkpoint": "bm25", "data": "NFCorpus"}, True),
        ("leaderboard", {"tier": "full"}, False),  # reads records
    ],
)
def test_the_hubs_token_is_for_runs_that_name_something_of_the_hub(
    home, monkeypatch, notebook, values, downloads
):
    monkeypatch.setenv("HF_TOKEN", "made-up-token")
    monkeypatch.setenv("GH_PAT", "made-up-token")
    nb = nbformat.read(REPOSITORY / "notebooks" / f"{notebook}.ipynb", as_version=4)
    environment = NotebookRun(notebook, values, None).environment(nb)
    assert ("HF_TOKEN" in environment) is downloads
    assert environment["QWEN3NB_WITHHELD"] == ("" if downloads else "HF_TOKEN")
    assert "GH_PAT" not in environment
    assert environment["PATH"] == os.environ["PATH"]


def test_a_refused_request_names_the_token_that_the_notebook_does_not_see(monkeypatch):
    monkeypatch.setenv("QWEN3NB_WITHHELD", "HF_TOKEN")
    assert status_reason(401).endswith("run it with `--pass-env HF_TOKEN`")
    assert "--pass-env" not in status_reason(404)


def test_an_admitted_variable_travels_to_the_nodes_of_a_cluster(monkeypatch):
    for name, value in (("GH_PAT", "p"), ("DB_PASS", "q"), ("QWEN3NB_PASS_ENV", "GH_PAT")):
        monkeypatch.setenv(name, value)
    sent = sent_environment()
    assert (sent["GH_PAT"], sent["QWEN3NB_PASS_ENV"]) == ("p", "GH_PAT")
    assert "DB_PASS" not in sent
