"""Paired tests compared with scipy and hand calculations, and property-based tests."""

import itertools
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.analysis.stats.multiple_testing import adjust, benjamini_hochberg, enough_draws, holm
from qwen3nb.analysis.stats.paired_tests import (
    effect_size,
    equivalence,
    mean_difference,
    minimum_detectable_effect,
    permutation_test,
    power,
    queries_to_show,
    t_test,
    unseen_outlier_could_turn,
)
from qwen3nb.analysis.stats.resampling import (
    max_t_p_values,
    percentile_interval,
    resampled_means,
)

RNG = np.random.default_rng(3)
A = RNG.beta(0.6, 0.8, size=80)
B = np.clip(A + RNG.exponential(0.08, size=80) - 0.05, 0, 1)


def test_the_percentile_interval_agrees_with_scipys():
    _, means = resampled_means((B - A)[:, None], n_resamples=40_000, seed=0)
    theirs = scipy.stats.bootstrap(
        (B - A,), np.mean, method="percentile", n_resamples=40_000, rng=np.random.default_rng(1)
    ).confidence_interval
    ours = percentile_interval(means[:, 0], level=0.95)
    assert ours == pytest.approx(tuple(theirs), abs=0.0012)


def test_the_permutation_test_agrees_with_scipys():
    b = A[:40] + (B[:40] - A[:40]) / 2
    theirs = scipy.stats.permutation_test(
        (b, A[:40]),
        lambda x, y, axis: np.mean(x - y, axis=axis),
        permutation_type="samples",
        n_resamples=50_000,
        vectorized=True,
        rng=np.random.default_rng(1),
    ).pvalue
    p_value = permutation_test(b, A[:40], n_resamples=50_000, seed=0).p_value
    assert p_value == pytest.approx(theirs, abs=4 * math.sqrt(theirs / 25_000))


def test_a_random_p_value_counts_the_sample_itself():
    """(b + 1) / (m + 1): never 0, and 1 where every flip is as extreme."""
    assert permutation_test(A + 1, A, n_resamples=99, seed=0).p_value == 1 / 100
    assert permutation_test(A, A, n_resamples=99, seed=0).p_value == 1
    p_value = permutation_test([1, 2, 3], [0, 0, 0], n_resamples=3, seed=0).p_value
    assert p_value in (1 / 4, 2 / 4, 3 / 4, 1)


def test_p_values_by_hand():
    """Of eight sign patterns of (1, 2, 3), only +++ and --- reach 6; of -1, 2, 3, 4 reach 4."""
    many = {"n_resamples": 20_000, "seed": 0}
    assert permutation_test([1, 2, 3], [0, 0, 0], **many).p_value == pytest.approx(2 / 8, abs=0.01)
    assert permutation_test([-1, 2, 3], [0, 0, 0], **many).p_value == pytest.approx(4 / 8, abs=0.01)
    result, theirs = t_test(B, A), scipy.stats.ttest_rel(B, A)
    assert (result.statistic, result.p_value) == pytest.approx((theirs.statistic, theirs.pvalue))


def test_effect_size_by_hand():
    """Differences 1, 1, 0, -2, 5: mean 1, variance (0 + 0 + 1 + 9 + 16) / 4 = 6.5."""
    result = effect_size([1, 1, 0, 0, 5], [0, 0, 0, 2, 0])
    assert result.d_z == pytest.approx(1 / math.sqrt(6.5))
    assert (result.won, result.tied, result.lost, result.n) == (3, 1, 1, 5)


@settings(max_examples=30, deadline=None)
@given(st.floats(0.005, 0.3), st.sampled_from([0.01, 0.05, 0.1]))
def test_equivalent_is_what_the_interval_shown_says(margin, alpha):
    low, high = mean_difference(B, A, level=1 - alpha).interval
    result = equivalence(B, A, margin=margin, alpha=alpha)
    assert result.interval == (low, high)
    assert result.no_worse == (low > -margin)
    assert result.equivalent == (low > -margin and high < margin)
    assert (result.queries_needed == 80) == result.equivalent
    assert (result.queries_needed is None) == ((B - A).mean() >= margin)


