"""Fused layers equal transformers' own."""

import pytest
import torch
import transformers
from helpers.processors import has_onednn, needs_onednn
from helpers.tiny_models import BERT, PACKED, QWEN, ROWS, build
from helpers.tolerances import assert_close

from qwen3nb.models.inference.fused_layers import fuse_layers

pytestmark = needs_onednn
IDS = torch.tensor([ROWS[2]])


@torch.inference_mode()
def states(model):
    return model(input_ids=IDS).last_hidden_state


@pytest.mark.parametrize("name", PACKED)
def test_states_are_equal(name):
    expected, model = states(build(name)), build(name)
    assert fuse_layers(model, force=True)
    assert_close(states(model), expected)


@pytest.mark.parametrize("activation", ["gelu_new", "gelu_pytorch_tanh", "relu", "silu"])
@pytest.mark.parametrize("family", ["bert", "qwen3"])
def test_each_activation_is_its_own(family, activation):
    kind, config, shape = {
        "bert": (transformers.BertModel, transformers.BertConfig, BERT),
        "qwen3": (transformers.Qwen3Model, transformers.Qwen3Config, QWEN),
    }[family]
    model = kind(config(**shape, hidden_act=activation)).eval()
    expected = states(model)
    assert fuse_layers(model, force=True)
    assert_close(states(model), expected)


def test_attention_by_another_interface_is_left_alone():
    model = build("qwen3 causal")
    model.set_attn_implementation("eager")
    expected = states(model)
    assert fuse_layers(model, force=True)
    assert "Qwen3Attention" in {type(each).__name__ for each in model.modules()}
    assert_close(states(model), expected)


@pytest.mark.skipif(not has_onednn(torch.bfloat16), reason="no oneDNN in bfloat16 here")
def test_a_norm_in_16_bits_rounds_as_transformers_does():
    """The mean in float32; one rounding before the weight, one after it."""
    model = build("qwen3 causal").to(torch.bfloat16)
    norm = model.norm
    assert fuse_layers(model, force=True)
    given = torch.randn(3, 32, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    with torch.inference_mode():
        torch.testing.assert_close(model.norm(given), norm(given), atol=1e-2, rtol=1e-2)
        assert model.norm(given).dtype == torch.bfloat16
