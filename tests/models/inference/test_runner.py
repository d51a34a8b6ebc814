"""Forwards that halve when memory runs out."""

import numpy as np
import pytest
import torch
from helpers.tiny_models import runner

from qwen3nb.models.inference import runner as runner_module
from qwen3nb.models.types import EncoderError


def starve(monkeypatch, target, *, limit, error):
    """Let forwards of more than ``limit`` tokens (padding included) fail."""
    forward = target.model.forward
    sizes = []

    def hungry(*args, input_ids, **kwargs):
        sizes.append(input_ids.numel())
        if input_ids.numel() > limit:
            raise error
        return forward(*args, input_ids=input_ids, **kwargs)

    monkeypatch.setattr(target.model, "forward", hungry)
    return sizes


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_when_memory_runs_out_the_batch_halves_and_no_vector_changes(
    monkeypatch, caplog, packed, error
):
    rows = [[token, token + 1, token + 2] for token in range(3, 43)]
    expected = runner("qwen3 encoder").vectors(rows)
    target = runner("qwen3 encoder", packed=packed, budget=120)
    sizes = starve(monkeypatch, target, limit=40, error=error)
    done = []

    np.testing.assert_allclose(target.vectors(rows, done=done.append), expected, atol=1e-5)

    assert sizes[:2] == [120, 60]
    assert target.budget == 30
    assert sum(done) == len(rows)
    assert [record.message for record in caplog.records] == [
        f"out of memory with {tokens} tokens; continuing with {tokens // 2} per pass, which "
        "changes results by rounding at most"
        for tokens in (120, 60)
    ]
    sizes.clear()
    target.vectors(rows)
    assert max(sizes) == 30  # it is not tried again


def test_a_text_that_does_not_fit_alone_is_an_error(monkeypatch):
    target = runner("bert")
    starve(monkeypatch, target, limit=4, error=torch.cuda.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(EncoderError, match="a text of 5 tokens does not fit in memory: CUDA out"):
        target.vectors([[3], [3, 4, 5, 6, 7]])


def test_other_errors_are_not_taken_for_a_lack_of_memory(monkeypatch):
    target = runner("bert")
    starve(monkeypatch, target, limit=1, error=RuntimeError("something else"))
    with pytest.raises(RuntimeError, match="something else"):
        target.vectors([[3, 4]])


def tokens_of(texts):
    return [[5 + ord(letter) % 80 for letter in text] for text in texts]


TEXTS = ["ab", "cde", "f", "abcd", "e", "bcd", "fgh"]


def test_texts_in_blocks_have_the_same_vectors(monkeypatch):
    target = runner("bert")
    whole = target.encode(TEXTS, tokens_of)
    in_advance = runner_module._in_advance
    monkeypatch.setattr(
        runner_module, "_in_advance", lambda texts, call, size: in_advance(texts, call, size=3)
    )
    done = []
    np.testing.assert_allclose(target.encode(TEXTS, tokens_of, done=done.append), whole, atol=1e-5)
    assert sum(done) == len(TEXTS)
