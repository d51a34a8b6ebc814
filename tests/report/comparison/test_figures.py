"""Figures of a comparison."""

import numpy as np
import pytest
from helpers.figures import TASK
from helpers.records import make, noisy, three_models

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.report.comparison.compare import (
    differences_figure,
    differences_table,
    lead_figure,
    pairs_figure,
    power_table,
    task_differences_figure,
    wins_figure,
)
from qwen3nb.report.leaderboard.board import bars_figure


def compared(**more):
    return compare(three_models(), tier="smoke", baseline="now", **more)


def test_figures_of_compared_models():
    (axis,) = differences_figure(compared()).axes
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["same", "good"]
    faces = [
        line.get_markerfacecolor()
        for line in axis.lines
        if line.get_marker() not in ("None", None, "")
    ]
    assert [face == "none" for face in faces] == [False, True]
    names, _ = pairs_figure(compared()).axes
    assert names.get_yticklabels()[0].get_text() == "good"
    nothing = compare([], tier="smoke")
    assert differences_figure(nothing) is pairs_figure(nothing) is None
    assert "No two models" in differences_table(nothing).note
    assert "Nothing" in power_table(nothing).note


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
    results = [
        make("a", scores=scores),
        make("b", scores=scores - 0.1),
        make("c", scores=scores[::-1] - 0.001),
    ]
    axis = task_differences_figure(compare(results), task=TASK).axes[0]
    marks = [line for line in axis.lines if line.get_marker() != "None"]
    hollow = [line.get_markerfacecolor() == "none" for line in marks]
    assert hollow == [False, True]  # b differs from a, c does not
    assert [round(float(line.get_xdata()[0]), 3) for line in marks] == [-0.1, -0.001]


def test_the_figure_has_the_best_on_its_line_and_the_others_behind():
    results = [
        make("a", scores=noisy(0.7)),
        make("b", scores=noisy(0.6, spread=0.4, seed=1)),
        make("c", scores=noisy(0.3, seed=2)),
    ]
    figure = lead_figure(compare(results, tier="smoke"), task=TASK)
    (axis, *_) = figure.axes
    assert [tick.get_text() for tick in axis.get_yticklabels()][-1] == "a"
    marks = [line for line in axis.lines if line.get_marker() != "None"]
    filled = {round(float(m.get_xdata()[0]), 1): m.get_markerfacecolor() != "none" for m in marks}
    assert filled[0.0]
    assert filled[-0.4]  # c is behind
    assert sorted(filled.values()) == [False, True, True]  # b is not shown to be
    assert figure.columns == 1  # as wide as a phone
    many = [make(f"m{i}", scores=noisy(0.3 + i / 50, seed=i)) for i in range(10)]
    assert "Not shown: 1 more" in lead_figure(compare(many), task=TASK).caption
