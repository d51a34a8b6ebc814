"""What building a book runs, the tier it shows, and what a failed page costs it."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers.checkout import write_checkout
from helpers.records import make, tier_records

from qwen3nb.book import build
from qwen3nb.book.build import BookError, build_book
from qwen3nb.execution.executors import RunOutcome


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """The pages that were run, those side by side as a list; tiers; notebooks that are to fail."""
    monkeypatch.setenv("QWEN3NB_HOME", str(write_checkout(tmp_path / "home", lessons=True)))
    run, tiers, failing = [], [], set()

    def sweep(jobs, **_):
        run.append([job.name for job in jobs])
        tiers.append(jobs[0].parameters.get("tier"))
        return [
            RunOutcome(
                job.name,
                int(job.notebook in failing),
                notebook=job.notebook,
                log=Path("/x.log"),
                reason="a cell failed",
            )
            for job in jobs
        ]

    def build_strictly(output):
        (output / "html").mkdir()
        (output / "html" / "index.html").write_text("<p>built</p>")

    monkeypatch.setattr(build, "sweep", sweep)
    monkeypatch.setattr(build, "run_notebook", lambda notebook, **_: run.append(notebook))
    monkeypatch.setattr(build, "_build_strictly", build_strictly)
    return SimpleNamespace(run=run, tiers=tiers, failing=failing)


def test_the_book_is_built_and_the_failed_lessons_are_named(pages, tmp_path):
    pages.failing |= {"guide/caching", "guide/own-queries"}
    with pytest.raises(BookError, match=r"is built, but 2 lessons failed") as error:
        build_book(lessons=True)
    assert "guide-caching: a cell failed\n  see /x.log" in str(error.value)
    # Side by side, under their plain names; the page of all runs comes last.
    guide = sorted((build.paths.notebooks() / "guide").glob("*.ipynb"))
    lessons = [f"guide-{file.stem}" for file in guide]
    assert pages.run == [["data", "leaderboard", "calibration", *lessons], "status"]
    assert (tmp_path / "home" / "_build" / "html" / "index.html").is_file()


@pytest.mark.parametrize("text", ['{"cells": [{"cell_type"', '{"cells": {}}', "[]"])
def test_a_page_that_is_no_notebook_is_named(pages, tmp_path, text):
    page = tmp_path / "home" / "book" / "runs" / "mine.ipynb"
    page.parent.mkdir(exist_ok=True)
    page.write_text(text)
    with pytest.raises(BookError, match=r"mine\.ipynb: expected a notebook; delete the file"):
        build_book()
    assert not (tmp_path / "home" / "_build").exists()


def test_a_page_of_results_that_fails_stops_the_book(pages, tmp_path):
    pages.failing.add("leaderboard")
    with pytest.raises(BookError, match="not built; pages that failed:\nleaderboard: a cell"):
        build_book()
    assert not (tmp_path / "home" / "_build").exists()


def test_pages_that_are_up_to_date_are_not_run_again(pages, monkeypatch):
    monkeypatch.setattr(build.Job, "finished", lambda job: job.notebook != "leaderboard")
    build_book()
    assert pages.run == [["leaderboard"], "status"]


@pytest.mark.parametrize(
    ("results", "more"),
    [
        ([], []),
        ([make("a")], []),
        (
            [make("a"), make("b")],
            ["explorer", "compare"],
        ),
    ],
    ids=["no record", "one model", "two"],
)
def test_only_pages_with_something_to_say_are_made(pages, monkeypatch, results, more):
    hollow = build.paths.book_runs() / "compare.ipynb"
    hollow.parent.mkdir(parents=True)
    hollow.write_text('{"cells": []}')
    monkeypatch.setattr(build, "load_results", lambda **_: results)
    build_book()
    assert pages.run == [["data", "leaderboard", *more], "status"]
    assert hollow.is_file() == bool(more)


def test_the_richest_tier_with_results_is_shown_and_no_empty_one_in_its_place(pages, monkeypatch):
    fast = tier_records("m", tier="fast")
    for results, tier, shown in (
        ([], "", "smoke"),
        ([make("m"), *fast], "", "fast"),
        ([make("m"), *fast], "smoke", "smoke"),
    ):
        monkeypatch.setattr(build, "load_results", lambda results=results, **_: results)
        build_book(tier=tier)
        assert pages.tiers.pop() == shown
    monkeypatch.setattr(build, "load_results", lambda **_: fast)
    with pytest.raises(BookError, match=r"'pydocs', got none.*--tier fast"):
        build_book(tier="pydocs")
