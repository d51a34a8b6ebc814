"""Own queries and documents as one task: thresholds, dropped queries, boosts by hand."""

from datetime import date

import pytest

from qwen3nb.datasets.custom.documents import find_layout
from qwen3nb.datasets.custom.load import load_domain

QUERIES = """
[settings]
relevance_threshold = 2
star_boost_coefficient = 0.3
recency_coefficient = 0.2
recency_days = 10

[[queries]]
id = "graded"
query = "one"
relevance_grades = { a = 3, b = 1, c = 2, gone = 3 }
expected = ["a", "b"]

[[queries]]
id = "weak"
query = "two"
relevance_grades = { a = 1 }

[[queries]]
id = "listed"
query = "three"
category = "short"
expected = ["b"]
"""
DOCUMENTS = """
{"id": "a", "text": "first", "stars": 99, "day": "2026-01-05"}
{"id": "b", "text": "second", "stars": 0, "day": "2026-02-10"}
{"id": "c", "text": "", "stars": null, "day": null}
"""


@pytest.fixture
def files(tmp_path):
    queries, documents = tmp_path / "q.toml", tmp_path / "d.jsonl"
    queries.write_text(QUERIES)
    documents.write_text(DOCUMENTS)
    return queries, documents


def test_what_is_odd_is_noted_and_counted(files):
    domain = load_domain(*files)
    assert domain.grades == {"graded": {"a": 3, "b": 1, "c": 2}, "listed": {"b": 3}}
    assert domain.relevant == {"graded": {"a": 1, "b": 0, "c": 1}, "listed": {"b": 1}}
    assert (domain.dropped, domain.threshold) == (("weak",), 2)
    assert "(it counts): c, gone" in "\n".join(domain.notes)
    assert domain.counts["empty documents"] == 1
    assert domain.counts["judged documents not in the corpus"] == 1


def test_boosts_by_hand(files):
    """a: 1 + .3 * log10(100) / 6 = 1.1 for its stars; 5 of 10 days: 1 - .2 * .5 = .9."""
    layout = find_layout(stars="stars", updated="day")
    domain = load_domain(*files, layout=layout, on=date(2026, 1, 10))
    assert domain.factors == pytest.approx({"a": 1.1 * 0.9, "b": 1.0, "c": 0.8})
    plain = load_domain(*files, layout=layout, boost=False)
    assert (dict(plain.factors), plain.recipe) == ({"a": 1.0, "b": 1.0, "c": 1.0}, {})
    later = load_domain(*files, layout=layout, on=date(2026, 2, 10))
    assert later.factors == pytest.approx({"a": 1.1 * 0.8, "b": 1.0, "c": 0.8})
    assert len({domain.revision, plain.revision, later.revision}) == 3


def test_any_change_of_the_data_is_another_task(files):
    queries, documents = files
    before = load_domain(*files)
    assert before.name == f"domain-d-{before.revision[:8]}"
    documents.write_text(DOCUMENTS.replace("second", "third"))
    assert load_domain(*files).revision != before.revision
    documents.write_text(DOCUMENTS)
    for old, new in (("b = 1", "b = 2"), ("_threshold = 2", "_threshold = 3"), ("one", "1")):
        queries.write_text(QUERIES.replace(old, new))
        assert load_domain(*files).revision != before.revision, old
    queries.write_text(QUERIES)
    assert load_domain(*files).revision == before.revision


def test_a_collection_has_the_same_grades_and_its_own_records(files):
    collection = load_domain(*files, boost=False, name="mine").collection()
    assert collection.name.startswith("collection-mine-")
    assert {q: dict(grades) for q, grades in collection.qrels.items()} == {
        "graded": {"a": 3, "b": 1, "c": 2},
        "listed": {"b": 3},
    }
