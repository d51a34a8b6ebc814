from helpers.records import amend, make

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.report.leaderboard.score_table import contenders, leaderboard


def test_marks_show_the_contenders_of_the_best():
    best = make("a", scores=[0.9] * 40)
    near = make("b", scores=[0.9, 0.8] + [0.9] * 38)
    far = make("c", scores=[0.1] * 40)
    assert contenders([best, near, far], compare([best, near, far])) == {near.model.identity}
    assert contenders([best], compare([best])) == set()
    other = make("d", scores=[0.9, 0.8] + [0.9] * 38)
    amend(other, "task", revision="another")
    assert contenders([best, other], compare([best, other])) == set()
    table = leaderboard([best, near, far], tier="smoke", links={"run-b": "b.html"})
    cells = {row[0].text: row[1] for row in table.rows}
    assert (cells["a"].strong, cells["a"].mark) == (True, "")
    assert (cells["b"].second, cells["b"].mark, cells["b"].link) == (
        True, "†", "b.html#score-pydocssampleretrieval",
    )  # fmt: skip
    assert (cells["c"].second, cells["c"].mark) == (False, "")
    assert table.legend[0][0] == "†"
