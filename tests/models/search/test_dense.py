"""Search by blocks of documents: whatever the block and the limit, the same hits."""

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.models.load import load_encoder
from qwen3nb.models.search.dense import DenseSearch, search_texts
from qwen3nb.models.search.exact import search
from qwen3nb.vectors import encode_file, vector_store

# Equal texts tie; an empty one has the vector zero.
DOCUMENTS = [f"document {n % 17}" for n in range(40)] + [""]
QUERIES = [f"query {n}" for n in range(5)]


@pytest.fixture(scope="module")
def encoder():
    return load_encoder("random:24", cache=False, show_progress=False)


@given(st.integers(1, 50), st.integers(1, 50))
@settings(deadline=None, max_examples=30)
def test_any_block_gives_the_hits_of_the_whole_corpus(encoder, block, k):
    whole = search(
        encoder.encode(QUERIES, role="query"),
        encoder.encode(DOCUMENTS),
        k=k,
        cosine=True,
        zeros=True,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_file, "_MOST", block)
        hits = search_texts(encoder, QUERIES, iter(DOCUMENTS), k=k, cosine=True, zeros=True)
    np.testing.assert_array_equal(hits.ids, whole.ids)
    np.testing.assert_array_equal(hits.scores, whole.scores)


def test_the_products_of_a_search_run_where_the_encoder_does(encoder, monkeypatch):
    monkeypatch.setattr(encoder, "device", "meta")  # of PyTorch: has shapes, and no values
    with pytest.raises(NotImplementedError, match="nonzero"):
        search_texts(encoder, QUERIES, DOCUMENTS, k=3, cosine=True, zeros=True)


def rows(texts, prefix):
    return [{"id": f"{prefix}{n}", "text": text} for n, text in enumerate(texts)]


@pytest.mark.parametrize("limit", [0, 1_000_000])
@pytest.mark.parametrize("kind", [list, Dataset.from_list])
def test_an_encoder_as_a_search_model(encoder, kind, limit, monkeypatch, tmp_path):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path))
    monkeypatch.setattr(vector_store, "available_memory", lambda: limit)
    model = DenseSearch(encoder)
    model.index(kind(rows(DOCUMENTS, "d")))
    queries = kind(rows(QUERIES, "q"))
    run = model.search(queries, top_k=3)
    similarities = encoder.similarity(encoder.encode(QUERIES), encoder.encode(DOCUMENTS)).numpy()
    for query, each in zip(run.values(), similarities, strict=True):
        np.testing.assert_allclose(sorted(query.values()), np.sort(each)[-3:], atol=1e-6)
    candidates = {"q0": ["d40", "d2", "d1", "d2"], "q1": [], "q2": ["d3"]}
    among = model.search(queries, top_k=2, top_ranked=candidates)
    assert [len(hits) for hits in among.values()] == [2, 0, 1, 0, 0]
    assert among["q2"]["d3"] == pytest.approx(similarities[2, 3], abs=1e-6)
    with pytest.raises(ValueError, match="candidate 'x' is not in the corpus"):
        model.search(queries, top_k=2, top_ranked={"q0": ["x"]})


@pytest.mark.parametrize("ranked", [None, {"q0": ["d2", "d0", "d1"], "q1": ["d1", "d0"]}])
def test_queries_get_the_prompt_of_queries_and_documents_that_of_passages(ranked, monkeypatch):
    """By hand: cosines of the prompted texts, encoded without a role; the two best of each."""
    encoder = load_encoder("random:24", cache=False, show_progress=False)
    plain = load_encoder("random:24", cache=False, show_progress=False)
    monkeypatch.setattr(encoder, "prompts", {"query": "ask ", "passage": "tell "})
    monkeypatch.setattr(plain, "prompts", {})
    questions, answers = ["one", "two"], ["three", "four", "five"]
    model = DenseSearch(encoder)
    model.index(rows(answers, "d"))
    run = model.search(rows(questions, "q"), top_k=2, top_ranked=ranked)
    left = plain.encode([f"ask {text}" for text in questions])
    right = plain.encode([f"tell {text}" for text in answers])
    cosines = plain.similarity(left, right).numpy()
    for n, query in enumerate(["q0", "q1"]):
        known = [0, 1, 2] if ranked is None else [int(name[1:]) for name in ranked[query]]
        best = sorted(known, key=lambda row: -cosines[n, row])[:2]
        expected = {f"d{row}": pytest.approx(float(cosines[n, row]), abs=1e-6) for row in best}
        assert run[query] == expected
        assert list(run[query]) == [f"d{row}" for row in best]
