"""The verdict of grading, kept for the page of own data."""

import json

import pytest
from helpers.grading import small_grading

import qwen3nb as q
from qwen3nb.answers.own_data import own_data
from qwen3nb.datasets.rows import DataError
from qwen3nb.evaluation.judged import load_verdict, save_verdict


@pytest.fixture
def study(tmp_path, monkeypatch):
    """An empty study."""
    monkeypatch.setenv("QWEN3NB_HOME", str(tmp_path / "study"))
    (tmp_path / "study").mkdir()
    return tmp_path / "study"


def graded(file, count=3):
    grading = small_grading(file)
    for _ in range(count):
        question = grading.question()
        grading.grade(question.query, question.document, 2)
    return grading


def test_the_verdict_is_kept_and_stands_on_the_page_marked_as_one_of_grading(study, tmp_path):
    grading = graded(tmp_path / "g.jsonl")
    file = save_verdict(grading, "notes")
    assert file == study / "results" / "judged" / "notes.json"
    verdict = load_verdict("notes")
    assert verdict.text == grading.verdict().text
    assert (verdict.graders, verdict.graded, verdict.pool) == (["ann"], 3, 120)
    sentence = str(own_data(q.load_results()).judged_conclusion)
    assert sentence.startswith("`qwen3nb judge`, 20")
    assert sentence.endswith("Not decided yet. 3 of 120 documents are graded, by ann.")


def test_without_a_grade_or_a_study_nothing_is_kept(study, tmp_path, monkeypatch):
    assert save_verdict(graded(tmp_path / "g.jsonl", 0), "notes") is None
    monkeypatch.delenv("QWEN3NB_HOME")
    monkeypatch.chdir(tmp_path)
    assert save_verdict(graded(tmp_path / "h.jsonl"), "notes") is None
    assert load_verdict("notes") is None
    assert own_data([]).judged_conclusion is None


@pytest.mark.parametrize("change", [{"graded": -1}, {"text": 3}, {"more": 1}, None])
def test_a_file_that_is_no_verdict_is_named(study, tmp_path, change):
    file = save_verdict(graded(tmp_path / "g.jsonl"), "notes")
    content = "nonsense" if change is None else json.dumps(json.loads(file.read_text()) | change)
    file.write_text(content)
    with pytest.raises(DataError, match=r"notes\.json: no verdict of `qwen3nb judge`"):
        load_verdict("notes")
