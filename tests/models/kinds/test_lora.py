"""LoRA adapters: resolved with their base, checked, and computed as PEFT does."""

import json
import shutil
import warnings

import pytest
import torch
from helpers.malformed_files import cut, linked, replaced
from helpers.rerankers import DOCUMENTS, QUERY, write_reranker
from helpers.tolerances import assert_close
from safetensors.torch import load_file, save_file

from qwen3nb.models.kinds.lora import adapter_fingerprint
from qwen3nb.models.kinds.resolve import adapter_source, find_source
from qwen3nb.models.load import load_encoder
from qwen3nb.models.rerankers import load_reranker
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
        assert_close(vectors, expected[column].numpy())


@pytest.fixture(scope="session")
def adapter(folder, tmp_path_factory):
    """A tiny LoRA adapter of the tiny model, as PEFT writes it, with an effect."""
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
    assert find_source(str(near)).base.folder.path == tmp_path / "tiny-base"


def test_the_order_in_which_peft_wrote_a_set_is_no_part_of_the_identity(adapter, tmp_path):
    modules = [["q_proj", "down_proj"], ["down_proj", "q_proj"], ["q_proj"]]
    first, other_order, fewer = (
        adapter_fingerprint(copy(adapter, tmp_path / str(number), target_modules=each))
        for number, each in enumerate(modules)
    )
    assert first == other_order != fewer


def checked(adapter):
    source = adapter_source(adapter)
    source.kind.check(source)
    return source


SLOW = r"(.|[a-z_.\d])+[A-Z]"  # twice the time for each character of a name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"base_model_name_or_path": "nowhere"}, "base was not found.*give its folder as base"),
        ({"base_model_name_or_path": None}, "names no base"),
        ({"r": 8}, r"size mismatch for .*lora_A"),
        ({"rank_pattern": {"q_proj": 8}}, r"size mismatch for .*q_proj"),
        ({"lora_alpha": "16"}, r"adapter_config.json: lora_alpha: expected .*; got '16'"),
        ({"r": True}, "adapter_config.json: r: expected .*; got True"),
        ({"r": 10**9}, "adapter_config.json: r: .*; got 1000000000"),
        ({"rank_pattern": {"q_proj": 0}}, "rank_pattern.q_proj: expected .*; got 0"),
        ({"target_modules": SLOW}, r"the pattern .* cannot be used \(.*timed out"),
        (
            {"alpha_pattern": {SLOW: 1}},
            r"the pattern .* cannot be used \(.*timed out",
        ),
        ({"target_modules": "(" * 50_000}, r"the pattern .* cannot be used \("),
        ({"rank_pattern": {"(" * 50_000: 1}}, r"the pattern .* cannot be used \("),
        ({"target_modules": "a" * 200_000}, "has 200,000 characters; expected at most 100,000"),
        ({"target_modules": "(q_proj"}, r"the pattern '\(q_proj' cannot be used \(missing"),
        ({"target_modules": ["q_proj"]}, "down_proj.* has no module in the base"),
        ({"target_modules": ["q_proj", "down_proj", "v_proj"]}, "v_proj.* is missing, though"),
        ({"peft_type": "IA3"}, "peft_type is 'IA3'; only plain LoRA"),
        ({"use_dora": True}, r"lora_magnitude_vector\S* is missing, though"),
        ({"use_dora": "yes"}, "use_dora: expected .*; got 'yes'"),
        ({"modules_to_save": ["lm_head"]}, "lm_head.weight is missing, though.* modules_to_save"),
        ({"modules_to_save": [SLOW]}, r"modules_to_save\[0\]: "),
        ({"exclude_modules": SLOW}, r"the pattern .* cannot be used \(.*timed out"),
        ({"exclude_modules": ["q_proj"]}, "q_proj.* has no module in the base"),
        ({"layers_pattern": SLOW, "layers_to_transform": [0]}, "layers_pattern"),
        ({"task_type": "SEQ_CLS"}, "task_type is 'SEQ_CLS'"),
        ({"trainable_token_indices": [1]}, "trainable_token_indices is"),
        ({"megatron_config": {"a": 1}, "megatron_core": "antigravity"}, "megatron_config is"),
        ({"init_lora_weights": "pissa_niter_100000000"}, "init_lora_weights is"),
    ],
)
def test_an_invalid_adapter_is_refused_with_the_reason(adapter, tmp_path, changes, message):
    with pytest.raises(SpecError, match=message) as raised:
        checked(copy(adapter, tmp_path / "bad", **changes))
    assert "\n" not in str(raised.value)


def test_patterns_mean_what_they_mean_to_peft(folder, adapter, tmp_path):
    """Targets by a pattern, and rank and alpha of a layer, as PEFT itself merges them."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    changed = copy(
        adapter,
        tmp_path / "patterns",
        target_modules=r".*\.(q_proj|down_proj)",
        r=2,
        rank_pattern={"q_proj": 4, r"mlp\.down_proj": 4},
        alpha_pattern={r"layers\.1\.self_attn\.q_proj": 3},
    )
    base = AutoModelForCausalLM.from_pretrained(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        merged = PeftModel.from_pretrained(base, changed).merge_and_unload().state_dict()
    source = adapter_source(changed, base=folder)
    ours = source.kind.causal(source, torch.float32).state_dict()
    assert all(torch.equal(ours[name], tensor) for name, tensor in merged.items())


def test_an_adapter_is_no_base(adapter, tmp_path):
    bad = copy(adapter, tmp_path / "bad", base_model_name_or_path=str(tmp_path / "bad"))
    with pytest.raises(SpecError, match="is an adapter; give a whole model"):
        find_source(str(bad))


ADAPTER_FILES = {
    "weights linked": linked("adapter_model.safetensors"),
    "configuration a pipe": replaced("adapter_config.json", "pipe"),
    "half of the weights": cut("adapter_model.safetensors"),
}


@pytest.mark.parametrize("case", ADAPTER_FILES)
def test_files_of_an_adapter_lie_inside_and_are_whole(adapter, tmp_path, case):
    bad = shutil.copytree(adapter, tmp_path / "bad")
    ADAPTER_FILES[case](bad)
    with pytest.raises(SpecError) as raised:
        find_source(str(bad))
    assert str(bad) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_tokenizer_next_to_the_adapter_is_that_of_the_base(folder, adapter, tmp_path):
    bad = shutil.copytree(adapter, tmp_path / "bad")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (bad / "tokenizer.json").write_text(json.dumps(tokenizer))  # the same in other bytes
    assert checked(bad).kind.adapts
    tokenizer["added_tokens"][-1]["content"] = "<another>"
    (bad / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(SpecError, match="was the adapter trained on another base"):
        checked(bad)


def test_broken_weights_are_refused(folder, adapter, tmp_path):
    bad = copy(adapter, tmp_path / "bad")
    file = bad / "adapter_model.safetensors"
    weights = load_file(file)
    weights[next(iter(weights))][0, 0] = float("nan")
    save_file(weights, file)
    with pytest.raises(ValueError, match="NaN or infinity"):
        load_reranker(folder, adapter=bad, device="cpu")
    file.rename(bad / "adapter_model.bin")
    with pytest.raises(SpecError, match=r"adapter_model.bin is not read.*run code"):
        find_source(str(bad))
