import json
import shutil

import numpy as np
import pytest
import torch
from conftest import TEXTS
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

from qwen3nb.extraction.checkpoint import CheckpointError
from qwen3nb.extraction.extract import extract
from qwen3nb.models.config import Qwen3EncoderConfig
from qwen3nb.models.config import encoder_config as build_config
from qwen3nb.models.encoder import Qwen3EncoderModel, causal_leak
from qwen3nb.models.encoders import load_encoder
from qwen3nb.models.pooling import POOLINGS, pool
from qwen3nb.models.seq2seq import Qwen3ForSeq2SeqLM, encoder_name, shift_right


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
    for name in ("tokenizer.json", "tokenizer_config.json"):
        assert (encoder_folder / name).read_bytes() == (checkpoint / name).read_bytes()
    assert "transformers 5.2" in (encoder_folder / "README.md").read_text()


def test_sixteen_bits_are_written_and_verified(checkpoint, tmp_path):
    done = extract(checkpoint, tmp_path / "half", dtype="bfloat16")
    assert all(
        t.dtype == torch.bfloat16 for t in load_file(done.folder / "model.safetensors").values()
    )
    assert done.max_difference > 0


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


BREAK = {
    "missing": (drop("model.encoder.norm.weight"), "norm.weight: missing"),
    "embedding": (drop("model.shared.weight"), "embed_tokens.weight: missing"),
    "shape": (reshape, r"norm\.weight: shape \(7,\), config says \(32,\)"),
    "nan": (poison, "up_proj.weight holds NaN"),
    "layers": (more_layers, r"layers\.2\..*: missing"),
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
    (output / "earlier").write_text("good")
    with pytest.raises(CheckpointError, match=cause):
        extract(broken(change), output)
    assert [path.name for path in output.parent.iterdir()] == ["encoder"]
    assert (output / "earlier").read_text() == "good"


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
