"""Closed-form intervals against scipy, by hand, by properties and by simulated coverage."""

import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from qwen3nb.analysis.stats.multiple_testing import holm
from qwen3nb.metrics.aggregate import AGGREGATES, aggregate, aggregate_samples, reported
from qwen3nb.metrics.intervals import (
    _variance_ratio,
    correlation_influence,
    correlation_interval,
    difference_interval,
    difference_intervals,
    excludes_zero,
    f1_interval,
    interval_words,
    mean_interval,
    mean_of_intervals,
    no_worse,
    student_interval,
    within,
)

RNG = np.random.default_rng(5)


def test_students_interval_is_scipys():
    values = RNG.normal(3, 2, size=12)
    theirs = scipy.stats.ttest_1samp(values, 0).confidence_interval(0.9)
    assert student_interval(values, level=0.9) == pytest.approx((theirs.low, theirs.high))
    assert mean_interval(values, level=0.9) == ("student", student_interval(values, level=0.9))
    assert student_interval(values[:1], level=0.9) is None
    assert student_interval(np.full(4, 0.25), level=0.9) == (0.25, 0.25)
    # Symmetric values that spread have it, too.
    half = RNG.uniform(0.05, 0.5, size=10)
    values = np.concatenate([half, -half])
    theirs = student_interval(values, level=0.95)
    assert difference_interval(values, level=0.95) == pytest.approx(theirs)
    series = pd.Series(values, index=[f"q{n}" for n in range(len(values))])
    for form in (series, series.to_frame("difference"), series.to_dict(), series.tolist()):
        assert difference_interval(form) == difference_interval(values, level=0.95)
        assert student_interval(form) == theirs
    moved = tuple(end + 0.5 for end in theirs)
    assert mean_interval(values + 0.5, level=0.95) == ("widened", pytest.approx(moved))
    assert difference_interval(values[:1], level=0.95) is None


@pytest.mark.parametrize(
    ("n", "lacking"),  # 1 - 0.025^(1/n): of 3 queries that tie, all others may differ
    [(2, 1.0), (3, 1.0), (4, 0.6024), (10, 0.3085), (20, 0.1684), (200, 0.01828)],
)
@pytest.mark.parametrize("value", [0.0, 0.25, 0.5, 0.9, 1.0])
def test_values_that_do_not_spread_leave_open_what_they_may_lack(n, lacking, value):
    low, high = mean_interval(np.full(n, value), level=0.95)[1]
    assert (low, high) == pytest.approx(
        (value - lacking * value, value + lacking * (1 - value)), abs=2e-4
    )
    low, high = difference_interval(np.full(n, value), level=0.95)
    ends = value - lacking * (1 + value), value + lacking * (1 - value)
    assert (low, high) == pytest.approx(ends, abs=2e-4)
    narrow = value + 1e-4 * np.linspace(-1, 1, n) * (0 < value < 1)  # nearly equal: the same
    assert mean_interval(narrow, level=0.95)[1] == pytest.approx(
        (value - lacking * value, value + lacking * (1 - value)), abs=1e-3
    )


@pytest.mark.parametrize(
    "values",
    [
        [1.0] + [0.0] * 19,
        [1.0] + [0.0] * 99,  # losses as rare as the win may be missing
        [-1.0] + [0.0] * 19,
        [0.95, 0.95] + [-0.05] * 48,
        list(np.linspace(0, 1, 30) ** 4),
        [0.02, 0.03, 0.01, 0.02, 0.3],
        [3.0, -0.5, 0.5, 0.1],
    ],
)
def test_widened_intervals_by_their_formula(values):
    values = np.array(values)
    n, mean, bound = len(values), values.mean(), max(1, np.abs(values).max())
    t, sd = scipy.stats.t.ppf(0.975, n - 1), values.std(ddof=1)
    error = np.sqrt(6 * (n - 2) / ((n + 1) * (n + 3)))
    ends = []
    for sign in (-1, 1):
        excess = max(0, sign * scipy.stats.skew(values) - error)
        half = t * sd / np.sqrt(n) + 2.5 * excess * sd * (1 + 2 * t**2) / (6 * n)
        beyond = np.maximum(0, sign * (values - mean))
        spread = min(sd, np.sqrt(2 * np.mean(beyond**2)))
        distance = bound - sign * mean
        narrow = max(0, 1 - (spread / (0.05 * distance)) ** 4)
        unseen = narrow * (1 - 0.025 ** (1 / n)) * distance
        ends.append(np.clip(mean + sign * np.hypot(half, unseen), -bound, bound))
    assert difference_interval(values, level=0.95) == pytest.approx(tuple(ends))


