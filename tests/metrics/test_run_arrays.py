import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.metrics.retrieval import rank_documents, ranking, score_run
from qwen3nb.metrics.run_arrays import RunBuilder

NAMES = st.text("abé1", min_size=1, max_size=3)
SCORES = st.dictionaries(NAMES, st.sampled_from([0.0, -0.0, 1.0, 1 + 1e-12, -3.5, 2e-40, 1e300]))
RUNS = st.dictionaries(NAMES, SCORES, max_size=4)


def built(run):
    builder = RunBuilder()
    for query, scores in run.items():
        builder.add(query, scores)
    return builder.run()


@settings(max_examples=60, deadline=None)
@given(RUNS)
def test_arrays_are_read_like_the_dictionaries_they_hold(run):
    arrays = built(run)
    assert arrays == run
    assert [(query, list(scores.items())) for query, scores in arrays.items()] == [
        (query, list(scores.items())) for query, scores in run.items()
    ]
    with np.errstate(over="ignore"):
        for query, scores in run.items():
            assert ranking(arrays, query) == rank_documents(scores)
            assert ranking(arrays, query, 2) == rank_documents(scores)[:2]
            assert arrays.by_name().listed(query) == sorted(scores)
        qrels = {query: dict.fromkeys([*scores, "x"], 1) for query, scores in run.items()}
        qrels["missing"] = {"a": 1}
        metrics = ["nDCG@10", "MRR@1", "Recall@2"]
        assert score_run(qrels, arrays, metrics) == score_run(qrels, run, metrics)
    assert arrays.by_name() == run
    assert arrays.retrieved() == sorted({name for scores in run.values() for name in scores})
    wanted = [*reversed(run), "missing"]
    assert list(arrays.of_queries(wanted).items()) == [(q, run.get(q, {})) for q in wanted]


def test_rows_of_a_query_need_not_be_together():
    builder = RunBuilder()
    builder.add_rows(["q1", "q2", "q1"], ["b", "b", "a"], [1.0, 2.0, 3.0])
    assert builder.run() == {"q1": {"b": 1.0, "a": 3.0}, "q2": {"b": 2.0}}
    assert RunBuilder().run() == {}


def test_a_score_that_is_not_finite_is_named():
    arrays = replace(built({"q": {"b": 1.0, "a": 2.0}}), scores=np.array([1.0, math.nan]))
    with pytest.raises(ValueError, match="query 'q': document 'a': expected a finite score; got n"):
        score_run({"q": {"a": 1}}, arrays, ["MRR@1"])
