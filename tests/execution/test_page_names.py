"""What tells pages apart: names, titles, commands."""

import re
import shlex
import shutil
from pathlib import Path

import nbformat
import pytest
from helpers import REPOSITORY
from helpers.records import make, tier_records

from qwen3nb.cli.main import main
from qwen3nb.execution.page_names import page_command, page_name, page_title
from qwen3nb.execution.parameters import read_parameters


def source(notebook):
    return REPOSITORY / "notebooks" / f"{notebook}.ipynb"


def values(notebook, given):
    declared = read_parameters(source(notebook))
    return {name: given.get(name, parameter.default) for name, parameter in declared.items()}


def name(notebook, **given):
    return page_name(notebook, values(notebook, given), read_parameters(source(notebook)))


def title(notebook, **given):
    return page_title(nbformat.read(source(notebook), as_version=4), values(notebook, given))


def test_pages_of_different_runs_have_different_names(home, encoder_folder):
    shutil.copytree(encoder_folder, home / "runs" / "a" / "encoder")
    names = [
        name("eval", checkpoint="random"),
        name("eval", checkpoint="random", seed=1),
        name("eval", checkpoint="random:64"),
        name("eval", checkpoint="random", tier="pydocs"),
        name("eval", checkpoint="runs/a/encoder"),
        name("eval", checkpoint="runs/a/encoder", pooling="last"),
        name("eval", checkpoint=str(encoder_folder)),
    ]
    assert len(set(names)) == len(names)
    assert names[0] == "eval-random-smoke"
    assert names[4] == "eval-a-encoder-smoke"
    assert all(re.fullmatch("[A-Za-z0-9.-]+", each) for each in names)
    many = [",".join(f"SomeTaskRetrieval{i}" for i in range(top)) for top in (40, 41)]
    first, second = (name("compare", task=tasks) for tasks in many)
    assert first != second
    assert max(map(len, (first, second))) <= 120
    (home / "runs" / "mine").mkdir()
    mine = name("training", outputs=str(home / "runs" / "mine"))
    assert mine == "training-outputs-mine"


def test_only_the_tier_that_the_book_shows_has_the_plain_names(home):
    assert [name(page) for page in ("compare", "leaderboard")] == ["compare", "leaderboard"]
    assert name("compare", tier="fast") == "compare-fast"
    make("m").save()
    for record in tier_records("m", tier="fast"):
        record.save()
    assert name("compare") == "compare-smoke"
    assert name("compare", tier="fast") == "compare"
    assert name("data", tier="pydocs") == "data-pydocs"


@pytest.mark.parametrize(
    ("notebook", "given", "expected"),
    [
        ("compare", {"task": "SciFact,STS12"}, "compare-SciFact-STS12"),
        ("compare", {"metric": "MRR@10", "alpha": 0.1}, "compare-metric-MRR-10-alpha-0.1"),
        ("status", {"verify": False}, "status"),
    ],
)
def test_a_page_of_other_parameters_has_a_name_of_its_own(home, notebook, given, expected):
    assert name(notebook, **given) == expected


@pytest.mark.parametrize(
    ("notebook", "given", "expected"),
    [
        ("compare", {}, None),
        ("compare", {"tier": "fast"}, "Comparison of models · fast"),
        ("compare", {"task": "a,b,c,d,e"}, "Comparison of models · a, b, c and 2 more"),
        ("eval", {"checkpoint": "bm25"}, "bm25 · smoke"),
        ("eval", {"checkpoint": "bm25", "limit": 2}, "bm25 · smoke · limit 2"),
        ("eval", {"checkpoint": "bm25", "tasks": "SciFact", "cache": False}, "bm25 · SciFact"),
        ("eval", {"checkpoint": "bm25", "data": "/x/beir/scifact,/y/a_b"}, "bm25 · scifact, a\\_b"),
    ],
)
def test_a_title_says_what_is_not_as_usual(home, notebook, given, expected):
    heading = nbformat.read(source(notebook), as_version=4).cells[0].source.split("\n")[0]
    if expected:
        expected = expected.replace("Comparison of models", heading.removeprefix("# "))
    assert title(notebook, **given) == expected


@pytest.mark.parametrize(
    ("notebook", "given"),
    [
        ("compare", {"task": "SciFact,a b'c", "tier": "fast", "alpha": 0.01}),
        ("eval", {"checkpoint": "runs/a b/$(touch x)", "limit": 5, "cache": False}),
        ("eval", {"checkpoint": "x", "append_eos": True, "prefix": '[R] "'}),
        ("training", {"outputs": "--help"}),
    ],
)
def test_the_command_of_a_page_gives_its_parameters_back(notebook, given, monkeypatch):
    declared = read_parameters(source(notebook))
    line = page_command(notebook, {**values(notebook, given), "retired": 1}, declared)
    runs = []
    monkeypatch.setenv("QWEN3NB_HOME", str(REPOSITORY))
    monkeypatch.setattr(
        "qwen3nb.execution.notebook.run_notebook",
        lambda file, given, **_: runs.append((Path(file).stem, given)) or Path("page"),
    )
    program, *words = shlex.split(line)
    assert program == "qwen3nb"
    main(words, standalone_mode=False)
    assert runs == [(notebook, given)]
    assert len(words) < 4 * (len(given) + 1)  # defaults are left out
