import json
import re
import shutil
import sqlite3
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import TEXTS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from qwen3nb.checkpoints.checkpoint import CheckpointError
from qwen3nb.models.encoders.embedding_cache import EmbeddingCache, text_key
from qwen3nb.models.encoders.prompts import prompt_for
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.sources.fingerprint import fingerprint
from qwen3nb.models.sources.resolve import find_source, registry
from qwen3nb.models.types import EncoderError, SpecError

MINILM = "all-MiniLM-L6-v2"
needs_minilm = pytest.mark.skipif(
    find_source(MINILM).folder is None, reason="pip install 'qwen3nb[demo]' brings the model"
)


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    return load_encoder(encoder_folder, cache=False, show_progress=False)


@given(
    texts=st.lists(st.sampled_from([*TEXTS, "a", "", "  ", "é", "שלום", "😀", "x\0y", "z " * 90]),
                   min_size=1, max_size=9),
    size=st.integers(1, 5),
)  # fmt: skip
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_vector_depends_on_its_text_alone(encoder, texts, size):
    encoder.runner.budget = 8 * size
    together = encoder.encode(texts)
    encoder.runner.budget = 1024
    for text, vector in zip(texts, together, strict=True):
        np.testing.assert_allclose(vector, encoder.encode(text), atol=1e-5)
    assert together.dtype == np.float32
    assert np.isfinite(together).all()


def test_equal_texts_are_encoded_once(encoder_folder):
    encoder = load_encoder(encoder_folder, cache=False)
    encoder.encode(["a", "b", "a", "a"])
    assert (encoder.stats.texts, encoder.stats.encoded) == (4, 2)


def test_texts_without_tokens_and_texts_that_are_cut_are_counted(encoder_folder):
    encoder = load_encoder(encoder_folder, cache=False, max_length=8)
    vectors = encoder.encode(["", "a", "word " * 50])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert (encoder.stats.empty, encoder.stats.cut) == (1, 1)


def test_special_tokens_inside_a_text_are_text(encoder):
    ids = encoder._tokenise(["<|endoftext|>"])[0]
    assert len(ids) > 1
    assert encoder._end not in ids


def test_what_is_no_text_is_refused_with_its_place(encoder):
    with pytest.raises(EncoderError, match="text 1 is not valid Unicode"):
        encoder.encode(["fine", "\ud800"])
    with pytest.raises(EncoderError, match="text 2 is NoneType, expected a string"):
        encoder.encode(["a", "b", None])
    with pytest.raises(ValueError, match="unknown role 'document'; choose one of: query, passage"):
        encoder.encode(["a"], role="document")


@pytest.mark.parametrize(("value", "what"), [(np.nan, "not finite"), (0.0, "zero")])
def test_a_vector_that_must_not_be_used_is_an_error_with_its_text(
    encoder_folder, monkeypatch, value, what
):
    encoder = load_encoder(encoder_folder, cache=False)
    embed = encoder._embed

    def broken(texts):
        vectors = embed(texts)
        vectors[[text == "bad" for text in texts]] = value
        return vectors

    monkeypatch.setattr(encoder, "_embed", broken)
    with pytest.raises(EncoderError, match=f"the vector of text 3 is {what}: 'bad'"):
        encoder.encode(["a", "b", "a", "bad", "c"])  # the place among the inputs, not the distinct


def test_prompts_go_to_their_role_only(encoder_folder, monkeypatch):
    encoder = load_encoder(encoder_folder, cache=False)
    monkeypatch.setattr(encoder, "prompts", {"query": "query: "})
    plain = encoder.encode("x")
    np.testing.assert_array_equal(encoder.encode("x", role="passage"), plain)
    np.testing.assert_array_equal(encoder.encode("x", role="query"), encoder.encode("query: x"))
    assert np.abs(encoder.encode("x", role="query") - plain).max() > 1e-3


