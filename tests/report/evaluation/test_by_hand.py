"""One query by hand, with texts from the task that was evaluated."""

import pytest

from qwen3nb.datasets.pydocs.mteb_tasks import embedded_task
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.models.load import load_model
from qwen3nb.report.evaluation.by_hand import query_table, shortened, typical_query


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    """bm25, its task and its record, on sixteen queries."""
    model, task = load_model("bm25"), embedded_task("PyDocsSampleRetrieval")
    run = evaluate(
        model, tasks=[task], limit=16, output=tmp_path_factory.mktemp("r"), show_progress=False
    )
    return model, task, run.results


def test_the_query_nearest_to_the_mean_is_typical():
    assert typical_query({"b": 0.4, "a": 0.6, "c": 1.0, "d": 0.0}) == "a"  # both are 0.1 away
    assert shortened("a\n b " + "x" * 300) == "a b " + "x" * 115 + "…"


def test_the_rank_by_hand_is_the_rank_in_the_record(searched):
    """MRR@10 of the record follows from the ranks that the table shows, for every query."""
    model, task, results = searched
    ndcg, mrr = (results[0].per_query[name] for name in ("nDCG@10", "MRR@10"))
    for query in ("", *sorted(mrr)[:6]):
        table = query_table(model, [task], results, query=query, limit=16)
        query = query or typical_query(ndcg)
        assert f"Query {query}: " in table.caption
        assert f"nDCG@10 {ndcg[query]:.3f}" in table.caption
        relevant = [row for row in table.rows if row[1].strong]
        assert {row[3].text for row in relevant} == {"relevant"}
        ranks = [int(row[0].text) for row in relevant if row[0].text.isdigit()]
        best = min(ranks, default=99)
        assert (1 / best if best <= 10 else 0.0) == pytest.approx(mrr[query])
    with pytest.raises(ValueError, match="unknown query 'nope' of PyDocsSampleRetrieval-limit16"):
        query_table(model, [task], results, query="nope", limit=16)


def test_nothing_is_shown_without_a_search_or_its_task(searched):
    model, task, results = searched
    assert query_table(model, [task], [], limit=16) is None
    assert query_table(model, [], results, limit=16) is None
    assert query_table(model, [task], results, limit=0) is None  # other data than the record's
