"""The benchmark of forgetting drops what it says, and flips signs of whole clusters."""

import numpy as np
import pytest
import torch

from benchmarks.forgetting import Texts, Toy, _flipped, _matrix
from qwen3nb.datasets.collection import TestCollection

WORDS = ["red", "blue", "green", "black", "white", "small", "large", "round"]


@pytest.fixture
def texts():
    """Queries of two words, each with a document of the two that go with them."""
    pairs = [f"{one} {other}" for one in WORDS for other in WORDS if one != other]
    queries = {f"q{row:02}": text for row, text in enumerate(pairs)}
    documents = {f"d{row:02}": text.replace("e", "3") for row, text in enumerate(pairs)}
    qrels = {query: {f"d{query[1:]}": 1} for query in queries}
    collection = TestCollection("small", documents, queries, qrels)
    rows = np.arange(len(pairs))
    words = {word for text in [*queries.values(), *documents.values()] for word in text.split()}
    numbers = {word: row for row, word in enumerate(sorted(words))}
    return Texts(collection, list(queries), rows, rows, numbers, torch.ones(len(numbers)))


def test_a_dropped_word_is_unlearned_and_others_stay(texts):
    toy = Toy(texts, seed=0)
    toy.train(steps=40)
    before = toy.scores()
    toy.train(steps=40, dropped="red")
    matrix = _matrix(texts, {"before": before, "after": toy.scores()})
    change = matrix.column("after") - matrix.column("before")
    is_red = np.array([texts.is_of("red", row) for row in texts.test])
    assert change[is_red].mean() < change[~is_red].mean() - 0.1


def test_flips_exchange_models_and_keep_sizes(texts):
    columns = {
        "before": dict.fromkeys(texts.queries, 0.1),
        "after": dict.fromkeys(texts.queries, 0.4),
    }
    matrix = _matrix(texts, columns)
    flipped = _flipped(matrix, seed=0)
    change = flipped.column("after") - flipped.column("before")
    assert np.abs(change) == pytest.approx(0.3)
    assert 0 < (change > 0).sum() < len(change)
