"""Passes of a size that fits, and the class and message of what did not."""

import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
import torch

from qwen3nb.models.inference.token_budget import TokenBudget, fitting_tokens


def config(hidden, inner, count, **more):
    return SimpleNamespace(
        hidden_size=hidden, intermediate_size=inner, num_attention_heads=count, **more
    )


MINILM = config(384, 1536, 12)
SMALL = config(1024, 3072, 16, num_key_value_heads=8, head_dim=128)  # Qwen3 0.6B
LARGE = config(2560, 9728, 32, num_key_value_heads=8, head_dim=128)  # 4B


@pytest.mark.parametrize(
    ("gigabytes", "model", "size", "tokens"),
    [
        (140, SMALL, 2, 65_536),
        (14, LARGE, 2, 32_768),
        (4, SMALL, 2, 32_768),
        (4, SMALL, 4, 16_384),
        (1, MINILM, 2, 16_384),
        (0.001, LARGE, 2, 1024),
    ],
)
def test_passes_fit_the_memory_and_the_model(gigabytes, model, size, tokens):
    assert fitting_tokens(int(gigabytes * 1e9), model, size=size) == tokens


@pytest.fixture
def four_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def threads_elsewhere():
    """Threads that PyTorch would use in a thread that begins now."""
    with ThreadPoolExecutor(1) as other:
        return other.submit(torch.get_num_threads).result()


@pytest.mark.parametrize(("passes", "each"), [(1, {4}), (2, {2}), (5, {2}), (8, {1})])
def test_passes_side_by_side_divide_the_threads(four_threads, passes, each):
    run = TokenBudget(1).passes(
        [1] * passes, lambda _: torch.get_num_threads(), error=KeyError, parallel=True
    )
    used = list(run)
    assert [indices for indices, _ in used] == [[index] for index in range(passes)]
    assert {threads for _, threads in used} == each
    assert (torch.get_num_threads(), threads_elsewhere()) == (4, 4)


def test_passes_side_by_side_halve_and_keep_what_is_done(four_threads):
    """The second of five fails: the first stays, the others go through in smaller passes."""
    tried = []

    def forward(indices):
        tried.append(tuple(indices))
        if indices == [2, 3]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return sum(indices)

    budget = TokenBudget(4)
    done = list(budget.passes([2] * 10, forward, error=KeyError, parallel=True))
    assert [index for indices, _ in done for index in indices] == list(range(10))
    assert all(total == sum(indices) for indices, total in done)
    assert done[0] == ([0, 1], 1)
    assert ([2], 2) in done
    assert budget.tokens == 2
    assert tried.count((0, 1)) == 1


def test_no_thread_is_left_after_an_error_or_an_early_stop(four_threads):
    def forward(indices):
        raise ZeroDivisionError(f"in {indices}")

    before = threading.active_count()
    with pytest.raises(ZeroDivisionError, match=r"in \[0\]"):
        list(TokenBudget(1).passes([1] * 8, forward, error=KeyError, parallel=True))
    assert threading.active_count() == before
    passes = TokenBudget(1).passes([1] * 100, len, error=KeyError, parallel=True)
    assert next(passes) == ([0], 1)
    passes.close()
    assert threading.active_count() == before
    assert (torch.get_num_threads(), threads_elsewhere()) == (4, 4)
