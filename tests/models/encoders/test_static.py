"""Static models give the vectors of the libraries that define them."""

import importlib.util
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import TEXTS
from helpers.archetypes import edit
from helpers.static_models import ODD, WIDTH, WORDS, write_model2vec, write_static_sentence_model
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer

from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_encoder
from qwen3nb.models.types import SpecError

ROWS = len(WORDS) + 1
LAYOUTS = {
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


@pytest.mark.parametrize("case", LAYOUTS)
def test_vectors_equal_those_of_model2vec(tmp_path, case):
    model2vec = pytest.importorskip("model2vec", reason="pip install 'qwen3nb[test]'")
    folder = write_model2vec(tmp_path / "potion", **LAYOUTS[case])
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


def config(**fields):
    return lambda folder: edit(folder, "config.json", **fields)


def tensors(**changes):
    """Change tensors by name; None removes one."""

    def damage(folder):
        held = load_file(folder / "model.safetensors") | changes
        held = {name: array for name, array in held.items() if array is not None}
        save_file(held, folder / "model.safetensors")

    return damage


def not_finite(folder):
    held = load_file(folder / "model.safetensors")
    next(iter(held.values()))[1, 2] = np.nan
    save_file(held, folder / "model.safetensors")


def one_token_more(folder):
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    edit(folder, "tokenizer.json", model=model | {"vocab": model["vocab"] | {"extra": ROWS}})


def without(name):
    return lambda folder: (folder / name).unlink()


zeros = np.zeros
BOTH = {
    "not finite": (not_finite, "contains NaN or infinity"),
    "one token more": (one_token_more, f"{ROWS} rows"),
    "no weights": (without("model.safetensors"), "no .*weights|no model"),
    "no tokenizer": (without("tokenizer.json"), "no tokenizer|missing"),
}
MODEL2VEC = {
    **BOTH,
    "normalize": (config(normalize="yes"), "normalize is 'yes'; it should be a valid bool"),
    "no length": (config(max_length=0), "max_length is 0; it should be greater"),
    "no table": (tensors(embeddings=None, other=zeros(3, np.float32)), "has other; expected the"),
    "another tensor": (tensors(bias=zeros(3, np.float32)), "has bias, embeddings; expected"),
    "no matrix": (tensors(embeddings=zeros(ROWS, np.float32)), "not a table with a row per token"),
    "one row more": (tensors(embeddings=zeros((ROWS + 1, 3), np.float32)), f"has {ROWS} tokens"),
    "a row that is not there": (tensors(mapping=np.full(ROWS, ROWS)), f"index {ROWS} is out of"),
    "a mapping below 0": (tensors(mapping=np.full(ROWS, -1)), "mapping goes below 0"),
    "a mapping of fractions": (tensors(mapping=zeros(ROWS, np.float32)), "IndexError"),
    "a short mapping": (tensors(mapping=zeros(3, np.int64)), "only 3 rows"),
    "too many weights": (tensors(weights=zeros(ROWS + 1, np.float32)), "could not be broadcast"),
}
WHOLE = tensors(**{"embedding.weight": zeros((ROWS, WIDTH), np.int8)})
SENTENCE = {**BOTH, "whole numbers": (WHOLE, "type I8; expected one of")}


@pytest.mark.parametrize(
    ("kind", "name"),
    [*(("model2vec", name) for name in MODEL2VEC), *(("sentence", name) for name in SENTENCE)],
)
def test_a_malformed_static_model_is_refused(tmp_path, kind, name):
    folder = tmp_path / "model"
    if kind == "model2vec":
        write_model2vec(folder, normalize=True)
    else:
        write_static_sentence_model(folder)
    damage, refusal = (MODEL2VEC if kind == "model2vec" else SENTENCE)[name]
    damage(folder)
    with pytest.raises(ValueError, match=refusal) as caught:
        load_encoder(folder, cache=False).encode("fox")
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
