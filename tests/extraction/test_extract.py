import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from qwen3nb.checkpoints.averaging import average_checkpoints
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.extraction.extract import extract_encoder


@pytest.fixture
def broken(checkpoint, tmp_path):
    """A copy of the checkpoint to break: change(tensors, config) and write it back."""

    def make(change):
        folder = tmp_path / "broken"
        shutil.copytree(checkpoint, folder)
        tensors = load_file(folder / "model.safetensors")
        config = json.loads((folder / "config.json").read_text())
        change(tensors, config, folder)
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return make


LAYER, DECODER = "model.encoder.layers.0", "model.decoder"


def broken_decoder(tensors, config, folder):
    """Also what does not belong to the model."""
    tensors["model.projection.weight"] = torch.ones(2, 2)
    tensors.pop(f"{DECODER}.layers.1.mlp.up_proj.weight")
    tensors[f"{DECODER}.norm.weight"][0] = float("inf")


def few_rows(tensors, config, folder):
    tensors["model.shared.weight"] = tensors["model.shared.weight"][:100].clone()
    config |= {"vocab_size": 100, "pad_token_id": 0, "eos_token_id": 0}


def with_tensor(name, value):
    return lambda tensors, config, folder: tensors.update({name: value})


def without_tensor(name):
    return lambda tensors, config, folder: tensors.pop(name)


def set_to(field, value):
    return lambda tensors, config, folder: config.update({field: value})


def tokenizer_config(**changes):
    def change(tensors, config, folder):
        file = folder / "tokenizer_config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return change


BREAK = {
    "padding": (tokenizer_config(pad_token=None), "names no pad_token"),
    "stranger": (
        with_tensor("model.projection.weight", torch.ones(2, 2)),
        r"model\.projection\.weight: unexpected",
    ),
    "decoder": (
        without_tensor(f"{DECODER}.layers.1.mlp.up_proj.weight"),
        r"decoder\.layers\.1\.mlp\.up_proj\.weight: missing",
    ),
    "inf": (
        with_tensor(f"{DECODER}.norm.weight", torch.full((32,), float("inf"))),
        r"decoder\.norm\.weight contains NaN",
    ),
    "many layers": (set_to("num_hidden_layers", 10**7), "num_hidden_layers is 10000000"),
    "no head": (set_to("num_attention_heads", 0), "num_attention_heads is 0; expected a number"),
    "half head": (set_to("_head_dim", 7), "the odd size 7"),
    "kv": (set_to("num_key_value_heads", 3), "4 attention heads cannot share 3 key-value heads"),
    "text": (set_to("hidden_size", "32"), "hidden_size is '32'; expected a number"),
    "eps": (set_to("rms_norm_eps", -1.0), r"rms_norm_eps is -1\.0; it should be greater"),
    "nan eps": (set_to("rms_norm_eps", float("nan")), r"config\.json: .* \(NaN is not JSON"),
    "no words": (
        lambda tensors, config, folder: (folder / "tokenizer.json").write_text("{}"),
        "tokenizer.json: not a valid tokenizer",
    ),
    "tokenizer": (
        lambda tensors, config, folder: (folder / "tokenizer.json").unlink(),
        "no tokenizer.json",
    ),
    "missing": (without_tensor("model.encoder.norm.weight"), "Missing key.*norm.weight"),
    "embedding": (without_tensor("model.shared.weight"), "Missing key.*embed_tokens"),
    "shape": (
        with_tensor("model.encoder.norm.weight", torch.ones(7)),
        r"size mismatch for .*norm\.weight",
    ),
    "nan": (
        lambda tensors, config, folder: tensors[f"{LAYER}.mlp.up_proj.weight"][3].fill_(math.nan),
        "up_proj.weight contains NaN",
    ),
    "layers": (set_to("num_hidden_layers", 3), r"Missing key.*layers\.2"),
    "extra": (
        with_tensor(f"{LAYER}.self_attn.q_proj.bias", torch.zeros(4)),
        "Unexpected key.*q_proj.bias",
    ),
    "type": (set_to("model_type", "t5"), "model_type is 't5'"),
    "theta": (
        lambda tensors, config, folder: config.pop("rope_theta"),
        "config.json lacks 'rope_theta'",
    ),
    "pad": (set_to("pad_token_id", 9999), "pad_token_id is 9999 but the embedding has 448 rows"),
    "rows": (few_rows, "the tokenizer has the id .*only 100 rows"),
}


@pytest.mark.parametrize("case", BREAK)
def test_a_broken_checkpoint_is_refused_and_an_earlier_export_stays(broken, tmp_path, case):
    change, cause = BREAK[case]
    output = tmp_path / "out" / "encoder"
    output.mkdir(parents=True)
    (output / "qwen3nb.json").write_text("good")
    with pytest.raises(CheckpointError, match=cause):
        extract_encoder(broken(change), output)
    assert [path.name for path in output.parent.iterdir()] == ["encoder"]
    assert (output / "qwen3nb.json").read_text() == "good"


