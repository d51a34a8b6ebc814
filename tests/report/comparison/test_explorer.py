import json
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from helpers.html import HOSTILE, Tags
from helpers.records import RETRIEVAL as TASK
from helpers.records import amend, make, own, state
from helpers.search_texts import search_texts

from qwen3nb.answers.explored_task import top_documents
from qwen3nb.answers.explorer import NoExplorer, explore
from qwen3nb.answers.explorer_page import different_queries
from qwen3nb.records.results import Results

DOCUMENTS = {f"d{i}": (f"Title {i}", f"text {i}") for i in range(8)}
QUERIES = {"q0": "zero", "q1": "one", "q2": "two"}
QRELS = {"q0": {"d0": 1, "d5": 0}, "q1": {"d1": 2}, "q2": {"d7": 1}}


def ranked(label, order, scores):
    result = make(label, scores)
    state(result, top={query: [f"d{i}" for i in order] for query in result.per_query["nDCG@10"]})
    return result


@pytest.fixture
def explorer():
    results = [
        ranked("a", (0, 1, 2, 3, 4, 5), (0.1, 0.5, 0.3)),
        ranked("b", (7, 0, 6, 5, 4, 3), (0.2, 0.4, 0.9)),
    ]
    return explore(results, task=TASK, texts=search_texts(QUERIES, DOCUMENTS, QRELS))


def test_of_many_models_the_page_offers_the_best_or_those_chosen():
    results = [make(f"m{i:02d}", (0.01 * i, 0.5, 0.2)) for i in range(32)]
    texts = search_texts(QUERIES, DOCUMENTS, QRELS)
    best = explore(results, task=TASK, texts=texts)
    data = data_of(best.plot()._repr_html_())
    assert data["models"] == [f"m{i:02d}" for i in range(31, 1, -1)] == list(scores_of(data))
    assert "2 models not shown" in data["note"]
    selected = explore(results, task=TASK, texts=texts, models="m00,m07")
    assert data_of(selected.plot()._repr_html_())["models"] == ["m07", "m00"]
    for wrong, named in {
        "m00": "'m00' alone; add one of: m31, m30",
        "m00,other": "'other'",
    }.items():
        with pytest.raises(ValueError, match=named):
            explore(results, task=TASK, texts=texts, models=wrong)


@pytest.mark.parametrize("task", ["Retrieval", "NoSuchTask"])
def test_a_task_without_a_record_lists_those_that_have_one(task):
    results = Results([make("a"), make("b", task="other")])
    for ask in (results.explore, lambda task: explore(list(results), task=task)):
        with pytest.raises(
            ValueError, match=f"unknown task '{task}'; choose one of: {TASK}, other"
        ):
            ask(task)
    # A study without records has nothing to choose from.
    assert isinstance(explore([], task=task), NoExplorer)


def test_a_task_is_named_first_or_by_its_keyword():
    texts = search_texts(QUERIES, DOCUMENTS, QRELS)
    results = Results([make("a", (0.1, 0.5, 0.3)), make("b", (0.2, 0.4, 0.9))])
    for explorer in (results.explore(TASK, texts=texts), results.explore(task=TASK, texts=texts)):
        assert explorer.models == ["b", "a"]


def data_of(page):
    start = page.index('<script type="application/json">') + len('<script type="application/json">')
    text = page[start : page.index("</script>", start)]
    assert not set("<>&") & set(text)
    (task,) = json.loads(text)["tasks"]
    return task


def scores_of(data):
    return {
        model: [data["values"][place] for place in column]
        for model, column in zip(data["models"], data["scores"], strict=True)
    }


