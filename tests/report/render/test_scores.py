"""The figure of scores on the landing page."""

import pytest

from qwen3nb.analysis.comparison.brackets import find_ties
from qwen3nb.report.render.scores import ScoreRow, Tone, score_figure

ROWS = [
    ScoreRow("first", 0.683, (0.632, 0.731), Tone.BEST),
    ScoreRow("second", 0.656, (0.605, 0.704), Tone.BEST, " (toy)"),
    ScoreRow("third", 0.62, None),
    ScoreRow("random", 0.003, (0.0, 0.008), Tone.CHANCE),
]
TIES = find_ties(
    ["first", "second", "third", "random"],
    {frozenset(pair) for pair in (("first", "second"), ("first", "third"))},
)


def figure(rows=ROWS, ties=TIES):
    return score_figure(rows, ties, measure="SciFact by nDCG@10", name="lead")


def test_who_cannot_see_it_hears_the_scores_and_who_ties():
    assert figure().alt == (
        "Scores on SciFact by nDCG@10: first 0.68 [0.63, 0.73]; second (toy) 0.66 [0.60, 0.70]; "
        "third 0.62; random 0.00 [0.00, 0.01]. "
        "No difference shown between: first, second; first, third."
    )


def test_the_best_are_bold_and_on_top():
    axis, brackets = figure().axes
    labels = axis.get_yticklabels()
    assert [label.get_text() for label in labels] == ["first", "second (toy)", "third", "random"]
    assert [label.get_fontweight() for label in labels] == ["bold", "bold", "normal", "normal"]
    bottom, top = axis.get_ylim()
    assert bottom > top  # row 0 is the highest
    assert [text.get_text() for text in axis.texts] == ["0.68", "0.66", "0.62", "0.00"]
    assert [text.get_text() for text in brackets.texts] == ["no difference shown"]


def test_a_bracket_is_dashed_beside_a_row_that_does_not_belong_to_it():
    _, brackets = figure().axes
    dashed = [line for line in brackets.lines if line.get_linestyle() != "-"]
    assert [tuple(line.get_ydata()) for line in dashed] == [(0.6, 1.4)]  # beside the second


@pytest.mark.parametrize("columns", [1, 2])
def test_the_accent_is_that_of_the_page(columns):
    svg = figure().svg(columns=columns)
    assert "var(--q-accent, #0b6bcb)" in svg
    assert ("no difference shown" in svg.partition(">")[2]) == (columns == 2)


def test_negative_scores_and_a_single_model_have_room():
    rows = [ScoreRow("only", -0.2, (-0.3, -0.1), Tone.BEST)]
    axis, brackets = figure(rows, find_ties(["only"], ())).axes
    assert axis.get_xlim()[0] < -0.3
    assert len(brackets.lines) == 0