@pytest.mark.parametrize("n", [20, 50, 200])
@pytest.mark.parametrize(
    ("share", "won", "lost", "noise"),
    [
        (0.05, 0.95, -0.05, 0.01),
        (0.02, 0.95, -0.02, 0.005),
        (0.1, -1.0, 0.0, 0),
        (0.05, -1.0, 0.0, 0.02),
        (0.02, -1.0, 0.0, 0),
        (0.1, 0.3, -0.03, 0),
    ],
)
def test_intervals_of_differences_cover_where_few_queries_differ(share, won, lost, noise, n):
    draw = np.random.default_rng(n)
    rows = np.where(draw.random((2000, n)) < share, won, lost) + draw.normal(0, noise, (2000, n))
    ends = np.array(difference_intervals(np.clip(rows, -1, 1), level=0.95))
    truth = share * won + (1 - share) * lost
    assert np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1])) >= 0.93 - 0.01


def test_draws_of_an_algorithm_have_students_interval():
    """Draws that are close together lack no rare ones; that all are equal shows nothing."""
    values = RNG.normal(0.45, 0.01, size=10)
    columns = {"v_measure": {str(i): v for i, v in enumerate(values)}}
    score = aggregate(columns, how="mean", columns=("v_measure",))
    assert score.interval == "student"
    assert (score.low, score.high) == pytest.approx(student_interval(np.sort(values), level=0.95))
    assert mean_interval(values, level=0.95)[1][1] > 0.5
    assert mean_interval(np.array([1.0, 0.99, 1.0]), level=0.95, drawn=True)[1][1] == 1
    assert mean_interval(np.full(9, 0.5), level=0.95, drawn=True)[0] == "widened"
    # scikit-learn's V-measure of a perfect clustering may be 1.0000000000000002.
    exact, rounded = np.array([0.9, 1.0, 1.0]), np.array([0.9, 1.0, 1.0 + 2**-52])
    assert mean_interval(rounded, level=0.95) == mean_interval(exact, level=0.95)


@pytest.mark.parametrize("how", ["pearson", "spearman"])
def test_influence_values_are_those_of_a_tiny_weight(how):
    """Sum 0, and their variance over n is the bootstrap's variance of the correlation."""
    x = RNG.normal(size=400)
    y = np.round(x + RNG.normal(size=400))
    value, influence = correlation_influence(x, y, how=how)
    ranks = scipy.stats.rankdata if how == "spearman" else np.asarray
    measure = scipy.stats.pearsonr if how == "pearson" else scipy.stats.spearmanr
    assert value == pytest.approx(measure(x, y).statistic)
    assert influence.mean() == pytest.approx(0, abs=0.02)
    picks = RNG.integers(0, 400, size=(1500, 400))
    drawn = scipy.stats.pearsonr(
        np.apply_along_axis(ranks, 1, x[picks]), np.apply_along_axis(ranks, 1, y[picks]), axis=1
    ).statistic
    assert influence.std() / 20 == pytest.approx(np.std(drawn), rel=0.1)