@pytest.mark.parametrize(
    ("values", "margin", "needed"),
    [
        ([0.0] * 3, 0.05, 72),  # 1 - .025^(1/72) = .04995
        ([0.0] * 100, 0.05, 100),
        ([0.02] * 10, 0.05, 119),  # .02 + .98 (1 - .025^(1/119)) = .04991; of 10, .32
        ([0.05] * 10, 0.05, None),  # the mean is not within the margin
        ([-0.3, 0.1] * 20, 0.05, None),
        ([0.0], 0.05, None),
    ],
)
def test_the_queries_that_would_show_it(values, margin, needed):
    assert queries_to_show(np.array(values), margin=margin) == needed
    result = equivalence(values, np.zeros(len(values)), margin=margin)
    assert result.equivalent == (len(values) == needed)
    assert (result.undefined != "") == (len(values) == 1)


@pytest.mark.parametrize(
    ("differences", "turns"),
    [
        ([-0.05] * 20, True),  # 17 % of queries at +1 are missing in one of 40 samples
        ([-0.05] * 50, True),  # 7 %
        ([-0.05] * 200, False),  # 2 %
        ([-0.2] * 20, True),  # .168 x 1.2 = .202
        ([-0.21] * 20, False),
        ([2.0, 3.0] * 2, True),  # .602 x 5.5 > 2.5: of differences that may be up to 3
        ([2.0, 3.0] * 5, False),  # .308 x 5.5 < 2.5
        ([0.0] * 5, True),
    ],
)
def test_when_an_unseen_outlier_could_turn_the_sign(differences, turns):
    assert unseen_outlier_could_turn(np.array(differences)) == turns


def test_the_minimum_detectable_effect_has_that_power():
    assert power(0.0, deviation=1.0, n=12, alpha=0.01) == pytest.approx(0.01)
    effect = minimum_detectable_effect(A, B)
    deviation = (A - B).std(ddof=1)
    assert power(effect, deviation=deviation, n=80) == pytest.approx(0.8)
    # Cohen's rule: (z_0.975 + z_0.8) standard errors, a little more for t.
    assert effect == pytest.approx(2.80 * deviation / math.sqrt(80), rel=0.03)
    # The noncentral t of thousands of queries is still computed.
    many = RNG.normal(size=6980)
    near = (1.959964 + 0.841621) * many.std(ddof=1) / math.sqrt(6980)
    assert minimum_detectable_effect(many, np.zeros(6980)) == pytest.approx(near, rel=1e-3)
    with pytest.raises(ValueError, match="power between alpha"):
        minimum_detectable_effect(A, B, power=0.01)


def test_equal_systems_have_defined_results():
    same = mean_difference(A, A)
    assert same.difference == 0
    assert same.interval == pytest.approx((-same.interval[1], same.interval[1]))
    assert 0 < same.interval[1] < 0.05
    assert permutation_test(A, A, seed=0).p_value == 1
    assert t_test(A, A).p_value == 1
    assert effect_size(A, A).d_z == 0
    assert minimum_detectable_effect(A, A) is None
    same = equivalence(A, A, margin=0.01)
    assert not same.equivalent
    assert same.queries_needed > 80


def test_a_constant_difference_has_defined_results():
    a, b = np.array([0.3, 0.4, 0.5, 0.9]), np.array([0.1, 0.2, 0.3, 0.7])  # 0.2, to rounding
    low, high = mean_difference(a, b).interval
    assert (low, high) == pytest.approx((0.2 - 1.2 * 0.6024, 0.2 + 0.8 * 0.6024), abs=1e-3)
    assert permutation_test(a, b, seed=0, n_resamples=20_000).p_value == pytest.approx(
        1 / 8, abs=0.01
    )
    assert t_test(a, b).p_value is None
    assert "all the same" in t_test(a, b).undefined
    assert effect_size(a, b).d_z is None
    worse = equivalence(b, a, margin=0.1)
    assert (worse.no_worse, worse.queries_needed) == (False, None)


def test_one_query_has_defined_results():
    single = mean_difference([0.75], [0.25])
    assert (single.difference, single.interval) == (0.5, None)
    assert single.undefined == "a single query has no spread"
    assert permutation_test([0.7], [0.2], seed=0).p_value == 1
    assert t_test([0.7], [0.2]).undefined == "a single query has no spread"
    assert not equivalence([0.7], [0.7], margin=0.1).no_worse


