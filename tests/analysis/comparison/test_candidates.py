"""Candidates: the rule, categories of queries, and runs over time."""

import json

import numpy as np
import pytest
from helpers.records import amend, make, noisy, own

from qwen3nb.analysis.comparison.candidates import largest_changes, recommend, rule, trend
from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.analysis.comparison.ranking import breakdown
from qwen3nb.analysis.stats.paired_tests import t_test


def compared(results, **options):
    return compare(results, baseline="current", **options)


def verdicts(comparison):
    return {each.first: recommend(each, comparison=comparison) for each in comparison.differences}


def candidates():
    means = {"current": 0.5, "up": 0.6, "down": 0.4, "slightly": 0.53}
    return [
        make(name, scores=np.concatenate([noisy(mean, seed=[i, j]) for j in range(10)]))
        for i, (name, mean) in enumerate(means.items())
    ]


def test_the_rule_needs_both_evidence_and_size():
    comparison = compared(candidates(), draws=1000)
    recommended = verdicts(comparison)
    assert {name: (each.verdict, each.matters) for name, each in recommended.items()} == {
        "up": ("better", True),
        "down": ("worse", True),
        "slightly": ("better, by less than 0.05", False),
    }
    assert "significant, but not larger than 0.05" in recommended["slightly"].text
    assert [each.corrected for each in comparison.differences] == [pytest.approx(6 / 1001)] * 3
    assert "all 6 pairs of the models compared" in rule(comparison, comparison.tasks[0])
    loose = verdicts(compared(candidates(), minimum=0.01, draws=1000))
    assert (loose["slightly"].verdict, loose["slightly"].matters) == ("better", True)


def test_a_large_difference_on_few_queries_is_not_significant():
    current, new = make("current", scores=(0.1, 0.9, 0.5)), make("new", scores=(1.0, 0.8, 0.6, 1.0))
    comparison = compared([current, new])
    recommended = verdicts(comparison)["new"]
    assert (recommended.verdict, recommended.matters) == ("not shown", False)
    assert "larger than 0.05, but not significant" in recommended.text
    assert any("1 queries of new do not pair (q3)" in note for note in comparison.notes)
    change = largest_changes(comparison.matrix(comparison.differences[0]), most=5)[0]
    assert (change.query, change.difference) == ("q0", pytest.approx(0.9))


def test_a_real_report_of_the_same_kind(fixtures):
    """An existing tool's example: its t-test has p = 0.3383 on MRR."""
    files = sorted((fixtures / "star_search" / "example_report").glob("*.json"))
    if not files:
        pytest.skip("these fixtures hold no example report")
    models = json.loads(files[0].read_text())["models"]
    results = []
    for label, model in zip(("current", "new"), models, strict=False):
        result = make(label, metric="MRR@10")
        scores = {each["query_id"]: each["metrics"]["mrr"] for each in model["per_query_results"]}
        result.per_query["MRR@10"] = scores
        results.append(result)
    comparison = compared(results)
    (each,) = comparison.differences
    assert t_test(*comparison.matrix(each).scores).p_value == pytest.approx(0.3383, abs=1e-4)
    assert each.difference == pytest.approx(0.051, abs=1e-3)
    assert not verdicts(comparison)["new"].matters


def test_categories_add_up_and_opposed_ones_are_flagged():
    queries = [f"q{i:03d}" for i in range(60)]
    categories = {query: "short" if i < 20 else "long" for i, query in enumerate(queries)}
    first = {query: 0.3 if i < 20 else 0.9 for i, query in enumerate(queries)}
    second = dict.fromkeys(queries, 0.6)
    by_kind = breakdown(first, second, categories, n_resamples=2000, seed=0)
    long, short = by_kind.rows
    assert (long.n, short.n, by_kind.overall.n) == (40, 20, 60)
    assert by_kind.overall.difference == pytest.approx(
        (40 * long.difference + 20 * short.difference) / 60
    )
    assert [each.kind for each in by_kind.reversals] == ["opposed"]
    assert "short: -0.300 on 20 queries" in by_kind.reversals[0].text
    assert "against +0.100 on all 60" in by_kind.reversals[0].text


def test_weighting_reverses_an_order():
    """Ten queries of one kind at -0.1, one each of two kinds at +0.4."""
    queries = [f"q{i:02d}" for i in range(12)]
    first = {query: 0.4 if i < 10 else 0.9 for i, query in enumerate(queries)}
    second = dict.fromkeys(queries, 0.5)
    kinds = dict.fromkeys(queries, "many") | {"q10": "x", "q11": "y"}
    by_kind = breakdown(first, second, kinds, n_resamples=200, seed=0)
    (reversal,) = (each.text for each in by_kind.reversals if each.kind == "weighting")
    assert "-0.017 with queries weighted equally, +0.233 with categories weighted" in reversal


def test_simpsons_paradox_of_unequal_coverage():
    """a is better on every shared query, but answered more of the hard ones."""
    easy, hard = [f"e{i}" for i in range(10)], [f"h{i}" for i in range(10)]
    first = dict.fromkeys(easy[:2], 0.9) | dict.fromkeys(hard, 0.3)
    second = dict.fromkeys(easy, 0.8) | dict.fromkeys(hard[:2], 0.2)
    categories = dict.fromkeys(easy, "easy") | dict.fromkeys(hard[:5], "hard")
    by_kind = breakdown(first, second, categories, n_resamples=200, seed=0)
    assert by_kind.overall.difference == pytest.approx(0.1)
    assert [each.kind for each in by_kind.reversals] == ["coverage"]
    assert len(by_kind.notes) == 2


def test_runs_of_one_label_are_a_trend():
    runs = [
        own("now", 0.5, identity="1" * 64, finished="2026-01-01"),
        own("now", 0.3, identity="2" * 64, finished="2026-02-01", seed=1),
        own("now", 0.3, identity="3" * 64, finished="2026-03-01", seed=1),
        own("once", 0.3),
    ]
    amend(runs[2], "task", revision="another")
    first, second, third = trend(runs, metric="MRR@10", n_resamples=500, seed=0)
    assert (first.change, first.p_value) == (None, None)
    assert second.change == pytest.approx(-0.2, abs=0.02)
    assert second.p_value < 0.05
    assert (third.change, third.p_value) == (None, None)  # the data changed
