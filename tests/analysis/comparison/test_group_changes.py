"""Groups that changed unlike the rest are named, one after the other, and others are not."""

import numpy as np
import pytest

from qwen3nb.analysis.comparison.forgotten_groups import Verdict, compare_groups
from qwen3nb.analysis.comparison.group_changes import QueryGroup, unlike_the_rest
from qwen3nb.analysis.stats.score_matrix import join

FIRST = QueryGroup("topic", "first", tuple(range(30)))
SECOND = QueryGroup("topic", "second", tuple(range(30, 60)))
EVEN = QueryGroup("length", "even", tuple(range(0, 90, 2)))
SMALL = QueryGroup("topic", "small", tuple(range(60, 69)))
GROUPS = [FIRST, SECOND, EVEN, SMALL]


def noise(seed=0, spread=0.1):
    return np.random.default_rng(seed).normal(0, spread, 90)


def named(tests):
    return [test.group.name for test in tests if test.is_named]


def changes_of(differences, groups=GROUPS, clusters=None):
    before = np.full(90, 0.5)
    columns = {
        "old": {f"q{row:02}": value for row, value in enumerate(before.tolist())},
        "new": {f"q{row:02}": value for row, value in enumerate((before + differences).tolist())},
    }
    matrix = join(columns, task="t", metric="m", clusters=clusters)
    _, changes = compare_groups(matrix, groups, before="old", after="new", n_resamples=500)
    return changes


def test_the_statistic_is_that_of_the_formula():
    """Against the same test, computed in plain steps."""
    differences = noise()
    differences[:30] -= 0.03
    (test,) = unlike_the_rest(differences, [FIRST], n_resamples=999, seed=3)
    outside = differences[30:].mean()
    assert test.difference == pytest.approx(differences[:30].mean() - outside)

    def statistic(values):
        own = values[:30].var(ddof=1) / 30
        error = np.sqrt(max(own, values.var(ddof=1) / 30) * 90 / 60)
        return abs(values[:30].mean() - values[30:].mean()) / error

    shuffles = np.random.default_rng(3).permuted(np.tile(differences, (999, 1)), axis=1)
    extreme = sum(statistic(row) >= statistic(differences) * (1 - 1e-9) for row in shuffles)
    assert test.p_value == (extreme + 1) / 1000


def test_a_dropped_group_is_named_and_an_overall_shift_is_not():
    differences = noise()
    assert named(unlike_the_rest(differences - 0.4, GROUPS, n_resamples=500)) == []
    differences[:30] -= 0.3
    assert named(unlike_the_rest(differences, GROUPS, n_resamples=500)) == ["first"]


def test_a_group_is_not_named_for_queries_of_one_above_it():
    """Half of the overlapping group fell, all in the first; the second rose on its own."""
    differences = noise()
    differences[:30] -= 0.4
    overlapping = QueryGroup("length", "overlapping", tuple(range(15, 45)))
    tests = unlike_the_rest(differences, [overlapping, FIRST], n_resamples=500)
    assert named(tests) == ["first"]
    assert [test.compared for test in tests] == [30, 15]
    differences[30:60] += 0.4
    tests = unlike_the_rest(differences, GROUPS, n_resamples=500)
    assert sorted(named(tests)) == ["first", "second"]
    assert [test.rank for test in tests[:2]] == [1, 2]


def test_small_groups_and_single_clusters_are_not_compared():
    differences = noise()
    differences[60:69] -= 5
    tests = {test.group.name: test for test in unlike_the_rest(differences, GROUPS)}
    assert tests["small"].p_value is None
    clusters = ["one"] * 30 + [f"c{row}" for row in range(60)]
    (test,) = unlike_the_rest(noise(), [FIRST], clusters=clusters)
    assert (test.compared, test.p_value) == (30, None)


