"""The output path added to papermill's command line for our notebooks."""

from pathlib import Path

import papermill  # noqa: F401 - first, as its command does: it loads our engine
import pytest

from qwen3nb.execution.papermill_argv import OPTIONS, with_output


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
    completed = with_output(arguments)
    assert completed[: len(arguments)] == arguments
    assert (len(completed) - len(arguments)) == added
    if added:
        assert Path(completed[-1]).parent == checkout / "results" / "partial"


def test_a_notebook_elsewhere_is_left_alone(tmp_path, monkeypatch):
    (tmp_path / "eval.ipynb").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert with_output(["eval.ipynb"]) == ["eval.ipynb"]
