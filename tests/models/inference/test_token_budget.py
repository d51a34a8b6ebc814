"""Passes of a size that fits, and the class and message of what did not."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qwen3nb.models.inference.token_budget import TokenBudget, fitting_tokens, sent, tokens_per_pass

MINILM = SimpleNamespace(hidden_size=384, num_attention_heads=12, intermediate_size=1536)
QWEN3 = {  # hidden, intermediate, heads, key heads, head size
    "0.6B": (1024, 3072, 16, 8, 128),
    "4B": (2560, 9728, 32, 8, 128),
}


def qwen3(size):
    hidden, inner, heads, groups, head = QWEN3[size]
    return SimpleNamespace(
        hidden_size=hidden, intermediate_size=inner, num_attention_heads=heads,
        num_key_value_heads=groups, head_dim=head,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("gigabytes", "config", "size", "tokens"),
    [
        (140, qwen3("0.6B"), 2, 65_536),
        (140, qwen3("4B"), 2, 65_536),
        (14, qwen3("4B"), 2, 32_768),
        (4, qwen3("0.6B"), 2, 32_768),
        (4, qwen3("0.6B"), 4, 16_384),
        (1, MINILM, 2, 16_384),
        (0.001, qwen3("4B"), 2, 1024),
    ],
)
def test_passes_fit_the_memory_and_the_model(gigabytes, config, size, tokens):
    assert fitting_tokens(int(gigabytes * 1e9), config, size=size) == tokens


@given(free=st.integers(0, 1 << 40), more=st.integers(0, 1 << 40), size=st.sampled_from([2, 4]))
def test_more_memory_never_means_smaller_passes(free, more, size):
    fewer, many = (fitting_tokens(each, MINILM, size=size) for each in (free, free + more))
    assert 1024 <= fewer <= many <= 65_536
    assert fewer.bit_count() == many.bit_count() == 1


def test_a_cpu_has_small_passes_and_keeps_its_tensors():
    assert tokens_per_pass(SimpleNamespace(device=torch.device("cpu"))) == 1024
    tensor = torch.ones(2)
    assert sent(tensor, torch.device("cpu")) is tensor


@pytest.mark.parametrize(
    "failure",
    [
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("CUDA error: out of memory"),
    ],
)
def test_passes_halve_and_go_on_where_they_stopped(failure):
    seen = []

    def forward(indices):
        seen.append(indices)
        if len(indices) > 2:
            raise failure
        return len(indices)

    budget = TokenBudget(8)
    done = list(budget.passes([2, 2, 2, 2, 2], forward, error=KeyError))
    assert seen == [[0, 1, 2, 3], [0, 1], [2, 3], [4]]
    assert done == [([0, 1], 2), ([2, 3], 2), ([4], 1)]
    assert budget.tokens == 4


def test_one_text_too_many_is_an_error_of_the_callers_class():
    def forward(indices):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried 2 GiB\nand more")

    with pytest.raises(KeyError, match="a text of 3 tokens does not fit in memory: CUDA .* 2 GiB"):
        list(TokenBudget(8).passes([3], forward, error=KeyError))
