import pytest

from qwen3nb.analysis.inventory.score import Score
from qwen3nb.report.training.interference import configurations_figure, configurations_table


def test_configurations_are_means_over_seeds_with_their_spread():
    """Two seeds by hand: mean 0.3, sample standard deviation sqrt(2 * 0.1^2 / 1)."""

    def score(system, seed, value, *, task="A", finished=""):
        return Score(system, seed, task, "nDCG@10", value, kind="reranking", finished=finished)

    scores = [
        score("joint_r8", 42, 0.2),
        score("joint_r8", 123, 0.4),
        score("rank_only_r8", 42, 0.5),
        score("rank_only_r8", 42, 0.9, finished="2026-01-02"),
        score("other", 1, None),
        score("joint_r8", 42, 0.7, task="B"),
    ]
    table = configurations_table(scores)
    assert [row[0].text for row in table.rows] == ["joint_r8", "rank_only_r8"]
    joint, rank = table.rows
    assert (joint[1].text, joint[1].std, joint[1].second) == ("0.300", "0.141", True)
    assert (rank[1].text, rank[1].std, rank[1].strong) == ("0.900", "", True)
    assert (joint[2].text, rank[2].text) == ("0.700", "not run")
    assert r"\textsubscript{0.141}" in table.to_latex()
    assert configurations_table([]).rows == ()
    figure = configurations_figure(scores)
    first, second = figure.axes
    assert [bar.get_width() for bar in first.patches] == [0.9, pytest.approx(0.3)]  # from below
    assert [bar.get_width() for bar in second.patches] == [0.7]
    assert "joint_r8 on A: 0.300" in figure.alt
    assert configurations_figure([]) is None
