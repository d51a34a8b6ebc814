"""Linear layers by oneDNN, where they are faster."""

import pytest
import torch
from helpers.tiny_models import ROWS, build, runner

from qwen3nb.models.inference import onednn_linear as linear


@pytest.mark.parametrize(
    ("vendor", "used"), [("AuthenticAMD", True), ("GenuineIntel", False), ("", False)]
)
def test_the_processor_alone_decides(monkeypatch, vendor, used):
    monkeypatch.setattr(linear, "vendor", lambda: vendor)
    assert runner("bert").onednn is used
    assert runner("bert", linear="onednn").onednn
    assert not runner("bert", linear="torch").onednn


def test_a_release_without_the_operator_uses_torch(monkeypatch):
    def missing(*_):
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute 'x'")

    monkeypatch.setattr(linear, "PrepackedLinear", missing)
    assert runner("bert", linear="onednn").onednn is False


def test_packing_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(1)
    expected = torch.rand(1)
    model = build("bert")
    torch.manual_seed(1)
    assert linear.prepack(model, force=True)
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
