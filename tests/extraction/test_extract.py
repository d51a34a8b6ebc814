import json
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers import TEXTS
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from qwen3nb.checkpoints.averaging import average_checkpoints, select_checkpoints
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.checkpoints.weight_names import encoder_name
from qwen3nb.extraction.extract import extract
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling import qwen3_encoder as encoder
from qwen3nb.models.modeling.configuration import Qwen3EncoderConfig
from qwen3nb.models.modeling.configuration import encoder_config as build_config
from qwen3nb.models.modeling.pooling import POOLINGS, pool
from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel, causal_leak
from qwen3nb.models.modeling.qwen3_seq2seq import Qwen3ForSeq2SeqLM, Qwen3Seq2SeqConfig, shift_right


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


@pytest.mark.parametrize("pooling", POOLINGS)
def test_stock_libraries_compute_what_we_compute(checkpoint, tmp_path, pooling):
    from sentence_transformers import SentenceTransformer

    folder = extract(checkpoint, tmp_path / "encoder", pooling=pooling).folder
    ours = load_encoder(folder, cache=False).encode(list(TEXTS))
    theirs = SentenceTransformer(str(folder), device="cpu").encode(list(TEXTS))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    assert type(model).__name__ == "Qwen3Model"
    for side in ("left", "right"):
        batch = tokenizer(list(TEXTS), padding=True, padding_side=side, return_tensors="pt")
        with torch.inference_mode():
            states = model(**batch).last_hidden_state
        pooled = pool(states, batch["attention_mask"], how=pooling, normalize=True)
        np.testing.assert_allclose(ours, pooled.numpy(), atol=1e-5)


def test_the_encoder_inside_a_checkpoint_is_the_one_that_is_extracted(checkpoint, encoder_folder):
    inside = load_encoder(checkpoint, cache=False).encode(list(TEXTS))
    outside = load_encoder(encoder_folder, cache=False).encode(list(TEXTS))
    np.testing.assert_array_equal(inside, outside)


def test_the_export_says_what_it_is(encoder_folder, checkpoint):
    config = json.loads((encoder_folder / "config.json").read_text())
    assert config["model_type"] == "qwen3"
    assert config["is_causal"] is False
    assert config["use_bidirectional_attention"] is True
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 10000.0
    assert config["architectures"] == ["Qwen3Model"]
    modules = [
        m["type"].rsplit(".", 1)[1]
        for m in json.loads((encoder_folder / "modules.json").read_text())
    ]
    assert modules == ["Transformer", "Pooling", "Normalize"]
    pooling = json.loads((encoder_folder / "1_Pooling" / "config.json").read_text())
    assert pooling["pooling_mode"] == "mean"
    assert pooling["pooling_mode_mean_tokens"] is True
    assert pooling["pooling_mode_lasttoken"] is False
    provenance = json.loads((encoder_folder / "qwen3nb.json").read_text())
    assert provenance["verification"]["max_difference"] <= 1e-5
    assert provenance["source"]["step"] == 10
    assert provenance["verification"]["sentence_transformers_difference"] <= 1e-5
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (encoder_folder / name).read_bytes() == (checkpoint / name).read_bytes()
    assert "transformers 5.2" in (encoder_folder / "README.md").read_text()


def test_sixteen_bits_are_written_and_verified(checkpoint, tmp_path):
    done = extract(checkpoint, tmp_path / "half", dtype="bfloat16")
    assert all(
        t.dtype == torch.bfloat16 for t in load_file(done.folder / "model.safetensors").values()
    )
    assert done.max_difference <= 1e-5  # against the source with its weights rounded likewise
    assert done.verification.rounding > 1e-4


def drop(name):
    return lambda tensors, config, folder: tensors.pop(name)


def reshape(tensors, config, folder):
    tensors["model.encoder.norm.weight"] = torch.ones(7)


