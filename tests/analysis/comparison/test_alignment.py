"""Joining systems by query, all pairs, leaderboard, categories."""

import json
from functools import partial

import numpy as np
import pytest
import scipy.stats
from helpers.records import make
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.analysis.comparison.alignment import join, pair_results
from qwen3nb.analysis.comparison.by_category import breakdown
from qwen3nb.analysis.comparison.correlation_tests import compare_correlations
from qwen3nb.analysis.comparison.pairwise import compare_pairs
from qwen3nb.analysis.comparison.ranking import leaderboard, tie_groups
from qwen3nb.analysis.comparison.ranking_by_type import category_leaderboards
from qwen3nb.analysis.stats.paired_tests import effect_size, paired_bootstrap, permutation_test
from qwen3nb.analysis.stats.resampling import draw_seed

RNG = np.random.default_rng(5)
COLUMNS = st.dictionaries(
    st.sampled_from("abc"),
    st.dictionaries(st.sampled_from(["q1", "q2", "q3", "q4"]), st.floats(0, 1), min_size=1),
    min_size=2,
)


def table(*rows, task="task"):
    """A matrix of systems s0, s1, … with these rows of scores."""
    columns = {
        f"s{i}": {f"q{j:04d}": float(v) for j, v in enumerate(row)} for i, row in enumerate(rows)
    }
    return join(columns, task=task, metric="nDCG@10")


def test_join_by_hand():
    found = join({"a": {"q2": 0.2, "q1": 0.1, "q3": 1}, "b": {"q1": 0.5, "q2": 0.6}}, task="T")
    assert found.queries == ("q1", "q2")
    assert found.scores.tolist() == [[0.1, 0.2], [0.5, 0.6]]
    assert found.unpaired == {"a": ("q3",), "b": ()}
    assert found.notes == ("T: 1 queries of a do not pair (q3)",)
    assert found.column("b").tolist() == [0.5, 0.6]
    with pytest.raises(ValueError, match="no system 'c' on T; there are: a, b"):
        found.column("c")


@settings(max_examples=60, deadline=None)
@given(COLUMNS)
def test_join_loses_no_query(columns):
    if not set.intersection(*(set(values) for values in columns.values())):
        with pytest.raises(ValueError, match="no query is shared by all systems"):
            join(columns)
        return
    found = join(columns)
    for system, values in columns.items():
        assert set(found.queries) | set(found.unpaired[system]) == set(values)
        assert found.column(system).tolist() == [values[query] for query in found.queries]


def test_join_refuses():
    with pytest.raises(ValueError, match="two or more systems"):
        join({"a": {"q": 1}})
    with pytest.raises(ValueError, match="T: b has no finite value on query 'q2'"):
        join({"a": {"q1": 1, "q2": 1}, "b": {"q1": 1, "q2": float("nan")}}, task="T")


def test_records_are_paired_and_the_rest_is_named():
    scores = {"q1": 0.1, "q2": 0.5}
    record = partial(make, task="T", revision="r1")
    found = pair_results(
        [
            record("a", scores),
            record("b", {**scores, "q3": 1.0}),
            record("b", scores, finished="0"),
            record("c", scores, revision="r2"),
            record("d", scores, metric="Spearman"),
            record("a", scores, task="U"),
        ],
        metric="nDCG@10",
        tasks=["T", "U", "V"],
    )
    (matrix,) = found.matrices
    assert (matrix.task, matrix.systems) == ("T", ("a", "b"))
    text = "\n".join(found.notes)
    assert "earlier record of b (seed 0)" in text
    assert "T: c was run on revision r2 of the data, the others on r1" in text
    assert "T: d has no nDCG@10 per query" in text
    assert "U: a has no other system to pair with" in text
    assert "V: no record of any system" in text
    assert "T: 1 queries of b do not pair (q3)" in text


def test_names_tell_systems_apart():
    scores = {"q1": 0.1, "q2": 0.5}
    found = pair_results(
        [
            make("a", scores, identity="1" * 16),
            make("a", scores, identity="2" * 16),
            make("b", scores, seed=1),
            make("b", scores, seed=2),
        ]
    )
    systems = found.matrices[0].systems
    assert set(systems) == {"a (11111111)", "a (22222222)", "b (seed 1)", "b (seed 2)"}


