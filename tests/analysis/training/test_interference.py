"""TIR, the kill gate and tested differences between configurations, by hand and against scipy."""

import dataclasses
import json

import numpy as np
import pytest
import scipy.stats
from scipy import stats

from qwen3nb.analysis.inventory.scores import Score
from qwen3nb.analysis.stats.crossed_differences import crossed_interval, seed_spreads
from qwen3nb.analysis.stats.interference_ratio import Gate
from qwen3nb.analysis.stats.multiple_testing import holm
from qwen3nb.analysis.training.configuration_differences import (
    BOTH,
    QUERIES,
    configuration_differences,
)
from qwen3nb.analysis.training.interference import compare_joint_runs
from qwen3nb.answers.interference import Interference, differences_table
from qwen3nb.utils.format import json_text

RNG = np.random.default_rng(8)


def run(mode, seed, values, *, kind="reranking", rank=4, steps=40, task="SciFact", **more):
    """A score; ``values`` is a number, or scores per query."""
    per_query = {} if isinstance(values, float) else {f"q{i}": v for i, v in enumerate(values)}
    facts = {"mode": mode, "rank": rank, "base": "base", "data_seed": seed, "steps": steps}
    return Score(
        system=more.pop("system", f"{mode}_r{rank}"),
        seed=seed,
        task=task,
        metric="nDCG@10",
        value=values if isinstance(values, float) else float(np.mean(values)),
        kind=kind,
        per_query=per_query,
        facts={**facts, **more},
    )


def pair(seed, specialist, joint, *, kind="reranking", **more):
    """The specialist's score and the joint model's; ``more`` is a fact of the joint run."""
    task = {"task": more.pop("task", "SciFact")}
    mode = {"reranking": "rank_only", "embedding": "emb_only"}[kind]
    return [
        run(mode, seed, specialist, kind=kind, **task),
        run("joint_single", seed, joint, kind=kind, **task, **more),
    ]


def complete(*joint):
    """Both tasks without scores per query, of a specialist at 0.5; ``joint`` per seed."""
    return [
        score
        for seed, value in enumerate(joint if joint[1:] else joint * 2, start=1)
        for kind in ("reranking", "embedding")
        for score in pair(seed, 0.5, value, kind=kind)
    ]


def test_tir_by_hand():
    """Specialist 0.5; joint 0.49 and 0.47: TIR 2 % and 6 %, mean 4 %, std 2.83 %."""
    result = compare_joint_runs(complete(0.49, 0.47))
    (group,) = result.groups
    reranking, embedding = group.tasks
    assert reranking.tirs == pytest.approx((0.02, 0.06))
    assert reranking.tir == pytest.approx(0.04)
    assert reranking.std == pytest.approx(np.std([0.02, 0.06], ddof=1))
    assert reranking.deltas == pytest.approx((0.01, 0.03))
    assert reranking.delta == pytest.approx(0.02)
    assert embedding.tir == group.overall.tir == pytest.approx(0.04)
    # Student: 0.04 +- 12.706 * 0.02, far across both thresholds.
    assert reranking.interval == pytest.approx((0.04 - 12.7062 * 0.02, 0.04 + 12.7062 * 0.02))
    assert (reranking.by_point, reranking.by_evidence) == ("PASS", "INCONCLUSIVE")


@pytest.mark.parametrize(
    ("joint", "verdict", "code"),
    [(0.49, "PASS", 0), (0.4901, "MARGINAL", 4), (0.495, "MARGINAL", 4), (0.4951, "FAIL", 3)],
)
def test_the_gate_at_its_thresholds(joint, verdict, code):
    """Of a specialist at 0.5: 2 %, 1.98 %, 1 %, 0.98 %; equal seeds show no error: no evidence."""
    result = compare_joint_runs(complete(joint))
    assert (result.verdict(by="point"), result.verdict(by="point").exit_code) == (verdict, code)
    assert (result.verdict(), result.verdict().exit_code) == ("INCONCLUSIVE", 5)
    assert result.groups[0].overall.interval is None
    assert compare_joint_runs(complete(0.6)).verdict(by="point") == "FAIL"  # joint is better
    # The mean over seeds decides, of +20 % and -19 %, not the maximum.
    assert compare_joint_runs(complete(0.40, 0.595)).verdict(by="point") == "FAIL"
    strict = Gate(pass_at=0.1, fail_below=0.05)
    assert compare_joint_runs(complete(0.48), gate=strict).verdict(by="point") == "FAIL"
    with pytest.raises(ValueError, match="fail_below <= pass_at"):
        Gate(pass_at=0.01, fail_below=0.02)


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [
        ((0.02, 0.5), "PASS"),
        ((0.0199, 0.5), "INCONCLUSIVE"),
        ((-0.5, 0.0099), "FAIL"),
        ((-0.5, 0.01), "INCONCLUSIVE"),
        ((0.01, 0.0199), "MARGINAL"),
        (None, "INCONCLUSIVE"),
    ],
)
def test_evidence_is_an_interval_in_one_band(interval, verdict):
    assert Gate().evidence(0.015, interval) == verdict
    assert Gate().evidence(None, interval) == "NO RESULT"


