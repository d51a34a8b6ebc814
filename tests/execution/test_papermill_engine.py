"""The papermill command on our notebooks and on others, and its completed command line."""

from pathlib import Path

import nbformat
import papermill.cli  # first, as its command does: it loads our engine
import pytest
from click.testing import CliRunner
from helpers.notebooks import call, notebook_of, save

from qwen3nb.execution.papermill_engine import OPTIONS, completed
from qwen3nb.records.failures import failed_runs


@pytest.mark.integration
@pytest.mark.parametrize("outside", [False, True], ids=["notebooks", "outside the study"])
def test_the_bare_papermill_command_works_as_typed(checkout, monkeypatch, outside):
    """With an empty pipe as its input, papermill alone overwrites the source."""
    monkeypatch.delenv("QWEN3NB_HOME")
    node = notebook_of("print('hello', x)")
    if outside:
        node.metadata = {}  # neither ours nor of any kernel
    file = save_in(checkout, node)
    before = file.read_bytes()
    named, folder = (file, checkout.parent) if outside else (file.name, file.parent)
    done = call(named, "-p", "x", "7", folder=folder, input="")
    assert done.returncode == 0, done.stderr
    assert "hello 7" in (checkout / "book" / "runs" / "small-x-7.ipynb").read_text()
    assert file.read_bytes() == before
    assert list((checkout / "results" / "partial").iterdir()) == []


def save_in(study, node):
    file = study / "notebooks" / "small.ipynb"
    nbformat.write(node, file)
    return file


@pytest.mark.parametrize(
    "arguments",
    [("-p", "z", "1"), ("out.ipynb", "-p", "x", "one"), ("-p", "x=1;import os", "1")],
    ids=["undeclared", "another type, with output", "code"],
)
def test_papermill_refuses_what_a_notebook_does_not_declare(checkout, monkeypatch, arguments):
    marker = checkout / "ran"
    save(notebook_of(f"open({str(marker)!r}, 'w')"), "small")
    monkeypatch.chdir(checkout / "notebooks")
    done = CliRunner().invoke(papermill.cli.papermill, completed(["small.ipynb", *arguments]))
    assert isinstance(done.exception, SystemExit)  # not a traceback
    assert done.exit_code != 0
    assert "Error: " in done.output
    assert not marker.exists()
    assert not (checkout / "book" / "runs").exists()


@pytest.mark.integration
def test_an_explicit_output_stays_papermills_and_the_book_is_refused(checkout, monkeypatch):
    save(notebook_of("print('hi'); 1 / x"), "small")
    folder = checkout / "notebooks"
    done = call("small.ipynb", "out.ipynb", "-p", "x", "0", folder=folder)
    assert done.returncode == 1
    assert "hi" in (folder / "out.ipynb").read_text()
    assert not (checkout / "book" / "runs").exists()
    assert failed_runs() == []
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(papermill.cli.papermill, ["small.ipynb", "../book/runs/x.ipynb"])
    assert done.exit_code != 0
    assert "holds only finished runs" in done.output


@pytest.mark.integration
def test_other_peoples_notebooks_run_as_ever(tmp_path, monkeypatch):
    node = notebook_of("print(undeclared)")
    del node.metadata["qwen3nb"]
    nbformat.write(node, tmp_path / "theirs.ipynb")
    monkeypatch.chdir(tmp_path)
    papermill.execute_notebook("theirs.ipynb", "out.ipynb", {"undeclared": 3}, progress_bar=False)
    assert '"3\\n"' in (tmp_path / "out.ipynb").read_text()


def test_our_table_of_papermills_options_is_complete():
    from papermill.cli import papermill as command

    takes = {
        option: each.nargs
        for each in command.params
        if each.param_type_name == "option" and not each.is_flag
        for option in each.opts
    }
    assert takes == OPTIONS


@pytest.mark.parametrize(
    ("arguments", "added"),
    [
        (["eval.ipynb"], True),
        (["eval.ipynb", "-p", "tier", "smoke"], True),
        (["-p", "tier", "smoke", "--cwd", ".", "eval.ipynb"], True),
        (["eval.ipynb", "out.ipynb", "-p", "tier", "smoke"], False),
        (["-", "-p", "tier", "smoke"], False),
        (["eval.ipynb", "--help-notebook"], False),
        (["other.ipynb"], False),
        (["--version"], False),
        ([], False),
    ],
)
def test_an_output_is_added_for_our_notebooks_alone(checkout, monkeypatch, arguments, added):
    monkeypatch.chdir(checkout / "notebooks")
    given = completed(arguments)
    assert given[: len(arguments)] == arguments
    assert (len(given) - len(arguments)) == added
    if added:
        assert Path(given[-1]).parent == checkout / "results" / "partial"


def test_a_bare_name_is_looked_up_in_the_notebooks_of_the_checkout(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    named = str(checkout / "notebooks" / "eval.ipynb")
    given = completed(["-p", "tier", "full", "eval.ipynb"])
    assert given[:4] == ["-p", "tier", "full", named]
    assert Path(given[4]).parent == checkout / "results" / "partial"
    for arguments, expected in (
        (["eval.ipynb", "out.ipynb"], [named, "out.ipynb"]),
        (["missing.ipynb"], ["missing.ipynb"]),
        (["folder/eval.ipynb"], ["folder/eval.ipynb"]),
    ):
        assert completed(arguments) == expected
