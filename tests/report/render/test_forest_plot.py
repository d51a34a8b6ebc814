import numpy as np
from helpers.figures import ROWS

from qwen3nb.report.render.figure import COLORS
from qwen3nb.report.render.forest_plot import Band, forest_figure


def test_the_forest_marks_what_leaves_out_nothing():
    axis = forest_figure(ROWS, xlabel="x").axes[0]
    faces = [line.get_markerfacecolor() for line in axis.lines if line.get_marker() == "o"]
    assert faces == ["none", COLORS[0]]  # from the bottom: unclear, clear; nothing for "gone"
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert labels == ["gone", "unclear", "clear"]
    figure = axis.figure
    beside = [label.get_text() for label in figure.axes[0].child_axes[0].get_yticklabels()]
    assert beside == ["not run", "−0.010 [−0.100, +0.100]", "+0.200 [+0.100, +0.300] n = 9"]


def test_bands_are_as_wide_as_the_plot_where_they_are_open():
    bands = (Band(None, 0.1, "FAIL"), Band(0.1, 0.12, "MARGINAL"), Band(0.12, None, "PASS"))
    axis = forest_figure(ROWS, xlabel="x", bands=bands).axes[0]
    left, right = axis.get_xlim()
    spans = [(p.get_x(), p.get_x() + p.get_width()) for p in axis.patches]
    expected = [(left, 0.1), (0.1, 0.12), (0.12, right)]
    np.testing.assert_allclose(spans, expected)
    heights = [text.xyann[1] for text in axis.texts]
    assert len(set(heights)) == 3  # the labels of narrow bands would overlap
