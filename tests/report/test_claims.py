"""One difference has one interval, p-value and verdict, in every table, figure and sentence."""

import html
import itertools
import json

import numpy as np
import pytest
import scipy
from helpers.records import RERANKING, RETRIEVAL, amend, make, state, tier_records

import qwen3nb as q
import qwen3nb.answers.comparison as comparison_module
from qwen3nb.analysis.comparison.differences import significant, verdict
from qwen3nb.answers.against_baseline import against_baseline
from qwen3nb.answers.board.lead import find_lead
from qwen3nb.answers.board.ranks import rank_table, standings
from qwen3nb.answers.candidates import compare_candidates
from qwen3nb.answers.comparison import compare
from qwen3nb.answers.evaluation import evaluation_conclusion
from qwen3nb.answers.findings import (
    all_findings,
    findings,
    interference_finding,
    rerank_finding,
)
from qwen3nb.answers.interference import interference
from qwen3nb.answers.landing import headline_lead, landing_page
from qwen3nb.answers.leaderboard import leaderboard
from qwen3nb.answers.reranking import reranking
from qwen3nb.metrics.intervals import difference_interval, excludes_zero
from qwen3nb.report.card import _standings, limits_by_task
from qwen3nb.report.paper import PaperContents
from qwen3nb.tiers import BENCHMARKS, GROUPS
from qwen3nb.utils.format import interval_text, p_value_text, typeset

NAMES = ("bm25", "x-checkpoint-0", "x-checkpoint-9")
MARGIN, ALPHA = 0.05, 0.05


