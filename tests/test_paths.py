"""Where things live."""

import pytest
from helpers.checkout import write_checkout

from qwen3nb import paths


def test_paths_follow_the_environment(home, tmp_path, monkeypatch):
    assert paths.results() == home / "results"
    assert paths.book_runs() == home / "book" / "runs"
    monkeypatch.setenv("QWEN3NB_RESULTS", str(tmp_path / "elsewhere"))
    assert paths.results() == tmp_path / "elsewhere"


def test_the_root_is_found_from_inside_the_notebooks(checkout, monkeypatch):
    monkeypatch.delenv("QWEN3NB_HOME")
    monkeypatch.chdir(checkout / "notebooks")
    assert paths.root() == checkout
    assert paths.shown(checkout / "runs" / "x") == "runs/x"
    assert paths.shown(checkout.parent / "y") == str(checkout.parent / "y")


def test_a_notebook_in_a_folder_is_named_with_it(home):
    checkout = write_checkout(home, lessons=True)
    lesson = checkout / "notebooks" / "guide" / "interference.ipynb"
    assert paths.notebook_name(lesson) == "guide/interference"
    assert paths.notebook_name(lesson.parent.parent / "interference.ipynb") == "interference"
    for given in ("guide/interference", "guide/interference.ipynb", "notebooks/guide/interference"):
        assert paths.find_notebook(given) == lesson
    assert paths.find_notebook("interference") == lesson.parent.parent / "interference.ipynb"
    assert {"guide/interference", "interference"} <= set(paths.notebook_names())
    with pytest.raises(FileNotFoundError, match="no notebook 'caching'; .*guide/caching"):
        paths.find_notebook("caching")


def test_logs_and_notes_of_a_lesson_have_a_name_of_their_own(home):
    assert paths.page_key(paths.book_runs() / "interference.ipynb") == "interference"
    lesson = paths.book() / "guide" / "interference.ipynb"
    assert paths.page_key(lesson) == "guide-interference"
