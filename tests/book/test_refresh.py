"""A bare `jupyter-book build` runs what is due, lists a reader's pages, and says what failed."""

import os
import subprocess
import sys

import pytest
from helpers.notebooks import PAPERMILL, notebook_of, save
from helpers.records import make

from qwen3nb import paths
from qwen3nb.analysis.comparison.against_baseline import against_baseline
from qwen3nb.book import build
from qwen3nb.execution.old_pages import is_old
from qwen3nb.execution.publish import set_notice
from qwen3nb.records.store import load_results
from qwen3nb.report.evaluation.run_trace import RunTrace

OWN = ("data", "leaderboard", "explorer", "compare", "status")


def started(command, folder):
    environment = {name: value for name, value in os.environ.items() if name != "QWEN3NB_HOME"}
    done = subprocess.run(
        command, cwd=folder, env=environment, text=True, capture_output=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.integration
def test_a_bare_build_shows_what_there_is_from_wherever_it_is_started(
    checkout, tmp_path, monkeypatch
):
    monkeypatch.setenv("PYTHONWARNINGS", "")
    for name in OWN:
        parameters = 'tier: str = "smoke"  # a tier' if name in build._TIERED else "x: int = 1  # x"
        node = notebook_of(f"'shows {name}'", parameters=parameters)
        node.metadata["qwen3nb"] = {"reads": "results", "always": name == "status"}
        save(node, name)
    mine = notebook_of("'load_results', 6 * 7")
    mine.metadata = {}  # neither ours nor of any kernel
    mine.cells = [mine.cells[0], mine.cells[2]]  # and without parameters
    mine.cells[0].source = "# Of my own"
    save(mine, "mine")
    (checkout / "book" / "index.md").write_text("# A book\n\n```{reading-path}\n```\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    status, output = started([PAPERMILL, str(checkout / "notebooks" / "mine.ipynb")], elsewhere)
    assert status == 0, output
    program = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build"]
    book = [*program, str(checkout / "book"), "--keep-going", "-n"]

    make("bm25").save()
    status, output = started([*book, "-W"], elsewhere)
    assert status == 0, output
    runs, html = checkout / "book" / "runs", checkout / "_build" / "html"
    assert {each.stem for each in runs.glob("*.ipynb")} == {"data", "leaderboard", "mine", "status"}
    index = (html / "index.html").read_text()
    assert "Your own notebooks" in index
    assert "Of my own" in index
    first = {each.name: each.stat().st_mtime_ns for each in runs.glob("*.ipynb")}

    make("random").save()
    save(notebook_of("1 / 0", parameters='tier: str = "smoke"  # a tier'), "compare")
    status, output = started([*book, "-W"], elsewhere)
    assert status != 0
    assert "the page compare failed: ZeroDivisionError" in output
    again = {each.name: each.stat().st_mtime_ns for each in runs.glob("*.ipynb")}
    assert {name for name in first if first[name] == again[name]} == set()
    assert "This run failed" in (html / "runs" / "compare.html").read_text()


@pytest.mark.parametrize(
    ("others", "named", "expected"),
    [
        ([], "", []),
        (["mine"], "", []),  # no reference model
        (["random"], "", ["random"]),
        (["random", "bm25"], "", ["bm25"]),
        (["random", "bm25"], "random", ["random"]),
        (["bm25", "mine"], "nothing", ["bm25"]),
    ],
)
def test_the_page_of_a_model_is_old_if_its_baseline_is_another(home, others, named, expected):
    own = make("m")
    trace = RunTrace(tuple(against_baseline([own], [])))
    made = {"parameters": {"baseline": named}, "baselines": []}
    page = {
        "metadata": {"qwen3nb": made},
        "cells": [{"outputs": [{"data": trace._repr_mimebundle_()}]}],
    }
    assert not is_old(page)
    for label in others:
        make(label).save()
    made["baselines"] = baselines = trace.baselines(load_results(), named=named)
    assert [name for _, name, _ in baselines] == expected
    assert not is_old(page)
    for label in expected:
        make(label, scores=(0.5, 0.5, 0.5), finished="2027-01-01").save()
    assert is_old(page) == bool(expected)


def test_a_notice_is_replaced_and_removed(home):
    page = save(notebook_of("1"), "page")
    before = page.read_text()
    for text in ("made before 2 records", "made before 3 records"):
        set_notice(page, text)
        assert page.read_text().count("made before") == 1
        assert text in page.read_text()
    set_notice(page, "")
    assert page.read_text().split() == before.split()
    assert paths.notebooks() in page.parents
