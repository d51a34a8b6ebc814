import copy
import json
import math
import pickle
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import pytrec_eval
from helpers.handbook import example
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.metrics import retrieval
from qwen3nb.metrics.retrieval import (
    METRICS,
    Measure,
    rank_documents,
    ranking,
    score_rankings,
    score_run,
)
from qwen3nb.metrics.run_arrays import RunBuilder

ORACLE = {
    "nDCG@10": "ndcg_cut_10",
    "Recall@10": "recall_10",
    "P@10": "P_10",
    "MAP@100": "map_cut_100",
}


GRADED, ODD = {"a": 2, "b": 1, "c": 1}, {"a": 3, "b": 1, "c": 0}
LATE = {"b": 0.9, "x": 0.8, "a": 0.7}  # grades 1, 0, 2
FOUR = {"x": 4.0, "a": 3.0, "y": 2.0, "b": 1.0}
LAST = {"x": 4.0, "c": 3.0, "b": 2.0, "a": 1.0}
ABCD, THREE = dict.fromkeys("abcd", 1), {"a": 3.0, "x": 2.0, "b": 1.0}
LOG3, LOG4, LOG5 = math.log2(3), math.log2(4), math.log2(5)


@pytest.mark.parametrize(
    ("qrels", "run", "metric", "value"),
    [
        (GRADED, LATE, "nDCG@10", (1 + 2 / LOG4) / (2 + 1 / LOG3 + 1 / LOG4)),
        (dict.fromkeys("abc", 1), FOUR, "MRR@10", 1 / 2),
        (dict.fromkeys("abc", 1), FOUR, "MRR@1", 0),
        (dict.fromkeys("abc", 1), FOUR, "Recall@2", 1 / 3),
        (dict.fromkeys("abc", 1), FOUR, "P@4", 2 / 4),
        (dict.fromkeys("abc", 1), FOUR, "MAP@10", (1 / 2 + 2 / 4) / 3),
        (ODD, LAST, "Hit@2", 0),
        (ODD, LAST, "Hit@3", 1),
        (ODD, LAST, "Judged@2", 0.5),
        (ODD, LAST, "Judged@10", 0.75),
        # Grades below 0 are judgements, as 0 is.
        ({"a": -1, "b": 1}, {"a": 2.0, "b": 1.0}, "Judged@2", 1),
        ({"a": -4, "b": 1}, {"a": 2.0, "b": 1.0}, "nDCG@10", 1 / LOG3),
        (ODD, LAST, "nDCGexp@10", (1 / LOG4 + 7 / LOG5) / (7 + 1 / LOG3)),
        # Of four relevant documents, retrieved at ranks 1 and 3:
        (ABCD, THREE, "MAP@2", 1 / 4),  # divided by all that are relevant
        (ABCD, THREE, "MAP@3", (1 + 2 / 3) / 4),
        (ABCD, THREE, "Recall@2", 1 / 4),
        (ABCD, THREE, "Recall@3", 2 / 4),
        (ABCD, THREE, "P@10", 2 / 10),  # by k, where fewer are retrieved
        (ABCD, THREE, "P@2", 1 / 2),
        (ABCD, THREE, "MRR@1", 1),
        (ABCD, THREE, "Judged@10", 2 / 3),
        (ABCD, THREE, "nDCG@2", 1 / (1 + 1 / LOG3)),
        (ABCD, THREE, "nDCG@3", (1 + 1 / 2) / (1 + 1 / LOG3 + 1 / 2)),
    ],
)
def test_metrics_by_hand(qrels, run, metric, value):
    assert score_run({"q": qrels}, {"q": run}, [metric])[metric]["q"] == pytest.approx(value)


def test_a_measure_is_its_name():
    measure = Measure("nDCG@10")
    assert {measure: 1} == {"nDCG@10": 1}
    assert (f"{measure}", json.dumps(measure)) == ("nDCG@10", '"nDCG@10"')
    for copied in (pickle.loads(pickle.dumps(measure)), copy.deepcopy(measure)):  # noqa: S301
        assert (copied, copied.metric, copied.depth) == (measure, "nDCG", 10)


def test_a_query_without_a_relevant_document_has_no_score():
    assert score_run({"q": {"a": 0}, "r": {"a": -1}}, {"q": {"a": 1.0}}) == {"nDCG@10": {}}


