"""A bare `jupyter-book build` runs what is due, lists a reader's pages, and says what failed."""

import html
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from helpers.checkout import shorten_manual, write_checkout
from helpers.html import HOSTILE
from helpers.notebooks import notebook_of, save
from helpers.records import amend, failure, make, tier_records

from qwen3nb import paths
from qwen3nb.answers.against_baseline import against_baseline
from qwen3nb.answers.board.models import is_toy
from qwen3nb.answers.evaluation import Evaluation
from qwen3nb.answers.run_trace import RunTrace
from qwen3nb.answers.status import status
from qwen3nb.book import build, sphinx_ext, up_to_date
from qwen3nb.book.build import BookError, build_book
from qwen3nb.book.sphinx_ext import page_footer
from qwen3nb.evaluation.run import EvaluationRun, Run
from qwen3nb.execution.executors import RunOutcome
from qwen3nb.execution.notebook import run_notebook
from qwen3nb.execution.page_names import is_old
from qwen3nb.execution.publish import NotebookRun, set_notice
from qwen3nb.records.failures import note_failure
from qwen3nb.records.record import Environment
from qwen3nb.records.results import Results
from qwen3nb.records.store import load_results

MESSAGE = (
    "<script>alert(1)</script>\n```{include} /etc/passwd\n```\n:::{include} /etc/passwd\n:::\n"
    "</pre></table>{{ x }} $x$ [a](javascript:1) {glue:text}`nothing`\n# Heading"
)


@pytest.mark.parametrize("command", ["book", "demo", "sweep --model bm25"])
def test_without_jupyter_book_nothing_runs_for_a_book_that_cannot_be_built(
    command, cli, checkout, monkeypatch
):
    monkeypatch.setattr(build.importlib.util, "find_spec", {}.get)
    refused = cli(*command.split())
    assert refused.exit_code == 1
    assert "pip install 'qwen3nb[book]'" in refused.output
    assert not paths.results().exists()
    assert not paths.runs().exists()


@pytest.mark.integration
def test_a_bare_build_shows_what_there_is_from_wherever_it_is_started(
    checkout, tmp_path, monkeypatch
):
    """Without results, with a notebook of the reader's own and a page that failed, inertly."""
    shorten_manual(checkout)
    mine = notebook_of("'load_results', 6 * 7")
    mine.metadata = {}  # neither ours nor of any kernel
    mine.cells = [mine.cells[0], mine.cells[2]]  # and without parameters
    mine.cells[0].source = "# Of my own"
    run_notebook(save(mine, "mine"), show_progress=False)
    runs, html = checkout / "book" / "runs", checkout / "_build" / "html"
    values = {"checkpoint": "bm25", "tier": "smoke", "tasks": MESSAGE}
    node = nbformat.read(checkout / "notebooks" / "eval.ipynb", 4)
    NotebookRun("eval", values, runs / "eval-x-smoke.ipynb").fail(node, "ValueError", MESSAGE)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "QWEN3NB_HOME"}
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()", "build"]
    done = subprocess.run(
        [*command, str(checkout / "book"), "--keep-going", "-n", "-W"],
        cwd=elsewhere,
        env=environment | {"PYTHONWARNINGS": ""},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    made = {each.stem for each in runs.iterdir()}
    assert made == {"data", "eval-x-smoke", "leaderboard", "mine", "status"}  # none without data
    index = (html / "index.html").read_text()
    assert "Your own notebooks" in index
    assert "Of my own" in index
    assert "(failed)" in index
    page = (html / "runs" / "eval-x-smoke.html").read_text()
    assert "This run failed" in page
    assert "alert(1)" in page
    assert 'href="javascript:' not in page
    assert "<h1>Heading" not in page
    status = (html / "runs" / "status.html").read_text()
    assert "eval-x-smoke.html" in status
    assert "# Heading" in status
    for text in (page, status):
        assert "<script>alert" not in text
        assert "root:" not in text

    for label in ("bm25", "random"):
        make(label).save()
    due = []
    monkeypatch.setattr(build, "sweep", lambda jobs, **_: due.extend(jobs) or [])
    monkeypatch.setattr(build, "run_notebook", lambda _: None)
    build.refresh_pages()
    assert [job.name for job in due] == ["leaderboard", "compare", "explorer", "sure", "mine"]


def test_each_collection_of_own_data_has_a_page(checkout, monkeypatch):
    for collection, label in (("notes", "a"), ("notes", "b"), ("tickets", "a")):
        record = make(label, task=f"domain-{collection}-1a")
        amend(record, "task", dataset=f"domain-{collection}")
        record.save()
    due = []
    monkeypatch.setattr(build, "sweep", lambda jobs, **_: due.extend(jobs) or [])
    monkeypatch.setattr(build, "run_notebook", lambda _: None)
    gone = paths.book_runs() / "own-data-gone.ipynb"
    gone.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook_of("1"), gone)
    build.refresh_pages()
    assert not gone.exists()  # no records of this collection are left
    pages = {job.name: job.parameters for job in due if job.notebook == "own"}
    assert pages == {
        "own-data-notes": {"collection": "notes"},
        "own-data-tickets": {"collection": "tickets"},
    }


