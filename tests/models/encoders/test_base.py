"""What every encoder does with texts, roles and vectors, however it computes them."""

import shutil

import numpy as np
import pytest
from datasets import Dataset
from helpers import TEXTS
from helpers.archetypes import write_sentence_bert
from helpers.mteb_tasks import WORDS, loaded
from helpers.tolerances import assert_close
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qwen3nb.models.encoders import base as encoders
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.types import EncoderError, SpecError


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    return load_encoder(encoder_folder, cache=False, show_progress=False)


@pytest.mark.integration
@given(
    texts=st.lists(
        st.sampled_from([*TEXTS, "a", "", "  ", "é", "שלום", "😀", "x\0y", "z " * 90]),
        min_size=1,
        max_size=9,
    ),
    size=st.integers(1, 5),
)
@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_vector_depends_on_its_text_alone(encoder, texts, size):
    encoder.runner.budget = 8 * size
    together = encoder.encode(texts)
    encoder.runner.budget = 1024
    for text, vector in zip(texts, together, strict=True):
        assert_close(vector, encoder.encode(text))
    assert together.dtype == np.float32
    assert np.isfinite(together).all()


@pytest.mark.parametrize(
    ("texts", "options", "error", "message"),
    [
        (["fine", "\ud800"], {}, EncoderError, "text 1 is not valid Unicode"),
        (["a", "b", None], {}, EncoderError, "text 2 is NoneType, expected a string"),
        (["a"], {"role": "document"}, ValueError, "'document'; choose one of: query, passage"),
        ("a", {"normalise": True}, TypeError, "normalise"),
        ("a", {"batch_size": 0}, ValueError, "batch_size of at least 1; got 0"),
    ],
)
def test_what_is_refused(encoder, texts, options, error, message):
    with pytest.raises(error, match=message):
        encoder.encode(texts, **options)


@pytest.mark.parametrize(("value", "what"), [(np.nan, "not finite"), (0.0, "zero")])
def test_an_invalid_vector_is_an_error_that_names_its_text(encoder, monkeypatch, value, what):
    embed = encoder._embed

    def broken(texts):
        vectors = embed(texts)
        vectors[[text == "bad" for text in texts]] = value
        return vectors

    monkeypatch.setattr(encoder, "_embed", broken)
    with pytest.raises(EncoderError, match=f"the vector of text 3 is {what}: 'bad'"):
        encoder.encode(["a", "b", "a", "bad", "c"])  # index among all inputs


def test_vectors_have_length_1_where_that_is_wanted(encoder, encoder_folder):
    array = encoder.encode(["a", "", "b"], batch_size=1, show_progress_bar=False)
    tensor = encoder.encode(["a", "", "b"], convert_to_numpy=False, normalize_embeddings=True)
    np.testing.assert_array_equal(tensor.numpy(), array)
    longer = load_encoder(encoder_folder, normalize=False, cache=False)
    own = longer.encode(["a", "", "b"])
    assert np.abs(np.linalg.norm(own, axis=1) - 1).min() > 1e-3
    unit = longer.encode(["a", "", "b"], normalize_embeddings=True)
    assert_close(unit, array)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), [1, 0, 1], atol=1e-6)
    assert longer.similarity(own, own)[1].tolist() == [0, 0, 0]


def test_texts_are_encoded_once_by_length_and_returned_in_order(encoder, monkeypatch):
    monkeypatch.setattr(encoders, "_CHUNK", 3)
    texts = ["w " * count for count in (3, 9, 1, 7, 2, 8, 4, 6, 1)]
    expected = np.stack([encoder.encode(text) for text in texts])
    chunks, before = [], encoder.stats.encoded
    embed = encoder._embed
    monkeypatch.setattr(encoder, "_embed", lambda part: chunks.append(part) or embed(part))
    assert_close(encoder.encode(texts), expected)
    assert [len(part) for part in chunks] == [3, 3, 2]
    flat = [len(text) for part in chunks for text in part]
    assert flat == sorted(flat, reverse=True)
    assert encoder.stats.encoded - before == 8


