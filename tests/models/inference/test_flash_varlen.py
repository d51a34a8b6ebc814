"""Ragged attention on a GPU: the wiring, with a kernel that runs on any machine."""

import sys
import types

import numpy as np
import pytest
import torch
from helpers.tiny_models import ROWS, build, one_by_one, runner

from qwen3nb.models.inference import flash_varlen as varlen
from qwen3nb.models.inference.packing import Packing, packing_of


def ragged(q, k, v, cu_q, cu_k, max_q, max_k, *, scale, causal):
    """What the GPU kernels compute, text by text."""
    assert cu_q.dtype == torch.int32
    assert torch.equal(cu_q, cu_k)
    assert max_q == max_k == int(cu_q.diff().max())
    parts = []
    for start, end in zip(cu_q.tolist(), cu_q.tolist()[1:], strict=False):
        one = (each[start:end].transpose(0, 1).unsqueeze(0) for each in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(
            *one, scale=scale, is_causal=causal, enable_gqa=True
        )
        parts.append(out[0].transpose(0, 1))
    return torch.cat(parts)


def torch_fake(
    q, k, v, cu_q, cu_k, max_q, max_k, *, scale, window_size, enable_gqa, num_splits=None
):
    assert num_splits == 1  # batch-invariant
    assert enable_gqa is (q.shape[1] != k.shape[1])
    causal = {(-1, 0): True, (-1, -1): False}[window_size]
    return ragged(q, k, v, cu_q, cu_k, max_q, max_k, scale=scale, causal=causal)


def flash_fake(q, k, v, cu_q, cu_k, max_q, max_k, *, softmax_scale, causal):
    return ragged(q, k, v, cu_q, cu_k, max_q, max_k, scale=softmax_scale, causal=causal)


@pytest.mark.parametrize("name", ["qwen3 encoder", "qwen3 causal", "bert"])
@pytest.mark.parametrize("library", ["torch", "flash"])
def test_ragged_kernels_get_the_arguments_they_expect(monkeypatch, name, library):
    modules = {
        "torch.nn.attention.varlen": types.SimpleNamespace(varlen_attn=torch_fake),
        "flash_attn": types.SimpleNamespace(flash_attn_varlen_func=flash_fake),
    }
    for module, fake in modules.items():
        monkeypatch.setitem(sys.modules, module, fake)
    kernel = varlen.torch_kernel() if library == "torch" else varlen.flash_kernel()
    target = runner(name)
    target._packing = packing_of(target.model, kernel=kernel)
    assert isinstance(target._packing, Packing)
    np.testing.assert_allclose(target.vectors(ROWS), one_by_one(build(name), ROWS), atol=1e-5)


def test_no_kernel_is_used_without_a_gpu_or_a_library(monkeypatch, caplog):
    assert varlen.varlen_kernel(build("bert")) is None
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    assert varlen.flash_kernel() is None
    old = types.SimpleNamespace(varlen_attn=lambda q, k, v, is_causal: q)
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", old)
    assert varlen.torch_kernel() is None
    on_gpu = types.SimpleNamespace(
        device=torch.device("cuda"), dtype=torch.bfloat16, config=build("bert").config
    )
    assert varlen.varlen_kernel(on_gpu) is None
    assert "texts are padded, which is slower" in caplog.text
