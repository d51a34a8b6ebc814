"""What MTEB is told about a model."""

from sentence_transformers import SentenceTransformer

from qwen3nb.models.encoders.wrapped import WrappedEncoder
from qwen3nb.models.load import load_encoder, load_model

QUIET = {"cache": False, "show_progress": False}


def test_an_export_and_a_known_model_are_described(encoder_folder):
    model = load_encoder(encoder_folder, **QUIET)
    meta = model.mteb_model_meta
    assert (meta.n_parameters, meta.embed_dim) == (model.parameters, 32)
    assert meta.max_tokens == model.max_length == 512
    assert meta.similarity_fn_name.value == "cosine"
    meta = load_encoder("all-MiniLM-L6-v2", **QUIET).mteb_model_meta
    assert str(meta.reference) == "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2"
    assert (meta.n_parameters, meta.embed_dim) == (22_713_216, 384)


def test_searches_and_baselines_say_no_more_than_is_known(encoder_folder):
    bm25, random = (load_model(name).mteb_model_meta for name in ("bm25", "random"))
    assert (bm25.n_parameters, bm25.similarity_fn_name) == (0, None)
    assert (random.n_parameters, random.embed_dim) == (0, 128)
    fused = load_model(f"bm25+{encoder_folder}", **QUIET)
    meta = fused.mteb_model_meta
    assert meta.n_parameters == fused.parts[1].parameters
    assert (meta.model_type, meta.similarity_fn_name) == (["hybrid"], None)
    own = WrappedEncoder(SentenceTransformer(str(encoder_folder), device="cpu"))
    assert own.mteb_model_meta.n_parameters is None
