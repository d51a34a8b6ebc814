"""Extraction: what is refused, warned of and replaced; every format gives the same encoder."""

import json
import math
import shutil

import pytest
import torch
from helpers.archetypes import edit
from safetensors.torch import load_file, save_file

from qwen3nb.checkpoints.averaging import average_checkpoints
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.extraction.extract import write_encoder
from qwen3nb.models.model import Model


@pytest.fixture
def broken(checkpoint, tmp_path):
    """A copy of the checkpoint to break: change(tensors, config) and write it back."""

    def make(change):
        folder = tmp_path / "broken"
        shutil.copytree(checkpoint, folder)
        tensors = load_file(folder / "model.safetensors")
        config = json.loads((folder / "config.json").read_text())
        change(tensors, config, folder)
        config = {name: value for name, value in config.items() if value is not None}
        save_file(tensors, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return make


@pytest.fixture(scope="module")
def verification(checkpoint, tmp_path_factory):
    return write_encoder(checkpoint, tmp_path_factory.mktemp("verified") / "out").verification


@pytest.fixture
def verified(verification, monkeypatch):
    """Take the comparison with the source, which takes most of the time, as done."""
    monkeypatch.setattr(
        "qwen3nb.extraction.extract.verify_export", lambda *_, **options: verification
    )


LAYER, DECODER = "model.encoder.layers.0", "model.decoder"
NORM, UP = "norm.weight", "mlp.up_proj.weight"


def tensor(name, value):
    """Store another tensor, or none."""

    def change(tensors, config, folder):
        tensors[name] = value
        if value is None:
            del tensors[name]

    return change


def settings(**changes):
    return lambda tensors, config, folder: config.update(changes)


def tokenizer_config(**changes):
    return lambda tensors, config, folder: edit(folder, "tokenizer_config.json", **changes)


def few_rows(tensors, config, folder):
    tensors["model.shared.weight"] = tensors["model.shared.weight"][:100].clone()
    config |= {"vocab_size": 100, "pad_token_id": 0, "eos_token_id": 0}


def nan_row(tensors, config, folder):
    tensors[f"{LAYER}.{UP}"][3] = math.nan


def no_words(tensors, config, folder):
    (folder / "tokenizer.json").write_text("{}")


BREAK = {
    "padding": (tokenizer_config(pad_token=None), "names no pad_token"),
    "stranger": (tensor("model.x.weight", torch.ones(2, 2)), r"model\.x\.weight: unexpected"),
    "inf": (tensor(f"{DECODER}.{NORM}", torch.full((32,), math.inf)), "norm.weight contains NaN"),
    "many layers": (settings(num_hidden_layers=10**7), "num_hidden_layers is 10000000"),
    "kv": (settings(num_key_value_heads=3), "4 attention heads cannot share 3 key-value heads"),
    "no words": (no_words, "tokenizer.json: not a valid tokenizer"),
    "missing": (tensor(f"model.encoder.{NORM}", None), "Missing key.*norm.weight"),
    "embedding": (tensor("model.shared.weight", None), "Missing key.*embed_tokens"),
    "nan": (nan_row, "up_proj.weight contains NaN"),
    "extra": (tensor(f"{LAYER}.self_attn.q_proj.bias", torch.zeros(4)), "Unexpected key.*bias"),
    "type": (settings(model_type="t5"), "model_type is 't5'"),
    "theta": (settings(rope_theta=None), "config.json lacks 'rope_theta'"),
    "pad": (settings(pad_token_id=9999), "pad_token_id is 9999 but the embedding has 448 rows"),
    "rows": (few_rows, "the tokenizer has the id .*only 100 rows"),
}


@pytest.mark.parametrize("case", BREAK)
def test_a_broken_checkpoint_is_refused_and_an_earlier_export_stays(broken, tmp_path, case):
    change, cause = BREAK[case]
    output = tmp_path / "out" / "encoder"
    output.mkdir(parents=True)
    (output / "qwen3nb.json").write_text("good")
    with pytest.raises(CheckpointError, match=cause):
        write_encoder(broken(change), output)
    assert [path.name for path in output.parent.iterdir()] == ["encoder"]
    assert (output / "qwen3nb.json").read_text() == "good"


@pytest.mark.usefixtures("verified")
def test_only_an_export_is_replaced(checkpoint, tmp_path):
    for name in ("thesis", "file"):
        (tmp_path / name).mkdir() if name == "thesis" else (tmp_path / name).write_text("x")
    (tmp_path / "thesis" / "chapter").write_text("three years")
    for name in ("thesis", "file"):
        with pytest.raises(CheckpointError, match="exists without qwen3nb.json"):
            write_encoder(checkpoint, tmp_path / name)
        with pytest.raises(CheckpointError, match="exists without averaging_metadata.json"):
            average_checkpoints([checkpoint], tmp_path / name)
    assert (tmp_path / "thesis" / "chapter").read_text() == "three years"
    assert write_encoder(checkpoint, tmp_path / "encoder").label == "encoder"
    assert Model(tmp_path / "encoder").label == "encoder"
    write_encoder(checkpoint, tmp_path / "out", label="mine")
    again = write_encoder(checkpoint, tmp_path / "out", pooling="cls")
    assert again.label == "mine"
    assert json.loads((again.folder / "config.json").read_text())["pooling_mode"] == "cls"


@pytest.mark.usefixtures("verified")
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
        done = write_encoder(folder, tmp_path / "out")
        assert (done.folder / "model.safetensors").read_bytes() == expected


def eos(of):
    """Configure the tokenizer's end of text, or the token before it."""

    def change(tensors, config, folder):
        tokens = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
        (end,) = [each["id"] for each in tokens if each["content"] == "<|endoftext|>"]
        config["eos_token_id"] = of(end)

    return change


def whole(tensors, config, folder):
    """Change nothing."""


UNUSED = {
    **{"rope_scaling": {"rope_type": "yarn"}, "hidden_act": "gelu", "attention_bias": True},
    "layer_types": ["sliding_attention"] * 2,
}
LAST, OTHER, UNNAMED = "without an end-of-text token", "config.json says eos_token_id", "names no"
WARNED = [
    (whole, {"pooling": "last"}, [LAST]),
    (whole, {"pooling": "last", "append_eos": True}, []),
    (whole, {"pooling": "mean"}, []),
    (eos(lambda end: end), {}, []),
    (eos(lambda end: end - 1), {}, [OTHER]),
    (eos(lambda end: None), {}, []),
    (tokenizer_config(eos_token=None), {}, [UNNAMED]),
    (tokenizer_config(eos_token={"__type": "AddedToken", "content": "<|endoftext|>"}), {}, []),
    (
        settings(**UNUSED),
        {},
        ["rope_scaling 'yarn'", "hidden_act 'gelu'", "sliding-window", "attention_bias"],
    ),
]


@pytest.mark.usefixtures("verified")
@pytest.mark.parametrize(("change", "options", "expected"), WARNED)
def test_settings_that_do_not_fit_are_warned_of(broken, tmp_path, change, options, expected):
    source = broken(change)
    done = write_encoder(source, tmp_path / "out", **options)
    assert json.loads((done.folder / "qwen3nb.json").read_text())["warnings"] == [*done.warnings]
    text = " ".join(done.warnings)
    known = {LAST, OTHER, UNNAMED, *expected}
    assert {each for each in known if each in text} == set(expected)
    if UNNAMED in expected:
        with pytest.raises(CheckpointError, match="names no eos_token"):
            write_encoder(source, tmp_path / "out", append_eos=True)


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
        write_encoder(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(CheckpointError, match="is or contains"):
        write_encoder(source, tmp_path)
