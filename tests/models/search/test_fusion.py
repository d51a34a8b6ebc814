from collections import Counter

import pytest

from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.models.load import load_encoder, load_model
from qwen3nb.models.search.fusion import Fusion, fuse
from qwen3nb.records.store import verify


def test_reciprocal_ranks_by_hand():
    runs = [{"q": {"a": 9.0, "b": 1.0}}, {"q": {"b": 0.5}, "r": {"c": 1.0}}]
    assert fuse(runs) == {
        "q": {"a": pytest.approx(1 / 61), "b": pytest.approx(1 / 62 + 1 / 61)},
        "r": {"c": pytest.approx(1 / 61)},
    }


class Ranking:
    """A search that gives documents in one order, and notes what it was asked."""

    def __init__(self, order):
        self.order, self.asked, self.label = order, [], order

    def index(self, corpus, **options):
        self.asked.append((corpus, options))

    def search(self, queries, *, top_k, **options):
        self.asked.append((top_k, options))
        scores = {name: float(9 - rank) for rank, name in enumerate(self.order[:top_k])}
        return {"q": scores}


def test_each_part_searches_twice_as_deep_and_the_best_are_kept():
    """2 / 63 for c, third in both, beats 1 / 61 for a and e, of which ties take the later name."""
    parts = [Ranking("abcx"), Ranking("efcy")]
    model = Fusion.__new__(Fusion)
    model._searchers = model._parts = parts
    model.nothing = Counter()
    model.index(["row"], task_metadata="task")
    run = model.search([{"id": "q"}], top_k=2, top_ranked=None)
    assert run == {"q": {"c": pytest.approx(2 / 63), "e": pytest.approx(1 / 61)}}
    assert list(run["q"]) == ["c", "e"]
    for part in parts:
        assert part.asked == [(["row"], {"task_metadata": "task"}), (4, {"top_ranked": None})]


@pytest.mark.integration
def test_a_fusion_runs_mteb_tasks_as_one_model():
    spec = "bm25+random:16"
    model = load_model(spec, cache=False, show_progress=False)
    assert model.label == "bm25-plus-random-16"
    assert model.identity != load_model(spec, seed=1).identity
    names = "PyDocsSampleRetrieval,PyDocsSampleReranking,AuthorSTS"
    run = evaluate(model, tasks=names, show_progress=False)
    assert {result.task.name for result in run.results} == set(names.split(",")[:2])
    assert run.skipped == {"AuthorSTS": "bm25-plus-random-16 has no vectors"}
    assert all(verify(result) == [] for result in run.results)
    alone = evaluate(load_model("bm25"), tasks=names, show_progress=False).results[0]
    assert run.results[0].main.value != alone.main.value
    assert run.results[0].main.value > 0.1  # random documents would be near 0.01
    with pytest.raises(ValueError, match="has no vectors; load_model"):
        load_encoder(spec)
    with pytest.raises(ValueError, match="no model 'nothing'"):
        load_model("bm25+nothing")