def drawn(seed):
    """Records of three models: equal, tied on most queries, a little or much better."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice([2, 5, 12, 40, 150]))
    base = rng.uniform(0, 1, n).round(int(rng.integers(1, 4)))
    records = []
    for label in NAMES:
        moved = rng.uniform(size=n) < rng.choice([0.05, 0.3, 1.0])
        shift = rng.choice([0, 0, 0.01, 0.04, 0.2]) * rng.choice([-1, 1])
        scores = base + moved * (shift + rng.normal(0, rng.choice([0.001, 0.03, 0.3]), n))
        records.append(make(label, scores=np.clip(scores, 0, 1)))
    return records


@pytest.mark.parametrize("seed", range(6))
def test_words_follow_the_interval_and_the_p_value_of_their_row(seed):
    records = drawn(seed)
    comparison = compare(records, baseline="bm25", draws=500, tier="smoke")
    rows = {row[0].text: row for row in comparison.differences_table().rows}
    expected, words = {}, []
    for each in comparison.differences:
        row, (low, high) = rows[each.first], each.interval
        clear = each.corrected < ALPHA and not low <= 0 <= high
        inside = low > -MARGIN and high < MARGIN
        expected[each.first] = (clear, inside)
        assert row[2].strong == clear
        word = comparison.verdict(each)
        words.append(word.split(",")[0])
        assert word.startswith(("better", "worse")) == clear
        assert (("less than" in word) or word == "equivalent") == inside
        assert (word.startswith("better")) == (clear and each.difference > 0)
        assert row[1].interval == each.interval
    (powered,) = comparison.power_table().rows
    order = ("better", "worse", "equivalent", "no worse", "not shown")
    counts = " / ".join(str(words.count(word)) for word in order)
    assert " / ".join(cell.text for cell in powered[1:3]) == counts

    text = comparison.conclusion.text
    gains = {each.first: each.difference for each in comparison.differences}
    better = [name for name, (clear, _) in expected.items() if clear and gains[name] > 0]
    assert ("No model is shown to be better" in text) == (not better)
    assert all(name in text for name in better)
    assert ("by less than 0.05" in text) == any(all(each) for each in expected.values())
    for row in comparison.table().rows:
        verdict_in_table = row[1].detail
        if row[0].text in expected:
            assert bool(verdict_in_table) == expected[row[0].text][0]

    report = compare_candidates(records, current="bm25", tested=("nDCG@10",), n_resamples=500)
    for each in report.recommendations:
        clear, inside = expected[each.model]
        assert each.verdict.startswith(("better", "worse")) == clear
        assert (each.verdict == "equivalent") == (inside and not clear)
    taken = [each for each in report.differences if each.first == report.decision.use]
    assert all(expected[each.first][0] and each.difference > MARGIN for each in taken)

    lead = find_lead(comparison, task=RETRIEVAL)
    for each in lead.leads:
        assert each == comparison.difference(lead.name, each.second, task=RETRIEVAL)
    board = leaderboard(records, tier="smoke", comparison=comparison)
    level = {each.second for each in lead.leads if not each.significant(ALPHA)}
    assert {*board.ties.best} == {lead.name, *level}
    assert (board.conclusion.text == f"{lead.name} is first.") == (not level)

    (trained,) = findings(comparison, task=RETRIEVAL)
    pair = comparison.difference("x-checkpoint-9", "x-checkpoint-0", task=RETRIEVAL)
    assert ("makes no difference" in trained.headline) == (not pair.significant(ALPHA))
    assert str(pair) in trained.evidence

    for row in leaderboard(records, tier="smoke", comparison=comparison).table().rows:
        pair = comparison.difference(row[0].text, lead.name, task=RETRIEVAL)
        assert (row[1].mark == "†") == (pair is not None and not pair.significant(ALPHA))
    for row in limits_by_task(_standings(records[1:2], comparison)):
        assert not (row.startswith(RETRIEVAL) and "behind" in row and not expected[NAMES[1]][0])


MODELS = {"leader": 0.50, "second": 0.49, "bm25": 0.48, "random": 0.20}


@pytest.fixture(scope="module")
def results():
    """Four models on two tasks; one of them lacks some queries."""
    rng, records = np.random.default_rng(7), []
    for task in (RETRIEVAL, RERANKING):
        base = rng.uniform(0, 1, 60)
        for label, mean in MODELS.items():
            scores = np.clip(base + rng.normal(mean - 0.5, 0.08, 60), 0, 1)
            records.append(make(label, task=task, scores=scores[: 50 if label == "random" else 60]))
    return records


@pytest.fixture(scope="module")
def comparison(results):
    return compare(results, tier="smoke")


def test_tables_and_figures_show_the_same_numbers(comparison, results):
    expected = {each.first: each for each in comparison.on(RERANKING).with_baseline}
    paper = PaperContents(results, tier="smoke")
    tables = [each for each in paper.tables() if each.name == f"differences-{RERANKING}"]
    for table in (*tables, comparison.differences_table(task=RERANKING)):
        assert {row[0].text for row in table.rows} == set(expected)
        assert "over all 6 pairs of the models" in table.method
        for row in table.rows:
            each = expected[row[0].text]
            assert (row[1].value, row[1].interval) == (each.difference, each.interval)
            assert row[2].value == each.corrected
            assert row[2].detail == f"raw {p_value_text(each.p_value)}"
            assert row[5].text == str(each.n)
    figure = comparison.differences_figure()
    lines = next(a for a in figure.axes if a.get_title() == "Reranking").lines
    marks = {round(float(m.get_xdata()[0]), 9): m for m in lines if m.get_marker() != "None"}
    ends = [tuple(line.get_xdata()) for line in lines if len(line.get_xdata()) == 2]
    for each in expected.values():
        mark = marks[round(each.difference, 9)]
        assert (mark.get_markerfacecolor() != "none") == each.significant(ALPHA)
        assert any(pair == pytest.approx(each.interval) for pair in ends)
        assert str(each) in figure.alt
    captions = {each.name: each.caption for each in paper.figures()}
    assert captions["differences"] == figure.caption
    assert "on each task (6, 6)" in comparison.differences_table().method
    pairs = [each for task in comparison.tasks for each in task.among(task.columns)]
    undecided = sum(not each.significant(ALPHA) for each in pairs)
    assert f"{undecided} of {len(pairs)} pairs" in comparison.pairs_figure().alt


def test_the_landing_page_the_card_and_candidates_show_the_same_numbers(comparison, results, home):
    of_leader = compare(results, tier="smoke", baseline="leader").on(RETRIEVAL)
    each = of_leader.with_baseline[0].reversed()  # leader minus best other
    page = landing_page(results, leaderboard(results, comparison=comparison))
    shown = each.reversed()  # in the fold, from the best model
    ends = interval_text(shown.interval)
    assert typeset(f"{shown.difference:+.3f}<") in page["headline"]
    assert typeset(html.escape(ends)) in page["headline"]
    verdict_words = "clearly more than" if each.significant(ALPHA) else "as good"
    assert verdict_words in page["lead"]

    own = [result for result in results if result.model.label == "second"]
    limits = limits_by_task(_standings(own, comparison))
    sentences = {text.partition(":")[0]: text for text in limits}
    assert {RETRIEVAL, RERANKING} & set(sentences), "nothing to compare in this test"
    for task in (RETRIEVAL, RERANKING):
        each = comparison.difference("second", "bm25", task=task)
        assert (task in sentences) == (not each.significant(ALPHA) or each.difference < 0)
        assert task not in sentences or str(each) in sentences[task]

    alone = [result for result in results if result.task.key == RETRIEVAL]
    report = compare_candidates(alone, current="leader", tested=("nDCG@10",), task=RETRIEVAL)
    shown = {row[1].text: row for row in report.tables()["Differences"].rows}
    for advice in report.recommendations:
        each = comparison.difference(advice.model, "leader", task=RETRIEVAL)
        assert shown[each.first][3].interval == each.interval
        assert shown[each.first][4].value == each.corrected
    assert "over all 6 pairs" in report.tables()["Recommendation"].method


def test_one_pair_has_one_p_value_whatever_the_baseline_and_the_page(comparison, results):
    by_baseline = [compare(results, tier="smoke", baseline=label) for label in MODELS]
    ranked = standings(results, tier="smoke")[RERANKING].standings
    letters = {each.system: {*each.groups} for each in ranked}
    for one, other in itertools.combinations(MODELS, 2):
        pairs = [each.difference(one, other, task=RERANKING) for each in by_baseline]
        assert len({pair.corrected for pair in pairs}) == 1
        apart = pairs[0].significant(ALPHA)
        assert not (apart and letters[one] & letters[other])
    for label in ("leader", "second"):
        own = [each for each in results if each.model.label == label]
        for row in against_baseline(own, results):
            pair = comparison.difference(label, row.baseline, task=row.task)
            assert (row.p_value, row.family) == (pair.corrected, pair.family)
            assert row.significant == pair.significant(ALPHA)


@pytest.mark.parametrize(
    ("p", "interval", "words"),
    [
        (0.01, (0.1, 0.2), "better"),
        (0.01, (-0.02, -0.01), "worse, by less than 0.05"),
        (0.01, (-0.033, 0.056), "no worse"),  # the interval holds 0
        (0.08, (-0.9, -0.2), "not shown"),  # the test does not reject
        (0.5, (-0.04, 0.04), "equivalent"),
        (0.05, (0.1, 0.2), "no worse"),  # not below alpha
        (0.001, None, "better"),
        (None, (0.1, 0.2), "no worse"),
    ],
)
def test_the_verdict_is_of_the_test_the_interval_and_the_margin(p, interval, words):
    difference = 0.1 if interval is None else sum(interval) / 2
    assert verdict(difference, p, interval, margin=0.05) == words
    assert significant(p, interval) == words.startswith(("better", "worse"))
    assert interval is None or not significant(p, interval) or excludes_zero(interval)


def test_a_difference_has_one_detectable_effect():
    """At Holm's first step: alpha over the number of pairs, on every page."""
    records = [*drawn(3), make("other", scores=drawn(3)[0].per_query["nDCG@10"])]
    comparison = compare(records, baseline="bm25", draws=200)
    report = compare_candidates(records, current="bm25", tested=("nDCG@10",), n_resamples=200)
    for each in comparison.differences:
        ours, theirs = comparison.matrix(each).scores
        by_test = q.stats.minimum_detectable_effect(ours, theirs, alpha=ALPHA / 6)
        least = comparison.detectable(each)
        assert least == report.comparison.detectable(each)
        if least is not None and least > by_test:  # the interval asks for more
            centred = ours - theirs - np.mean(ours - theirs)
            spare = 0.842 * centred.std(ddof=1) / np.sqrt(len(centred))
            low, _ = difference_interval(centred + least - spare, level=0.95)
            assert low == pytest.approx(0, abs=1e-3)
    shown = {row[-1].text for row in report.tables()["Differences"].rows} - {"–"}
    (row,) = comparison.power_table().rows
    assert row[3].text == max(shown)