def test_only_an_export_is_replaced(checkpoint, tmp_path):
    for name in ("thesis", "file"):
        (tmp_path / name).mkdir() if name == "thesis" else (tmp_path / name).write_text("x")
    (tmp_path / "thesis" / "chapter").write_text("three years")
    for name in ("thesis", "file"):
        with pytest.raises(CheckpointError, match="was not written by an extraction"):
            extract_encoder(checkpoint, tmp_path / name)
        with pytest.raises(CheckpointError, match="was not written by averaging"):
            average_checkpoints([checkpoint], tmp_path / name)
    assert (tmp_path / "thesis" / "chapter").read_text() == "three years"
    first = extract_encoder(checkpoint, tmp_path / "out")
    again = extract_encoder(checkpoint, tmp_path / "out", pooling="cls")
    assert first.folder == again.folder
    assert json.loads((again.folder / "config.json").read_text())["pooling_mode"] == "cls"


def test_allowances_accept_known_defects(broken, tmp_path):
    folder = broken(broken_decoder)
    done = extract_encoder(folder, tmp_path / "encoder", allow=["decoder", "unexpected"])
    assert done.max_difference <= 1e-5
    with pytest.raises(ValueError, match="unknown allowance 'missing'; choose one of: decoder"):
        extract_encoder(folder, tmp_path / "encoder", allow=["missing"])


def test_every_format_gives_the_same_encoder(checkpoint, encoder_folder, tmp_path):
    """One file, wrapped names, shards, a pickled state dict with aliases: one model."""
    tensors = load_file(checkpoint / "model.safetensors")
    aliases = dict.fromkeys(
        ("model.encoder.embed_tokens.weight", "lm_head.weight"), tensors["model.shared.weight"]
    )

    def copy(name):
        folder = tmp_path / name
        ignore = shutil.ignore_patterns("*.safetensors")
        shutil.copytree(checkpoint, folder, ignore=ignore)
        return folder

    pickled = copy("pickled")
    wrapped = {f"_orig_mod.module.{name}": each for name, each in {**tensors, **aliases}.items()}
    torch.save(wrapped, pickled / "pytorch_model.bin")
    sharded = copy("sharded")
    names = sorted(tensors)
    for part, half in (("a", names[::2]), ("b", names[1::2])):
        save_file({name: tensors[name] for name in half}, sharded / f"{part}.safetensors")
    index = {name: "ab"[i % 2] + ".safetensors" for i, name in enumerate(names)}
    (sharded / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    expected = (encoder_folder / "model.safetensors").read_bytes()
    for folder in (pickled, sharded):
        done = extract_encoder(folder, tmp_path / "out")
        assert (done.folder / "model.safetensors").read_bytes() == expected


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({"pooling": "last"}, True),
        ({"pooling": "last", "append_eos": True}, False),
        ({"pooling": "mean"}, False),
        ({"pooling": "cls", "append_eos": True}, False),
    ],
)
def test_last_pooling_without_an_end_is_warned_of(checkpoint, tmp_path, options, warned):
    done = extract_encoder(checkpoint, tmp_path / "out", **options)
    stated = json.loads((done.folder / "qwen3nb.json").read_text())["warnings"]
    assert stated == list(done.warnings)
    assert any("without an end-of-text token" in each for each in stated) is warned


@pytest.mark.parametrize("configured", ["the tokenizer's", "another", "none"])
def test_two_ends_of_text_are_warned_of(broken, tmp_path, configured):
    def change(tensors, config, folder):
        tokens = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
        (end,) = [each["id"] for each in tokens if each["content"] == "<|endoftext|>"]
        config["eos_token_id"] = {"the tokenizer's": end, "another": end - 1, "none": None}[
            configured
        ]

    text = " ".join(extract_encoder(broken(change), tmp_path / "out").warnings)
    assert ("config.json says eos_token_id" in text) is (configured == "another")


@pytest.mark.parametrize("end", [None, {"__type": "AddedToken", "content": "<|endoftext|>"}])
def test_an_end_of_text_that_is_not_named_is_warned_of(broken, tmp_path, end):
    source = broken(tokenizer_config(eos_token=end))
    done = extract_encoder(source, tmp_path / "out")
    assert any("names no eos_token" in each for each in done.warnings) is (end is None)
    if end is None:
        with pytest.raises(CheckpointError, match="names no eos_token"):
            extract_encoder(source, tmp_path / "out", append_eos=True)


def test_settings_that_are_stored_but_not_used_are_warned_of(broken, tmp_path):
    def change(tensors, config, folder):
        config |= {"rope_scaling": {"rope_type": "yarn"}, "hidden_act": "gelu"}
        config |= {"layer_types": ["sliding_attention"] * 2, "attention_bias": True}

    text = " ".join(extract_encoder(broken(change), tmp_path / "out").warnings)
    for word in ("rope_scaling 'yarn'", "hidden_act 'gelu'", "sliding-window", "attention_bias"):
        assert word in text


def test_a_checkpoint_that_changes_meanwhile_is_noticed(checkpoint, tmp_path, monkeypatch):
    import qwen3nb.extraction.extract as module

    source = tmp_path / "checkpoint-7"
    shutil.copytree(checkpoint, source)
    real = module.verify_export

    def meanwhile(*args, **kwargs):
        result = real(*args, **kwargs)
        (source / "config.json").write_text((source / "config.json").read_text() + " ")
        return result

    monkeypatch.setattr(module, "verify_export", meanwhile)
    with pytest.raises(CheckpointError, match=r"config\.json: changed while it was being read"):
        extract_encoder(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(CheckpointError, match="the checkpoint itself"):
        extract_encoder(source, tmp_path)
