"""Objects with ``encode`` as encoders."""

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


class Returns:
    """An object that returns what it was made with, once per text."""

    def __init__(self, row, convert=np.array):
        self.row, self.convert = row, convert

    def encode(self, texts):
        return self.convert([self.row for _ in texts])


VALUES = [1.0, -2.5, 0.0]  # exact in 16 bits


@pytest.mark.parametrize(
    "convert",
    [
        np.array,
        list,
        lambda rows: np.array(rows, dtype=np.float16),
        lambda rows: np.array(rows, dtype=np.float64),
        lambda rows: torch.tensor(rows, dtype=torch.bfloat16),
        lambda rows: torch.tensor(rows, dtype=torch.float16, requires_grad=True),
        lambda rows: [torch.tensor(row, dtype=torch.bfloat16) for row in rows],
        lambda rows: [np.array(row) for row in rows],
    ],
)
def test_real_numbers_of_any_type_are_kept(convert):
    vectors = WrappedEncoder(Returns(VALUES, convert)).encode(["a", "b"])
    assert vectors.tolist() == [VALUES, VALUES]
    assert vectors.dtype == np.float32


@pytest.mark.parametrize(
    ("convert", "message"),
    [
        (lambda rows: np.array(rows) + 1j, "real numbers, got an array of complex128"),
        (lambda rows: torch.tensor(rows) + 1j, "real numbers, got an array of complex64"),
        (lambda rows: np.array(rows).astype(str), "real numbers, got an array of <U"),
        (lambda rows: np.array(rows, dtype=object), "real numbers, got an array of object"),
        (lambda rows: np.ma.masked_less(rows, 0), "masked array"),
        (lambda rows: [np.ma.masked_less(row, 0) for row in rows], "masked array"),
        (lambda rows: torch.tensor(rows).to_sparse(), r"\(1, D\), got .*indices"),
        (lambda rows: torch.tensor(rows)[:, None], r"\(1, D\), got torch.Size\(\[1, 1, 3\]\)"),
    ],
)
def test_what_would_lose_a_part_of_its_numbers_is_refused(convert, message):
    with pytest.raises(EncoderError, match=rf"Returns\.encode of 1 texts: expected .*{message}"):
        WrappedEncoder(Returns(VALUES, convert))


def test_models_of_sentence_transformers_that_are_not_dense_are_refused():
    class SparseEncoder(Lengths):
        model_type = "SparseEncoder"

    with pytest.raises(SpecError, match="SparseEncoder: a sparse encoder"):
        WrappedEncoder(SparseEncoder())