@pytest.mark.parametrize("metric", ["nonsense@10", "nDCG@100", ["nDCG@10", "nDCG@100"]])
def test_a_metric_that_was_not_recorded_is_refused(metric):
    with pytest.raises(ValueError, match=r"(nonsense@10|nDCG@100)'.*available: nDCG@10$"):
        q.compare(drawn(0), metric=metric)


def correlated(label, noise, *, n=80):
    rng = np.random.default_rng([n, *label.encode()])
    gold = np.linspace(0, 5, n)
    record = make(label, gold + rng.normal(0, noise, n), task="AuthorSTS", metric="cosine")
    record.per_query["gold"] = {f"q{i}": float(v) for i, v in enumerate(gold)}
    amend(record, "task", main_metric="Spearman", type="STS")
    record.metrics["Spearman"] = record.metrics["cosine"]
    return record


def test_correlations_are_tested_over_the_same_family_by_the_same_rule():
    from scipy.stats import spearmanr

    records = [correlated("bm25", 0.5), correlated("b", 3.0), correlated("c", 3.1)]
    comparison = compare(records, tier="smoke", baseline="bm25")
    assert comparison.tasks == ()
    gold = list(records[0].per_query["gold"].values())
    value = {
        each.model.label: spearmanr(list(each.per_query["cosine"].values()), gold).statistic
        for each in records
    }
    rows = {row[0].text: row for row in comparison.table().rows}
    for name in "bc":
        pair = comparison.difference(name, "bm25", task="AuthorSTS")
        assert pair.means == pytest.approx((value[name], value["bm25"]))
        assert (pair.family, bool(rows[name][1].detail)) == (3, pair.significant(ALPHA))
        (page,) = against_baseline([r for r in records if r.model.label == name], records)
        assert (page.difference, page.p_value) == (pair.difference, pair.corrected)
    assert comparison.difference("b", "c", task="AuthorSTS").corrected > 0.05
    flat = correlated("flat", 1)
    flat.per_query["cosine"].update(dict.fromkeys(flat.per_query["cosine"], 0.5))
    assert compare([records[0], flat], tier="smoke").correlations[0].family == 0