def test_a_page_that_fails_is_a_warning_of_the_build(checkout, monkeypatch, caplog):
    pytest.importorskip("sphinx", reason="extra book is not installed")
    failed = RunOutcome("compare", 1, log=Path("/x.log"), reason="ZeroDivisionError")
    monkeypatch.setattr(sphinx_ext, "refresh_pages", lambda: [failed])
    monkeypatch.delenv(build.REFRESHED, raising=False)
    steps = []
    app = SimpleNamespace(
        srcdir=checkout / "book",
        connect=lambda event, call, **_: steps.append(call) if event == "config-inited" else None,
        add_directive=lambda *_: None,
        add_post_transform=lambda *_: None,
        add_html_math_renderer=lambda *_: None,
    )
    sphinx_ext.setup(app)
    steps[0](app, None)
    assert "the page compare failed: ZeroDivisionError; see" in caplog.text


def test_the_page_of_a_model_is_old_if_its_baseline_is_another(home):
    own = make("m")
    trace = RunTrace(tuple(against_baseline([own], [])))
    made = {"parameters": {"baseline": ""}, "baselines": []}
    outputs = [{"data": trace._repr_mimebundle_()}]
    page = {"metadata": {"qwen3nb": made}, "cells": [{"outputs": outputs}]}
    for label in ("mine", "random"):
        assert not is_old(page)
        make(label).save()
    assert is_old(page)
    make("bm25").save()
    for named, expected in (("random", "random"), ("", "bm25")):
        made["baselines"] = trace.baselines_among(load_results(), named=named)
        assert [name for _, name, _ in made["baselines"]] == [expected]
    assert not is_old(page)
    make("bm25", scores=(0.5, 0.5, 0.5), finished="2027-01-01").save()
    assert is_old(page)
    # Any other model belongs to the family over which the page's p-values are corrected.
    made["baselines"] = trace.baselines_among(load_results())
    assert not is_old(page)
    make("theirs").save()
    assert is_old(page)
    # So do newer scores of its own.
    made["baselines"] = trace.baselines_among(load_results())
    make("m", scores=(0.1, 0.2, 0.4)).save()
    assert is_old(page)
    # A stronger reference model becomes the baseline.
    make("wordllama", scores=(0.9, 0.9, 0.9)).save()
    assert [name for _, name, _ in trace.baselines_among(load_results())] == ["wordllama"]


def test_the_page_of_a_model_alone_is_old_if_it_was_evaluated_again(home):
    own = make("m")
    own.save()
    trace = RunTrace(tuple(against_baseline([own], [])))
    made = {"parameters": {"baseline": ""}, "baselines": trace.baselines_among(load_results())}
    outputs = [{"data": trace._repr_mimebundle_()}]
    page = {"metadata": {"qwen3nb": made}, "cells": [{"outputs": outputs}]}
    make("other").save()  # no baseline: nothing on the page follows from it
    assert not is_old(page)
    make("m", scores=(0.1, 0.2, 0.4), finished="2027-01-01").save()
    assert is_old(page)