def test_the_identity_changes_with_all_that_decides_a_vector(checkpoint, encoder_folder, tmp_path):
    def identity(folder=encoder_folder, **options):
        return load_encoder(folder, cache=False, **options).identity

    base = identity()
    assert identity() == base
    others = [
        identity(pooling="last"),
        identity(max_length=16),
        identity(dtype="bfloat16"),
        load_encoder("random", cache=False).identity,
        load_encoder("random", seed=1, cache=False).identity,
        load_encoder("random:64", cache=False).identity,
    ]
    for name, old, new in (
        ("tokenizer.json", '"ignore_merges"', '"ignore_merges" '),
        ("config.json", '"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e-05'),
    ):
        copy = tmp_path / name
        shutil.copytree(encoder_folder, copy)
        text = (copy / name).read_text()
        assert old in text
        (copy / name).write_text(text.replace(old, new))
        others.append(identity(copy))
    weights = tmp_path / "weights"
    shutil.copytree(encoder_folder, weights)
    data = bytearray((weights / "model.safetensors").read_bytes())
    data[-3] ^= 1
    (weights / "model.safetensors").write_bytes(data)
    others.append(identity(weights))
    assert len({base, *others}) == len(others) + 1


def test_the_same_content_elsewhere_is_the_same_model(encoder_folder, tmp_path):
    shutil.copytree(encoder_folder, tmp_path / "copy")
    first, second = (
        load_encoder(folder, cache=False) for folder in (encoder_folder, tmp_path / "copy")
    )
    assert first.identity == second.identity


def test_mteb_never_gives_one_checkpoint_the_result_of_another(make_checkpoint, tmp_path):
    """MTEB calls every local folder no_model_name; its cache then confuses them."""
    import mteb

    from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task

    scores = []
    cache = mteb.ResultCache(tmp_path / "cache")
    for seed in (1, 2):
        # The same path, overwritten in place.
        shutil.rmtree(tmp_path / "checkpoint-5", ignore_errors=True)
        folder = make_checkpoint(tmp_path / "checkpoint-5", seed=seed)
        encoder = load_encoder(folder, cache=False, show_progress=False)
        task = embedded_task("AuthorSTS")
        found = mteb.evaluate(
            encoder, task, cache=cache, show_progress_bar=False, co2_tracker=False
        )
        scores.append(found.task_results[0].get_score())
    assert scores[0] != scores[1]


def test_a_model_without_pooling_is_asked_for_one(tmp_path, tokenizer_folder):
    from transformers import Qwen3Config, Qwen3Model

    config = Qwen3Config(vocab_size=448, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
                         num_attention_heads=2, num_key_value_heads=1, head_dim=8)  # fmt: skip
    Qwen3Model(config).save_pretrained(tmp_path / "lm")
    for file in tokenizer_folder.iterdir():
        shutil.copyfile(file, tmp_path / "lm" / file.name)
    with pytest.raises(SpecError, match="says nothing of pooling; choose one of: mean, cls, last"):
        load_encoder(tmp_path / "lm", cache=False)
    encoder = load_encoder(tmp_path / "lm", pooling="last", cache=False)
    assert encoder.settings["causal"] is True
    assert encoder.encode(["a b c"]).shape == (1, 16)


def test_a_pickle_is_refused_before_anything_is_loaded(encoder_folder, tmp_path):
    folder = tmp_path / "pickled"
    shutil.copytree(encoder_folder, folder)
    (folder / "model.safetensors").unlink()
    # Loading this would make the file `ran`.
    code = f"cposix\nsystem\n(S'touch {tmp_path}/ran'\ntR."
    (folder / "pytorch_model.bin").write_bytes(code.encode())
    with pytest.raises(CheckpointError, match="not a file torch.save has written"):
        load_encoder(folder, cache=False)
    assert not (tmp_path / "ran").exists()


def test_random_vectors_are_the_texts_own():
    encoder = load_encoder("random:32", seed=3, cache=False)
    first, second = encoder.encode(["a", "b"]), encoder.encode(["b", "a"])
    np.testing.assert_array_equal(first, second[::-1])
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1, rtol=1e-6)
    assert abs(float(first[0] @ first[1])) < 0.9
    assert not np.array_equal(load_encoder("random:32", seed=4, cache=False).encode("a"), first[0])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("randm", "Did you mean 'random'"),
        ("e5-base", "Did you mean 'e5-base-v2'"),
        ("", "none of bm25, random"),
        ("random:0", "no model"),
        ("demo", "`qwen3nb demo` trains and extracts it"),
        ("../nowhere/else", "no model"),
    ],
)
def test_a_wrong_spec_says_what_would_have_been_right(spec, message):
    with pytest.raises(SpecError, match=message):
        load_model(spec)


