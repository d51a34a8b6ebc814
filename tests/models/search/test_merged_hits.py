"""Hits of parts, merged, are those of one search."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.models.search.exact import Hits, search
from qwen3nb.models.search.merged_hits import merge_hits


def by_parts(queries, corpus, cuts, k):
    bounds = [0, *sorted(cuts), len(corpus)]
    for start, end in itertools.pairwise(bounds):
        hits = search(queries, corpus[start:end], k=k)
        yield Hits(np.where(hits.ids < 0, -1, hits.ids + start), hits.scores)


@given(
    seed=st.integers(0, 10**6), documents=st.integers(1, 40), k=st.integers(1, 50),
    cuts=st.data(), grid=st.booleans(), order=st.randoms(use_true_random=False),
)  # fmt: skip
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


def test_no_queries():
    none = Hits(np.empty((0, 2), dtype=np.int64), np.empty((0, 2), dtype=np.float32))
    assert merge_hits([none, none], 2).ids.shape[0] == 0
