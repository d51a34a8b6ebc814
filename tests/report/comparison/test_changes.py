"""The queries that changed, with their texts."""

import pytest
from helpers.html import HOSTILE, Tags
from helpers.records import amend, make, three_models
from helpers.search_texts import search_texts

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.report.comparison.changes import changes_table
from qwen3nb.report.comparison.query_texts import top_documents

TASK = "PyDocsSampleRetrieval"
TEXTS = search_texts({f"q{i}": f"{i} " + "which method sorts a list? " * 9 for i in range(40)})


def changed(**more):
    comparison = compare(three_models(), tier="smoke", baseline="now")
    return changes_table(comparison, texts=TEXTS, most=2, **more)


def test_changed_queries_have_their_text_beside_the_id():
    table = changed()
    assert len(table.rows) == 4
    assert len(table.columns) == 3  # no record keeps its documents
    query = table.rows[0][1]
    assert query.text.startswith(f"{query.detail.removeprefix('q')} which method")
    assert (len(query.text), query.text[-1], query.link) == (80, "…", "")
    assert "the 2 models nearest to now and now itself differ most" in table.caption


def test_changed_queries_of_the_task_that_the_explorer_shows_link_there():
    row = changed(explorer=TASK).rows[0]
    assert row[1].link == f"explorer.html#q={row[1].detail}&a={row[0].text}&b=now"
    assert changed(explorer="SciFact").rows[0][1].link == ""


def test_top_documents_are_shown_where_no_link_leads_to_them():
    results = [make("a", (0.1, 0.5)), make("b", (0.2, 0.9))]
    results[0].config["top"] = {"q0": ["d1", "d2"], "q1": ["d3", "d4"]}
    comparison = compare(results, baseline="b")
    row = changes_table(comparison, texts=TEXTS, best=1).rows[0]
    assert [cell.text for cell in row][3:] == ["d3", ""]
    assert len(changes_table(comparison, texts=TEXTS, explorer=TASK).columns) == 3


def test_the_parts_of_a_task_have_the_rankings_of_the_whole():
    """Their queries have no prefix, the record's rankings have."""
    result = make("a")
    amend(result, "task", splits=("test",), subsets=("en",))
    result.config["top"] = {"test/en/q0": ["d"], "test/de/q0": ["e"]}
    assert top_documents(result, "q0") == ["d"]
    assert top_documents(result, "test/de/q0") == ["e"]
    assert top_documents(result, "q1") == []


def test_without_texts_the_ids_remain_and_a_note_says_why():
    results = [make(name, scores, task="NoSuchTask") for name, scores in
               (("a", (0.1, 0.5, 0.3)), ("b", (0.2, 0.4, 0.9)))]  # fmt: skip
    table = changes_table(compare(results, baseline="a"))
    assert [row[1].text for row in table.rows] == ["q2", "q0", "q1"]
    assert table.rows[0][1].detail == ""
    assert table.note.startswith("Query texts are not available: unknown task")


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_texts_and_ids_are_text(text):
    results = [make("a", {text: 0.1}), make("b", {text: 0.9})]
    for each in results:
        each.config["top"] = {text: [text]}
    texts = search_texts({text: f"{text} {text}"})
    page = changes_table(compare(results, baseline="a"), texts=texts, explorer=TASK).to_html()
    links = [link for link in Tags(page).links if not link.startswith("data:text/plain")]
    assert all(link.startswith("explorer.html#q=") for link in links)
    assert not {"script", "img"} & set(Tags(page).tags)