def poison(tensors, config, folder):
    tensors["model.encoder.layers.0.mlp.up_proj.weight"][3, 2] = float("nan")


def more_layers(tensors, config, folder):
    config["num_hidden_layers"] = 3


def extra(tensors, config, folder):
    tensors["model.encoder.layers.0.self_attn.q_proj.bias"] = torch.zeros(4)


def another_type(tensors, config, folder):
    config["model_type"] = "t5"


def no_theta(tensors, config, folder):
    del config["rope_theta"]


def no_tokenizer(tensors, config, folder):
    (folder / "tokenizer.json").unlink()


def few_rows(tensors, config, folder):
    tensors["model.shared.weight"] = tensors["model.shared.weight"][:100].clone()
    config |= {"vocab_size": 100, "pad_token_id": 0, "eos_token_id": 0}


def pad_beyond(tensors, config, folder):
    config["pad_token_id"] = 9999


def stranger(tensors, config, folder):
    tensors["model.projection.weight"] = torch.ones(2, 2)


def broken_decoder(tensors, config, folder):
    tensors.pop("model.decoder.layers.1.mlp.up_proj.weight")


def poisoned_decoder(tensors, config, folder):
    tensors["model.decoder.norm.weight"][0] = float("inf")


def set_to(field, value):
    def change(tensors, config, folder):
        config[field] = value

    return change


def no_words(tensors, config, folder):
    (folder / "tokenizer.json").write_text("{}")


def no_padding(tensors, config, folder):
    fields = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(fields | {"pad_token": None}))


BREAK = {
    "padding": (no_padding, "names no pad_token"),
    "stranger": (stranger, r"model\.projection\.weight: unexpected"),
    "decoder": (broken_decoder, r"decoder\.layers\.1\.mlp\.up_proj\.weight: missing"),
    "inf": (poisoned_decoder, r"decoder\.norm\.weight holds NaN"),
    "many layers": (set_to("num_hidden_layers", 10**7), "num_hidden_layers is 10000000; expected"),
    "no head": (set_to("num_attention_heads", 0), "num_attention_heads is 0; expected a whole"),
    "half head": (set_to("_head_dim", 7), "_head_dim is 7; expected an even number"),
    "kv": (set_to("num_key_value_heads", 3), "4 attention heads cannot share 3 key-value heads"),
    "text": (set_to("hidden_size", "32"), "hidden_size is '32'; expected a whole number"),
    "eps": (set_to("rms_norm_eps", -1.0), r"rms_norm_eps is -1\.0; expected a number above 0"),
    "nan eps": (set_to("rms_norm_eps", float("nan")), r"config\.json: NaN is not JSON"),
    "no words": (no_words, "tokenizer.json: not a tokenizer"),
    "missing": (drop("model.encoder.norm.weight"), "norm.weight: missing"),
    "embedding": (drop("model.shared.weight"), "embed_tokens.weight: missing"),
    "shape": (reshape, r"norm\.weight: shape \(7,\), config says \(32,\)"),
    "nan": (poison, "up_proj.weight holds NaN"),
    "layers": (more_layers, r"3 encoder layers in config\.json, 2 among the weights"),
    "extra": (extra, "q_proj.bias: unexpected"),
    "type": (another_type, "model_type is 't5'"),
    "theta": (no_theta, "config.json lacks 'rope_theta'"),
    "tokenizer": (no_tokenizer, "no tokenizer.json"),
    "pad": (pad_beyond, "pad_token_id is 9999 but the embedding has 448 rows"),
    "rows": (few_rows, "the tokenizer has an id .* but the embedding only 100 rows"),
}


@pytest.mark.parametrize("case", BREAK)
def test_a_broken_checkpoint_is_refused_and_an_earlier_export_stays(broken, tmp_path, case):
    change, cause = BREAK[case]
    output = tmp_path / "out" / "encoder"
    output.mkdir(parents=True)
    (output / "qwen3nb.json").write_text("good")
    with pytest.raises(CheckpointError, match=cause):
        extract(broken(change), output)
    assert [path.name for path in output.parent.iterdir()] == ["encoder"]
    assert (output / "qwen3nb.json").read_text() == "good"