@pytest.mark.parametrize(
    ("how", "tail", "larger"),
    [("pearson", 2, True), ("pearson", 30, False), ("spearman", 30, True)],
)
def test_a_correlations_error_is_the_larger_of_two(how, tail, larger):
    """That of normal data, or, of heavy tails, that of the influence values."""
    draw = np.random.default_rng(8)
    x = scipy.stats.t.ppf((np.arange(80) + 0.5) / 80, tail)
    y = 0.8 * x + 0.3 * draw.permutation(x)
    r, influence = correlation_influence(x, y, how=how)
    own = influence.std() / (1 - r**2)
    usual = np.sqrt(1 + r**2 / 2) if how == "spearman" else 1
    assert (own > usual) == larger
    half = scipy.stats.norm.ppf(0.975) * max(own, usual) / np.sqrt(77)
    ends = np.tanh(np.arctanh(r) - half), np.tanh(np.arctanh(r) + half)
    assert correlation_interval(x, y, how=how, level=0.95) == pytest.approx(ends)


def test_few_pairs_and_perfect_correlations_have_an_honest_interval():
    line = np.arange(5.0)
    assert correlation_interval(line[:3], line[:3], how="spearman", level=0.95) is None
    low, high = correlation_interval(line, line, how="spearman", level=0.95)
    assert low < 0.3
    assert high == pytest.approx(1)
    mirrored = correlation_interval(line, -line, how="spearman", level=0.95)
    assert mirrored == pytest.approx((-high, -low))


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_a_perfect_f1_by_hand(classes):
    """1 - m = t sqrt(m (1 - m) / f), with f the number of texts less that of classes."""
    truth = np.repeat(np.arange(classes, dtype=float), 12 // classes)
    freedom = 12 - classes
    t = scipy.stats.t.ppf(0.975, freedom)
    ends = f1_interval(truth, truth, level=0.95)
    assert ends == pytest.approx((freedom / (freedom + t**2), 1))
    low, high = f1_interval(truth, np.roll(truth, 1), level=0.95)
    value = f1_score(truth, np.roll(truth, 1), average="macro")
    assert low < value < high < 1


def test_a_perfect_f1_of_as_many_classes_as_texts_says_little():
    """One degree of freedom is left, however many classes there are."""
    truth = np.arange(4.0)
    t = scipy.stats.t.ppf(0.975, 1)
    assert f1_interval(truth, truth, level=0.95) == pytest.approx((1 / (1 + t**2), 1))


def test_the_interval_of_a_weighted_mean_by_hand():
    """Distances of the ends: 0.1 and 0.1 below, 0.2 and 0.05 above, each times its weight."""
    ends = [(0.1, 0.4), (0.5, 0.65)]
    low, high = mean_of_intervals([0.2, 0.6], ends, weights=np.array([0.75, 0.25]))
    assert low == pytest.approx(0.3 - np.hypot(0.075, 0.025))
    assert high == pytest.approx(0.3 + np.hypot(0.15, 0.0125))
    low, high = mean_of_intervals([0.2, 0.6], ends)
    assert (low, high) == pytest.approx((0.4 - np.hypot(0.05, 0.05), 0.4 + np.hypot(0.1, 0.025)))


@pytest.mark.parametrize(
    ("interval", "margin", "outcome"),  # excludes 0, no worse, within
    [
        ((-0.1, 0.05), 0.1, (False, False, False)),  # an end at the margin shows nothing
        ((-0.05, 0.1), 0.1, (False, True, False)),
        ((-0.05, 0.05), 0.1, (False, True, True)),
        ((0.0, 0.05), 0.1, (False, True, True)),  # an end at 0 includes it
        ((-0.05, 0.0), 0.1, (False, True, True)),
        ((0.01, 0.2), 0.1, (True, True, False)),
        ((-0.2, -0.01), 0.1, (True, False, False)),
    ],
)
def test_what_an_interval_says(interval, margin, outcome):
    verdicts = excludes_zero(interval), no_worse(interval, margin), within(interval, margin)
    assert verdicts == outcome
    assert not no_worse(None, margin)
    assert not within(None, margin)


def columns(**values):
    return {name: {f"q{i}": v for i, v in enumerate(column)} for name, column in values.items()}


def test_aggregates_name_their_method():
    def method(how="mean", **values):
        return aggregate(columns(**values), how=how, columns=tuple(values)).interval

    assert method(a=[0, 1, 0.5]) == "widened"
    assert method(a=[0, 1, 7]) == "student"
    assert method("spearman", a=[0, 1, 2, 3], b=[0, 3, 2, 4]) == "fisher"
    assert method("macro_f1", a=[0, 1, 1, 0], b=[0, 1, 0, 0]) == "wilson"
    assert method(a=[0.5]) == ""
    assert interval_words(["fisher", "wilson", ""]) == "Wilson's and Fisher's z"
    assert interval_words(["student"]) == "Student's"
    assert interval_words(["widened", "paired"]) == "widened Student's"
    assert interval_words([]) == "none"


def test_an_aggregate_compares_as_its_value():
    half = reported(0.5, n=2)
    assert half <= 0.5 <= half
    assert not half < 0.5
    assert not half > 0.5
    assert (half > 0.4, half >= 0.6, half < 0.6, half <= 0.4) == (True, False, True, False)


def test_holm_by_hand():
    # Sorted: 0.01*4, 0.02*3 = 0.06, 0.03*2 = 0.06, 0.4*1; running maximum.
    assert holm([0.03, 0.01, 0.4, 0.02]) == pytest.approx([0.06, 0.04, 0.4, 0.06])
    with pytest.raises(ValueError, match="between 0 and 1"):
        holm([0.5, 1.5])


def test_aggregates_agree_with_scipy():
    x, y = RNG.normal(size=40), RNG.integers(0, 5, size=40).astype(float)  # ties in y
    per_query = columns(cosine=x, gold=y)
    for how, theirs in (("spearman", scipy.stats.spearmanr), ("pearson", scipy.stats.pearsonr)):
        ours = aggregate(per_query, how=how, columns=("cosine", "gold"))
        assert ours.value == pytest.approx(theirs(x, y).statistic)
        assert ours.low < ours.value < ours.high
    mean = aggregate(per_query, how="mean", columns=("cosine",))
    assert (mean.value, mean.n) == (pytest.approx(x.mean()), 40)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=30))
