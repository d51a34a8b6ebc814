"""Notebooks of other people in a study are named, and stop nothing else.

tests/book/test_book.py builds a book beside them.
"""

import json

import nbformat
import pytest
from helpers.foreign_notebooks import FOREIGN, KERNEL, parameters, whole, write_foreign
from helpers.notebooks import notebook_of, save

from qwen3nb import paths
from qwen3nb.book import build
from qwen3nb.cli.reference import parameters_text
from qwen3nb.execution.parameters import (
    ParameterError,
    declared_parameters,
    read_notebook,
    read_parameters,
    unread_parameters,
)


@pytest.fixture
def foreign(checkout):
    """A study with all of them."""
    write_foreign(checkout)
    return checkout


def test_the_page_of_parameters_names_them_and_describes_the_others(foreign):
    text = parameters_text()
    assert "## eval\n" in text
    described, _, refused = text.partition("## Not run")
    for name, (_, reason) in FOREIGN.items():
        if reason:
            rows = refused.replace("\\", "").splitlines()
            (line,) = [row for row in rows if f"z-{name} " in row]
            assert reason in line, name
        else:
            assert f"## z-{name}\n" in described, name
    for name in ("z-latin", "z-text.md", "z-percent.py"):
        assert name in refused.replace("\\", "")
    for name in ("z-helper", "README", "z-mac", "z-folder", "z-gone"):
        assert name not in text.replace("\\", "")


def test_run_lists_every_notebook_and_each_refusal_is_one_line(foreign, cli):
    listed = cli("run", "--help")
    assert listed.exit_code == 0, listed.output
    assert "leaderboard" in listed.output
    assert all(f"z-{name}" in listed.output for name in FOREIGN)
    for name, (_, reason) in FOREIGN.items():
        done = cli("run", f"z-{name}", "--help")
        assert (done.exit_code != 0) == bool(reason), (name, done.output)
        if reason:
            assert reason in done.output
            assert len(done.output.strip().splitlines()) == 1
            assert "Traceback" not in done.output
    done = cli("run", paths.notebooks() / "z-text.md")
    assert "jupytext --to ipynb" in done.output


def test_the_book_leaves_out_lessons_that_are_none(foreign, caplog):
    guide = foreign / "notebooks" / "guide"
    guide.mkdir()
    (guide / "mine.ipynb").write_text(FOREIGN["no-parameters"][0])
    (guide / "z-mine.ipynb").write_text(FOREIGN["untyped"][0])
    jobs = [job.notebook for job in build._lessons()]
    assert jobs == ["guide/mine"]
    assert "z-mine.ipynb" in caplog.text


def test_magics_are_no_parameters_and_text_that_looks_like_one_is_kept():
    source = '%load_ext x\nshare: float = 0.5  # a share\nname: str = """\n%s\n"""\n!ls'
    declared = declared_parameters(json.loads(whole(parameters(source), **KERNEL)))
    assert {name: each.default for name, each in declared.items()}["share"] == 0.5
    plain = 'name: str = """\n%s\n"""'
    declared = declared_parameters(json.loads(whole(parameters(plain), **KERNEL)))
    assert declared["name"].default == "\n%s\n"


def test_a_notebook_with_a_mark_of_byte_order_is_read(tmp_path):
    file = tmp_path / "a.ipynb"
    file.write_text(whole(parameters("x: int = 1"), **KERNEL), encoding="utf-8-sig")
    assert read_parameters(file)["x"].default == 1


@pytest.mark.parametrize(
    ("cells", "unread"),
    [
        (["print(width)"], {}),
        (["print(3)"], {"width": "no cell reads it"}),
        (["# width\nprint('width')"], {"width": "no cell reads it"}),
        (["f(width=3); a.width"], {"width": "no cell reads it"}),
        (["width = 5", "print(width)"], {"width": "a cell sets it before it is read"}),
        (["width = width or 5", "print(width)"], {}),
        (["width += 1"], {}),
        (["if x:\n    width = 5", "print(width)"], {}),
        (["def f():\n    return width"], {}),
        (['print(f"{width:.1f}")'], {}),
        (["!run --width {width}"], {}),
        (["%time print(width)"], {}),
        (["print(globals()['width'])"], {}),
        (["%run other.py"], {}),
        (["%%bash\necho $width"], {}),
        (["del width"], {}),
    ],
)
def test_a_parameter_without_effect_is_named(cells, unread):
    nb = notebook_of(*cells, parameters="width: int = 3")
    assert unread_parameters(nb, declared_parameters(nb)) == unread


def test_no_notebook_of_ours_has_a_parameter_without_effect(checkout):
    for name in paths.notebook_names():
        nb = read_notebook(paths.find_notebook(name))
        assert unread_parameters(nb, declared_parameters(nb)) == {}, name


@pytest.mark.integration
def test_a_run_says_which_parameter_no_cell_reads(checkout, cli):
    save(notebook_of("print(width)", parameters="width: int = 3\ndepth: int = 1"), "mine")
    done = cli("run", "mine", "-p", "depth", "9")
    assert done.exit_code == 0
    assert "parameters without effect: depth: no cell reads it" in done.output


def test_nbformat_agrees_on_what_is_a_notebook_of_format_4():
    for name in ("untyped", "magic", "R", "no-parameters"):
        nbformat.reads(FOREIGN[name][0], as_version=4)
    with pytest.raises(ParameterError):
        declared_parameters(nbformat.reads(FOREIGN["untyped"][0], as_version=4))
