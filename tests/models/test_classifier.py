"""A head on an export: transformers' class, the encoder's own states, and what would go wrong."""

import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    AutoTokenizer,
)

from qwen3nb.models.classifier import PADDING, load_classifier
from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel
from qwen3nb.models.types import SpecError
from qwen3nb.report.card import extract

TEXTS = ["sort a list", "x", "open the file and read its lines one by one"]
LABELS = ["red", "green", "blue"]


@pytest.fixture(scope="module")
def with_end(checkpoint, tmp_path_factory):
    """An export in 16 bits whose texts end with the token for padding, padded on the left."""
    folder = tmp_path_factory.mktemp("export") / "end"
    return extract(checkpoint, folder, append_eos=True, pooling="last", dtype="bfloat16").folder


@torch.inference_mode()
def states(model, batch):
    """The last hidden states of the real tokens (T, H), text after text."""
    return model(**batch).last_hidden_state[batch["attention_mask"].bool()]


def own(folder, batch):
    return states(Qwen3EncoderModel.from_pretrained(folder, dtype=torch.float32).eval(), batch)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize(
    ("head", "stock"),
    [
        ("sequence", AutoModelForSequenceClassification),
        ("token", AutoModelForTokenClassification),
    ],
)
def test_the_states_below_a_head_are_those_of_the_encoder(encoder_folder, head, stock, side):
    model, tokenizer = load_classifier(encoder_folder, LABELS, head=head)
    tokenizer.padding_side = side
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert torch.equal(states(model.base_model, batch), own(encoder_folder, batch))
    # transformers alone loads the same class, also in both directions.
    plain = stock.from_pretrained(encoder_folder, dtype=torch.float32).eval()
    assert type(model) is type(plain)
    assert torch.equal(states(plain.base_model, batch), own(encoder_folder, batch))
    assert model.config.id2label == dict(enumerate(LABELS))


def test_padding_changes_no_state(encoder_folder):
    model, tokenizer = load_classifier(encoder_folder, LABELS)
    alone = [tokenizer([text], return_tensors="pt") for text in TEXTS]
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    expected = torch.cat([states(model.base_model, each) for each in alone])
    assert torch.allclose(states(model.base_model, batch), expected, atol=1e-5)


def test_a_later_word_changes_the_first_state(encoder_folder):
    model, tokenizer = load_classifier(encoder_folder, LABELS, head="token")
    batches = [tokenizer(text, return_tensors="pt") for text in ("sort a list", "sort a file")]
    first, other = (states(model.base_model, batch)[0] for batch in batches)
    assert not torch.equal(first, other)


def test_the_head_reads_the_end_token_although_padding_is_the_same(with_end):
    stock = AutoTokenizer.from_pretrained(with_end)
    assert stock("x")["input_ids"][-1] == stock.pad_token_id  # what the head would take for padding
    model, tokenizer = load_classifier(with_end, LABELS)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    assert tokenizer.pad_token == PADDING
    assert model.dtype == torch.float32
    with torch.inference_mode():
        hidden = model.base_model(**batch).last_hidden_state
        assert torch.equal(model(**batch).logits, model.score(hidden)[:, -1])
    ids = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, stock.pad_token_id)
    assert torch.equal(states(model.base_model, batch), own(with_end, {**batch, "input_ids": ids}))


def test_what_is_saved_loads_again_without_us(with_end, tmp_path):
    model, tokenizer = load_classifier(with_end, LABELS)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    batch = AutoTokenizer.from_pretrained(tmp_path)(TEXTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        assert torch.equal(again(**batch).logits, model(**batch).logits)
    assert again.config.id2label == dict(enumerate(LABELS))


def test_a_release_that_runs_it_causally_is_refused(encoder_folder, monkeypatch):
    monkeypatch.setattr("qwen3nb.models.modeling.qwen3_encoder.causal_leak", lambda *_, **__: 0.0)
    with pytest.raises(SpecError, match="runs the model causally"):
        load_classifier(encoder_folder, LABELS)


def test_what_is_no_export_is_refused(checkpoint):
    with pytest.raises(
        SpecError, match=r"kind 'seq2seq'; expected a folder that `qwen3nb extract`"
    ):
        load_classifier(checkpoint, LABELS)
    with pytest.raises(SpecError, match="kind 'bm25'"):
        load_classifier("bm25", LABELS)


@pytest.mark.parametrize("labels", [[], ["a"], ["a", "a"]])
def test_labels_that_cannot_be_told_apart_are_refused(encoder_folder, labels):
    with pytest.raises(ValueError, match="at least two labels, each once"):
        load_classifier(encoder_folder, labels)


def test_another_head_is_refused(encoder_folder):
    with pytest.raises(ValueError, match=r"head .*sequence"):
        load_classifier(encoder_folder, LABELS, head="tokens")