def test_refusals():
    with pytest.raises(ValueError, match="level between 0 and 1; got 95"):
        mean_difference(A, B, level=95)
    with pytest.raises(ValueError, match="at least one resample"):
        permutation_test(A, B, seed=0, n_resamples=0)
    with pytest.raises(ValueError, match="margin above 0"):
        equivalence(A, B, margin=0)
    with pytest.raises(ValueError, match="choose one of: max-t, holm, benjamini-hochberg, none"):
        adjust([0.5], how="bonferroni")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_corrections_keep_the_order_and_agree_with_scipy(p_values):
    adjusted = holm(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, adjusted, strict=True))
    order = np.argsort(p_values, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()
    assert min(adjusted) == pytest.approx(min(1, len(p_values) * min(p_values)))
    assert benjamini_hochberg(p_values) == pytest.approx(
        scipy.stats.false_discovery_control(p_values), abs=1e-12
    )
    assert adjust(p_values, how="none") == p_values


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 200), st.integers(0, 2**31), st.sampled_from([1.0, 1e-9, 1e7]))
def test_resampled_means_are_those_of_the_queries_drawn(n, seed, scale):
    scores = np.random.default_rng(seed).normal(size=(n, 2)) * scale
    observed, means = resampled_means(scores, n_resamples=5, seed=seed)
    generator = np.random.default_rng(seed)
    picks = [generator.integers(0, n, n, dtype=np.uint16) for _ in range(5)]
    expected = np.array([scores[each].mean(axis=0) for each in picks])
    assert means == pytest.approx(expected, abs=1e-12 * scale)
    assert observed == pytest.approx(scores.mean(axis=0), abs=1e-12 * scale)


