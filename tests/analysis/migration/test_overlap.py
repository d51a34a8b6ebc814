"""How alike two rankings are, against counting by hand and the definition of RBO."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3nb.analysis.migration.overlap import (
    overlap_at,
    rank_biased_overlap,
    shared_documents,
    steady_ranking,
)
from qwen3nb.models.search.exact import Hits

RANKINGS = st.lists(st.integers(0, 15), max_size=8, unique=True)


def padded(*rankings, width=8):
    rows = np.full((len(rankings), width), -1)
    for row, ranking in enumerate(rankings):
        rows[row, : len(ranking)] = ranking
    return rows


@given(RANKINGS, RANKINGS, st.integers(1, 10))
def test_overlap_is_that_of_sets(first, second, k):
    (overlap,) = overlap_at(padded(first), padded(second), k)
    longest = min(k, max(len(first), len(second)))
    shared = len(set(first[:k]) & set(second[:k]))
    assert overlap == (shared / longest if longest else 1)


def test_shared_documents_are_counted_at_every_depth():
    counts = shared_documents(padded([1, 2, 3]), padded([2, 1, 9]), 3)
    assert counts.tolist() == [[0, 2, 2]]


def test_rank_biased_overlap_of_two_ranks_by_hand():
    # X(1) = 0 and X(2) = 1: (1 - p) / p * (1/2 p^2) + 1/2 p^2 at p = 0.5
    (overlap,) = rank_biased_overlap(padded([1, 2]), padded([3, 1]), p=0.5)
    assert overlap == pytest.approx(0.5 * 0.25 + 0.5 * 0.25)


def test_rank_biased_overlap_is_the_sum_of_an_endless_ranking():
    """Extrapolated overlap of equal depth is what the sum of all ranks has, if it goes on alike."""
    first, second = padded([1, 2, 3, 4]), padded([2, 1, 5, 4])
    agreements = [0, 1, 2 / 3, 3 / 4] + [3 / 4] * 400
    expected = sum(0.1 * 0.9**rank * agreement for rank, agreement in enumerate(agreements))
    assert rank_biased_overlap(first, second)[0] == pytest.approx(expected)


@given(RANKINGS, RANKINGS)
def test_rank_biased_overlap_is_symmetric_and_a_share(first, second):
    one, other = padded(first), padded(second)
    (overlap,) = rank_biased_overlap(one, other)
    assert overlap == pytest.approx(rank_biased_overlap(other, one)[0])
    assert -1e-9 <= overlap <= 1 + 1e-9
    assert rank_biased_overlap(one, one)[0] == pytest.approx(1)
    if not set(first) & set(second) and (first or second):
        assert overlap == 0


def test_copies_rank_alike_although_rounding_sets_them_apart():
    scores = np.array([[0.9, 0.5 + 1e-8, 0.5, -np.inf]])
    hits = Hits(np.array([[7, 3, 1, -1]]), scores)
    assert steady_ranking(hits).tolist() == [[7, 1, 3, -1]]


def test_wrong_parameters_are_refused():
    with pytest.raises(ValueError, match="k of at least 1"):
        overlap_at(padded([1]), padded([1]), 0)
    with pytest.raises(ValueError, match="p between 0 and 1"):
        rank_biased_overlap(padded([1]), padded([1]), p=1)
