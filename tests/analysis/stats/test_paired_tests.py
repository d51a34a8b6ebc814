"""Paired tests compared with scipy and hand calculations, and property-based tests."""

import inspect
import itertools
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import scipy.stats
from helpers.records import make
from hypothesis import example, given, settings
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
    cluster_values,
    max_t_p_values,
    percentile_interval,
    resampled_means,
)
from qwen3nb.metrics.intervals import difference_intervals
from qwen3nb.metrics.query_scores import QueryScores

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
        ([0.0] * 3, 0.05, 72),  # 1 - 0.025^(1/72) = .04995
        ([0.0] * 100, 0.05, 100),
        ([0.02] * 10, 0.05, 119),  # 0.02 + 0.98 (1 - 0.025^(1/119)) = .04991; of 10, 0.32
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
        ([-0.2] * 20, True),  # 0.168 x 1.2 = 0.202
        ([-0.21] * 20, False),
        ([2.0, 3.0] * 2, True),  # 0.602 x 5.5 > 2.5: of differences that may be up to 3
        ([2.0, 3.0] * 5, False),  # 0.308 x 5.5 < 2.5
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
    for impossible in (0.01, 1, 1.5):
        with pytest.raises(ValueError, match="power between alpha"):
            minimum_detectable_effect(A, B, power=impossible)


def test_the_seed_alone_decides_which_signs_are_flipped():
    def p_value(**seed):
        return permutation_test(A[:30], A[30:60], n_resamples=999, **seed).p_value

    p_values = [p_value(seed=seed) for seed in range(4)]
    assert len(set(p_values)) > 1
    assert [p_value(seed=seed) for seed in range(4)] == p_values
    assert p_value() == p_values[0]  # the default


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
    assert t_test(a, b).n == len(a)
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
def test_resampled_means_are_of_as_many_queries_drawn_with_replacement(n, seed, scale):
    scores = np.random.default_rng(seed).normal(size=(n, 2)) * scale
    observed, means = resampled_means(scores, n_resamples=2000, seed=seed)
    assert observed == pytest.approx(scores.mean(axis=0), abs=1e-12 * scale)
    assert (means >= scores.min(axis=0) - 1e-12 * scale).all()
    assert (means <= scores.max(axis=0) + 1e-12 * scale).all()
    # Of numbered queries, sums are whole; systems share the draws; the variance is that of means.
    numbers = np.arange(n, dtype=float)[:, None] * np.array([1.0, -3.0])
    _, drawn = resampled_means(numbers, n_resamples=2000, seed=seed)
    assert n * drawn == pytest.approx(np.rint(n * drawn), abs=1e-6)
    assert drawn[:, 1] == pytest.approx(-3 * drawn[:, 0])
    error = numbers[:, 0].std() / math.sqrt(n)
    assert drawn[:, 0].mean() == pytest.approx(numbers[:, 0].mean(), abs=0.15 * error + 1e-9)
    assert drawn[:, 0].std() == pytest.approx(error, rel=0.12, abs=1e-9)
    assert (resampled_means(numbers, n_resamples=2000, seed=seed)[1] == drawn).all()


@pytest.mark.parametrize(
    ("comparisons", "draws"),
    [(19, 399), (20, 1_600), (780, 62_400), (10_000, 200_000), (10_001, 200_000)],
)
def test_a_large_family_gets_draws_that_can_show_a_difference(comparisons, draws):
    assert enough_draws(comparisons, draws=399) == draws
    family = [1 / (draws + 1)] + [1.0] * (comparisons - 1)
    assert (min(holm(family)) < 0.05) == (comparisons <= 10_000)
    assert enough_draws(comparisons, draws=399, how="none") == 399


