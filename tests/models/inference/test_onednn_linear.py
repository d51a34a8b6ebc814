"""Linear layers by oneDNN, where they are faster."""

from collections import Counter

import pytest
import torch
from helpers.tiny_models import ROWS, build, runner

from qwen3nb.models.inference import onednn_linear as linear


def test_the_slower_library_is_not_used(monkeypatch):
    for gain, used in ((0.9, False), (1.01, False), (1.5, True), (None, False)):
        monkeypatch.setattr(linear, "speedup", lambda shapes, gain=gain: gain)
        assert runner("bert").onednn is used


def test_a_release_without_the_operator_uses_torch(monkeypatch):
    def missing(*_):
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute 'x'")

    monkeypatch.setattr(linear, "PrepackedLinear", missing)
    assert runner("bert", linear="onednn").onednn is False


def test_timing_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    assert linear.speedup(Counter({(8, 16): 2})) > 0
    assert torch.equal(torch.rand(1), expected)


def test_prepacking_keeps_the_count_and_leaves_16_bits_alone():
    model = build("bert")
    before = model(input_ids=torch.tensor([ROWS[0]])).last_hidden_state
    assert linear.prepack(model, force=True)
    with torch.inference_mode():
        after = model(input_ids=torch.tensor([ROWS[0]])).last_hidden_state
    torch.testing.assert_close(after, before, atol=1e-5, rtol=0)
    assert linear.prepack(build("bert").to(torch.bfloat16), force=True) is False
    with pytest.raises(ValueError, match="unknown linear 'mkl'; choose one of: auto"):
        runner("bert", linear="mkl")