def test_correlations_and_means_are_computed_when_they_are_needed(monkeypatch):
    """They take the scores of many records, which differences on other tasks need not read."""
    computed = []
    whole = comparison_module._with_scores_per_pair, comparison_module.mean_comparisons
    monkeypatch.setattr(
        comparison_module,
        "_with_scores_per_pair",
        lambda record: computed.append(record.task.type) or whole[0](record),
    )
    monkeypatch.setattr(
        comparison_module,
        "mean_comparisons",
        lambda *values, **options: computed.append("mean") or whole[1](*values, **options),
    )
    records = [correlated("a", 0.5), correlated("b", 3.0)]
    for record in list(records):
        amend(record, "task", name="STS12")
        records.append(make(record.model.label, scores=np.arange(9) / 9, task="SciFact"))
    comparison = compare(records, tier="full")
    assert len(comparison.differences) == len(comparison["SciFact"]) == 1
    assert comparison.on("SciFact").task == "SciFact"
    assert "STS" not in computed
    assert [comparison.on(task).task for task in ("BEIR", "STS12")] == ["BEIR", "STS12"]
    assert "STS" in computed
    assert computed.count("mean") == 1


@pytest.mark.integration
def test_the_headline_is_the_mean_of_a_tier_that_has_one():
    """bm25 is ahead on the mean of BEIR; on its first task it is not."""
    ours = tier_records("x-checkpoint-0", mean=0.5, seed=2)
    better = tier_records("x-checkpoint-9", mean=0.56, seed=3)
    for one, other in zip(ours, better, strict=True):
        if one.task.key == "ArguAna":
            other.per_query["nDCG@10"].update(one.per_query["nDCG@10"])
    results = [*ours, *better, *tier_records("part", without=["SciFact"])]
    comparison, boards = compare(results, tier="full"), standings(results, tier="full")
    assert comparison.means[0].task == "BEIR"
    pair_of = ("x-checkpoint-9", "x-checkpoint-0")
    pair = comparison.difference(*pair_of, task="BEIR")
    best, second = boards["BEIR"].standings
    assert pair.significant(ALPHA) == (not best.groups)
    assert pair.means == pytest.approx((best.mean, second.mean))
    ranks = rank_table(boards)
    heads = ("Borda\nBEIR", "mean\non tasks like these", "first\nin draws of tasks")
    assert ranks.columns[2:5] == heads
    assert ranks.rows[0][3].interval == best.like_these
    assert [cell.text for cell in ranks.rows[0][2:5:2]] == [str(best.borda), f"{best.first:.0%}"]
    (one,) = findings(comparison, task="BEIR")
    mean, size = "mean nDCG@10 of 15 tasks", f"{pair.difference:.3f}"
    assert one.headline == f"Training x lifts {mean} by {size} on BEIR"
    assert str(pair) in one.evidence
    text = leaderboard(results, tier="full", comparison=comparison).conclusion.text
    assert text == "x-checkpoint-9 is first. Not compared for lack of scores: 1 model."
    table = comparison.differences_table(task="BEIR")
    (row,) = table.rows
    assert abs(row[1].value) == pytest.approx(pair.difference)
    assert "its tasks being given; on tasks like these" in table.method
    on = {each.task: comparison.difference(*pair_of, task=each.task) for each in comparison.tasks}
    forums = GROUPS["CQADupstackRetrieval"]
    of_tasks = [on[key].difference for key in BENCHMARKS["BEIR"].tasks if key in on]
    of_tasks.append(np.mean([on[key].difference for key in forums]))
    half = scipy.stats.t.ppf(0.975, 14) * np.std(of_tasks, ddof=1) / np.sqrt(15)
    assert pair.like_these == pytest.approx((pair.difference - half, pair.difference + half))
    assert (len(of_tasks), row[2].text) == (15, interval_text(pair.like_these))
    text = comparison.conclusion.text
    first_mean, second_mean = sorted(pair.means, reverse=True)
    values = f"{mean} {first_mean:.3f} against {second_mean:.3f}"
    assert text.startswith(f"x-checkpoint-9 is better than x-checkpoint-0 on BEIR: {values}.")


