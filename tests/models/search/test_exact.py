"""Exact search by blocks; hits of parts, merged, are those of one search."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.models.search.exact import BACKENDS, Hits, boosted, merge_hits, search
from qwen3nb.vectors.block_file import read_blocks


def by_definition(queries, corpus, k):
    scores = (queries.astype(np.float64) @ corpus.astype(np.float64).T).astype(np.float32)
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return ids, np.take_along_axis(scores, ids, axis=1)


def test_by_hand():
    corpus = np.array([[1, 0], [0, 1], [1, 0], [2, 0]], dtype=np.float32)
    hits = search(corpus[:1], corpus, k=3)
    assert hits.ids.tolist() == [[3, 0, 2]]
    assert hits.scores.tolist() == [[2, 1, 1]]
    assert hits.ids.dtype == np.int64


@pytest.mark.parametrize("backend", BACKENDS)
@given(
    seed=st.integers(0, 10**6),
    documents=st.integers(1, 120),
    k=st.integers(1, 150),
    block=st.integers(1, 70),
    grid=st.booleans(),
)
@settings(deadline=None, max_examples=30)
def test_every_backend_and_block_size_gives_the_same(backend, seed, documents, k, block, grid):
    dice = np.random.default_rng(seed)
    corpus = dice.standard_normal((documents, 8), dtype=np.float32)
    queries = dice.standard_normal((3, 8), dtype=np.float32)
    if grid:  # many exact ties
        corpus, queries = corpus.round(), queries.round()
    hits = search(queries, corpus, k=k, backend=backend, block=block)
    ids, scores = by_definition(queries, corpus, k)
    np.testing.assert_array_equal(hits.ids, ids)
    np.testing.assert_array_equal(hits.scores, scores)


@given(
    seed=st.integers(0, 10**6),
    documents=st.integers(1, 60),
    k=st.integers(1, 70),
    block=st.integers(1, 30),
    grid=st.booleans(),
    boost=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_boosted_cosines_with_all_ties_equal_every_score_sorted(
    seed, documents, k, block, grid, boost
):
    dice = np.random.default_rng(seed)
    corpus = dice.standard_normal((documents, 6), dtype=np.float32)
    queries = dice.standard_normal((4, 6), dtype=np.float32)
    if grid:  # many exact ties, no zero vector
        corpus, queries = corpus.round(), queries.round()
        corpus[:, 0] += 9
        queries[:, 5] += 9
    boosts = dice.choice([0.5, 0.8, 1.0, 1.3], documents) if boost else None
    hits = search(
        queries, corpus, k=k, block=block, cosine=True, boosts=boosts, keep_ties=True
    ).run("abcd", range(documents))
    left, right = (each.astype(np.float32).astype(np.float64) for each in (queries, corpus))
    left /= np.linalg.norm(left, axis=1, keepdims=True)
    right /= np.linalg.norm(right, axis=1, keepdims=True)
    cosines = (left[:, None] * right).sum(axis=2)
    factors = np.ones(documents) if boosts is None else boosts
    scores = np.where(cosines >= 0, cosines * factors, cosines / factors).astype(np.float32)
    for row, run in zip(scores, hits.values(), strict=True):
        last = np.sort(row)[::-1][min(k, documents) - 1]
        assert run == {i: score for i, score in enumerate(row.tolist()) if score >= last}


@given(seed=st.integers(0, 10**6), documents=st.integers(1, 90), k=st.integers(1, 99))
@settings(deadline=None, max_examples=30)
def test_without_rescoring_the_float32_product_ranks(seed, documents, k):
    dice = np.random.default_rng(seed)
    corpus = dice.standard_normal((documents, 8), dtype=np.float32)
    corpus = corpus[dice.integers(0, documents, documents)]  # with copies
    queries = dice.standard_normal((5, 8), dtype=np.float32)
    hits = search(queries, corpus, k=k, rescore=False)
    scores = queries @ corpus.T
    ids = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    np.testing.assert_array_equal(hits.ids, ids)
    np.testing.assert_array_equal(hits.scores, np.take_along_axis(scores, ids, axis=1))


def test_hits_by_name_skip_the_padding():
    hits = Hits(np.array([[1, 0], [0, -1]]), np.array([[2, 1], [3, -np.inf]], dtype=np.float32))
    assert hits.run(["p", "q"], ["a", "b"]) == {"p": {"b": 2.0, "a": 1.0}, "q": {"a": 3.0}}


def test_a_boost_never_lowers_a_score_whatever_its_sign():
    cosines = np.array([[0.5, 0.5], [-0.5, -0.5], [0.0, 0.0]])
    scores = boosted(cosines, np.array([0.8, 1.1]))
    assert (scores[:2, 1] > scores[:2, 0]).all()
    np.testing.assert_allclose(scores[1], [-0.5 / 0.8, -0.5 / 1.1])
    assert (scores[2] == 0).all()


def test_files_blocks_and_arrays_are_one_corpus(tmp_path):
    corpus = np.random.default_rng(0).standard_normal((50, 8), dtype=np.float32)
    np.save(tmp_path / "c.npy", corpus)
    expected = by_definition(corpus[:4], corpus, 5)[0]
    blocks = (corpus[i : i + 20] for i in range(0, 50, 20))
    for each in (corpus, tmp_path / "c.npy", blocks):
        np.testing.assert_array_equal(search(corpus[:4], each, k=5, block=7).ids, expected)
    assert search(corpus[:4], corpus[:0], k=5).ids.shape == (4, 0)
    assert search(corpus[:0], corpus, k=5).ids.shape == (0, 5)


def test_what_cannot_be_compared_is_refused(tmp_path):
    corpus = np.ones((30, 4), dtype=np.float32)
    broken = corpus.copy()
    broken[17, 2] = np.nan
    with pytest.raises(ValueError, match="the vector of document 17 is not finite"):
        search(corpus, broken, k=2, block=5)
    with pytest.raises(ValueError, match="the vector of query 17 is not finite"):
        search(broken, corpus, k=2)
    with pytest.raises(ValueError, match=r"document vectors of shape \(N, 4\); got \(30, 3\)"):
        search(corpus, corpus[:, :3], k=2)
    with pytest.raises(ValueError, match="expected k of at least 1; got 0"):
        search(corpus, corpus, k=0)
    with pytest.raises(ValueError, match="unknown backend 'fais'"):
        search(corpus, corpus, k=1, backend="fais")
    with pytest.raises(ValueError, match="too long to compare"):
        search(corpus * 1e30, corpus * 1e30, k=1)
    with pytest.raises(ValueError, match="document 3 is zero"):
        search(corpus, corpus * (np.arange(30) != 3)[:, None], k=1, cosine=True)
    empty = search(corpus[:1], corpus[:2] * [[0], [-1]], k=2, cosine=True, zeros=True)
    assert (empty.ids.tolist(), empty.scores.tolist()) == ([[0, 1]], [[0, -1]])
    for boosts in (np.ones(29), np.ones(31)):
        with pytest.raises(ValueError, match="expected a boost per document"):
            search(corpus, corpus, k=1, boosts=boosts)
    with pytest.raises(ValueError, match="expected backend numpy for a search with boosts"):
        search(corpus, corpus, k=1, boosts=np.ones(30), backend="torch")
    file = tmp_path / "c.npy"
    np.save(file, corpus)
    file.write_bytes(file.read_bytes()[:-4])
    with pytest.raises(ValueError, match="is truncated: expected 30 rows of 4 float32"):
        search(corpus, file, k=1)
    np.save(file, corpus.astype(np.float64))
    with pytest.raises(ValueError, match=r"expected float32 \(N, D\).*float64"):
        list(read_blocks(file, 8))
    file.write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a .npy file"):
        list(read_blocks(file, 8))


def by_parts(queries, corpus, cuts, k):
    bounds = [0, *sorted(cuts), len(corpus)]
    for start, end in itertools.pairwise(bounds):
        hits = search(queries, corpus[start:end], k=k)
        yield Hits(np.where(hits.ids < 0, -1, hits.ids + start), hits.scores)


@given(
    seed=st.integers(0, 10**6),
    documents=st.integers(1, 40),
    k=st.integers(1, 50),
    cuts=st.data(),
    grid=st.booleans(),
    order=st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=60)
def test_any_partition_in_any_tree_gives_the_same(seed, documents, k, cuts, grid, order):
    dice = np.random.default_rng(seed)
    corpus = dice.standard_normal((documents, 4), dtype=np.float32)
    queries = dice.standard_normal((3, 4), dtype=np.float32)
    if grid:  # many exact ties
        corpus, queries = corpus.round(), queries.round()
    bounds = st.lists(st.integers(1, max(1, documents - 1)), unique=True, max_size=6)
    parts = list(by_parts(queries, corpus, cuts.draw(bounds), k))
    order.shuffle(parts)
    while len(parts) > 1:
        size = order.randint(2, 4)
        parts = [merge_hits(parts[:size], k), *parts[size:]]
    expected = search(queries, corpus, k=k)
    np.testing.assert_array_equal(merge_hits(parts, k).ids, expected.ids)
    np.testing.assert_array_equal(merge_hits(parts, k).scores, expected.scores)


def test_padding_is_never_a_hit():
    """A part with fewer hits for one query than for another pads them; no padding comes back."""
    few = Hits(np.array([[4, -1], [5, 6]]), np.array([[-3, -np.inf], [1, 0]], dtype=np.float32))
    more = Hits(np.array([[0], [1]]), np.array([[-9], [1]], dtype=np.float32))
    merged = merge_hits([few, more], 3)
    assert merged.ids.tolist() == [[4, 0, -1], [1, 5, 6]]
    assert merged.scores.tolist() == [[-3, -9, -np.inf], [1, 1, 0]]
    assert merge_hits([few, more], 2).ids.tolist() == [[4, 0], [1, 5]]
