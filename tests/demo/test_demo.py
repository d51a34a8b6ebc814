import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from qwen3nb.checkpoints.checkpoint import list_checkpoints, metric_of
from qwen3nb.checkpoints.folder import open_checkpoint
from qwen3nb.demo.train_ul2 import hide_spans, hide_suffix

SENTINELS = list(range(1000, 1100))


def put_back(source, target):
    """Restore the original from a source and the tokens its sentinels hide."""
    hidden, current = {}, None
    for token in target:
        if token >= 1000:
            current = hidden.setdefault(token, [])
        else:
            current.append(token)
    return [t for token in source for t in (hidden[token] if token >= 1000 else [token])]


@given(
    length=st.integers(4, 80),
    rate=st.sampled_from([0.15, 0.5]),
    span=st.sampled_from([1, 3, 8]),
    seed=st.integers(0, 999),
)
@settings(deadline=None, max_examples=150)
def test_hidden_spans_can_be_put_back(length, rate, span, seed):
    ids = list(range(length))
    rng = np.random.default_rng(seed)
    source, target = hide_spans(ids, rate=rate, span=span, sentinels=SENTINELS, generator=rng)
    assert put_back(source, target) == ids
    hidden = sum(token < 1000 for token in target)
    assert hidden == min(max(1, round(length * rate)), length - 1)
    assert source[0] == 0
    used = [token for token in source if token >= 1000]
    assert used == SENTINELS[: len(used)] == [token for token in target if token >= 1000]
    source, target = hide_suffix(ids, sentinel=1000, generator=rng)
    assert put_back(source, target) == ids
    assert min(len(source), len(target)) - 1 >= length // 4


@pytest.mark.integration
def test_the_training_writes_real_checkpoints(trained):
    checkpoints = list_checkpoints(trained)
    assert [path.name for path in checkpoints] == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    losses = [metric_of(path) for path in checkpoints]
    assert all(np.isfinite(losses))
    digests = {open_checkpoint(path).weights.digest for path in (*checkpoints, trained / "init")}
    assert len(digests) == 4
    for path in (*checkpoints, trained / "init"):
        assert (path / "tokenizer.json").read_bytes() == (
            trained / "tokenizer" / "tokenizer.json"
        ).read_bytes()
        assert open_checkpoint(path).config["model_type"] == "qwen3_encdec"
    record = json.loads((trained / "training.json").read_text())
    assert record["settings"]["steps"] == 6
    assert record["tokens_seen"] > 0


@pytest.mark.integration
def test_the_training_is_seeded(trained, tmp_path):
    from qwen3nb.demo.train_ul2 import Ul2Settings, train_seq2seq

    settings = Ul2Settings(**json.loads((trained / "training.json").read_text())["settings"])
    again = train_seq2seq(tmp_path / "again", settings)
    for name in ("init", "checkpoint-6"):
        assert (
            open_checkpoint(again / name).weights.digest
            == open_checkpoint(trained / name).weights.digest
        )


@pytest.mark.integration
def test_the_tokenizer_is_the_same_however_it_is_loaded(trained):
    from tokenizers import Tokenizer

    raw = Tokenizer.from_file(str(trained / "tokenizer" / "tokenizer.json"))
    decoder = trained.parent / "decoder"
    auto = AutoTokenizer.from_pretrained(decoder)
    for text in ("Return the mean.", "naïve  café\n\n😀 x_1", "[R] a <b>"):
        assert auto(text)["input_ids"] == raw.encode(text).ids
    assert len(auto) <= open_checkpoint(decoder).config["vocab_size"]
    assert auto.convert_tokens_to_ids("<extra_id_99>") == raw.token_to_id("<extra_id_99>")


@pytest.mark.integration
def test_the_decoder_is_a_language_model_that_can_be_pooled(trained):
    from qwen3nb.models.load import load_encoder

    encoder = load_encoder(trained.parent / "decoder", pooling="mean", cache=False)
    assert encoder.settings["causal"] is True
    assert np.isfinite(encoder.encode(["a text", "another"])).all()


def test_nothing_that_is_measured_is_trained_on():
    from qwen3nb.datasets.pydocs.mteb_tasks import author_sts, pydocs_sample
    from qwen3nb.demo.train_ul2 import training_texts

    train, held_out = training_texts()
    measured = {text for each in pydocs_sample().entries for text in (each.summary, each.text)}
    measured |= {text for first, second, _ in author_sts() for text in (first, second)}
    assert not measured & {*train, *held_out}
    assert len(train) > 3000