def test_the_interval_adds_up_the_errors_of_seeds_and_queries():
    """By hand: specialist 0.5 on four queries; joint loses 2 % with one seed, 6 % with the other.

    TIR 0.04; std of the TIRs 0.02 sqrt(2): the error of the seeds is 0.02, with 1 degree of
    freedom. A query's loss, over 0.5, is 0.04 + 0.04 or 0.04 - 0.04: std 0.04 sqrt(4 / 3). The
    error of the queries is half of that, with 3 degrees of freedom.
    """
    queries = np.array([1.0, 1.0, -1.0, -1.0])
    scores = [
        score
        for seed, lost in ((1, 0.02), (2, 0.06))
        for score in pair(seed, np.full(4, 0.5), 0.5 * (1 - lost) - 0.02 * queries)
    ]
    result = compare_joint_runs(scores)
    reranking = result.groups[0].tasks[0]
    half = np.hypot(12.7062 * 0.02, 3.18245 * 0.02 * np.sqrt(4 / 3))
    assert reranking.interval == pytest.approx((0.04 - half, 0.04 + half), rel=1e-5)
    assert result.verdict() == "INCONCLUSIVE"
    assert (result.verdict(by="point"), result.verdict(by="point").exit_code) == ("PASS", 0)
    json.loads(json_text(result))


def test_tasks_that_share_queries_are_not_independent():
    """The same four queries lose in both tasks: the mean's error is that of one, not less."""
    queries = np.array([1.0, 1.0, -1.0, -1.0])

    def scores(sign):
        return [
            score
            for seed in (1, 2)
            for kind, flip in (("reranking", 1), ("embedding", sign))
            for score in pair(seed, np.full(4, 0.5), 0.5 - 0.02 * flip * queries, kind=kind)
        ]

    alike, opposed = (compare_joint_runs(scores(sign)).groups[0] for sign in (1, -1))
    assert alike.overall.interval == pytest.approx(alike.tasks[0].interval)
    assert alike.overall.interval[1] > 0.07
    assert opposed.overall.interval is None  # what one task loses, the other gains


def test_the_same_share_lost_on_every_query_is_no_error_of_the_ratio():
    """The delta method: a query moves the TIR by (x g / s - y) / s, here by nothing."""
    queries = np.array([0.75, 0.25] * 4)
    scores = [score for seed in (1, 2) for score in pair(seed, queries, 0.8 * queries)]
    (task,) = compare_joint_runs(scores).groups[0].tasks
    assert (task.tir, task.interval) == (pytest.approx(0.2), None)


def test_one_seed_is_no_evidence():
    base = RNG.random(50)
    scores = pair(1, base, base * RNG.uniform(0.45, 0.55, 50))
    reranking = compare_joint_runs(scores).groups[0].tasks[0]
    assert reranking.interval[0] > 0.4  # over queries, far above 2 %
    assert (reranking.by_point, reranking.by_evidence) == ("PASS", "INCONCLUSIVE")
    assert reranking.std is None
    assert reranking.notes == (
        "one seed: the interval does not include the variance between trainings",
    )


