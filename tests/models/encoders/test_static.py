"""Static models give the vectors of the libraries that define them."""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import TEXTS
from helpers.static_models import ODD, WIDTH, write_model2vec, write_static_sentence_model
from tokenizers import Tokenizer

from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_encoder
from qwen3nb.models.types import SpecError

MODEL2VEC = {
    "normalised": {"normalize": True},
    "as they are": {"normalize": False},
    "nothing said": {},
    "Unigram": {"kind": "unigram", "normalize": True},
    "shared rows with weights": {"clusters": 5, "normalize": True},
    "whole numbers": {"dtype": np.int8, "normalize": True},
    "16 bits": {"dtype": np.float16},
    "64 bits": {"dtype": np.float64},
    "four tokens": {"max_length": 4, "normalize": True},
    "no limit": {"max_length": None},
    "without modules.json": {"modules": False},
}


@pytest.mark.parametrize("case", MODEL2VEC)
def test_vectors_equal_those_of_model2vec(tmp_path, case):
    model2vec = pytest.importorskip("model2vec", reason="pip install 'qwen3nb[test]'")
    folder = write_model2vec(tmp_path / "potion", **MODEL2VEC[case])
    theirs = model2vec.StaticModel.from_pretrained(folder).encode(list(ODD))
    encoder = load_encoder(folder, cache=False)
    assert find_source(str(folder)).kind.name == "static"
    tolerance = 2e-3 if case == "16 bits" else 1e-5
    np.testing.assert_allclose(encoder.encode(list(ODD)), theirs, atol=tolerance)
    np.testing.assert_allclose(encoder.encode(list(ODD[::-1])), theirs[::-1], atol=tolerance)
    assert encoder.similarity_name == "cosine"
    assert encoder.stats.empty == 2 * (~theirs.any(axis=1)).sum() >= 8  # blank, or all unknown


def test_a_length_or_normalisation_that_is_given_applies(tmp_path):
    model2vec = pytest.importorskip("model2vec", reason="pip install 'qwen3nb[test]'")
    folder = write_model2vec(tmp_path / "potion", normalize=True)
    encoder = load_encoder(folder, cache=False, max_length=3, normalize=False)
    theirs = model2vec.StaticModel.from_pretrained(folder, normalize=False)
    expected = theirs.encode(list(ODD), max_length=3)
    np.testing.assert_allclose(encoder.encode(list(ODD)), expected, atol=1e-5)
    assert (encoder.max_length, encoder.similarity_name) == (3, "dot")
    encoder = load_encoder(folder, cache=False)
    encoder.encode(["fox " * 700, "a" * 5_000, "fox", *TEXTS])
    assert (encoder.max_length, encoder.stats.cut) == (512, 2)


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
    np.testing.assert_allclose(encoder.encode(list(ODD)), theirs.encode(list(ODD)), atol=1e-6)
    assert encoder.max_length == options.get("truncation")
    assert encoder.dimension == theirs.get_embedding_dimension()
    blank = theirs.encode(["", " ", "a"])[:2]
    np.testing.assert_allclose(encoder.encode(["", " "]), blank, atol=1e-6)
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


@pytest.fixture(params=["model2vec", "sentence-transformers"])
def folder(request, tmp_path):
    if request.param == "model2vec":
        return write_model2vec(tmp_path / "model", normalize=True)
    return write_static_sentence_model(tmp_path / "model")


def test_vectors_are_kept_under_the_identity_of_their_content(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))
    first = load_encoder(folder)
    vectors = first.encode(list(ODD))
    again = load_encoder(shutil.copytree(folder, tmp_path / "copy"))
    np.testing.assert_array_equal(again.encode(list(ODD)), vectors)
    assert again.identity == first.identity
    assert (again.stats.encoded, again.stats.empty) == (0, first.stats.empty)
    others = [load_encoder(folder, cache=False, max_length=5).identity]
    for name, change in (
        ("model.safetensors", lambda data: data[:-1] + b"\x3e"),
        ("tokenizer.json", lambda data: data.replace(b'"fox"', b'"fix"', 1)),
    ):
        file = Path(shutil.copytree(folder, tmp_path / name)) / name
        file.write_bytes(change(file.read_bytes()))
        others.append(load_encoder(file.parent, cache=False).identity)
    assert len({first.identity, *others}) == 4


@pytest.mark.parametrize(
    "options",
    [{"pooling": "last"}, {"prefix": "[R]"}, {"append_eos": True}, {"bidirectional": True}],
)
def test_options_of_transformers_are_refused(folder, options):
    with pytest.raises(SpecError, match="leave pooling|static model|for Qwen3|for causal"):
        load_encoder(folder, cache=False, **options)


@pytest.mark.skipif(
    importlib.util.find_spec("wordllama") is None, reason="pip install 'qwen3nb[demo]' brings it"
)
def test_wordllama_is_the_mean_of_its_table(tmp_path):
    from safetensors.numpy import load_file

    source = find_source("wordllama")
    assert (source.kind.name, source.label) == ("static", "wordllama")
    weights = source.folder.path / "weights/l2_supercat_256.safetensors"
    words = source.folder.path / "tokenizers" / "l2_supercat_tokenizer_config.json"
    table = load_file(weights)["embedding.weight"]
    texts = [*TEXTS, "fox " * 700, "日本語 😀"]
    read = Tokenizer.from_file(str(words)).encode_batch(texts, add_special_tokens=False)
    expected = np.stack([table[each.ids].astype(np.float32).mean(axis=0) for each in read])
    encoder = load_encoder("wordllama", cache=False)
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-6)
    assert (encoder.dimension, encoder.similarity_name, encoder.max_length) == (256, "cosine", None)
    assert not encoder.encode("").any()
    for each in (words, weights):  # as on the hub
        shutil.copyfile(each, tmp_path / each.name)
    again = load_encoder(tmp_path, cache=False)
    np.testing.assert_array_equal(again.encode(texts), encoder.encode(texts))
