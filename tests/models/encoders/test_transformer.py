"""Encoders on a transformer: tokens, causality, encoders of encoder-decoders."""

import shutil

import numpy as np
import pytest
from helpers import TEXTS

from qwen3nb.evaluation.run import Work
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_encoder
from qwen3nb.models.types import SpecError
from qwen3nb.report.card.extract import extract


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    return load_encoder(encoder_folder, cache=False, show_progress=False)


def test_empty_and_truncated_texts_are_counted(encoder_folder):
    encoder = load_encoder(encoder_folder, cache=False, max_length=8)
    vectors = encoder.encode(["", "a", "word " * 50])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), [0, 1, 1], atol=1e-5)
    assert (encoder.stats.empty, encoder.stats.cut) == (1, 1)


def test_long_texts_from_the_cache_are_said_to_be_unchecked(encoder_folder):
    texts = ["short", "a text of its own, of many words " * 20]
    first, second = (load_encoder(encoder_folder, max_length=32) for _ in range(2))
    before, after = Work(first), Work(second)
    first.encode(texts)
    second.encode(texts)
    assert before.counts() == {"texts cut to the maximum length": 1}
    assert after.counts() == {"long texts from the cache, not checked for cuts": 1}


END = "<|endoftext|>"
WITH_SPECIAL = [f"first {END} then", END, f"{END}{END}", "<|im_start|>user", "a <extra_id_7> b"]


@pytest.mark.parametrize(
    "options",
    [
        {"pooling": "mean"},
        {"pooling": "cls"},
        {"pooling": "last", "append_eos": True},
        {"pooling": "mean", "prefix": "[R] "},
    ],
)
def test_special_tokens_inside_a_text_are_what_sentence_transformers_reads(
    checkpoint, tmp_path, options
):
    from sentence_transformers import SentenceTransformer

    folder = extract(checkpoint, tmp_path / "encoder", **options).folder
    encoder = load_encoder(folder, cache=False)
    expected = SentenceTransformer(str(folder), device="cpu").encode(WITH_SPECIAL)
    np.testing.assert_allclose(encoder.encode(WITH_SPECIAL), expected, atol=1e-6)


def test_special_tokens_are_tokens_and_texts_with_them_are_counted(encoder_folder):
    encoder = load_encoder(encoder_folder, show_progress=False)
    assert encoder._tokenise([END])[0] == [encoder._tokenizer.eos_token_id]
    work = Work(encoder)
    encoder.encode([*WITH_SPECIAL, *TEXTS, "<|endoftext", END, ""])
    encoder.encode([END])  # from the cache
    assert work.counts()["texts with a special token of the tokenizer"] == len(WITH_SPECIAL) + 2


def test_prompts_are_no_texts_with_special_tokens(encoder_folder):
    encoder = load_encoder(encoder_folder, cache=False, prompts={"query": f"{END} "})
    encoder.encode(list(TEXTS), role="query")
    assert encoder.stats.special == 0


def test_a_mistyped_option_lists_its_choices(encoder_folder):
    with pytest.raises(ValueError, match="unknown dtype 'int8'; choose one of: float32"):
        load_encoder(encoder_folder, dtype="int8")
    with pytest.raises(ValueError, match="device 'cuda:99' is not usable here"):
        load_encoder(encoder_folder, device="cuda:99")
    with pytest.raises(ValueError, match="unknown pooling 'max'"):
        load_encoder(encoder_folder, pooling="max")
    with pytest.raises(SpecError, match="bm25 has no vectors"):
        load_encoder("bm25")


@pytest.fixture(scope="module")
def language_model(tokenizer_folder, tmp_path_factory):
    """A tiny Qwen3 language model with its tokenizer."""
    from transformers import Qwen3Config, Qwen3ForCausalLM, set_seed

    set_seed(0)
    config = Qwen3Config(
        vocab_size=448,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        initializer_range=0.3,
    )
    folder = tmp_path_factory.mktemp("models") / "lm"
    Qwen3ForCausalLM(config).save_pretrained(folder)
    for file in tokenizer_folder.iterdir():
        shutil.copyfile(file, folder / file.name)
    return folder


def test_a_language_model_is_causal_by_default(language_model, encoder_folder):
    options = {"pooling": "cls", "cache": False}
    causal = load_encoder(language_model, **options)
    both = load_encoder(language_model, bidirectional=True, **options)
    assert (causal.settings["causal"], both.settings["causal"]) == (True, False)
    assert causal.identity != both.identity
    # The first token of a causal model sees nothing of what follows.
    one, other = "Return the largest element", "Return the smallest thing"
    assert np.abs(causal.encode(one) - causal.encode(other)).max() < 1e-6
    assert np.abs(both.encode(one) - both.encode(other)).max() > 1e-4
    with pytest.raises(SpecError, match="bidirectional is for causal language models"):
        load_encoder(encoder_folder, bidirectional=True)


def test_a_model_with_missing_weights_is_refused(language_model, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(language_model, tmp_path / "holes")
    tensors = load_file(folder / "model.safetensors")
    wrapped = {f"module.{name}": tensor for name, tensor in tensors.items()}
    save_file(wrapped, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SpecError, match=r"embed_tokens\.weight: missing.*wrapper"):
        load_encoder(folder, pooling="mean", cache=False)


@pytest.mark.parametrize("kind", ["t5", "t5gemma2"])
def test_encoders_of_t5_models(kind, tokenizer_folder, tmp_path):
    import torch
    from transformers import AutoModel, T5Config, T5Gemma2Config, T5Gemma2Model, T5Model

    small = {
        "vocab_size": 448,
        "hidden_size": 32,
        "intermediate_size": 64,
        "head_dim": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "sliding_window": 16,
        "query_pre_attn_scalar": 8,
        "max_position_embeddings": 128,
    }
    eyes = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
    }
    if kind == "t5":
        model = T5Model(
            T5Config(vocab_size=448, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4)
        )
    else:
        seeing = {"text_config": small, "vision_config": eyes, "mm_tokens_per_image": 4}
        model = T5Gemma2Model(T5Gemma2Config(encoder=seeing, decoder=dict(small)))
    model.save_pretrained(tmp_path / kind)
    for file in tokenizer_folder.iterdir():
        shutil.copyfile(file, tmp_path / kind / file.name)
    assert find_source(str(tmp_path / kind)).kind.name == "t5"
    encoder = load_encoder(tmp_path / kind, pooling="mean", cache=False)
    assert encoder.dimension == 32
    vectors = encoder.encode([*TEXTS, "a"])
    stock = AutoModel.from_pretrained(tmp_path / kind).eval().get_encoder()
    for text, vector in zip([*TEXTS, "a"], vectors, strict=True):
        ids = torch.tensor([encoder._tokenise([text])[0]])
        with torch.inference_mode():
            states = stock(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        mean = torch.nn.functional.normalize(states[0].mean(0), dim=0)
        np.testing.assert_allclose(vector, mean.numpy(), atol=1e-5)
