"""A lesson that fails, as one whose model cannot be downloaded, does not cost the book."""

import pytest
from helpers.checkout import write_checkout

from qwen3nb.book import build
from qwen3nb.book.build import BookError, build_book
from qwen3nb.execution.notebook import NotebookError


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """The pages that were run; those that are named first fail."""
    monkeypatch.setenv("QWEN3NB_HOME", str(write_checkout(tmp_path / "home", lessons=True)))
    run, failing = [], set()

    def run_notebook(notebook, *_, **__):
        run.append(notebook)
        if notebook in failing:
            raise NotebookError(f"{notebook}: a cell failed")

    def build_strictly(output):
        (output / "html").mkdir()
        (output / "html" / "index.html").write_text("<p>built</p>")

    monkeypatch.setattr(build, "run_notebook", run_notebook)
    monkeypatch.setattr(build, "_build_strictly", build_strictly)
    return run, failing


def test_the_book_is_built_and_the_failed_lessons_are_named(pages, tmp_path):
    run, failing = pages
    failing |= {"guide/caching", "guide/own-queries"}
    with pytest.raises(BookError, match=r"is built, but 2 of 6 lessons failed") as error:
        build_book()
    assert "guide/caching: a cell failed" in str(error.value)
    assert run[-1] == "status"
    assert (tmp_path / "home" / "_build" / "html" / "index.html").is_file()


def test_a_page_of_results_that_fails_stops_the_book(pages, tmp_path):
    run, failing = pages
    failing.add("leaderboard")
    with pytest.raises(NotebookError):
        build_book()
    assert run[-1] == "leaderboard"
    assert not (tmp_path / "home" / "_build").exists()