def test_macro_f1_equals_scikit_learn(rows):
    truth, guess = zip(*rows, strict=True)
    ours = aggregate(columns(a=truth, b=guess), how="macro_f1", columns=("a", "b"))
    theirs = f1_score(truth, guess, average="macro", zero_division=0)
    assert ours.value == pytest.approx(theirs)


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
    with pytest.raises(ValueError, match="query 'q1' has the value nan"):
        aggregate(columns(s=[1, np.nan]), how="mean", columns=("s",))
    with pytest.raises(ValueError, match="cover different queries"):
        aggregate({"a": {"x": 1}, "b": {"y": 1}}, how="pearson", columns=("a", "b"))


def languages(generator, *, shared, n=200, count=3):
    """Scores of the same sentences in several languages; ``shared``: what they have in common."""
    difficulty = generator.normal(0, math.sqrt(shared), n)
    alone = generator.normal(0, math.sqrt(1 - shared), (count, n))
    return np.clip(0.5 + 0.15 * (difficulty + alone), 0, 1)


def of_parts(scores):
    ids = [f"{part}/{query:05}" for part in range(len(scores)) for query in range(scores.shape[1])]
    column = dict(zip(ids, scores.ravel().tolist(), strict=True))
    parts = [f"{part}/" for part in range(len(scores))]
    return aggregate({"s": column}, how="mean", columns=("s",), parts=parts)


def test_the_same_sentences_in_several_languages_are_not_independent():
    generator = np.random.default_rng(7)
    scores = languages(generator, shared=0.6)
    score = of_parts(scores)
    assert score.interval == "parallel"
    # By hand: one value per sentence, the mean over its languages.
    low, high = student_interval(scores.mean(axis=0), level=0.95)
    assert (score.low, score.high) == pytest.approx((low, high), abs=2e-4)
    covered = []
    for _ in range(400):
        score = of_parts(languages(generator, shared=0.6, n=60))
        covered.append(score.low <= 0.5 <= score.high)
    assert 0.92 <= np.mean(covered) <= 0.98


