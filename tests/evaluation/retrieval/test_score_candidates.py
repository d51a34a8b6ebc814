"""Scores of candidates, by a stand-in for a reranker that counts what it was given."""

import numpy as np
import pytest

from qwen3nb.datasets.collection import TestCollection
from qwen3nb.evaluation.retrieval.rerank import score_candidates
from qwen3nb.metrics.run_arrays import RunBuilder
from qwen3nb.models.rerankers.yes_no import RerankScores, RerankStats
from qwen3nb.utils.files.journal import Journal

QUERIES = {f"q{i}": "long " * (i % 3) + f"query {i}" for i in range(7)}
DOCUMENTS = {f"d{i}": f"text {i}" for i in range(9)}


class StandIn:
    label = "stand-in"

    def __init__(self):
        self.stats, self.scored = RerankStats(), []

    def score(self, query, documents):
        self.scored.append(query)
        self.stats.queries_cut += query.startswith("long")
        self.stats.cut += len(documents)
        values = np.array([len(query) * 1.25 - int(text[-1]) / 3 for text in documents])
        return RerankScores(values, values, values > 0)

    def query_length(self, query):
        return len(query)


@pytest.fixture
def first():
    builder = RunBuilder()
    for i, query in enumerate(QUERIES):
        builder.add(query, {f"d{(i * j) % 9}": -float(j) for j in range(i)})
    return builder.run()


@pytest.fixture
def collection():
    return TestCollection("words", DOCUMENTS, QUERIES, {query: {"d1": 1} for query in QUERIES})


def test_scores_counts_and_the_longest_query(first, collection, tmp_path):
    journal = Journal(tmp_path / "j.jsonl")
    run, counts, longest = score_candidates(
        StandIn(), collection, first, journal=journal, show_progress=False
    )
    assert run["q2"] == {"d0": 17 * 1.25, "d2": 17 * 1.25 - 2 / 3}
    assert {q: set(scores) for q, scores in run.items()} == {
        q: set(scores) for q, scores in first.items()
    }
    assert counts["pairs"] == counts["cut"] == len(first.scores)
    assert longest == {"query": "q2", "tokens": len(QUERIES["q2"])}  # the first of equals


def test_what_the_journal_has_is_not_scored_again(first, collection, tmp_path):
    journal, model = Journal(tmp_path / "j.jsonl"), StandIn()
    options = {"journal": journal, "show_progress": False}
    part = first.of_queries(list(first)[:4])
    score_candidates(model, collection, part, **options)
    whole = score_candidates(model, collection, first, **options)
    assert len(model.scored) == len(QUERIES)
    alone = score_candidates(StandIn(), collection, first, **options, fresh=True)
    assert whole == alone
