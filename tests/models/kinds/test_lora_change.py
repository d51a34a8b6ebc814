"""Adapters without effect, and adapters that are equal after merging, are found."""

import json
import shutil

import numpy as np
import pytest
import torch
from helpers.rerankers import write_reranker
from safetensors.torch import load_file, save_file

from qwen3nb.models.kinds.lora import adapter_change
from qwen3nb.models.kinds.lora_change import are_equal, has_no_effect
from qwen3nb.models.load import load_encoder
from qwen3nb.models.rerankers import load_reranker

TARGETS = ["q_proj", "down_proj", "embed_tokens"]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return write_reranker(tmp_path_factory.mktemp("change") / "base")


@pytest.fixture(scope="module")
def adapter(base, tmp_path_factory):
    import warnings

    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    target = tmp_path_factory.mktemp("change") / "adapter"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = AutoModelForCausalLM.from_pretrained(base)
        options = {"r": 4, "lora_alpha": 8, "target_modules": TARGETS}
        adapted = get_peft_model(model, LoraConfig(**options))
        torch.manual_seed(0)
        for name, weight in adapted.named_parameters():
            if "lora_" in name:
                torch.nn.init.normal_(weight, std=0.3)
        adapted.save_pretrained(target, save_embedding_layers=False)
    file = target / "adapter_config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "base_model_name_or_path": str(base)}))
    return target


@pytest.fixture
def changed(adapter, tmp_path):
    """Copy the adapter with other tensors and fields."""

    def copy(change=None, **fields):
        folder = shutil.copytree(adapter, tmp_path / "changed", dirs_exist_ok=True)
        file, config = folder / "adapter_model.safetensors", folder / "adapter_config.json"
        tensors = load_file(file)
        if change is not None:
            save_file({name: change(name, tensor) for name, tensor in tensors.items()}, file)
        config.write_text(json.dumps({**json.loads(config.read_text()), **fields}))
        return folder

    return copy


def test_the_norm_is_that_of_the_merged_change(base, adapter):
    """Oracle: the merged weights of PEFT minus those of the base."""
    from qwen3nb.models.kinds.resolve import adapter_source

    merged = adapter_source(adapter, base=base)
    merged = merged.kind.causal(merged, torch.float32).state_dict()
    plain = load_file(base / "model.safetensors")
    square = sum(float(((merged[name] - plain[name]).double() ** 2).sum()) for name in plain)
    assert adapter_change(adapter)[0] == pytest.approx(np.sqrt(square), rel=1e-5)


def side(name):
    return "B" if "lora_B" in name or "embedding_B" in name else "A"


def turned(name, tensor):
    """Write the same product by other factors."""
    return (2 * tensor if side(name) == "B" else tensor / 2).contiguous()


def reordered(name, tensor):
    order = [2, 0, 3, 1]
    return (tensor[:, order] if side(name) == "B" else tensor[order]).contiguous()


SAME = {
    "a copy": {},
    "other factors": {"change": turned},
    "ranks in another order": {"change": reordered},
    "another scale, undone": {
        "change": lambda name, tensor: tensor / 2 if side(name) == "B" else tensor,
        "lora_alpha": 16,
    },
    "rsLoRA, undone": {"use_rslora": True, "lora_alpha": 4},
    "alphas by a pattern": {
        "lora_alpha": 1,
        "alpha_pattern": {"q_proj": 8, "down_proj": 8, "embed_tokens": 8},
    },
}
OTHER = {
    "another scale": {"lora_alpha": 9},
    "one layer's alpha": {"alpha_pattern": {r"layers\.1\.self_attn\.q_proj": 8.1}},
    "a value": {"change": lambda name, tensor: tensor * (1.01 if "q_proj" in name else 1)},
}


@pytest.mark.parametrize("case", [*SAME, *OTHER])
def test_adapters_are_equal_if_they_merge_to_the_same(adapter, changed, case):
    folder = changed(**{**SAME, **OTHER}[case])
    assert are_equal(adapter_change(adapter), adapter_change(folder)) is (case in SAME)
    assert not has_no_effect(adapter_change(folder))


WITHOUT = {
    "B is zero": {"change": lambda name, x: torch.zeros_like(x) if side(name) == "B" else x},
    "A is zero": {"change": lambda name, x: torch.zeros_like(x) if side(name) == "A" else x},
    "the scale is zero": {"lora_alpha": 0},
}


@pytest.mark.parametrize("case", WITHOUT)
def test_an_adapter_without_effect_is_named_wherever_it_is_loaded(
    base, adapter, changed, caplog, case
):
    folder = changed(**WITHOUT[case])
    assert has_no_effect(adapter_change(folder))
    for load in (
        lambda folder: load_encoder(folder, base=base, cache=False, device="cpu"),
        lambda folder: load_reranker(base, adapter=folder, device="cpu"),
    ):
        caplog.clear()
        load(adapter)
        assert not any("no effect" in text for text in caplog.messages)
        load(folder)
        assert [text for text in caplog.messages if "no effect" in text] == [
            f"{folder}: the adapter has no effect: its B matrices or its scale are all zero, so "
            "its scores are those of its base"
        ]


@pytest.mark.parametrize(
    ("specialist", "joint", "reason"),
    [
        ([1.0, 0.5], [1.0, 0.5], "are the same adapter after merging"),
        ([0.0, 0.0], [1.0, 0.5], "rank_only (seed 42) has no effect"),
        ([1.0, 0.5], [0.0, 0.0], "joint (seed 42) has no effect"),
        ([1.0, 0.5], [1.0, 0.4], ""),
        (None, [1.0, 0.5], ""),
    ],
)
def test_such_a_pair_shows_no_interference(specialist, joint, reason):
    from qwen3nb.analysis.inventory.scores import Score
    from qwen3nb.analysis.training.interference import compare_joint_runs

    shared = {"rank": 4, "base": "b", "data_seed": 42, "steps": 10}
    scores = []
    for mode, change, value in (("rank_only", specialist, 0.5), ("joint", joint, 0.4)):
        facts = {**shared, "mode": mode} | ({} if change is None else {"change": change})
        per_query = {f"q{number}": value for number in range(8)}
        scores.append(
            Score(mode, 42, "T", "nDCG@10", value, "reranking", per_query=per_query, facts=facts)
        )
    result = compare_joint_runs(scores)
    (group,) = result.groups
    assert bool(group.refused) is bool(reason)
    assert reason in " ".join(group.refused)
    assert (result.verdict(by="point") == "NO RESULT") is bool(reason)