def test_a_specialist_at_zero_has_no_ratio():
    scores = [*pair(1, 0.0, 0.1), *pair(2, 0.5, 0.4)]
    reranking = compare_joint_runs(scores).groups[0].tasks[0]
    assert reranking.tirs == pytest.approx((None, 0.2), nan_ok=False)
    assert reranking.tir == pytest.approx(0.2)
    assert reranking.deltas == pytest.approx((-0.1, 0.1))
    assert any("seed 1 scores 0" in note for note in reranking.notes)
    nothing = compare_joint_runs(scores[:2])
    assert nothing.groups[0].tasks[0].tir is None
    assert (nothing.verdict(), nothing.verdict().exit_code) == ("NO RESULT", 6)
    json.loads(json_text(nothing))


def test_a_ratio_to_what_may_be_zero_has_no_interval():
    """One query of three: 1 / 3, give or take 4.3 / 3. The mean of tasks has none either."""
    rare = [score for seed in (1, 2) for score in pair(seed, [0.0, 0.0, 1.0], [0.0, 0.0, 0.5])]
    task = compare_joint_runs(rare).groups[0].tasks[0]
    assert (task.tir, task.interval, task.by_evidence) == (0.5, None, "INCONCLUSIVE")
    assert "no interval: by its queries, the score of a specialist may be 0" in task.notes
    same = [0.5, 0.5, 0.4]
    sure = [score for seed in (1, 2) for score in pair(seed, same, same, kind="embedding")]
    overall = compare_joint_runs([*rare, *sure]).groups[0].overall
    assert (overall.tir, overall.interval) == (pytest.approx(0.25), None)
    single = [score for seed in (1, 2) for score in pair(seed, [0.5], [0.5])]
    assert compare_joint_runs(single).groups[0].tasks[0].interval is None


@pytest.mark.parametrize(
    ("fact", "reason"),
    [
        ({"rank": 8}, "rank 4 against 8"),
        ({"base": "other"}, "base base against other"),
        ({"data_seed": 7}, "data seed 1 against 7"),
        ({"steps": 60}, "optimiser steps 40 against 60"),
        ({"steps": None}, "optimiser steps 40 against unknown"),
    ],
)
def test_unlike_runs_are_refused_with_the_reason(fact, reason):
    (group,) = compare_joint_runs(pair(1, 0.5, 0.4, **fact)).groups
    assert group.tasks == ()
    assert group.overall.by_point == "NO RESULT"
    assert reason in group.refused[0]


def test_two_matching_specialists_are_refused_and_data_sets_are_averaged():
    scores = [run("rank_only", 1, 0.5, system=name) for name in "ab"] + pair(1, 0.5, 0.4)[1:]
    assert "several specialists" in compare_joint_runs(scores).groups[0].refused[0]
    scores = [*pair(1, 0.8, 0.4, task="A"), *pair(1, 0.2, 0.2, task="B")]
    (group,) = compare_joint_runs(scores).groups
    tirs = {each.name: each.tir for each in (*group.datasets, *group.tasks)}
    assert tirs == pytest.approx({"reranking: A": 0.5, "reranking: B": 0.0, "reranking": 0.4})


TICKET = {
    # the specialist's and the joint model's score of each seed, by data set
    "reranking": {
        "SciFact": ((0.70, 0.60), (0.72, 0.61)),
        "NFCorpus": ((0.30, 0.25), (0.31, 0.27)),
        "FiQA2018": ((0.40, 0.30), (0.42, 0.33)),
    },
    "embedding": {
        "SciFact": ((0.60, 0.30), (0.61, 0.32)),
        "NFCorpus": ((0.28, 0.14), (0.29, 0.16)),
        "FiQA2018": ((0.35, 0.20), (0.36, 0.21)),
    },
}
SENTENCES = {"STSBenchmark": ((0.80, 0.10), (0.81, 0.12)), "SICK-R": ((0.75, 0.05), (0.7, 0.1))}


def tier_fast(*, without=(), more=()):
    """Both tasks on the tier's retrieval sets; embedding also on its STS sets, by Spearman."""
    scores = []
    for kind, sets in TICKET.items():
        stage = ".bm25-100" if kind == "reranking" else ""
        own = sets | (SENTENCES if kind == "embedding" else {})
        for name, by_seed in own.items():
            if (kind, name) in without:
                continue
            for seed, (specialist, joint) in enumerate(by_seed, start=1):
                both = pair(seed, specialist, joint, kind=kind, task=f"{name}{stage}")
                metric = "Spearman" if name in SENTENCES else "nDCG@10"
                scores += [
                    dataclasses.replace(each, metric=metric, collection=name) for each in both
                ]
    return [*scores, *more]


