"""Records that pages link to are copied into the book, and nothing else is."""

import json

import nbformat
from helpers.notebooks import notebook_of
from helpers.records import make

from qwen3nb import paths
from qwen3nb.book.build import page_links
from qwen3nb.book.pages import copy_linked_records, pages_with_records
from qwen3nb.records.record import Result
from qwen3nb.report.leaderboard.one_model import provenance_table
from qwen3nb.report.render.home import record_link


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
    assert copies[0].parent.parent.parent.name == "records"


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
