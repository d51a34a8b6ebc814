"""Packed, padded and one by one: the same vectors."""

import sys
import types

import numpy as np
import pytest
import torch
import transformers
from helpers.tiny_models import BERT, PACKED, PADDED, ROWS, build, one_by_one, runner
from helpers.tolerances import assert_close

from qwen3nb.models.inference.packing import Packing, packing_of, varlen_kernel
from qwen3nb.models.inference.runner import Runner
from qwen3nb.models.modeling.pooling import POOLINGS


@pytest.mark.parametrize("lines", ["torch", "onednn"])
@pytest.mark.parametrize("name", PACKED)
def test_packed_vectors_are_those_of_the_stock_class(name, lines):
    for how in POOLINGS if name.startswith("qwen3") else ["mean"]:
        fast = runner(name, how=how, linear=lines)
        assert fast.way == "packed"
        expected = one_by_one(build(name), ROWS, how=how)
        assert_close(fast.vectors(ROWS), expected)


@pytest.mark.parametrize("name", PADDED)
def test_what_cannot_be_packed_is_padded(name):
    slow = runner(name, batch_size=3)
    assert (slow.way, slow.onednn) == ("padded", False)
    assert_close(slow.vectors(ROWS), one_by_one(build(name), ROWS))


def test_a_subclass_is_not_taken_for_its_parent():
    class Mine(transformers.BertModel):
        pass

    assert packing_of(Mine(transformers.BertConfig(**BERT))) is None


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


def ragged(q, k, v, cu_q, cu_k, max_q, max_k, *, scale, window_size, enable_gqa, num_splits):
    """What the GPU's kernel computes, text by text."""
    assert num_splits == 1  # batch-invariant
    assert enable_gqa is (q.shape[1] != k.shape[1])
    assert cu_q.dtype == torch.int32
    assert torch.equal(cu_q, cu_k)
    assert max_q == max_k == int(cu_q.diff().max())
    causal = {(-1, 0): True, (-1, -1): False}[window_size]
    parts = []
    for start, end in zip(cu_q.tolist(), cu_q.tolist()[1:], strict=False):
        one = (each[start:end].transpose(0, 1).unsqueeze(0) for each in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(
            *one, scale=scale, is_causal=causal, enable_gqa=True
        )
        parts.append(out[0].transpose(0, 1))
    return torch.cat(parts)


def kernel_on_gpu(monkeypatch, attention):
    module = types.SimpleNamespace(varlen_attn=attention)
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", module)
    config = build("bert").config
    return varlen_kernel(
        types.SimpleNamespace(device=torch.device("cuda"), dtype=torch.bfloat16, config=config)
    )


@pytest.mark.parametrize("name", ["qwen3 encoder", "qwen3 causal", "bert"])
def test_the_ragged_kernel_gets_the_arguments_it_expects(monkeypatch, name):
    target = runner(name)
    target._packing = packing_of(target.model, kernel=kernel_on_gpu(monkeypatch, ragged))
    assert isinstance(target._packing, Packing)
    assert_close(target.vectors(ROWS), one_by_one(build(name), ROWS))


def test_no_kernel_is_used_without_a_gpu_or_with_another_signature(monkeypatch, caplog):
    assert varlen_kernel(build("bert")) is None
    assert kernel_on_gpu(monkeypatch, lambda q, k, v, is_causal: q) is None
    assert "texts are padded, which is slower" in caplog.text