def test_a_language_in_which_all_sentences_score_alike_stops_nothing():
    scores = languages(np.random.default_rng(7), shared=0.6)
    scores[0] = 0.5
    score = of_parts(scores)
    low, high = student_interval(scores.mean(axis=0), level=0.95)
    assert score.interval == "parallel"
    assert (score.low, score.high) == pytest.approx((low, high), abs=0.01)


@pytest.mark.parametrize(
    ("variance", "n", "ratio"),
    [
        (0.3, 25, 1.5),  # larger than that of a share: as it is
        (0.2, 25, 1.0),
        (0.1, 25, 0.5 + 0.5 * 1.25 / 5),  # shrunk towards 1, by (1 + ratio / 2) / sqrt(n)
        (0.1, 2500, 0.5 + 0.5 * 1.25 / 50),
        (0.1, 1, 1.0),  # never beyond it
    ],
)
def test_the_variance_of_few_influence_values_is_shrunk_towards_that_of_a_share(variance, n, ratio):
    assert _variance_ratio(variance, 0.2, n) == pytest.approx(ratio)
    assert _variance_ratio(variance, 0.0, n) == 1


@pytest.mark.parametrize(
    ("how", "method"), [("spearman", "fisher"), ("pearson", "fisher"), ("macro_f1", "wilson")]
)
def test_correlations_of_the_same_pairs_in_several_languages(how, method):
    """The error is that of a bootstrap which draws each sentence with all its languages."""
    generator = np.random.default_rng(11)
    count, n = 3, 300
    gold = generator.normal(size=n)
    common = generator.normal(size=n)
    found = gold + common + 0.3 * generator.normal(size=(count, n))
    if how == "macro_f1":
        gold, found = (gold > 0).astype(float), (found > 0).astype(float)
    rows = [np.stack([of_part, gold], axis=1) for of_part in found]
    ids = [f"{part}/{row:03}" for part in range(count) for row in range(n)]
    table = np.concatenate(rows)
    scores = {
        "found": dict(zip(ids, table[:, 0].tolist(), strict=True)),
        "gold": dict(zip(ids, table[:, 1].tolist(), strict=True)),
    }
    parts = [f"{part}/" for part in range(count)]
    together = aggregate(scores, how=how, columns=("found", "gold"), parts=parts)
    assert together.interval == f"parallel {method}"
    statistic = AGGREGATES[how]
    means = []
    for _ in range(1000):
        drawn = generator.integers(n, size=n)
        means.append(np.mean([statistic(sample[drawn][None])[0] for sample in rows]))
    error = np.std(means)
    half = (together.high - together.low) / 2
    assert half == pytest.approx(1.96 * error, rel=0.12)
    alone = aggregate_samples(rows, how=how, columns=("found", "gold"), parts=parts)
    assert (alone.high - alone.low) / 2 < 0.8 * half


def test_other_subsets_are_combined_as_before():
    generator = np.random.default_rng(8)
    scores = languages(generator, shared=0.0)
    ends = [mean_interval(row, level=0.95)[1] for row in scores]
    expected = mean_of_intervals(scores.mean(axis=1).tolist(), ends)
    score = of_parts(scores)
    assert score.interval == "widened"
    assert (score.low, score.high) == pytest.approx(expected, abs=1e-15)
    # Other queries, though as many and correlated by chance of their order.
    same = languages(generator, shared=0.9)
    ids = [f"{part}/{part}-{query}" for part in range(3) for query in range(200)]
    column = dict(zip(ids, same.ravel().tolist(), strict=True))
    other = aggregate({"s": column}, how="mean", columns=("s",), parts=["0/", "1/", "2/"])
    assert other.interval == "widened"
    constant = of_parts(np.full((3, 30), 0.5))
    assert constant.interval == "widened"