def test_mteb_never_gives_one_checkpoint_the_result_of_another(make_checkpoint, tmp_path):
    """MTEB calls every local folder no_model_name; its cache then confuses them."""
    import mteb

    texts = [f"{word} of {other}" for word, other in zip(WORDS, reversed(WORDS), strict=True)]
    halves = {"sentence1": texts[:6], "sentence2": texts[6:], "score": [3, 1, 4, 1.5, 5, 9]}
    scores = []
    cache = mteb.ResultCache(tmp_path / "cache")
    for seed in (1, 2):
        # The same path, overwritten in place.
        shutil.rmtree(tmp_path / "checkpoint-5", ignore_errors=True)
        folder = make_checkpoint(tmp_path / "checkpoint-5", seed=seed)
        encoder = load_encoder(folder, cache=False, show_progress=False)
        task = loaded("STS12", {"test": Dataset.from_dict(halves)})
        result = mteb.evaluate(
            encoder, task, cache=cache, show_progress_bar=False, co2_tracker=False
        )
        scores.append(result.task_results[0].get_score())
    assert scores[0] != scores[1]


@pytest.fixture(scope="module", params=[True, False])
def model(request, tmp_path_factory, tokenizer_folder):
    folder = tmp_path_factory.mktemp("matryoshka") / "model"
    theirs = write_sentence_bert(folder, tokenizer_folder, normalize=request.param)
    return folder, theirs, request.param


def test_what_is_left_equals_sentence_transformers(model):
    folder, theirs, normalised = model
    encoder = load_encoder(folder, cache=False, dimensions=8)
    vectors = encoder.encode([*TEXTS, ""])
    cut = theirs.encode([*TEXTS, ""], truncate_dim=8, normalize_embeddings=normalised)
    assert_close(vectors, cut)
    assert vectors.shape == (5, 8)
    assert (encoder.dimension, encoder.width) == (8, 32)
    if normalised:
        np.testing.assert_allclose(np.linalg.norm(vectors[:4], axis=1), 1, atol=1e-6)


def test_the_cache_keeps_whole_vectors_for_all_lengths(model, tmp_path, monkeypatch):
    folder, _, normalised = model
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path))
    first = load_encoder(folder, dimensions=4)
    first.encode(list(TEXTS))
    whole, second = load_encoder(folder), load_encoder(folder, dimensions=8)
    vectors, kept = whole.encode(list(TEXTS)), second.encode(list(TEXTS))
    assert (first.stats.encoded, whole.stats.encoded, second.stats.encoded) == (4, 0, 0)
    assert len(list((tmp_path / "embeddings").iterdir())) == 1
    part = vectors[:, :8]
    part = part / np.linalg.norm(part, axis=1, keepdims=True) if normalised else part
    np.testing.assert_array_equal(kept, part)


def test_the_number_is_part_of_identity_and_label(model):
    folder, _, _ = model
    whole, *others = (load_encoder(folder, cache=False, dimensions=n) for n in (None, 4, 8))
    assert len({each.identity for each in (whole, *others)}) == 3
    assert [each.label for each in others] == [f"{whole.label}-4d", f"{whole.label}-8d"]
    assert [each.settings.get("dimensions") for each in (whole, *others)] == [None, 4, 8]
    same = load_encoder(folder, cache=False, dimensions=32)
    assert (same.identity, same.label) == (whole.identity, whole.label)
    fused, other = (
        load_model("bm25+random:16", cache=False, dimensions=each) for each in (8, None)
    )
    assert fused.label == "bm25-plus-random-16-8d"
    assert fused.identity != other.identity


@pytest.mark.parametrize("number", [33, 2.5, True])
def test_more_dimensions_than_there_are_are_refused(model, number):
    with pytest.raises(SpecError, match=f"dimensions is {number}; expected 1 to 32, the width"):
        load_encoder(model[0], cache=False, dimensions=number)


def test_fewer_than_no_dimensions_are_refused_before_a_model_is_read():
    with pytest.raises(ValueError, match="dimensions is -1; expected at least 0"):
        load_encoder("no such folder", cache=False, dimensions=-1)