def test_what_is_no_export_is_not_replaced(checkpoint, tmp_path):
    for name in ("thesis", "file"):
        (tmp_path / name).mkdir() if name == "thesis" else (tmp_path / name).write_text("x")
    (tmp_path / "thesis" / "chapter").write_text("three years")
    for name in ("thesis", "file"):
        with pytest.raises(CheckpointError, match="was not made by an extraction; it stays"):
            extract(checkpoint, tmp_path / name)
        with pytest.raises(CheckpointError, match="was not made by averaging; it stays"):
            average_checkpoints([checkpoint], tmp_path / name)
    assert (tmp_path / "thesis" / "chapter").read_text() == "three years"
    first = extract(checkpoint, tmp_path / "out")
    again = extract(checkpoint, tmp_path / "out", pooling="cls")
    assert first.folder == again.folder
    assert json.loads((again.folder / "config.json").read_text())["pooling_mode"] == "cls"


def test_an_export_that_differs_from_its_source_is_not_kept(checkpoint, tmp_path, monkeypatch):
    """A mistake in re-keying: the two norms of each layer exchanged."""
    swap = {
        "input_layernorm": "post_attention_layernorm",
        "post_attention_layernorm": "input_layernorm",
    }

    def wrong(name):
        new = encoder_name(name)
        part = next((part for part in swap if new and part in new), None)
        return new.replace(part, swap[part]) if part else new

    changed = tmp_path / "checkpoint-1"
    shutil.copytree(checkpoint, changed)
    tensors = load_file(changed / "model.safetensors")
    tensors["model.encoder.layers.0.input_layernorm.weight"] *= 3  # else they are all ones
    save_file(tensors, changed / "model.safetensors")
    monkeypatch.setattr("qwen3nb.extraction.extract.encoder_name", wrong)
    with pytest.raises(CheckpointError, match="differs from its source"):
        extract(changed, tmp_path / "encoder")
    assert not (tmp_path / "encoder").exists()


def test_a_release_that_runs_it_causally_is_refused(
    checkpoint, encoder_folder, tmp_path, monkeypatch
):
    """What transformers before 5.2 does: it ignores is_causal: false."""
    from transformers import Qwen3Model

    forward = Qwen3Model.forward

    def old(self, *args, **kwargs):
        self.config.is_causal = True
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(Qwen3Model, "forward", old)
    with pytest.raises(ValueError, match="runs the model causally"):
        load_encoder(encoder_folder, cache=False)
    with pytest.raises(CheckpointError, match="runs causally"):
        extract(checkpoint, tmp_path / "encoder")
    assert not (tmp_path / "encoder").exists()


def test_what_may_be_let_through(broken, tmp_path):
    def change(tensors, config, folder):
        stranger(tensors, config, folder)
        broken_decoder(tensors, config, folder)
        poisoned_decoder(tensors, config, folder)

    folder = broken(change)
    done = extract(folder, tmp_path / "encoder", allow=["decoder", "unexpected"])
    assert done.max_difference <= 1e-5
    with pytest.raises(ValueError, match="unknown allowance 'missing'; choose one of: decoder"):
        extract(folder, tmp_path / "encoder", allow=["missing"])


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
        done = extract(folder, tmp_path / "out")
        assert (done.folder / "model.safetensors").read_bytes() == expected


