"""Sums of words' scores are those of bm25s, and the best documents those of a full sort."""

import bm25s
import numpy as np
import pytest

from qwen3nb.models.search import word_scores
from qwen3nb.models.search.word_scores import WordScores, found_rows


@pytest.fixture(scope="module")
def index():
    """Forty words in 500 documents: the first in most of them, the last in a few."""
    draw = np.random.default_rng(0)
    ranks = (40 ** draw.random((500, 12))).astype(int) - 1
    documents = [[f"w{rank}" for rank in row] for row in ranks]
    made = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    made.index(documents, show_progress=False)
    return made


@pytest.mark.parametrize("rows", [0, 2, 1000])
def test_sums_are_those_of_bm25s_bit_by_bit(index, rows, monkeypatch):
    monkeypatch.setattr(word_scores, "ROWS_MEMORY", 4 * 500 * rows)
    scores = WordScores(index.vocab_dict, index.scores)
    draw = np.random.default_rng(1)
    queries = [[f"w{number}" for number in draw.integers(0, 40, 15)] for _ in range(30)]
    scores.expand(queries)
    is_frequent = np.diff(index.scores["indptr"]) > 500 / 8
    assert len(scores._rows) == min(rows, is_frequent.sum())
    sums = np.full(500, 7.0, dtype=np.float32)  # whatever was in it is gone
    for words in queries:
        expected = index.get_scores(words)
        assert scores.add([*words, "unknown"], sums).tobytes() == expected.tobytes()
    assert not scores.add([], sums).any()


def test_the_most_frequent_words_get_the_rows_that_fit(index, monkeypatch):
    monkeypatch.setattr(word_scores, "ROWS_MEMORY", 4 * 500)
    scores = WordScores(index.vocab_dict, index.scores)
    scores.expand([["w3", "w0"], ["w1"]])
    assert list(scores._rows) == [index.vocab_dict["w0"]]
    scores.expand([["w1"]])  # there is no room for another
    assert len(scores._rows) == 1


@pytest.mark.parametrize("shape", ["distinct", "tied", "mostly zero", "one score", "nothing"])
def test_found_documents_contain_the_best_and_their_ties(shape):
    draw = np.random.default_rng(2)
    for documents, k in [(1, 1), (40, 3), (1000, 5), (1000, 100), (5003, 20), (600, 600)]:
        scores = {
            "distinct": draw.permutation(documents) + 1,
            "tied": draw.integers(0, 4, documents),
            "mostly zero": draw.random(documents) * (draw.random(documents) < 0.02),
            "one score": np.ones(documents),
            "nothing": np.zeros(documents),
        }[shape].astype(np.float32)
        found = found_rows(scores, k)
        positive = np.flatnonzero(scores > 0)
        assert np.array_equal(found, np.sort(found))
        if len(positive) <= k:
            assert np.array_equal(found, positive)
        else:
            # More than k, as among all of them, so that they are chosen and ordered alike.
            kth_best = np.sort(scores)[-k]
            assert len(found) > k
            assert set(np.flatnonzero(scores >= kth_best)) & set(positive) <= set(found)


def test_few_documents_are_looked_at_twice():
    scores = np.random.default_rng(3).random(20_000, dtype=np.float32)
    assert 101 <= len(found_rows(scores, 100)) < 200
