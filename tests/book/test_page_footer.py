"""The end of a page, escaped, and which models are toys."""

import html
import json
import re
from dataclasses import replace

import pytest
from helpers.html import HOSTILE
from helpers.records import make

from qwen3nb.book import sphinx_ext
from qwen3nb.book.sphinx_ext import page_footer

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