def test_heads_that_do_not_make_up_the_hidden_size(tmp_path, checkpoint):
    """As in Qwen3-0.6B: 16 heads of 128 on a hidden size of 1024."""
    fields = json.loads((checkpoint / "config.json").read_text())
    config = Qwen3Seq2SeqConfig(**fields | {"_head_dim": 24, "rope_theta": 12345.0})
    Qwen3ForSeq2SeqLM(config).save_pretrained(tmp_path / "wide")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(checkpoint / name, tmp_path / "wide" / name)
    done = extract(tmp_path / "wide", tmp_path / "out")
    written = json.loads((done.folder / "config.json").read_text())
    assert (written["head_dim"], written["hidden_size"], written["num_attention_heads"]) == (
        24, 32, 4,
    )  # fmt: skip
    assert written["rope_parameters"]["rope_theta"] == 12345.0


def test_a_mode_and_an_end_around_every_text(checkpoint, tmp_path):
    from sentence_transformers import SentenceTransformer
    from tokenizers import Tokenizer

    options = {"prefix": "[R]", "append_eos": True, "pooling": "last", "max_length": 12}
    done = extract(checkpoint, tmp_path / "around", **options, prompts={"query": "find: "})
    plain = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    mode = plain.encode("[R]").ids
    end = plain.token_to_id("<|endoftext|>")
    long = " ".join(TEXTS)
    loaded = AutoTokenizer.from_pretrained(done.folder)
    for text in (TEXTS[0], "x", ""):
        row = loaded(text)["input_ids"]
        assert row == [*mode, *plain.encode(text).ids, end]
    cut = loaded(long, truncation=True, max_length=12)["input_ids"]
    assert cut == [*mode, *plain.encode(long).ids[: 11 - len(mode)], end]

    before = json.loads((checkpoint / "tokenizer.json").read_text())
    after = json.loads((done.folder / "tokenizer.json").read_text())
    assert {key for key in before if before[key] != after[key]} == {"post_processor"}
    texts = [*TEXTS, long, ""]
    theirs = SentenceTransformer(str(done.folder), device="cpu")
    ours = load_encoder(done.folder, cache=False)
    np.testing.assert_allclose(ours.encode(texts), theirs.encode(texts), atol=1e-5)
    assert theirs.prompts["query"] == "find: "
    inside = load_encoder(
        checkpoint, pooling="last", prefix="[R]", append_eos=True, max_length=12, cache=False
    )
    np.testing.assert_array_equal(inside.encode(texts), ours.encode(texts))
    with pytest.raises(CheckpointError, match="leaves no room"):
        extract(checkpoint, tmp_path / "none", **options | {"max_length": 3})


def test_last_pooling_without_an_end_is_warned_of(checkpoint, tmp_path):
    done = extract(checkpoint, tmp_path / "last", pooling="last")
    assert "last-token pooling without an end-of-text token" in done.warnings[0]
    assert json.loads((done.folder / "qwen3nb.json").read_text())["warnings"] == list(done.warnings)


def test_settings_that_are_stored_but_not_used_are_warned_of(broken, tmp_path):
    def change(tensors, config, folder):
        config |= {"rope_scaling": {"rope_type": "yarn"}, "hidden_act": "gelu"}
        config |= {"layer_types": ["sliding_attention"] * 2, "attention_bias": True}

    text = " ".join(extract(broken(change), tmp_path / "out").warnings)
    for word in ("rope_scaling 'yarn'", "hidden_act 'gelu'", "sliding-window", "attention_bias"):
        assert word in text


