from types import SimpleNamespace

import pytest

from qwen3nb.models.modeling.configuration import Qwen3EncoderConfig
from qwen3nb.models.modeling.configuration import encoder_config as build_config


def test_defaults():
    config = Qwen3EncoderConfig()
    expected = {
        "vocab_size": 152036,
        "hidden_size": 1024,
        "intermediate_size": 2816,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "hidden_act": "silu",
        "max_position_embeddings": 40960,
        "rms_norm_eps": 1e-6,
        "attention_dropout": 0.0,
        "pad_token_id": 151643,
        "pooling_mode": "mean",
        "normalize": True,
        "is_causal": False,
    }
    assert {name: getattr(config, name) for name in expected} == expected
    assert config.rope_parameters["rope_theta"] == 1e6
    assert len(config.layer_types) == 28
    assert Qwen3EncoderConfig(rope_theta=5e5).rope_parameters["rope_theta"] == 5e5


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("normalise_embeddings", "normalize_embeddings"), ("hiden_size", "hidden_size")],
)
def test_a_mistyped_field_is_refused(wrong, meant):
    with pytest.raises(TypeError, match=f"no field {wrong!r}; did you mean {meant!r}"):
        Qwen3EncoderConfig(**{wrong: 8})
    assert Qwen3EncoderConfig(of_another=1, _head_dim=8).of_another == 1


def test_spellings_of_a_configuration():
    names = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads"
    plain = dict(zip(names.split(), (10, 64, 9, 1, 4), strict=True)) | {
        "num_key_value_heads": 2,
        "max_position_embeddings": 8,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5e5,
    }
    assert build_config(plain).head_dim == 16
    assert build_config({**plain, "head_dim": 128}).head_dim == 128
    assert build_config({**plain, "_head_dim": 32, "head_dim": 128}).head_dim == 32
    for config in (plain, Qwen3EncoderConfig(**plain), SimpleNamespace(**plain)):
        ours = Qwen3EncoderConfig.from_encoder_decoder_config(config, "last", False)
        assert (ours.hidden_size, ours.pooling_mode, ours.normalize_embeddings) == (
            64,
            "last",
            False,
        )
        assert "normalize_embeddings" not in ours.to_dict()
    prefixed = {f"encoder_{key}": value for key, value in plain.items()} | {"rms_norm_eps": 1e-6}
    assert build_config(prefixed).hidden_size == 64
    assert build_config(prefixed).rope_parameters["rope_theta"] == 5e5
    assert build_config({**plain, "encoder": {"hidden_size": 32}}).hidden_size == 32
    del plain["num_hidden_layers"]
    with pytest.raises(ValueError, match="lacks 'num_hidden_layers'"):
        build_config(plain)


@pytest.mark.parametrize(
    ("field", "value", "refused"),
    [
        ("hidden_act", "gelo", True),
        ("hidden_act", ["silu"], True),
        ("encoder_hidden_act", "swiglu2", True),
        ("hidden_act", "gelu", False),  # the training's encoder ignores it; see `ignored_settings`
        ("hidden_act", "swish", False),
        ("rope_scaling", {"rope_type": "spiral"}, True),
        ("rope_scaling", {"type": 3}, True),
        ("rope_scaling", {"rope_type": "yarn"}, False),
        ("rope_scaling", None, False),
    ],
)
def test_what_transformers_does_not_have_is_refused(field, value, refused):
    fields = {**vars(Qwen3EncoderConfig()), "rope_theta": 1e6, field: value}
    if not refused:
        assert build_config(fields).hidden_act == "silu"
        return
    name = field.removeprefix("encoder_")
    with pytest.raises(
        ValueError, match=rf"config.json: {name} is .*, which transformers does not"
    ):
        build_config(fields)
