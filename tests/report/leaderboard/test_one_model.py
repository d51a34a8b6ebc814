"""Tables of one model, by type of task and language, and next to published scores."""

from dataclasses import replace

import pytest
from helpers.records import amend, make, tier_records

from qwen3nb.answers.all_results import summarise
from qwen3nb.answers.board.expected import TARGETS, expected_table, sts_table
from qwen3nb.answers.checks import Checks
from qwen3nb.answers.one_model import model_and_run_table, parts_table, suite_table
from qwen3nb.answers.reproduction import Reproductions
from qwen3nb.evaluation.embeddings.sanity_check import Check, SanityCheck
from qwen3nb.evaluation.studies.reproduce import Published, Reproduction
from qwen3nb.metrics.aggregate import aggregate
from qwen3nb.records.record import MTEBScore, Part
from qwen3nb.tiers import GROUPS, TIERS


def test_a_task_in_several_languages_has_a_row_for_each():
    values = {"test/de/0": 0.2, "test/de/1": 0.4, "test/en/0": 0.8}
    result = make("m", values, task="T")
    how = {"how": "mean", "columns": ("nDCG@10",)}
    scores = [aggregate(result.per_query, **how, parts=(f"test/{s}/",)) for s in ("de", "en")]
    parts = (
        Part("test", "de", ("deu-Latn",), scores[0], 0.0),
        Part("test", "en", ("eng-Latn",), scores[1], 0.0),
    )
    rows = parts_table([make("m"), replace(result, parts=parts)]).rows
    shown = [(row[1].text, row[3].text, row[4].text, row[5].text) for row in rows]
    assert shown[1:] == [("de", "deu-Latn", "0.300", "2"), ("en", "eng-Latn", "0.800", "1")]
    assert shown[0][0] == "all 2"
    assert rows[0][4].strong
    assert parts_table([make("m")]) is None


FORUMS = GROUPS["CQADupstackRetrieval"]


def test_means_by_type_and_over_all_with_groups_and_gaps():
    def one(name, kind, value):
        result = make("m", task=name)
        amend(result, "task", type=kind, mteb=MTEBScore("x", value))
        return result

    results = [
        one("A", "STS", 0.8),
        one("B", "STS", 0.6),
        *(one(part, "Retrieval", 0.2 + 0.2 * (i % 2)) for i, part in enumerate(FORUMS)),
    ]
    wanted = ["A", "B", *FORUMS, "D"]
    summary = summarise(results, requested=wanted, reasons={"D": "no data"})
    assert summary.by_type == pytest.approx({"Retrieval": 0.3, "STS": 0.7})
    assert summary.tasks == {"Retrieval": 1, "STS": 2}
    assert summary.over_tasks == pytest.approx((0.8 + 0.6 + 0.3) / 3)
    assert summary.over_types == pytest.approx((0.7 + 0.3) / 2)
    assert summary.missing == {"D": "no data"}
    table = suite_table(summary)
    assert "D (no data)" in table.note
    assert [cell.text for cell in table.rows[-1]] == [
        "mean over types",
        "main score",
        "2",
        "0.5000",
    ]
    assert summarise([]).over_tasks is None
    shared = {"identity": "1" * 64, "task": "A"}
    alias = summarise([make("new", finished="2026-02-01", **shared), make("old", **shared)])
    assert (alias.label, alias.tasks) == ("new (= old)", {"Retrieval": 1})
    assert summarise(results[:-1], requested=wanted).by_type == pytest.approx({"STS": 0.7})
    with pytest.raises(ValueError, match="results of one model, got m, n"):
        summarise([*results, make("n")])


def test_unlike_metrics_have_no_mean():
    def one(name, kind, metric, value):
        result = make("m", task=name)
        amend(result, "task", type=kind, mteb=MTEBScore(metric, value))
        return result

    alike = [one("A", "STS", "spearman", 0.8), one("B", "STS", "spearman", 0.6)]
    unlike = [*alike, one("C", "Retrieval", "ndcg", 0.3)]
    summary = summarise(unlike)
    assert summary.by_type == pytest.approx({"STS": 0.7, "Retrieval": 0.3})
    assert (summary.over_tasks, summary.over_types) == (None, None)
    assert summary.metrics == ("ndcg", "spearman")
    table = suite_table(summary)
    assert [row[0].text for row in table.rows] == ["Retrieval", "STS"]
    assert "Unlike metrics are not averaged: ndcg, spearman." in table.note
    assert summarise(alike).over_tasks == pytest.approx(0.7)
    within = summarise([*alike, one("D", "STS", "pearson", 0.2)])
    assert (within.by_type, within.tasks) == ({}, {"STS": 3})
    assert [cell.text for cell in suite_table(within).rows[0]][2:] == ["3", "undefined"]


