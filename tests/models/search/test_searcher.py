"""A searcher is one file: the handbook's example in every door."""

import json

import numpy as np
import pytest
from helpers.beir import write_beir
from helpers.handbook import example
from hypothesis import given
from hypothesis import strategies as st

from qwen3nb.datasets.collection import find_collections
from qwen3nb.datasets.custom.load import load_domain
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.evaluation.mteb.plan import measure_speeds
from qwen3nb.evaluation.retrieval.first_stage import first_stage
from qwen3nb.evaluation.retrieval.rerank import rerank
from qwen3nb.metrics.retrieval import score_run
from qwen3nb.models.capabilities import encodes, is_model, scores_pairs, searches
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.search.exact import boosted
from qwen3nb.models.search.searcher import PairSearcher


@pytest.fixture
def overlap():
    """The searcher whose text CONTRIBUTING shows."""
    text = example('"""Searches by the share')
    module = {"__name__": "overlap"}
    exec(text, module)  # noqa: S102 - our own text
    return module["Overlap"]


def share(query, document, shortest=3):
    """The share of a query's words in a document, by hand; None for none."""
    words = {word for word in query.lower().split() if len(word) >= shortest}
    found = words & set(document.lower().split())
    return len(found) / len(words) if found else None


def shares(queries, documents):
    run = {}
    for query, text in queries.items():
        scores = {name: share(text, document) for name, document in documents.items()}
        run[query] = {name: score for name, score in scores.items() if score is not None}
    return run


def test_a_searcher_of_the_handbook_searches_a_folder(overlap, tmp_path):
    data = write_beir(tmp_path / "beir")
    (collection,) = find_collections(data)
    run = evaluate(overlap(), data, output=tmp_path / "r", show_progress=False)
    (record,) = run.results
    expected = score_run(
        collection.qrels, shares(collection.queries, collection.documents), ["nDCG@10"]
    )
    np.testing.assert_allclose(
        list(record.per_query["nDCG@10"].values()), list(expected["nDCG@10"].values())
    )
    again = evaluate(overlap(), data, output=tmp_path / "r", show_progress=False)
    assert again.reused == ("beir",)
    other = evaluate(overlap(shortest=5), data, output=tmp_path / "r", show_progress=False)
    assert other.reused == ()  # another identity


def test_it_runs_on_own_data_as_a_first_stage_and_as_a_reranker(overlap, tmp_path):
    data = write_beir(tmp_path / "beir")
    (collection,) = find_collections(data)
    by_hand = shares(collection.queries, collection.documents)
    stage = first_stage(collection, overlap(), depth=5)
    for query, scores in by_hand.items():
        best = sorted(scores.values(), reverse=True)[:5]
        found = sorted(stage.run[query].values(), reverse=True)
        np.testing.assert_allclose(found, best, rtol=1e-6)
    (record,) = rerank(overlap(), data, depth=5, output=tmp_path / "r", show_progress=False)
    assert record.task.type == "Reranking"
    queries = tmp_path / "queries.toml"
    lines = ['[[queries]]\nid = "q"\nquery = "sort rows"\nrelevance_grades = { d0 = 3 }\n']
    queries.write_text("".join(lines))
    documents = tmp_path / "documents.jsonl"
    texts = ["sort all rows", "sort", "nothing"]
    rows = [json.dumps({"id": f"d{n}", "text": text}) for n, text in enumerate(texts)]
    documents.write_text("\n".join(rows))
    (own,) = evaluate(
        overlap(), load_domain(queries, documents), output=tmp_path / "r", show_progress=False
    )
    assert own.top == {"q": ["d0", "d1"]}
    assert own.metrics["MRR@10"].value == 1


def test_it_is_planned_like_any_search_model(overlap):
    (speed,) = measure_speeds(overlap())
    assert speed.seconds[-1] > 0
    assert not encodes(overlap())
    assert searches(overlap())
    assert scores_pairs(overlap())


def test_what_a_model_can_do_is_asked_of_its_class():
    bm25, encoder = load_model("bm25"), load_encoder("random", show_progress=False)
    assert (encodes(bm25), searches(bm25), scores_pairs(bm25)) == (False, True, False)
    assert (encodes(encoder), searches(encoder), scores_pairs(encoder)) == (True, False, False)
    assert is_model(bm25)
    assert is_model(encoder)
    assert not is_model("bm25")
    assert not is_model(object())


class Table(PairSearcher):
    """Scores from a table: row by query, column by document."""

    def __init__(self, table, block):
        super().__init__("table", settings={})
        self.table, self.block_size = np.asarray(table, dtype=np.float64), block

    def block_scores(self, queries, documents):
        return self.table[np.ix_([int(q) for q in queries], [int(d) for d in documents])]


@given(
    st.lists(st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=6, max_size=6), min_size=1),
    st.integers(1, 7),
    st.integers(1, 7),
)
def test_any_block_gives_the_best_with_their_ties(table, block, k):
    """By sorting the whole table; boosts divide what is negative."""
    boosts = np.array([1.0, 2.0, 0.5, 1.0, 1.0, 3.0])
    searcher = Table(table, block)
    queries, documents = [str(n) for n in range(len(table))], list("012345")
    plain = searcher.best_documents(queries, documents, k=k)
    ties = searcher.best_documents(queries, documents, k=k, boosts=boosts, keep_ties=True)
    for row, scores in enumerate(searcher.table):
        order = np.argsort(-scores, kind="stable")[: min(k, 6)]
        np.testing.assert_array_equal(plain.ids[row], order)
        whole = boosted(scores, boosts)
        least = np.sort(whole)[::-1][min(k, 6) - 1]
        found = ties.ids[row][ties.ids[row] >= 0]
        assert set(found) == set(np.flatnonzero(whole >= least))
