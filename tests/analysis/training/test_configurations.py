"""Tested differences between trained configurations: by hand, and against scipy."""

import pytest
import scipy.stats

from qwen3nb.analysis.inventory.score import Score
from qwen3nb.analysis.stats.multiple_testing import holm
from qwen3nb.analysis.training.interference import configuration_differences
from qwen3nb.report.training.interference import configuration_differences_table


def score(system, seed, values, *, task="A", kind="reranking", finished=""):
    """A score with values per query, or a single value."""
    if isinstance(values, float):
        return Score(system, seed, task, "main_score", values, kind=kind, finished=finished)
    queries = {f"q{i}": value for i, value in enumerate(values)}
    mean = sum(values) / len(values)
    return Score(
        system, seed, task, "nDCG@10", mean, kind=kind, per_query=queries, finished=finished
    )


def test_queries_are_averaged_over_the_seeds_that_both_have():
    """Means over seeds are .05 and .35; two of the four sign patterns are as large."""
    given = [
        score("joint", 1, [0.5, 0.7]),
        score("joint", 2, [0.3, 0.9]),
        score("joint", 3, [1.0, 1.0]),
        score("rank", 1, [0.4, 0.4]),
        score("rank", 2, [0.0, 0.0]),
        score("rank", 2, [0.3, 0.5], finished="2026-01-02"),
    ]
    (each,) = configuration_differences(given, draws=4000, seed=0)
    assert (each.first, each.second, each.seeds) == ("joint", "rank", (1, 2))
    assert each.by_seed == pytest.approx((0.2, 0.2))
    assert each.difference == pytest.approx(0.2)
    assert each.p_value == pytest.approx(0.5, abs=0.03)
    assert (each.corrected, each.family, each.n) == (each.p_value, 1, 2)


def test_without_scores_per_query_the_seeds_are_tested():
    ours, theirs = [0.5, 0.6, 0.55], [0.45, 0.5, 0.52]
    given = [score("emb", seed, value, kind="embedding") for seed, value in enumerate(ours)]
    given += [score("joint", seed, value, kind="embedding") for seed, value in enumerate(theirs)]
    given += [score("late", 2, 0.4, kind="embedding"), score("other", 9, 0.4, kind="embedding")]
    pairs = {
        (each.first, each.second): each
        for each in configuration_differences(given, draws=100, seed=0)
    }
    assert set(pairs) == {("emb", "joint"), ("emb", "late"), ("joint", "late")}
    each = pairs["emb", "joint"]
    assert each.p_value == pytest.approx(scipy.stats.ttest_rel(ours, theirs).pvalue)
    assert (each.test, each.n, each.family) == ("t-test over seeds", 0, 1)
    assert "one seed" in pairs["emb", "late"].undefined
    assert pairs["emb", "late"].p_value is None


def test_all_p_values_are_one_family_and_shared_queries_are_counted():
    given = []
    for seed in (1, 2):
        given += [score("a", seed, [0.9, 0.8, 0.7, 0.9, 0.6, 0.8] * 3 + [0.1])]
        given += [score("b", seed, [0.2, 0.3, 0.1, 0.4, 0.1, 0.2] * 3)]
        given += [score("c", seed, [0.2, 0.3, 0.2, 0.4, 0.1, 0.1] * 3)]
    tested = configuration_differences(given, draws=2000, seed=0)
    assert [each.corrected for each in tested] == pytest.approx(holm([e.p_value for e in tested]))
    assert {(each.family, each.n) for each in tested} == {(3, 18)}
    assert [each.unpaired for each in tested] == [1, 1, 0]
    assert tested == configuration_differences(reversed(given), draws=2000, seed=0)
    table = configuration_differences_table(tested, alpha=0.2)
    assert "Holm over these 3" in table.note
    assert [row[2].strong for row in table.rows] == [True, True, False]
    assert table.rows[0][4].detail == "1 unpaired"


def test_runs_without_a_common_query_or_seed_are_not_compared():
    apart = Score("b", 1, "A", "nDCG@10", 0.5, kind="reranking", per_query={"other": 0.5})
    (each,) = configuration_differences([score("a", 1, [0.5]), apart], draws=10, seed=0)
    assert (each.p_value, each.corrected) == (None, None)
    assert "no query in common" in each.undefined
    assert configuration_differences([score("a", 1, [0.5]), score("b", 2, [0.5])], seed=0) == []
    assert "No two configurations" in configuration_differences_table([]).note
