"""`qwen3nb new --update`: notebooks of a later release, and what the study's owner has changed."""

import json
import shutil

import pytest
from click.testing import CliRunner
from helpers import REPOSITORY

from qwen3nb import study as studies
from qwen3nb.cli.main import main
from qwen3nb.study import StudyError, create_study
from qwen3nb.study import update as updates
from qwen3nb.study.copies import (
    MANIFEST,
    Copies,
    cell_part,
    copies_of,
    notebook_bytes,
    parse_notebook,
    read_copies,
    released_copies,
)
from qwen3nb.study.merge import merge_notebook
from qwen3nb.study.update import Action, plan_update

NOTEBOOK = "notebooks/compare.ipynb"
PARAMETERS = """tier: str = "smoke"  # smoke or fast
models: str = ""  # labels
"""


def cell(name, source, kind="code", tags=()):
    metadata = {"tags": list(tags)} if tags else {}
    return {"id": name, "cell_type": kind, "metadata": metadata, "source": source}


def notebook(*cells):
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {
        "cells": list(cells),
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


EARLIER = notebook(
    cell("title", "# Comparison", "markdown"),
    cell("values", PARAMETERS, tags=["parameters"]),
    cell("table", "q.tables.comparison(models)"),
    cell("note", "A note.", "markdown"),
)
LATER = notebook(
    cell("title", "# Comparison", "markdown"),
    cell("values", PARAMETERS + 'baseline: str = ""  # a label\n', tags=["parameters"]),
    cell("table", "q.compare(models)"),
    cell("note", "A note.", "markdown"),
    cell("how", "How it was computed.", "markdown"),
)


def write_release(folder, compare):
    """A release with one notebook, and some files of the book."""
    examples = [f"notebooks/guide/tools/{name}" for name in ("queries.toml", "tools.jsonl")]
    pages = ["_toc.yml", "index.md", "names.md", "reference/tiers.md"]
    for name in ("_config.yml", *examples, *(f"book/{page}" for page in pages)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(REPOSITORY / name, folder / name)
    (folder / NOTEBOOK).write_bytes(notebook_bytes(compare))


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A study of the earlier release, while the later one is installed."""
    write_release(tmp_path / "earlier", EARLIER)
    write_release(tmp_path / "later", LATER)
    monkeypatch.setattr(studies, "template_folder", lambda: tmp_path / "earlier")
    folder = create_study(tmp_path / "study")
    monkeypatch.setattr(studies, "template_folder", lambda: tmp_path / "later")
    return folder


def changed(study, change):
    """Change the notebook of a study as its owner would."""
    content = parse_notebook((study / NOTEBOOK).read_bytes())
    change(content["cells"])
    (study / NOTEBOOK).write_bytes(notebook_bytes(content))


def updated(study):
    """Update a study; return the files by what was done with them, and the notebook's sources."""
    plan = plan_update(study)
    plan.apply()
    cells = parse_notebook((study / NOTEBOOK).read_bytes())["cells"]
    return {file.path: file for file in plan.files}, {each["id"]: each["source"] for each in cells}


def sources(notebook):
    return {each["id"]: each["source"] for each in notebook["cells"]}


def backup(study):
    (file,) = (study / "updates").glob(f"*/before/{NOTEBOOK}")
    return file


def without_manifest(study, monkeypatch):
    """Make a study like those from before there were manifests."""
    copies = copies_of({NOTEBOOK: notebook_bytes(EARLIER)})
    monkeypatch.setattr(updates, "released_copies", lambda: copies)
    (study / MANIFEST).unlink()


@pytest.mark.parametrize("manifest", [True, False])
def test_an_untouched_notebook_is_replaced_and_a_copy_stays(study, monkeypatch, manifest):
    before = (study / NOTEBOOK).read_bytes()
    if not manifest:
        without_manifest(study, monkeypatch)
    files, _ = updated(study)
    assert files[NOTEBOOK].action is Action.REPLACE
    assert parse_notebook((study / NOTEBOOK).read_bytes()) == LATER
    assert backup(study).read_bytes() == before
    assert plan_update(study).files == ()


def test_outputs_of_a_run_are_no_change(study):
    def run(cells):
        cells[2] |= {"outputs": [{"output_type": "stream"}], "execution_count": 3}

    changed(study, run)
    assert updated(study)[0][NOTEBOOK].action is Action.REPLACE


@pytest.mark.parametrize("manifest", [True, False])
def test_values_and_cells_of_the_owner_are_carried_over(study, monkeypatch, manifest):
    def edit(cells):
        cells[1]["source"] = PARAMETERS.replace('"smoke"', '"fast"') + "mine: int = 3  # own\n"
        cells[3]["source"] = "My note."
        cells.insert(3, cell("added", "1 + 1"))

    changed(study, edit)
    if not manifest:
        without_manifest(study, monkeypatch)
    files, cells = updated(study)
    assert (
        files[NOTEBOOK].text == f"merged    {NOTEBOOK}: with your tier, mine, cell added, cell note"
    )
    assert list(cells) == ["title", "values", "table", "added", "note", "how"]
    assert cells["table"] == "q.compare(models)"
    assert (cells["added"], cells["note"]) == ("1 + 1", "My note.")
    assert cells["values"].splitlines() == [
        "tier: str = 'fast'  # smoke or fast",
        'models: str = ""  # labels',
        'baseline: str = ""  # a label',
        "mine: int = 3  # own",
    ]
    assert sources(parse_notebook(backup(study).read_bytes()))["note"] == "My note."
    assert plan_update(study).files == ()  # the merged notebook is up to date


def test_what_both_have_changed_is_kept_and_the_new_one_is_put_aside(study):
    changed(study, lambda cells: cells[2].update(source="q.tables.comparison(models, tasks)"))
    before = (study / NOTEBOOK).read_bytes()
    files, _ = updated(study)
    assert files[NOTEBOOK].text == (
        f"kept      {NOTEBOOK}: you and this release have changed cell table"
    )
    assert (study / NOTEBOOK).read_bytes() == before
    (new,) = (study / "updates").glob(f"*/new/{NOTEBOOK}")
    assert parse_notebook(new.read_bytes()) == LATER
    assert plan_update(study).files == tuple(files.values())  # nothing is settled


def test_what_to_write_instead_of_an_old_name_is_stated(study):
    source = "q.tables.power_table(models)\nprint(tier)"
    changed(study, lambda cells: cells.insert(3, cell("added", source)))
    (update,) = plan_update(
        study, new_names={"tables.power_table": "comparison.power_table()"}
    ).files
    advice = "cell added: q.tables.power_table is now comparison.power_table()"
    assert update.advice == (advice,)
    assert update.text.splitlines()[1].strip() == advice


def test_a_variable_that_is_gone_is_named(study):
    changed(study, lambda cells: cells.insert(3, cell("added", "len(rows)")))
    content = parse_notebook((study / NOTEBOOK).read_bytes())
    content["cells"][2]["source"] = "rows = q.tables.comparison(models)"
    earlier = {**EARLIER, "cells": [*EARLIER["cells"][:2], content["cells"][2]]}
    copies = copies_of({NOTEBOOK: notebook_bytes(earlier)})
    merge = merge_notebook(
        content, LATER, path=NOTEBOOK, before=copies, manifest=copies, new_names={}
    )
    assert merge.advice == ("cell added: no cell sets rows any more",)


def test_a_cell_that_the_owner_deleted_does_not_come_back(study):
    changed(study, lambda cells: cells.pop(3))
    files, cells = updated(study)
    assert list(cells) == ["title", "values", "table", "how"]
    assert files[NOTEBOOK].reason == "with your no cell note"
    assert plan_update(study).files == ()


def test_a_notebook_that_the_owner_deleted_does_not_come_back(study):
    (study / NOTEBOOK).unlink()
    (update,) = plan_update(study).files
    assert (update.path, update.action) == (NOTEBOOK, Action.LEAVE_OUT)
    plan_update(study).apply()
    assert not (study / NOTEBOOK).exists()
    assert list((study / "updates").glob(f"*/new/{NOTEBOOK}"))


def test_another_kernel_stays(study):
    content = json.loads((study / NOTEBOOK).read_bytes())
    content["metadata"]["kernelspec"]["name"] = "gpu-box"
    (study / NOTEBOOK).write_text(json.dumps(content))
    updated(study)
    merged = json.loads((study / NOTEBOOK).read_bytes())
    assert merged["metadata"]["kernelspec"]["name"] == "gpu-box"
    assert sources(parse_notebook((study / NOTEBOOK).read_bytes())) == sources(LATER)


def test_files_of_the_book(study, tmp_path):
    later = tmp_path / "later" / "book"
    (later / "names.md").write_text("# New\n")
    (later / "index.md").write_text("# New index\n")
    (later / "reference" / "tiers.md").unlink()
    (study / "book" / "index.md").write_text("# Mine\n")
    (study / "book" / "mine.md").write_text("# My page\n")
    files, _ = updated(study)
    actions = {path: file.action for path, file in files.items() if path != NOTEBOOK}
    assert actions == {
        "book/index.md": Action.KEEP,
        "book/names.md": Action.REPLACE,
        "book/reference/tiers.md": Action.REMOVE,
    }
    assert (study / "book" / "index.md").read_text() == "# Mine\n"
    assert (study / "book" / "names.md").read_text() == "# New\n"
    assert (study / "book" / "mine.md").exists()
    assert not (study / "book" / "reference" / "tiers.md").exists()


def test_pages_that_an_edited_table_of_contents_may_list_are_not_removed(study, tmp_path):
    contents = study / "book" / "_toc.yml"
    contents.write_text(contents.read_text() + "# mine\n")
    later = tmp_path / "later" / "book"
    (later / "_toc.yml").write_text("format: jb-book\nroot: index\n")
    (later / "reference" / "tiers.md").unlink()
    files, _ = updated(study)
    assert files["book/_toc.yml"].action is Action.KEEP
    assert files["book/reference/tiers.md"].action is Action.KEEP
    assert (study / "book" / "reference" / "tiers.md").exists()


@pytest.mark.parametrize("text", ["not JSON", "{}", '{"cells": [1]}'])
def test_a_broken_notebook_is_kept(study, text):
    (study / NOTEBOOK).write_text(text)
    plan = plan_update(study)
    assert [file.action for file in plan.files] == [Action.KEEP]
    plan.apply()
    assert (study / NOTEBOOK).read_text() == text


def test_the_owners_own_files_are_left_alone(study):
    for name in ("README.md", "sweep.toml", "_config.yml", ".gitignore", "notebooks/mine.ipynb"):
        (study / name).write_text("mine")
    updated(study)
    for name in ("README.md", "sweep.toml", "_config.yml", ".gitignore", "notebooks/mine.ipynb"):
        assert (study / name).read_text() == "mine"


def test_the_command(study, monkeypatch):
    monkeypatch.setenv("QWEN3NB_HOME", str(study))
    before = {file: file.read_bytes() for file in study.rglob("*") if file.is_file()}
    shown = CliRunner().invoke(main, ["new", "--update", "--dry-run"], catch_exceptions=False)
    assert shown.exit_code == 0
    assert f"replaced  {NOTEBOOK}" in shown.output
    assert {file: file.read_bytes() for file in study.rglob("*") if file.is_file()} == before
    done = CliRunner().invoke(main, ["new", "--update"], catch_exceptions=False)
    assert f"replaced  {NOTEBOOK}" in done.output
    assert str(backup(study).parents[2]) in done.output.replace("/before", "")
    again = CliRunner().invoke(main, ["new", "--update", str(study)], catch_exceptions=False)
    assert "The notebooks and the book are those of this release." in again.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["new"], "Missing FOLDER"),
        (["new", "folder", "--dry-run"], "--dry-run shows what --update would do"),
        (["new", "--update", "--title", "T"], "are of a new study"),
    ],
)
def test_options_that_do_not_fit(arguments, message):
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_only_studies_are_updated(tmp_path):
    with pytest.raises(StudyError, match="is no study"):
        plan_update(tmp_path)
    with pytest.raises(StudyError, match="git pull"):
        plan_update(REPOSITORY)


def test_notebooks_from_before_manifests_are_recognised():
    """Cells of the first release."""
    copies = released_copies()
    old = cell("eval-09b", "q.tables.parts_table(results)")
    assert copies.has("notebooks/eval.ipynb", cell_part(old))
    assert copies.has("notebooks/eval.ipynb", "id eval-09b")
    assert not copies.has("notebooks/eval.ipynb", cell_part({**old, "source": "mine"}))


def test_copies_are_read_as_they_are_written(tmp_path):
    copies = copies_of({NOTEBOOK: notebook_bytes(EARLIER), "book/a.md": b"text"})
    (tmp_path / "copies").write_text(copies.text)
    assert read_copies(tmp_path / "copies") == copies
    assert (copies | Copies({})) == copies
