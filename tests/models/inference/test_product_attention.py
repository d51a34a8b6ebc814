"""Attention by products equals PyTorch's, text by text."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers.processors import needs_onednn
from helpers.tiny_models import EVERY, runner
from helpers.tolerances import assert_close
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from qwen3nb.models.inference import product_attention
from qwen3nb.models.inference.int8_linear import runs_in_int8
from qwen3nb.models.inference.product_attention import BucketLayout, has_fast_products
from qwen3nb.models.inference.runner import Runner

SIZE = 8


def heads(count, tokens, random, texts=1):
    """States (N, heads, T, D) as transformers makes them: tokens first in memory."""
    return torch.randn(texts, tokens, count, SIZE, generator=random).transpose(1, 2)


def alone(length, start, *states, **options):
    """PyTorch's attention of one text of a packed row, as (N, T, heads, D)."""
    own = (each[:, :, start : start + length] for each in states)
    return scaled_dot_product_attention(*own, enable_gqa=True, **options).transpose(1, 2)


@given(
    lengths=st.lists(st.integers(1, 40) | st.integers(120, 140), min_size=1, max_size=7),
    groups=st.sampled_from([(4, 4), (4, 2), (3, 1)]),
    causal=st.booleans(),
    onednn=st.booleans(),
)
@settings(deadline=None, max_examples=20)
def test_each_text_attends_to_itself(lengths, groups, causal, onednn):
    """In products of oneDNN, and in PyTorch's where those cannot be called."""
    lengths = sorted(lengths, reverse=True)
    random = torch.Generator().manual_seed(len(lengths))
    states = [heads(each, sum(lengths), random) for each in (groups[0], groups[1], groups[1])]
    buckets = BucketLayout.of(lengths, heads=groups, causal=causal, dtype=torch.float32)
    with pytest.MonkeyPatch.context() as patch:
        if not onednn:
            patch.setattr(product_attention, "_onednn_product", lambda: None)
        out = buckets.attend(*states, scale=0.3)
    starts = itertools.accumulate([0, *lengths[:-1]])
    options = {"is_causal": causal, "scale": 0.3}
    expected = [
        alone(n, first, *states, **options) for n, first in zip(lengths, starts, strict=True)
    ]
    assert_close(out, torch.cat(expected, dim=1))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("size", [-1e3, 20.0, 1e3])
def test_scores_beyond_the_powers_of_2_that_a_number_can_be(size, causal):
    """The first text's scores are all ``size`` times a few, so powers of 2 over- or underflow."""
    random = torch.Generator().manual_seed(0)
    states = [heads(2, 25, random).abs() for _ in range(3)]
    states[0][:, :, :13] *= size
    buckets = BucketLayout.of([13, 12], heads=(2, 2), causal=causal, dtype=torch.float32)
    out = buckets.attend(*states, scale=0.3)
    expected = [alone(n, at, *states, is_causal=causal, scale=0.3) for n, at in ((13, 0), (12, 13))]
    queries, keys, _ = states
    largest_score = float(0.3 * (queries @ keys.transpose(-1, -2)).abs().max())
    assert_close(out, torch.cat(expected, dim=1), score=largest_score)


@pytest.fixture
def asked_again():
    """What the processor can do is determined anew, before and after."""
    for each in (has_fast_products, product_attention._onednn_product):
        each.cache_clear()
    yield
    for each in (has_fast_products, product_attention._onednn_product):
        each.cache_clear()


def rounded(one, other, out):
    """A product as oneDNN may compute it on a processor that multiplies bfloat16 faster."""
    return (one.bfloat16() @ other.bfloat16()).float()


@pytest.mark.usefixtures("asked_again")
@pytest.mark.parametrize("amx", [True, False])
def test_pytorchs_attention_stays_where_products_are_slow_or_rounded(monkeypatch, amx):
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    assert has_fast_products(torch.float32) is not amx
    has_fast_products.cache_clear()
    monkeypatch.setattr(product_attention, "_product", rounded)
    assert not has_fast_products(torch.float32)
    assert not has_fast_products(torch.float16)


