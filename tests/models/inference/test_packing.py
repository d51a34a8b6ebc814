"""Packed, padded and one by one: the same vectors."""

import numpy as np
import pytest
import torch
import transformers
from helpers.tiny_models import BERT, PACKED, PADDED, ROWS, VOCABULARY, build, one_by_one, runner
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.models.inference.packing import packing_of
from qwen3nb.models.inference.runner import Runner
from qwen3nb.models.modeling.pooling import POOLINGS


@pytest.mark.parametrize("lines", ["torch", "onednn"])
@pytest.mark.parametrize("name", PACKED)
def test_packed_vectors_are_those_of_the_stock_class(name, lines):
    for how in POOLINGS if name.startswith("qwen3") else ["mean"]:
        fast = runner(name, how=how, linear=lines)
        assert fast.way == "packed"
        expected = one_by_one(build(name), ROWS, how=how)
        np.testing.assert_allclose(fast.vectors(ROWS), expected, atol=1e-5)


@pytest.mark.parametrize("name", PADDED)
def test_what_cannot_be_packed_is_padded(name):
    slow = runner(name, batch_size=3)
    assert (slow.way, slow.onednn) == ("padded", False)
    np.testing.assert_allclose(slow.vectors(ROWS), one_by_one(build(name), ROWS), atol=1e-5)


def test_a_subclass_is_not_taken_for_its_parent():
    class Mine(transformers.BertModel):
        pass

    assert packing_of(Mine(transformers.BertConfig(**BERT))) is None


def test_causal_and_bidirectional_texts_differ_where_they_should():
    """The first token of a causal text does not see the others; a bidirectional one does."""
    rows = [[5, 6, 7], [5, 8, 9]]
    for name, same in (("qwen3 causal", True), ("qwen3 encoder", False)):
        first, second = runner(name, how="cls").vectors(rows)
        assert np.allclose(first, second, atol=1e-5) is same


@pytest.fixture(scope="module")
def runners():
    return {name: runner(name) for name in ("qwen3 encoder", "qwen3 causal", "bert")}


@given(
    name=st.sampled_from(["qwen3 encoder", "qwen3 causal", "bert"]),
    rows=st.lists(
        st.lists(st.integers(3, VOCABULARY - 1), min_size=1, max_size=24), min_size=1, max_size=12
    ),
    budget=st.integers(1, 64),
    order=st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=60)
def test_neighbours_order_and_budget_change_no_vector(runners, name, rows, budget, order):
    fast = runners[name]
    rows = [*rows, rows[0]]  # a duplicate at least
    fast.budget = 1
    alone = fast.vectors(rows)
    shuffled = list(range(len(rows)))
    order.shuffle(shuffled)
    fast.budget = budget
    together = fast.vectors([rows[index] for index in shuffled])
    np.testing.assert_allclose(together, alone[shuffled], atol=1e-5)


def test_a_prepared_model_refuses_a_padded_batch():
    model = runner("bert").model
    with pytest.raises(ValueError, match="needs their layout"):
        model(input_ids=torch.tensor([[5, 6, 0]]), attention_mask=torch.tensor([[1, 1, 0]]))


def test_two_models_share_nothing():
    """The attention is registered once for all; what it needs travels with each forward."""
    packed, stock = runner("bert"), build("bert")
    before = one_by_one(stock, ROWS)
    packed.vectors(ROWS)
    np.testing.assert_array_equal(one_by_one(stock, ROWS), before)
    assert stock.config._attn_implementation == "sdpa"


def test_16_bits_stay_close():
    half = Runner(build("qwen3 encoder").to(torch.bfloat16), pooling="mean", normalize=True)
    assert half.way == "packed"
    cosines = (half.vectors(ROWS) * one_by_one(build("qwen3 encoder"), ROWS)).sum(1)
    assert cosines.min() > 0.995