def test_all_pairs_are_what_each_pair_alone_is():
    base = RNG.random(50)
    matrix = table(*(base + RNG.normal(0, 0.1, 50) for _ in range(4)))
    family = compare_pairs([matrix], n_resamples=2000, seed=3)
    assert len(family.pairs) == 6
    drawn = draw_seed(3, matrix.queries)
    for pair in family.pairs:
        a, b = matrix.column(pair.first), matrix.column(pair.second)
        alone = paired_bootstrap(a, b, n_resamples=2000, seed=drawn)
        assert pair.interval == pytest.approx(alone.interval, abs=1e-9)
        assert pair.bca == pytest.approx(alone.bca, abs=1e-9)
        assert pair.p_value == permutation_test(a, b, n_resamples=2000, seed=drawn).p_value
        assert pair.d_z == effect_size(a, b).d_z
        assert pair.adjusted >= pair.p_value
    json.loads(family.to_json())
    assert "Holm" not in family.to_markdown()
    assert "adjusted by holm over all 6 comparisons" in family.to_markdown()
    assert family.between("s0", "s1", task="task") is family.pairs[0]
    with pytest.raises(KeyError):
        family.between("s1", "s0", task="task")


def test_the_family_is_declared():
    matrices = [table([1, 0, 1, 1], [0, 0, 0, 0], [0, 1, 0, 0], task=name) for name in "TU"]
    whole = compare_pairs(matrices, n_resamples=500, seed=0)
    each = compare_pairs(matrices, n_resamples=500, family="task", seed=0)
    assert "all 6 comparisons" in whole.family
    assert "each task (3, 3)" in each.family
    assert all(p.adjusted >= q.adjusted for p, q in zip(whole.pairs, each.pairs, strict=True))
    with pytest.raises(ValueError, match="choose one of: all, task"):
        compare_pairs(matrices, family="tier", seed=0)


def test_one_query_and_equal_systems_are_strict_json():
    family = compare_pairs([table([0.5], [0.7]), table([1, 0], [1, 0])], n_resamples=50, seed=0)
    one, equal = family.pairs
    assert (one.interval, one.p_value, one.d_z) == (None, 1, None)
    assert (equal.interval, equal.p_value, equal.d_z) == ((0, 0), 1, 0)
    json.loads(family.to_json())


def test_ranks_of_clear_and_unclear_systems():
    base = RNG.random(200)
    rows = [base - 0.3, base, base + RNG.normal(0, 0.01, 200), base + 0.3]
    found = leaderboard([table(*rows)], n_resamples=2000, seed=1)
    assert [each.rank for each in found.standings] == [1, 2, 3, 4]
    first, second, third, last = found.standings
    assert (first.system, last.system) == ("s3", "s0")
    assert (first.rank_interval, last.rank_interval) == ((1, 1), (4, 4))
    assert second.rank_interval == third.rank_interval == (2, 3)
    assert found.groups == ((second.system, third.system),)
    assert (first.groups, second.groups) == ((), (1,))
    assert (first.best, last.best) == (1, 0)
    assert found.adjacent_separable == 2
    json.loads(found.to_json())
    assert "2 of 3 neighbouring pairs do" in found.to_markdown()


def test_equal_systems_share_rank_and_first_place():
    found = leaderboard([table([1, 0, 1], [1, 0, 1])], n_resamples=200, seed=0)
    assert [(s.rank, s.best, s.rank_interval) for s in found.standings] == [(1, 0.5, (1, 1))] * 2
    assert found.groups == (("s0", "s1"),)


def test_each_task_counts_the_same_whatever_its_size():
    small = table([1, 1, 1], [0, 0, 0], task="small")
    large = table([0.0] * 90, [0.5] * 90, task="large")
    found = leaderboard([small, large], n_resamples=100, seed=0)
    assert [(s.system, s.mean) for s in found.standings] == [("s0", 0.5), ("s1", 0.25)]


def test_systems_without_a_task_are_named():
    two = table([1, 0], [0, 1])
    three = table([1, 0], [0, 1], [1, 1], task="other")
    found = leaderboard([two, three], n_resamples=50, seed=0)
    assert found.left_out == ("s2 is not ranked: no score on task",)
    with pytest.raises(ValueError, match="fewer than two systems"):
        leaderboard([two, join({"x": {"q": 1}, "y": {"q": 1}}, task="z")], seed=0)
    with pytest.raises(ValueError, match="at least one task"):
        leaderboard([], seed=0)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 7), st.randoms(use_true_random=False))
def test_tie_groups_are_the_longest_runs_without_a_difference(count, random):
    differ = np.zeros((count, count), dtype=bool)
    for i in range(count):
        for j in range(i):
            differ[i, j] = differ[j, i] = random.random() < 0.4
    order = random.sample(range(count), count)
    groups = tie_groups(order, differ)
    runs = {
        tuple(order[i:j])
        for i in range(count)
        for j in range(i + 2, count + 1)
        if not any(differ[x, y] for x in order[i:j] for y in order[i:j])
    }
    longest = {r for r in runs if not any(r != s and set(r) < set(s) for s in runs)}
    assert set(groups) == longest


