"""Names and calls as the design documents write them; the oracles are libraries and numpy."""

import shutil
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from helpers.study import with_small_pydocs
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoTokenizer, BertConfig, BertModel

import qwen3nb as q
from qwen3nb.checkpoints.types import CheckpointError
from qwen3nb.metrics.aggregate import Aggregate

FIRST = ["a cat sits", "rain falls on the town", "sort a list", "a long text about nothing at all"]
SECOND = ["a dog sits", "the sun", "order the items of a list", "another text"]
GOLD = [3.0, 0.5, 4.5, 2.0]
ROWS = [
    {"sentence1": one, "sentence2": other, "score": score}
    for one, other, score in zip(FIRST, SECOND, GOLD, strict=True)
]


@pytest.fixture
def collection():
    documents = {f"d{n}": text for n, text in enumerate([*FIRST, *SECOND])}
    queries = {"q0": "list of items", "q1": "the weather"}
    return q.TestCollection.from_texts(queries, documents, {"q0": ["d6"], "q1": ["d1", "d5"]})


def test_scores_have_the_names_of_the_documents_and_compare_with_numbers(encoder_folder):
    scores = q.evaluate_sts(str(encoder_folder), (FIRST, SECOND, GOLD))
    assert (scores.num_samples, scores.dataset_name) == (4, "custom")
    value = scores.spearman.value
    assert (scores.spearman > value - 0.01, scores.spearman > value) == (True, False)
    assert (scores.spearman >= value, scores.spearman < 2, scores.spearman <= -2) == (
        True,
        True,
        False,
    )
    assert f"{scores.spearman:.3f}" == f"{value:.3f}"
    assert float(scores.pearson) == scores.pearson.value
    undefined = Aggregate(None, None, None, 3, "spearman", ("a", "b"), "a column is constant")
    with pytest.raises(ValueError, match="undefined \\(a column is constant\\)"):
        undefined > 0.75  # noqa: B015 - the comparison raises


def test_a_plain_model_and_its_tokenizer_are_scored_as_sentence_transformers_does(encoder_folder):
    theirs = SentenceTransformer(str(encoder_folder), device="cpu")
    one, other = (theirs.encode(texts, prompt="") for texts in (FIRST, SECOND))
    cosines = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    model = AutoModel.from_pretrained(encoder_folder)
    scores = q.evaluate_sts(
        (model, AutoTokenizer.from_pretrained(encoder_folder)), (FIRST, SECOND, GOLD)
    )
    assert list(scores.per_query["cosine"].values()) == pytest.approx(cosines.tolist(), rel=1e-5)
    assert scores.spearman.value == pytest.approx(spearmanr(cosines, GOLD).statistic)


@pytest.mark.parametrize("pooling", ["cls", "mean", "lasttoken"])
def test_a_model_without_a_pooling_of_its_own_is_pooled_as_its_folder_says(
    tmp_path, tokenizer_folder, pooling
):
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    small = BertConfig(
        vocab_size=len(tokenizer), intermediate_size=32, max_position_embeddings=64, **sizes
    )
    BertModel(small).save_pretrained(tmp_path / "bert")
    tokenizer.model_max_length = 64
    tokenizer.save_pretrained(tmp_path / "bert")
    parts = [Transformer(str(tmp_path / "bert")), Pooling(16, pooling_mode=pooling)]
    theirs = SentenceTransformer(modules=parts, device="cpu")
    theirs.save_pretrained(str(tmp_path / "whole"))
    pair = (AutoModel.from_pretrained(tmp_path / "whole"), tokenizer)
    scores = q.evaluate_sts(pair, ROWS)
    one, other = (theirs.encode(texts) for texts in (FIRST, SECOND))
    cosines = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    assert list(scores.per_query["cosine"].values()) == pytest.approx(cosines.tolist(), rel=1e-4)


@pytest.mark.parametrize("rows", [ROWS, pd.DataFrame(ROWS)], ids=["dictionaries", "data frame"])
def test_rows_are_pairs_in_either_order_of_the_arguments(encoder_folder, rows):
    expected = q.evaluate_sts(str(encoder_folder), (FIRST, SECOND, GOLD)).per_query
    assert q.evaluate_sts(str(encoder_folder), rows).per_query == expected
    assert q.evaluate_sts(rows, str(encoder_folder)).per_query == expected


