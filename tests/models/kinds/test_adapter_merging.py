"""Merged LoRA adapters, against PEFT's own merge in memory."""

import json

import numpy as np
import pytest
import torch
from helpers.adapters import changes_of, of_ours, quiet_peft, save_adapter, tiny_model
from safetensors.torch import load_file, save_file

from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.models.kinds.adapter_merging import merge_adapters
from qwen3nb.models.kinds.lora import adapter_change
from qwen3nb.models.types import SpecError

WEIGHTS = [0.7, 0.4, 1.2]


@pytest.fixture
def three(tmp_path):
    return [save_adapter(tmp_path / str(seed), seed) for seed in range(3)]


def of_peft(folders, method, **options):
    """Return the changes of PEFT's merge."""
    from peft import PeftModel

    names = [f"a{index}" for index in range(len(folders))]
    weights = WEIGHTS[: len(names)]
    with quiet_peft():
        model = PeftModel.from_pretrained(tiny_model(), folders[0], adapter_name=names[0])
        for name, folder in zip(names[1:], folders[1:], strict=True):
            model.load_adapter(folder, adapter_name=name)
        model.add_weighted_adapter(names, weights, "merged", combination_type=method, **options)
    return changes_of(model, "merged")


def assert_equal_changes(merged, expected):
    ours = of_ours(merged)
    assert ours.keys() == expected.keys()
    for name, change in expected.items():
        largest = np.abs(change).max()
        np.testing.assert_allclose(ours[name], change, rtol=0, atol=1e-5 * largest, err_msg=name)


@pytest.mark.parametrize(
    ("method", "ours", "options"),
    [
        ("cat", {}, {}),
        ("linear", {}, {}),
        ("svd", {}, {}),
        ("svd", {"rank": 2}, {"svd_rank": 2}),
        ("svd", {"rank": 12}, {"svd_rank": 12}),
        ("ties", {"density": 0.3}, {"density": 0.3}),
    ],
)
def test_merges_equal_those_of_peft(tmp_path, three, method, ours, options):
    merged = merge_adapters(three, tmp_path / "out", method=method, weights=WEIGHTS, **ours)
    assert_equal_changes(merged, of_peft(three, method, **options))


@pytest.mark.parametrize("method", ["cat", "svd"])
def test_other_modules_ranks_and_scales_are_merged_as_peft_does(tmp_path, method):
    options = [
        {"r": 2, "target_modules": ["q_proj"], "lora_alpha": 5},
        {"r": 4, "target_modules": ["q_proj", "o_proj"], "rank_pattern": {"o_proj": 3}},
        {"r": 3, "alpha_pattern": {"down_proj": 9}, "target_modules": ["down_proj"]},
    ]
    folders = [
        save_adapter(tmp_path / str(seed), seed, **settings)
        for seed, settings in enumerate(options)
    ]
    merged = merge_adapters(folders, tmp_path / "out", method=method, weights=WEIGHTS)
    assert_equal_changes(merged, of_peft(folders, method))


def test_rank_stabilised_scales_are_those_of_the_adapters(tmp_path):
    folders = [save_adapter(tmp_path / str(seed), seed, use_rslora=True) for seed in range(2)]
    merged = merge_adapters(folders, tmp_path / "out", weights=[1, 1])
    parts = [of_ours(folder) for folder in folders]
    assert_equal_changes(merged, {name: parts[0][name] + parts[1][name] for name in parts[0]})


def test_the_default_is_the_mean_of_the_changes(tmp_path, three):
    merged = merge_adapters(three, tmp_path / "out")
    parts = [of_ours(folder) for folder in three]
    mean = {name: sum(part[name] for part in parts) / 3 for name in parts[0]}
    assert_equal_changes(merged, mean)
    assert adapter_change(merged)[0] > 0


def test_layers_that_only_some_adapters_change_stay_those(tmp_path):
    folders = [
        save_adapter(tmp_path / "first", 1, target_modules=["q_proj"], layers_to_transform=[0]),
        save_adapter(tmp_path / "second", 2, target_modules=["q_proj"], layers_to_transform=[1]),
    ]
    merged = merge_adapters(folders, tmp_path / "out", weights=[1, 1])
    parts = [of_ours(folder) for folder in folders]
    assert_equal_changes(merged, parts[0] | parts[1])


