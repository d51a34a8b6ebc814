"""Attention by products equals PyTorch's, text by text."""

from contextlib import nullcontext

import pytest
import torch
from helpers.tiny_models import build, runner
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from qwen3nb.models.inference import product_attention
from qwen3nb.models.inference.onednn_linear import linear_library
from qwen3nb.models.inference.product_attention import BucketLayout, attend_after, has_fast_products

SIZE = 8


@pytest.fixture(autouse=True)
def exact(monkeypatch):
    """Products by PyTorch's choice: oneDNN may round them on a processor with AMX."""
    monkeypatch.setattr(product_attention, "onednn_products", lambda dtype: nullcontext())


def heads(count, tokens, random, texts=1):
    """States (N, heads, T, D) as transformers makes them: tokens first in memory."""
    return torch.randn(texts, tokens, count, SIZE, generator=random).transpose(1, 2)


@given(
    lengths=st.lists(st.integers(1, 40) | st.integers(120, 140), min_size=1, max_size=7),
    groups=st.sampled_from([(4, 4), (4, 2), (3, 1)]),
    causal=st.booleans(),
)
@settings(deadline=None, max_examples=40)
def test_each_text_attends_to_itself(lengths, groups, causal):
    lengths = sorted(lengths, reverse=True)
    random = torch.Generator().manual_seed(len(lengths))
    h, k = groups
    query, key, value = (heads(each, sum(lengths), random) for each in (h, k, k))
    buckets = BucketLayout.of(lengths, heads=groups, causal=causal, dtype=torch.float32)
    out = buckets.attend(query, key, value, scale=0.3)
    start, expected = 0, []
    for length in lengths:
        own = slice(start, start + length)
        part = scaled_dot_product_attention(
            *(each[:, :, own] for each in (query, key, value)),
            is_causal=causal,
            scale=0.3,
            enable_gqa=True,
        )
        expected.append(part.transpose(1, 2))
        start += length
    torch.testing.assert_close(out, torch.cat(expected, dim=1), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("size", [-1e3, 20.0, 1e3])
def test_scores_beyond_the_powers_of_2_that_a_number_can_be(size, causal):
    """The first text's scores are all ``size`` times a few, so powers of 2 over- or underflow."""
    random = torch.Generator().manual_seed(0)
    query, key, value = (heads(2, 25, random).abs() for _ in range(3))
    query[:, :, :13] *= size
    buckets = BucketLayout.of([13, 12], heads=(2, 2), causal=causal, dtype=torch.float32)
    out = buckets.attend(query, key, value, scale=0.3)
    for own in (slice(13), slice(13, 25)):
        expected = scaled_dot_product_attention(
            *(each[:, :, own] for each in (query, key, value)), is_causal=causal, scale=0.3
        )
        torch.testing.assert_close(out[:, own], expected.transpose(1, 2), atol=1e-5, rtol=1e-4)


def test_very_long_texts_are_left_to_pytorch():
    layout = {"heads": (12, 12), "causal": False, "dtype": torch.float32}
    assert BucketLayout.of([1024], **layout) is not None
    assert BucketLayout.of([2048], **layout) is None
    assert BucketLayout.of([512] * 16, **layout) is None


def test_texts_of_similar_length_share_a_bucket():
    lengths = [130, 129, 31, 17, 16, 5, 1]
    buckets = BucketLayout.of(lengths, heads=(2, 2), causal=False, dtype=torch.float32)
    assert [(part.texts, part.length) for part in buckets.parts] == [(2, 144), (4, 32), (8, 16)]
    full = BucketLayout.of([16] * 8, heads=(2, 2), causal=False, dtype=torch.float32)
    assert full.parts[0].bias is None  # nothing to mask


@pytest.mark.parametrize(("texts", "rows"), [(1, 5), (3, 5), (3, 1)])
@pytest.mark.parametrize("groups", [(4, 4), (4, 2)])
def test_texts_attend_to_a_prefix_they_share(texts, rows, groups):
    """``rows`` 1: only the last token of each text asks, and texts differ in length."""
    random = torch.Generator().manual_seed(0)
    h, k = groups
    query = heads(h, rows, random, texts)
    key, value = (heads(k, 5, random, texts) for _ in range(2))
    prefix = tuple(heads(k, 7, random) for _ in range(2))
    if rows == 1:
        last = torch.tensor([4, 2, 0])[:texts]
        seen = (torch.arange(5) <= last.unsqueeze(1))[:, None, None]
    else:
        seen = torch.ones(5, 5, dtype=torch.bool).tril()
    bias = torch.zeros(seen.shape).masked_fill(~seen, -torch.inf)
    space = torch.full((texts * h * rows * 12 + 3,), torch.nan)
    out = attend_after(prefix, query, key, value, bias=bias, scale=0.3, space=space)
    whole = torch.cat([torch.ones(*seen.shape[:-1], 7, dtype=torch.bool), seen], dim=-1)
    expected = scaled_dot_product_attention(
        query,
        *(torch.cat([p.expand(texts, -1, -1, -1), own], dim=2)
          for p, own in zip(prefix, (key, value), strict=True)),
        attn_mask=whole,
        scale=0.3,
        enable_gqa=True,
    )  # fmt: skip
    torch.testing.assert_close(out, expected.transpose(1, 2), atol=1e-5, rtol=1e-5)


def test_a_processor_with_amx_keeps_pytorchs_attention(monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    has_fast_products.cache_clear()
    assert not has_fast_products(torch.float32)
    assert not has_fast_products(torch.bfloat16)
    has_fast_products.cache_clear()


def test_products_that_round_are_not_used(monkeypatch):
    """As oneDNN may, on a processor that multiplies bfloat16 faster."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    has_fast_products.cache_clear()
    exact = torch.bmm
    assert has_fast_products(torch.float32)
    monkeypatch.setattr(torch, "bmm", lambda a, b: exact(a.bfloat16(), b.bfloat16()).float())
    has_fast_products.cache_clear()
    assert not has_fast_products(torch.float32)
    assert not has_fast_products(torch.float16)
    has_fast_products.cache_clear()


def fail_in_between(matmul):
    with product_attention.onednn_products(torch.float32):
        assert matmul.fp32_precision == "bf16"
        raise RuntimeError("in between")


def test_the_setting_is_given_back(monkeypatch):
    monkeypatch.undo()
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    with pytest.raises(RuntimeError, match="in between"):
        fail_in_between(matmul)
    assert matmul.fp32_precision == before
    with product_attention.onednn_products(torch.bfloat16):
        assert matmul.fp32_precision == before


def test_the_setting_stays_while_another_thread_needs_it(monkeypatch):
    """The first to come leaves first; a plain save and restore would leave the setting on."""
    monkeypatch.undo()
    matmul = torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    first, second = (product_attention.onednn_products(torch.float32) for _ in range(2))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert matmul.fp32_precision == "bf16"
    second.__exit__(None, None, None)
    assert matmul.fp32_precision == before


def test_only_a_prepacked_model_runs_as_products():
    assert not product_attention.runs_as_products(build("bert"))
    assert runner("bert", linear="torch")._packing.products is False
    if linear_library() == "onednn" and has_fast_products(torch.float32):
        assert runner("bert")._packing.products
