"""Exact search by blocks; hits of parts, merged, are those of one search."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.models.search.exact import Hits, search


def by_definition(queries, corpus, k):
    scores = (queries.astype(np.float64) @ corpus.astype(np.float64).T).astype(np.float32)
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return ids, np.take_along_axis(scores, ids, axis=1)


@st.composite
def vectors(draw, most=120, width=8):
    """Queries and a corpus, one in two of whole numbers, with many exact ties."""
    dice = np.random.default_rng(draw(st.integers(0, 10**6)))
    documents = draw(st.integers(1, most))
    both = [dice.standard_normal((rows, width), dtype=np.float32) for rows in (4, documents)]
    return [each.round() for each in both] if draw(st.booleans()) else both


def assert_hits(hits, ids, scores):
    np.testing.assert_array_equal(hits.ids, ids)
    np.testing.assert_array_equal(hits.scores, scores)


@pytest.mark.parametrize("device", [None, "cpu"])  # NumPy and torch
@given(given_=vectors(), k=st.integers(1, 150), block=st.integers(1, 70))
@settings(deadline=None, max_examples=15)
def test_every_library_and_block_size_gives_the_same(device, given_, k, block):
    hits = search(*given_, k=k, device=device, block=block)
    assert_hits(hits, *by_definition(*given_, k))


def test_a_lower_precision_of_torch_loses_no_document():
    queries, corpus = (np.random.default_rng(n).standard_normal((n, 64)) for n in (9, 500))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        hits = search(queries.astype("f4"), corpus.astype("f4"), k=20, device="cpu")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert_hits(hits, *by_definition(queries.astype("f4"), corpus.astype("f4"), 20))


@given(given_=vectors(60, 6), k=st.integers(1, 70), block=st.integers(1, 30), factors=st.booleans())
@settings(deadline=None, max_examples=20)
def test_boosted_cosines_with_all_ties_equal_every_score_sorted(given_, k, block, factors):
    queries, corpus = given_
    corpus[:, 0] += 9  # no zero vector
    queries[:, 5] += 9
    boosts = np.resize([0.5, 0.8, 1.0, 1.3], len(corpus)) if factors else None
    hits = search(
        queries, corpus, k=k, block=block, cosine=True, boosts=boosts, keep_ties=True
    ).run("abcd", range(len(corpus)))
    left, right = (
        (each := part.astype(np.float64)) / np.linalg.norm(each, axis=1, keepdims=True)
        for part in given_
    )
    cosines = (left[:, None] * right).sum(axis=2)
    boost = np.ones(len(corpus)) if boosts is None else boosts
    # A boost never lowers a score, whatever its sign.
    scores = np.where(cosines >= 0, cosines * boost, cosines / boost).astype(np.float32)
    for row, run in zip(scores, hits.values(), strict=True):
        last = np.sort(row)[::-1][min(k, len(corpus)) - 1]
        assert run == {i: score for i, score in enumerate(row.tolist()) if score >= last}


def test_files_blocks_and_arrays_are_one_corpus(tmp_path):
    corpus = np.random.default_rng(0).standard_normal((50, 8), dtype=np.float32)
    np.save(tmp_path / "c.npy", corpus)
    expected = by_definition(corpus[:4], corpus, 5)[0]
    blocks = (corpus[i : i + 20] for i in range(0, 50, 20))
    for each in (corpus, tmp_path / "c.npy", blocks):
        np.testing.assert_array_equal(search(corpus[:4], each, k=5, block=7).ids, expected)
    assert search(corpus[:4], corpus[:0], k=5).ids.shape == (4, 0)
    assert search(corpus[:0], corpus, k=5).ids.shape == (0, 5)


ONES = np.ones((30, 4), dtype=np.float32)
SOME = np.arange(30) != 17
REFUSED = {
    "the vector of document 17 is not finite": ((ONES, np.where(SOME[:, None], ONES, np.nan)), {}),
    "the vector of query 17 is not finite": ((np.where(SOME[:, None], ONES, np.inf), ONES), {}),
    r"document vectors of shape \(N, 4\); got \(5, 3\)": ((ONES, ONES[:, :3]), {}),
    "expected k of at least 1; got 0": ((ONES, ONES), {"k": 0}),
    "too long to compare": ((ONES * 1e30, ONES * 1e30), {}),
    "document 17 is zero": ((ONES, ONES * SOME[:, None]), {"cosine": True}),
    "expected a boost per document": ((ONES, ONES), {"boosts": np.ones(29)}),
    "expected a boost per documen.": ((ONES, ONES), {"boosts": np.ones(31)}),
    "expected no device": ((ONES, ONES), {"boosts": np.ones(30), "device": "cpu"}),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_compared_is_refused(message):
    given_, options = REFUSED[message]
    with pytest.raises(ValueError, match=message):
        search(*given_, **{"k": 2, "block": 5, **options})


def test_zero_vectors_may_have_the_cosine_0():
    empty = search(ONES[:1], ONES[:2] * [[0], [-1]], k=2, cosine=True, zeros=True)
    assert (empty.ids.tolist(), empty.scores.tolist()) == ([[0, 1]], [[0, -1]])


def test_a_file_that_is_truncated_or_of_another_type_is_refused(tmp_path):
    file = tmp_path / "c.npy"
    np.save(file, ONES)
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(ValueError, match="is truncated: expected 30 rows of 4 float32"):
        search(ONES, file, k=1)
    np.save(file, ONES.astype(np.float64))
    with pytest.raises(ValueError, match=r"expected float32 \(N, D\).*float64"):
        search(ONES, file, k=1)
    file.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a .npy file"):
        search(ONES, file, k=1)


def test_padding_is_never_a_hit():
    few = Hits(np.array([[4, -1], [5, 6]]), np.array([[-3, -np.inf], [1, 0]], dtype=np.float32))
    assert few.run(["p", "q"], list("abcdefg")) == {"p": {"e": -3.0}, "q": {"f": 1.0, "g": 0.0}}