SCORES = st.floats(-3, 3, width=16) | st.sampled_from([0.0, -0.0, 1.0, 1.0 + 1e-12, 1e300, 2e300])


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.text("ab", max_size=4), SCORES))
def test_documents_rank_by_32_bit_score_then_by_id(scores):
    with np.errstate(over="ignore"):
        keys = {name: (float(np.float32(score)), name) for name, score in scores.items()}
    assert rank_documents(scores) == sorted(scores, key=lambda name: keys[name], reverse=True)


@pytest.mark.parametrize("score", [math.nan, math.inf])
def test_a_score_that_is_no_number_is_refused_with_its_place(score):
    arrays = replace(built({"q": {"d": 1.0}}), scores=np.array([score]))
    for run in (arrays, {"q": {"d": score}}):
        with pytest.raises(ValueError, match="query 'q': document 'd': expected a finite score"):
            score_run({"q": {"d": 1}}, run)


@pytest.mark.parametrize("name", ["ndcg@10", "nDCG", "nDCG@0", "hits@3"])
def test_an_unknown_metric_lists_the_choices(name):
    with pytest.raises(ValueError, match=r"unknown metric .*nDCG, MRR, Recall, P, MAP"):
        score_run({}, {}, [name])


DOCUMENTS = st.sampled_from([f"d{i}" for i in range(14)] + ["é", "日本", "a b", "Z", "~"])
GRADES = st.dictionaries(DOCUMENTS, st.integers(0, 3), min_size=1, max_size=12)
SCORES = st.dictionaries(DOCUMENTS, st.sampled_from([0.0, 0.25, 0.5, 1.0, -1.0]), max_size=15)


@given(
    qrels=st.dictionaries(st.sampled_from("uvw"), GRADES, min_size=1),
    run=st.dictionaries(st.sampled_from("uvw"), SCORES),
)
@settings(deadline=None, max_examples=60)
def test_equal_to_pytrec_eval_with_ties_grades_and_missing_queries(qrels, run):
    ours = score_run(qrels, run, [*ORACLE, "MRR@10"])
    judged = {query: grades for query, grades in qrels.items() if any(grades.values())}
    answered = {query: scores for query, scores in run.items() if scores}
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, set(ORACLE.values()) | {"recip_rank"})
    theirs = evaluator.evaluate(answered)
    for name, measure in ORACLE.items():
        expected = {q: theirs.get(q, {}).get(measure, 0.0) for q in judged}
        assert ours[name] == pytest.approx(expected, abs=1e-9)
    for query in judged:
        # trec_eval's reciprocal rank is not cut off at 10.
        full = theirs.get(query, {}).get("recip_rank", 0.0)
        assert ours["MRR@10"][query] == pytest.approx(full if full >= 0.1 else 0.0)


def test_ranked_lists_by_hand():
    values = score_rankings([[7, 3, 5], [4, 2], []], [{3, 5}, [4], {1}])
    assert values["MRR@10"] == pytest.approx((1 / 2 + 1 + 0) / 3)
    assert values["Recall@1"] == pytest.approx((0 + 1 + 0) / 3)
    assert values["Recall@100"] == pytest.approx(2 / 3)
    ideal = 1 + 1 / math.log2(3)
    gained = 1 / math.log2(3) + 1 / math.log2(4)
    assert values["nDCG@10"] == pytest.approx((gained / ideal + 1) / 3)
    with pytest.raises(ValueError, match="got 1 and 2"):
        score_rankings([["a"]], [{"a"}, {"b"}])
    with pytest.raises(ValueError, match="query 0: a document occurs twice"):
        score_rankings([["a", "a"]], [{"a"}])
    with pytest.raises(ValueError, match="query 0: expected at least one relevant"):
        score_rankings([["a"]], [set()])


def found_first(retrieved, relevant):
    return float(retrieved[:1] == relevant[:1])


def count(retrieved, relevant):
    return 10 * len(retrieved) + len(relevant)


def test_an_own_measure_is_a_function_of_one_query():
    rankings, relevant = [["a", "b"], ["c", "a"], []], [["b"], ["c", "d"], ["a"]]
    values = score_rankings(rankings, relevant, ["MRR@10", found_first, count])
    assert list(values) == ["MRR@10", "found_first", "count"]
    assert values == pytest.approx(
        {"MRR@10": 0.5, "found_first": 1 / 3, "count": (21 + 22 + 1) / 3}
    )
    assert score_rankings(rankings, relevant, metrics=count) == {"count": (21 + 22 + 1) / 3}
    assert score_rankings(rankings, relevant, "MRR@10") == {"MRR@10": 0.5}


