"""Adapters with exchanged modules, against the changes that PEFT computes of the originals."""

import json

import numpy as np
import pytest
from helpers.adapters import MODULES, of_ours, save_adapter
from safetensors.torch import load_file, save_file

from qwen3nb.models.kinds.adapter_exchange import parts_of, read_changes, write_exchanged
from qwen3nb.models.types import SpecError

LAYER = "model.layers.1."
# Adapters as unlike as can be: ranks and scales by module, rank-stabilised, of other modules.
UNLIKE = {
    "rank_pattern": {"q_proj": 5},
    "alpha_pattern": {"layers.1.mlp.down_proj": 7},
    "use_rslora": True,
    "target_modules": ["q_proj", "up_proj", "embed_tokens"],
}


@pytest.fixture
def joint(tmp_path):
    return save_adapter(tmp_path / "joint", 0)


@pytest.fixture
def specialist(tmp_path):
    return save_adapter(tmp_path / "specialist", 1, r=2, lora_alpha=5, **UNLIKE)


@pytest.mark.parametrize("is_reversed", [False, True])
def test_each_module_has_the_change_that_peft_computes_of_its_adapter(
    joint, specialist, tmp_path, is_reversed
):
    receiver, donor = (specialist, joint) if is_reversed else (joint, specialist)
    adapters = [read_changes(receiver), read_changes(donor)]
    parts = parts_of(*adapters, by="layer")
    assert list(parts) == ["embed_tokens", "0", "1"]
    exchanged = write_exchanged(*adapters, parts["1"], tmp_path / "exchanged")
    expected = {
        name: change for name, change in of_ours(receiver).items() if LAYER not in f"{name}."
    }
    expected |= {name: change for name, change in of_ours(donor).items() if LAYER in name}
    found = of_ours(exchanged)
    assert found.keys() == expected.keys()
    for name, change in expected.items():
        np.testing.assert_array_equal(found[name], change, err_msg=name)


def test_nothing_exchanged_is_the_adapter_itself(joint, specialist, tmp_path):
    adapters = [read_changes(joint), read_changes(specialist)]
    same = of_ours(write_exchanged(*adapters, [], tmp_path / "same"))
    for name, change in of_ours(joint).items():
        np.testing.assert_array_equal(same[name], change, err_msg=name)


def test_parts_are_layers_kinds_or_modules_in_the_order_of_numbers(joint, specialist):
    adapters = [read_changes(joint), read_changes(specialist)]
    kinds = parts_of(*adapters, by="kind")
    assert sorted(kinds) == ["down_proj", "embed_tokens", "q_proj", "up_proj"]
    assert kinds["q_proj"] == [f"model.layers.{layer}.self_attn.q_proj" for layer in (0, 1)]
    assert "layers.1.self_attn.q_proj" in parts_of(*adapters, by="module")


def test_a_part_that_is_equal_is_left_out(joint, tmp_path):
    """Also if one adapter does not have the module, and the other changes nothing there."""
    adapter = read_changes(joint)
    other = read_changes(save_adapter(tmp_path / "other", 0, target_modules=MODULES[:2]))
    vanishing = adapter.by_module["model.embed_tokens"].b
    vanishing.zero_()
    assert list(parts_of(adapter, other, by="layer")) == ["0", "1"]
    other = read_changes(joint)
    assert list(parts_of(other, read_changes(joint), by="layer")) == []


def test_an_adapter_without_any_module_left_has_no_effect(joint, tmp_path):
    part = save_adapter(tmp_path / "part", 1, target_modules=["q_proj"])
    adapters = [read_changes(part), read_changes(joint)]
    lacking = list(adapters[0].by_module)
    donor = read_changes(save_adapter(tmp_path / "mlp", 2, target_modules=["down_proj"]))
    left = of_ours(write_exchanged(adapters[0], donor, lacking, tmp_path / "left"))
    assert not any(change.any() for change in left.values())


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"use_dora": True}, "a saved module, or a magnitude of DoRA"),
        ({"target_modules": ["o_proj"]}, "with a module in common"),
    ],
)
def test_what_cannot_be_exchanged_is_refused(joint, tmp_path, options, cause):
    with pytest.raises(SpecError, match=cause):
        parts_of(
            read_changes(joint),
            read_changes(save_adapter(tmp_path / "x", 1, **options)),
            by="layer",
        )


def test_an_adapter_that_also_changes_its_base_is_refused(joint):
    file = joint / "adapter_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "init_lora_weights": "pissa"}))
    with pytest.raises(SpecError, match="'pissa', which also changes the base"):
        read_changes(joint)


def test_a_factor_without_the_other_is_refused_by_name(joint):
    file = joint / "adapter_model.safetensors"
    tensors = load_file(file)
    removed = min(name for name in tensors if name.endswith("down_proj.lora_B.weight"))
    del tensors[removed]
    save_file(tensors, file)
    with pytest.raises(SpecError, match=r"down_proj\.lora_A\.weight has no other factor"):
        read_changes(joint)
