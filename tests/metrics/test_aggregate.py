"""Aggregates of per-query values against scipy and by hand."""

import numpy as np
import pytest
import scipy.stats

from qwen3nb.analysis.stats.multiple_testing import holm
from qwen3nb.analysis.stats.paired_tests import mean_difference, permutation_test
from qwen3nb.metrics.aggregate import AGGREGATES, aggregate

RNG = np.random.default_rng(7)
A = RNG.normal(0.5, 0.2, size=60)
B = A + RNG.normal(0.05, 0.15, size=60)


def test_a_paired_difference_is_scipys_and_turns_its_sign_with_the_systems():
    ours, other = mean_difference(B, A), mean_difference(A, B)
    theirs = scipy.stats.ttest_rel(B, A).confidence_interval()
    assert ours.difference == pytest.approx((B - A).mean())
    assert ours.interval == pytest.approx((theirs.low, theirs.high))
    assert ours.interval == pytest.approx((-other.interval[1], -other.interval[0]))
    p_values = {permutation_test(*pair, seed=5).p_value for pair in ((A, B), (B, A), (A, B))}
    assert len(p_values) == 1
    for pair, words in (
        (([1, 2], [1]), "same queries"),
        (([], []), "same queries"),
        (([1, np.nan], [1, 2]), "query 1 has a value that is not finite"),
    ):
        with pytest.raises(ValueError, match=words):
            mean_difference(*pair)


def test_holm_by_hand():
    # Sorted: 0.01*4, 0.02*3 = 0.06, 0.03*2 = 0.06, 0.4*1; running maximum.
    assert holm([0.03, 0.01, 0.4, 0.02]) == pytest.approx([0.06, 0.04, 0.4, 0.06])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([0.5, 1.5])


def columns(**values):
    return {name: {f"q{i}": v for i, v in enumerate(column)} for name, column in values.items()}


def test_aggregates_agree_with_scipy():
    x, y = RNG.normal(size=40), RNG.integers(0, 5, size=40).astype(float)  # ties in y
    per_query = columns(cosine=x, gold=y)
    for how, theirs in (("spearman", scipy.stats.spearmanr), ("pearson", scipy.stats.pearsonr)):
        ours = aggregate(per_query, how=how, columns=("cosine", "gold"))
        assert ours.value == pytest.approx(theirs(x, y).statistic)
        assert ours.low < ours.value < ours.high
    mean = aggregate(per_query, how="mean", columns=("cosine",))
    assert (mean.value, mean.n) == (pytest.approx(x.mean()), 40)


def test_macro_f1_counts_the_classes_of_each_sample():
    """F1 of class 0 is 2/3, of class 1 it is 0; a sample of class 0 alone has no class 1."""
    two = [[0.0, 0.0], [0.0, 1.0]]
    one = [[0.0, 0.0], [0.0, 0.0]]
    assert AGGREGATES["macro_f1"](np.array([two, one])) == pytest.approx([1 / 3, 1.0])


def test_what_is_undefined_has_a_reason():
    for how in ("spearman", "pearson"):
        for first, second in (([0.1] * 3, [1, 2, 4]), ([1, 2, 4], [0.1] * 3), ([0.1] * 3, [7] * 3)):
            constant = aggregate(columns(a=first, b=second), how=how, columns=("a", "b"))
            assert (constant.value, constant.low, constant.interval) == (None, None, "")
            assert "constant" in constant.undefined
    assert aggregate(columns(s=[]), how="mean", columns=("s",)).undefined == "no queries"
    single = aggregate(columns(s=[0.4]), how="mean", columns=("s",))
    assert (single.value, single.low, single.high, single.interval) == (0.4, None, None, "")


def test_aggregates_refuse_what_they_cannot_aggregate():
    with pytest.raises(ValueError, match="choose one of: macro_f1, mean, pearson, spearman"):
        aggregate(columns(s=[1]), how="median", columns=("s",))
    with pytest.raises(ValueError, match="query 'q1' has a value that is not finite"):
        aggregate(columns(s=[1, np.nan]), how="mean", columns=("s",))
    with pytest.raises(ValueError, match="cover different queries"):
        aggregate({"a": {"x": 1}, "b": {"y": 1}}, how="pearson", columns=("a", "b"))
