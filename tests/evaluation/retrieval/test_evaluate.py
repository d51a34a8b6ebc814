import pytest
from helpers import TEXTS

from qwen3nb.datasets.collection import TestCollection
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.models.load import load_encoder
from qwen3nb.records.record import Result
from qwen3nb.records.store import verify
from qwen3nb.report.leaderboard.board import cost_table

DOCUMENTS = {f"d{index}": text for index, text in enumerate([*TEXTS, "a cat", "a dog", "rain"])}


QUERIES = {"q1": TEXTS[0], "q2": TEXTS[2], "q3": "nobody judged this"}


RELEVANT = {"q1": {"d0": 2, "d1": 1}, "q2": ["d2"]}


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    return load_encoder(encoder_folder, cache=False, show_progress=False)


@pytest.mark.parametrize("first", ["encoder", "bm25", "fusion"])
def test_a_collection_of_ones_own(first, encoder):
    collection = TestCollection.from_texts(QUERIES, DOCUMENTS, RELEVANT)
    assert set(collection.queries) == {"q1", "q2"}
    model = {"encoder": encoder, "bm25": "bm25", "fusion": "bm25+random"}[first]
    result = evaluate(model, collection, show_progress=False).results[0]
    assert verify(result) == []
    assert result.task.size["queries"] == 2
    assert result.task.counts["queries without judgements, left out"] == 1
    assert result.task.size["documents"] == 7
    assert result.main.value > 0.5  # each query's own text is a document
    assert result.per_query["Recall@1"]["q2"] == 1.0
    again = Result.load(result.save())
    assert again.per_query == result.per_query


def test_every_record_fits_the_page_of_costs(encoder):
    """Of searches, too: a record without a count would stop the leaderboard."""
    more = DOCUMENTS | {"d7": "searched by no other test"}
    collection = TestCollection.from_texts(QUERIES, more, RELEVANT)
    fresh = TestCollection.from_texts(QUERIES, more | {"d8": "one more"}, RELEVANT)
    results = [
        evaluate(model, data, show_progress=False).results[0]
        for model, data in (("bm25", collection), (encoder, collection), (encoder, fresh))
    ]
    assert len(cost_table(results).rows) == 2
    assert [result.cost.texts for result in results[1:]] == [10, 11]  # each its own
