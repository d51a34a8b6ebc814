"""Ragged attention on a GPU: the wiring, with a kernel that runs on any machine."""

import sys
import types

import numpy as np
import pytest
import torch
from helpers.tiny_models import ROWS, build, one_by_one, runner

from qwen3nb.models.inference.flash_varlen import varlen_kernel
from qwen3nb.models.inference.packing import Packing, packing_of


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
    np.testing.assert_allclose(target.vectors(ROWS), one_by_one(build(name), ROWS), atol=1e-5)


def test_no_kernel_is_used_without_a_gpu_or_with_another_signature(monkeypatch, caplog):
    assert varlen_kernel(build("bert")) is None
    assert kernel_on_gpu(monkeypatch, lambda q, k, v, is_causal: q) is None
    assert "texts are padded, which is slower" in caplog.text
