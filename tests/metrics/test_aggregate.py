import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.analysis.stats.multiple_testing import holm
from qwen3nb.analysis.stats.paired_tests import mean_difference, permutation_test
from qwen3nb.metrics.aggregate import AGGREGATES, Draws, aggregate, aggregate_samples, sample_of

RNG = np.random.default_rng(7)
A = RNG.normal(0.5, 0.2, size=60)
B = A + RNG.normal(0.05, 0.15, size=60)


def test_the_interval_of_a_difference_is_scipys():
    ours = mean_difference(B, A)
    theirs = scipy.stats.ttest_rel(B, A).confidence_interval()
    assert ours.difference == pytest.approx((B - A).mean())
    assert ours.interval == pytest.approx((theirs.low, theirs.high))


def test_the_permutation_test_agrees_with_scipys():
    theirs = scipy.stats.permutation_test(
        (B, A), lambda x, y: np.mean(x - y), permutation_type="samples",
        n_resamples=10_000, rng=np.random.default_rng(1),
    ).pvalue  # fmt: skip
    assert permutation_test(B, A, seed=0).p_value == pytest.approx(theirs, abs=0.01)


def test_exhaustive_by_hand():
    """Four differences of +1: 2 of 16 sign patterns are as extreme, so p is 1/8."""
    ours = permutation_test([1, 1, 1, 1], [0, 0, 0, 0], n_resamples=200_000, seed=3)
    assert ours.p_value == pytest.approx(1 / 8, abs=0.003)


def test_p_is_never_zero_and_equal_systems_are_equal():
    assert permutation_test(A + 1, A, n_resamples=99, seed=0).p_value == 1 / 100
    assert permutation_test(A, A, seed=0).p_value == 1.0
    low, high = mean_difference(A, A).interval
    assert -0.1 < low < 0 < high < 0.1  # a tie on these queries is not one on all


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_the_same_seed_gives_the_same_numbers(seed):
    assert permutation_test(A, B, n_resamples=300, seed=seed) == permutation_test(
        A, B, n_resamples=300, seed=seed
    )


def test_swapping_the_systems_turns_the_sign_only():
    assert permutation_test(A, B, seed=5).p_value == permutation_test(B, A, seed=5).p_value
    one, other = mean_difference(A, B), mean_difference(B, A)
    assert one.interval == pytest.approx((-other.interval[1], -other.interval[0]))


def test_holm_by_hand():
    # Sorted: 0.01*4, 0.02*3 = 0.06, 0.03*2 = 0.06, 0.4*1; running maximum.
    assert holm([0.03, 0.01, 0.4, 0.02]) == pytest.approx([0.06, 0.04, 0.4, 0.06])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])


def test_refusals():
    with pytest.raises(ValueError, match="same queries"):
        mean_difference([1, 2], [1])
    with pytest.raises(ValueError, match="same queries"):
        permutation_test([], [], seed=0)
    with pytest.raises(ValueError, match="query 1 has a value that is not finite"):
        permutation_test([1, np.nan], [1, 2], seed=0)
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([0.5, 1.5])


@pytest.mark.integration
def test_false_positives_and_coverage_are_what_they_claim():
    """400 simulated comparisons under H0; bounds are three standard errors."""
    rng = np.random.default_rng(11)
    positives = covered = 0
    for seed in range(400):
        differences = rng.standard_t(5, size=50)
        zeros = np.zeros(50)
        positives += permutation_test(differences, zeros, n_resamples=400, seed=seed).p_value < 0.05
        low, high = mean_difference(differences, zeros).interval
        covered += low <= 0 <= high
    assert 0.05 - 0.033 <= positives / 400 <= 0.05 + 0.033
    assert 0.95 - 0.04 <= covered / 400 <= 0.95 + 0.033


def columns(**values):
    return {name: {f"q{i}": v for i, v in enumerate(column)} for name, column in values.items()}


