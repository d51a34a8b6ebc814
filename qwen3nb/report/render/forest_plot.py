"""Forest plots: a row per estimate with its interval, and a line of no effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from qwen3nb.metrics.intervals import Interval
from qwen3nb.report.render.figure import (
    COLORS,
    GREY,
    SMALL,
    Figure,
    MplFigure,
    draw_estimate,
    grid,
    panels,
    plain,
)


@dataclass(frozen=True)
class ForestRow:
    """One row of a forest plot: what is estimated, the estimate and its interval."""

    label: str
    value: float | None  # None if undefined, in which case the note says why
    low: float | None = None
    high: float | None = None
    color: str = ""  # by default the first of `COLORS`
    note: str = ""  # shown after the numbers, such as ``n = 260``; without a value, the reason
    clear: bool | None = None  # filled; by default, if the interval excludes the line of no effect
    marker: str = "o"  # tells models apart without colour

    @property
    def ends(self) -> Interval | None:
        """The interval, if there is one."""
        return None if self.low is None or self.high is None else (self.low, self.high)


def forest_figure(
    rows: Sequence[ForestRow],
    *,
    xlabel: str,
    zero: float | None = 0.0,
    number: str = "+.3f",
    alt: str = "",
    **figure: Any,
) -> Figure:
    """Draw a forest plot: a row per estimate, with its interval and its numbers at the right.

    Args:
        rows: estimates from top to bottom; one without a value shows its note.
        xlabel: quantity estimated, with its unit.
        zero: position of the line of no effect; None for no line.
        number: format specification of the numbers at the right.
        alt: alternative text; by default the rows in words.
        figure: other fields of `Figure`.
    """

    def draw(width: float) -> MplFigure:
        from matplotlib.ticker import MaxNLocator

        narrow, upwards = width < 5, rows[::-1]
        lines = [wrap(plain(row.label, most=52), 26 if narrow else 52) for row in upwards]
        height = 0.27 if any(len(each) > 1 for each in lines) else 0.21
        figure, (axis,), _ = panels(1, width, height=height * len(rows) + 0.75)
        if zero is not None:
            axis.axvline(zero, color=GREY, linewidth=1)
        for y, row in enumerate(upwards):
            if row.value is None:
                continue
            ends, clear = row.ends, row.clear
            if clear is None:
                clear = zero is None or ends is None or not ends[0] <= zero <= ends[1]
            look: dict[str, Any] = {"color": row.color or COLORS[0], "marker": row.marker}
            look |= {"filled": clear, "alpha": 1.0 if clear else 0.6}
            draw_estimate(axis, y, row.value, ends, **look)
        axis.set_ylim(-0.6, len(rows) - 0.4)
        axis.xaxis.set_major_locator(MaxNLocator(4 if narrow else 7))
        axis.set_xlabel("\n".join(wrap(plain(xlabel, most=90), 38 if narrow else 90)))
        grid(axis)
        axis.set_yticks(range(len(rows)), ["\n".join(each) for each in lines])
        axis.tick_params(axis="y", length=0)
        for label in axis.get_yticklabels():
            if "\n" in label.get_text():  # so that two lines fit their row
                label.set(fontsize=SMALL, linespacing=1.0)
        axis.spines["left"].set_visible(False)
        beside = axis.secondary_yaxis("right")
        numbers = [_numbers(row, number, short=narrow) for row in upwards]
        beside.set_yticks(range(len(rows)), numbers)
        beside.tick_params(axis="y", length=0, labelsize=SMALL)
        beside.spines["right"].set_visible(False)
        return figure

    words = "; ".join(f"{row.label}: {_numbers(row, number)}" for row in rows).replace(r"\$", "$")
    return Figure(
        draw=draw,
        alt=alt or f"Forest plot of {xlabel}. {words}.",
        **{"name": "forest"} | figure,
    )


def _numbers(row: ForestRow, number: str, *, short: bool = False) -> str:
    """Return the text at the right of a row; if ``short``, only the value or the reason."""
    most = 20 if short else 44
    if row.value is None:
        return plain(row.note or "no value", most=most)
    text = f"{row.value:{number}}"
    if not short and row.ends:
        text += f" [{row.low:{number}}, {row.high:{number}}]"
    note = f"  {row.note}" if row.note and not short else ""
    return plain(text.replace("-", "−") + note, most=most)
