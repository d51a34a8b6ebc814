"""Ranks with intervals, and tie groups."""

import itertools

import numpy as np
import pytest
import scipy
from helpers.matrices import table

from qwen3nb.analysis.comparison import ranking as ranking_module
from qwen3nb.analysis.comparison.ranking import borda_ranks, rank_systems
from qwen3nb.analysis.stats.score_matrix import join
from qwen3nb.metrics.intervals import excludes_zero

RNG = np.random.default_rng(5)


def test_ranks_of_clear_and_unclear_systems():
    base = RNG.random(200)
    rows = [base - 0.3, base, base + RNG.normal(0, 0.01, 200), base + 0.3]
    ranking = rank_systems([table(*rows)], n_resamples=2000, seed=1)
    assert [each.rank for each in ranking.standings] == [1, 2, 3, 4]
    first, second, third, last = ranking.standings
    assert (first.system, last.system) == ("s3", "s0")
    assert (first.rank_interval, last.rank_interval) == ((1, 1), (4, 4))
    assert second.rank_interval == third.rank_interval == (2, 3)
    assert [each.groups for each in ranking.standings] == [(), (1,), (1,), ()]


def test_a_rank_interval_counts_who_is_significantly_better_or_worse():
    """s1 differs from s0 and s3: with s2, which differs from none, it may be 2nd or 3rd."""
    base = RNG.random(200)
    wide = base + RNG.normal(0, 2, 200)
    rows = [base + 0.2, base, wide - wide.mean() + base.mean() - 0.01, base - 0.2]
    by_name = {
        s.system: s for s in rank_systems([table(*rows)], n_resamples=2000, seed=1).standings
    }
    assert {name: each.rank_interval for name, each in by_name.items()} == {
        "s0": (1, 2),
        "s1": (2, 3),
        "s2": (1, 4),
        "s3": (3, 4),
    }


def test_the_order_of_the_queries_is_not_a_rank():
    """0.1 + 0.2 + 0.3 is not 0.3 + 0.2 + 0.1 in binary, but the mean is the same."""
    ranking = rank_systems([table([0.1, 0.2, 0.3], [0.3, 0.2, 0.1])], n_resamples=50, seed=0)
    assert [(each.rank, each.rank_interval) for each in ranking.standings] == [(1, (1, 2))] * 2
    assert [each.groups for each in ranking.standings] == [(1,), (1,)]


def test_each_task_counts_the_same_whatever_its_size():
    small = table([1, 1, 1], [0, 0, 0], task="small")
    large = table([0.0] * 90, [0.5] * 90, task="large")
    ranking = rank_systems([small, large], n_resamples=100, seed=0)
    assert [(s.system, s.mean) for s in ranking.standings] == [("s0", 0.5), ("s1", 0.25)]


def test_tests_weigh_tasks_as_means_do():
    """Twelve queries won by 0.5 outweigh a hundred lost by 0.02 on average, which vary by 0.3."""
    noise = RNG.normal(0, 0.3, 100)
    small = table(np.linspace(0.2, 0.8, 12), [0.0] * 12, task="small")
    large = table(0.48 + noise - noise.mean(), [0.5] * 100, task="large")
    first, last = rank_systems([small, large], n_resamples=2000, seed=0).standings
    assert (first.system, first.rank_interval, last.rank_interval) == ("s0", (1, 1), (2, 2))
    assert first.mean - last.mean == pytest.approx((0.5 - 0.02) / 2)


def test_systems_without_a_task_are_reported():
    two = table([1, 0], [0, 1])
    three = table([1, 0], [0, 1], [1, 1], task="other")
    ranking = rank_systems([two, three], n_resamples=50, seed=0)
    assert ranking.left_out == ("s2 is not ranked: no score on task",)
    with pytest.raises(ValueError, match="fewer than two systems"):
        rank_systems([two, join({"x": {"q": 1}, "y": {"q": 1}}, task="z")], seed=0)
    with pytest.raises(ValueError, match="at least one task"):
        rank_systems([], seed=0)


def test_borda_ranks_are_those_of_mteb_ties_included():
    polars = pytest.importorskip("polars")
    tables = pytest.importorskip("mteb.benchmarks._create_table")
    means = np.round(RNG.random((7, 6)), 1)
    rows = [
        {"model_name": f"m{m}", "task_name": f"t{t}", "score": float(means[t, m])}
        for t, m in np.ndindex(means.shape)
    ]
    theirs = {
        row["model_name"]: row["Rank (Borda)"]
        for row in tables._borda_rank_from_long(polars.DataFrame(rows)).to_dicts()
    }
    assert borda_ranks(means) == [theirs[f"m{m}"] for m in range(6)]
    # By hand: 1.5 + 2, 1.5 + 1, 0 + 0 points.
    assert borda_ranks(np.array([[0.5, 0.5, 0.1], [0.9, 0.8, 0.2]])) == [1, 2, 3]
    assert borda_ranks(np.array([[0.5, 0.9], [0.9, 0.5]])) == [1, 1]


