"""A built book with a secret in any of its texts is refused; ordinary pages are not."""

import hashlib
import json

import pytest

from qwen3nb.book.build import secret_pages

TOKEN = "ghp_" + "a1B2" * 9
FILES = (
    "index.html",
    "runs/eval-x.html",
    "_sources/runs/eval-x.ipynb",
    "searchindex.js",
    "records/m/seed_0/t.json",
    "_downloads/1/t.csv",
    "genindex.html",
    "_images/f.svg",
)


def write(folder, name, text):
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")


@pytest.fixture
def html(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_PASS", 'm"y <own> word')
    for name in FILES:
        digest = hashlib.sha256(name.encode()).hexdigest()
        write(tmp_path, name, f'<p id="x">{digest}</p><a href="https://x.org:1/a@b">token</a>')
    return tmp_path


@pytest.mark.parametrize("name", FILES)
def test_a_secret_in_any_text_is_named_by_its_file(html, name):
    assert secret_pages(html) == []
    write(html, name, json.dumps({"x": 'see m"y <own> word'}))
    assert secret_pages(html) == [(name, ["the value of MY_PASS"])]


def test_the_text_of_data_in_a_record_may_look_like_a_secret_and_a_page_may_not(html):
    write(html, "records/m/seed_0/t.json", f'{{"query": "what is {TOKEN}"}}')
    assert secret_pages(html) == []
    write(html, "index.html", TOKEN)
    assert secret_pages(html) == [("index.html", ["a GitHub token"])]
