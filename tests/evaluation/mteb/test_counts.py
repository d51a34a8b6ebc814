"""What is counted in the data of a search task."""

import pytest
from datasets import Dataset
from helpers.mteb_tasks import loaded

from qwen3nb.evaluation.mteb.evaluate import data_counts
from qwen3nb.evaluation.run import EvaluationError


def task(qrels, texts=("sun", "moon", "sun", " ")):
    ids = [f"d{index}" for index in range(len(texts))]
    split = {
        "corpus": Dataset.from_dict({"id": ids, "text": list(texts), "title": [""] * len(ids)}),
        "queries": Dataset.from_dict({"id": ["a", "b", "c"], "text": ["x", "y", "z"]}),
        "relevant_docs": qrels,
        "top_ranked": None,
    }
    return loaded("SciFact", {"default": {"test": split}})


def test_what_a_reader_should_know_is_counted():
    assert data_counts(task({"a": {"d0": 1, "d1": 0, "gone": 1}, "b": {"d2": 0}, "c": {}})) == {
        "queries without judgements, left out": 1,
        "queries without a relevant document, counted as 0": 1,
        "judged documents not in the corpus": 1,
        "documents equal to another": 1,
        "empty documents": 1,
    }


def test_nothing_is_counted_where_nothing_is_odd():
    fine = {query: {"d0": 1} for query in "abc"}
    assert data_counts(task(fine, texts=("sun", "moon"))) == {}
    assert data_counts(loaded("STSBenchmark", {"test": Dataset.from_dict({"score": [1.0]})})) == {}


def test_judgements_of_other_documents_are_refused():
    with pytest.raises(EvaluationError, match="SciFact: 2 of 3 judged documents are not in the"):
        data_counts(task({"a": {"d0": 1, "x": 1, "y": 1}}))
