"""Trainings of several seeds: what the answer says, and what a plan promises."""

from dataclasses import replace

import numpy as np
import pytest
from helpers.records import make

from qwen3nb.analysis.comparison.arms import find_arms
from qwen3nb.analysis.comparison.plan import Plan, make_plan, read_plan, write_plan
from qwen3nb.answers.planned import plan_comparison
from qwen3nb.answers.seeds import over_seeds
from qwen3nb.records.results import Results

TASK = "PyDocsSampleRetrieval"
BEFORE, AFTER = "2026-01-01T00:00:00+00:00", "2999-01-01T00:00:00+00:00"
HARDNESS = np.random.default_rng(1).uniform(0.2, 0.6, 60)


def trained(name, seeds, gain=0.0, *, spread=0.002, finished=AFTER):
    """Records of a training with seeds."""
    generator = np.random.default_rng([*name.encode()])
    records = []
    for seed in seeds:
        scores = HARDNESS + gain + generator.normal(0, spread) + generator.normal(0, 0.02, 60)
        label = f"{name}-seed_{seed}"
        records.append(make(label, scores.clip(0, 1), finished=finished))
    return records


def plan(**fields):
    """A plan of two trainings that have not begun."""
    settled = {
        "baseline": "old",
        "models": ("new",),
        "tasks": (TASK,),
        "margin": 0.05,
        "deviation": 0.1,
        "training_seeds": (1, 2, 3),
        "seed_deviation": 0.005,
    }
    return Plan(**(settled | fields))


def test_a_better_training_is_named_with_what_it_holds_for(home):
    results = Results([*trained("new", (1, 2), 0.2), *trained("old", (1, 2))])
    answer = results.over_seeds("new", baseline="old", draws=300)
    text = answer.conclusion.text
    assert text.startswith("new is better than old on Retrieval: +0.2")
    assert "for new seeds and new queries" in text
    assert answer.to_frame().loc[0, "verdict"] == "better"
    assert answer.regressions == ()


def test_one_seed_each_is_about_two_models(home):
    records = [*trained("new", (1,), 0.2), *trained("old", (1,))]
    answer = over_seeds(records, "new", baseline="old", draws=300)
    assert "this is about these two models: other seeds may turn it" in answer.conclusion.text
    assert "about these models only" in answer.table().note


def test_a_baseline_of_one_model_is_taken_as_it_is(home):
    records = [*trained("new", (1, 2, 3), 0.2), make("bm25", HARDNESS)]
    answer = over_seeds(records, baseline="bm25", draws=300)
    assert "for new seeds of new, and bm25 as it is" in answer.conclusion.text


def test_where_seeds_vary_more_than_queries_the_answer_asks_for_seeds(home):
    records = [*trained("new", (1, 2), spread=0.1), *trained("old", (1, 2), spread=0.1)]
    answer = over_seeds(records, draws=300)
    assert "is not shown to differ" in answer.conclusion.text
    assert "train more of them" in answer.conclusion.text


def test_without_seeds_the_answer_says_what_to_do(home):
    answer = over_seeds([make("bm25")])
    assert "with two seeds" in answer.conclusion.text
    assert answer.figure() is None
    assert not answer.table().rows


def test_a_single_training_is_refused_with_the_others(home):
    records = [*trained("new", (1, 2)), *trained("old", (1, 2))]
    with pytest.raises(ValueError, match="two trainings or more; got new; there are: new, old"):
        over_seeds(records, "new")
    with pytest.raises(ValueError, match="unknown prompts 'all'"):
        over_seeds(records, prompts="all")


def test_a_worse_training_is_a_regression(home):
    records = [*trained("new", (1, 2, 3), -0.2), *trained("old", (1, 2, 3))]
    answer = over_seeds(records, "new", baseline="old", draws=300)
    assert [difference.first for difference in answer.regressions] == ["new"]


