"""Forest plots: a row per estimate with its interval, and a line of no effect."""

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from qwen3nb.metrics.intervals import Interval, excludes_zero
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
from qwen3nb.report.render.table import effect_text


@dataclass(frozen=True)
class ForestRow:
    """One row of a forest plot: label, estimate and interval."""

    label: str
    value: float | None  # None if undefined; the note then gives the reason
    interval: Interval | None = None
    color: str = ""  # by default the first of `COLORS`
    note: str = ""  # shown after the numbers, such as ``n = 260``; without a value, the reason
    clear: bool | None = None  # whether filled; by default, if the interval excludes no effect
    marker: str = "o"  # distinguishes models without colour


def forest_figure(
    rows: Sequence[ForestRow], *, xlabel: str, alt: str = "", **figure: Any
) -> Figure:
    """Draw a forest plot of differences: a row each, with interval and numbers on the right.

    Args:
        rows: estimates from top to bottom; one without a value shows its note.
        xlabel: quantity estimated, with its unit.
        alt: alternative text; by default the rows in words.
        figure: other fields of `Figure`.
    """

    def draw(width: float) -> MplFigure:
        from matplotlib.ticker import MaxNLocator

        narrow, upwards = width < 5, rows[::-1]
        lines = [wrap(plain(row.label, most=52), 26 if narrow else 52) for row in upwards]
        height = 0.27 if any(len(each) > 1 for each in lines) else 0.21
        figure, (axis,), _ = panels(1, width, height=height * len(rows) + 0.75)
        axis.axvline(0, color=GREY, linewidth=1)
        for y, row in enumerate(upwards):
            if row.value is None:
                continue
            clear = row.clear
            if clear is None:
                clear = row.interval is None or excludes_zero(row.interval)
            look: dict[str, Any] = {"color": row.color or COLORS[0], "marker": row.marker}
            look |= {"filled": clear, "alpha": 1.0 if clear else 0.6}
            draw_estimate(axis, y, row.value, row.interval, **look)
        axis.set_ylim(-0.6, len(rows) - 0.4)
        axis.xaxis.set_major_locator(MaxNLocator(4 if narrow else 7))
        axis.set_xlabel("\n".join(wrap(plain(xlabel, most=90), 38 if narrow else 90)))
        grid(axis)
        axis.set_yticks(range(len(rows)), ["\n".join(each) for each in lines])
        axis.tick_params(axis="y", length=0)
        for label in axis.get_yticklabels():
            if "\n" in label.get_text():  # make two lines fit into their row
                label.set(fontsize=SMALL, linespacing=1.0)
        axis.spines["left"].set_visible(False)
        beside = axis.secondary_yaxis("right")
        numbers = [_numbers(row, short=narrow) for row in upwards]
        beside.set_yticks(range(len(rows)), numbers)
        beside.tick_params(axis="y", length=0, labelsize=SMALL)
        beside.spines["right"].set_visible(False)
        return figure

    words = "; ".join(f"{row.label}: {_numbers(row)}" for row in rows).replace(r"\$", "$")
    return Figure(
        draw=draw, alt=alt or f"Forest plot of {xlabel}. {words}.", **{"name": "forest"} | figure
    )


def _numbers(row: ForestRow, *, short: bool = False) -> str:
    """Return the text on the right of a row; if ``short``, only the value or the reason."""
    most = 20 if short else 44
    if row.value is None:
        return plain(row.note or "no value", most=most)
    text = effect_text(row.value, None if short else row.interval)
    note = f"  {row.note}" if row.note and not short else ""
    return plain(text.replace("-", "−") + note, most=most)
