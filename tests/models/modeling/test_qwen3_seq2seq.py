import json

import pytest
import torch
from helpers.tolerances import assert_close
from safetensors.torch import load_file

from qwen3nb.models.modeling.pooling import POOLINGS, pool
from qwen3nb.models.modeling.qwen3_seq2seq import Qwen3ForSeq2SeqLM, shift_right


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
    output, _ = attention(own, (cos, sin), mask[None, None], source)

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
    assert_close(output, expected)


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
                assert_close(states[mask.bool()], theirs)
                for how in POOLINGS:
                    # Its own left-padded cls, last and weighted mean are wrong; right is right.
                    pooled = expected.get_tensor(f"right.pooled.{how}")
                    ours = pool(states, mask, pooling=how, normalize=True)
                    assert_close(ours, pooled)


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
