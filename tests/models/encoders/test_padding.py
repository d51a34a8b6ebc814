"""A text's vector is the same alone and beside longer texts, for every architecture."""

import numpy as np
import pytest
import torch
from helpers.archetypes import copy_tokenizer

from qwen3nb.models.encoders.padding import check_repeatable, depends_on_padding
from qwen3nb.models.encoders.wrapped import WrappedEncoder
from qwen3nb.models.load import load_encoder
from qwen3nb.models.types import SpecError

CLOSE = 1e-5  # of a vector's length
WIDTH = 32
TEXTS = [
    "sort the rows",
    "sort the rows by date",
    "the quick brown fox jumps over the lazy dog, and then sorts the rows by date and name",
    "no and yes and no",
]
SIZES = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
}
# Architectures whose padding changes vectors, with settings of their own; None: no such setting.
PADDED = {
    "FNet": {},
    "ConvBert": {},
    "MobileBert": {"embedding_size": 32, "intra_bottleneck_size": 32},
    "Nystromformer": {"num_landmarks": 4, "segment_means_seq_len": 4},
    "Yoso": {},
    "Funnel": {"block_sizes": [1, 1], "n_head": 4, "d_head": 8, "num_hidden_layers": None},
}
FINE = {
    "Albert": {"embedding_size": 32},
    "BigBird": {"block_size": 4, "num_random_blocks": 1},
    "DebertaV2": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "Electra": {"embedding_size": 32},
    "GPT2": {},
    "Longformer": {"attention_window": 4},
    "Mamba": {"state_size": 8},
    "ModernBert": {},
    "XLNet": {"d_inner": 48, "d_head": 8, "max_position_embeddings": None},
}


def write(folder, tokenizer, family, **more):
    import transformers
    from transformers import AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(tokenizer)
    sizes = {**SIZES, "vocab_size": len(tokens), **more}
    special = {f"{name}_token_id": 0 for name in ("pad", "bos", "eos", "cls", "sep")}
    fields = {name: value for name, value in {**special, **sizes}.items() if value is not None}
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**fields)
    model = getattr(transformers, f"{family}Model")(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim > 1:
                weight.add_(torch.randn(weight.shape) * 0.15)
    model.save_pretrained(folder)
    copy_tokenizer(tokenizer, folder)
    return folder


def sentence(folder):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    transformer = Transformer(str(folder))
    transformer.max_seq_length = 64
    return SentenceTransformer(modules=[transformer, Pooling(WIDTH, "mean")], device="cpu")


def check(vectors, expected):
    lengths = np.linalg.norm(expected, axis=1)
    assert (np.linalg.norm(vectors - expected, axis=1) / lengths).max() < CLOSE


@pytest.mark.parametrize("family", [*PADDED, *FINE])
def test_vectors_equal_those_of_sentence_transformers_one_by_one(
    tmp_path, tokenizer_folder, family
):
    folder = write(tmp_path / "m", tokenizer_folder, family, **{**PADDED, **FINE}[family])
    model = sentence(folder)
    model.save_pretrained(str(tmp_path / "st"), create_model_card=False)
    expected = np.stack([model.encode([text])[0] for text in TEXTS])
    padded = model.encode(TEXTS)
    if family in PADDED:  # else the case tests nothing
        assert np.linalg.norm(padded - expected, axis=1).max() > 0.01

    options = {"cache": False, "show_progress": False, "device": "cpu"}
    plain = load_encoder(folder, pooling="mean", normalize=False, max_length=64, **options)
    whole = load_encoder(tmp_path / "st", **options)
    wrapped = WrappedEncoder(model, fingerprint="one", show_progress=False)
    for encoder in (plain, whole, wrapped):
        with encoder.uncached():
            check(encoder.encode(TEXTS), expected)
            check(encoder.encode(TEXTS, batch_size=1), expected)
        stated = encoder.settings.get("padding")
        assert stated == ("none" if family in PADDED else None)
    if family in PADDED and plain.runner is not None:
        other = plain.runner.variant(pooling="mean", causal=None)
        check(other.encode(TEXTS, plain._tokenise), expected)


def test_a_model_whose_vectors_change_in_any_case_is_refused(
    tmp_path, tokenizer_folder, monkeypatch
):
    """As with random hashes, a text has another vector in every pass."""
    from transformers import FNetModel

    forward = FNetModel.forward

    def noisy(self, *arguments, **options):
        output = forward(self, *arguments, **options)
        noise = torch.randn_like(output.last_hidden_state)
        output.last_hidden_state = output.last_hidden_state + 0.1 * noise
        return output

    folder = write(tmp_path / "m", tokenizer_folder, "FNet")
    sentence(folder).save_pretrained(str(tmp_path / "st"), create_model_card=False)
    monkeypatch.setattr(FNetModel, "forward", noisy)
    for name, options in (("m", {"pooling": "mean"}), ("st", {})):
        with pytest.raises(SpecError, match=r"the vector of a text changes with its batch by \d"):
            load_encoder(tmp_path / name, cache=False, device="cpu", **options)


def test_a_model_with_wider_states_than_it_states_is_refused(tmp_path, tokenizer_folder):
    """Reformer returns the states of both streams of its reversible layers, side by side."""
    own = {
        "hidden_size": WIDTH,
        "attention_head_size": 8,
        "feed_forward_size": 48,
        "attn_layers": ["local", "local"],
        "axial_pos_shape": [8, 16],
        "axial_pos_embds_dim": [WIDTH // 2, WIDTH // 2],
        "intermediate_size": None,
        "num_hidden_layers": None,
    }
    folder = write(tmp_path / "m", tokenizer_folder, "Reformer", **own)
    expected = rf"states have {2 * WIDTH} numbers per token, where config.json states {WIDTH} "
    with pytest.raises(SpecError, match=expected):
        load_encoder(folder, cache=False, device="cpu", pooling="mean")


def lengths(texts):
    return np.array([[len(text), 1.0] for text in texts], dtype=np.float32)


@pytest.mark.parametrize(
    ("share", "dtype", "depends"),
    [
        (2e-5, "float32", True),
        (2e-6, "float32", False),
        (2e-3, "bfloat16", False),
        (0.2, "bfloat16", True),
        (float("nan"), "float32", True),
    ],
)
def test_a_change_beyond_rounding_counts(share, dtype, depends):
    def encode(texts):
        change = share * lengths(texts) if len(texts) > 1 else 0.0
        return lengths(texts) + change

    assert depends_on_padding(encode, dtype=dtype) is depends
    if depends:
        with pytest.raises(SpecError, match="even without padding"):
            check_repeatable(encode, "model", dtype=dtype)
