"""Objects with ``encode`` as encoders."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from qwen3nb.models.encoders.wrapped import WrappedEncoder
from qwen3nb.models.types import EncoderError, SpecError


class Lengths:
    """A vector of each text's length."""

    def __init__(self):
        self.calls = 0

    def encode(self, texts):
        self.calls += 1
        return [[float(len(text)), 1.0] for text in texts]


class Prompted(Lengths):
    """As a SentenceTransformer, with prompts."""

    # sentence-transformers uses the first of two names for documents.
    prompts = {"query": "query: ", "document": "", "passage": "x", "STS": "same? "}  # noqa: RUF012
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
    unit = encoder.encode("abc", normalize_embeddings=True)
    assert unit.tolist() == pytest.approx([3 / 10**0.5, 1 / 10**0.5])


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


@pytest.mark.parametrize(
    ("role", "text"), [("query", "query: ab"), ("passage", "ab"), (None, "same? ab")]
)
def test_the_prompts_of_a_sentence_transformer_are_used(role, text):
    encoder = WrappedEncoder(Prompted(), batch_size=7)
    assert encoder.encode(["ab"], role=role)[0][0] == len(text)
    assert encoder.similarity_name == "dot"


def test_vectors_of_another_dimension_than_before_are_refused():
    widths = iter([5, 6])
    model = SimpleNamespace(encode=lambda texts: np.ones((len(texts), next(widths))))
    with pytest.raises(EncoderError, match=r"expected vectors \(2, 5\); got \(2, 6\)"):
        WrappedEncoder(model).encode(["a", "b"])


VALUES = [1.0, -2.5, 0.0]  # exact in 16 bits


def returning(convert):
    """An object that returns the values once per text, converted."""
    return SimpleNamespace(encode=lambda texts: convert([VALUES for _ in texts]))


@pytest.mark.parametrize(
    "convert",
    [
        list,
        partial(np.array, dtype=np.float16),
        partial(torch.tensor, dtype=torch.bfloat16),
        partial(torch.tensor, dtype=torch.float16, requires_grad=True),
        lambda rows: [torch.tensor(row, dtype=torch.bfloat16) for row in rows],
    ],
)
def test_real_numbers_of_any_type_are_kept(convert):
    vectors = WrappedEncoder(returning(convert)).encode(["a", "b"])
    assert vectors.tolist() == [VALUES, VALUES]
    assert vectors.dtype == np.float32


@pytest.mark.parametrize(
    "convert",
    [
        lambda rows: np.ones(3),
        lambda rows: [[1.0], [1.0, 2.0]],
        lambda rows: None,
        lambda rows: np.ones((5, 2)),
        lambda rows: np.array(rows) + 1j,
        lambda rows: torch.tensor(rows)[:, None],
    ],
)
def test_anything_but_a_vector_of_real_numbers_per_text_is_refused(convert):
    with pytest.raises(EncoderError, match=r"encode of 1 texts: expected real numbers \(1, D\)"):
        WrappedEncoder(returning(convert))


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match=r"an object with encode\(texts\); got int"):
        WrappedEncoder(3)
    with pytest.raises(SpecError, match="one vector per text"):
        WrappedEncoder(SimpleNamespace(encode=list, model_type="SparseEncoder"))
