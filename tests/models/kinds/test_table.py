"""A new kind of model is one class and one entry in a table."""

import hashlib

import numpy as np
import pytest
from helpers.handbook import example
from huggingface_hub.utils import httpx

from qwen3nb.models.kinds import resolve
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.types import SpecError


class Answer:
    """What an HTTP API would answer: a vector per text of the request."""

    def __init__(self, url, *, json):
        self.request = json

    def raise_for_status(self):
        return self

    def json(self):
        model, texts = self.request["model"], self.request["input"]
        rows = [hashlib.sha256(f"{model}{text}".encode()).digest() for text in texts]
        return {"data": [{"embedding": [byte / 255 for byte in row[:8]]} for row in rows]}


@pytest.fixture
def lab(monkeypatch):
    """The kind whose text CONTRIBUTING shows."""
    text = example('"""Embeddings of the lab')
    monkeypatch.setattr(httpx, "post", Answer)
    module = {"__name__": "lab"}
    exec(text, module)  # noqa: S102 - our own text
    monkeypatch.setattr(resolve, "KINDS", (*resolve.KINDS, module["Lab"]()))


@pytest.mark.usefixtures("lab")
def test_an_encoder_by_an_api_is_one_class_and_one_line():
    encoder = load_encoder("lab:large", label="mine", dimensions=4)
    assert (encoder.label, encoder.source.kind.name, encoder.dimension) == ("mine-4d", "lab", 4)
    texts = ["a text", "another"]
    vectors = encoder.encode(texts)
    assert vectors.shape == (2, 4)
    np.testing.assert_array_equal(load_encoder("lab:large", dimensions=4).encode(texts), vectors)
    assert encoder.stats.encoded == 2
    other = load_encoder("lab:small", dimensions=4)
    assert not np.array_equal(other.encode(texts), vectors)
    assert other.identity != encoder.identity
    content = {"kind": "lab", "spec": "lab:large", "revision": None}
    assert encoder.settings["model"] == content
    assert load_model("bm25+lab:large").parts[1].settings["model"] == content


def test_without_its_line_it_is_no_model():
    with pytest.raises(SpecError, match="no model 'lab:large'"):
        find_source("lab:large")
    assert len({kind.name for kind in resolve.KINDS}) == len(resolve.KINDS)