def by_all_flips(differences):
    """P-values of pairs (n, pairs), raw and by step-down MaxT, from every assignment of signs."""
    signs = np.array(list(itertools.product([1.0, -1.0], repeat=len(differences))))
    observed = np.abs(differences.sum(axis=0))
    flipped = np.abs(signs @ differences)
    raw = (flipped >= observed - 1e-9).mean(axis=0)
    norms = np.linalg.norm(differences, axis=0)
    norms[norms == 0] = 1.0
    order = sorted(range(len(observed)), key=lambda pair: -observed[pair] / norms[pair])
    adjusted, largest = np.zeros(len(observed)), 0.0
    for rank, pair in enumerate(order):
        extreme = (flipped / norms)[:, order[rank:]].max(axis=1)
        share = (extreme >= observed[pair] / norms[pair] - 1e-9).mean()
        adjusted[pair] = largest = max(largest, share)
    return raw, adjusted


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(2, 6), st.integers(0, 2**31))
def test_of_few_queries_every_sign_flip_is_taken(n, systems, seed):
    scores = np.random.default_rng(seed).integers(0, 5, (n, systems)) / 4
    pairs = list(itertools.combinations(range(systems), 2))
    differences = np.array([scores[:, i] - scores[:, j] for i, j in pairs]).T
    raw, adjusted = max_t_p_values(scores, pairs, n_resamples=512, seed=seed)
    for found, by_hand in zip((raw, adjusted), by_all_flips(differences), strict=True):
        assert found == pytest.approx(by_hand, abs=1e-12)
    assert max_t_p_values(scores, [], n_resamples=300, seed=seed) == ([], [])


@settings(max_examples=20, deadline=None)
@given(st.integers(14, 150), st.integers(2, 9), st.integers(0, 2**31))
@example(14, 4, 1119714)  # a pair differs on 7 of the queries
def test_random_sign_flips_are_shared_and_do_not_depend_on_other_systems(n, systems, seed):
    scores = np.random.default_rng(seed).integers(0, 5, (n, systems)) / 4
    pairs = list(itertools.combinations(range(systems), 2))
    raw, adjusted = max_t_p_values(scores, pairs, n_resamples=300, seed=seed)
    for pair, alone in zip(pairs, raw, strict=True):
        few = scores[:, pair[::-1]]
        assert max_t_p_values(few, [(0, 1)], n_resamples=300, seed=seed)[0] == [alone]
    assert all(p <= q <= 1 for p, q in zip(raw, adjusted, strict=True))
    for (first, second), p in zip(pairs, raw, strict=True):
        differing = np.count_nonzero(scores[:, first] != scores[:, second])
        # Where few queries differ, it may be the smallest that is possible.
        assert p in (pytest.approx(round(p * 301) / 301), 2.0 ** (1 - differing))
    assert max_t_p_values(-scores, pairs, n_resamples=300, seed=seed) == (raw, adjusted)
    exact = scipy.stats.ttest_rel(scores[:, 0], scores[:, 1]).pvalue
    if n >= 50:
        assert raw[0] == pytest.approx(exact, abs=0.12)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("won", "tied", "least"),
    [(8, 0, 2 / 2**8), (5, 195, 2 / 2**5), (1, 99, 1.0), (13, 0, 2 / 2**13), (14, 6, 2 / 2**14)],
)
def test_no_p_value_is_below_the_smallest_possible(monkeypatch, won, tied, least, seed):
    differences = np.concatenate([np.linspace(0.1, 0.9, won), np.zeros(tied)])
    found = permutation_test(differences, 0 * differences, seed=seed).p_value
    assert found >= least
    assert found <= max(1.3 * least, 4e-4)
    if not tied:
        assert found == least
    # One cluster of a query that was won and one that ties with it is one sign.
    pairs = np.repeat(differences, 2) / 2
    cluster = np.repeat(np.arange(won + tied), 2)
    assert permutation_test(pairs, 0 * pairs, seed=seed, cluster=cluster).p_value >= least
    # In a family, the adjusted one is no less, however many pairs are counted at once.
    monkeypatch.setattr("qwen3nb.analysis.stats.resampling._COUNTED_PAIRS", 1)
    columns = np.stack([0 * differences, differences, -differences], axis=1)
    for p_values in max_t_p_values(columns, [(0, 1), (0, 2)], n_resamples=10_000, seed=seed):
        assert min(p_values) >= least


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
        monkeypatch.setattr("qwen3nb.analysis.stats.extreme_flips._MOST_GAPS", block)
        monkeypatch.setattr("qwen3nb.analysis.stats.resampling._COUNTED_PAIRS", threads)
        monkeypatch.setattr("qwen3nb.analysis.stats.resampling._MOST_FLIPS", 100 * threads)
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