def test_categories_add_up_and_opposed_ones_are_flagged():
    queries = [f"q{i:03d}" for i in range(60)]
    categories = {query: "short" if i < 20 else "long" for i, query in enumerate(queries)}
    first = {query: 0.3 if i < 20 else 0.9 for i, query in enumerate(queries)}
    second = dict.fromkeys(queries, 0.6)
    found = breakdown(first, second, categories, n_resamples=2000, seed=0)
    long, short = found.rows
    assert (long.n, short.n, found.overall.n) == (40, 20, 60)
    assert found.overall.difference == pytest.approx(
        (40 * long.difference + 20 * short.difference) / 60
    )
    assert [each.kind for each in found.reversals] == ["opposed"]
    assert "short: -0.300 on 20 queries" in found.reversals[0].text
    json.loads(found.to_json())
    assert "against +0.100 on all 60" in found.to_markdown()


def test_weighting_turns_an_order_round():
    """Ten queries of one kind at -0.1, one each of two kinds at +0.4."""
    queries = [f"q{i:02d}" for i in range(12)]
    first = {query: 0.4 if i < 10 else 0.9 for i, query in enumerate(queries)}
    second = dict.fromkeys(queries, 0.5)
    kinds = dict.fromkeys(queries, "many") | {"q10": "x", "q11": "y"}
    found = breakdown(first, second, kinds, n_resamples=200, seed=0)
    assert [each.kind for each in found.reversals if each.kind == "weighting"] == ["weighting"]
    assert "every query counting once gives -0.017, every category counting once +0.233" in (
        found.to_markdown()
    )


def test_simpsons_paradox_of_unequal_coverage():
    """a is better on every shared query, but answered more of the hard ones."""
    easy, hard = [f"e{i}" for i in range(10)], [f"h{i}" for i in range(10)]
    first = dict.fromkeys(easy[:2], 0.9) | dict.fromkeys(hard, 0.3)
    second = dict.fromkeys(easy, 0.8) | dict.fromkeys(hard[:2], 0.2)
    categories = dict.fromkeys(easy, "easy") | dict.fromkeys(hard[:5], "hard")
    found = breakdown(first, second, categories, n_resamples=200, seed=0)
    assert found.overall.difference == pytest.approx(0.1)
    assert [each.kind for each in found.reversals] == ["coverage"]
    assert len(found.notes) == 2


def test_leaderboards_by_category_and_their_reversals():
    """Three retrieval tasks at +0.1 for s0, one STS task at -0.5."""
    rows = {"R1": (0.6, 0.5), "R2": (0.6, 0.5), "R3": (0.9, 0.7), "S": (0.2, 0.5)}
    matrices = [table([a] * 30, [b] * 30, task=task) for task, (a, b) in rows.items()]
    kinds = {task: "Retrieval" if task[0] == "R" else "STS" for task in rows}
    found = category_leaderboards(matrices, kinds, n_resamples=200, seed=0)
    assert [s.system for s in found.overall.standings] == ["s0", "s1"]
    assert [s.system for s in found.boards["STS"].standings] == ["s1", "s0"]
    # Categories counting once: (0.7 + 0.2) / 2 against (0.5667 + 0.5) / 2.
    assert found.balanced == (("s1", pytest.approx(0.53333, abs=1e-5)), ("s0", pytest.approx(0.45)))
    assert [each.kind for each in found.reversals] == ["weighting", "opposed"]
    assert "s0 is above s1 by 0.025 where every task counts once" in found.reversals[0].text
    assert "separably below it in STS (0.200, 0.500)" in found.to_markdown()
    json.loads(found.to_json())
    lonely = join({"x": {"q": 1.0}, "s0": {"q": 1.0}}, task="odd")
    with pytest.raises(ValueError, match="fewer than two systems"):
        category_leaderboards([*matrices, lonely], kinds, n_resamples=50, seed=0)


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
    found = compare_correlations(good, poor, gold, how=how, n_resamples=1000, seed=0)
    theirs = {"spearman": scipy.stats.spearmanr, "pearson": scipy.stats.pearsonr}[how]
    values = [theirs(list(x.values()), list(gold.values())).statistic for x in (good, poor)]
    assert (found.first, found.second) == pytest.approx(values)
    assert found.interval[0] < found.difference < found.interval[1]
    assert found.interval[0] > 0
    assert found.p_value == 1 / 1001
    turned = compare_correlations(poor, good, gold, how=how, n_resamples=1000, seed=0)
    assert turned.interval == pytest.approx((-found.interval[1], -found.interval[0]))


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
