"""Closed-form intervals against scipy, by hand, by properties and by simulated coverage."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.metrics.aggregate import Aggregate, aggregate
from qwen3nb.metrics.intervals import (
    correlation_influence,
    correlation_interval,
    difference_interval,
    difference_intervals,
    f1_interval,
    interval_words,
    mean_interval,
    student_interval,
)

RNG = np.random.default_rng(5)


def test_students_interval_is_scipys():
    values = RNG.normal(3, 2, size=12)
    theirs = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert student_interval(values, level=0.9) == pytest.approx((theirs.low, theirs.high))
    assert mean_interval(values, level=0.9) == ("student", student_interval(values, level=0.9))
    assert student_interval(values[:1], level=0.9) is None
    assert student_interval(np.full(4, 0.25), level=0.9) == (0.25, 0.25)


def test_many_intervals_of_differences_are_those_of_each():
    rows = RNG.normal(0.1, 0.3, (6, 999)).round(1)
    rows[0], rows[1], rows[2] = 0, 0.25, 3 * rows[2]
    each = [difference_interval(row, level=0.95) for row in rows]
    assert difference_intervals(rows, level=0.95) == each
    assert difference_intervals(rows[:, :1], level=0.95) == [None] * 6


def test_differences_without_ties_have_students_interval():
    values = RNG.normal(0.1, 0.2, size=12)
    theirs = student_interval(values, level=0.95)
    assert difference_interval(values, level=0.95) == pytest.approx(theirs)
    assert difference_interval(values[:1], level=0.95) is None
    assert difference_interval(np.full(4, 0.25), level=0.95) == (0.25, 0.25)


def test_ties_add_pseudo_pairs_at_the_bounds():
    """By hand: ten ties are Bonett and Price's; nine have pairs of weight 0.9^4."""
    t = scipy.stats.t.ppf(0.975, 9)
    half = t * np.sqrt((2 / 12) / 11)  # variance of ten 0, one 1 and one -1
    assert difference_interval(np.zeros(10), level=0.95) == pytest.approx((-half, half))
    values, weight = np.array([0.5, *[0] * 9]), 0.9**4
    total = 10 + 2 * weight
    centre = 0.5 / total
    half = t * np.sqrt(((0.25 + 2 * weight) / total - centre**2) / (total - 1))
    ends = difference_interval(values, level=0.95)
    assert ends == pytest.approx((centre - half, centre + half))
    assert difference_interval(-values, level=0.95) == pytest.approx((-ends[1], -ends[0]))
    assert difference_interval(np.zeros(2), level=0.95) == (-1, 1)


@given(st.lists(st.sampled_from([-1.0, -0.5, 0.0, 0.0, 0.25, 1.0]), min_size=2, max_size=30))
def test_an_interval_of_differences_contains_their_mean(values):
    low, high = difference_interval(np.array(values), level=0.95)
    assert -1 <= low <= np.mean(values) <= high <= 1


def test_a_share_has_wilsons_interval():
    """Wilson's, with the quantile of Student's distribution for the normal one."""
    values = np.repeat([1.0, 0.0], [7, 13])
    method, ends = mean_interval(values, level=0.95)
    t = scipy.stats.t.ppf(0.975, 19)
    level = scipy.stats.norm.cdf(t) * 2 - 1  # at which scipy's has that quantile, with n - 1 = 19
    theirs = scipy.stats.binomtest(7, 20).proportion_ci(level, method="wilson")
    assert method == "wilson"
    assert ends == pytest.approx((theirs.low, theirs.high), abs=0.012)
    # By hand: |0.35 - m| = t sqrt(m (1 - m) / 19) at both ends.
    for m in ends:
        assert abs(0.35 - m) == pytest.approx(t * np.sqrt(m * (1 - m) / 19))


def test_where_all_queries_are_right_the_interval_has_a_width():
    method, (low, high) = mean_interval(np.ones(10), level=0.95)
    assert (method, high) == ("wilson", 1.0)
    t = scipy.stats.t.ppf(0.975, 9)
    assert low == pytest.approx(9 / (9 + t**2))  # 1 - m = t sqrt(m (1 - m) / 9)
    assert mean_interval(np.zeros(10), level=0.95)[1] == pytest.approx((0, 1 - low))
    assert mean_interval(np.full(10, 0.5), level=0.95)[1] == (0.5, 0.5)


def test_scores_that_are_close_together_have_nearly_students_interval():
    values = np.clip(RNG.normal(0.45, 0.01, size=50), 0, 1)
    ours, theirs = mean_interval(values, level=0.95)[1], student_interval(values, level=0.95)
    width = (ours[1] - ours[0]) / (theirs[1] - theirs[0])
    assert 1 <= width < 1.05


@given(st.lists(st.integers(0, 10**6).map(lambda i: i / 10**6), min_size=2, max_size=60))
@settings(max_examples=200, deadline=None)
def test_intervals_of_scores_contain_the_mean_and_stay_within_the_bounds(scores):
    values = np.array(scores)
    low, high = mean_interval(values, level=0.95)[1]
    assert 0 <= low <= values.mean() + 1e-12
    assert values.mean() - 1e-12 <= high <= 1
    mirrored = mean_interval(1 - values, level=0.95)[1]
    assert mirrored == pytest.approx((1 - high, 1 - low), abs=1e-6)


