"""Paired differences of systems on one task."""

import json

import numpy as np
import pytest
from helpers.matrices import table

from qwen3nb.analysis.comparison.differences import corrected, paired_differences
from qwen3nb.analysis.stats.paired_tests import effect_size, mean_difference, permutation_test
from qwen3nb.analysis.stats.resampling import draw_seed
from qwen3nb.utils.format import json_text

RNG = np.random.default_rng(5)


def test_a_family_has_the_values_of_each_pair_alone():
    base = RNG.random(50)
    matrix = table(*(base + RNG.normal(0, 0.1, 50) for _ in range(4)))
    family = corrected(paired_differences(matrix, draws=2000, seed=3))
    assert len(family) == 6
    drawn = draw_seed(3, matrix.queries)
    for each in family:
        a, b = matrix.column(each.first), matrix.column(each.second)
        alone = mean_difference(a, b)
        assert each.interval == pytest.approx(alone.interval, abs=1e-9)
        assert each.p_value == permutation_test(a, b, n_resamples=2000, seed=drawn).p_value
        assert each.d_z == effect_size(a, b).d_z
        assert each.corrected >= each.p_value
        assert each.family == 6


def test_other_systems_do_not_change_a_bit():
    base = RNG.random(60)
    rows = [base, (base + RNG.random(60)) / 2, RNG.random(60) * 0.01, np.ones(60)]
    (alone,) = paired_differences(table(*rows[:2]), draws=500, seed=1)
    among = paired_differences(table(*rows), draws=500, seed=1)
    assert among[0] == alone


def test_one_query_and_equal_systems():
    (one,) = paired_differences(table([0.5], [0.7]), draws=50, seed=0)
    (equal,) = paired_differences(table([1, 0], [1, 0]), draws=50, seed=0)
    assert (one.interval, one.p_value, one.d_z) == (None, 1, None)
    assert (equal.interval, equal.p_value, equal.d_z) == ((-1, 1), 1, 0)
    json.loads(json_text([one, equal]))
    assert "single query" in str(one)
