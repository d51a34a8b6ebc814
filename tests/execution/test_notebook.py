"""Running a notebook: name and key of the page, publication, reuse."""

import os
import re
import shutil

import nbformat
import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest
from helpers import REPOSITORY
from helpers.notebooks import notebook_of, save

from qwen3nb.execution import notebook as notebooks
from qwen3nb.execution.notebook import NotebookError, run_notebook
from qwen3nb.execution.parameters import check_parameters, declared_parameters
from qwen3nb.execution.sweep import Job, sweep
from qwen3nb.records.store import load_results
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
    assert run_notebook(path, {"x": 6}, show_progress=False).name == "small-x-6.ipynb"
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
def test_the_page_of_a_run_has_the_sections_that_show_something_and_is_reused(checkout):
    jobs = [Job("eval", {"checkpoint": "bm25"})]
    for status in ("done", "reused"):
        (outcome,) = sweep(jobs, show_progress=False)
        assert outcome.status == status, outcome.log.read_text()
    assert len(load_results()) == 2
    page = nbformat.read(checkout / "book" / "runs" / "eval-bm25-smoke.ipynb", as_version=4)
    text = "\n".join(cell.source for cell in page.cells if cell.cell_type == "markdown")
    kept = "Scores, One query by hand, Distribution of the scores, All metrics, Sanity checks, "
    assert ", ".join(re.findall("^## (.*)", text, re.MULTILINE)) == f"{kept}Plan, Provenance"
    outputs = [output for cell in page.cells for output in cell.get("outputs", ())]
    assert not [each for each in outputs if each.get("data", {}).get("text/plain") == "None"]
    assert ">None<" not in "".join(str(each.get("data", "")) for each in outputs)


def test_a_changed_input_is_a_new_run(checkout, make_checkpoint):
    node = nbformat.read(REPOSITORY / "notebooks/eval.ipynb", as_version=4)
    declared = declared_parameters(node)

    def key(**given):
        return notebooks.run_key(node, check_parameters(declared, given))

    assert key(checkpoint="random") == key(checkpoint="random")
    assert key(checkpoint="random") != key(checkpoint="random", seed=1)
    folder = make_checkpoint(checkout / "runs" / "checkpoint-4", seed=1)
    before = key(checkpoint=str(folder))
    shutil.rmtree(folder)
    make_checkpoint(folder, seed=2)
    assert key(checkpoint=str(folder)) != before
    reader = notebook_of("1", qwen3nb={"reads": "results"})
    first = notebooks.run_key(reader, {})
    file = checkout / "results" / "m" / "seed_0" / "t.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    assert notebooks.run_key(reader, {}) != first
