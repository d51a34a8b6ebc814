"""Linear layers by oneDNN, where they are faster."""

import pytest
import torch
from helpers.processors import needs_onednn
from helpers.tiny_models import ROWS, build, runner
from helpers.tolerances import assert_close

from qwen3nb.models.inference import onednn_linear as linear


@needs_onednn
@pytest.mark.parametrize(
    ("vendor", "wide", "used"),
    [
        ("AuthenticAMD", False, True),
        ("GenuineIntel", True, True),
        ("GenuineIntel", False, False),
        ("", False, False),
    ],
)
def test_the_processor_alone_decides(monkeypatch, vendor, wide, used):
    monkeypatch.delenv("QWEN3NB_LINEAR", raising=False)
    monkeypatch.setattr(linear, "vendor", lambda: vendor)
    level = "AVX512" if wide else "AVX2"
    monkeypatch.setattr(linear.torch.backends.cpu, "get_cpu_capability", lambda: level)
    assert linear.linear_library() == ("onednn" if used else "mkl")
    assert runner("bert").onednn is used
    assert runner("bert", linear="onednn").onednn
    assert not runner("bert", linear="torch").onednn


@needs_onednn
@pytest.mark.parametrize("vendor", ["AuthenticAMD", "GenuineIntel"])
def test_a_variable_decides_for_every_processor(monkeypatch, vendor):
    monkeypatch.setattr(linear, "vendor", lambda: vendor)
    for library in ("onednn", "mkl"):
        monkeypatch.setenv("QWEN3NB_LINEAR", library)
        assert linear.linear_library() == library
        assert runner("bert").onednn is (library == "onednn")
    monkeypatch.setenv("QWEN3NB_LINEAR", "openblas")
    with pytest.raises(ValueError, match=r"QWEN3NB_LINEAR 'openblas'; choose one of: auto, onednn"):
        linear.linear_library()


def missing(*_):
    raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute 'x'")


def test_a_machine_that_cannot_run_what_is_named_refuses(monkeypatch):
    monkeypatch.setenv("QWEN3NB_LINEAR", "onednn")
    usable = linear._usable
    monkeypatch.setattr(linear, "_usable", lambda shapes, *_: linear._SMALL in shapes)
    with pytest.raises(ValueError, match=r"no oneDNN for layers of \d+ x \d+.*QWEN3NB_LINEAR=mkl"):
        runner("bert")
    monkeypatch.setattr(linear, "_usable", usable)
    monkeypatch.setattr(linear, "PrepackedLinear", missing)
    for refused in (linear.linear_library, lambda: runner("bert")):
        with pytest.raises(ValueError, match="QWEN3NB_LINEAR=onednn, but PyTorch"):
            refused()


@needs_onednn
def test_prepacking_keeps_the_states_and_leaves_random_numbers_and_float16_alone():
    torch.manual_seed(1)
    expected = torch.rand(1)
    model = build("bert")
    before = model(input_ids=torch.tensor([ROWS[0]])).last_hidden_state
    torch.manual_seed(1)
    assert linear.prepack(model, force=True)
    assert torch.equal(torch.rand(1), expected)
    with torch.inference_mode():
        after = model(input_ids=torch.tensor([ROWS[0]])).last_hidden_state
    assert_close(after, before)
    mixed = build("bert")
    mixed.embeddings.to(torch.bfloat16)
    for other in (mixed, build("bert").to(torch.float16)):
        assert linear.prepack(other, force=True) is False
    with pytest.raises(ValueError, match="unknown linear 'mkl'; choose one of: auto"):
        runner("bert", linear="mkl")
