"""What MTEB is told about a model: what is known, and nothing else."""

from dataclasses import replace

import pytest
from sentence_transformers import SentenceTransformer

from qwen3nb.checkpoints.folder import ModelFolder
from qwen3nb.models.encoders.wrapped import WrappedEncoder
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.mteb_meta import mteb_meta

QUIET = {"cache": False, "show_progress": False}


def test_an_export_is_described_in_full(encoder_folder):
    model = load_encoder(encoder_folder, **QUIET)
    meta = model.mteb_model_meta
    assert (meta.n_parameters, meta.embed_dim) == (model.parameters, 32)
    assert meta.memory_usage_mb == round(model.parameters * 4 / 2**20)
    assert meta.max_tokens == model.max_length == 512
    assert meta.framework == ["Sentence Transformers", "PyTorch", "Transformers", "safetensors"]
    assert meta.similarity_fn_name.value == "cosine"


@pytest.mark.parametrize(
    ("card", "license"),
    [
        ("---\nlicense: apache-2.0\n---\n# x", "apache-2.0"),
        ("---\nlicense: MIT\n---\n", "mit"),
        ("---\nlicense: other\n---\n", None),  # MTEB has no name for it
        ("---\nlicense: [a\n---\n", None),
        ("# license: mit\n", None),
    ],
)
def test_a_licence_is_that_of_the_card(encoder_folder, tmp_path, card, license):
    model = load_encoder(encoder_folder, **QUIET)
    (tmp_path / "README.md").write_text(card)
    model.source = replace(model.source, folder=ModelFolder(tmp_path))
    assert model.mteb_model_meta.license == license


def test_a_known_model_has_the_licence_and_the_page_of_the_registry():
    meta = load_encoder("all-MiniLM-L6-v2", **QUIET).mteb_model_meta
    assert meta.license == "apache-2.0"
    assert str(meta.reference) == "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2"
    assert (meta.n_parameters, meta.memory_usage_mb, meta.embed_dim) == (22_713_216, 87, 384)


def test_searches_and_baselines_say_no_more_than_is_known(encoder_folder):
    bm25, random = (load_model(name).mteb_model_meta for name in ("bm25", "random"))
    assert (bm25.n_parameters, bm25.framework, bm25.similarity_fn_name) == (0, [], None)
    assert (random.n_parameters, random.framework, random.embed_dim) == (0, ["NumPy"], 128)
    fused = load_model(f"bm25+{encoder_folder}", **QUIET)
    meta = fused.mteb_model_meta
    assert meta.n_parameters == fused.parts[1].parameters
    assert meta.memory_usage_mb == fused.parts[1].mteb_model_meta.memory_usage_mb
    assert (meta.model_type, meta.similarity_fn_name) == (["hybrid"], None)
    own = WrappedEncoder(SentenceTransformer(str(encoder_folder), device="cpu"))
    meta = mteb_meta(own, dimension=32, kinds=["dense"])
    assert (meta.n_parameters, meta.memory_usage_mb, meta.framework) == (None, None, [])