def test_other_tasks_like_these_are_a_draw_of_five_or_more():
    """Of six tasks, one is in two parts. s1 is ahead only on the task on which it is far ahead."""
    ours = np.array([0.5, 0.5, 0.5, 0.5, 0.5, 0.4, 0.6])
    theirs = np.array([0.4, 0.45, 0.4, 0.45, 0.8, 0.4, 0.6])
    units = [*"abcde", "f", "f"]
    matrices = [
        table([a, a], [b, b], task=f"t{i}")
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True))
    ]
    weights = [1, 1, 1, 1, 1, 0.5, 0.5]
    ranking = rank_systems(matrices, n_resamples=50, seed=0, weights=weights, units=units)
    by_name = {each.system: each for each in ranking.standings}
    means = [0.4, 0.45, 0.4, 0.45, 0.8, 0.5]
    half = scipy.stats.t.ppf(0.975, 5) * np.std(means, ddof=1) / np.sqrt(6)
    assert by_name["s1"].like_these == pytest.approx((0.5 - half, 0.5 + half))
    assert by_name["s0"].like_these is None  # all tasks are equal: rare ones may be lacking
    assert (ranking.units, by_name["s0"].borda, by_name["s1"].borda) == (6, 1, 2)
    # Without the fifth task, (5/6)^6 of the draws, s1 cannot be first.
    assert by_name["s0"].first + by_name["s1"].first == pytest.approx(1)
    assert by_name["s0"].first > (5 / 6) ** 6
    few = rank_systems(matrices[:4], n_resamples=50, seed=0)
    assert {(each.like_these, each.first) for each in few.standings} == {(None, None)}


@pytest.mark.parametrize("kind", ["plain", "clusters", "one large cluster", "parts", "single"])
def test_pairs_differ_if_the_test_and_the_interval_say_so(kind, monkeypatch):
    """Most pairs are decided by bounds, and none otherwise than by its interval."""
    rng = np.random.default_rng(7)
    names = [f"s{number}" for number in range(12)]
    matrices = []
    for task, n in (("few", 30), ("many", 250)):
        queries = [f"q{number}" for number in range(n)]
        difficulty = rng.beta(0.5, 0.5, n)
        columns = {}
        for place, name in enumerate(names):
            scores = np.clip(difficulty + 0.02 * place + rng.normal(0, 0.2, n), 0, 1)
            columns[name] = dict(zip(queries, scores.tolist(), strict=True))
        columns["s1"] = columns["s0"]
        options = {}
        if kind == "clusters":
            options["clusters"] = {query: str(i // 2) for i, query in enumerate(queries)}
        if kind == "one large cluster":
            options["clusters"] = {q: q if i > n / 5 else "a" for i, q in enumerate(queries)}
        if kind == "parts":
            options["part_of"] = {q: "a" if i % 3 else "b" for i, q in enumerate(queries)}
        if kind == "single" and task == "few":
            columns = {name: {"q1": scores["q1"]} for name, scores in columns.items()}
        matrices.append(join(columns, task=task, **options))
    pairs = list(itertools.combinations(names, 2))
    p_values = rng.choice([0.01, 0.2], len(pairs), p=[0.8, 0.2])
    shares = np.array([0.3, 0.7])
    computed_pairs = []
    whole = ranking_module.paired_over_tasks

    def counted(matrices, pairs, shares):
        computed_pairs.extend(pairs)
        return whole(matrices, pairs, shares)

    monkeypatch.setattr(ranking_module, "paired_over_tasks", counted)
    differ = ranking_module.differing_pairs(matrices, names, p_values, shares)
    differences = whole(matrices, pairs, shares)
    for (first, second), p, difference in zip(pairs, p_values, differences, strict=True):
        expected = p < 0.05 and excludes_zero(difference.interval)
        row, column = names.index(first), names.index(second)
        assert differ[row, column] == differ[column, row] == expected
    assert 0 < differ.sum() < 2 * (p_values < 0.05).sum()
    decided = (p_values < 0.05).sum() - len(computed_pairs)
    assert decided == 0 if kind == "one large cluster" else decided > len(computed_pairs)