def test_queries_of_one_cluster_count_together():
    """Six clusters that fell or rose as one are less sure than thirty queries."""
    clusters = [f"a{row % 6}" for row in range(30)] + [f"b{row}" for row in range(60)]
    fell = np.array([-0.5, -0.4, -0.3, 0.3, -0.4, 0.2])
    differences = noise(spread=0.05)
    differences[:30] += fell[np.arange(30) % 6]
    (alone,) = unlike_the_rest(differences, [FIRST], n_resamples=500)
    (together,) = unlike_the_rest(differences, [FIRST], clusters=clusters, n_resamples=500)
    assert alone.p_value < 0.01 < together.p_value


def test_clusters_of_overlapping_groups_are_summed_as_the_formula_says():
    """Against plain steps: the variance of a mean is that of sums over clusters."""
    differences = noise()
    clusters = [f"c{row % 13}" for row in range(90)]
    groups = [QueryGroup("topic", str(start), tuple(range(start, 40))) for start in (0, 10)]
    tests = unlike_the_rest(differences, groups, clusters=clusters, n_resamples=100)
    for test in tests:
        members = np.array(test.group.members)
        inside = differences[members]
        outside = np.delete(differences, members)
        from_mean = inside - inside.mean()
        sums = [from_mean[members % 13 == code].sum() for code in set(members % 13)]
        own = np.square(sums).sum() / len(members) ** 2 * len(sums) / (len(sums) - 1)
        error = np.sqrt(max(own, differences.var(ddof=1) / len(members)) * 90 / len(outside))
        assert test.statistic == pytest.approx((inside.mean() - outside.mean()) / error)


def test_of_equal_p_values_the_largest_statistic_is_named_first():
    """A topic and its half fell alike: the whole topic is surer."""
    differences = noise()
    differences[:30] -= 1
    half = QueryGroup("narrow topic", "half", tuple(range(15)), is_listed=False)
    tests = unlike_the_rest(differences, [half, FIRST], n_resamples=200)
    assert tests[0].p_value == 1 / 201
    assert named(tests) == ["first"]


def test_a_group_that_is_not_listed_is_returned_if_it_is_named():
    differences = noise()
    half = QueryGroup("narrow topic", "half", tuple(range(15)), is_listed=False)
    assert "half" not in [change.group.name for change in changes_of(differences, [half, SECOND])]
    differences[:15] -= 0.5
    changes = changes_of(differences, [half, SECOND])
    assert changes[0].group == half
    assert changes[0].verdict == Verdict.FORGOTTEN


def test_equal_changes_name_nothing():
    tests = unlike_the_rest(np.full(90, -0.2), GROUPS)
    assert {test.p_value for test in tests} == {1.0, None}


@pytest.mark.parametrize(
    ("shift", "of_group", "verdict"),
    [
        (0.0, -0.3, Verdict.FORGOTTEN),
        (0.0, +0.3, Verdict.LEARNED),
        (+0.3, -0.3, Verdict.LEFT_BEHIND),
        (-0.3, +0.3, Verdict.SPARED),
        (-0.3, 0.0, Verdict.AS_THE_REST),
    ],
)
def test_the_word_says_how_a_group_changed(shift, of_group, verdict):
    differences = noise() + shift
    differences[:30] += of_group
    verdicts = {change.group.name: change.verdict for change in changes_of(differences)}
    assert verdicts["first"] == verdict
    assert verdicts["small"] == Verdict.TOO_SMALL


@pytest.mark.parametrize("kind", ["shuffled", "flipped", "more varied"])
def test_groups_are_seldom_named_by_chance(kind):
    """Of 60 comparisons without an effect, 3 are expected; 8 or more are one in a hundred."""
    count = 0
    for seed in range(60):
        generator = np.random.default_rng([seed, 7])
        values = np.where(generator.random(90) < 0.3, generator.normal(0, 0.4, 90), 0.0)
        if kind == "flipped":
            values = np.abs(values) * generator.choice([-1, 1], 90)
        if kind == "more varied":
            values[:30] *= 3
        tests = unlike_the_rest(values, GROUPS, n_resamples=200, seed=seed)
        count += bool(named(tests))
    assert count < 8