def test_trainings_that_have_not_begun_may_be_planned(home):
    completed, (task,) = make_plan([], plan())
    assert completed.arms == ("old", "new")
    assert task.needed is not None
    file = write_plan(completed)
    assert "# Trainings: old, new, each with the seeds 1, 2, 3." in file.read_text()
    assert read_plan(file) == completed


def test_a_comparison_before_all_promised_seeds_has_no_verdict(home):
    completed, _ = make_plan([], plan())
    write_plan(completed)
    records = [*trained("new", (1, 2), 0.2), *trained("old", (1, 2, 3))]
    answer = over_seeds(records, draws=300)
    assert answer.is_refused
    assert answer.conclusion.text == (
        f"No verdict: plan-1.toml promises seed 3 of new on {TASK}, which is missing. "
        "Evaluate it first."
    )
    (row,) = answer.table().rows
    assert [cell.text for cell in row][2:4] == ["–", "no verdict"]
    assert "p_value" not in answer.to_frame()
    complete = over_seeds([*trained("new", (1, 2, 3), 0.2), *records[2:]], draws=300)
    assert not complete.is_refused
    assert "As planned in plan-1.toml" in complete.conclusion.text


def test_what_is_done_otherwise_than_planned_is_stated(home):
    completed, _ = make_plan([], plan(training_seeds=(1, 2)))
    write_plan(completed)
    records = [*trained("new", (1, 2, 9), 0.2), *trained("old", (1, 2))]
    text = over_seeds(records, margin=0.1, draws=300).conclusion.text
    assert "Not as planned in plan-1.toml" in text
    assert "Margin: 0.05 planned, 0.1 used." in text
    assert "Seeds not planned: 9 of new." in text


def test_a_plan_after_the_measurement_does_not_count(home):
    completed, _ = make_plan([], plan())
    write_plan(completed)
    records = trained("new", (1, 2), 0.2, finished=BEFORE)
    answer = over_seeds([*records, *trained("old", (1, 2, 3))], draws=300)
    assert not answer.is_refused
    assert "plan-1.toml does not count: it was made" in answer.conclusion.text


def test_a_model_taken_as_it_is_may_be_older_than_the_plan(home):
    completed, _ = make_plan([make("bm25")], plan(baseline="bm25"))
    write_plan(completed)
    assert completed.arms == ("new",)
    records = [*trained("new", (1, 2), 0.2), make("bm25", HARDNESS, finished=BEFORE)]
    answer = over_seeds(records, "new", baseline="bm25", draws=300)
    assert answer.is_refused
    assert "seed 3 of new" in answer.conclusion.text


def test_a_plan_whose_seeds_were_changed_does_not_count(home):
    completed, _ = make_plan([], plan())
    file = write_plan(completed)
    file.write_text(file.read_text().replace("[1, 2, 3]", "[1, 2]"))
    records = [*trained("new", (1, 2), 0.2), *trained("old", (1, 2))]
    text = over_seeds(records, draws=300).conclusion.text
    assert "plan-1.toml does not count: it was changed after it was made" in text


def test_promised_prompts_are_required(home):
    completed, _ = make_plan([], plan(training_seeds=(1, 2), prompt_count=5, prompts_as="fixed"))
    write_plan(completed)
    records = [*trained("new", (1, 2), 0.2), *trained("old", (1, 2))]
    answer = over_seeds(records, draws=300)
    assert answer.is_refused
    assert "5 prompts on PyDocsSampleRetrieval" in answer.conclusion.text


def test_more_seeds_need_fewer_queries():
    needed = [
        plan(training_seeds=seeds, arms=("old", "new")).needed(0.3)
        for seeds in ((1, 2, 3), (1, 2, 3, 4, 5), tuple(range(8)))
    ]
    assert needed[0] > needed[1] > needed[2]
    as_models = replace(plan(), training_seeds=(), arms=())
    assert needed[2] > as_models.needed(0.3)


