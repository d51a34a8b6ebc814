"""LoRA adapters: resolved with their base, checked, and computed as PEFT does."""

import json
import shutil

import numpy as np
import pytest
import torch
from helpers.rerankers import DOCUMENTS, QUERY, write_reranker
from safetensors.torch import load_file, save_file

from qwen3nb.models.load import load_encoder
from qwen3nb.models.rerankers.load import load_reranker
from qwen3nb.models.sources.resolve import adapter_source, find_source
from qwen3nb.models.types import SpecError


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    return write_reranker(tmp_path_factory.mktemp("reranker") / "tiny")


CONFIGURATIONS = ("rank_only_r4", "emb_only_r4", "joint_single_r4")


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_stored_embeddings_of_real_adapters(adapters, name):
    inputs = json.loads((adapters / "expected" / "inputs.json").read_text())
    expected = load_file(adapters / "expected" / f"{name}-seed_42.safetensors")
    trained = adapters / "outputs" / name / "seed_42" / "checkpoints" / "final"

    encoder = load_encoder(trained, base=adapters / "base", cache=False)

    for role, column in (("query", "embed.query"), ("passage", "embed.document")):
        vectors = encoder.encode(inputs["texts"], role=role)
        np.testing.assert_allclose(vectors, expected[column].numpy(), atol=1e-6, rtol=0)


@pytest.fixture(scope="session")
def adapter(folder, tmp_path_factory):
    """A tiny LoRA adapter of the tiny model, as PEFT writes it, with an effect."""
    import warnings

    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    target = tmp_path_factory.mktemp("lora") / "final"
    model = AutoModelForCausalLM.from_pretrained(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        adapted = get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj", "down_proj"]))
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                torch.nn.init.normal_(parameter, std=0.3)
        adapted.save_pretrained(target)
    return target


def copy(adapter, target, **changes):
    shutil.copytree(adapter, target)
    config = json.loads((target / "adapter_config.json").read_text())
    (target / "adapter_config.json").write_text(json.dumps({**config, **changes}))
    return target


def test_an_adapter_changes_scores_and_identity_and_finds_its_base(folder, adapter, tmp_path):
    plain = load_reranker(folder, device="cpu", template="double-newline")
    adapted = load_reranker(folder, adapter=adapter, device="cpu")
    alone = load_reranker(adapter, device="cpu")  # the base is named by its full path
    assert (
        abs(plain.score(QUERY, DOCUMENTS).p_yes - adapted.score(QUERY, DOCUMENTS).p_yes).max()
        > 0.01
    )
    assert len({plain.identity, adapted.identity}) == 2
    assert alone.identity == adapted.identity
    shutil.copytree(folder, tmp_path / "tiny-base")
    near = copy(adapter, tmp_path / "runs" / "final", base_model_name_or_path="tiny-base")
    assert find_source(str(near)).base.folder == tmp_path / "tiny-base"


def test_an_adapter_by_its_hub_id_embeds_as_one_in_a_folder(adapter, tmp_path, monkeypatch):
    shutil.copytree(adapter, tmp_path / "mirror" / "lab" / "adapter")
    monkeypatch.setenv("QWEN3NB_MIRROR", str(tmp_path / "mirror"))
    options = {"device": "cpu", "cache": False, "show_progress": False}
    named = load_encoder("lab/adapter", **options)
    local = load_encoder(adapter, **options)
    assert (named.settings["pooling"], named.settings["append_eos"]) == ("last", True)
    assert named.settings["prompts"] == local.settings["prompts"] != {}
    np.testing.assert_array_equal(named.encode(DOCUMENTS), local.encode(DOCUMENTS))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_model_name_or_path": "nowhere"}, "base was not found.*give its folder as base"),
        ({"base_model_name_or_path": None}, "names no base"),
        ({"r": 8}, r"lora_[AB] of .* has shape .*; rank 8 .* need \["),
        ({"r": 0}, "r is 0, expected a positive"),
        ({"target_modules": ["q_proj"]}, "down_proj is not a target"),
        ({"target_modules": ["q_proj", "down_proj", "v_proj"]}, "v_proj has no tensors"),
        ({"target_modules": ["q_proj", "down_proj", "c_attn"]}, "'c_attn' is not in the base"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'; only plain LoRA"),
        ({"use_dora": True}, "use_dora is True"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save is"),
    ],
)
def test_an_invalid_adapter_is_refused_with_the_reason(adapter, tmp_path, changes, message):
    with pytest.raises(SpecError, match=message):
        adapter_source(copy(adapter, tmp_path / "bad", **changes))


def test_an_adapter_of_another_model_is_refused(adapter, tmp_path):
    other = write_reranker(tmp_path / "other", hidden_size=64)
    with pytest.raises(SpecError, match=r"lora_[AB] of .* has shape"):
        adapter_source(adapter, base=other)
    shallow = write_reranker(tmp_path / "shallow", num_hidden_layers=1)
    with pytest.raises(SpecError, match="which the base does not have"):
        adapter_source(adapter, base=shallow)


def test_a_pickled_adapter_is_refused(adapter, tmp_path):
    bad = copy(adapter, tmp_path / "bad")
    (bad / "adapter_model.safetensors").rename(bad / "adapter_model.bin")
    with pytest.raises(SpecError, match=r"adapter_model.bin is not read.*run code"):
        find_source(str(bad))


def test_a_broken_adapter_is_refused(folder, adapter, tmp_path):
    bad = copy(adapter, tmp_path / "bad")
    weights = load_file(bad / "adapter_model.safetensors")
    weights[next(iter(weights))][0, 0] = float("nan")
    save_file(weights, bad / "adapter_model.safetensors")
    with pytest.raises(ValueError, match="NaN or infinity"):
        load_reranker(folder, adapter=bad, device="cpu")
    (bad / "adapter_model.safetensors").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(SpecError, match="adapter_model.safetensors"):
        find_source(str(bad))