def test_benchmarks_that_were_requested_whole_have_their_own_means():
    wanted = TIERS["full"].task_keys
    summary = summarise(tier_records("m", without=["STS12"]), requested=wanted)
    assert (summary.over_tasks, summary.over_types) == (None, None)
    rows = {row[0].text: [cell.text for cell in row[2:]] for row in suite_table(summary).rows}
    assert rows["BEIR"][0] == "15"
    assert rows["MTEB(eng, v2) Mean (Task)"] == ["40 of 41", "incomplete"]
    assert rows["STS"] == ["8 of 9", "incomplete"]
    assert "STS12 (not run)" in suite_table(summary).note
    assert summary.as_dict()["means"]["STS"]["missing"] == ["STS12"]
    assert summarise(tier_records("m"), requested=wanted[:5]).means == ()


def test_a_page_says_what_came_from_the_cache():
    result = make("m")
    amend(result, "cost", cached=4)
    facts = {row[0].text: row[1].text for row in model_and_run_table([result]).rows}
    assert facts["vectors"] == "3 computed, 4 from the cache"


def on(task, label, value, *, real=True, whole=True, metric="Spearman", **fields):
    result = make(label, [value] * 3, task=task, metric=metric, **fields)
    amend(
        result,
        "task",
        type="STS" if task != "MSMARCO" else "Retrieval",
        revision=TARGETS[task][1] if real and task in TARGETS else "local-1",
        size=TARGETS[task][2] if whole and task in TARGETS else {"pairs": 40},
    )
    return result


def test_what_was_expected_stands_beside_what_was_measured():
    results = [
        on("STSBenchmark", "e5-base-v2", 0.85),
        on("STSBenchmark", "gte-base", 0.5, real=False),
        on("MSMARCO", "e5-base-v2", 0.34, metric="MRR@10"),
    ]
    rows = {row[0].text: row for row in expected_table(results).rows}
    assert list(rows) == ["e5-base-v2", "gte-base"]
    e5 = rows["e5-base-v2"]
    assert [cell.text for cell in e5[1:]] == ["~ 0.84", "0.850", "~ 0.35", "0.340"]
    assert [cell.detail for cell in e5[1:]] == ["", "+0.010", "", "-0.010"]
    assert rows["gte-base"][2].detail == "other data, not judged"
    command = "qwen3nb eval --model gte-base --tasks STSBenchmark,MSMARCO"
    assert (rows["gte-base"][4].text, rows["gte-base"][4].detail) == ("missing", command)


def test_a_target_is_judged_on_real_data_only(monkeypatch):
    monkeypatch.setattr(
        "qwen3nb.answers.board.expected.read_provenance",
        lambda folder: {} if folder.name == "mine" else None,
    )

    def verdict(value, **how):
        rows = expected_table([on("STSBenchmark", "mine", value, **how)]).rows
        assert [row[1].text for row in rows] == ["> 0.75"]
        return rows[0][2].detail

    assert verdict(0.76) == "above"
    assert verdict(0.70) == "BELOW"
    assert verdict(0.70, real=False) == "other data, not judged"
    assert verdict(0.70, whole=False) == "other data, not judged"


def test_sts_has_an_average_only_over_all_tasks():
    full = [on("STS12", "a", 0.6), on("STSBenchmark", "a", 0.8)]
    ms = on("MSMARCO", "a", 0.3, metric="MRR@10")
    table = sts_table([*full, ms, on("STS12", "b", 0.5)])
    heads = [head.split("\n")[0] for head in table.columns]
    assert heads == ["model", "STS12", "STSBenchmark", "Avg", "MS MARCO"]
    first, second = table.rows
    assert first[3].value == pytest.approx(0.7)
    assert first[4].text == "0.300"
    assert (second[3].text, second[4].text) == ("1 of 2", "not run")
    assert sts_table(full[:1]) is expected_table([ms]) is None


def test_what_the_sanity_checks_say():
    verdicts = ("WARNING", "PASSED", "INFO", "FAILED", "NOT APPLICABLE")
    checks = tuple(Check("rank", each, "1", "> 2") for each in verdicts)
    text = str(Checks(SanityCheck("m", "0" * 64, checks)).conclusion)
    passed = tuple(check for check in checks if check.verdict == "PASSED")
    sound = Checks(SanityCheck("m", "0" * 64, passed)).conclusion
    two = Checks(SanityCheck("m", "0" * 64, passed * 2)).conclusion
    assert str(two) == "m passes all 2 sanity checks."
    assert str(sound) == "m passes its one sanity check."
    assert text == "m passes 1 of 3 sanity checks; 1 warning. FAILED: rank."


def test_reproductions_are_counted_and_the_farthest_is_named():
    def one(task, value):
        return Reproduction(Published("m", task, 0.5, 0.001, "mteb"), None, value)

    done = [one("A", 0.5002), one("B", 0.503), one("C", 0.49), one("D", None)]
    text = str(Reproductions(tuple(done)).conclusion)
    for part in ("1 of 3 published", "1 more within", "m on C: -0.0100", "1 could not be run"):
        assert part in text
    assert "of 1" in str(Reproductions(tuple(done[3:])).conclusion)