def test_aggregates_agree_with_scipy():
    x, y = RNG.normal(size=40), RNG.integers(0, 5, size=40).astype(float)  # ties in y
    per_query = columns(cosine=x, gold=y)
    for how, theirs in (("spearman", scipy.stats.spearmanr), ("pearson", scipy.stats.pearsonr)):
        ours = aggregate(per_query, how=how, columns=("cosine", "gold"), seed=0)
        assert ours.value == pytest.approx(theirs(x, y).statistic)
        assert ours.low < ours.value < ours.high
    mean = aggregate(per_query, how="mean", columns=("cosine",), seed=0)
    assert (mean.value, mean.n) == (pytest.approx(x.mean()), 40)


def test_the_percentile_interval_of_older_records_agrees_with_scipys():
    per_query = columns(score=A)
    ours = aggregate(
        per_query, how="mean", columns=("score",), seed=0, percentile=True, resamples=10_000
    )
    theirs = scipy.stats.bootstrap(
        (A,), np.mean, method="percentile", rng=np.random.default_rng(2)
    ).confidence_interval
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs), abs=0.004)


def test_macro_f1_counts_the_classes_of_each_sample():
    """F1 of class 0 is 2/3, of class 1 it is 0; a sample of class 0 alone has no class 1."""
    two = [[0.0, 0.0], [0.0, 1.0]]
    one = [[0.0, 0.0], [0.0, 0.0]]
    assert AGGREGATES["macro_f1"](np.array([two, one])) == pytest.approx([1 / 3, 1.0])


def test_what_is_undefined_has_a_reason():
    for how in ("spearman", "pearson"):
        for first, second in (([0.1] * 3, [1, 2, 4]), ([1, 2, 4], [0.1] * 3), ([0.1] * 3, [7] * 3)):
            constant = aggregate(columns(a=first, b=second), how=how, columns=("a", "b"), seed=0)
            assert (constant.value, constant.low, constant.interval) == (None, None, "")
            assert "constant" in constant.undefined
    assert aggregate(columns(s=[]), how="mean", columns=("s",), seed=0).undefined == "no queries"
    single = aggregate(columns(s=[0.4]), how="mean", columns=("s",), seed=0)
    assert (single.value, single.low) == (0.4, None)
    single = aggregate(columns(s=[0.4]), how="mean", columns=("s",), seed=0, percentile=True)
    assert (single.value, single.low, single.high, single.interval) == (0.4, None, None, "")


def test_aggregates_refuse_what_they_cannot_aggregate():
    with pytest.raises(ValueError, match="choose one of: macro_f1, mean, pearson, spearman"):
        aggregate(columns(s=[1]), how="median", columns=("s",), seed=0)
    with pytest.raises(ValueError, match="query 'q1' has a value that is not finite"):
        aggregate(columns(s=[1, np.nan]), how="mean", columns=("s",), seed=0)
    with pytest.raises(ValueError, match="cover different queries"):
        aggregate({"a": {"x": 1}, "b": {"y": 1}}, how="pearson", columns=("a", "b"), seed=0)


@pytest.mark.parametrize("parts", [(), ("a/", "b/")])
def test_columns_and_records_share_draws(parts, monkeypatch):
    per_query = {
        name: {f"{'ab'[i % 2]}/{i}": value for i, value in enumerate(rng.random(9))}
        for name, rng in (("s", np.random.default_rng(1)), ("t", np.random.default_rng(2)))
    }
    drawn = []
    generator = np.random.default_rng
    monkeypatch.setattr(
        np.random, "default_rng", lambda seed: drawn.append(seed) or generator(seed)
    )
    draws = Draws()
    for how, names in (("mean", "s"), ("mean", "t"), ("pearson", "st"), ("pearson", "ts")):
        options = {"how": how, "columns": names, "seed": 4, "percentile": True, "parts": parts}
        samples = [sample_of(per_query, names, part) for part in parts or ("",)]
        together = aggregate_samples(samples, draws=draws, **options)
        own = aggregate(per_query, **options)
        assert (together.low, together.high) == (own.low, own.high)
    assert len(drawn) == 4 + 2  # each on its own, and once for one column and for two