def tir_of_the_ticket(names):
    """By hand: the mean over both tasks and seeds of the share of the mean that is lost."""
    shares = []
    for sets in TICKET.values():
        for seed in (0, 1):
            specialist, joint = np.mean([sets[name][seed] for name in names], axis=0)
            shares.append((specialist - joint) / specialist)
    return float(np.mean(shares))


def test_the_gate_on_tier_fast_is_over_three_retrieval_sets_by_one_metric():
    (group,) = compare_joint_runs(tier_fast()).groups
    assert group.overall.tir == pytest.approx(
        tir_of_the_ticket(["SciFact", "NFCorpus", "FiQA2018"])
    )
    assert group.basis == "nDCG@10 on SciFact, NFCorpus and FiQA2018 for both tasks"
    tirs = {each.name: each.tir for each in group.datasets}
    assert tirs["embedding: STSBenchmark"] == pytest.approx((0.7 / 0.8 + 0.69 / 0.81) / 2)
    why = "is not part of the mean, which is of nDCG@10; it has Spearman"
    assert sorted(line for line in group.missing if why in line) == [
        f"embedding: {name} {why}" for name in ("SICK-R", "STSBenchmark")
    ]
    basis = "rests on nDCG@10 on SciFact, NFCorpus and FiQA2018 for both tasks;"
    assert basis in report_of(tier_fast()).table().method


def report_of(scores):
    return Interference(compare_joint_runs(scores), adapters=4, scores=tuple(scores))


def test_with_a_set_missing_the_gate_names_what_it_rests_on():
    lacking = tier_fast(without=[("reranking", "NFCorpus")])
    (group,) = compare_joint_runs(lacking).groups
    assert group.overall.tir == pytest.approx(tir_of_the_ticket(["SciFact", "FiQA2018"]))
    assert group.basis == "nDCG@10 on SciFact and FiQA2018 for both tasks"
    text = "\n".join(group.missing)
    assert (
        "embedding: NFCorpus is not part of the mean, which is over the data sets of both" in text
    )
    assert group.basis in report_of(lacking).table().method
    # Tasks without a data set in common each have their own.
    apart = [*pair(1, 0.5, 0.4, task="A"), *pair(1, 0.5, 0.3, task="B", kind="embedding")]
    assert (
        compare_joint_runs(apart).groups[0].basis
        == "nDCG@10 on A for reranking; on B for embedding"
    )


def test_tasks_without_a_common_metric_have_no_common_mean():
    only_sts = tier_fast(without=[("embedding", name) for name in TICKET["embedding"]])
    (group,) = compare_joint_runs(only_sts).groups
    assert [each.name for each in group.tasks] == ["reranking"]
    assert group.overall.by_evidence == "INCONCLUSIVE"
    assert "without embedding, which has no nDCG@10" in group.overall.notes
    unnamed = [
        dataclasses.replace(each, metric="main_score")
        for name in "AB"
        for each in pair(1, 0.5, 0.4, task=name)
    ]
    (group,) = compare_joint_runs(unnamed).groups
    assert group.basis == "main_score of A on A for reranking"
    runs = pair(1, 0.5, 0.4)
    mixed = [runs[0], dataclasses.replace(runs[1], metric="MRR@10")]
    (group,) = compare_joint_runs(mixed).groups
    assert "reranking: SciFact is left out, its runs have nDCG@10 and MRR@10" in group.missing


def test_required_facts_can_be_declared():
    scores = [
        run("rank_only", 1, 0.5, steps_reranking=40),
        run("joint", 1, 0.4, steps=60, steps_reranking=40),
    ]
    fair = compare_joint_runs(scores, required=("rank", "base", "data_seed", "task_steps"))
    assert fair.groups[0].tasks[0].tir == pytest.approx(0.2)
    assert "task_steps" in fair.required


