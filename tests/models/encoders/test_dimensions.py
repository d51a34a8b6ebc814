"""Leading dimensions of a vector: as sentence-transformers truncates, and with its cosines."""

import numpy as np
import pytest
from helpers import TEXTS
from helpers.sentence_models import write_sentence_bert

from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.types import SpecError


@pytest.fixture(scope="module", params=[True, False], ids=["normalised", "as they are"])
def model(request, tmp_path_factory, tokenizer_folder):
    folder = tmp_path_factory.mktemp("matryoshka") / "model"
    theirs = write_sentence_bert(folder, tokenizer_folder, normalize=request.param)
    return folder, theirs, request.param


def test_what_is_left_equals_sentence_transformers(model):
    folder, theirs, normalised = model
    encoder = load_encoder(folder, cache=False, dimensions=8)
    vectors = encoder.encode([*TEXTS, ""])
    cut = theirs.encode([*TEXTS, ""], truncate_dim=8, normalize_embeddings=normalised)
    np.testing.assert_allclose(vectors, cut, atol=1e-6)
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


@pytest.mark.parametrize("number", [33, -1, 2.5, True])
def test_more_dimensions_than_there_are_or_none_are_refused(model, number):
    with pytest.raises(SpecError, match=f"dimensions is {number}; expected 1 to 32, the width"):
        load_encoder(model[0], cache=False, dimensions=number)