@pytest.mark.parametrize(
    ("comparisons", "draws"),
    [(19, 399), (20, 1_600), (780, 62_400), (10_000, 200_000), (10_001, 200_000)],
)
def test_a_large_family_gets_draws_that_can_show_a_difference(comparisons, draws):
    assert enough_draws(comparisons, draws=399) == draws
    family = [1 / (draws + 1)] + [1.0] * (comparisons - 1)
    assert (min(holm(family)) < 0.05) == (comparisons <= 10_000)
    assert enough_draws(comparisons, draws=399, how="none") == 399


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 150), st.integers(2, 9), st.integers(0, 2**31))
def test_sign_flips_by_definition_for_any_systems(n, systems, seed):
    scores = np.random.default_rng(seed).integers(0, 5, (n, systems)) / 4
    pairs = list(itertools.combinations(range(systems), 2))
    raw = np.random.default_rng(seed).bit_generator.random_raw(300 * -(-n // 64)).astype("<u8")
    signs = 2.0 * np.unpackbits(raw.view(np.uint8).reshape(300, -1), axis=1, count=n) - 1
    differences = [scores[:, i] - scores[:, j] for i, j in pairs]
    extremes = [int((abs(signs @ d) >= abs(d.sum()) - 1e-9).sum()) for d in differences]
    expected = [(extreme + 1) / 301 for extreme in extremes]
    assert max_t_p_values(scores, pairs, n_resamples=300, seed=seed)[0] == expected
    few = scores[:, [systems - 1, 0]]
    (alone, _) = max_t_p_values(few, [(0, 1)], n_resamples=300, seed=seed)
    assert alone == [expected[pairs.index((0, systems - 1))]]
    assert max_t_p_values(scores, [], n_resamples=300, seed=seed) == ([], [])

    # Step by step: the largest statistic of a pair and of all less significant ones.
    statistics = [d / (np.linalg.norm(d) or 1) for d in differences]
    flipped = np.abs([signs @ d for d in statistics])
    observed = np.abs([d.sum() for d in statistics])
    order = sorted(range(len(pairs)), key=lambda i: -observed[i])
    adjusted, largest = {}, 0.0
    for rank, pair in enumerate(order):
        reached = flipped[order[rank:]].max(axis=0) >= observed[pair] - 1e-9
        adjusted[pair] = largest = max(largest, (int(reached.sum()) + 1) / 301)
    p_values, family = max_t_p_values(scores, pairs, n_resamples=300, seed=seed)
    assert p_values == expected
    assert family == pytest.approx([adjusted[i] for i in range(len(pairs))], abs=1e-12)


def test_max_t_of_pairs_that_are_one_costs_nothing_and_of_independent_ones_what_sidak_says():
    one = RNG.normal(0.4, 1, 40)
    copies = np.stack([np.zeros(40), *[one] * 6], axis=1)
    pairs = [(0, i) for i in range(1, 7)]
    raw, family = max_t_p_values(copies, pairs, n_resamples=2_000, seed=1)
    assert family == raw
    apart = np.stack([np.zeros(400), *RNG.normal(0.08, 1, (6, 400))], axis=1)
    raw, family = max_t_p_values(apart, pairs, n_resamples=20_000, seed=1)
    assert min(family) == pytest.approx(1 - (1 - min(raw)) ** 6, abs=0.02)
    assert max(family) >= max(raw)


def test_blocks_and_threads_do_not_change_a_bit(monkeypatch):
    threadpoolctl = pytest.importorskip("threadpoolctl")
    scores = RNG.random((997, 7))
    pairs = [(0, 1), (2, 6)]
    result = []
    for block, threads in ((2_000_000, 1), (2_000_000, 2), (5_000, 2), (1, 4)):
        monkeypatch.setattr("qwen3nb.analysis.stats.resampling._BLOCK", block)
        monkeypatch.setattr("qwen3nb.analysis.stats.resampling._COMPARED", block)
        monkeypatch.setattr("qwen3nb.analysis.stats.resampling._FLIPS", (threads, 100 * threads))
        with threadpoolctl.threadpool_limits(threads):
            means = resampled_means(scores, n_resamples=400, seed=9)[1]
            p_values = max_t_p_values(scores, pairs, n_resamples=400, seed=9)
        result.append((means.tobytes(), p_values))
    assert all(each == result[0] for each in result)


CLUSTERS = np.repeat(list("abcdefghijklmno"), [1, 9, 2, 3, 5, 8, 4, 4, 7, 6, 3, 10, 8, 2, 8])


def test_clustered_errors_are_those_of_statsmodels():
    ols = pytest.importorskip("statsmodels.api").OLS
    shift = dict(zip("abcdefghijklmno", RNG.normal(0, 0.2, 15), strict=True))
    a = B + [shift[name] for name in CLUSTERS]
    groups = np.unique(CLUSTERS, return_inverse=True)[1]
    fit = ols(a - A, np.ones((80, 1))).fit(
        cov_type="cluster", cov_kwds={"groups": groups}, use_t=True
    )
    ours = t_test(a, A, cluster=CLUSTERS)
    assert (ours.statistic, ours.p_value) == pytest.approx((fit.tvalues[0], fit.pvalues[0]))
    low, high = mean_difference(a, A, cluster=CLUSTERS).interval
    theirs = fit.conf_int()[0]
    # Student's, widened for skewness
    assert low <= theirs[0] + 1e-9
    assert high >= theirs[1] - 1e-9
    alone = mean_difference(a, A).interval
    assert high - low > 1.3 * (alone[1] - alone[0])


def test_signs_of_a_cluster_flip_together_and_clusters_of_one_change_nothing():
    a, b = np.array([0.9, 0.8, 0.2, 0.5, 0.4]), np.array([0.1, 0.6, 0.3, 0.5, 0.1])
    sums = [0.8 + 0.2, -0.1, 0.3]  # of the clusters x, y and z
    total = abs(sum(sums))
    flips = list(itertools.product([1, -1], repeat=3))
    extreme = sum(abs(np.dot(each, sums)) >= total - 1e-9 for each in flips) / len(flips)
    done = permutation_test(a, b, seed=0, n_resamples=40_000, cluster=list("xxyyz"))
    assert done.p_value == pytest.approx(extreme, abs=0.01)
    assert permutation_test(A, B, seed=4, cluster=range(80)) == permutation_test(A, B, seed=4)
    ends = mean_difference(A, B, cluster=range(80)).interval
    assert ends == pytest.approx(mean_difference(A, B).interval)
    with pytest.raises(ValueError, match="a cluster for each of 80 queries"):
        t_test(A, B, cluster=["x"])
