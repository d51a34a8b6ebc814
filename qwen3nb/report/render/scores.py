"""A figure of scores: a dot and its interval per model, and brackets that join equal models.

The best model and those that are not told apart from it have the accent colour; the others are
grey, and light where they are not told apart from chance.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from qwen3nb.analysis.comparison.brackets import Ties
from qwen3nb.metrics.intervals import Interval
from qwen3nb.records.data_used import NO_SCORES, DataUsed
from qwen3nb.report.render.brackets import lanes
from qwen3nb.report.render.figure import (
    ACCENT,
    GREY,
    LONGEST_LINE,
    QUIET,
    Axes,
    Figure,
    MplFigure,
    is_wide,
    row_names,
)
from qwen3nb.utils.format import interval_text, number_text

NO_DIFFERENCE = "no difference shown"
_ROW_HEIGHT = 0.29  # inches
_LONGEST_WIDE = 40  # characters of a name on one line, where there is room
_LANE = 0.6  # width of a lane of brackets, in units of their panel
_DASHED = (0, (1, 2))  # beside a row that does not belong to a bracket


class Tone(StrEnum):
    """What the colour of a row says."""

    BEST = "best"  # or not told apart from the best
    BEHIND = "behind"
    CHANCE = "chance"  # not told apart from random vectors


@dataclass(frozen=True)
class ScoreRow:
    """One model: its name, score and interval."""

    name: str
    value: float
    interval: Interval | None = None
    tone: Tone = Tone.BEHIND
    mark: str = ""  # after the name, such as that of a toy

    @property
    def label(self) -> str:
        """The name with its mark."""
        return f"{self.name}{self.mark}"


def score_figure(
    rows: Sequence[ScoreRow],
    ties: Ties,
    *,
    measure: str,
    name: str,
    caption: str = "",
    data: DataUsed = NO_SCORES,
) -> Figure:
    """Draw the scores of models, the best on top; ``ties`` are those of the rows, in their order.

    ``measure`` names task and metric, for readers who cannot see the figure.
    """
    return Figure(
        name=name,
        draw=partial(_draw, rows, ties),
        caption=caption,
        alt=_description(rows, ties, measure),
        data=data,
    )


def _description(rows: Sequence[ScoreRow], ties: Ties, measure: str) -> str:
    """Say in words what the figure shows: the scores, then the models of each bracket."""
    scores = []
    for row in rows:
        ends = interval_text(row.interval, sign=False, digits=2, absent="")
        scores.append(f"{row.label} {number_text(row.value, digits=2)} {ends}".strip())
    text = f"Scores on {measure}: {'; '.join(scores)}."
    joined = [", ".join(ties.models[row] for row in bracket.rows) for bracket in ties.brackets]
    if joined:
        text += f" {NO_DIFFERENCE.capitalize()} between: {'; '.join(joined)}."
    return text


def _draw(rows: Sequence[ScoreRow], ties: Ties, width: float) -> MplFigure:
    import matplotlib.pyplot as plt

    number_of_lanes = len(lanes(ties.brackets))
    bracket_width = 0.13 * number_of_lanes  # inches
    if number_of_lanes and is_wide(width):
        bracket_width += 1.1  # for the words
    size = (width, _ROW_HEIGHT * len(rows) + 0.3)
    figure, (axis, bracket_axis) = plt.subplots(
        1, 2, figsize=size, sharey=True, width_ratios=[width - bracket_width, bracket_width + 0.05]
    )
    for row, model in enumerate(rows):
        _draw_row(axis, row, model)
    _set_axis(axis, rows, has_room=is_wide(width))
    _draw_brackets(bracket_axis, ties, has_words=is_wide(width))
    return figure


def _draw_row(axis: Axes, row: int, model: ScoreRow) -> None:
    color, opacity = ACCENT, 1.0
    if model.tone is not Tone.BEST:
        color = QUIET
    if model.tone is Tone.CHANCE:
        opacity = 0.45
    right = model.value
    if model.interval is not None:
        right = max(model.value, model.interval[1])
        (line,) = axis.plot(model.interval, [row, row], color=color, lw=3.2, alpha=0.35 * opacity)
        line.set_solid_capstyle("round")
    axis.plot([model.value], [row], "o", color=color, markersize=5.5, alpha=opacity, mew=0)
    axis.annotate(
        number_text(model.value, digits=2),
        (right, row),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
    )


def _set_axis(axis: Axes, rows: Sequence[ScoreRow], *, has_room: bool) -> None:
    """Name the rows, the first on top, over an axis from 0 to 1, or as far as scores reach."""
    lowest, highest = 0.0, 1.0
    for row in rows:
        low, high = row.interval or (row.value, row.value)
        lowest, highest = min(lowest, low), max(highest, high)
    axis.set_xlim(lowest - 0.01, highest + 0.01)
    axis.set_ylim(len(rows) - 0.4, -0.6)  # the first row on top
    longest = LONGEST_LINE
    if has_room:
        longest = _LONGEST_WIDE
    axis.set_yticks(range(len(rows)), row_names([row.label for row in rows], longest=longest))
    for label, row in zip(axis.get_yticklabels(), rows, strict=True):
        label.set_linespacing(1.1)
        if row.tone is Tone.BEST:
            label.set_fontweight("bold")
    axis.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0", "0.25", "0.5", "0.75", "1"])
    axis.tick_params(axis="both", length=0)
    axis.set_axisbelow(True)
    axis.grid(axis="x", color=GREY, alpha=0.2, linewidth=0.6)
    for spine in axis.spines.values():
        spine.set_visible(False)


def _draw_brackets(axis: Axes, ties: Ties, *, has_words: bool) -> None:
    """Draw the brackets in their lanes, dashed beside rows that do not belong to them."""
    divided = lanes(ties.brackets)
    axis.set_axis_off()
    end = _LANE * len(divided)
    axis.set_xlim(0, end + (6 if has_words else 0.2))
    for number, lane in enumerate(divided):
        x = _LANE * (number + 1)
        for bracket in lane:
            top, bottom = bracket.first - 0.2, bracket.last + 0.2
            axis.plot([x - 0.4, x], [top, top], color=ACCENT, lw=1.1)
            axis.plot([x - 0.4, x], [bottom, bottom], color=ACCENT, lw=1.1)
            edges = [top]
            for gap in bracket.gaps:
                axis.plot([x, x], [gap - 0.4, gap + 0.4], color=ACCENT, lw=1.1, ls=_DASHED)
                axis.plot([x, x], [edges.pop(), gap - 0.4], color=ACCENT, lw=1.1)
                edges.append(gap + 0.4)
            axis.plot([x, x], [edges.pop(), bottom], color=ACCENT, lw=1.1)
    if has_words and divided:
        first = divided[0][0]
        middle = (first.first + first.last) / 2
        axis.text(end + 0.35, middle, NO_DIFFERENCE, color=ACCENT, va="center", ha="left")
