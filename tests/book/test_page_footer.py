"""The end of a page, and the banner of toys: what they say, escaped."""

import html
import json
import re
from dataclasses import replace

import pytest
from helpers.html import HOSTILE
from helpers.records import make

from qwen3nb.book.sphinx_ext import (
    BuildInfo,
    build_info,
    citation,
    footer_html,
    toy_labels,
    toy_text,
)
from qwen3nb.utils.book_settings import BookSettings

BOOK = BookSettings("My book", "Ada Lovelace, Charles Babbage", "2026", "https://x.org/b", "MIT")
BUILD = BuildInfo("1 May 2026", "abc")


def footer(folder, **ours):
    """The facts and the text of the footer of a page with this metadata."""
    file = folder / "p.ipynb"
    file.write_text(json.dumps({"metadata": {"qwen3nb": ours}}))
    own = build_info(file, build=BUILD)
    return own, re.sub("<[^>]*>", "", footer_html(own, title="bm25 · fast", settings=BOOK))


def test_a_page_of_a_run_says_when_with_what_and_how_to_make_it_again(checkout):
    own, text = footer(
        checkout,
        notebook="eval",
        parameters={"checkpoint": "bm25", "tier": "fast"},
        finished="2026-11-20T12:04:21+00:00",
        commit="0123456789ab",
        versions={"mteb": "2.26", "qwen3nb": "0.1.0"},
    )
    assert own.command == "qwen3nb eval --checkpoint bm25 --tier fast"
    assert text.startswith(
        "Made on 20 November 2026 at commit 0123456789ab with qwen3nb\xa00.1.0, mteb\xa02.26. "
        "Again: qwen3nb eval --checkpoint bm25 --tier fastCite this@misc{my2026,"
    )
    assert text.endswith("Licence: MIT")


def test_other_pages_are_as_old_as_the_build_and_a_failed_run_claims_nothing(checkout):
    (checkout / "mine.ipynb").write_text('{"metadata": {}}')
    for name in ("methods.md", "mine.ipynb"):
        assert build_info(checkout / name, build=BUILD) == BUILD
    own, text = footer(checkout, notebook="gone", failed="2026-11-20T12:04:21+00:00")
    assert (own.command, own.commit, own.whole) == ("", "", False)
    assert "Failed on 20 November 2026." in text


@pytest.mark.parametrize(
    ("author", "field"),
    [
        ("Ada Lovelace, Charles Babbage", "{Ada Lovelace and Charles Babbage}"),
        ("The qwen3nb developers", "{{The qwen3nb developers}}"),  # a group is one author
        ("Ada Lovelace", "{Ada Lovelace}"),
        ("A. B. and C. D., E. F.", "{A. B. and C. D. and E. F.}"),
    ],
)
def test_the_citation_is_of_this_page_of_this_book(author, field):
    settings = replace(BOOK, author=author)
    assert citation(settings, title="bm25 · 50 %", commit="abc", date="1 May 2026") == (
        "@misc{my2026,\n"
        "  title  = {{My book}},\n"
        f"  author = {field},\n"
        "  year   = {2026},\n"
        "  url    = {https://x.org/b},\n"
        "  note   = {Page ``bm25 $\\cdot$ 50 \\%'', commit abc, made on 1 May 2026}\n"
        "}"
    )
    assert re.findall(r"^  (\w+)", citation(BookSettings(title="T"), title="T"), re.M) == ["title"]


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_text_in_a_footer_is_text(text):
    own = BuildInfo(text, text, ((text, text),), text)
    shown = footer_html(own, title=text, settings=BookSettings(text, text, text, text, text))
    tags = set(re.findall(r"<(\w+)", shown))
    assert tags <= {"footer", "p", "details", "summary", "div", "pre", "code"}
    assert f"Licence: {html.escape(text)}" in shown


def model(home, label, spec, **training):
    folder = home / spec
    folder.mkdir(parents=True)
    if training:
        (folder.parent / "training.json").write_text(json.dumps(training))
    record = make(label)
    return replace(record, model=replace(record.model, spec=spec))


def test_toys_are_the_demo_and_what_says_so(home):
    results = [
        model(home, "demo-init", "runs/demo/encoder/init"),
        model(home, "mine", "runs/mine/step", toy=False),
        model(home, "marked", "runs/marked/step", toy=True),
        model(home, "demo-like", "runs/elsewhere/x"),
        make("bm25"),
    ]
    assert toy_labels(results) == ["demo-init", "marked"]
    extracted = home / "runs" / "mine" / "step" / "qwen3nb.json"
    extracted.write_text(json.dumps({"source": {"folder": "runs/marked/step"}}))
    assert toy_labels(results) == ["demo-init", "marked", "mine"]
    assert toy_labels(results[3:]) == []
    assert toy_text(["a", "b"], models=5).startswith("2 of 5 models here (a, b) were trained")
    assert toy_text(["a"], models=3).startswith("1 of 3 models here (a) was trained")
