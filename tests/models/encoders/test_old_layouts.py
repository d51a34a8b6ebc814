"""Folders of sentence-transformers from before release 2, and with ``pytorch_model.bin``.

The oracle is sentence-transformers on the same weights as safetensors, in today's layout.
"""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer
from transformers import AutoTokenizer, BertConfig, BertModel

import qwen3nb as q
from qwen3nb.checkpoints.to_safetensors import to_safetensors
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import fingerprint

TEXTS = ["a text", "another, longer text about nothing", "x"]


@pytest.fixture
def today(tmp_path, tokenizer_folder):
    """A tiny BERT with mean pooling and a dense layer, as the library writes it today."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    tokenizer.model_max_length = 64
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = BertConfig(
        vocab_size=len(tokenizer), intermediate_size=32, max_position_embeddings=64, **sizes
    )
    BertModel(config).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    modules = [Transformer(str(tmp_path / "bert")), Pooling(16, pooling_mode="mean"), Dense(16, 8)]
    folder = tmp_path / "today"
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(folder))
    return folder


@pytest.fixture
def expected(today):
    return SentenceTransformer(str(today), device="cpu").encode(TEXTS)


def pickled(folder, **options):
    """Replace the safetensors in a folder by files of ``torch.save``."""
    for file in list(folder.rglob("model.safetensors")):
        torch.save(load_file(file), file.with_name("pytorch_model.bin"), **options)
        file.unlink()
    return folder


def before_2(folder):
    """Move the transformer to ``0_Transformer``, below a ``config.json`` with a release alone."""
    inner = folder / "0_Transformer"
    inner.mkdir()
    above = ("modules.json", "README.md", "config_sentence_transformers.json")
    for file in [file for file in folder.iterdir() if file.is_file() and file.name not in above]:
        file.rename(inner / file.name)
    (folder / "config.json").write_text(json.dumps({"__version__": "0.4.1"}))
    (folder / "config_sentence_transformers.json").unlink()
    modules = json.loads((folder / "modules.json").read_text())
    modules[0]["path"] = inner.name
    (folder / "modules.json").write_text(json.dumps(modules))
    return folder


@pytest.mark.parametrize(
    "changes", [(pickled,), (before_2,), (pickled, before_2)], ids=["bin", "before 2", "both"]
)
def test_they_compute_what_the_library_computes(today, expected, changes):
    before = fingerprint(find_source(str(today)))
    for change in changes:
        change(today)
    vectors = q.load_encoder(today, cache=False, device="cpu").encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-5 * abs(expected).max())
    if changes == (pickled,):  # the identity does not depend on the format
        assert fingerprint(find_source(str(today)))["weights"] == before["weights"]


def test_an_older_file_is_converted_with_the_command_that_the_error_names(today, expected):
    pickled(today, _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError) as error:
        q.load_encoder(today, cache=False)
    for file in today.rglob("pytorch_model.bin"):
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        words = ["-m", "qwen3nb.checkpoints.to_safetensors", str(file)]
        assert " ".join(words[:2]) in str(error.value)
        done = subprocess.run(
            [sys.executable, *words], check=False, env=environment, capture_output=True, text=True
        )
        assert done.stdout.strip() == str(file.with_name("model.safetensors")), done.stderr
    vectors = q.load_encoder(today, cache=False, device="cpu").encode(TEXTS)
    np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-5 * abs(expected).max())


class Runs:
    """Unpickling it would make a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_of_anything_else_is_refused_and_runs_nothing(today, tmp_path, zipped):
    pickled(today)
    file = today / "pytorch_model.bin"
    state = {"w": torch.ones(2), "x": Runs(tmp_path / "made")}
    torch.save(state, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(CheckpointError, match=r"pytorch_model\.bin"):
        q.load_encoder(today, cache=False)
    with pytest.raises(CheckpointError, match="tensors alone"):
        to_safetensors(file)
    assert not (tmp_path / "made").exists()
    assert not (today / "model.safetensors").exists()


def test_a_conversion_replaces_nothing_and_separates_shared_memory(tmp_path):
    shared = torch.arange(6.0).reshape(2, 3)
    file = tmp_path / "pytorch_model.bin"
    torch.save({"a": shared, "b": shared, "c": shared.T}, file)
    written = load_file(to_safetensors(file))
    assert {name: tensor.tolist() for name, tensor in written.items()} == {
        "a": shared.tolist(),
        "b": shared.tolist(),
        "c": shared.T.tolist(),
    }
    with pytest.raises(CheckpointError, match="exists already"):
        to_safetensors(file)
    shutil.move(file, tmp_path / "x.bin")
    torch.save([shared], tmp_path / "x.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="a flat state dict"):
        to_safetensors(tmp_path / "x.bin")
