"""Comparisons over clusters of queries, from the records that name them."""

import itertools
import json

import numpy as np
import pytest
from helpers.records import amend, make

from qwen3nb.analysis.comparison.differences import paired_differences
from qwen3nb.analysis.comparison.plan import Plan, make_plan
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.answers.candidate_rules import rule
from qwen3nb.answers.comparison import compare
from qwen3nb.datasets.collection import TestCollection
from qwen3nb.datasets.judgements import shared_documents
from qwen3nb.evaluation.evaluate import evaluate
from qwen3nb.records.record import Result

RNG = np.random.default_rng(3)
SIZES = [1, 9, 2, 3, 5, 8, 4, 4, 7, 6, 3, 10, 8, 2, 8]
GROUPS = np.repeat(np.arange(15), SIZES)
QUERIES = [f"q{i}" for i in range(80)]
THEIRS = RNG.uniform(0.3, 0.6, 80)
OURS = THEIRS + RNG.normal(0, 0.1, 15)[GROUPS] + RNG.normal(0.02, 0.05, 80)


def pair(clusters, ours=OURS, theirs=THEIRS):
    """A record without clusters, as older ones are, and one with them."""
    old, new = make("old", theirs), make("new", ours)
    amend(new, "task", clusters=dict(zip(QUERIES, map(str, clusters), strict=False)))
    return [old, new]


def test_a_comparison_has_the_clustered_errors_of_statsmodels():
    ols = pytest.importorskip("statsmodels.api").OLS
    fit = ols(OURS - THEIRS, np.ones((80, 1))).fit(
        cov_type="cluster", cov_kwds={"groups": GROUPS}, use_t=True
    )
    compared = compare(pair(GROUPS), baseline="old")
    (each,) = compared.differences
    assert each.interval == pytest.approx(fit.conf_int()[0], abs=1e-9)
    assert "15 clusters of 80 queries" in compared.differences_table().method
    assert rule(compared, compared.tasks[0]).endswith(": 15 clusters of 80 queries.")
    alone = compare(pair(GROUPS), baseline="old", clusters=False)
    assert "cluster" not in rule(alone, alone.tasks[0])
    assert compare(pair(QUERIES)).to_frame().equals(compare([*pair(())]).to_frame())
    (by_query,) = alone.differences
    assert (each.won, each.lost, each.d_z) == (by_query.won, by_query.lost, by_query.d_z)
    assert each.p_value > 3 * by_query.p_value
    assert compared.detectable(each) > 1.3 * alone.detectable(by_query)
    assert compared.queries_needed(each) > alone.queries_needed(by_query)
    plan = Plan(baseline="old", models=("new",), tasks=(each.task,), margin=0.05)
    error = fit.bse[0] * np.sqrt(80)
    assert make_plan(pair(GROUPS), plan)[1][0].deviation == pytest.approx(error)


def test_signs_of_three_clusters_flip_together_for_every_pair():
    sums = np.array([0.8 + 0.2, -0.1, 0.3])
    records = pair("xxyyz", [0.9, 0.8, 0.2, 0.5, 0.4], [0.1, 0.6, 0.3, 0.5, 0.1])
    flips = np.array(list(itertools.product([1, -1], repeat=3)))
    extreme = float(np.mean(abs(flips @ sums) >= abs(sums.sum()) - 1e-9))
    (each,) = compare(records, baseline="old", draws=40_000).differences
    assert (each.p_value, each.corrected) == pytest.approx((extreme, extreme), abs=0.01)
    # By MaxT: that of two pairs of which one has the same differences, halved, is the same.
    half = make("half", [0.5, 0.7, 0.25, 0.5, 0.25])
    third = compare([*records, half], baseline="old", draws=40_000).differences
    assert [d.corrected for d in third] == pytest.approx([extreme] * 2, abs=0.01)


@pytest.mark.integration  # 2000 comparisons
def test_correlated_queries_mislead_unless_they_are_clustered():
    """Of 20 clusters of five queries without a difference; level 0.05, coverage 0.95."""
    rng, count = np.random.default_rng(5), 1000
    clusters = {f"q{i:03}": str(i // 5) for i in range(100)}
    found = {True: [], False: []}
    for _ in range(count):
        noise = np.repeat(rng.normal(0, 0.1, 20), 5) + rng.normal(0, 0.05, 100)
        columns = {"a": dict(zip(clusters, noise, strict=True)), "b": dict.fromkeys(clusters, 0.0)}
        for by in found:
            (each,) = paired_differences(
                join(columns, clusters=clusters if by else None), draws=199, seed=0
            )
            low, high = each.interval
            found[by].append((each.p_value < 0.05, low <= 0 <= high))
    (level, covered), (alone, missed) = (np.mean(found[by], axis=0) for by in (True, False))
    assert level <= 0.06
    assert covered >= 0.94
    assert alone > 0.25
    assert missed < 0.75


def test_records_of_other_tasks_have_no_key_and_old_ones_load():
    old, new = pair(GROUPS)
    files = old.save(), new.save()
    tasks = [json.loads(file.read_text())["task"] for file in files]
    assert "clusters" not in tasks[0]
    assert tasks[1]["clusters"]["q79"] == "14"
    assert [Result.load(file).task.clusters for file in files] == [{}, new.task.clusters]


def test_queries_of_one_relevant_document_are_its_cluster():
    texts = {"a": "rain and wind", "b": "snow", "c": "hail"}
    qrels = {"q1": {"a": 1, "b": 0}, "q2": {"a": 2}, "q3": {"c": 1}}
    clusters = {"q1": "a", "q2": "a", "q3": "c"}
    assert shared_documents(qrels) == clusters
    assert shared_documents({"q1": {"a": 1}, "q2": {"b": 1}}) == {}
    assert shared_documents({**qrels, "q4": {"a": 1, "b": 1}}) == {}
    assert shared_documents({**qrels, "q4": {"a": 0}}) == {}
    queries = dict(zip(qrels, ("rain", "wind", "hail"), strict=True))
    collection = TestCollection.from_texts(queries, texts, qrels, name="weather")
    (result,) = evaluate("bm25", collection, show_progress=False).results
    assert result.task.clusters == clusters
