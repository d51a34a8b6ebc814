"""What is mended, refused or copied on built pages, which are made by hand here."""

import hashlib
import json

import nbformat
import pytest
from helpers.notebooks import notebook_of
from helpers.records import make

from qwen3nb import paths
from qwen3nb.book.build import page_links, remote_resources, secret_pages
from qwen3nb.book.pages import copy_linked_records, mend_page, pages_with_records
from qwen3nb.records.record import Result
from qwen3nb.report.leaderboard.one_model import provenance_table
from qwen3nb.report.render.home import record_link

SEARCH = 'class="btn search-button-field search-button__button" title="Search"'
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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (f'<button {SEARCH} aria-label="Search" data-x>', f"<button {SEARCH} data-x>"),
        ('<summary aria-label="Toggle hidden content">', "<summary>"),
        ('<summary aria-label="Mine">', '<summary aria-label="Mine">'),
        (
            '<i class="theme-switch fa-sun" data-mode="light" title="Light"></i>',
            '<i class="theme-switch fa-sun" data-mode="light"></i>',
        ),
        (
            '<a class="navbar-brand logo" href="#">\n<p>T</p></a>',
            '<nav class="q-home" aria-label="Home"><a class="navbar-brand logo" href="#">\n<p>T</p>'
            "</a></nav>",
        ),
        ('<div class="citation" id="a" role="doc-biblioentry">', '<div class="citation" id="a">'),
        ('<div role="list" class="citation-list">', '<div class="citation-list">'),
        ("<thead><tr><th><p></p></th>\n<th></th></tr></thead><tbody>", "<tbody>"),
        ("<tr><th>a</th><th></th></tr>", "<tr><th>a</th><td></td></tr>"),
        ('<image id="a"/><image id="a"/><image id="b"/>', '<image id="a"/><image/><image id="b"/>'),
    ],
)
def test_a_violation_is_mended_once(before, after):
    assert mend_page(before) == after
    assert mend_page(after) == after


@pytest.mark.parametrize(
    ("name", "page", "remote"),
    [
        ("p.html", '<script src="https://cdn.example/x.js"></script>', "https://cdn.example/x.js"),
        ("p.html", "<img alt='x' src='//cdn.example/x.png'>", "//cdn.example/x.png"),
        ("p.html", '<link rel="icon" href="http://f.example/f.ico">', "http://f.example/f.ico"),
        ("p.html", '<iframe\n src="https://x.example">', "https://x.example"),
        ("p.html", '<a href="https://x.example">a link is not fetched</a>', None),
        ("p.html", '<link rel="canonical" href="https://x.example">', None),
        ("p.html", '<script src="_static/x.js"></script><img src="data:image/png;,AA">', None),
        ("s.css", "@import url('https://x.example'); a{background:url(x)}", "https://x.example"),
    ],
)
def test_remote_resources_are_found_and_links_are_not(tmp_path, name, page, remote):
    (tmp_path / name).write_text(page)
    assert remote_resources(tmp_path) == ([(name, remote)] if remote else [])


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


def test_only_linked_records_below_results_are_copied(home, tmp_path):
    linked, other = make("m"), make("other")
    linked.save()
    other.save()
    (paths.results().parent / "secret.json").write_text("{}")
    page = tmp_path / "html" / "runs" / "eval-m.html"
    page.parent.mkdir(parents=True)
    page.write_text(
        provenance_table([linked]).to_html()
        + '<a href="../records/../secret.json">x</a><a href="../records/none/seed_0/x.json">y</a>'
        + '<a href="../records/%2e%2e/secret.json">z</a>'
    )
    assert copy_linked_records(tmp_path / "html") == 1
    copies = list((tmp_path / "html").rglob("*.json"))
    assert [Result.load(each) for each in copies] == [linked]
    assert json.loads(copies[0].read_text())["per_query"] == linked.per_query  # all in one file


def test_a_page_that_links_to_a_record_is_the_home_of_its_run(checkout):
    record, elsewhere = make("m"), make("n")
    node = notebook_of("pass")
    output = nbformat.v4.new_output(
        "display_data", {"text/html": provenance_table([record]).to_html()}
    )
    node.cells[-1].outputs = [output]
    paths.book_runs().mkdir(parents=True, exist_ok=True)
    nbformat.write(node, paths.book_runs() / "rerank-m.ipynb")
    assert pages_with_records() == {record_link(record): "rerank-m.html"}
    hostile = make("<script>")  # such a name is in no path, and so on no page
    assert page_links([record, elsewhere, hostile]) == {"run-m": "rerank-m.html"}