def test_the_mean_of_a_benchmark_next_to_numpy():
    results = [*tier_records("a", mean=0.5), *tier_records("b", mean=0.52, seed=1)]
    comparison = compare(results, tier="full")
    on_mean = comparison.difference("a", "b", task="MS MARCO dev")  # a mean of one task
    alone = compare(results, tasks=["MSMARCO"], metric="MRR@10")
    on_task = alone.difference("a", "b", task="MSMARCO")
    assert on_mean.p_value == on_task.p_value > 0.001
    assert on_mean.interval == pytest.approx(on_task.interval)
    keys = {each.task.key for each in results if each.task.type == "Reranking"}
    pair = comparison.difference("b", "a", task="MTEB(eng, v2): Reranking")
    parts = [comparison.difference("b", "a", task=key) for key in keys]
    assert pair.means == pytest.approx(tuple(np.mean([part.means for part in parts], axis=0)))
    low = np.sqrt(sum(((p.difference - p.interval[0]) / len(keys)) ** 2 for p in parts))
    assert pair.interval[0] == pytest.approx(pair.difference - low)
    assert pair.n == sum(part.n for part in parts)


@pytest.mark.integration
def test_an_evaluation_of_a_whole_tier_begins_with_its_mean():
    ours, others = tier_records("m", mean=0.5), tier_records("bm25", mean=0.56, seed=3)
    first, *rest = against_baseline(ours, others, tier="full")
    pair = compare([*ours, *others], tier="full").difference("m", "bm25", task="BEIR")
    shown = (first.task, first.difference, first.interval, first.p_value)
    assert shown == ("BEIR", pair.difference, pair.interval, pair.corrected)
    assert len(rest) == len(ours)
    text = str(evaluation_conclusion([first, *rest]))
    mean, other = pair.means
    assert text.startswith(
        f"m has a mean nDCG@10 of {mean:.3f} on BEIR, over 15 tasks, worse than bm25 with "
        f"{other:.3f}. Of {len(rest)} tasks compared, it is "
    )


