"""Pages of failed runs."""

import json
import subprocess
from dataclasses import asdict, replace

import nbformat
import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest
from helpers.notebooks import VERIFY, call, notebook_of, save
from helpers.records import failure, make, moment

from qwen3nb import paths
from qwen3nb.analysis.inventory.collect import load_all_results
from qwen3nb.execution.notebook import NotebookError, finished_page, run_key, run_notebook
from qwen3nb.execution.publish import NotebookRun
from qwen3nb.records.failures import failed_run, failed_runs, forget_failure, note_failure
from qwen3nb.records.store import load_results


def shown(page):
    """Sources and outputs of a page, with its metadata."""
    node = nbformat.read(page, as_version=4)
    nbformat.validate(node)
    sources = "\n".join(cell.source for cell in node.cells if cell.cell_type == "markdown")
    outputs = "\n".join(
        output.get("text") or output["data"]["text/html"]
        for cell in node.cells
        for output in cell.get("outputs", ())
    )
    return sources, outputs, node


@pytest.mark.integration
def test_a_run_that_fails_has_a_page_that_says_so_and_a_success_replaces_it(checkout, capsys):
    path = save(notebook_of("print('before 0.123')", "1 / verify", parameters=VERIFY), "small")
    with pytest.raises(NotebookError, match="a cell failed: ZeroDivisionError") as error:
        run_notebook(path, {"verify": False}, show_progress=False)
    assert "the notebook up to there: " in str(error.value)
    page = checkout / "book" / "runs" / "small.ipynb"
    sources, outputs, node = shown(page)
    assert sources.startswith("# small (failed)\n")
    assert "This run failed" in sources
    assert "ZeroDivisionError: division by zero" in outputs
    assert "more in results/partial/small.ipynb" in outputs
    assert "0.123" not in page.read_text()
    assert node.metadata.qwen3nb.parameters == {"verify": False}
    note = failed_run("small")
    assert note.reason == "ZeroDivisionError: division by zero"
    assert note.parameters == {"verify": False}
    assert finished_page(path, {"verify": False}) is None
    (partial,) = (checkout / "results" / "partial").iterdir()
    assert "before" in partial.read_text()
    assert "did not finish" not in capsys.readouterr().err

    assert run_notebook(path, {"verify": True}, show_progress=False) == page
    (line,) = capsys.readouterr().err.splitlines()
    assert line == (
        "The last run of small did not finish; it starts anew. Stored records and vectors are not "
        "computed again."
    )
    assert "failed" not in page.read_text()
    assert failed_runs() == []
    assert finished_page(path, {"verify": True}) == page


@pytest.mark.integration
def test_an_earlier_page_is_kept_under_a_notice_for_bare_papermill_too(checkout):
    node = notebook_of("print('earlier 0.123')", "assert verify, '<b>no</b>'", parameters=VERIFY)
    node.cells[0].source = "# A page\n\nWhat it is about."
    path = save(node, "small")
    page = run_notebook(path, {"verify": True}, show_progress=False)
    before = shown(page)
    for attempt in (1, 2):
        typed = ("small.ipynb", "-p", "verify", "False")
        done = call(*typed, folder=path.parent, stdin=subprocess.DEVNULL)
        assert done.returncode == 1, attempt
        sources, outputs, node = shown(page)
        assert sources.startswith("# A page\n:::{admonition} A later run failed")
        assert sources.count("A later run failed") == sources.count("What it is about.") == 1
        assert outputs.count("AssertionError: <b>no</b>") == 1
        assert outputs.endswith(before[1])
    assert [cell.source for cell in node.cells[-3:]] == [c.source for c in before[2].cells[-3:]]
    # The page's own run does not count as finished either: it is run again.
    assert node.metadata.qwen3nb.key == run_key(nbformat.read(path, 4), {"verify": True})
    assert finished_page(path, {"verify": True}) is None
    assert run_notebook(path, {"verify": True}, show_progress=False) == page
    assert shown(page)[1] == before[1]


@pytest.mark.integration
def test_a_killed_kernel_is_a_failure(checkout):
    path = save(notebook_of("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"), "small")
    with pytest.raises(NotebookError, match="the kernel died"):
        run_notebook(path, {}, show_progress=False)
    sources, outputs, _ = shown(checkout / "book" / "runs" / "small.ipynb")
    assert "This run failed" in sources
    assert "DeadKernelError: the kernel died" in outputs


def attempt(checkout, **changes):
    page = checkout / "book" / "runs" / "eval-x-smoke.ipynb"
    values = {"checkpoint": "bm25", "tier": "smoke"}
    return NotebookRun(**{"notebook": "eval", "values": values, "page": page, **changes})


def test_a_message_is_cut_in_the_middle_without_colours_and_secrets(checkout, monkeypatch):
    secret = 'hf_"secret"\\secret'  # noqa: S105 - made up
    monkeypatch.setenv("MY_PAT", secret)
    run = attempt(checkout)
    long = f"\x1b[31m401 for {secret}\x1b[0m" + "x" * 99_999 + "last"
    run.fail(notebook_of("1"), "OSError", long)
    message = failed_run("eval-x-smoke").message
    assert message.startswith("401 for [removed]")
    assert message.endswith("last")
    assert len(message) < 5000
    for file in (run.page, paths.results() / "failed" / "eval-x-smoke.json"):
        assert "401 for [removed]" in file.read_text()
        assert "secret" not in file.read_text()
    run.fail(notebook_of("1"))
    assert failed_run("eval-x-smoke").reason == "error: a cell failed"


def test_a_note_is_kept_until_the_run_succeeds_and_records_count(home):
    config = {"checkpoint": "bm25", "tier": "smoke"}
    replace(make("m"), options=config, finished=moment(15)).save()
    file = note_failure(failure())
    assert failed_runs() == [failure()]
    assert failure().reason == "ValueError: two"
    assert failure(message="").reason == "ValueError"
    assert [each.model.label for each in load_results()] == ["m"]
    assert {score.system for score in load_all_results().scores} == {"m"}
    file.write_text(json.dumps({**asdict(failure()), "seconds": "long"}))
    (run,) = failed_runs()
    assert (run.page, run.error) == ("eval-bm25-smoke", "damaged note")
    forget_failure("eval-bm25-smoke")
    assert failed_runs() == []