@pytest.mark.parametrize("text", [*HOSTILE, "\u2028 ' \" </script"])
def test_the_explorer_holds_texts_and_never_markup(text):
    results = [make(text, {text: 0.1, "q": 0.5}), make("m", {text: 0.2, "q": 0.9})]
    for each in results:
        state(each, top={text: [text]})
    texts = search_texts({text: text, "q": "other"}, {text: (text, text)}, {text: {text: 1}})
    explorer = explore(results, task=TASK, texts=texts)
    page = explorer.plot()._repr_html_()
    data = data_of(page)
    assert data["ids"][data["texts"].index(text)] == text
    rankings, grades, judged, *counts = data["details"][text]
    assert data["documents"] == [text]
    assert (rankings, grades, judged, counts) == ([[0], [0]], {"0": 1}, [0], [1, 1])
    assert data["models"] == explorer.models
    assert set(Tags(page).tags) == {"div", "p", "script"}
    for table in (explorer.to_frame(), explorer.query(text)):
        assert not {"script", "img", "include"} & set(Tags(table._repr_html_()).tags)


def test_the_explorer_orders_models_and_shows_true_numbers(explorer):
    assert explorer.models == ["b", "a"]
    data = data_of(explorer.plot()._repr_html_())
    assert scores_of(data) == {"b": [0.2, 0.4, 0.9], "a": [0.1, 0.5, 0.3]}
    assert (data["ids"], data["texts"]) == (["q0", "q1", "q2"], ["zero", "one", "two"])
    frame = explorer.to_frame()
    assert list(frame.columns) == ["text", "b", "a", "difference"]
    assert list(frame.index) == ["q2", "q0", "q1"]  # of equal differences, the first
    assert list(explorer.to_frame(first="a").columns)[1:3] == ["a", "b"]
    with pytest.raises(ValueError, match="unknown model 'x'; choose one of: b, a"):
        explorer.query(first="x")


def test_one_query_by_hand(explorer):
    table = explorer.query()
    assert table.caption.startswith("Query q2, “two”: its judged documents")
    assert table.caption.endswith("by nDCG@10 b 0.900 and a 0.300.")
    rows = [[cell.text for cell in row] for row in table.rows]
    assert rows[:2] == [
        ["Title 7", "1", "1", "after 6"],
        ["Title 0", "not judged", "2", "1"],
    ]
    assert table.rows[0][0].detail == "text 7"
    zero = explorer.query("q0", first="a").rows
    assert [cell.text for cell in zero[1]] == ["Title 5", "0", "6", "4"]
    state(explorer.records["b"], top=None)
    assert [cell.text for cell in explorer.query("q0").rows[0]][1:] == ["1", "not kept", "1"]
    with pytest.raises(ValueError, match="unknown query 'q9' of PyDocsSampleRetrieval"):
        explorer.query("q9")


def test_a_page_holds_the_largest_differences_of_every_pair_and_is_not_large(monkeypatch):
    rng = np.random.default_rng(0)
    results = [ranked(name, range(8), rng.uniform(0, 1, 60)) for name in "abc"]
    texts = search_texts({f"q{i}": "query " * 30 for i in range(60)}, DOCUMENTS)
    explorer = explore(results, task=TASK, texts=texts)
    kept = different_queries(explorer.matrix, explorer.models)
    assert sorted(kept) == list(explorer.matrix.queries)
    for first, second in combinations(explorer.models, 2):
        assert set(explorer.to_frame(first=first, second=second).index[:3]) <= set(kept[:20])
    whole = data_of(explorer.plot()._repr_html_())
    assert list(whole["details"]) == kept
    size = len(json.dumps(whole["details"])) // 2
    monkeypatch.setattr("qwen3nb.answers.explorer_page._RANKINGS", size)
    part = data_of(explorer.plot()._repr_html_())
    assert list(part["details"]) == kept[: len(part["details"])]
    assert 15 < len(part["details"]) < 45
    monkeypatch.setattr("qwen3nb.answers.explorer_page._ALL_QUERIES", 60 * 80)
    part = data_of(explorer.plot()._repr_html_())
    assert {len(text) for text in part["texts"]} == {80}