RNG = np.random.default_rng(3)
BASE = RNG.uniform(0.2, 0.6, 200)


TASK = "PyDocsSampleRetrieval"


def leaders(results, **more):
    return findings(compare(results, tier="smoke"), task=TASK, **more)


def trained(**means):
    """Records of checkpoints of the training ``demo``, by step."""
    return [
        make(f"demo-{'init' if step == 'start' else f'checkpoint-{step[4:]}'}", scores=scores)
        for step, scores in means.items()
    ]


@pytest.mark.parametrize(
    ("gain", "spread", "headline"),
    [
        (0.09, 0.02, "lifts nDCG@10 by 0.09"),
        (-0.09, 0.02, "lowers nDCG@10 by 0.0"),
        (0.001, 0.2, "makes no difference in nDCG@10 that these 200 queries show"),
    ],
)
def test_what_training_gave(gain, spread, headline):
    noise = np.random.default_rng(5).normal(0, spread, 200)
    records = trained(start=BASE, step100=BASE + gain + noise - noise.mean(), step50=BASE - 0.15)
    (finding,) = leaders(records, links={"run-demo-checkpoint-100": "x.html"})
    assert finding.headline.startswith(f"Training demo {headline}")
    assert finding.evidence.startswith("demo-checkpoint-100 0.")
    assert "of demo-init: " in finding.evidence
    assert finding.page == "x.html"


def test_training_is_reported_of_the_best_checkpoint_that_has_an_earlier_one():
    others = [make("x-checkpoint-9", scores=BASE + 0.3), make("bm25", scores=BASE + 0.2)]
    contrastive = [
        make(f"demo-contrastive-checkpoint-{i}", scores=BASE + i / 1e4) for i in (0, 400)
    ]
    (finding,) = leaders([*trained(start=BASE, step50=BASE - 0.1), *others, *contrastive])
    assert finding.headline == "Contrastive training lifts nDCG@10 by 0.040 on Retrieval"
    assert leaders(others) == []
    assert leaders([]) == []


def test_what_extraction_gave(home):
    folder = home / "runs" / "ours"
    folder.mkdir(parents=True)
    (folder / "qwen3nb.json").write_text(json.dumps({"schema": "qwen3nb.export/1", "source": {}}))
    ours = make("ours", scores=BASE + 0.03)
    amend(ours, "model", spec="runs/ours")
    (own,) = leaders([ours, make("bm25", scores=BASE + 0.2)])
    assert own.headline.startswith("The best extracted encoder, ours, is below bm25 on")
    assert "-0.170" in own.evidence


@pytest.mark.parametrize(
    ("score", "headline"),
    [
        (0.2, "lowers nDCG@10 by 0.300 on Retrieval"),
        (0.5, "makes no difference in nDCG@10 that these 50 queries show"),
    ],
)
def test_reranking_is_reported_with_its_test(score, headline):
    result = make("judge", task="x.bm25-20", scores=[score] * 50)
    result.per_query["first nDCG@10"] = dict.fromkeys(result.per_query["nDCG@10"], 0.5)
    state(result, collection="PyDocsSampleRetrieval")
    finding = rerank_finding([make("other"), result], links={"run-judge": "runs/judge.html"})
    assert finding.headline == f"Reranking by judge {headline}"
    interval = "[" if score < 0.5 else "(identical scores on all 50)"
    assert f"against its first stage: {score - 0.5:+.3f} {interval}" in finding.evidence
    assert "n = 50" in finding.evidence
    assert finding.page == "runs/judge.html"
    assert rerank_finding([make("other")]) is None


