"""The status page, the end of every page, escaped, and which models are toys."""

import html
import json
import re
from dataclasses import replace

import nbformat
import pytest
from helpers.html import HOSTILE
from helpers.notebooks import notebook_of
from helpers.records import amend, failure, make

from qwen3nb import paths
from qwen3nb.book import sphinx_ext
from qwen3nb.book.sphinx_ext import page_footer
from qwen3nb.book.status import (
    failed_runs_table,
    runs_table,
    status_conclusion,
    verification_table,
)
from qwen3nb.records.failures import note_failure
from qwen3nb.records.record import Environment


def rows(table):
    return [[f"{cell.text} {cell.detail}".strip() for cell in row] for row in table.rows]


def page(name, **ours):
    node = notebook_of("pass")
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
    table = runs_table()
    when = "2026-11-20 12:04"
    assert sorted(rows(table)) == [
        ["data defaults", "failed; shows an earlier run", "–", when],
        ["eval-bm25-7 checkpoint bm25, limit 7, tier smoke", "finished", "61.2", when],
        ["eval-x checkpoint x", "failed", "1.0", "never"],
    ]
    assert table.rows[-1][0].link == "eval-bm25-7.html"


def test_without_anything_there_is_still_a_page(home):
    assert runs_table() is failed_runs_table() is None
    assert verification_table().note.startswith("0 of 0 records are consistent.")


def test_what_failed_and_why(home):
    note_failure(failure(message="one\nno <b>memory</b>\n", more=("results/logs/x.log",)))
    file = make("m").path()
    file.parent.mkdir(parents=True)
    file.with_suffix(".error.txt").write_text("Traceback\nOSError: no disk\n")
    failed = rows(failed_runs_table())
    assert failed[0][0].startswith("eval-bm25-smoke 2026-01-01")
    assert failed[0][1:] == ["ValueError: no <b>memory</b>", "results/logs/x.log"]
    assert failed[1][1] == "OSError: no disk"
    assert "<b>" not in failed_runs_table().to_html()


def test_whether_records_hold(home):
    file = make("m").save()
    make("other").save()
    assert rows(verification_table()) == []
    assert verification_table().note.startswith("2 of 2 records are consistent.")
    value = json.loads(file.read_text())
    value["metrics"]["nDCG@10"]["value"] = 0.9
    file.write_text(json.dumps(value))
    table = rows(verification_table())
    assert "nDCG@10: value is 0.9" in table[0][1]
    assert verification_table().note.startswith("1 of 2 records are consistent.")
    assert verification_table(verify=False).note.startswith("2 records, not verified.")


def test_the_conclusion_counts_what_failed_and_what_differs(checkout):
    page("a", notebook="eval", finished="2026-11-20T12:04:21+00:00")
    same = [replace(make("m"), environment=Environment.current())]
    text = str(status_conclusion(same))
    assert text.startswith("1 run, 0 failed; 1 record, 0 damaged and left out, 0 made with other")
    page("b", notebook="eval", failed="2026-11-20T12:05:00+00:00")
    old = make("old")
    amend(old, "environment", versions={"torch": "1.0"})
    amend(old, "task", revision="0123456789abcdef")
    text = str(status_conclusion([*same, old]))
    assert "2 runs, 1 failed (b); 2 records, 0 damaged" in text
    assert ", 1 made with other versions" in text
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
        assert sphinx_ext._is_toy(record) is toy