def test_a_page_that_missed_a_record_while_it_was_made_is_old(home):
    """A sweep runs pages side by side: a record may come after the scores, before the page."""
    ours = make("m")
    for record in (ours, make("bm25")):
        record.save()
    outcome = EvaluationRun(Results([ours]), label="m")
    answer = Evaluation(None, [], [ours.task.name], outcome, Run(), "", "", caution="")
    scores = answer.scores
    make("late").save()  # one more model in the family of the page's p-values
    assert [score.family for score in scores] == [1]

    def page():
        notebook = notebook_of("scores")
        notebook.metadata["qwen3nb"] = {"parameters": {}}
        data = answer.trace._repr_mimebundle_()
        notebook.cells[-1].outputs = [nbformat.v4.new_output("display_data", data)]
        file = paths.book_runs() / "eval-m-smoke.ipynb"
        NotebookRun("eval", {}, file, started=0.0).succeed(notebook, key="k")
        return json.loads(file.read_text())

    assert is_old(page())
    answer = replace(answer)  # a run that reads the records anew
    assert not is_old(page())


def test_a_notice_is_replaced_and_removed(home):
    file = save(notebook_of("1"), "page")
    before = file.read_text()
    for text in ("made before 2 records", "made before 3 records"):
        set_notice(file, text)
        assert file.read_text().count("made before") == 1
        assert text in file.read_text()
    set_notice(file, "")
    assert file.read_text().split() == before.split()


@pytest.fixture
def pages(tmp_path, monkeypatch):
    """The pages that were run, those side by side as a list; tiers; notebooks that are to fail."""
    pytest.importorskip("jupyter_book", reason="extra book is not installed")
    monkeypatch.setenv("QWEN3NB_HOME", str(write_checkout(tmp_path / "home", lessons=True)))
    run, tiers, failing, builds = [], [], set(), []

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

    def write_book(output, *, strict):
        builds.append(strict)
        (output / "html").mkdir()
        (output / "html" / "index.html").write_text("<p>built</p>")

    monkeypatch.setattr(build, "sweep", sweep)

    def run_status(notebook, **_):
        run.append(notebook)
        state.during_status()

    state = SimpleNamespace(
        run=run, tiers=tiers, failing=failing, builds=builds, during_status=lambda: None
    )
    monkeypatch.setattr(build, "run_notebook", run_status)
    monkeypatch.setattr(build, "_build", write_book)
    return state


def test_the_book_is_built_and_the_failed_lessons_are_named(pages, tmp_path):
    pages.failing |= {"guide/caching", "guide/own-queries"}
    with pytest.raises(BookError, match=r"is built, but 2 lessons failed") as error:
        build_book(lessons=True)
    assert "guide-caching: a cell failed\n  see /x.log" in str(error.value)
    # Side by side, under their plain names; the page of all runs comes last.
    guide = sorted((build.paths.notebooks() / "guide").glob("*.ipynb"))
    lessons = [f"guide-{file.stem}" for file in guide]
    assert pages.run == [["leaderboard", "data", "calibration", *lessons], "status"]
    assert (tmp_path / "home" / "_build" / "html" / "index.html").is_file()


def write_record(folder):
    file = folder / "results" / "model-0123" / "seed_0" / "Task.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")


def append_to(name):
    def change(folder):
        file = folder / name
        file.write_text(file.read_text() + "\n")

    return change


CHANGES = {
    "a text": append_to("book/methods.md"),
    "a style": append_to("book/_static/q-render.css"),
    "a notebook": append_to("notebooks/eval.ipynb"),
    "the settings": append_to("_config.yml"),
    "a built page": append_to("_build/html/index.html"),
    "no built page": lambda folder: (folder / "_build" / "html" / "index.html").unlink(),
    "a record": write_record,
    "a damaged state": lambda folder: (folder / "_build" / "state.json").write_text("{"),
}


