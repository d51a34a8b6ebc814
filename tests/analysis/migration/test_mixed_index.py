"""A mixed index, against sorting all scores."""

import numpy as np
import pytest

from qwen3nb.analysis.migration.mixed_index import (
    MixedIndex,
    Strategy,
    encoded_first,
    first_kept,
    orders_of_encoding,
    score_moments,
)
from qwen3nb.models.search.exact import search
from qwen3nb.vectors.vector_store import VectorStore

RANDOM = np.random.default_rng(0)
OLD_QUERIES, NEW_QUERIES = RANDOM.normal(size=(2, 7, 5)).astype(np.float32)
OLD, NEW = RANDOM.normal(size=(2, 40, 5)).astype(np.float32)


def ranked(queries, documents):
    return search(queries, documents, k=40)


def mixed_index(**cross):
    return MixedIndex(
        old=ranked(OLD_QUERIES, OLD),
        new=ranked(NEW_QUERIES, NEW),
        old_moments=score_moments(OLD_QUERIES, VectorStore.of(OLD)),
        new_moments=score_moments(NEW_QUERIES, VectorStore.of(NEW)),
        **cross,
    )


IS_NEW = encoded_first(RANDOM.permutation(40), 0.5)
MIXED = np.where(IS_NEW[:, None], NEW, OLD)
BY_BOTH = np.where(IS_NEW, NEW_QUERIES @ NEW.T, OLD_QUERIES @ OLD.T)


def test_each_part_is_searched_by_its_own_query():
    hits = mixed_index().searched(IS_NEW, Strategy.RAW, k=10)
    assert hits.ids.tolist() == np.argsort(-BY_BOTH, axis=1)[:, :10].tolist()


def test_scores_are_normalised_by_all_documents_of_a_model():
    old_scores, new_scores = OLD_QUERIES @ OLD.T, NEW_QUERIES @ NEW.T
    normalised = [
        (scores - scores.mean(axis=1, keepdims=True)) / scores.std(axis=1, keepdims=True)
        for scores in (old_scores, new_scores)
    ]
    expected = np.argsort(-np.where(IS_NEW, normalised[1], normalised[0]), axis=1)[:, :10]
    hits = mixed_index().searched(IS_NEW, Strategy.NORMALISED, k=10)
    assert hits.ids.tolist() == expected.tolist()


def test_by_rank_takes_the_first_of_each_part_in_turn():
    hits = mixed_index().searched(IS_NEW, Strategy.RANKS, k=10)
    assert (IS_NEW[hits.ids] == [False, True] * 5).all()


def test_one_query_vector_searches_both_parts():
    index = mixed_index(old_on_new=ranked(OLD_QUERIES, NEW), new_on_old=ranked(NEW_QUERIES, OLD))
    for queries, strategy in (
        (OLD_QUERIES, Strategy.OLD_QUERIES),
        (NEW_QUERIES, Strategy.NEW_QUERIES),
    ):
        hits = index.searched(IS_NEW, strategy, k=10)
        assert hits.ids.tolist() == np.argsort(-queries @ MIXED.T, axis=1)[:, :10].tolist()


def test_vectors_of_different_lengths_allow_no_single_query_vector():
    assert Strategy.OLD_QUERIES not in mixed_index().strategies
    with pytest.raises(ValueError, match="different lengths"):
        mixed_index().searched(IS_NEW, Strategy.OLD_QUERIES, k=10)


@pytest.mark.parametrize(("share", "side"), [(0.0, "old"), (1.0, "new")])
def test_at_the_ends_the_index_is_that_of_one_model(share, side):
    index = mixed_index()
    hits = index.searched(encoded_first(np.arange(40), share), Strategy.RAW, k=10)
    assert hits.ids.tolist() == getattr(index, side).ids[:, :10].tolist()


def test_missing_hits_stay_missing():
    few = first_kept(mixed_index().old, IS_NEW & (np.arange(40) < 3), 10)
    assert ((few.ids >= 0).sum(axis=1) == np.count_nonzero(IS_NEW[:3])).all()
    assert np.isneginf(few.scores[few.ids < 0]).all()


def test_orders_are_seeded():
    first, second = ([*orders_of_encoding(9, 2, seed=3)] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert encoded_first(first[0], 0.5).sum() == 4
