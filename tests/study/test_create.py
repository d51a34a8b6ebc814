"""A study of one's own: what `qwen3nb new` writes, and where commands look for it."""

import json
import tomllib

import nbformat
import pytest
import yaml
from click.testing import CliRunner
from helpers import REPOSITORY

from qwen3nb import paths
from qwen3nb.cli.main import main
from qwen3nb.datasets.custom.queries import read_queries
from qwen3nb.execution.sweep_plan import read_plan
from qwen3nb.study import create
from qwen3nb.study.create import StudyError, create_study


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return create_study(tmp_path_factory.mktemp("s") / "my-study", author="Ada Lovelace")


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A working directory in no study."""
    for name in ("QWEN3NB_HOME", "QWEN3NB_CACHE", "QWEN3NB_RESULTS", "QWEN3NB_BOOK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    (tmp_path / "outside").mkdir()
    monkeypatch.chdir(tmp_path / "outside")
    return tmp_path / "outside"


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
    assert plan.checkpoints == ("bm25", "random")
    queries = read_queries(study / "queries.toml").queries
    documents = {
        json.loads(line)["id"] for line in (study / "documents.jsonl").read_text().splitlines()
    }
    assert len(queries) == 30
    assert {name for query in queries for name in query.grades} <= documents
    config = yaml.safe_load((study / "_config.yml").read_text())
    assert (config["title"], config["author"]) == ("My study", "Ada Lovelace")
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


def test_an_installation_without_notebooks_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(create, "__file__", str(tmp_path / "a" / "b" / "create.py"))
    with pytest.raises(StudyError, match="this installation is incomplete"):
        create_study(tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_wheel_holds_all_that_a_study_needs():
    """Each file that a study gets from the repository is named for the wheel."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    target = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    named = target["force-include"]
    assert all(value == f"qwen3nb/study/template/{key}" for key, value in named.items())
    made = ("runs", "guide")
    for file in (REPOSITORY / "book").iterdir():
        if file.name not in made:
            assert f"book/{file.name}" in named
    for file in (REPOSITORY / "book" / "guide").iterdir():
        if file.suffix != ".ipynb":
            assert f"book/guide/{file.name}" in named


@pytest.mark.parametrize(
    "command", ["verify", "eval --checkpoint bm25", "book", "sweep --checkpoint bm25"]
)
def test_outside_a_study_commands_that_write_refuse_with_the_way_out(outside, command):
    done = CliRunner().invoke(main, command.split())
    assert done.exit_code != 0
    assert "`qwen3nb new my-study`" in done.output
    assert "Traceback" not in done.output
    assert list(outside.iterdir()) == []


def test_the_folders_inside_and_outside_of_a_study(study, outside, monkeypatch):
    assert paths.root() == outside
    assert paths.cache() == outside.parent / "user" / "qwen3nb"
    with pytest.raises(paths.NoStudyError, match="QWEN3NB_HOME"):
        paths.results()
    done = CliRunner().invoke(main, ["new", "my-study", "--title", "T"])
    assert done.exit_code == 0, done.output
    assert "cd my-study" in done.output
    assert paths.is_study(outside / "my-study")
    monkeypatch.chdir(study / "notebooks")
    assert (paths.results(), paths.cache()) == (study / "results", study / ".cache")