def test_a_folder_that_is_no_model_says_what_is_in_it(tmp_path, checkpoint):
    shutil.copytree(checkpoint, tmp_path / "run" / "checkpoint-10")
    with pytest.raises(
        SpecError, match=r"no config\.json, so no model\. Folders in it .*checkpoint-10"
    ):
        find_source(str(tmp_path / "run"))
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    with pytest.raises(SpecError, match="no adapter_model.safetensors"):
        find_source(str(tmp_path / "adapter"))


def test_a_hub_model_that_cannot_be_had_is_told_so():
    with pytest.raises(
        SpecError, match="organisation/model: no folder .* give the folder of a copy"
    ):
        load_encoder("organisation/model")


def test_other_options_list_their_choices(encoder_folder):
    with pytest.raises(ValueError, match="unknown dtype 'int8'; choose one of: float32"):
        load_encoder(encoder_folder, dtype="int8")
    with pytest.raises(ValueError, match="device 'cuda:99' is not usable here"):
        load_encoder(encoder_folder, device="cuda:99")
    with pytest.raises(ValueError, match="unknown pooling 'max'"):
        load_encoder(encoder_folder, pooling="max")
    with pytest.raises(SpecError, match="bm25 has no vectors"):
        load_encoder("bm25")


@needs_minilm
def test_minilm_is_sentence_transformers_own():
    from sentence_transformers import SentenceTransformer

    ours = load_encoder(MINILM, cache=False).encode(list(TEXTS))
    theirs = SentenceTransformer(str(find_source(MINILM).folder), device="cpu").encode(list(TEXTS))
    cosine = (ours * theirs).sum(1) / np.linalg.norm(theirs, axis=1)
    assert cosine.min() >= 0.99999
    with pytest.raises(SpecError, match="brings its own pooling"):
        load_encoder(MINILM, pooling="last")