@pytest.fixture
def built(pages, monkeypatch, tmp_path):
    """The folder of a study whose book was built, and whose pages need not run again."""
    monkeypatch.setattr(build.Job, "finished", lambda _: True)
    build_book()
    pages.run.clear()
    return tmp_path / "home"


def test_a_book_is_kept_if_nothing_has_changed(pages, built, capsys):
    log = built / "results" / "logs" / "status.log"
    log.parent.mkdir(parents=True)
    log.write_text("read by no page")
    assert build_book() == built / "_build" / "html" / "index.html"
    assert "up to date: nothing has changed" in capsys.readouterr().err
    assert (pages.run, pages.builds) == ([], [True])


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_book_is_built_again_if_anything_has_changed(pages, built, change):
    change(built)
    build_book()
    assert (pages.run, pages.builds) == (["status"], [True, True])
    build_book()
    assert pages.builds == [True, True]


def test_a_book_is_built_again_for_another_secret_or_library(pages, built, monkeypatch):
    monkeypatch.setenv("MY_API_KEY", "8c1f63d0a2b94e57")
    build_book()
    assert len(pages.builds) == 2
    monkeypatch.setattr(up_to_date, "_libraries", lambda: ["sphinx-99.dist-info"])
    build_book()
    assert len(pages.builds) == 3


def test_a_page_that_is_due_is_made_although_the_book_is_the_same(pages, built, monkeypatch):
    monkeypatch.setattr(build.Job, "finished", lambda job: job.notebook != "leaderboard")
    assert build_book().is_file()
    assert pages.run == [["leaderboard"], "status"]


def test_a_record_that_comes_during_a_build_lets_the_next_one_build_again(pages, built):
    (built / "_build" / "state.json").unlink()
    pages.during_status = lambda: write_record(built)
    build_book()
    assert not (built / "_build" / "state.json").exists()


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


def test_a_page_of_another_release_is_named_and_the_book_is_built(pages, monkeypatch, caplog):
    pages.failing.add("leaderboard")
    monkeypatch.setattr(build, "is_outdated", lambda notebook: notebook.stem == "leaderboard")
    assert build_book().is_file()
    assert pages.builds == [False]  # what others quote of the page may be missing
    assert "could not be made again: leaderboard: the notebook is of another" in caplog.text
    assert "`qwen3nb new --update` renews it" in caplog.text


def test_a_full_disk_is_named_instead_of_what_sphinx_printed(home, tmp_path, monkeypatch):
    full = subprocess.CompletedProcess([], 1, "", "[Errno 28] No space left on device\nline\n" * 9)
    monkeypatch.setattr(build, "run_program", lambda *_, **__: full)
    with pytest.raises(OSError, match="No space left") as error:
        build._build(tmp_path / "out", strict=True)
    assert (error.value.errno, error.value.filename) == (28, str(tmp_path / "out"))


def test_pages_that_are_up_to_date_are_not_run_again(pages, monkeypatch):
    monkeypatch.setattr(build.Job, "finished", lambda job: job.notebook != "leaderboard")
    build_book()
    assert pages.run == [["leaderboard"], "status"]


@pytest.mark.parametrize(
    ("results", "shown"),
    [
        ([], ["leaderboard", "data"]),
        ([make("a")], ["leaderboard", "data"]),
        ([make("a"), make("b")], ["leaderboard", "compare", "explorer", "sure", "data"]),
    ],
    ids=["no record", "one model", "two"],
)
def test_only_pages_with_something_to_say_are_made(pages, monkeypatch, results, shown):
    hollow = build.paths.book_runs() / "compare.ipynb"
    hollow.parent.mkdir(parents=True)
    hollow.write_text('{"cells": []}')
    monkeypatch.setattr(build, "load_results", lambda **_: Results(results))
    build_book()
    assert pages.run == [shown, "status"]
    assert hollow.is_file() == ("compare" in shown)