def clustered(generator, sizes, samples, *, correlated=0.9):
    """Differences (samples, n) without a true one, correlated within clusters, and the clusters."""
    names = np.repeat(np.arange(len(sizes)), sizes)
    shared = generator.normal(0, math.sqrt(correlated), (samples, len(sizes)))
    alone = generator.normal(0, math.sqrt(1 - correlated), (samples, len(names)))
    return 0.2 * (shared[:, names] + alone), names


@pytest.mark.parametrize(
    "sizes",
    [
        [120] + [6] * 19 + [6],  # half of the queries in one cluster
        [40] + [10] * 20,  # a sixth
        [60, 60] + [5] * 24,  # two quarters
    ],
)
def test_a_large_cluster_does_not_make_an_interval_too_short(sizes):
    differences, names = clustered(np.random.default_rng(2), sizes, 1500)
    ends = np.array(difference_intervals(cluster_values(differences, names), level=0.95))
    covered = np.mean((ends[:, 0] <= 0) & (ends[:, 1] >= 0))
    assert 0.93 <= covered <= 0.98
    zeros = np.zeros(len(names))
    rejected = [t_test(row, zeros, cluster=names).p_value < 0.05 for row in differences[:600]]
    assert np.mean(rejected) <= 0.08


def test_the_error_of_a_large_cluster_by_hand():
    """CR2: residuals of a cluster with the share h are multiplied by (1 − h)^(−1/2)."""
    sizes = [6, 2, 2, 2]
    row, names = clustered(np.random.default_rng(3), sizes, 1)
    (row,) = row
    mean, n = row.mean(), 12
    sums = np.array([(row[names == name] - mean).sum() for name in range(4)])
    shares = np.array(sizes) / n
    error = math.sqrt((sums**2 / (1 - shares)).sum()) / n
    # The same by matrices: for y = 1 b + e, with the inverse root of I - H of each cluster, and
    # the degrees of freedom 2 E² / Var of the estimate if the queries are independent.
    hat = np.full((n, n), 1 / n)
    rest = np.eye(n) - hat
    estimate = np.zeros((n, n))
    for name in range(4):
        of = names == name
        values, vectors = np.linalg.eigh(rest[np.ix_(of, of)])
        root = vectors @ np.diag(values**-0.5) @ vectors.T
        column = rest[:, of] @ root @ np.full(of.sum(), 1 / n)
        estimate += np.outer(column, column)
    assert error**2 == pytest.approx(row @ estimate @ row)
    freedom = np.trace(estimate) ** 2 / np.trace(estimate @ estimate)
    result = t_test(row, np.zeros(n), cluster=names)
    assert result.statistic == pytest.approx(mean / error)
    assert result.p_value == pytest.approx(2 * scipy.stats.t.sf(abs(mean / error), freedom))
    # An interval is as long, where nothing widens it, or longer.
    low, high = mean_difference(row, np.zeros(n), cluster=names).interval
    assert high - low >= 2 * error * scipy.stats.t.ppf(0.975, freedom) - 1e-12


@pytest.mark.parametrize("sizes", [[5] * 4, [10, 10], [9, 10, 10, 8, 10, 11, 10, 11, 10, 9]])
def test_clusters_that_are_alike_or_small_have_the_usual_error(sizes):
    row, names = clustered(np.random.default_rng(4), sizes, 1)
    values = cluster_values(row, names)[0]
    n, mean = len(names), row.mean()
    by_hand = [mean + len(sizes) / n * (row[0][names == g] - mean).sum() for g in range(len(sizes))]
    assert values == pytest.approx(by_hand, abs=1e-14)


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 0.2), (0.02, 0.15), (-0.03, 0.1)])
def test_four_of_five_new_samples_of_the_size_needed_show_equivalence(mean, deviation):
    generator = np.random.default_rng(6)
    sample = generator.normal(0, 1, 40)
    sample = mean + deviation * (sample - sample.mean()) / sample.std(ddof=1)
    needed = queries_to_show(sample, margin=0.05)
    again = generator.choice(sample, (600, needed))
    ends = difference_intervals(again, level=0.95)
    shown = np.mean([low > -0.05 and high < 0.05 for low, high in ends])
    assert 0.74 < shown < 0.88


