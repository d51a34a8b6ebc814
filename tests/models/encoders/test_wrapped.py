"""Objects with ``encode`` as encoders."""

import numpy as np
import pytest

from qwen3nb.models.encoders.wrapped import WrappedEncoder
from qwen3nb.models.types import EncoderError


class Lengths:
    """A vector of each text's length."""

    def __init__(self):
        self.calls = 0

    def encode(self, texts):
        self.calls += 1
        return [[float(len(text)), 1.0] for text in texts]


class Prompted(Lengths):
    """As a SentenceTransformer, with prompts."""

    prompts = {"query": "query: ", "document": "", "STS": "same? "}  # noqa: RUF012
    default_prompt_name = "STS"
    similarity_fn_name = "dot"

    def encode(self, texts, *, prompt, batch_size, show_progress_bar):
        assert (prompt, batch_size, show_progress_bar) == ("", 7, False)
        return super().encode(texts)

    encode_query = encode_document = encode


def test_its_vectors_are_the_objects():
    encoder = WrappedEncoder(Lengths(), label="lengths")
    assert encoder.encode(["a", "abc", "a"]).tolist() == [[1, 1], [3, 1], [1, 1]]
    assert (encoder.label, encoder.dimension, encoder.similarity_name) == ("lengths", 2, "cosine")
    assert WrappedEncoder(Lengths()).label == "Lengths"


def test_without_a_fingerprint_it_is_another_model_each_time_and_with_one_the_same():
    assert WrappedEncoder(Lengths()).identity != WrappedEncoder(Lengths()).identity
    first = WrappedEncoder(Lengths(), fingerprint="v1")
    second = WrappedEncoder(Lengths(), fingerprint="v1")
    other = WrappedEncoder(Lengths(), fingerprint="v2")
    assert first.identity == second.identity != other.identity
    first.encode(["a text of its own"])
    before = second._model.calls
    second.encode(["a text of its own"])
    assert (second.stats.cached, second._model.calls) == (1, before)
    other.encode(["a text of its own"])
    assert other.stats.cached == 0


def test_the_prompts_of_a_sentence_transformer_are_used():
    encoder = WrappedEncoder(Prompted(), batch_size=7)
    assert encoder.encode(["ab"], role="query")[0][0] == len("query: ab")
    assert encoder.encode(["ab"], role="passage")[0][0] == len("ab")
    assert encoder.encode(["ab"])[0][0] == len("same? ab")
    assert encoder.similarity_name == "dot"


def test_a_prompt_that_sentence_transformers_never_uses_is_not_used():
    model = Prompted()
    model.prompts = {**model.prompts, "passage": "never: "}
    encoder = WrappedEncoder(model, batch_size=7)
    assert encoder.encode(["ab"], role="passage")[0][0] == len("ab")


@pytest.mark.parametrize("made", [np.ones(3), [[1.0], [1.0, 2.0]], None, np.ones((5, 2))])
def test_anything_but_a_vector_per_text_is_refused(made):
    class Wrong:
        def encode(self, texts):
            return made

    with pytest.raises(EncoderError, match=r"Wrong.encode of 1 texts: expected an array \(1, D\)"):
        WrappedEncoder(Wrong())


def test_an_object_without_encode_is_refused():
    with pytest.raises(TypeError, match=r"an object with encode\(texts\); got int"):
        WrappedEncoder(3)
