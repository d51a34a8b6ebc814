"""How brackets that join models are drawn: beside the rows of a table, or of a figure.

A bracket is a line beside the rows of its models, with a stroke at both ends. It is dashed beside
a row that does not belong to it. Brackets that would overlap stand in lanes, side by side.
"""

from collections.abc import Iterable
from enum import StrEnum

from qwen3nb.analysis.comparison.brackets import Bracket, Ties
from qwen3nb.report.render.html import escaped_text


class Stroke(StrEnum):
    """What a lane of brackets shows beside one row."""

    NONE = ""
    FIRST = "first"
    WITHIN = "within"
    GAP = "gap"  # beside a row that does not belong to the bracket
    LAST = "last"
    OPEN = "open"  # the last row shown of a bracket that goes on
    ALONE = "alone"  # the only row shown of a bracket that goes on


def lanes(brackets: Iterable[Bracket]) -> list[list[Bracket]]:
    """Divide brackets into as few lanes as their order permits; those of one lane are apart.

    >>> [len(lane) for lane in lanes([Bracket((0, 1)), Bracket((1, 2)), Bracket((4, 6))])]
    [2, 1]
    """
    divided: list[list[Bracket]] = []
    for bracket in sorted(brackets, key=lambda bracket: (bracket.first, bracket.last)):
        for lane in divided:
            if lane[-1].last < bracket.first:
                lane.append(bracket)
                break
        else:  # each lane is taken
            divided.append([bracket])
    return divided


def strokes(ties: Ties) -> list[list[Stroke]]:
    """Return a list per model, the best first, with what each lane shows beside it."""
    divided = lanes(ties.brackets)
    beside_rows = [[Stroke.NONE] * len(divided) for _ in ties.models]
    for number, lane in enumerate(divided):
        for bracket in lane:
            for row in range(bracket.first, bracket.last + 1):
                beside_rows[row][number] = _stroke(bracket, row)
    return beside_rows


def _stroke(bracket: Bracket, row: int) -> Stroke:
    if row in bracket.gaps:
        return Stroke.GAP
    is_last = row == bracket.last
    if row == bracket.first:
        return Stroke.ALONE if is_last else Stroke.FIRST
    if is_last:
        return Stroke.OPEN if bracket.goes_on else Stroke.LAST
    return Stroke.WITHIN


def bracket_cells(ties: Ties) -> list[str]:
    """Return the cells of a table that show brackets, a text of HTML per model, a cell per lane.

    They are hidden from readers who listen to the page: `tie_words` says the same.
    """
    rows = []
    for beside_row in strokes(ties):
        cells = []
        for stroke in beside_row:
            names = f"q-tie q-tie-{stroke}" if stroke else "q-tie"
            cells.append(f'<td class="{names}" aria-hidden="true"></td>')
        rows.append("".join(cells))
    return rows


def tie_words(ties: Ties, model: str) -> str:
    """Say from which models one of them is not told apart; empty if from none."""
    others = ties.not_separated(model)
    if not others:
        return ""
    return f"No difference shown from {', '.join(others)}"


def hidden_tie_words(ties: Ties, model: str) -> str:
    """Return `tie_words` as HTML for readers who listen to the page."""
    words = tie_words(ties, model)
    if not words:
        return ""
    return f'<span class="q-spoken"> {escaped_text(words)}.</span>'