def test_the_richest_tier_with_results_is_shown_and_no_empty_one_in_its_place(pages, monkeypatch):
    fast = tier_records("m", tier="fast")
    for results, tier, shown in (
        ([], "", "smoke"),
        ([make("m"), *fast], "", "fast"),
        ([make("m"), *fast], "smoke", "smoke"),
    ):
        monkeypatch.setattr(build, "load_results", lambda results=results, **_: Results(results))
        build_book(tier=tier)
        assert pages.tiers.pop() == shown
    monkeypatch.setattr(build, "load_results", lambda **_: Results(fast))
    with pytest.raises(BookError, match=r"'pydocs', got none.*--tier fast"):
        build_book(tier="pydocs")


def rows(table):
    return [[f"{cell.text} {cell.detail}".strip() for cell in row] for row in table.rows]


def page(name, **ours):
    node = notebook_of("pass")
    node.cells[0].source = f"# Title of a\\_{name}"
    node.metadata["qwen3nb"] = ours
    file = paths.book_runs() / f"{name}.ipynb"
    file.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(node, file)
    return file


def test_runs_with_parameters_that_are_not_default_and_how_they_ended(checkout):
    at = "2026-11-20T12:04:21+00:00"
    parameters = {"checkpoint": "bm25", "tier": "smoke", "pooling": "auto", "limit": 7}
    page("eval-bm25-7", notebook="eval", parameters=parameters, seconds=61.24, finished=at)
    page("eval-x", notebook="eval", parameters={"checkpoint": "x"}, failed=at, seconds=1)
    page("data", notebook="data", finished=at, failed=at.replace("20T", "21T"))
    page("status", notebook="status", finished=at)
    (paths.book_runs() / "theirs.ipynb").write_text("{}")
    table = status().table()
    when = "2026-11-20 12:04"
    assert sorted(rows(table)) == [
        ["Title of a_data defaults", "failed; shows an earlier run", "–", when],
        ["Title of a_eval-bm25-7 checkpoint bm25, limit 7, tier smoke", "finished", "61.2", when],
        ["Title of a_eval-x checkpoint x", "failed", "1.0", "never"],
    ]
    assert table.rows[-1][0].link == "eval-bm25-7.html"


def test_what_failed_and_why(home):
    note_failure(failure(message="one\nno <b>memory</b>\n", more=("results/logs/x.log",)))
    file = make("m").path()
    file.parent.mkdir(parents=True)
    file.with_suffix(".error.txt").write_text("Traceback\nOSError: no disk\n")
    failed = rows(status().failures_table())
    assert failed[0][0].startswith("eval-bm25-smoke 2026-01-01")
    assert failed[0][1:] == ["ValueError: no <b>memory</b>", "results/logs/x.log"]
    assert failed[1][1] == "OSError: no disk"
    assert "<b>" not in status().failures_table().to_html()


def test_whether_records_hold(home):
    file = make("m").save()
    make("other").save()
    assert rows(status().verification_table()) == []
    assert status().verification_table().note.startswith("2 of 2 records are consistent.")
    value = json.loads(file.read_text())
    value["metrics"]["nDCG@10"]["value"] = 0.9
    file.write_text(json.dumps(value))
    table = rows(status().verification_table())
    assert "nDCG@10: value is 0.9" in table[0][1]
    assert status().verification_table().note.startswith("1 of 2 records are consistent.")
    assert status().verification_table(verify=False).note.startswith("2 records, not verified.")
    make("prompted").save(paths.results() / "prompts")
    both = "1 of 2 records and 1 of 1 records of sets of prompts are consistent."
    assert status().verification_table().note.startswith(both)


def test_the_conclusion_counts_what_failed_and_what_differs(checkout):
    page("a", notebook="eval", finished="2026-11-20T12:04:21+00:00")
    same = [replace(make("m"), environment=Environment.current())]
    text = str(status(same).conclusion)
    assert text == "1 run, 0 failed. 1 record, 0 damaged and left out."
    page("b", notebook="eval", failed="2026-11-20T12:05:00+00:00")
    old = make("old")
    amend(old, "environment", versions={"torch": "1.0"})
    amend(old, "task", revision="0123456789abcdef")
    text = str(status([*same, old]).conclusion)
    assert "2 runs, 1 failed (Title of a_b). 2 records, 0 damaged" in text
    assert " 1 record made with other versions" in text
    assert text.endswith("across the revisions of the data (PyDocsSampleRetrieval).")


