"""Candidates: the rule, categories of queries, and runs over time."""

import numpy as np
import pytest
from helpers.records import make, noisy

from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.answers.candidate_rules import (
    breakdown,
    largest_changes,
    recommend,
    rule,
)
from qwen3nb.answers.comparison import compare


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
    # No flip reaches any of them; Holm multiplies by the number of pairs.
    assert [each.corrected for each in comparison.differences] == [pytest.approx(1 / 1001)] * 3
    by_holm = compared(candidates(), draws=1000, correction="holm")
    assert [each.corrected for each in by_holm.differences] == [pytest.approx(6 / 1001)] * 3
    assert "all 6 pairs of the models compared" in rule(comparison, comparison.tasks[0])
    loose = verdicts(compared(candidates(), margin=0.01, draws=1000))
    assert loose == verdicts(compared(candidates(), minimum=0.01, draws=1000))  # of older notebooks
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


def test_categories_add_up():
    queries = [f"q{i:03d}" for i in range(60)]
    categories = {query: "short" if i < 20 else "long" for i, query in enumerate(queries)}
    first = {query: 0.3 if i < 20 else 0.9 for i, query in enumerate(queries)}
    matrix = join({"a": first, "b": dict.fromkeys(queries, 0.6)})
    by_kind = breakdown(matrix, categories, draws=2000, seed=0)
    assert [(each.category, each.n) for each in by_kind.rows] == [("long", 40), ("short", 20)]
    differences = [each.difference for each in (*by_kind.rows, by_kind.overall)]
    assert differences == pytest.approx([0.3, -0.3, 0.1])