def test_the_second_time_comes_from_the_cache(encoder_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("QWEN3NB_CACHE", str(tmp_path / "cache"))
    first = load_encoder(encoder_folder)
    vectors = first.encode(list(TEXTS))
    second = load_encoder(encoder_folder)
    np.testing.assert_array_equal(second.encode(list(TEXTS)), vectors)
    assert (second.stats.encoded, second.stats.cached) == (0, len(TEXTS))
    other = load_encoder(encoder_folder, pooling="last")
    other.encode(list(TEXTS))
    assert other.stats.cached == 0


VECTORS = {text_key(text): np.arange(4, dtype=np.float32) + i for i, text in enumerate("abc")}


def same(found, expected=VECTORS):
    assert found.keys() == expected.keys()
    for key, vector in expected.items():
        np.testing.assert_array_equal(found[key], vector)


def test_the_cache_gives_back_what_it_was_given(tmp_path):
    cache = EmbeddingCache(tmp_path / "a" / "x.sqlite")
    assert cache.get(VECTORS) == {}
    cache.put(VECTORS)
    same(cache.get([*VECTORS, text_key("unknown")]))
    assert len(cache) == 3


def test_a_flipped_byte_is_noticed_and_mended(tmp_path):
    cache = EmbeddingCache(tmp_path / "x.sqlite")
    cache.put(VECTORS)
    key = text_key("b")
    with sqlite3.connect(cache.file) as database:
        (value,) = database.execute("select v from e where k = ?", [key]).fetchone()
        broken = bytes([value[0] ^ 1]) + value[1:]
        database.execute("update e set v = ? where k = ?", [broken, key])
    database.close()
    found = cache.get(VECTORS)
    assert key not in found
    assert cache.damaged == 1
    cache.put({key: VECTORS[key]})
    same(cache.get(VECTORS))


def test_a_file_that_is_no_database_is_moved_aside(tmp_path, caplog):
    file = tmp_path / "x.sqlite"
    file.write_bytes(b"not a database at all" * 500)
    cache = EmbeddingCache(file)
    assert cache.get(VECTORS) == {}
    assert "moved aside" in caplog.text
    assert (tmp_path / "x.sqlite.damaged").is_file()
    cache.put(VECTORS)
    same(cache.get(VECTORS))


def test_a_cut_file_loses_vectors_but_serves_no_wrong_one(tmp_path):
    file = tmp_path / "x.sqlite"
    many = {text_key(str(i)): np.full(2000, i, dtype=np.float32) for i in range(60)}
    cache = EmbeddingCache(file)
    cache.put(many)
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    found = cache.get(many)
    same(found, {key: many[key] for key in found})
    cache.put(many)
    same(cache.get(many), many)


WRITER = """
import sys, numpy as np
from pathlib import Path
from qwen3nb.checkpoints.checkpoint import CheckpointError
from qwen3nb.models.encoders.embedding_cache import EmbeddingCache, text_key
cache = EmbeddingCache(Path(sys.argv[1]))
for i in range(40):
    cache.put({text_key(f"{sys.argv[2]}-{i}"): np.full(8, i, dtype=np.float32)})
"""


@pytest.mark.slow
def test_two_processes_write_at_once(tmp_path):
    file = tmp_path / "x.sqlite"
    command = [sys.executable, "-c", WRITER, str(file)]
    writers = [subprocess.Popen([*command, name]) for name in ("one", "two")]
    assert [writer.wait(60) for writer in writers] == [0, 0]
    assert len(EmbeddingCache(file)) == 80


@pytest.mark.slow
def test_a_kill_costs_no_stored_vector(tmp_path):
    file = tmp_path / "x.sqlite"
    script = WRITER.replace("range(40)", "range(10_000)").replace(
        "dtype=np.float32)})", "dtype=np.float32)}); print(i, flush=True)"
    )
    command = [sys.executable, "-c", script, str(file), "k"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        done = [process.stdout.readline() for _ in range(30)]
        process.kill()
        done += process.stdout.read().splitlines()
    stored = [int(line) for line in done if line.strip().isdigit()]
    keys = {i: text_key(f"k-{i}") for i in stored}
    found = EmbeddingCache(file).get(keys.values())
    assert len(stored) >= 30
    same(found, {key: np.full(8, i, dtype=np.float32) for i, key in keys.items()})


def test_settings_are_json(encoder):
    assert json.loads(json.dumps(encoder.settings)) == encoder.settings


def task(**fields):
    return SimpleNamespace(**{"name": "T", "type": "Retrieval", "prompt": None, **fields})


@pytest.mark.parametrize(
    ("prompts", "role", "about", "expected"),
    [
        ({"query": "q ", "passage": "p "}, "query", None, "q "),
        ({"query": "q "}, "passage", None, ""),
        ({"query": "q "}, None, None, ""),
        ({"query": "q ", "symmetric": "s "}, None, task(type="STS"), "s "),
        ({"query": "q ", "STS": "t "}, None, task(type="STS"), "t "),
        ({"query": "q ", "Retrieval-query": "r "}, "query", task(), "r "),
        ({"query": "q ", "Retrieval-query": "r ", "T": "n "}, "query", task(), "n "),
        ({"T": "n ", "T-query": "m "}, "query", task(), "m "),
        ({"query": "{instruction}: "}, "query", None, "usual: "),
        ({"query": "{instruction}: "}, "query", task(prompt="own"), "own: "),
        ({"query": "{instruction}: "}, "query", task(prompt={"query": "asks"}), "asks: "),
        ({"query": "{instruction}: "}, "query", task(prompt={"document": "is"}), "usual: "),
    ],
)
def test_the_prompt_is_the_most_specific(prompts, role, about, expected):
    assert prompt_for(prompts, role=role, task=about, instruction="usual") == expected


def test_mteb_tasks_reach_the_prompt(encoder_folder, monkeypatch):
    encoder = load_encoder(encoder_folder, cache=False)
    monkeypatch.setattr(encoder, "prompts", {"STS": "similar: "})
    np.testing.assert_array_equal(
        encoder.encode([{"text": ["x"]}], task_metadata=task(type="STS"))[0],
        encoder.encode("similar: x"),
    )


def test_the_registry_says_what_a_baseline_needs():
    for name, entry in registry().items():
        assert re.fullmatch("[0-9a-f]{40}", entry["revision"]), name
        assert entry["licence"]
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", entry["id"])
        assert set(entry) <= {"id", "revision", "licence", "package", "folder", "pooling",
                              "max_length", "prompts", "instruction"}  # fmt: skip
        assert ("{instruction}" in str(entry.get("prompts"))) == ("instruction" in entry)
    assert {"e5-base-v2", "gte-base", "bge-base-en-v1.5", "Qwen3-0.6B", "Qwen3-Embedding-0.6B",
            "embeddinggemma-300m", "t5gemma-2-270m-270m", MINILM} == set(registry())  # fmt: skip
    assert find_source("Qwen3-0.6B").pooling == "mean"


@pytest.fixture(scope="module")
def language_model(tokenizer_folder, tmp_path_factory):
    """A tiny Qwen3 language model with its tokenizer."""
    from transformers import Qwen3Config, Qwen3ForCausalLM, set_seed

    set_seed(0)
    config = Qwen3Config(vocab_size=448, hidden_size=16, intermediate_size=16, num_hidden_layers=2,
                         num_attention_heads=2, num_key_value_heads=1, head_dim=8,
                         initializer_range=0.3)  # fmt: skip
    folder = tmp_path_factory.mktemp("models") / "lm"
    Qwen3ForCausalLM(config).save_pretrained(folder)
    for file in tokenizer_folder.iterdir():
        shutil.copyfile(file, folder / file.name)
    return folder


def test_a_language_model_is_causal_unless_asked_otherwise(language_model, encoder_folder):
    options = {"pooling": "cls", "cache": False}
    causal = load_encoder(language_model, **options)
    both = load_encoder(language_model, bidirectional=True, **options)
    assert (causal.settings["causal"], both.settings["causal"]) == (True, False)
    assert causal.identity != both.identity
    # The first token of a causal model sees nothing of what follows.
    one, other = "Return the largest element", "Return the smallest thing"
    assert np.abs(causal.encode(one) - causal.encode(other)).max() < 1e-6
    assert np.abs(both.encode(one) - both.encode(other)).max() > 1e-4
    with pytest.raises(SpecError, match="bidirectional is for causal language models"):
        load_encoder(encoder_folder, bidirectional=True)


def test_a_model_with_missing_weights_is_refused(language_model, tmp_path):
    from safetensors.torch import load_file, save_file

    folder = shutil.copytree(language_model, tmp_path / "holes")
    tensors = load_file(folder / "model.safetensors")
    wrapped = {f"module.{name}": tensor for name, tensor in tensors.items()}
    save_file(wrapped, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SpecError, match=r"tensors missing\), which would be random"):
        load_encoder(folder, pooling="mean", cache=False)


@pytest.mark.parametrize("kind", ["t5", "t5gemma2"])
def test_encoders_of_other_encoder_decoders(kind, tokenizer_folder, tmp_path):
    import torch
    from transformers import AutoModel, T5Config, T5Gemma2Config, T5Gemma2Model, T5Model

    small = {
        "vocab_size": 448,
        "hidden_size": 32,
        "intermediate_size": 64,
        "head_dim": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "sliding_window": 16,
        "query_pre_attn_scalar": 8,
        "max_position_embeddings": 128,
    }
    eyes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
            "num_attention_heads": 2, "image_size": 28, "patch_size": 14}  # fmt: skip
    if kind == "t5":
        model = T5Model(T5Config(vocab_size=448, d_model=32, d_kv=8, d_ff=64, num_layers=2,
                                 num_heads=4))  # fmt: skip
    else:
        seeing = {"text_config": small, "vision_config": eyes, "mm_tokens_per_image": 4}
        model = T5Gemma2Model(T5Gemma2Config(encoder=seeing, decoder=dict(small)))
    model.save_pretrained(tmp_path / kind)
    for file in tokenizer_folder.iterdir():
        shutil.copyfile(file, tmp_path / kind / file.name)
    assert find_source(str(tmp_path / kind)).kind == "t5"
    encoder = load_encoder(tmp_path / kind, pooling="mean", cache=False)
    assert encoder.dimension == 32
    vectors = encoder.encode([*TEXTS, "a"])
    stock = AutoModel.from_pretrained(tmp_path / kind).eval().get_encoder()
    for text, vector in zip([*TEXTS, "a"], vectors, strict=True):
        ids = torch.tensor([encoder._tokenise([text])[0]])
        with torch.inference_mode():
            states = stock(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        mean = torch.nn.functional.normalize(states[0].mean(0), dim=0)
        np.testing.assert_allclose(vector, mean.numpy(), atol=1e-5)


def test_weights_of_later_modules_are_part_of_the_identity(encoder_folder, tmp_path):
    import torch
    from safetensors.torch import save_file

    found = []
    for value in (1.0, 2.0):
        folder = shutil.copytree(encoder_folder, tmp_path / str(value))
        (folder / "2_Dense").mkdir()
        save_file(
            {"linear.weight": torch.full((2, 2), value)}, folder / "2_Dense/model.safetensors"
        )
        found.append(fingerprint(find_source(str(folder))))
    assert found[0] != found[1]
    assert found[0]["weights"] == found[1]["weights"]
