"""Paths in parameters are kept relative to the study, and read again from anywhere."""

from pathlib import Path

import nbformat
import pytest
from helpers.notebooks import call, notebook_of, save

from qwen3nb import paths
from qwen3nb.book import build
from qwen3nb.execution.parameters import check_parameters, read_parameters
from qwen3nb.execution.study_paths import (
    page_values_in_study,
    path_from_root,
    relative_to_study,
    relative_to_working_directory,
)
from qwen3nb.execution.sweep import Job

OUTPUTS = 'outputs: str = ""  # a folder'


@pytest.fixture
def study(checkout, make_checkpoint, monkeypatch):
    """A study with a model and outputs; the working directory is its ``notebooks/``."""
    make_checkpoint(checkout / "runs" / "X")
    (checkout / "outputs" / "rank_only" / "seed_1").mkdir(parents=True)
    (checkout / "data" / "beir").mkdir(parents=True)
    (checkout / "prompts.toml").write_text("")
    monkeypatch.chdir(checkout / "notebooks")
    return checkout


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"outputs": "../outputs"}, "outputs"),
        ({"outputs": "../outputs/"}, "outputs"),
        ({"outputs": "{root}/outputs"}, "outputs"),
        ({"outputs": "outputs"}, "outputs"),  # looked up from the study, too
        ({"outputs": "../nowhere"}, "../nowhere"),
        ({"outputs": "{root}/../elsewhere"}, "{elsewhere}"),
        ({"output_dir": "../new"}, "new"),  # need not exist
        ({"output_dir": "new"}, "notebooks/new"),
        ({"checkpoint": "../runs/X"}, "runs/X"),
        ({"checkpoint": "bm25+../runs/X"}, "bm25+runs/X"),
        ({"checkpoint": "bm25"}, "bm25"),
        ({"checkpoint": "org/model"}, "org/model"),
        ({"checkpoint": "api:http://host/v1#m"}, "api:http://host/v1#m"),
        ({"models": "bm25,../runs/X"}, "bm25,runs/X"),
        ({"candidates": "bm25,../runs/X"}, "bm25,runs/X"),
        ({"old": "in-use=../runs/X"}, "in-use=runs/X"),
        ({"new": "both=bm25+../runs/X"}, "both=bm25+runs/X"),
        ({"new": "api:http://host/v1?a=b#m"}, "api:http://host/v1?a=b#m"),
        ({"data": "SciFact,../data/beir"}, "SciFact,data/beir"),
        ({"prompts": "../prompts.toml"}, "prompts.toml"),
        ({"prompts": "15"}, "15"),
        ({"prompts": '{"query": "a, b/c: "}'}, '{"query": "a, b/c: "}'),
        ({"training": "demo"}, "demo"),
        ({"tier": "smoke"}, "smoke"),
    ],
)
def test_a_path_is_kept_relative_to_the_study(study, tmp_path, given, expected):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    names = {"root": str(study), "elsewhere": str(elsewhere)}
    ((name, text),) = given.items()
    for mark, path in names.items():
        text = text.replace(f"{{{mark}}}", path)
        expected = expected.replace(f"{{{mark}}}", path)
    relative = relative_to_study({name: text})[name]
    assert relative == expected
    # From anywhere it is the same path.
    if Path(text).exists():
        assert path_from_root(relative).samefile(text)
    here = relative_to_working_directory({name: relative})
    assert relative_to_study(here) == {name: relative}


def test_a_name_that_is_also_a_folder_here_stays_the_name(study):
    (study / "notebooks" / "bm25").mkdir()
    assert relative_to_study({"checkpoint": "bm25"}) == {"checkpoint": "bm25"}
    assert relative_to_study({"data": "bm25"}) == {"data": "notebooks/bm25"}


def test_a_link_in_the_study_stays_a_link(study, tmp_path):
    (tmp_path / "disk").mkdir()
    (study / "large").symlink_to(tmp_path / "disk")
    assert relative_to_study({"outputs": "../large"}) == {"outputs": "large"}


