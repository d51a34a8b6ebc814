"""A study of one's own: what `qwen3nb new` writes."""

import json
import tomllib

import nbformat
import pytest
import yaml
from helpers import REPOSITORY

from qwen3nb import paths
from qwen3nb.datasets.custom.queries import read_queries
from qwen3nb.execution.sweep import read_plan
from qwen3nb.study import StudyError, create_study, is_outdated
from qwen3nb.study.copies import MANIFEST


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return create_study(tmp_path_factory.mktemp("s") / "my-study", author="Ada Lovelace")


def test_a_study_holds_the_notebooks_and_the_book_of_this_release(study):
    assert paths.is_study(study)
    for folder in ("notebooks", "book"):
        for file in sorted((study / folder).rglob("*")):
            if file.is_file():
                assert file.read_bytes() == (REPOSITORY / file.relative_to(study)).read_bytes()
    names = {file.name for file in (study / "notebooks").glob("*.ipynb")}
    assert names == {file.name for file in (REPOSITORY / "notebooks").glob("*.ipynb")}
    assert not (study / "book" / "runs").exists()
    assert not list((study / "book" / "guide").glob("*.ipynb"))
    for file in (study / "notebooks").rglob("*.ipynb"):
        assert not any(cell.get("outputs") for cell in nbformat.read(file, 4).cells)


def test_its_own_files_can_be_used_as_they_are(study):
    plan = read_plan(study / "sweep.toml")
    assert plan.models == ("bm25", "random")
    queries = read_queries(study / "queries.toml").queries
    documents = {
        json.loads(line)["id"] for line in (study / "documents.jsonl").read_text().splitlines()
    }
    assert len(queries) == 30
    assert {name for query in queries for name in query.grades} <= documents
    config = yaml.safe_load((study / "_config.yml").read_text())
    assert (config["title"], config["author"]) == ("My study", "Ada Lovelace")
    assert config["qwen3nb"]["license"] == ""  # nobody has chosen one
    assert (study / "README.md").read_text().startswith("# My study\n")
    assert "results/" in (study / ".gitignore").read_text().split()


@pytest.mark.parametrize("title", ['A "quoted": #title', "\\1 back", "x: [y]", "Größe\n- z"])
def test_any_title_is_only_a_title(tmp_path, title):
    study = create_study(tmp_path / "s", title=title)
    assert yaml.safe_load((study / "_config.yml").read_text(encoding="utf-8"))["title"] == title


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(StudyError, match="full exists and is not empty"):
        create_study(tmp_path / "full")
    assert [file.name for file in (tmp_path / "full").iterdir()] == ["mine.txt"]
    (tmp_path / "empty").mkdir()
    assert paths.is_study(create_study(tmp_path / "empty"))


def test_a_wheel_holds_all_that_a_study_needs():
    """Each file that a study gets from the repository is named for the wheel."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    target = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    named = target["force-include"]
    assert all(value == f"qwen3nb/study/template/{key}" for key, value in named.items())
    files = {file for file in (REPOSITORY / "book").iterdir() if file.name not in ("runs", "guide")}
    files |= {f for f in (REPOSITORY / "book" / "guide").iterdir() if f.suffix != ".ipynb"}
    assert {file.relative_to(REPOSITORY).as_posix() for file in files} <= named.keys()


def test_a_notebook_of_another_release_is_known_as_such(tmp_path, monkeypatch):
    study = create_study(tmp_path / "s")
    notebook = study / "notebooks" / "compare.ipynb"
    assert not is_outdated(notebook)
    edited = notebook.read_text().replace("smoke", "fast")
    notebook.write_text(edited)
    assert not is_outdated(notebook)  # edited, but of this release
    manifest = study / MANIFEST
    lines = manifest.read_text().splitlines(keepends=True)
    manifest.write_text("".join(line for line in lines if "compare" not in line))
    assert is_outdated(notebook)
    assert not is_outdated(REPOSITORY / "notebooks" / "compare.ipynb")
    (study / "notebooks" / "mine.ipynb").write_text(edited)
    assert not is_outdated(study / "notebooks" / "mine.ipynb")