def test_the_weakest_configuration_decides():
    both = [
        run(mode, 1, value, rank=rank, kind=kind)
        for rank, joint in ((4, 0.25), (8, 0.5))
        for kind, specialist in (("reranking", "rank_only"), ("embedding", "emb_only"))
        for mode, value in ((specialist, 0.5), ("joint_single", joint))
    ]
    result = compare_joint_runs(both)
    groups = [(each.overall.by_point, each.overall.tir) for each in result.groups]
    assert groups == [("PASS", pytest.approx(0.5)), ("FAIL", pytest.approx(0))]
    assert (result.verdict(by="point"), result.verdict(by="point").exit_code) == ("FAIL", 3)


def test_the_queries_of_a_tasks_data_sets_have_their_shares():
    """Two data sets of 4 and 6 queries, on which one lost by 0.02 and by 0.01, more or less.

    Each has half the weight; Satterthwaite's degrees of freedom are between 3 and 3 + 5.
    """
    losses = {"A": 0.02 * np.array([1, 1, -1, -1]), "B": 0.01 * np.array([1, 1, 1, -1, -1, -1])}
    scores = [
        score
        for seed in (1, 2)
        for task, loss in losses.items()
        for score in pair(seed, 0.5 + 0 * loss, 0.5 - 0.01 * seed - loss, task=task)
    ]
    (task,) = compare_joint_runs(scores).groups[0].tasks
    parts = [(0.04**2 * 4 / 3) / 4 / 4, (0.02**2 * 6 / 5) / 6 / 4]
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 3 + parts[1] ** 2 / 5)
    assert 3 < freedom < 3 + 5
    half = np.hypot(12.7062 * 0.01, stats.t.ppf(0.975, freedom) * np.sqrt(sum(parts)))
    assert task.tir == pytest.approx(0.03)
    assert task.interval == pytest.approx((0.03 - half, 0.03 + half), rel=1e-4)
    half_known = [
        each if each.task == "A" else dataclasses.replace(each, per_query={}) for each in scores
    ]
    (task,) = compare_joint_runs(half_known).groups[0].tasks
    assert task.interval == pytest.approx((0.03 - 12.7062 * 0.01, 0.03 + 12.7062 * 0.01), rel=1e-4)
    assert "no scores per query: the interval is over seeds only" in task.notes


def test_partial_results_are_used_and_the_rest_is_reported():
    scores = [s for s in complete(0.49, 0.47) if not (s.seed == 2 and s.system == "emb_only_r4")]
    scores += [run("rank_only", 3, 0.5), run("rank_only", 1, 0.7, task="FiQA")]
    (group,) = compare_joint_runs(scores).groups
    reranking, embedding = group.tasks
    assert (reranking.seeds, embedding.seeds, group.overall.seeds) == ((1, 2), (1,), (1,))
    assert "different seeds (reranking: 1, 2; embedding: 1)" in "; ".join(group.overall.notes)
    text = "\n".join(group.missing)
    assert "embedding: no emb_only run of seed 2" in text
    assert "reranking: FiQA is left out, no score of joint_single_r4 (seed 1)" in text
    only = compare_joint_runs([s for s in scores if s.system == "rank_only_r4"])
    assert (only.groups, only.verdict()) == ((), "NO RESULT")
    assert "rank_only_r4 (seed 1): no joint run of this seed" in only.missing
    assert compare_joint_runs([]).verdict().exit_code == 6


def score(system, seed, values, *, task="A", kind="reranking", finished=""):
    """A score with values per query, or a single value."""
    if isinstance(values, float):
        return Score(system, seed, task, "main_score", values, kind=kind, finished=finished)
    queries = {f"q{i}": value for i, value in enumerate(values)}
    mean = sum(values) / len(values)
    return Score(
        system, seed, task, "nDCG@10", mean, kind=kind, per_query=queries, finished=finished
    )


def test_queries_are_averaged_over_the_seeds_that_both_have():
    """Means over seeds are 0.05 and 0.35. Two queries show nothing about others."""
    given = [
        score("joint", 1, [0.5, 0.7]),
        score("joint", 2, [0.3, 0.9]),
        score("joint", 3, [1.0, 1.0]),
        score("rank", 1, [0.4, 0.4]),
        score("rank", 2, [0.0, 0.0]),
        score("rank", 2, [0.3, 0.5], finished="2026-01-02"),
    ]
    (each,) = configuration_differences(given, resamples=4000, seed=0)
    assert (each.first, each.second, each.seeds) == ("joint", "rank", (1, 2))
    assert each.by_seed == pytest.approx((0.2, 0.2))
    assert each.difference == pytest.approx(0.2)
    assert each.p_value == 1
    assert (each.corrected, each.family, each.n) == (each.p_value, 1, 2)
    assert each.test == BOTH


