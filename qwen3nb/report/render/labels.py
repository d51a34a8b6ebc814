"""Names of points in a figure, placed so that none covers another one or a point."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from qwen3nb.report.render.figure import GREY, Axes

if TYPE_CHECKING:
    from matplotlib.text import Annotation
    from matplotlib.transforms import BboxBase

_GAP = 6.0  # points between a marker and its name
_STEP = 4.0  # points by which a name moves up or down until it finds room
_MOST_STEPS = 20
_MARKER = 4.0  # points from the middle of a marker to its edge


@dataclass(frozen=True)
class PointLabel:
    """The name of one point, in the data's units."""

    text: str
    x: float
    y: float
    strong: bool = False


Place = tuple[float, float]  # in the data's units
Box = NDArray[np.float64]  # left, bottom, right and top, in pixels
_UPWARDS = np.array([0.0, 1.0, 0.0, 1.0])  # moves a box


def place_labels(
    axis: Axes, labels: Sequence[PointLabel], *, points: Sequence[Place], steps: Sequence[Place]
) -> None:
    """Write names beside their points; one that finds no room there is joined by a line.

    The first labels choose first; one that finds no room at all is left out. The axes must have
    their limits already.

    Args:
        axis: where they are written.
        labels: the names.
        points: all points, which no name may cover.
        steps: corners of a line with horizontal and vertical parts, likewise.
    """
    axis.figure.draw_without_rendering()  # type: ignore[union-attr]
    taken = [_box(axis, point, point) for point in points]
    taken += [_box(axis, start, end) for start, end in itertools.pairwise(steps)]
    for label in labels:
        box = _write(axis, label, np.array(taken).reshape(-1, 4))
        if box is not None:
            taken.append(box)


def _write(axis: Axes, label: PointLabel, taken: Box) -> Box | None:
    """Write a name at the first free place, and return the room that it takes; None without one.

    Args:
        axis: where it is written.
        label: the name.
        taken: the room of others (boxes, 4).
    """
    left, bottom, right, top = _ends(axis.get_window_extent())
    step = _STEP * axis.figure.dpi / 72  # in pixels
    boxes = {side: _text_box(axis, label, side=side) for side in ("left", "right")}
    for distance in range(_MOST_STEPS):
        for side, box in boxes.items():
            for steps_up in (distance, -distance):
                moved = box + step * steps_up * _UPWARDS
                x_low, y_low, x_high, y_high = moved
                is_inside = left <= x_low and x_high <= right and bottom <= y_low and y_high <= top
                if is_inside and not _overlaps(moved, taken):
                    _annotate(axis, label, side=side, height=steps_up * _STEP)
                    return moved
    return None


def _overlaps(box: Box, others: Box) -> bool:
    """Return whether a box has room in common with one of others (boxes, 4), or touches it."""
    x_low, y_low, x_high, y_high = others.T
    is_beside = (box[2] < x_low) | (x_high < box[0])
    is_above_or_below = (box[3] < y_low) | (y_high < box[1])
    return not (is_beside | is_above_or_below).all()


def _annotate(axis: Axes, label: PointLabel, *, side: str, height: float) -> Annotation:
    """Write a name beside its point, ``height`` points above it, and a line if that is far.

    ``side`` is the one of the name that faces the point.
    """
    is_right_of_point = side == "left"
    is_far = abs(height) > 2 * _STEP
    annotation = axis.annotate(
        label.text,
        (label.x, label.y),
        xytext=(_GAP if is_right_of_point else -_GAP, height),
        textcoords="offset points",
        ha=side,
        va="center",
        fontweight="bold" if label.strong else "normal",
        arrowprops={
            "arrowstyle": "-",
            "color": GREY,
            "linewidth": 0.5 if is_far else 0,
            "shrinkA": 0,
            "shrinkB": 3,
            "relpos": (0 if is_right_of_point else 1, 0.5),
        },
    )
    annotation.set_in_layout(False)  # the axes keep their size
    return annotation


def _text_box(axis: Axes, label: PointLabel, *, side: str) -> Box:
    """Return the room of a name beside its point, without that of a line."""
    from matplotlib.text import Text

    annotation = _annotate(axis, label, side=side, height=0)
    renderer = annotation.figure.canvas.get_renderer()  # type: ignore[attr-defined]
    annotation.update_positions(renderer)
    box = _ends(Text.get_window_extent(annotation, renderer))
    annotation.remove()
    return box


def _ends(box: BboxBase) -> Box:
    """Return left, bottom, right and top of a box, in pixels."""
    return np.array([*box.min, *box.max])


def _box(axis: Axes, start: Place, end: Place) -> Box:
    """Return the room of what is drawn from one place to another, which may be the same."""
    corners = axis.transData.transform([start, end])
    pixels = _MARKER * axis.figure.dpi / 72
    return np.concatenate([corners.min(axis=0) - pixels, corners.max(axis=0) + pixels])
