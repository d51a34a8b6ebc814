import numpy as np
import pytest
from helpers.figures import TASK
from helpers.records import make

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.report.comparison.task_figures import task_differences_figure, wins_figure
from qwen3nb.report.leaderboard.figures import (
    bars_figure,
)


def test_figures_without_what_they_show_are_none():
    one = [make("m")]
    assert task_differences_figure(compare(one), task=TASK) is None
    assert wins_figure(compare(one), task="none") is None
    assert bars_figure(one, tier="fast") is None
    with pytest.raises(ValueError, match="'c'.*: a, b"):
        compare([make("a"), make("b")], baseline="c")


def test_wins_are_counted_by_query():
    results = [make("a", scores=(0.5, 0.5, 0.5, 0.9)), make("b", scores=(0.4, 0.5, 0.6, 0.1))]
    figure = wins_figure(compare(results), task=TASK)
    assert "b: 1 won, 1 tied, 2 lost" in figure.alt
    widths = [patch.get_width() for patch in figure.axes[0].patches]
    assert widths == [1, 1, 2]


def test_a_difference_is_filled_where_the_test_says_so():
    scores = np.linspace(0.2, 0.8, 40)
    results = [make("a", scores=scores), make("b", scores=scores - 0.1),
               make("c", scores=scores[::-1] - 0.001)]  # fmt: skip
    axis = task_differences_figure(compare(results), task=TASK).axes[0]
    marks = [line for line in axis.lines if line.get_marker() != "None"]
    hollow = [line.get_markerfacecolor() == "none" for line in marks]
    assert hollow == [False, True]  # b differs from a, c does not
    assert [round(float(line.get_xdata()[0]), 3) for line in marks] == [-0.1, -0.001]
