"""Batches bounded by tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qwen3nb.models.batching import batches_by_tokens


@given(
    st.lists(st.integers(1, 40), max_size=30), st.integers(1, 64), st.booleans(), st.integers(0, 4)
)
def test_batches_hold_everything_once_and_stay_in_the_budget(lengths, budget, padded, shares):
    batches = list(batches_by_tokens(lengths, budget=budget, padded=padded, shares=shares))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        own = [lengths[index] for index in batch]
        assert own == sorted(own, reverse=True)
        cost = own[0] * len(own) if padded else sum(own)
        assert cost <= budget or len(own) == 1


def test_a_batch_may_also_be_bounded_by_its_number_of_texts():
    assert list(batches_by_tokens([2, 2, 2], budget=100, size=2)) == [[0, 1], [2]]
    with pytest.raises(ValueError, match="token budget of at least 1; got 0"):
        list(batches_by_tokens([1], budget=0))
