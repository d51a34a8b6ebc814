"""Settings that transformers itself gives to an architecture are within bounds."""

import json
import warnings

import pytest

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.gate.bounds import check_settings
from qwen3nb.models.types import CheckpointError

# Which transformers cannot build without its network or more arguments.
UNBUILT = 20


def check(tmp_path, fields):
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(fields))
    check_settings(ModelFolder(folder))


@pytest.mark.integration
def test_the_default_configuration_of_every_architecture_is_accepted(tmp_path):
    from transformers import CONFIG_MAPPING

    refused, unbuilt = {}, []
    for model_type in CONFIG_MAPPING:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                config = CONFIG_MAPPING[model_type]()
            except Exception:  # noqa: BLE001 - needs arguments
                unbuilt.append(model_type)
                continue
            fields = json.loads(config.to_json_string(use_diff=False))
        try:
            check(tmp_path, {"model_type": model_type, **fields})
        except CheckpointError as error:
            refused[model_type] = str(error)
    assert refused == {}
    assert len(unbuilt) < UNBUILT


@pytest.mark.parametrize(
    "fields",
    [
        {"model_type": "doge", "num_experts": 16_384},
        {"model_type": "deepseek_v3", "num_hidden_layers": 61, "n_routed_experts": 384},
        {"model_type": "granite_swa", "layer_rope_theta": [10_000.0, 0, 5e5]},
        {"model_type": "gemma4_unified_text", "use_bidirectional_attention": "vision"},
        {"model_type": "gemma3_text", "use_bidirectional_attention": True},
    ],
)
def test_settings_of_single_architectures_are_accepted(tmp_path, fields):
    check(tmp_path, fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "mixtral", "num_experts": 16_384}, "num_experts is 16384"),
        (
            {"model_type": "mixtral", "num_hidden_layers": 1_000, "num_local_experts": 1_000},
            "1,000 layers of 1,000 experts",
        ),
        (
            {"model_type": "a", "text_config": {"num_layers": 900, "n_routed_experts": 900}},
            "900 layers of 900 experts",
        ),
        ({"model_type": "doge", "num_hidden_layers": 16_384}, "num_hidden_layers is 16384"),
        ({"model_type": "granite_swa", "layer_rope_theta": [-1.0]}, "layer_rope_theta is"),
        ({"model_type": "granite_swa", "layer_rope_theta": [1.0] * 1_001}, "layer_rope_theta is"),
        ({"model_type": "granite_swa", "layer_rope_theta": ["a"]}, "layer_rope_theta is"),
        ({"model_type": "llama", "rope_theta": [1e4]}, "rope_theta is"),
        ({"model_type": "llama", "rope_theta": 0}, "rope_theta is 0"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": "no"}, "is 'no'"),
    ],
)
def test_others_are_refused_by_name(tmp_path, fields, message):
    with pytest.raises(CheckpointError, match=message):
        check(tmp_path, fields)
