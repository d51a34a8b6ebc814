"""The plan of a run, as tables."""

from qwen3nb.evaluation.mteb.plan import Planned
from qwen3nb.report.leaderboard.preflight import plan_tables
from qwen3nb.report.render.sections import Sections


def planned(count):
    return [
        Planned(f"Task{i}", "STS", f"mteb/{i}", "abc", texts=10, minutes=None, status="to run")
        for i in range(count)
    ]


def test_a_plan_of_many_tasks_is_summed_by_type_and_folded():
    few, many = plan_tables(planned(3)), plan_tables(planned(61))
    assert not isinstance(few, Sections)
    assert len(few.rows) == 3
    assert isinstance(many, Sections)
    (_, sums), (title, every) = many.tables
    assert [cell.text for cell in sums.rows[-1]][:3] == ["all", "61", "61"]
    assert (title, len(every.rows)) == ("All 61 tasks", 61)
    assert many.unfolded == 1