def test_too_few_seeds_are_said_with_the_number_that_is_enough(home):
    planned = plan_comparison([], plan(training_seeds=(1, 2), seed_deviation=0.02))
    assert not any(task.needed for task in planned.tasks)
    assert "no number of queries shows a difference of 0.05" in planned.conclusion.text
    assert "seeds, enough queries would." in planned.conclusion.text


def test_the_deviation_of_seeds_is_that_of_earlier_records(home):
    records = [*trained("old", (7, 8), spread=0.05), *trained("pilot", (1, 2), spread=0.2)]
    completed, _ = make_plan(records, plan(seed_deviation=0.0))
    means = [record.main.value for record in records[:2]]
    assert completed.seed_deviation == pytest.approx(np.std(means, ddof=1))
    assert set(find_arms(records)) == {"old", "pilot"}
    with pytest.raises(ValueError, match="state how much seeds vary"):
        make_plan([], plan(seed_deviation=0.0))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training_seeds": (1,)}, "two seeds or more"),
        ({"training_seeds": (-1, 2)}, "0 or more; got -1"),
        ({"baseline": "bm25", "models": ("wordllama",)}, "these are models, not trainings"),
        ({"prompt_count": 3, "prompts_as": "sample"}, "--prompt-deviation"),
        ({"training_seeds": (), "prompt_count": 3}, "expected seeds, too"),
    ],
)
def test_a_plan_that_promises_nothing_is_refused(home, changes, words):
    with pytest.raises(ValueError, match=words):
        make_plan([], plan(**changes))


def test_the_command_compares_and_refuses(cli, home):
    for record in [*trained("new", (1, 2), 0.2), *trained("old", (1, 2))]:
        record.save()
    options = ("compare", "--seeds", "--model", "new", "--baseline", "old")
    shown = cli(*options, "--out", home / "report.md", "--out", home / "report.json")
    assert shown.exit_code == 0
    assert "new is better than old" in " ".join(shown.stdout.split())
    assert "new − old" in (home / "report.md").read_text()
    assert '"refused": false' in (home / "report.json").read_text()
    worse = cli("compare", "--seeds", "--model", "old", "--baseline", "new", "--gate")
    assert worse.exit_code == 3
    assert "regression: old is worse than new" in worse.stderr
    planned = cli(
        *("plan", "--model", "new", "--baseline", "old", "--tasks", TASK, "--margin", "0.05"),
        *("--deviation", "0.1", "--seeds", "3,4", "--seed-deviation", "0.001"),
    )
    assert planned.exit_code == 0
    refused = cli(*options)
    assert refused.exit_code == 4
    assert "No verdict: plan-1.toml promises" in " ".join(refused.stdout.split())
    for wrong in (("--metric", "MRR@10", "--metric", "nDCG@10"), ("--model", "typo")):
        assert cli(*options, *wrong).exit_code in (1, 2)
    assert cli("compare", "--baseline", "old", "--paired").exit_code == 2
    assert "such as 1,2,3" in cli("plan", *options[2:], "--margin", "1", "--seeds", "x").stderr


def test_where_nothing_is_compared_the_reason_is_said(home):
    records = [*trained("new", (1, 2)), *trained("old", (1, 2))]
    text = over_seeds(records, prompts="sample").conclusion.text
    assert "none was evaluated with a set of prompts" in text
    text = over_seeds(records, metric="MRR@10").conclusion.text
    assert "new (seed 1) has no MRR@10 per query" in text
    with pytest.raises(ValueError, match="unknown task 'T'; choose one of: PyDocs"):
        over_seeds(records, tasks=["T"])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("new+bm25", "unknown label 'new'"),
        ("A=", "expected a training or labels; got 'A='"),
        ("A=new", "which keeps its name"),
    ],
)
def test_a_text_that_names_no_arm_is_refused(home, text, words):
    records = [*trained("new", (1, 2)), make("bm25")]
    with pytest.raises(ValueError, match=words):
        over_seeds(records, text, baseline="bm25")
    with pytest.raises(ValueError, match="`qwen3nb eval` writes some"):
        over_seeds([], text)