def states(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def of_another_model():
    """The setting of the process and a product that follows it, as another thread finds them."""
    product = torch.bmm(states(8, 64, 300), states(8, 300, 64))
    return torch.backends.mkldnn.matmul.fp32_precision, product


@needs_onednn
def test_another_model_in_another_thread_sees_nothing_of_a_pass(monkeypatch):
    """It looks while the scores are filled and while they become weights, in every layer."""
    model = runner("bert", linear="onednn")
    model._packing = replace(model._packing, products=True)
    quiet, seen = of_another_model(), []
    weights = product_attention._turn_into_weights

    def watched(scores, fill, scale):
        def filling(factor):
            fill(factor)
            seen.append(other.submit(of_another_model).result())

        sums = weights(scores, filling, scale)
        seen.append(other.submit(of_another_model).result())
        return sums

    monkeypatch.setattr(product_attention, "_turn_into_weights", watched)
    with ThreadPoolExecutor(1) as other:
        model.vectors([list(range(3, 60))])
    assert len(seen) >= 2 * model.model.config.num_hidden_layers
    assert {setting for setting, _ in seen} == {quiet[0]}
    assert all(torch.equal(product, quiet[1]) for _, product in seen)


# The last ones fill a pass of 256 or 512 tokens, alone and together.
LENGTHS = [*(1 + n * n % 75 for n in range(54)), 256, 256, 257, 300, 512, 512]
ROWS = [[3 + (7 * n + i) % 90 for i in range(length)] for n, length in enumerate(LENGTHS)]


@pytest.mark.parametrize("heads", [(12, 12), (32, 8), (64, 8)])
@pytest.mark.parametrize("lengths", [[1024], [724, 300], [528, 496], [512, 512], [1000, 20, 4]])
def test_texts_of_one_pass_run_as_they_do_alone(heads, lengths):
    def as_products(*texts):
        layout = BucketLayout.of(texts, heads=heads, causal=False, dtype=torch.float32)
        return layout is not None

    assert all(as_products(*texts) for texts in (lengths, *([each] for each in lengths)))
    assert not as_products(4096)


@pytest.fixture(
    scope="module",
    params=["bert", "qwen3 encoder", "qwen3 causal", "bert int8", "qwen3 encoder int8"],
)
def name(request):
    return request.param


@pytest.fixture(
    scope="module",
    params=[True, False],
    ids=["attention as products", "attention of PyTorch"],
)
def wide(name, request):
    """A runner whose products are large enough for PyTorch to choose between its libraries.

    In oneDNN, also where another library is faster; with the attention of processors with matrix
    units, which is PyTorch's, and with that of others.
    """
    if not request.param and torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("this is what processors with matrix units run, which have AVX-512")
    name, int8, _ = name.partition(" int8")
    if int8 and not runs_in_int8():
        pytest.skip("this processor has no VNNI, or PyTorch no products in 8 bits")
    kind, config, fields = EVERY[name]
    torch.manual_seed(0)
    sizes = {"hidden_size": 384, "intermediate_size": 1536, "max_position_embeddings": 600}
    model = kind(config(**fields | sizes)).eval()
    linear = "int8" if int8 else "onednn"
    options = {"pooling": "mean", "normalize": True, "budget": 512}
    runner = Runner(model, linear=linear, examples=ROWS[2:9], **options)
    runner._packing = replace(runner._packing, products=request.param)
    return runner


@pytest.fixture
def threads():
    """Set the number of threads; as before afterwards."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def whole(wide):
    """The vectors of all rows, by two threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    vectors = wide.vectors(ROWS)
    torch.set_num_threads(before)
    return vectors


@needs_onednn
@pytest.mark.integration
@pytest.mark.parametrize(("count", "size"), [(1, 25), (3, 7), (3, 60), (4, 1)])
def test_no_bit_depends_on_the_texts_the_shard_or_the_threads_beside(
    wide, whole, threads, count, size
):
    threads(count)
    order = np.random.default_rng(0).permutation(len(ROWS))
    for start in range(0, min(len(ROWS), 10 * size), size):
        shard = order[start : start + size]
        np.testing.assert_array_equal(wide.vectors([ROWS[i] for i in shard]), whole[shard])
    np.testing.assert_array_equal(wide.vectors(ROWS[:1]), whole[:1])  # of one token