def test_one_seed_of_both_is_tested_over_queries():
    """Differences are 0.05 and 0.35; two of the four sign patterns are as large."""
    given = [score("joint", 1, [0.45, 0.85]), score("rank", 1, [0.4, 0.5])]
    (each,) = configuration_differences(given, resamples=4000, seed=0)
    assert each.p_value == pytest.approx(0.5, abs=0.03)
    assert each.test == QUERIES


def test_several_seeds_are_tested_as_every_comparison_of_trainings():
    generator = np.random.default_rng(3)
    hardness = generator.uniform(0.3, 0.6, 60)
    given = []
    for system, gain in (("joint", 0.1), ("rank", 0.0)):
        for seed in (1, 2, 3):
            values = hardness + gain + generator.normal(0, 0.01) + generator.normal(0, 0.05, 60)
            given.append(score(system, seed, values.tolist()))
    (each,) = configuration_differences(given, resamples=500, seed=0)
    scores = np.array([[*one.per_query.values()] for one in given])
    joint, rank = scores[:3], scores[3:]
    expected = crossed_interval(
        (joint - rank).mean(axis=0), seed_spreads(joint.mean(axis=1), rank.mean(axis=1)), level=0.95
    )
    assert each.interval == pytest.approx(expected)


def test_without_scores_per_query_the_seeds_are_tested():
    ours, theirs = [0.5, 0.6, 0.55], [0.45, 0.5, 0.52]
    given = [score("emb", seed, value, kind="embedding") for seed, value in enumerate(ours)]
    given += [score("joint", seed, value, kind="embedding") for seed, value in enumerate(theirs)]
    given += [score("late", 2, 0.4, kind="embedding"), score("other", 9, 0.4, kind="embedding")]
    pairs = {
        (each.first, each.second): each
        for each in configuration_differences(given, resamples=100, seed=0)
    }
    assert set(pairs) == {("emb", "joint"), ("emb", "late"), ("joint", "late")}
    each = pairs["emb", "joint"]
    assert each.p_value == pytest.approx(scipy.stats.ttest_rel(ours, theirs).pvalue)
    assert (each.test, each.n, each.family) == ("t-test over seeds", 0, 1)
    assert "one seed" in pairs["emb", "late"].undefined
    assert pairs["emb", "late"].p_value is None


def test_all_p_values_are_one_family_and_shared_queries_are_counted():
    given = []
    for seed in (1, 2):
        given += [score("a", seed, [0.9, 0.8, 0.7, 0.9, 0.6, 0.8] * 3 + [0.1])]
        given += [score("b", seed, [0.2, 0.3, 0.1, 0.4, 0.1, 0.2] * 3)]
        given += [score("c", seed, [0.2, 0.3, 0.2, 0.4, 0.1, 0.1] * 3)]
    tested = configuration_differences(given, resamples=2000, seed=0)
    assert [each.corrected for each in tested] == pytest.approx(holm([e.p_value for e in tested]))
    assert {(each.family, each.n) for each in tested} == {(3, 18)}
    assert [each.unpaired for each in tested] == [1, 1, 0]
    assert tested == configuration_differences(reversed(given), resamples=2000, seed=0)
    table = differences_table(tested)
    assert "Holm over these 3" in table.method
    assert [row[2].strong for row in table.rows] == [True, True, False]


def test_runs_without_a_common_query_or_seed_are_not_compared():
    apart = Score("b", 1, "A", "nDCG@10", 0.5, kind="reranking", per_query={"other": 0.5})
    (each,) = configuration_differences([score("a", 1, [0.5]), apart], resamples=10, seed=0)
    assert (each.p_value, each.corrected) == (None, None)
    assert "no query in common" in each.undefined
    assert configuration_differences([score("a", 1, [0.5]), score("b", 2, [0.5])], seed=0) == []
    assert "No two configurations" in differences_table([]).note
