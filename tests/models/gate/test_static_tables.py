"""A static model that is not what it says it is, is refused by name and in one line."""

import json

import numpy as np
import pytest
from helpers.archetypes import edit
from helpers.static_models import WIDTH, WORDS, write_model2vec, write_static_sentence_model
from safetensors.numpy import load_file, save_file
from sentence_transformers.sentence_transformer.modules import Dense, Normalize

from qwen3nb.models.load import load_encoder

ROWS = len(WORDS) + 1


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


def garbage(folder):
    (folder / "tokenizer.json").write_text("{garbage")


zeros = np.zeros
BOTH = {
    "not finite": (not_finite, "contains NaN or infinity"),
    "one token more": (one_token_more, f"{ROWS} rows"),
    "no weights": (without("model.safetensors"), "no .*weights|no model"),
    "no tokenizer": (without("tokenizer.json"), "no tokenizer|missing"),
    "no JSON": (garbage, "key must be a string"),
    "another tensor": (tensors(bias=zeros(3, np.float32)), "bias: unexpected"),
}
MODEL2VEC = {
    **BOTH,
    "normalize": (config(normalize="yes"), "normalize is 'yes'; it should be a valid bool"),
    "no length": (config(max_length=0), "max_length is 0; it should be greater"),
    "no table": (tensors(embeddings=None, other=zeros(3, np.float32)), "has other; expected the"),
    "no matrix": (tensors(embeddings=zeros(ROWS, np.float32)), "expected a row per token"),
    "whole numbers": (tensors(embeddings=zeros((ROWS, 3), np.int64)), "of type I64; expected one"),
    "one row more": (tensors(embeddings=zeros((ROWS + 1, 3), np.float32)), f"has {ROWS} tokens"),
    "a row that is not there": (tensors(mapping=np.full(ROWS, ROWS)), f"from {ROWS} to {ROWS}, "),
    "a mapping below 0": (tensors(mapping=np.full(ROWS, -1)), "mapping goes from -1"),
    "a mapping of fractions": (tensors(mapping=zeros(ROWS, np.float32)), "mapping: of type F32"),
    "a short mapping": (tensors(mapping=zeros(3, np.int64)), "only 3 rows"),
    "too many weights": (tensors(weights=zeros(ROWS + 1, np.float32)), f"expected .{ROWS}., a num"),
    "infinite weights": (
        tensors(weights=np.full(ROWS, np.inf, np.float32)),
        "weights contains NaN",
    ),
}
SENTENCE = {
    **BOTH,
    "whole numbers": (
        tensors(**{"embedding.weight": zeros((ROWS, WIDTH), np.int8)}),
        "type I8; expected one of",
    ),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [*(("model2vec", name) for name in MODEL2VEC), *(("sentence", name) for name in SENTENCE)],
)
def test_a_malformed_static_model_is_refused(tmp_path, kind, name):
    folder = tmp_path / "model"
    if kind == "model2vec":
        write_model2vec(folder, normalize=True)
    else:
        write_static_sentence_model(folder, Normalize())
    load_encoder(folder, cache=False)
    damage, refusal = (MODEL2VEC if kind == "model2vec" else SENTENCE)[name]
    damage(folder)
    with pytest.raises(ValueError, match=refusal) as caught:
        load_encoder(folder, cache=False).encode("fox")
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_module_for_vectors_of_another_width_is_refused(tmp_path):
    folder = write_static_sentence_model(tmp_path / "model", Dense(WIDTH + 1, 5))
    with pytest.raises(ValueError, match="modules do not fit each other"):
        load_encoder(folder, cache=False)
