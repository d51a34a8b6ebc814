"""Encoders on a transformer: tokens, causality, encoders of encoder-decoders."""

import numpy as np
import pytest
from helpers import TEXTS
from helpers.rerankers import write_reranker

from qwen3nb.evaluation.run import Work
from qwen3nb.models.load import load_encoder


def test_truncated_texts_are_counted_also_if_their_vectors_were_stored(encoder_folder):
    texts = ["short", "a text of its own, of many words " * 20]
    first, second = (load_encoder(encoder_folder, max_length=32) for _ in range(2))
    before, after = Work(first), Work(second)
    first.encode(texts)
    second.encode(texts)
    assert second.stats.cached == 2
    assert before.counts() == after.counts() == {"texts cut to the maximum length": 1}


END = "<|endoftext|>"
WITH_SPECIAL = [f"first {END} then", END, f"{END}{END}", "<|im_start|>user", "a <extra_id_7> b"]


def test_special_tokens_are_tokens_and_texts_with_them_are_counted(encoder_folder):
    encoder = load_encoder(encoder_folder, show_progress=False, prompts={"query": f"{END} "})
    assert encoder._tokenise([END])[0] == [encoder.tokenizer.eos_token_id]
    encoder.encode(list(TEXTS), role="query")
    assert encoder.stats.special == 0  # a prompt is not a text
    work = Work(encoder)
    encoder.encode([*WITH_SPECIAL, *TEXTS, "<|endoftext", END, ""])
    encoder.encode([END])  # from the cache
    assert work.counts()["texts with a special token of the tokenizer"] == len(WITH_SPECIAL) + 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "int4"}, "unknown dtype 'int4'; choose one of: float32"),
        ({"device": "cuda:99"}, "device 'cuda:99' is not usable here"),
        ({"pooling": "max"}, "unknown pooling 'max'"),
        ({"bidirectional": True}, "bidirectional is for causal language models"),
    ],
)
def test_a_mistyped_option_lists_its_choices(encoder_folder, options, message):
    with pytest.raises(ValueError, match=message):
        load_encoder(encoder_folder, **options)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    """A tiny Qwen3 language model with its tokenizer."""
    return write_reranker(tmp_path_factory.mktemp("models") / "lm")


def test_a_language_model_is_causal_by_default(language_model):
    options = {"pooling": "cls", "cache": False}
    causal = load_encoder(language_model, **options)
    both = load_encoder(language_model, bidirectional=True, **options)
    assert (causal.settings["causal"], both.settings["causal"]) == (True, False)
    assert causal.identity != both.identity
    # The first token of a causal model sees nothing of what follows.
    one, other = "Return the largest element", "Return the smallest thing"
    assert np.abs(causal.encode(one) - causal.encode(other)).max() < 1e-6
    assert np.abs(both.encode(one) - both.encode(other)).max() > 1e-4
