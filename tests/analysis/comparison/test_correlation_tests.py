"""Differences of correlations with gold scores."""

import numpy as np
import pytest
import scipy.stats

from qwen3nb.analysis.comparison.correlation_tests import compare_correlations


def similarities(count, *, seed=1):
    generator = np.random.default_rng(seed)
    gold = generator.integers(0, 6, count) * 1.0
    return [
        {f"{i:05d}": float(v) for i, v in enumerate(values)}
        for values in (
            gold + generator.normal(0, 1.0, count),
            0.1 * gold + generator.normal(0, 0.4, count),
            gold,
        )
    ]


@pytest.mark.parametrize("how", ["spearman", "pearson"])
def test_correlations_are_compared_pair_by_pair(how):
    good, poor, gold = similarities(150)
    difference = compare_correlations(good, poor, gold, how=how, n_resamples=1000, seed=0)
    theirs = {"spearman": scipy.stats.spearmanr, "pearson": scipy.stats.pearsonr}[how]
    values = [theirs(list(x.values()), list(gold.values())).statistic for x in (good, poor)]
    assert (difference.first, difference.second) == pytest.approx(values)
    assert difference.interval[0] < difference.difference < difference.interval[1]
    assert difference.interval[0] > 0
    assert difference.p_value == 1 / 1001
    turned = compare_correlations(poor, good, gold, how=how, n_resamples=1000, seed=0)
    assert turned.interval == pytest.approx((-difference.interval[1], -difference.interval[0]))


def test_correlations_of_equal_or_constant_systems():
    good, _, gold = similarities(40)
    scaled = {pair: 3 * value + 7 for pair, value in good.items()}
    same = compare_correlations(good, scaled, gold, n_resamples=200, seed=0)
    assert (same.difference, same.p_value) == (pytest.approx(0, abs=1e-12), 1)
    flat = compare_correlations(good, dict.fromkeys(good, 0.5), gold, n_resamples=200, seed=0)
    assert (flat.second, flat.difference, flat.p_value) == (None, None, None)
    assert "constant" in flat.undefined


def test_false_positives_of_the_correlation_test():
    hits = 0
    for number in range(120):
        generator = np.random.default_rng(number)
        gold = generator.normal(size=40)
        columns = [gold + generator.normal(0, 1, 40), 5 * gold + generator.normal(0, 5, 40), gold]
        tables = [{str(i): float(v) for i, v in enumerate(column)} for column in columns]
        hits += compare_correlations(*tables, n_resamples=99, seed=number).p_value <= 0.05
    assert scipy.stats.binomtest(hits, 120, 0.05).pvalue > 0.005
