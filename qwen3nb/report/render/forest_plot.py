"""Forest plots: a row per estimate with its interval, and a line of no effect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qwen3nb.report.render.figure import COLORS, GREY, SMALL, Figure, grid, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as MplFigure

__all__ = ["Band", "ForestRow", "forest_figure"]


@dataclass(frozen=True)
class ForestRow:
    """One row of a forest plot.

    Attributes:
        label: what is estimated.
        value: the estimate; None if undefined, in which case ``note`` says why.
        low: lower end of its interval, or None.
        high: upper end.
        color: colour of its marker; by default the first of `COLORS`.
        note: shown after the numbers, such as ``n = 260``; without a value, the reason.
        clear: whether the marker is filled; by default, whether the interval excludes the
            line of no effect.
        marker: its shape, which tells models apart without colour.
    """

    label: str
    value: float | None
    low: float | None = None
    high: float | None = None
    color: str = ""
    note: str = ""
    clear: bool | None = None
    marker: str = "o"


@dataclass(frozen=True)
class Band:
    """A named, shaded range of values, such as a gate's MARGINAL.

    Attributes:
        low: lower end; None for the left edge of the plot.
        high: upper end; None for the right edge.
        label: shown at its top.
        color: colour of the shading.
    """

    low: float | None
    high: float | None
    label: str = ""
    color: str = GREY


def forest_figure(
    rows: Sequence[ForestRow],
    *,
    xlabel: str,
    bands: Sequence[Band] = (),
    zero: float | None = 0.0,
    number: str = "+.3f",
    name: str = "forest",
    caption: str = "",
    alt: str = "",
    columns: int = 2,
) -> Figure:
    """Draw a forest plot: a row per estimate, with its interval and its numbers at the right.

    Args:
        rows: estimates from top to bottom; one without a value shows its note.
        xlabel: quantity estimated, with its unit.
        bands: shaded ranges behind the rows.
        zero: position of the line of no effect; None for no line.
        number: format specification of the numbers at the right.
        name: name of the file.
        caption: what the figure shows, n and the test.
        alt: alternative text; by default the rows in words.
        columns: number of page columns, 1 or 2.
    """
    words = "; ".join(f"{row.label}: {_numbers(row, number)}" for row in rows).replace(r"\$", "$")
    return Figure(
        name=name,
        draw=lambda width: _draw(tuple(rows), xlabel, tuple(bands), zero, number, width),
        caption=caption,
        alt=alt or f"Forest plot of {xlabel}. {words}.",
        columns=columns,
    )


def _draw(
    rows: tuple[ForestRow, ...],
    xlabel: str,
    bands: tuple[Band, ...],
    zero: float | None,
    number: str,
    width: float,
) -> MplFigure:
    import matplotlib.pyplot as plt
    from matplotlib.ticker import MaxNLocator

    figure, axis = plt.subplots(figsize=(width, 0.21 * len(rows) + 0.75))
    if zero is not None:
        axis.axvline(zero, color=GREY, linewidth=1)
    for height, row in enumerate(reversed(rows)):
        _row(axis, height, row, zero)
    _bands(axis, bands, width)
    axis.set_ylim(-0.6, len(rows) - 0.4)
    axis.xaxis.set_major_locator(MaxNLocator(4 if width < 5 else 7))
    axis.set_xlabel(plain(xlabel, most=90))
    grid(axis)
    most = 26 if width < 5 else 44
    labels = [plain(f"{row.label}", most=most) for row in reversed(rows)]
    axis.set_yticks(range(len(rows)), labels)
    axis.tick_params(axis="y", length=0)
    axis.spines["left"].set_visible(False)
    beside = axis.secondary_yaxis("right")
    numbers = [_numbers(row, number, short=width < 5) for row in reversed(rows)]
    beside.set_yticks(range(len(rows)), numbers)
    beside.tick_params(axis="y", length=0, labelsize=SMALL)
    beside.spines["right"].set_visible(False)
    return figure


def _row(axis: Axes, height: int, row: ForestRow, zero: float | None) -> None:
    """Draw a marker and its interval: filled if the interval excludes ``zero``, else hollow."""
    if row.value is None:
        return
    color = row.color or COLORS[0]
    clear = row.clear
    if row.low is not None and row.high is not None:
        if clear is None:
            clear = zero is None or not row.low <= zero <= row.high
        alpha = 1.0 if clear else 0.6
        axis.plot(
            [row.low, row.high],
            [height] * 2,
            color=color,
            lw=1.8,
            alpha=alpha,
            solid_capstyle="butt",
        )
    face = "none" if clear is False else color
    axis.plot([row.value], [height], row.marker, color=color, markersize=4.5, markerfacecolor=face)


def _bands(axis: Axes, bands: tuple[Band, ...], width: float) -> None:
    """Shade the bands behind the rows, open-ended ones up to the edge, with labels on top."""
    if not bands:
        return
    ends = [end for band in bands for end in (band.low, band.high) if end is not None]
    left, right = min(axis.get_xlim()[0], *ends), max(axis.get_xlim()[1], *ends)
    axis.set_xlim(left, right)
    spans = [
        (left if band.low is None else band.low, right if band.high is None else band.high)
        for band in bands
    ]
    inches = [width * 0.5 * (high - low) / ((right - left) or 1) for low, high in spans]
    tight = any(0.07 * len(band.label) > room for band, room in zip(bands, inches, strict=True))
    for index, (band, (low, high)) in enumerate(zip(bands, spans, strict=True)):
        axis.axvspan(low, high, color=band.color, alpha=0.13, linewidth=0, zorder=0)
        axis.annotate(
            plain(band.label),
            ((low + high) / 2, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 2 + 9 * (index if tight else 0)),  # each label on its own line
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=SMALL,
        )


def _numbers(row: ForestRow, number: str, *, short: bool = False) -> str:
    """Return the text at the right of a row; if ``short``, only the value or the reason."""
    most = 20 if short else 44
    if row.value is None:
        return plain(row.note or "no value", most=most)
    text = f"{row.value:{number}}"
    if not short and row.low is not None and row.high is not None:
        text += f" [{row.low:{number}}, {row.high:{number}}]"
    note = f"  {row.note}" if row.note and not short else ""
    return plain(text.replace("-", "−") + note, most=most)
