"""A plan: the queries that it asks for show the margin, and a comparison says where it deviates."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from helpers.records import make
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.analysis.comparison.plan import (
    Plan,
    deviations,
    make_plan,
    plan_words,
    read_plan,
    write_plan,
)
from qwen3nb.datasets.rows import DataError

PLAN = Plan(baseline="b", models=("a",), tasks=("T",), margin=0.02)


def test_the_number_of_queries_is_that_of_statsmodels():
    solve = pytest.importorskip("statsmodels.stats.power").TTestPower().solve_power
    needed = solve(effect_size=0.02 / 0.3, power=0.8, alpha=0.05)
    assert PLAN.needed(0.3) == int(np.ceil(needed)) == 1768
    family = Plan(baseline="b", models=("a", "c", "d"), tasks=("T",), margin=0.02)
    needed = solve(effect_size=0.02 / 0.3, power=0.8, alpha=0.05 / 6)
    assert family.needed(0.3) == int(np.ceil(needed))


def test_the_planned_power_is_reached_in_simulation():
    plan = Plan(
        baseline="b", models=("a",), tasks=("T",), margin=0.05, seeds=6, seed_deviation=0.03
    )
    n, generator, significant = plan.needed(0.3), np.random.default_rng(1), 0
    for _ in range(400):
        scores = 0.05 + generator.normal(0, 0.3, (n, 1)) + generator.normal(0, 0.03, (1, 6))
        # Variance of the mean from the two margins, degrees of freedom by Satterthwaite.
        parts = [
            (scores.mean(axis=1).var(ddof=1) / n, n - 1),
            (scores.mean(axis=0).var(ddof=1) / 6, 5),
        ]
        variance = sum(part for part, _ in parts)
        df = variance**2 / sum(part**2 / own for part, own in parts)
        significant += scores.mean() / np.sqrt(variance) > scipy.stats.t.ppf(0.975, df)
    assert 0.74 < significant / 400 < 0.86


@settings(max_examples=12, deadline=None)
@given(st.floats(0.05, 0.5), st.floats(0.01, 0.1), st.integers(2, 12))
def test_fewer_queries_are_too_few_and_more_seeds_need_no_more(deviation, margin, seeds):
    plan = replace(PLAN, margin=margin, seeds=seeds, seed_deviation=margin / 8)
    needed = plan.needed(deviation)
    if needed is None:
        assert plan.needed_seeds(deviation) > seeds
        return
    assert plan.reached(margin, deviation, needed) >= 0.8
    assert needed == 2 or plan.reached(margin, deviation, needed - 1) < 0.8
    assert replace(plan, seeds=seeds + 1).needed(deviation) <= needed
    assert plan.detectable(deviation, needed) <= np.ceil(1000 * margin) / 1000


def test_one_seed_cannot_show_what_varies_between_seeds():
    varying = replace(PLAN, seed_deviation=0.001)
    assert varying.needed(0.3) is None
    assert varying.needed_seeds(0.3) == 2
    assert replace(PLAN, seed_deviation=9.0).needed_seeds(0.3) is None


def test_the_deviation_is_that_of_the_planned_models_or_of_others_on_the_task():
    scores = np.random.default_rng(2).random((4, 50))
    records = [make(name, row, task="T") for name, row in zip("bacd", scores, strict=True)]
    plan, (task,) = make_plan(records, PLAN)
    assert task.deviation == pytest.approx((scores[1] - scores[0]).std(ddof=1))
    assert (task.there, task.enough) == (50, False)
    assert plan.queries == {"T": PLAN.needed(task.deviation)}
    _, (others,) = make_plan(records[2:], PLAN)
    assert others.deviation == pytest.approx((scores[3] - scores[2]).std(ddof=1))
    _, (stated,) = make_plan(records, replace(PLAN, deviation=0.1, seed_deviation=0.01))
    assert (stated.deviation, stated.needed) == (0.1, None)
    assert make_plan([], PLAN)[1][0].deviation is None


def test_seeds_of_one_model_are_not_a_pair():
    first, second, other = np.random.default_rng(3).random((3, 50))
    seeds = [make("a", row, task="T", seed=n) for n, row in enumerate((first, second))]
    assert make_plan(seeds, PLAN)[1][0].deviation is None
    _, (task,) = make_plan([*seeds, make("b", other, task="T")], PLAN)
    assert task.deviation == max((row - other).std(ddof=1) for row in (first, second))


def test_a_plan_is_read_as_it_was_written_and_a_damaged_one_is_refused(tmp_path):
    plan = Plan(
        baseline='b "x"',
        models=("a\\b",),
        tasks=("T", "U"),
        margin=0.02,
        queries={"T": 7},
        made="d",
    )
    file = write_plan(plan, tmp_path / "plan.toml")
    assert read_plan(file) == plan
    for damage in ("margin = 0.02", "margni = 0.02"), ("0.02", "'x'"), ("= 0.02", "0.02"):
        file.write_text(write_plan(plan, file).read_text().replace(*damage))
        with pytest.raises(
            DataError,
            match=r"plan\.toml: (margin: is missing|margin: expected .*; got 'x'|not TOML)",
        ):
            read_plan(file)


def test_a_comparison_says_what_it_does_otherwise_than_planned():
    scores = {"T": np.linspace(0, 1, 30), "U": np.linspace(0, 0.5, 30)}
    records = [make(n, row, task=t) for n in "abc" for t, row in scores.items()]
    plan = Plan(
        baseline="b",
        models=("a", "z"),
        tasks=("T", "V"),
        margin=0.02,
        alpha=0.01,
        correction="holm",
        queries={"T": 40},
    )
    lines = deviations(plan, compare(records, baseline="c", minimum=0.05, correction="none"))
    assert lines == [
        "alpha: 0.01 planned, 0.05 used",
        "margin: 0.02 planned, 0.05 used",
        "correction: holm planned, none used",
        "baseline: b planned, c used",
        "models missing: z",
        "models not planned, which widen the family: c",
        "tasks missing: V",
        "tasks not planned: U",
        "tasks with fewer queries than planned: T (30 instead of 40)",
    ]
    many = replace(plan, tasks=tuple("TUVWXYZ"), queries=dict.fromkeys("TUWXYZ", 10))
    lines = deviations(many, compare(records, baseline="b", minimum=0.02, correction="none"))
    assert "tasks missing: V, W, X and 2 more" in lines


def test_a_comparison_says_whether_it_is_as_planned(tmp_path):
    scores = {"T": np.linspace(0, 1, 30), "U": np.linspace(0, 0.5, 30)}
    records = [make(n, row, task=t) for n in "abc" for t, row in scores.items()]
    same = Plan(baseline="b", models=("a",), tasks=("T",), margin=0.05, correction="holm")
    kept = [each for each in records if each.task.key == "T" and each.model.label != "c"]
    as_planned = compare(kept, baseline="b", correction="holm")
    assert deviations(same, as_planned) == []
    file = write_plan(replace(same, made="2026-01-02"), tmp_path / "plan.toml")
    assert plan_words(as_planned, file) == "As planned on 2026-01-02 (plan.toml)."
    words = plan_words(compare(records, baseline="c"), file)
    assert words.startswith("Deviations from the plan of 2026-01-02 (plan.toml): correction: holm")
    assert plan_words(as_planned, tmp_path / "none.toml") == ""
