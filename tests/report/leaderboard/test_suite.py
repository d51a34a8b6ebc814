import pytest
from helpers.records import amend, make, tier_records

from qwen3nb.evaluation.studies.reproduce import Published, Reproduction
from qwen3nb.records.record import MTEBScore
from qwen3nb.report.leaderboard.suite import reproduction_conclusion, suite_table, summarise
from qwen3nb.tiers import GROUPS, TIERS

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
    assert [cell.text for cell in table.rows[-1]] == ["mean over types", "2", "0.5000"]
    assert summarise([]).over_tasks is None
    assert summarise(results[:-1], requested=wanted).by_type == pytest.approx({"STS": 0.7})
    with pytest.raises(ValueError, match="results of one model, got m, n"):
        summarise([*results, make("n")])


def test_one_content_under_two_labels_is_one_model():
    shared = {"identity": "1" * 64, "task": "A"}
    summary = summarise([make("new", finished="2026-02-01", **shared), make("old", **shared)])
    assert summary.label == "new (= old)"
    assert summary.tasks == {"Retrieval": 1}


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


def test_reproductions_are_counted_and_the_farthest_is_named():
    def one(task, value):
        return Reproduction(Published("m", task, 0.5, 0.001, "mteb"), None, value)

    done = [one("A", 0.5002), one("B", 0.503), one("C", 0.49), one("D", None)]
    assert str(reproduction_conclusion(done)) == (
        "1 of 3 published scores are reproduced within their tolerance; 1 within five times it; "
        "1 not. The farthest is m on C: -0.0100, tolerance 0.001. 1 could not be run here."
    )
    assert str(reproduction_conclusion(done[:1])) == (
        "1 of 1 published scores are reproduced within their tolerance. The farthest is m on A: "
        "+0.0002, tolerance 0.001."
    )
    assert str(reproduction_conclusion(done[3:])) == ("No published score could be run here, of 1.")
