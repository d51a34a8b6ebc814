"""Texts of a task by the ids of its records."""

import pytest
from helpers.search_texts import search_part, search_texts

from qwen3nb.evaluation.mteb.per_query import DocumentText, SearchTexts
from qwen3nb.records.record import TaskInfo


def test_texts_judgements_and_documents_by_id():
    texts = search_texts(
        {"q1": "which?"}, {"d1": ("Title", "text"), "d2": "plain"}, {"q1": {"d2": 2}}
    )
    assert (texts.text("q1"), texts.text("q2")) == ("which?", "")
    assert (texts.grades("q1"), texts.grades("q2")) == ({"d2": 2}, {})
    assert texts.documents({"q1": ["d2", "d1", "d3"], "q2": ["d1"], "q3": []}) == {
        "q1": {"d2": DocumentText("", "plain"), "d1": DocumentText("Title", "text")},
        "q2": {"d1": DocumentText("Title", "text")},
        "q3": {},
    }


def test_the_parts_of_a_task_are_kept_apart():
    """The ids of documents may mean other texts in another language."""
    english = search_part({"q1": "one"}, {"d": "english"}, {"q1": {"d": 1}}, prefix="test/en/")
    german = search_part({"q1": "eins"}, {"d": "deutsch"}, {"q1": {"d": 2}}, prefix="test/de/")
    texts = SearchTexts([english, german])
    assert [texts.text(f"test/{part}/q1") for part in ("en", "de")] == ["one", "eins"]
    assert texts.grades("test/de/q1") == {"d": 2}
    read = texts.documents({"test/de/q1": ["d"], "test/en/q1": ["d"]})
    assert (read["test/de/q1"]["d"].text, read["test/en/q1"]["d"].text) == ("deutsch", "english")
    assert (texts.text("q1"), texts.documents({"q1": ["d"]})) == ("", {"q1": {}})


def test_the_texts_of_an_embedded_task_are_its_queries():
    texts = SearchTexts.of_task(TaskInfo("PyDocsSampleRetrieval", "Retrieval", "nDCG@10"))
    assert texts.text("asyncio.gather").startswith("Return a future aggregating")
    (judged,) = texts.grades("asyncio.gather")
    assert texts.documents({"asyncio.gather": [judged]})["asyncio.gather"][judged].text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("AuthorSTS", "of type STS and has no queries"),
        ("SciFact", "neither in a mirror"),
    ],
)
def test_texts_that_are_not_at_hand_are_not_downloaded(name, message, tmp_path, monkeypatch):
    import datasets

    monkeypatch.delenv("QWEN3NB_MIRROR", raising=False)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path))
    with pytest.raises(ValueError, match=message):
        SearchTexts.of_task(TaskInfo(name, "Retrieval", "nDCG@10"))
