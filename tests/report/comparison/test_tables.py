"""Tables of a comparison."""

import numpy as np
from helpers.records import amend, make, three_models

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.report.comparison.tables import (
    breakdown_table,
    correlations_table,
    differences_table,
    power_table,
)


def compared(**more):
    return compare(three_models(), tier="smoke", baseline="now", **more)


def test_differences_with_what_the_queries_can_show():
    comparison = compared()
    good, same = differences_table(comparison).rows
    assert (good[0].text, good[2].strong, good[4].text) == ("good", True, "40 / 0 / 0")
    assert (same[0].text, same[2].strong) == ("same", False)
    assert "Holm over all 3 pairs of the models compared" in differences_table(comparison).note
    assert len(comparison.tasks[0].outcomes) == 3
    power = power_table(comparison).rows
    assert [row[1].text for row in power] == ["better", "not shown"]
    assert (power[0][4].text, power[1][4].value > 40) == ("–", True)
    assert power[1][2].strong
    assert not power_table(compared(minimum=0.2)).rows[1][2].strong
    assert breakdown_table(comparison) is correlations_table(comparison) is None


def test_correlations_are_compared_by_pairs_of_texts():
    gold = np.linspace(0, 5, 60)

    def scored(label, spread):
        cosine = gold + np.random.default_rng(1).normal(0, spread, 60)
        result = make(label, task="AuthorSTS", metric="cosine", scores=cosine)
        result.per_query["gold"] = {f"q{i}": float(v) for i, v in enumerate(gold)}
        amend(result, "task", main_metric="Spearman")
        return result

    (row,) = correlations_table(
        compare([scored("a", 5.0), scored("b", 0.1)], tier="smoke", baseline="b")
    ).rows
    assert row[0].text == "a"
    assert float(row[1].text) < -0.2
    assert row[2].strong


def test_unpaired_queries_are_counted():
    first, second = make("a", scores=(0.9, 0.8, 0.7, 0.6)), make("b", scores=(0.5, 0.4, 0.3))
    table = differences_table(compare([first, second], baseline="b"))
    (row,) = table.rows
    assert row[1].text == "+0.400"
    assert row[4].text == "3 / 0 / 0"
    assert (row[5].text, row[5].detail) == ("3", "1 unpaired")
    assert "No two models" in differences_table(compare([]), task="x").note