def test_what_has_no_merge_is_refused_by_the_tensors_name(tmp_path, three):
    dora = save_adapter(tmp_path / "dora", 1, target_modules=["q_proj"], use_dora=True)
    with pytest.raises(CheckpointError, match=r"q_proj\.lora_magnitude_vector"):
        merge_adapters([three[0], dora], tmp_path / "out")
    saved = save_adapter(tmp_path / "saved", 1, modules_to_save=["lm_head"])
    with pytest.raises(CheckpointError, match=r"lm_head\.weight is no factor"):
        merge_adapters([three[0], saved], tmp_path / "out")
    smaller = save_adapter(tmp_path / "smaller", 1, r=2)
    with pytest.raises(CheckpointError, match=r"smaller.*: the rank of .*lora_\w*A"):
        merge_adapters([three[0], smaller], tmp_path / "out", method="linear")
    assert not (tmp_path / "out").exists()


def test_a_factor_of_another_shape_is_refused_by_name(tmp_path, three):
    file = three[1] / "adapter_model.safetensors"
    tensors = load_file(file)
    name = next(name for name in tensors if name.endswith("q_proj.lora_A.weight"))
    tensors[name] = torch.zeros(3, 5)
    save_file(tensors, file)
    with pytest.raises(CheckpointError, match=r"q_proj\.lora_A\.weight changes a matrix of 16 x 5"):
        merge_adapters(three, tmp_path / "out")


def rewritten(folder, change):
    """Rewrite the tensors of an adapter; return its folder."""
    file = folder / "adapter_model.safetensors"
    tensors = load_file(file)
    save_file({name: value.clone() for name, value in change(tensors).items()}, file)
    return folder


def test_an_adapter_that_also_changes_its_base_is_refused(tmp_path, three):
    folder = save_adapter(tmp_path / "pissa", 1, init_lora_weights="pissa")
    with pytest.raises(SpecError, match=r"init_lora_weights is 'pissa', which also changes"):
        merge_adapters([three[0], folder], tmp_path / "out")


def test_a_factor_without_the_other_is_refused_by_name(tmp_path, three):
    def without_one(tensors):
        return {
            name: tensors[name]
            for name in tensors
            if not name.endswith("0.mlp.down_proj.lora_B.weight")
        }

    rewritten(three[1], without_one)
    with pytest.raises(CheckpointError, match=r"0\.mlp\.down_proj\.lora_A\.weight has no other"):
        merge_adapters(three, tmp_path / "out")
    rewritten(three[2], lambda tensors: {})
    with pytest.raises(CheckpointError, match=r"2.adapter_model\.safetensors: no factors"):
        merge_adapters([three[0], three[2]], tmp_path / "out")


def test_adapters_of_a_model_with_a_head_and_without_are_refused(tmp_path, three):
    def of_inner_model(tensors):
        return {name.replace("model.model.", "model."): tensors[name] for name in tensors}

    rewritten(three[1], of_inner_model)
    with pytest.raises(
        CheckpointError, match=r"layers\.\d\..* is model\.layers|embed_tokens is model"
    ):
        merge_adapters(three, tmp_path / "out")


def test_the_merged_factors_have_the_widest_dtype(tmp_path):
    folders = [
        save_adapter(tmp_path / str(seed), seed, target_modules=["q_proj"]) for seed in (0, 1)
    ]
    rewritten(folders[0], lambda tensors: {name: tensors[name].bfloat16() for name in tensors})
    merged = merge_adapters(folders, tmp_path / "out")
    tensors = load_file(merged / "adapter_model.safetensors")
    assert {value.dtype for value in tensors.values()} == {torch.float32}


def test_adapters_of_other_bases_are_refused(tmp_path, three):
    file = three[1] / "adapter_config.json"
    file.write_text(file.read_text().replace('"tiny"', '"another"'))
    with pytest.raises(SpecError, match="'another', but that of 0 is 'tiny'"):
        merge_adapters(three, tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "cause"),
    [
        ({"method": "slerp"}, "unknown method 'slerp'"),
        ({"weights": [1]}, "1 weights for 3 adapters"),
        ({"weights": [1, 1, -1]}, "a weight is -1"),
        ({"weights": [1e308] * 3}, "the merged values are too large"),
        ({"density": 0.5}, "density is of 'ties'"),
        ({"rank": 4}, "rank is of 'svd'"),
        ({"method": "svd", "rank": 0}, "expected 1 or more"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, three, options, cause):
    with pytest.raises(ValueError, match=cause):
        merge_adapters(three, tmp_path / "out", **options)


def test_the_command_merges_adapters(tmp_path, three, cli):
    output = tmp_path / "out"
    done = cli("average", *map(str, three), str(output), "--method", "svd", "--rank", "2")
    assert done.exit_code == 0, done.output
    merge = json.loads((output / "averaging_metadata.json").read_text())["merge"]
    assert merge == {"method": "svd", "weights": [1 / 3] * 3, "rank": 2}
    refused = cli("average", *map(str, three), str(output), "--scale", "2")
    assert "adapters are changes already" in refused.output