@pytest.mark.parametrize("named", [True, False], ids=["prefixes", "prompts"])
def test_an_object_with_encode_gets_the_prefixes(home, collection, named):
    seen = []

    def encode(texts):
        seen.extend(texts)
        return np.random.default_rng(0).normal(size=(len(texts), 8))

    prefixes = {"query_prefix": "query: ", "doc_prefix": "passage: "}
    prompts = {"prompts": {"query": "query: ", "passage": "passage: "}}
    run = q.evaluate(
        SimpleNamespace(encode=encode),
        collection,
        label="mine",
        show_progress=False,
        **(prefixes if named else prompts),
    )
    assert {text for text in seen if text.startswith("query: ")} == {
        "query: list of items",
        "query: the weather",
    }
    assert {text for text in seen if text.startswith("passage: ")} >= {
        f"passage: {text}" for text in FIRST
    }
    assert run.results[0].model.settings["prompts"] == {"query": "query: ", "passage": "passage: "}


def test_prefixes_give_the_scores_of_the_same_model_by_its_spec(home, collection, encoder_folder):
    prefixes = {"query_prefix": "query: ", "doc_prefix": "passage: ", "show_progress": False}
    by_spec = q.evaluate(str(encoder_folder), collection, **prefixes)
    by_object = q.evaluate(
        SentenceTransformer(str(encoder_folder), device="cpu"), collection, label="x", **prefixes
    )
    first, second = by_spec.results[0], by_object.results[0]
    assert first.main.value == pytest.approx(second.main.value, abs=1e-9)
    plain = q.evaluate(str(encoder_folder), collection, show_progress=False)
    assert plain.results[0].model.identity != first.model.identity


def test_types_select_tasks_of_the_tier(home, caplog, monkeypatch):
    with_small_pydocs(monkeypatch)
    run = q.evaluate("bm25", types=["Retrieval", "Summarization"], show_progress=False)
    assert list(run.results.tasks) == ["PyDocsSampleRetrieval"]
    assert "no task of the types Summarization" in caplog.text
    run = q.evaluate("random", types=["Retrieval", "STS"], show_progress=False)
    assert set(run.results.tasks) == {"PyDocsSampleRetrieval", "AuthorSTS"}
    for types, message in (
        (["Summarization"], "no task of the types"),
        ("Retreival", "Retrieval"),
    ):
        with pytest.raises(ValueError, match=message):
            q.evaluate("bm25", types=types, show_progress=False)
    with pytest.raises(ValueError, match="either data, or types"):
        q.evaluate("bm25", "folder", types="STS")


def test_the_configuration_has_the_base_of_its_positions(tmp_path):
    assert q.Qwen3EncoderConfig().rope_theta == 1e6
    config = q.Qwen3EncoderConfig(rope_theta=5e5)
    assert config.rope_theta == config.rope_parameters["rope_theta"] == 5e5
    config.save_pretrained(tmp_path)
    assert q.Qwen3EncoderConfig.from_pretrained(tmp_path).rope_theta == 5e5
    assert "rope_theta" not in config.to_dict()


def test_whether_sentence_transformers_loads_a_folder(encoder_folder, tmp_path, caplog):
    assert q.verify_sentence_transformers_loading(encoder_folder) is True
    assert not caplog.messages
    bare = shutil.copytree(encoder_folder, tmp_path / "bare")
    (bare / "modules.json").unlink()
    assert q.verify_sentence_transformers_loading(bare) is False
    assert "no modules.json" in caplog.messages[-1]
    cut = shutil.copytree(encoder_folder, tmp_path / "cut")
    (cut / "model.safetensors").write_bytes(b"")
    assert q.verify_sentence_transformers_loading(cut) is False
    assert q.verify_sentence_transformers_loading(tmp_path / "nowhere") is False


def test_checkpoints_by_a_pattern(tmp_path):
    for name in ("checkpoint-10", "checkpoint-step-5", "checkpoint-best"):
        (tmp_path / name).mkdir()
    names = [folder.name for folder in q.list_checkpoints(tmp_path, pattern="checkpoint-*")]
    assert names == ["checkpoint-step-5", "checkpoint-10"]
    assert [f.name for f in q.list_checkpoints(tmp_path, "checkpoint-step-*")] == names[:1]
    with pytest.raises(CheckpointError, match="that match 'step-\\*'"):
        q.list_checkpoints(tmp_path, pattern="step-*")
