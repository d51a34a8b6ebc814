"""Figures of a comparison."""

import pytest
from helpers.html import HOSTILE, active
from helpers.records import RERANKING, RETRIEVAL, make, noisy, three_models

from qwen3nb.analysis.comparison.compare import compare
from qwen3nb.report.comparison.figures import differences_figure, pairs_figure
from qwen3nb.report.comparison.tables import differences_table, power_table
from qwen3nb.report.leaderboard.ranking import rank_figure, standings


def compared(**more):
    return compare(three_models(), tier="smoke", baseline="now", **more)


@pytest.mark.parametrize("text", HOSTILE)
def test_foreign_names_stay_text_in_figures(text):
    results = [make(n, task=t, scores=noisy(m)) for n, m in ((text, 0.4), ("now", 0.6))
               for t in (RETRIEVAL, RERANKING)]  # fmt: skip
    wide = compare(results, tier="smoke", baseline="now")
    pictures = [
        differences_figure(wide), pairs_figure(wide), rank_figure(standings(results, tier="smoke")),
    ]  # fmt: skip
    for picture in pictures:
        page = picture._repr_html_()
        assert active(page) == []
        assert "aria-label" in page
        assert picture.caption


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
