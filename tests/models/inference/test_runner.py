"""Forwards that halve when memory runs out."""

import pytest
import torch
from helpers.tiny_models import runner
from helpers.tolerances import assert_close

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


@pytest.mark.parametrize("name", ["qwen3 encoder", "unknown architecture"])  # packed, padded
@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("could not create a primitive"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_when_memory_runs_out_the_batch_halves_and_no_vector_changes(
    monkeypatch, caplog, name, error
):
    rows = [[token, token + 1, token + 2] for token in range(3, 43)]
    expected = runner(name).vectors(rows)
    target = runner(name, budget=120)
    sizes = starve(monkeypatch, target, limit=40, error=error)
    done = []

    assert_close(target.vectors(rows, done=done.append), expected)

    assert sizes[:2] == [120, 60]
    assert target.budget == 30
    assert sum(done) == len(rows)
    assert [record.message.partition(",")[0] for record in caplog.records] == [
        f"out of memory with {tokens} tokens; continuing with {tokens // 2} per pass"
        for tokens in (120, 60)
    ]
    sizes.clear()
    target.vectors(rows)
    assert max(sizes) == 30  # it is not tried again


@pytest.mark.parametrize(
    ("error", "expected", "message"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out"), EncoderError, "a text of 5 tokens .*: CUDA out"),
        (RuntimeError("something else"), RuntimeError, "something else"),
    ],
)
def test_what_halving_does_not_mend_is_an_error(monkeypatch, error, expected, message):
    target = runner("bert")
    starve(monkeypatch, target, limit=4, error=error)
    with pytest.raises(expected, match=message):
        target.vectors([[3], [3, 4, 5, 6, 7]])