QUERIES = list("wxyz")
FIRST = pd.Series([0.1, 0.2, 0.9, 0.4], index=QUERIES)
SECOND = pd.Series([0.2, 0.3, 0.8, 0.5], index=QUERIES)
BY_METRIC = [{"MRR@10": column.to_dict()} for column in (FIRST, SECOND)]


@pytest.mark.parametrize(
    "columns",
    [
        (FIRST.tolist(), SECOND.tolist()),
        (FIRST, SECOND),
        (FIRST, SECOND[::-1]),  # by query, whatever the order
        (FIRST.to_frame(), SECOND[::-1].to_frame()),
        (FIRST.to_dict(), SECOND[::-1].to_dict()),
        tuple(BY_METRIC),
        tuple(QueryScores.of(scores) for scores in BY_METRIC),
        (pl.Series(FIRST.to_numpy()), pl.Series(SECOND.to_numpy())),
        (pa.array(FIRST.to_numpy()), pa.array(SECOND.to_numpy())),
        # Two parts of one data frame, whose rows are numbered.
        (FIRST.reset_index(drop=True), pd.Series(SECOND.to_numpy(), index=[4, 5, 6, 7])),
        (FIRST - SECOND,),
        ((FIRST - SECOND).to_numpy(),),
        ((FIRST - SECOND).to_frame("difference"),),
        (pd.DataFrame({"a": FIRST, "b": SECOND}),),
        (pl.DataFrame({"a": FIRST.to_numpy(), "b": SECOND.to_numpy()}),),
        (pa.table({"a": FIRST.to_numpy(), "b": SECOND.to_numpy()}),),
    ],
)
def test_arrays_series_frames_and_dictionaries_are_columns_alike(columns):
    a, b = FIRST.to_numpy(), SECOND.to_numpy()
    for test in (mean_difference, t_test, effect_size, minimum_detectable_effect):
        assert test(*columns) == test(a, b)
    assert equivalence(*columns, margin=0.5) == equivalence(a, b, margin=0.5)
    result = permutation_test(*columns)
    assert result == permutation_test(a, b, seed=0)
    assert result.difference == pytest.approx(-0.05)
    # Of 16 sign flips, ten have a sum of ±0.2 or more: two of ±0.4, eight of ±0.2.
    assert result.p_value == pytest.approx(10 / 16)


def test_clusters_follow_the_queries():
    clusters = pd.Series([1, 1, 2, 2], index=QUERIES)
    expected = mean_difference(FIRST.to_numpy(), SECOND.to_numpy(), cluster=[1, 1, 2, 2])
    assert mean_difference(FIRST, SECOND, cluster=clusters[::-1]) == expected
    assert mean_difference(FIRST[::-1], SECOND, cluster=clusters) == expected


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        ((FIRST, SECOND.rename({"z": "v"})), ValueError, "same queries; only one has 'v' \\(2 in"),
        ((FIRST, SECOND[:3]), ValueError, "same queries; only one has 'z'"),
        ((FIRST, SECOND.rename({"z": "y"})), ValueError, "only one has 'z'"),
        ((pd.DataFrame({"a": FIRST, "b": FIRST, "c": FIRST}),), ValueError, "got a, b, c; choose"),
        ((make("a"), make("b")), TypeError, "write record.scores.array"),
    ],
)
def test_columns_that_cannot_be_paired_say_why(columns, error, message):
    with pytest.raises(error, match=message):
        mean_difference(*columns)


@pytest.mark.parametrize(
    "form",
    [list, np.array, pd.Series, lambda p: pd.DataFrame({"p": p}), lambda p: dict(enumerate(p))],
)
def test_corrections_take_any_column(form):
    assert holm(form([0.01, 0.04, 0.03])) == [0.03, 0.06, 0.06]
    assert benjamini_hochberg(form([0.01, 0.04, 0.03])) == pytest.approx([0.03, 0.04, 0.04])


def test_the_signature_of_a_test_is_short():
    for test in (mean_difference, permutation_test, t_test, equivalence):
        assert len(str(inspect.signature(test))) < 200
