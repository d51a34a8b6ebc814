"""Notebooks of other people in a study are named, and stop nothing else."""

import json

import nbformat
import pytest
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

KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
R = {"kernelspec": {"name": "ir", "display_name": "R", "language": "R"}}
JULIA = {"language_info": {"name": "julia"}}


def cell(source, **metadata):
    return {"cell_type": "code", "source": source, "metadata": metadata, "outputs": []}


def parameters(source):
    return cell(source, tags=["parameters"])


def whole(*cells, **metadata):
    content = {"nbformat": 4, "nbformat_minor": 4, "metadata": metadata, "cells": [*cells]}
    return json.dumps(content)


# By name: the text of the file, and the reason on the page; empty for one that is a page's source.
FOREIGN = {
    "untyped": (whole(parameters("greeting = 'hello'"), **KERNEL), "expected a typed parameter"),
    "magic": (whole(parameters("%matplotlib inline\nshare: float = 0.5"), **KERNEL), ""),
    "shell": (whole(parameters("!pip list \\\n  -v\nx: int = 1\nprint?"), **KERNEL), ""),
    "help": (whole(parameters("x: int = 1\nx?\n?x"), **KERNEL), ""),
    "cell-magic": (whole(parameters("%%bash\nx=1"), **KERNEL), "expected a typed parameter"),
    "assigned": (whole(parameters("x: int = !ls"), **KERNEL), "is not Python"),
    "R": (whole(parameters("share <- 0.5"), **R), "its parameters are in R"),
    "julia": (whole(parameters("share = 1//2"), **JULIA), "its parameters are in julia"),
    "R-alone": (whole(cell("x <- 1"), **R), ""),
    "format-3": (
        json.dumps({"nbformat": 3, "metadata": {}, "worksheets": [{"cells": []}]}),
        "is a notebook of format 3",
    ),
    "no-parameters": (whole(cell("1"), **KERNEL), ""),
    "two": (whole(parameters("x: int = 1"), parameters("y: int = 1")), "expected one cell"),
    "no-metadata": (json.dumps({"cells": [{"cell_type": "code", "source": "1"}]}), ""),
    "null-metadata": (
        json.dumps({"metadata": None, "cells": [{"cell_type": "code", "metadata": None}]}),
        "",
    ),
    "odd-metadata": (whole(cell("1", tags=None), kernelspec=None, qwen3nb=True), ""),
    "literal": (whole(parameters("x: int = 2 * 3")), "expected a typed parameter"),
    "mistyped": (whole(parameters("x: int = None")), "expected a typed parameter"),
    "empty": ("", "is not a notebook"),
    "conflict": ("<<<<<<< HEAD\n{}", "is not a notebook"),
    "deep": ("[" * 100_000, "is not a notebook"),
    "no-cells": ("{}", "it has no cells"),
    "cells-of-text": ('{"cells": ["a"]}', "a cell is not one"),
    "html": ("<!doctype html><title>404</title>", "is not a notebook"),
}


@pytest.fixture
def foreign(checkout):
    """A study with all of them, never run, and files that are none."""
    for name, (text, _) in FOREIGN.items():
        (checkout / "notebooks" / f"z-{name}.ipynb").write_text(text)
    (checkout / "notebooks" / "z-latin.ipynb").write_bytes("{é}".encode("latin-1"))
    (checkout / "notebooks" / "z-folder.ipynb").mkdir()
    (checkout / "notebooks" / "._z-mac.ipynb").write_bytes(b"\x00\x05\x16\x07")
    (checkout / "notebooks" / "z-gone.ipynb").symlink_to("nowhere.ipynb")
    text = "---\njupyter:\n  jupytext:\n    text_representation: {}\n---\n# A\n"
    (checkout / "notebooks" / "z-text.md").write_text(text)
    (checkout / "notebooks" / "z-percent.py").write_text("# %% [markdown]\n# # A\n# %%\n1\n")
    (checkout / "notebooks" / "z-helper.py").write_text("def helper():\n    return 1\n")
    (checkout / "notebooks" / "README.md").write_text("# Notebooks\n\njupytext: no\n")
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


@pytest.mark.integration
def test_the_book_builds_beside_them(foreign, cli):
    pytest.importorskip("jupyter_book", reason="extra book is not installed")
    done = cli("book")
    assert done.exit_code == 0, done.output
    page = foreign / "_build" / "html" / "reference" / "parameters.html"
    assert "expected a typed parameter" in page.read_text()


def test_nbformat_agrees_on_what_is_a_notebook_of_format_4():
    for name in ("untyped", "magic", "R", "no-parameters"):
        nbformat.reads(FOREIGN[name][0], as_version=4)
    with pytest.raises(ParameterError):
        declared_parameters(nbformat.reads(FOREIGN["untyped"][0], as_version=4))
