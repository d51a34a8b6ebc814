"""Collections of MTEB tasks hold the queries that MTEB scores."""

import mteb
import pytest
from datasets import Dataset
from helpers.mteb_tasks import WORDS, loaded

from qwen3nb.datasets.collection import from_mteb
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.models.load import load_model


def judged_zero():
    """A task in which "a" has an answer, "b" only zeros, "c" no judgement; "gone" has no text."""
    ids = [f"d{index}" for index in range(len(WORDS))]
    split = {
        "corpus": Dataset.from_dict({"id": ids, "text": WORDS, "title": [""] * len(ids)}),
        "queries": Dataset.from_dict({"id": ["a", "b", "c"], "text": ["sun rain", "moon", "fog"]}),
        "relevant_docs": {"a": {"d0": 1, "d2": 0}, "b": {"d1": 0}, "c": {}, "gone": {"d1": 1}},
        "top_ranked": None,
    }
    return loaded("SciFact", {"default": {"test": split}})


def test_queries_whose_judgements_are_all_zero_count_as_0_as_in_mteb():
    (collection,) = from_mteb(judged_zero())
    assert list(collection.queries) == list(collection.qrels) == ["a", "b"]
    ours = evaluate("bm25", collection, show_progress=False).results[0]
    assert ours.per_query["nDCG@10"]["b"] == 0
    zero = "queries without a relevant document, counted as 0"
    assert ours.task.counts[zero] == 1
    assert ours.task.counts["queries without judgements, left out"] == 1
    model = load_model("bm25")
    theirs = mteb.evaluate(model, judged_zero(), cache=None, show_progress_bar=False)
    assert ours.main.value == pytest.approx(theirs.task_results[0].get_score(), abs=1e-5)
    suite = evaluate(model, tasks=[judged_zero()], show_progress=False).results[0]
    assert suite.per_query["nDCG@10"] == ours.per_query["nDCG@10"]
    assert suite.task.counts[zero] == 1
