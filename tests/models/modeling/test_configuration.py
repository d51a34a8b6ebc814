import pytest

from qwen3nb.models.modeling.configuration import encoder_config as build_config


def test_spellings_of_a_configuration():
    plain = {
        "vocab_size": 10, "hidden_size": 64, "intermediate_size": 9, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 8,
        "rms_norm_eps": 1e-6, "rope_theta": 5e5,
    }  # fmt: skip
    assert build_config(plain).head_dim == 16
    assert build_config({**plain, "head_dim": 128}).head_dim == 128
    assert build_config({**plain, "_head_dim": 32, "head_dim": 128}).head_dim == 32
    prefixed = {f"encoder_{key}": value for key, value in plain.items()} | {"rms_norm_eps": 1e-6}
    assert build_config(prefixed).hidden_size == 64
    assert build_config(prefixed).rope_parameters["rope_theta"] == 5e5
    assert build_config({**plain, "encoder": {"hidden_size": 32}}).hidden_size == 32
    del plain["num_hidden_layers"]
    with pytest.raises(ValueError, match="lacks 'num_hidden_layers'"):
        build_config(plain)
