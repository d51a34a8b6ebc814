"""How brackets are drawn."""

from qwen3nb.analysis.comparison.brackets import find_ties
from qwen3nb.report.render.brackets import (
    bracket_cells,
    hidden_tie_words,
    lanes,
    strokes,
    tie_words,
)


def ties_of(models, *texts):
    return find_ties(models, {frozenset(text) for text in texts})


def test_brackets_that_overlap_stand_side_by_side():
    ties = ties_of("abcdefg", "ab", "bc", "ef", "fg", "eg")
    rows = [[bracket.rows for bracket in lane] for lane in lanes(ties.brackets)]
    assert rows == [[(0, 1), (4, 5, 6)], [(1, 2)]]
    assert strokes(ties) == [
        ["first", ""],
        ["last", "first"],
        ["", "last"],
        ["", ""],
        ["first", ""],
        ["within", ""],
        ["last", ""],
    ]


def test_a_row_that_does_not_belong_to_a_bracket_is_a_gap():
    assert strokes(ties_of("abc", "ac")) == [["first"], ["gap"], ["last"]]


def test_a_bracket_that_goes_on_has_no_end():
    ties = ties_of("abcd", "bc", "bd", "cd")
    assert strokes(ties.of_first(3)) == [[""], ["first"], ["open"]]
    assert strokes(ties.of_first(2)) == [[""], ["alone"]]


def test_cells_are_silent_and_words_say_the_same():
    ties = ties_of(["a", "b", "<c>"], ("a", "<c>"))
    assert bracket_cells(ties)[1] == '<td class="q-tie q-tie-gap" aria-hidden="true"></td>'
    assert tie_words(ties, "a") == "No difference shown from <c>"
    assert "from &lt;c&gt;." in hidden_tie_words(ties, "a")
    assert hidden_tie_words(ties, "b") == tie_words(ties, "b") == ""
    assert bracket_cells(ties_of("ab")) == ["", ""]
