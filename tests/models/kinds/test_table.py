"""A new kind of model is one class and one entry in a table."""

import hashlib
import json

import numpy as np
import pytest

from qwen3nb.models.encoders.base import Encoder
from qwen3nb.models.kinds import resolve
from qwen3nb.models.kinds.resolve import find_source
from qwen3nb.models.kinds.source import Kind, Source
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.types import SpecError


def answer(request):
    """What an HTTP API would answer: a vector per text of the request's body."""
    fields = json.loads(request)
    rows = [
        hashlib.sha256(f"{fields['model']}{text}".encode()).digest() for text in fields["input"]
    ]
    return json.dumps({"data": [{"embedding": [byte / 255 for byte in row[:8]]} for row in rows]})


class ApiEncoder(Encoder):
    width = 8

    def __init__(self, source, given):
        model = source.spec.partition(":")[2]
        super().__init__(source, given, settings={"of_api": model, "normalize": False})

    def _embed(self, texts):
        fields = {"model": self.settings["of_api"], "input": list(texts)}
        done = json.loads(answer(json.dumps(fields)))
        return np.array([each["embedding"] for each in done["data"]], dtype=np.float32)


class Api(Kind):
    """Embeddings of an HTTP API, ``api:MODEL``."""

    name = "api"
    library = ""

    def named(self, spec):
        return Source(spec, self, spec.replace(":", "-")) if spec.startswith("api:") else None

    def load(self, source, settings):
        return ApiEncoder(source, settings)


@pytest.fixture
def api(monkeypatch):
    monkeypatch.setattr(resolve, "KINDS", (*resolve.KINDS, Api()))


@pytest.mark.usefixtures("api")
def test_an_encoder_by_an_api_is_one_class_and_one_line():
    encoder = load_encoder("api:large", label="mine", dimensions=4)
    assert (encoder.label, encoder.source.kind.name, encoder.dimension) == ("mine-4d", "api", 4)
    texts = ["a text", "another"]
    vectors = encoder.encode(texts)
    assert vectors.shape == (2, 4)
    np.testing.assert_array_equal(load_encoder("api:large", dimensions=4).encode(texts), vectors)
    assert encoder.stats.encoded == 2
    other = load_encoder("api:small", dimensions=4)
    assert not np.array_equal(other.encode(texts), vectors)
    assert other.identity != encoder.identity
    content = {"kind": "api", "spec": "api:large", "revision": None}
    assert encoder.settings["model"] == content
    assert load_model("bm25+api:large").parts[1].settings["model"] == content


def test_without_its_line_it_is_no_model():
    with pytest.raises(SpecError, match="no model 'api:large'"):
        find_source("api:large")
    assert len({kind.name for kind in resolve.KINDS}) == len(resolve.KINDS)
