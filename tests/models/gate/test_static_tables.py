"""A static model that is not what it says it is, is refused by name and in one line."""

import json

import numpy as np
import pytest
from helpers.archetypes import edit
from helpers.static_models import WIDTH, WORDS, write_model2vec, write_static_sentence_model
from safetensors.numpy import load_file, save_file

from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_encoder
from qwen3nb.models.types import SpecError

ROWS = len(WORDS) + 1


def config(**fields):
    return lambda folder: edit(folder, "config.json", **fields)


def tensors(**changes):
    """Change tensors by name; None removes one."""

    def change(folder):
        held = load_file(folder / "model.safetensors") | changes
        held = {name: array for name, array in held.items() if array is not None}
        save_file(held, folder / "model.safetensors")

    return change


def tokens(edit):
    def change(folder):
        file = folder / "tokenizer.json"
        fields = json.loads(file.read_text())
        edit(fields["model"]["vocab"])
        file.write_text(json.dumps(fields))

    return change


def poked(value):
    def change(folder):
        table = load_file(folder / "model.safetensors")
        name = next(iter(table.keys() & {"embeddings", "embedding.weight"}))
        table[name][1, 2] = value
        save_file(table, folder / "model.safetensors")

    return change


def outside(name):
    def change(folder):
        (folder / name).rename(folder.parent / name)
        (folder / name).symlink_to(folder.parent / name)

    return change


def garbage(name):
    return lambda folder: (folder / name).write_bytes(b"{garbage")


zeros = np.zeros
BOTH = {
    "not finite": (poked(np.nan), "contains NaN or infinity"),
    "infinite": (poked(np.inf), "contains NaN or infinity"),
    "one token more": (tokens(lambda vocabulary: vocabulary.update(extra=ROWS)), f"{ROWS} rows"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "no .*weights|no model"),
    "no tokenizer": (lambda folder: (folder / "tokenizer.json").unlink(), "no tokenizer|missing"),
    "no safetensors": (garbage("model.safetensors"), r"model\.safetensors"),
    "no JSON": (garbage("tokenizer.json"), "key must be a string"),
    "another tensor": (tensors(bias=zeros(3, np.float32)), "bias: unexpected"),
    "weights elsewhere": (outside("model.safetensors"), "links out of its folder"),
    "tokenizer elsewhere": (outside("tokenizer.json"), "links out of its folder"),
    "modules outside": (
        lambda folder: (folder / "modules.json").write_text(
            (folder / "modules.json").read_text().replace('"path": "', '"path": "../', 1)
        ),
        "is no folder inside|leaves the folder",
    ),
}
MODEL2VEC = {
    "normalize": (config(normalize="yes"), "normalize is 'yes'; it should be a valid bool"),
    "no length": (config(max_length=0), "max_length is 0; it should be greater"),
    "a length in words": (config(max_length="512"), "max_length is '512'"),
    "no table": (tensors(embeddings=None, other=zeros(3, np.float32)), "has other; expected the"),
    "no matrix": (tensors(embeddings=zeros(ROWS, np.float32)), "expected a row per token"),
    "an empty row": (tensors(embeddings=zeros((ROWS, 0), np.float32)), "expected a row per token"),
    "whole numbers": (tensors(embeddings=zeros((ROWS, 3), np.int64)), "of type I64; expected one"),
    "one row more": (tensors(embeddings=zeros((ROWS + 1, 3), np.float32)), f"has {ROWS} tokens"),
    "a mapping of rows that are not there": (
        tensors(mapping=np.full(ROWS, ROWS)),
        f"mapping goes from {ROWS} to {ROWS}, but there are",
    ),
    "a mapping below 0": (tensors(mapping=np.full(ROWS, -1)), "mapping goes from -1"),
    "a mapping of fractions": (tensors(mapping=zeros(ROWS, np.float32)), "mapping: of type F32"),
    "a short mapping": (tensors(mapping=zeros(3, np.int64)), "only 3 rows"),
    "too many weights": (tensors(weights=zeros(ROWS + 1, np.float32)), f"expected .{ROWS}., a num"),
    "weights that are not finite": (
        tensors(weights=np.full(ROWS, np.inf, np.float32)),
        "weights contains NaN or infinity",
    ),
}
SENTENCE = {
    "whole numbers": (
        tensors(**{"embedding.weight": zeros((ROWS, WIDTH), np.int8)}),
        "type I8; expected one of",
    ),
    "no table": (
        tensors(**{"embedding.weight": None, "other": zeros(3, np.float32)}),
        "has other; expected",
    ),
}


def check_refusal(folder, change, message):
    load_encoder(folder, cache=False)
    change(folder)
    with pytest.raises(ValueError, match=message) as caught:
        load_encoder(folder, cache=False).encode("fox")
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("case", [*BOTH, *MODEL2VEC])
def test_a_malformed_folder_of_model2vec_is_refused(tmp_path, case):
    folder = write_model2vec(tmp_path / "model", normalize=True)
    check_refusal(folder, *{**BOTH, **MODEL2VEC}[case])


@pytest.mark.parametrize("case", [*BOTH, *SENTENCE])
def test_a_malformed_static_embedding_is_refused(tmp_path, case):
    from sentence_transformers.sentence_transformer.modules import Normalize

    folder = write_static_sentence_model(tmp_path / "model", Normalize())
    check_refusal(folder, *{**BOTH, **SENTENCE}[case])


def test_a_module_for_vectors_of_another_width_is_refused(tmp_path):
    from sentence_transformers.sentence_transformer.modules import Dense

    folder = write_static_sentence_model(tmp_path / "model", Dense(WIDTH + 1, 5))
    with pytest.raises(SpecError, match="modules do not fit each other"):
        load_encoder(folder, cache=False)


def test_a_folder_without_configuration_is_still_no_model(tmp_path):
    modules = [{"name": "0", "path": "", "type": "sentence_transformers.models.Pooling"}]
    (tmp_path / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(ValueError, match="no weights"):
        load_encoder(tmp_path)
    (tmp_path / "modules.json").unlink()
    with pytest.raises(SpecError, match=r"no config\.json, so this is not a model"):
        find_source(str(tmp_path))
