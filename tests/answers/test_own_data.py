"""Which model to use on own data: a page per collection of `qwen3nb domain`."""

import pytest
from helpers.html import HOSTILE
from helpers.records import amend, make, own, state

from qwen3nb.answers.landing import landing_page
from qwen3nb.answers.own_data import own_data, page_of, unjudged_documents
from qwen3nb.metrics.retrieval import UNJUDGED
from qwen3nb.records.results import Results


def evaluated(label, mean, *, collection="notes", revision="r1", finished="2026-01-01", **options):
    """A record of `qwen3nb domain`, with all documents judged."""
    record = own(label, mean, finished=finished, **options)
    amend(record, "task", dataset=f"domain-{collection}", name=f"domain-{collection}-{revision}")
    amend(record, "task", revision=revision, main_metric="MRR@10")
    return record


def test_the_decision_is_that_of_the_candidates_in_two_sentences():
    records = [evaluated("new", 0.8, finished="2026-01-02"), evaluated("old", 0.4)]
    answer = own_data(records)
    assert [record.model.label for record in answer.records] == ["old", "new"]  # by age
    assert answer.candidates.decision.use == "new"
    first, second = answer.conclusion.text.split(". ", 1)
    assert first == "Take new instead of old"
    assert second == "new has MRR@10 0.799, old 0.399, over 40 queries."
    assert len(answer.reasons_table()) == len(answer.candidates.decision.sentences)
    assert len(answer.category_table()) == 2  # even and odd
    assert answer.unjudged_table() is None
    assert set(answer.to_frame()["model"]) == {"old", "new"}
    other = own_data(records, current="new")
    assert other.conclusion.text.startswith("Keep new. No candidate is shown to be better")


def test_one_model_has_scores_and_the_advice_to_evaluate_another():
    answer = own_data([evaluated("old", 0.4)], "notes")
    assert answer.conclusion.text.startswith("old has MRR@10 0.399 [")
    assert answer.conclusion.text.endswith(
        "Evaluate another model with `qwen3nb domain` to compare the two."
    )
    assert answer.table().rows == answer.scores_table().rows
    assert (answer.figure(), answer.reasons_table(), answer.changes_table()) == (None, None, None)


def test_models_on_an_earlier_revision_of_the_data_are_left_out():
    records = [
        evaluated("gone", 0.9, revision="r0", finished="2025-12-01"),
        evaluated("old", 0.4, revision="r1", finished="2026-01-01"),
        evaluated("new", 0.8, revision="r1", finished="2026-01-02"),
    ]
    answer = own_data(records)
    assert [record.model.label for record in answer.records] == ["old", "new"]


def test_documents_that_most_models_found_without_a_judgement_come_first():
    a, b = evaluated("a", 0.4), evaluated("b", 0.5)
    state(a, top={"q0": ["x", "y", "z"]}, judgements={"q0": grades(3, UNJUDGED, UNJUDGED)})
    state(b, top={"q0": ["z", "x", "w"]}, judgements={"q0": grades(UNJUDGED, 3, UNJUDGED)})
    found = [(each.name, each.models, each.place) for each in unjudged_documents([a, b])]
    assert found == [("z", ("a", "b"), 1), ("y", ("a",), 2), ("w", ("b",), 3)]
    table = own_data([a, b]).unjudged_table()
    assert len(table) == 3
    assert "3 documents, of 1 of 40 queries" in table.note


def grades(*first):
    return {"first": list(first), "ideal": [3]}


@pytest.mark.parametrize(
    ("name", "current", "message"),
    [
        ("", "", "choose one of the collections: notes, tickets"),
        ("nots", "", "unknown collection 'nots'; choose one of: notes, tickets"),
        ("notes", "b", "unknown model in use 'b'; choose one of: a"),
    ],
)
def test_unknown_names_are_refused_with_those_that_exist(name, current, message):
    records = [evaluated("a", 0.4), evaluated("b", 0.4, collection="tickets")]
    with pytest.raises(ValueError, match=message):
        own_data(records, name, current=current)


def test_without_own_data_the_page_says_how_to_begin():
    answer = own_data([make("m")])
    assert answer.conclusion.text.startswith("No own data yet: `qwen3nb domain`")
    assert (answer.table(), answer.scores_table(), answer.unjudged_table()) == (None, None, None)
    assert len(answer.to_frame()) == 0
    with pytest.raises(ValueError, match="unknown collection 'notes'"):
        own_data([make("m")], "notes")


def test_two_names_with_one_slug_have_two_pages():
    pages = {page_of(name) for name in ("my notes", "my-notes", "my/notes")}
    assert len(pages) == 3
    assert page_of("my-notes") == "own-data-my-notes"


def test_the_landing_page_has_the_verdict_on_each_collection():
    mine = [evaluated("old", 0.4), evaluated("new", 0.8, finished="2026-01-02")]
    others = [make("m"), make("bm25")]
    box = '<div class="q-own"'
    page = landing([*mine, *others])
    assert page.index("bm25") < page.index(box)
    assert (
        "<strong>On your own 40 queries:</strong> take <strong>new</strong> instead of old" in page
    )
    assert '<a href="runs/own-data-notes.html#the-queries-that-changed-most">' in page

    hostile = [*mine, evaluated("old", 0.4, collection=HOSTILE), *others]
    page = landing(hostile)
    assert page.count(box) == 2
    assert "On your own 40 queries (notes):" in page
    assert "<script>alert" not in page


def test_a_study_of_own_data_alone_has_its_verdict_as_the_lead():
    mine = [evaluated("old", 0.4), evaluated("new", 0.8, finished="2026-01-02")]
    page = landing(mine)
    assert "On your own 40 queries, take <strong>new</strong> instead of old: 0.80 against" in page
    assert "2 models · 40 questions of your own · 2 January 2026" in page
    assert (page.count("<figure"), page.count('class="q-own"')) == (1, 0)
    on_them = Results(mine).leaderboard(tier="smoke", tasks=mine[0].task.key)
    assert landing_page(mine, on_them)["lead"] == page
    alone = landing(mine[:1])
    assert "<strong>old</strong> has MRR@10 0.40." in alone
    assert "Evaluate another model with <code>qwen3nb domain</code>" in alone


def landing(records):
    results = Results(records)
    return landing_page(results, results.leaderboard(tier="smoke"))["lead"]
