"""Your own checkpoint: TEST_CHECKPOINT=runs/ul2/checkpoint-9000 pytest tests/extraction -k own."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer

from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel
from qwen3nb.report.card.card import extract

pytestmark = pytest.mark.integration
VARIABLE = "TEST_CHECKPOINT"
TEXTS = ["How do I sort a list?", "Ordering the items of a list, from the smallest to the largest"]
FILES = """
config.json tokenizer.json tokenizer_config.json README.md modules.json sentence_bert_config.json
config_sentence_transformers.json 1_Pooling/config.json 2_Normalize/config.json qwen3nb.json
check_encoder.py
""".split()  # noqa: SIM905 - a list of words reads better as lines


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The encoder of the checkpoint in TEST_CHECKPOINT; extraction compares it with its source."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"set {VARIABLE} to the folder of an encoder-decoder checkpoint of your own")
    if not (Path(folder) / "config.json").is_file():
        pytest.fail(f"{VARIABLE} is {folder!r}; expected a folder with a config.json")
    return extract(folder, tmp_path_factory.mktemp("own") / "encoder")


def test_all_files_of_the_export_exist(own):
    assert [name for name in FILES if not (own.folder / name).is_file()] == []
    assert own.max_difference < 1e-5


def test_the_pooler_gives_one_vector_of_the_hidden_size_and_length_one(own):
    hidden = json.loads((own.folder / "config.json").read_text())["hidden_size"]
    model = Qwen3EncoderModel.from_pretrained(own.folder).eval()
    batch = AutoTokenizer.from_pretrained(own.folder)(TEXTS[:1], return_tensors="pt")
    with torch.inference_mode():
        pooled = model(**batch).pooler_output
    assert pooled.shape == (1, hidden)
    assert pooled.norm().item() == pytest.approx(1, abs=1e-5)
    assert AutoModel.from_pretrained(own.folder).config.is_causal is False


def test_sentence_transformers_and_qwen3nb_give_the_same_vectors(own):
    model = SentenceTransformer(str(own.folder), device="cpu")
    theirs = model.encode(TEXTS)
    ours = load_encoder(own.folder, device="cpu", cache=False).encode(TEXTS)
    assert theirs.shape == (2, model.get_embedding_dimension())
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