@pytest.mark.parametrize(
    ("retrieved", "relevant"),
    [
        ([["b", "a"], ["c"]], [["a"], ["d"]]),
        ([["b", "a"], ["c"]], ["a", "d"]),  # a single document each
        ((["b", "a"], ["c"]), [{"a"}, {"d"}]),
        (np.array([["b", "a"], ["c", "x"]]), np.array([["a"], ["d"]])),
        (pd.Series([["b", "a"], ["c"]]), pd.Series([["a"], ["d"]])),
        ({"q": ["b", "a"], "p": ["c"]}, {"p": ["d"], "q": ["a"]}),
        ({"q": ["b", "a"]}, {"p": ["d"], "q": ["a"]}),  # nothing was retrieved for p
        ({"q": {"a": 0.3, "b": 0.5}}, {"q": {"a": 2, "b": 0}, "p": {"d": 1}}),
        ({"q": {"a": 2, "b": 0}, "p": {"d": 1}}, {"q": {"a": 0.3, "b": 0.5}}),  # as to trec_eval
    ],
)
def test_rankings_are_lists_or_dictionaries_by_query(retrieved, relevant):
    values = score_rankings(retrieved, relevant, ["MRR@10", found_first])
    assert values == {"MRR@10": 0.25, "found_first": 0}


@pytest.mark.parametrize(
    ("retrieved", "relevant", "written"),
    [
        (["ab"], [["a"]], r"got the text 'ab'; write \[\[document"),
        ({"q": {"a": 1}}, {"q": {"a": 1}}, r"write score_rankings\(\{query: \[document"),
        ({"q": {"a": 0.5}}, {"q": {"a": 0.5}}, "expected grades as integers"),
        ({"q": ["a"]}, [["a"]], "two lists, or two dictionaries"),
    ],
)
def test_rankings_that_could_mean_something_else_say_what_to_write(retrieved, relevant, written):
    with pytest.raises(TypeError, match=written):
        score_rankings(retrieved, relevant)


def test_measures_of_one_name_and_rankings_of_other_queries_are_refused():
    with pytest.raises(ValueError, match="got '<lambda>' twice"):
        score_rankings([["a"]], [["a"]], [lambda r, k: 0, lambda r, k: 1])
    with pytest.raises(ValueError, match="got 1 and '1', and none that both have"):
        score_rankings({1: ["a"]}, {"1": ["a"]})
    with pytest.raises(ValueError, match="query q: expected at least one relevant"):
        score_rankings({"q": ["a"]}, {"q": {"a": 0}})


NAMES = st.text("abé1", min_size=1, max_size=3)
SCORES = st.dictionaries(NAMES, st.sampled_from([0.0, -0.0, 1.0, 1 + 1e-12, -3.5, 2e-40, 1e300]))
RUNS = st.dictionaries(NAMES, SCORES, max_size=4)


def built(run):
    builder = RunBuilder()
    for query, scores in run.items():
        builder.add(query, scores)
    return builder.run()


@settings(max_examples=25, deadline=None)
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
    wanted = [*reversed(run), "missing"]
    assert list(arrays.of_queries(wanted).items()) == [(q, run.get(q, {})) for q in wanted]


def test_rows_of_a_query_need_not_be_together():
    builder = RunBuilder()
    builder.add_rows(["q1", "q2", "q1"], ["b", "b", "a"], [1.0, 2.0, 3.0])
    assert builder.run() == {"q1": {"b": 1.0, "a": 3.0}, "q2": {"b": 2.0}}
    assert RunBuilder().run() == {}


def test_the_first_change_of_the_handbook_works_as_it_is_written(monkeypatch):
    source = example("def _first(")
    metrics = dict(METRICS)
    monkeypatch.setattr(retrieval, "METRICS", metrics)
    exec(source, {**vars(retrieval), "METRICS": metrics})  # noqa: S102 - our own page
    rankings, relevant = [["a", "b"], ["b"], []], [{"b"}] * 3
    wanted = {"First@1": pytest.approx(1 / 3), "First@2": pytest.approx(2 / 3)}
    assert score_rankings(rankings, relevant, list(wanted)) == wanted