def test_a_control_adapter_is_no_headline_nor_the_largest_score_of_other_data():
    def judged(label, task, score, mode=""):
        result = make(label, task=f"{task}.bm25-20", scores=[score] * 50)
        result.per_query["first nDCG@10"] = dict.fromkeys(result.per_query["nDCG@10"], 0.4)
        state(result, collection=task)
        if mode:
            state(result, training={"mode": mode})
        return result

    records = [
        judged("specialist", "hard", 0.5, "rank_only"),
        judged("joint", "hard", 0.45, "joint"),
        judged("control", "hard", 0.6, "emb_only"),
        judged("elsewhere", "easy", 0.99, "rank_only"),
    ]
    finding = rerank_finding(records)
    assert finding.headline == "Reranking by specialist lifts nDCG@10 by 0.100 on hard"
    assert finding.evidence.endswith("Chosen as the best of 2 rerankers there.")
    assert rerank_finding(records[2:3]) is None


def test_a_model_is_best_only_if_it_is_shown_to_be_ahead_of_all():
    swinging = BASE - 0.03 + np.where(np.arange(len(BASE)) % 2, 0.45, -0.45)
    names = {"a": BASE, "b": BASE - 0.02, "c": swinging}
    records = [make(name, task=TASK, scores=scores) for name, scores in names.items()]
    comparison = compare(records, tier="smoke")
    ahead = {each.second: each for each in find_lead(comparison, task=TASK).leads}
    assert ahead["b"].significant(ALPHA)
    assert not ahead["c"].significant(ALPHA)
    sentence = leaderboard(records, comparison=comparison).conclusion.text
    assert sentence == "Two models share first place: a and c."
    assert leaderboard(records[:2]).conclusion.text == "a is first."
    same = leaderboard([records[0], make("z", task=TASK, scores=BASE)])
    assert same.conclusion.text == "Two models share first place: a and z."


def test_reranking_that_is_not_significant_is_not_said_to_help():
    def gain(task, *gains):
        result = make("judge", task=f"{task}.bm25-20", scores=[0.5 + each for each in gains])
        result.per_query["first nDCG@10"] = dict.fromkeys(result.per_query["nDCG@10"], 0.5)
        state(result, collection=task)
        return result

    noise = gain("noise", 0.5, -0.3, 0.5, -0.1, 0.45, 0.15)
    sentence = str(reranking([noise]).conclusion)
    assert (
        "is not shown to help or to hurt (1 data set). On noise, nDCG@10 goes from 0.500 to"
        in sentence
    )
    clear = gain("clear", *[0.1] * 30, *[0.2] * 30)
    sentence = str(reranking([noise, clear]).conclusion)
    assert "helps on 1 of 2 data sets, and hurts on 0" in sentence
    assert ". On clear, nDCG@10 goes" in sentence  # though noise differs more


def test_ranks_name_their_family_and_the_tasks_of_a_mean():
    results = [
        make(name, task=task, scores=BASE + 0.01 * i)
        for i, name in enumerate(NAMES)
        for task in ("PyDocsSampleRetrieval", "PyDocsSampleReranking")
    ]
    extra = "PyDocsSampleClassification"
    results += [make(name, task=extra, metric="accuracy", scores=BASE) for name in NAMES[1:]]
    note = rank_table(standings(results, tier="smoke")).method
    assert "step-down MaxT over all pairs of models of a column (3 pairs or 1 pair)" in note
    assert "All tasks by nDCG@10: the mean of Reranking, Retrieval." in note


def test_the_landing_page_links_to_the_numbers_and_says_if_there_are_none(home):
    results = [make("best", scores=BASE + 0.1), make("second", scores=BASE)]
    page = headline_lead(compare(results, tier="smoke"), task=TASK, folder="runs/")
    assert 'href="runs/leaderboard.html"' in page
    assert page.count("<figure") == 1
    assert interference_finding(interference([])) is None  # nothing was trained here
    assert all_findings(compare([]), [], task=TASK, links={}) == []
    assert "No model has been evaluated on whole tasks" in headline_lead(compare([]), task=TASK)
    others = [make("judge", task=f"x.bm25-{n}") for n in range(6)]
    page = headline_lead(compare(others, tier="smoke"), task=TASK, results=others)
    assert "There are some on x.bm25-0, x.bm25-1 and 4 more" in page
