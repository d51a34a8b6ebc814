"""Evaluators of sentence-transformers and langchain accept an encoder, and see the same vectors."""

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import evaluation

import qwen3nb as q

FIRST, SECOND = ["a cat", "a dog", "sort a list"], ["the cat", "quick sort", "a sorted list"]
QUERIES, CORPUS = {"1": "sort a list", "2": "cat"}, {"x": "lists are sorted", "y": "a cat sat"}
SAMPLES = [{"query": "sort a list", "positive": ["lists are sorted"], "negative": ["cars"]}]
EVALUATORS = {
    "sts": lambda: evaluation.EmbeddingSimilarityEvaluator(FIRST, SECOND, [0.9, 0.1, 0.8]),
    "sts of 8 bits": lambda: evaluation.EmbeddingSimilarityEvaluator(
        FIRST, SECOND, [0.9, 0.1, 0.8], precision="ubinary"
    ),
    "sts of 16 dimensions": lambda: evaluation.EmbeddingSimilarityEvaluator(
        FIRST, SECOND, [0.9, 0.1, 0.8], truncate_dim=16
    ),
    "retrieval": lambda: evaluation.InformationRetrievalEvaluator(
        QUERIES, CORPUS, {"1": {"x"}, "2": {"y"}}
    ),
    "pairs": lambda: evaluation.BinaryClassificationEvaluator(FIRST, SECOND, [1, 0, 1]),
    "triplets": lambda: evaluation.TripletEvaluator(FIRST, SECOND, SECOND[::-1]),
    "reranking": lambda: evaluation.RerankingEvaluator(SAMPLES),
    "mining": lambda: evaluation.ParaphraseMiningEvaluator(CORPUS, [("x", "y")]),
}


@pytest.fixture(scope="module")
def ours_and_theirs(encoder_folder):
    ours = q.load_encoder(encoder_folder, cache=False, show_progress=False)
    return ours, SentenceTransformer(str(encoder_folder), device="cpu")


@pytest.mark.parametrize("name", EVALUATORS)
def test_an_evaluator_gives_the_scores_of_the_same_folder(name, ours_and_theirs):
    scores, expected = (EVALUATORS[name]()(model) for model in ours_and_theirs)
    assert scores == pytest.approx(expected, abs=1e-5)


def test_langchain_embeds_with_the_prompts_of_the_roles(ours_and_theirs):
    ours, _ = ours_and_theirs
    prompted = ours.prompted({"query": "find: ", "passage": "text: "})
    assert prompted.embed_query("a cat") == prompted.encode("find: a cat", prompt="").tolist()
    documents = prompted.embed_documents(FIRST)
    assert np.array_equal(documents, ours.encode(["text: " + text for text in FIRST], prompt=""))
    with pytest.raises(ValueError, match="unknown prompt_name 'quest'; choose one of: "):
        prompted.encode("a cat", prompt_name="quest")