def test_pages_of_earlier_releases_are_read_as_seen_from_the_notebooks(study, monkeypatch):
    monkeypatch.chdir(study)
    old = {"outputs": "../outputs", "checkpoint": "../runs/X", "seed": 0}
    assert page_values_in_study(old) == {"outputs": "outputs", "checkpoint": "runs/X", "seed": 0}


def test_parameters_are_checked_where_they_lie(study, monkeypatch, tmp_path):
    declared = read_parameters(study / "notebooks" / "interference.ipynb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QWEN3NB_HOME", str(study))
    assert check_parameters(declared, {"outputs": "outputs"})["outputs"] == "outputs"
    with pytest.raises(ValueError, match="no such folder"):
        check_parameters(declared, {"outputs": "nowhere"})


@pytest.mark.integration
def test_a_page_made_in_notebooks_is_made_again_from_anywhere(study, monkeypatch, tmp_path):
    cell = "import os; print(sorted(os.listdir(outputs)), x)"
    nb = notebook_of(cell, parameters=f"{OUTPUTS}\nx: int = 1", qwen3nb={"reads": "results"})
    save(nb, "mine")
    monkeypatch.delenv("QWEN3NB_HOME")
    done = call("mine.ipynb", "-p", "outputs", "../outputs", folder=study / "notebooks")
    assert done.returncode == 0, done.stderr
    monkeypatch.chdir(study)
    (page,) = paths.book_runs().glob("mine*.ipynb")
    made = nbformat.read(page, 4).metadata["qwen3nb"]
    assert made["parameters"] == {"outputs": "outputs", "x": 1}
    moved = study.rename(tmp_path / "moved")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("QWEN3NB_HOME", str(moved))
    (job,) = build._published({})
    assert job.finished()  # a move alone changes nothing
    (moved / "outputs" / "later").mkdir()
    (moved / "outputs" / "later" / "config.yaml").write_text("")
    assert not job.finished()
    (outcome,) = build.sweep([job], show_progress=False)
    assert outcome.status == "done", outcome.reason
    (page,) = paths.book_runs().glob("mine*.ipynb")
    assert "['later', 'rank_only'] 1" in page.read_text()


@pytest.mark.parametrize("gone", ["outputs", "notebook", "parameter", "not a notebook"])
def test_a_page_that_cannot_be_made_again_says_so_and_stops_nothing(study, monkeypatch, gone):
    nb = notebook_of("outputs", parameters=OUTPUTS, qwen3nb={"reads": "results"})
    source = save(nb, "mine")
    monkeypatch.chdir(study)
    page = paths.book_runs() / "mine-outputs-outputs.ipynb"
    page.parent.mkdir(parents=True)
    made = {"notebook": "mine", "parameters": {"outputs": "outputs"}, "reads": "results"}
    nbformat.write(notebook_of("outputs", qwen3nb=made), page)
    (job,) = build._published({})
    assert job == Job("mine", {"outputs": "outputs"}, page.stem)
    if gone == "outputs":
        (study / "outputs").rename(study / "away")
    elif gone == "notebook":
        source.rename(study / "away.ipynb")
    elif gone == "parameter":
        save(notebook_of("1", qwen3nb={"reads": "results"}), "mine")
    else:
        source.write_text("<<<<<<< HEAD\n")
    assert list(build._published({})) == []
    text = page.read_text()
    assert "This page cannot be made again" in text
    assert {
        "outputs": "outputs 'outputs': no such folder",
        "notebook": "no notebook 'mine'",
        "parameter": "unknown parameter 'outputs'",
        "not a notebook": "is not a notebook",
    }[gone] in text
    if gone == "outputs":  # the notice goes when the folder is back
        (study / "away").rename(study / "outputs")
        assert list(build._published({})) == [job]
        assert "cannot be made again" not in page.read_text()