AT = "2026-11-20T12:04:21+00:00"


def footer(folder, **ours):
    """The text of the footer of a page with this metadata, and its HTML."""
    file = folder / "p.ipynb"
    file.write_text(json.dumps({"metadata": {"qwen3nb": ours}}))
    shown = page_footer(file, commit="abc", license="MIT")
    return re.sub("<[^>]*>", "", shown), shown


def test_a_page_says_when_with_what_and_how_to_make_it_again(checkout):
    parameters = {"checkpoint": "bm25", "tier": "fast"}
    versions = {"qwen3nb": "0.1.0", "mteb": "2.26"}
    ours = {"notebook": "eval", "parameters": parameters, "versions": versions}
    text, _ = footer(checkout, **ours, finished=AT, commit="0123")
    assert text == (
        "Made on 20 November 2026 at commit 0123 with qwen3nb\xa00.1.0, mteb\xa02.26. "
        "Again: qwen3nb eval --checkpoint bm25 --tier fastLicence: MIT"
    )
    assert (
        footer(checkout, notebook="gone", failed=AT)[0] == "Failed on 20 November 2026.Licence: MIT"
    )
    for other in (checkout / "methods.md", checkout / "mine.ipynb"):
        other.write_text('{"metadata": {}}')
        shown = page_footer(other, commit="abc", license="")
        assert re.fullmatch(r".*>Made on .* at commit <code>abc</code>\. Again.*book.*", shown)


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_text_in_a_footer_is_text(checkout, text):
    _, shown = footer(checkout, notebook=text, failed=text, commit=text, versions={text: text})
    assert set(re.findall(r"<(\w+)", shown)) <= {"footer", "p", "code"}
    assert html.escape(text) in page_footer(checkout / "x.md", commit="", license=text)


def test_toys_are_the_models_of_the_demo(home):
    for label, spec, toy in (
        ("demo-init", "runs/demo/encoder/init", True),
        ("demo-like", "runs/elsewhere/x", False),
        ("mine", "runs/demo/encoder/mine", False),
    ):
        record = make(label)
        record = replace(record, model=replace(record.model, spec=spec))
        assert is_toy(record) is toy


def test_each_lesson_has_a_page_before_it_was_run(pages):
    build_book()
    folder = build.paths.book() / "guide"
    names = {file.name for file in (build.paths.notebooks() / "guide").glob("*.ipynb")}
    assert {file.name for file in folder.glob("*.ipynb")} == names
    page = folder / "caching.ipynb"
    text = page.read_text()
    assert "`qwen3nb run guide/caching` computes its results" in text
    assert "makes it again" not in text
    stamp = page.stat().st_mtime_ns
    build_book()
    assert page.stat().st_mtime_ns == stamp
    # A notebook that was renewed is shown as it is now, and no run of it is claimed.
    notebook = build.paths.notebooks() / "guide" / "caching.ipynb"
    notebook.write_text(notebook.read_text().replace("Caching and identity", "Another title"))
    build_book()
    assert "# Another title" in page.read_text()
    assert not build.Job("guide/caching", {}).finished()


def test_a_lesson_on_other_records_has_a_notice_until_it_is_made_again(pages):
    page = build.paths.book() / "guide" / "caching.ipynb"
    node = notebook_of("1")
    nbformat.write(node, page)
    build_book()
    assert "`qwen3nb book --lessons` makes it again" in page.read_text()
    assert page.read_text().count("makes it again") == 1


def test_a_lesson_that_is_up_to_date_has_none(pages, monkeypatch):
    page = build.paths.book() / "guide" / "caching.ipynb"
    nbformat.write(notebook_of("1"), page)
    monkeypatch.setattr(build.Job, "finished", lambda _: True)
    build_book()
    assert "makes it again" not in page.read_text()