@pytest.mark.parametrize("how", ["pearson", "spearman"])
def test_influence_values_are_those_of_a_tiny_weight(how):
    """Sum 0, and their variance over n is the bootstrap's variance of the correlation."""
    x = RNG.normal(size=400)
    y = np.round(x + RNG.normal(size=400))
    value, influence = correlation_influence(x, y, how=how)
    measure = scipy.stats.pearsonr if how == "pearson" else scipy.stats.spearmanr
    assert value == pytest.approx(measure(x, y).statistic)
    assert influence.mean() == pytest.approx(0, abs=0.02)
    picks = RNG.integers(0, 400, size=(1500, 400))
    drawn = [measure(x[each], y[each]).statistic for each in picks]
    assert influence.std() / 20 == pytest.approx(np.std(drawn), rel=0.1)


def test_a_correlations_interval_is_fishers_where_the_data_are_normal():
    x = scipy.stats.norm.ppf((np.arange(300) + 0.5) / 300)
    y = 0.3 * x + RNG.permutation(x)
    value = scipy.stats.pearsonr(x, y)
    theirs = value.confidence_interval(0.95)
    ours = correlation_interval(x, y, how="pearson", level=0.95)
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.02)
    assert ours[0] < value.statistic < ours[1]


def test_few_pairs_and_perfect_correlations_have_an_honest_interval():
    line = np.arange(5.0)
    assert correlation_interval(line[:3], line[:3], how="spearman", level=0.95) is None
    low, high = correlation_interval(line, line, how="spearman", level=0.95)
    assert low < 0.3
    assert high == pytest.approx(1)


def test_a_perfect_f1_has_a_width_and_an_uncertain_one_contains_its_value():
    truth = np.array([0.0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    low, high = f1_interval(truth, truth, level=0.95)
    assert (0.5 < low < 0.7, high) == (True, 1.0)
    predicted = np.array([0.0, 0, 0, 0, 1, 1, 1, 1, 1, 0])
    low, high = f1_interval(truth, predicted, level=0.95)
    assert low < 0.8 < high


def test_aggregates_name_their_method():
    def method(values, how="mean"):
        columns = {name: {str(i): v for i, v in enumerate(c)} for name, c in values.items()}
        return aggregate(columns, how=how, columns=tuple(columns), seed=0).interval

    assert method({"a": [0, 1, 0.5]}) == "wilson"
    assert method({"a": [0, 1, 7]}) == "student"
    assert method({"a": [0, 1, 2, 3], "b": [0, 3, 2, 4]}, "spearman") == "fisher"
    assert method({"a": [0, 1, 1, 0], "b": [0, 1, 0, 0]}, "macro_f1") == "wilson"
    assert method({"a": [0.5]}) == ""
    assert Aggregate(0.5, 0.4, 0.6, 9, "mean", ("a",)).interval == "percentile"


def test_methods_in_words():
    assert interval_words(["fisher", "wilson", ""]) == "Wilson's and Fisher's z"
    assert interval_words(["student"]) == "Student's"
    assert interval_words([]) == "none"
    with pytest.raises(ValueError, match="choose one of"):
        interval_words(["bayes"])


@pytest.mark.parametrize(("won", "lost"), [(0.12, 0.0), (0.12, 0.03), (0.3, 0.0)])
def test_coverage_of_differences_where_wins_are_rare(won, lost):
    """2,000 samples of ten queries: at least .94, where Student's has .63 to .84."""
    draw = np.random.default_rng(4)
    held = 0
    for _ in range(2000):
        share, sizes = draw.random(10), draw.beta(1, 2, 10)
        values = np.where(share < won, sizes, np.where(share < won + lost, -sizes, 0.0))
        low, high = difference_interval(values, level=0.95)
        held += low <= (won - lost) / 3 <= high
    assert held / 2000 >= 0.94


@pytest.mark.parametrize("n", [10, 20])
def test_coverage_of_few_queries(n):
    """2,000 samples of skewed scores, most of them 0: at least .94, where Student's has .79."""
    draw = np.random.default_rng(3)
    truth = 0.2 * 0.5
    held = 0
    for _ in range(2000):
        values = np.where(draw.random(n) < 0.8, 0.0, draw.beta(2, 2, n))
        low, high = mean_interval(values, level=0.95)[1]
        held += low <= truth <= high
    assert held / 2000 >= 0.94


def test_a_score_above_1_by_rounding_is_a_score_of_1():
    """scikit-learn's V-measure of a perfect clustering may be 1.0000000000000002."""
    exact, rounded = np.array([0.9, 1.0, 1.0]), np.array([0.9, 1.0, 1.0 + 2**-52])
    assert mean_interval(rounded, level=0.95) == mean_interval(exact, level=0.95)
    assert mean_interval(rounded, level=0.95)[0] == "wilson"