@pytest.mark.integration
def test_without_two_models_or_the_texts_the_page_says_why():
    refused = explore([make("a")], task=TASK)
    assert isinstance(refused, NoExplorer)
    assert "Two models with nDCG@10" in refused._repr_html_()
    assert refused.query().rows == ()
    assert refused.to_frame().empty
    assert refused.conclusion.text == refused.why
    results = [make("a", task="NoSuchTask"), make("b", task="NoSuchTask")]
    assert "unknown task" in explore(results, task="NoSuchTask")._repr_html_()
    for each in results:
        state(each, queries={"q0": "my query", "q1": "b", "q2": "c"})
    own = explore(results, task="NoSuchTask")
    assert (own.text("q0"), own.note) == ("my query", "")


def test_the_rankings_of_a_part_are_those_of_the_whole_task():
    part = make("a")  # its queries have no prefix, the rankings have
    amend(part, "task", splits=("test",), subsets=("en",))
    state(part, top={"test/en/q0": ["d"], "test/de/q0": ["e"]})
    tops = [top_documents(part, query) for query in ("q0", "test/de/q0", "q1")]
    assert tops == [["d"], ["e"], []]


def test_the_conclusion_counts_who_wins_where_they_are_far_apart():
    records = [make("a", [0.9] * 20 + [0.1]), make("b", [0.0] * 19 + [0.2, 0.9])]
    texts = search_texts({"q0": "x"})
    text = explore(records, task=TASK, texts=texts).conclusion.text
    assert text.startswith(
        "The two best models are more than 0.5 apart in nDCG@10 on 21 of 21 queries of Retrieval. "
        "a wins 20 of them, b 1. Over all 21, a is +"
    )
    near = [make("a", (0.5, 0.6)), make("b", (0.4, 0.6))]
    text = explore(near, task=TASK, texts=texts).conclusion.text
    assert "on 0 of 2 queries of Retrieval. Over all 2, a is" in text
    assert "+0.050 [" in text


def test_kinds_of_queries_are_compared_with_one_correction(explorer):
    scores = np.random.default_rng(0).uniform(0, 0.8, 30)
    records = [make("a", scores + 0.1), make("b", scores)]
    for record in records:
        categories = {f"q{i}": "odd" if i % 2 else "even" for i in range(30)}
        amend(record, "task", categories=categories)
    texts = search_texts({f"q{i}": "word " * (1 + i % 6) for i in range(30)})
    table = explore(records, task=TASK, texts=texts).subset_table()
    assert [row[0].text for row in table.rows] == [
        "even",
        "odd",
        "short, 1 to 2 words",
        "medium, 3 to 4 words",
        "long, 5 to 6 words",
    ]
    assert [row[1].text for row in table.rows] == ["15", "15", "10", "10", "10"]
    assert "Holm over 5" in table.note
    # Two of the 1,024 flips of ten equal differences; of five tests, two have a smaller p.
    assert table.rows[2][5].value == pytest.approx(3 * 2 / 2**10)
    # One length, no category: nothing to compare.
    assert explorer.subset_table().rows == ()


def test_unjudged_documents_are_named_where_own_data_are_compared():
    records = [own("a", 0.5), own("b", 0.4)]
    for record, share in zip(records, (0.9, 0.25), strict=True):
        record.metrics["Judged@10"] = replace(record.main, value=share)
    note = explore(records).note
    assert note == (
        "Of the first ten documents of b, 25 % are judged. The others count as not relevant."
    )
    for record in records:
        record.metrics["Judged@10"] = replace(record.main, value=1.0)
    assert explore(records).note == ""


def test_a_kind_of_queries_that_is_not_there_is_refused(explorer):
    assert explorer.only(words=(1, 1)).matrix.queries == explorer.matrix.queries
    with pytest.raises(ValueError, match="no query has this category, language and length"):
        explorer.only(words=(2, 3))
    with pytest.raises(ValueError, match="unknown category 'x'"):
        explorer.only(category="x")
    with pytest.raises(ValueError, match="The records have no measure with a threshold"):
        explorer.with_threshold(2)