def test_the_tokens_that_transformers_reads_are_compared(checkpoint, tmp_path, monkeypatch):
    import transformers

    real = transformers.AutoTokenizer.from_pretrained

    def other(folder, **kwargs):
        loaded = real(folder, **kwargs)
        return lambda texts, **options: loaded([f" {text}" for text in texts], **options)

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", other)
    with pytest.raises(CheckpointError, match="other tokens from the same tokenizer files"):
        extract(checkpoint, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_that_changes_meanwhile_is_noticed(checkpoint, tmp_path, monkeypatch):
    import qwen3nb.extraction.extract as module

    source = tmp_path / "checkpoint-7"
    shutil.copytree(checkpoint, source)
    real = module.verify

    def meanwhile(*args, **kwargs):
        found = real(*args, **kwargs)
        (source / "config.json").write_text((source / "config.json").read_text() + " ")
        return found

    monkeypatch.setattr(module, "verify", meanwhile)
    with pytest.raises(CheckpointError, match=r"config\.json: changed while it was being read"):
        extract(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(CheckpointError, match="is, or holds, the checkpoint itself"):
        extract(source, tmp_path)


def test_the_script_in_the_directory_tells(encoder_folder, tmp_path):
    def run(folder):
        return subprocess.run(
            [sys.executable, str(folder / "check_encoder.py")],
            capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip

    good = run(encoder_folder)
    assert good.returncode == 0, good.stderr
    assert "bidirectional" in good.stdout
    assert ": the same" in good.stdout
    causal = tmp_path / "causal"
    shutil.copytree(encoder_folder, causal)
    config = json.loads((causal / "config.json").read_text())
    (causal / "config.json").write_text(json.dumps(config | {"is_causal": True}))
    bad = run(causal)
    assert bad.returncode == 1
    assert "CAUSAL" in bad.stdout
    assert "ANOTHER vector" in bad.stdout


def test_encode_of_the_class(encoder_folder):
    model = Qwen3EncoderModel.from_pretrained(encoder_folder).train()
    tokenizer = AutoTokenizer.from_pretrained(encoder_folder)
    texts = [*TEXTS, TEXTS[0]]
    vectors = model.encode(texts, tokenizer, batch_size=2)
    assert not model.training
    assert vectors.shape == (5, 32)
    ours = load_encoder(encoder_folder, cache=False).encode(texts)
    np.testing.assert_allclose(vectors.numpy(), ours, atol=1e-5)
    torch.testing.assert_close(model.encode(TEXTS[1], tokenizer), vectors[1], atol=1e-5, rtol=0)
    assert model.encode([], tokenizer).shape == (0, 32)
    with pytest.raises(ValueError, match=r"texts \[1\] have no token"):
        model.encode(["a", ""], tokenizer)


def test_an_old_transformers_is_refused_by_the_class(encoder_folder, monkeypatch):
    monkeypatch.setattr(encoder.transformers, "__version__", "5.1.0")
    with pytest.raises(RuntimeError, match="would run this encoder causally"):
        Qwen3EncoderModel.from_pretrained(encoder_folder)


def test_the_leak_tells_causal_from_bidirectional(encoder_folder):
    model = AutoModel.from_pretrained(encoder_folder).eval()
    assert causal_leak(model, vocab_size=100) > 1e-4
    model.config.is_causal = True
    assert causal_leak(model, vocab_size=100) == 0


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


def test_the_encoder_class(encoder_folder):
    model = Qwen3EncoderModel.from_pretrained(encoder_folder).eval()
    ids = torch.tensor([[5, 6, 7], [8, 9, 0]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    with torch.inference_mode():
        out = model(ids, mask, output_hidden_states=True)
        tuple_form = model(ids, mask, return_dict=False)
        from_embeds = model(inputs_embeds=model.embed_tokens(ids), attention_mask=mask)
    assert out.last_hidden_state.shape == (2, 3, 32)
    assert out.pooler_output.shape == (2, 32)
    assert len(out.hidden_states) == 3
    torch.testing.assert_close(out.pooler_output.norm(dim=1), torch.ones(2))
    assert torch.equal(tuple_form[1], out.pooler_output)
    torch.testing.assert_close(from_embeds.pooler_output, out.pooler_output)
    model.set_attn_implementation("eager")
    with torch.inference_mode():
        assert model(ids, mask, output_attentions=True).attentions[0].shape == (2, 4, 3, 3)


def test_the_encoder_class_refuses_what_it_is_not():
    with pytest.raises(ValueError, match="is_causal: false"):
        Qwen3EncoderModel(Qwen3EncoderConfig(is_causal=True))
    with pytest.raises(ValueError, match="unknown pooling_mode 'max'"):
        Qwen3EncoderModel(Qwen3EncoderConfig(pooling_mode="max"))


def test_gradients_reach_the_embedding_with_checkpointing(encoder_folder):
    model = Qwen3EncoderModel.from_pretrained(encoder_folder).train()
    model.activation_checkpointing_enable()
    model(torch.tensor([[5, 6, 7]])).pooler_output.sum().backward()
    assert model.embed_tokens.weight.grad.abs().sum() > 0


@pytest.fixture(scope="module")
def seq2seq(checkpoint):
    return Qwen3ForSeq2SeqLM.from_pretrained(checkpoint).eval()


SOURCE = torch.tensor([[5, 6, 7, 8], [9, 10, 0, 0]])
SOURCE_MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
TARGET = torch.tensor([[3, 4, 5], [6, 7, 8]])


@torch.inference_mode()
def test_the_decoder_sees_what_it_may(seq2seq):
    def logits(source=SOURCE, target=TARGET):
        return seq2seq(source, SOURCE_MASK, decoder_input_ids=target).logits

    base = logits()
    later = TARGET.clone()
    later[:, 2] = 11
    torch.testing.assert_close(logits(target=later)[:, :2], base[:, :2])
    other = SOURCE.clone()
    other[0, 3] = 12
    assert (logits(other)[0] - base[0]).abs().max() > 1e-4
    padding = SOURCE.clone()
    padding[1, 3] = 12
    torch.testing.assert_close(logits(padding), base)


@torch.inference_mode()
def test_merged_attention_by_hand(seq2seq):
    """One softmax over own earlier keys (with rotary) and source keys (without)."""
    from transformers.models.qwen3.modeling_qwen3 import apply_rotary_pos_emb

    decoder = seq2seq.model.decoder
    attention = decoder.layers[0].self_attn
    generator = torch.Generator().manual_seed(1)
    own, source = (torch.randn(1, n, 32, generator=generator) for n in (3, 4))
    cos, sin = decoder.rotary_emb(own, torch.arange(3)[None])
    mask = torch.cat([torch.ones(3, 3).tril(), torch.ones(3, 4)], dim=1).bool()
    found, _ = attention(own, (cos, sin), mask[None, None], source)

    def heads(x, norm=None):
        x = x.unflatten(-1, (-1, attention.head_dim))
        return (norm(x) if norm else x).transpose(1, 2)

    query = heads(attention.q_proj(own), attention.q_norm)
    key = heads(attention.k_proj(own), attention.k_norm)
    query, key = apply_rotary_pos_emb(query, key, cos, sin)
    keys = torch.cat([key, heads(attention.k_proj(source), attention.k_norm)], dim=2)
    values = torch.cat([heads(attention.v_proj(own)), heads(attention.v_proj(source))], dim=2)
    groups = query.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(groups, 1), values.repeat_interleave(groups, 1)
    scores = query @ keys.transpose(-1, -2) * attention.head_dim**-0.5
    weights = scores.masked_fill(~mask, float("-inf")).softmax(-1)
    expected = attention.o_proj((weights @ values).transpose(1, 2).flatten(2))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_one_embedding_for_everything(seq2seq):
    shared = seq2seq.model.shared.weight
    assert seq2seq.lm_head.weight is shared
    assert seq2seq.model.encoder.embed_tokens.weight is shared
    assert seq2seq.model.decoder.embed_tokens.weight is shared


def test_labels_are_shifted_and_padding_is_not_learned(seq2seq):
    labels = torch.tensor([[4, 5, -100]])
    assert shift_right(labels, start=9, pad=0).tolist() == [[9, 4, 5]]
    assert shift_right(torch.tensor([[4, -100, -100]]), start=9, pad=0).tolist() == [[9, 4, 0]]
    short = seq2seq(SOURCE[:1], labels=labels[:, :2]).loss
    torch.testing.assert_close(seq2seq(SOURCE[:1], labels=labels).loss, short)
    with pytest.raises(ValueError, match="labels or decoder_input_ids"):
        seq2seq(SOURCE)


def test_the_encoder_of_a_real_training(fixtures):
    """States and pooled vectors that the training's own code computed, both paddings."""
    from safetensors import safe_open

    folder = fixtures / "checkpoints"
    for step in (100, 300, 400):
        model = Qwen3ForSeq2SeqLM.from_pretrained(folder / f"checkpoint-{step}").eval()
        with safe_open(folder / "expected" / f"checkpoint-{step}.safetensors", "pt") as expected:
            for side in ("right", "left"):
                ids = expected.get_tensor(f"{side}.input_ids").long()
                mask = expected.get_tensor(f"{side}.attention_mask")
                with torch.inference_mode():
                    states = model.encode(ids, mask)
                theirs = expected.get_tensor(f"{side}.tokens_last_hidden_state")
                torch.testing.assert_close(states[mask.bool()], theirs, atol=1e-5, rtol=0)
                for how in POOLINGS:
                    # Its own left-padded cls, last and weighted mean are wrong; right is right.
                    pooled = expected.get_tensor(f"right.pooled.{how}")
                    ours = pool(states, mask, how=how, normalize=True)
                    torch.testing.assert_close(ours, pooled, atol=1e-5, rtol=0)


def test_the_names_and_fields_of_a_real_training(fixtures, checkpoint):
    """What the demo writes and what that training writes is one format."""
    real = fixtures / "checkpoints" / "checkpoint-300"
    names = set(load_file(real / "model.safetensors"))
    assert names == set(load_file(checkpoint / "model.safetensors"))
    theirs = json.loads((real / "config.json").read_text())
    ours = json.loads((checkpoint / "config.json").read_text())
    # Left out: fields that training's own switches, and what another transformers wrote.
    other = {"use_cut_cross_entropy", "layer_types", "sliding_window", "transformers_version"}
    assert set(theirs) - other <= set(ours)


@pytest.mark.parametrize("name", ["checkpoint-100", "checkpoint-400", "averaged-best2"])
def test_exports_of_a_real_training(fixtures, tmp_path, name):
    """Stock classes on the export against what that training's own code computed."""
    from safetensors import safe_open
    from sentence_transformers import SentenceTransformer

    source = fixtures / "checkpoints" / name
    if name.startswith("averaged"):
        selection = select_checkpoints(fixtures / "checkpoints", best=2)
        source = average_checkpoints(selection, tmp_path / name)
    file = fixtures / "checkpoints" / "expected" / f"{name}.safetensors"
    with safe_open(file, "pt") as expected:
        for how in POOLINGS:
            done = extract(source, tmp_path / how, pooling=how)
            assert done.max_difference <= 1e-5
            stock = SentenceTransformer(str(done.folder), device="cpu")
            model = AutoModel.from_pretrained(done.folder).eval()
            own = Qwen3EncoderModel.from_pretrained(done.folder).eval()
            right = expected.get_tensor(f"right.pooled.{how}")
            for side in ("right", "left"):
                ids = expected.get_tensor(f"{side}.input_ids").long()
                mask = expected.get_tensor(f"{side}.attention_mask").long()
                with torch.inference_mode():
                    states = model(input_ids=ids, attention_mask=mask).last_hidden_state
                    pooled = own(input_ids=ids, attention_mask=mask).pooler_output
                    batch = {"input_ids": ids, "attention_mask": mask}
                    theirs = stock(dict(batch))["sentence_embedding"]
                close = {"atol": 1e-5, "rtol": 0}
                tokens = expected.get_tensor(f"{side}.tokens_last_hidden_state")
                torch.testing.assert_close(states[mask.bool()], tokens, **close)
                torch.testing.assert_close(pooled, right, **close)
                torch.testing.assert_close(theirs, right, **close)
