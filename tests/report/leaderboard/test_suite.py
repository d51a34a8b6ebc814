import pytest
from helpers.records import amend, make

from qwen3nb.records.record import MTEBScore
from qwen3nb.report.leaderboard.suite import suite_table, summarise


def test_means_by_type_and_over_all_with_groups_and_gaps():
    def one(name, kind, value, group=None):
        result = make("m", task=name)
        amend(result, "task", type=kind, mteb=MTEBScore("x", value))
        if group:
            amend(result, "task", group=group)
        return result

    results = [
        one("A", "STS", 0.8),
        one("B", "STS", 0.6),
        one("C1", "Retrieval", 0.2, "C"),
        one("C2", "Retrieval", 0.4, "C"),
    ]
    summary = summarise(results, requested=["A", "B", "C1", "C2", "D"], reasons={"D": "no data"})
    assert summary.by_type == pytest.approx({"Retrieval": 0.3, "STS": 0.7})
    assert summary.tasks == {"Retrieval": 1, "STS": 2}
    assert summary.over_tasks == pytest.approx((0.8 + 0.6 + 0.3) / 3)
    assert summary.over_types == pytest.approx((0.7 + 0.3) / 2)
    assert summary.missing == {"D": "no data"}
    table = suite_table(summary)
    assert "D (no data)" in table.note
    assert [cell.text for cell in table.rows[-1]] == ["mean over types", "2", "0.5000"]
    assert summarise([]).over_tasks is None
    with pytest.raises(ValueError, match="results of one model, got m, n"):
        summarise([*results, make("n")])
