"""The output path added to papermill's command line for our notebooks."""

from pathlib import Path

import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest

from qwen3nb.execution.papermill_argv import OPTIONS, completed


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


def test_a_notebook_elsewhere_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "eval.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert completed(["eval.ipynb"]) == ["eval.ipynb"]


def test_a_bare_name_is_looked_up_in_the_notebooks_of_the_checkout(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    named = str(checkout / "notebooks" / "eval.ipynb")
    given = completed(["-p", "tier", "full", "eval.ipynb"])
    assert given[:4] == ["-p", "tier", "full", named]
    assert Path(given[4]).parent == checkout / "results" / "partial"
    assert completed(["eval.ipynb", "out.ipynb"]) == [named, "out.ipynb"]
    assert completed(["eval.ipynb", "--help-notebook"]) == [named, "--help-notebook"]
    lesson = checkout / "notebooks" / "guide" / "caching.ipynb"
    lesson.parent.mkdir()
    lesson.write_text("{}")
    for written in ("guide/caching.ipynb", "notebooks/guide/caching.ipynb"):
        assert Path(completed([written])[0]).resolve() == lesson
        assert len(completed([written])) == 2
    assert completed(["missing.ipynb"]) == ["missing.ipynb"]
    assert completed(["folder/eval.ipynb"]) == ["folder/eval.ipynb"]
