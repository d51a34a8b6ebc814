"""Static models give the vectors of the libraries that define them, or are refused."""

import importlib.util
import json
import shutil

import numpy as np
import pytest
import torch
from helpers import TEXTS
from helpers.archetypes import edit
from helpers.static_models import ODD, WIDTH, WORDS, write_static_sentence_model
from helpers.tolerances import assert_close
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_encoder

ROWS = len(WORDS) + 1


def sentence_models():
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize

    torch.manual_seed(0)
    return {
        "alone": ((), {}),
        "normalised": ((Normalize(),), {}),
        "with a dense layer": ((Dense(WIDTH, 5), Normalize()), {}),
        "three tokens": ((Normalize(),), {"truncation": 3}),
        "prompts": ((), {"prompts": {"query": "fox "}, "default_prompt_name": "query"}),
    }


@pytest.mark.parametrize("case", sentence_models())
def test_vectors_equal_those_of_sentence_transformers(tmp_path, case):
    from sentence_transformers import SentenceTransformer

    modules, options = sentence_models()[case]
    folder = write_static_sentence_model(tmp_path / "static", *modules, **options)
    assert not (folder / "config.json").exists()
    theirs = SentenceTransformer(str(folder), device="cpu")
    encoder = load_encoder(folder, cache=False)
    assert_close(encoder.encode(list(ODD)), theirs.encode(list(ODD)))
    assert encoder.max_length == options.get("truncation")
    assert encoder.dimension == theirs.get_embedding_dimension()
    blank = theirs.encode(["", " ", "a"])[:2]
    assert_close(encoder.encode(["", " "]), blank)
    assert load_encoder(folder, cache=False, dtype="bfloat16").encode("fox").dtype == np.float32
    encoder = load_encoder(folder, cache=False, max_length=2)
    long, short = encoder.encode(["the largest element", "the largest"])
    np.testing.assert_array_equal(long, short)
    assert encoder.stats.cut >= 1


def test_a_static_table_may_lie_in_a_folder_of_its_own(tmp_path):
    """As older releases of sentence-transformers saved it."""
    folder = write_static_sentence_model(tmp_path / "static")
    expected = load_encoder(folder, cache=False).encode(list(ODD))
    own = folder / "0_StaticEmbedding"
    own.mkdir()
    for name in ("model.safetensors", "tokenizer.json"):
        (folder / name).rename(own / name)
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([{**modules[0], "path": own.name}]))
    np.testing.assert_array_equal(load_encoder(folder, cache=False).encode(list(ODD)), expected)


@pytest.fixture
def folder(tmp_path):
    return write_static_sentence_model(tmp_path / "model")


@pytest.mark.skipif(
    importlib.util.find_spec("wordllama") is None, reason="pip install 'qwen3nb[demo]' brings it"
)
def test_wordllama_is_the_mean_of_its_table(tmp_path):
    source = find_source("wordllama")
    assert (source.kind.name, source.label) == ("static", "wordllama")
    weights = source.folder.path / "weights/l2_supercat_256.safetensors"
    words = source.folder.path / "tokenizers" / "l2_supercat_tokenizer_config.json"
    table = load_file(weights)["embedding.weight"]
    texts = [*TEXTS, "fox " * 700, "日本語 😀"]
    read = Tokenizer.from_file(str(words)).encode_batch(texts, add_special_tokens=False)
    expected = np.stack([table[each.ids].astype(np.float32).mean(axis=0) for each in read])
    encoder = load_encoder("wordllama", cache=False)
    assert_close(encoder.encode(texts), expected)
    assert (encoder.dimension, encoder.similarity_name, encoder.max_length) == (256, "cosine", None)
    assert not encoder.encode("").any()
    for each in (words, weights):  # as on the hub
        shutil.copyfile(each, tmp_path / each.name)
    again = load_encoder(tmp_path, cache=False)
    np.testing.assert_array_equal(again.encode(texts), encoder.encode(texts))


def tensors(**changes):
    """Change tensors by name."""

    def damage(folder):
        held = load_file(folder / "model.safetensors") | changes
        save_file(held, folder / "model.safetensors")

    return damage


def not_finite(folder):
    held = load_file(folder / "model.safetensors")
    next(iter(held.values()))[1, 2] = np.nan
    save_file(held, folder / "model.safetensors")


def one_token_more(folder):
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    edit(folder, "tokenizer.json", model=model | {"vocab": model["vocab"] | {"extra": ROWS}})


MALFORMED = {
    "not finite": (not_finite, "contains NaN or infinity"),
    "one token more": (one_token_more, f"{ROWS} rows"),
    "whole numbers": (
        tensors(**{"embedding.weight": np.zeros((ROWS, WIDTH), np.int8)}),
        "type I8; expected one of",
    ),
    "a weight per token": (tensors(weights=np.ones(ROWS, np.float32)), "expected a table alone"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_table_is_refused(folder, name):
    damage, refusal = MALFORMED[name]
    damage(folder)
    with pytest.raises(ValueError, match=refusal) as caught:
        load_encoder(folder, cache=False).encode("fox")
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
