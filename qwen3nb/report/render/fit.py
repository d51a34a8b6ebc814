"""Fit texts into the panels of a figure, and a figure onto the pages of a paper.

The layout of matplotlib gives panels room for the height of their titles and labels, but not for
their width: a wide one runs over its neighbour, or over the edge, where it is cut.
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import matplotlib.text
    from matplotlib.transforms import Bbox, BboxBase

_POINTS = 72  # in an inch
_GAP = 6.0  # points between the texts of neighbouring panels
_LINE = 1.25  # height of a line, in sizes of its font
_SHRUNK = 1.2  # times the height of a page: figures up to it are made lower instead of divided
_MOST_PASSES = 3  # layouts until every text fits
_SEPARATORS = "-_/:., "  # of the words of a name
# Words, with an equation such as ``n = 40`` as one; and pieces of a word, where one is too wide.
_WORDS = re.compile(r"\S+ = \S+|\S+")
# "SciFact-test" has the pieces "Sci", "Fact-" and "test".
_PIECES = re.compile(r".+?(?:[-_/:.,](?=.)|(?<=[a-z0-9])(?=[A-Z][a-z])|$)")


def wrapped_names(names: Sequence[str], *, longest: int, lines: int = 2) -> list[str]:
    """Return the names of rows, those of more than ``longest`` characters on two ``lines``.

    What does not fit is left out of the middle: names of checkpoints differ at the end. Names that
    would look alike show the place where they differ. On one of ``lines``, they lose the beginning.

    >>> wrapped_names(["bm25", "checkpoint-of-a-training"], longest=14)
    ['bm25', 'checkpoint-of-\\na-training']
    >>> wrapped_names(["a-very-long-name-of-step-12000"], longest=12)
    ['a-very-long-\\n…-step-12000']
    >>> wrapped_names(["a-long-name-of-1-with-an-end", "a-long-name-of-2-with-an-end"], longest=12)
    ['a-long-name-\\n…1-with-an-…', 'a-long-name-\\n…2-with-an-…']
    >>> wrapped_names(["bm25", "checkpoint-of-a-training"], longest=14, lines=1)
    ['bm25', '…of-a-training']
    """
    labels = {name: _label(name, longest, lines) for name in names}
    for _ in range(len(labels)):  # new labels may equal others again
        groups = _names_with_equal_labels(labels)
        if not groups:
            break
        for group in groups:
            start = _start_of_difference(group, longest)
            for name in group:
                labels[name] = _label(name, longest, lines, start=start)
    return [labels[name] for name in names]


def _label(name: str, longest: int, lines: int, *, start: int | None = None) -> str:
    """Return a name on one or two lines; the last begins at ``start``, or has the end."""
    wrapped_lines = wrap(name, longest)
    if len(wrapped_lines) <= lines:
        return "\n".join(wrapped_lines)
    start_of_end = len(name) - (longest - 1)  # one character is the ellipsis
    last_line = f"…{name[start_of_end:]}"
    if start is not None and start < start_of_end:
        middle = name[start : start + longest - 2]  # two characters are the ellipses
        last_line = f"…{middle}…"
    return "\n".join([*wrapped_lines[: lines - 1], last_line])


def _start_of_difference(names: Sequence[str], longest: int) -> int:
    """Return where a label shows the difference of names, with the beginning of its word."""
    shared_start = os.path.commonprefix(names)  # noqa: RUF071 - of any texts
    start_of_word = 1 + max(shared_start.rfind(separator) for separator in _SEPARATORS)
    return max(start_of_word, len(shared_start) - longest // 3)


def _names_with_equal_labels(labels: Mapping[str, str]) -> list[list[str]]:
    groups = defaultdict(list)
    for name, label in labels.items():
        groups[label].append(name)
    return [names for names in groups.values() if len(names) > 1]


def fit_texts(figure: matplotlib.figure.Figure) -> None:
    """Wrap titles and labels of panels that run over a neighbour or the edge of the figure.

    The figure becomes higher by the lines that this adds.
    """
    panels = [axis for axis in figure.axes if _has_texts(axis)]
    for _ in range(_MOST_PASSES):
        figure.draw_without_rendering()
        added_points: dict[int, float] = defaultdict(float)  # by the bottom of a line of panels
        for axis in panels:
            room = _room_for_texts(axis, panels, figure)
            points = sum(_wrap_text(text, room) for text in _texts(axis))
            bottom = round(axis.get_window_extent().y0)
            # Panels side by side share the height of the one with most new lines.
            added_points[bottom] = max(added_points[bottom], points)
        if not any(added_points.values()):
            return
        width, height = figure.get_size_inches()
        added_inches = sum(added_points.values()) / _POINTS
        figure.set_size_inches(width, height + added_inches)


def _has_texts(axis: matplotlib.axes.Axes) -> bool:
    return any(text.get_text() for text in _texts(axis))


def _texts(axis: matplotlib.axes.Axes) -> list[matplotlib.text.Text]:
    """Return the title and the label below a panel."""
    return [axis.title, axis.xaxis.label]


def _room_for_texts(
    axis: matplotlib.axes.Axes,
    panels: Sequence[matplotlib.axes.Axes],
    figure: matplotlib.figure.Figure,
) -> float:
    """Return the width, in pixels, of a text in the middle of a panel.

    Files have other widths of letters than the screen, by a few parts in a hundred; the gap to
    neighbours and edges has room for them.
    """
    box = axis.get_window_extent()
    centre = _centre(box)
    # How far a text may reach to each side: to the edges of the figure, …
    reaches = [centre - figure.bbox.x0, figure.bbox.x1 - centre]
    for neighbour in panels:
        other_box = neighbour.get_window_extent()
        is_in_same_line = other_box.y0 < box.y1 and box.y0 < other_box.y1
        if neighbour is not axis and is_in_same_line:
            # … and half of the way to the text of a neighbour.
            reaches.append(abs(_centre(other_box) - centre) / 2)
    # Half of the gap is the neighbour's; a centred text reaches as far on both sides.
    gap = _GAP * figure.dpi / _POINTS
    return 2 * (min(reaches) - gap / 2)


def _centre(box: BboxBase) -> float:
    return (box.x0 + box.x1) / 2


def _wrap_text(text: matplotlib.text.Text, room: float) -> float:
    """Break the lines of a text that are wider than ``room``; return the added height in points."""

    def is_too_wide(words: str) -> bool:
        text.set_text(words)  # only what is set has a width
        return words != "" and text.get_window_extent().width > room

    old_lines = text.get_text().split("\n")
    lines = []
    for line in old_lines:
        lines += _broken_line(line, is_too_wide)
    text.set_text("\n".join(lines))
    added_lines = len(lines) - len(old_lines)
    return added_lines * float(text.get_fontsize()) * _LINE


def _broken_line(line: str, is_too_wide: Callable[[str], bool]) -> list[str]:
    """Break a line between words, and a word that is too wide alone between its pieces."""
    if not is_too_wide(line):
        return [line]
    lines = [""]
    for word in _WORDS.findall(line):
        longer_line = f"{lines[-1]} {word}".lstrip()
        if not is_too_wide(longer_line):
            lines[-1] = longer_line
        elif not is_too_wide(word):
            lines.append(word)
        else:
            lines += _broken_word(word, is_too_wide)
    if lines[0] == "" and len(lines) > 1:  # the first word is too wide
        return lines[1:]
    return lines


def _broken_word(word: str, is_too_wide: Callable[[str], bool]) -> list[str]:
    lines = [""]
    for piece in _PIECES.findall(word):
        if lines[-1] and is_too_wide(lines[-1] + piece):
            lines.append("")
        lines[-1] += piece
    return lines


def page_parts(figure: matplotlib.figure.Figure, page_height: float) -> list[Bbox]:
    """Return the parts of a figure, from top to bottom, each at most ``page_height`` inches high.

    A figure that is little higher is made as high. Others are divided between lines of panels, in
    inches of their own coordinates. A line that is higher than a page stays whole.
    """
    from matplotlib.transforms import Bbox

    width, height = figure.get_size_inches()
    if page_height < height <= _SHRUNK * page_height:
        height = page_height
        figure.set_size_inches(width, height)
    figure.draw_without_rendering()
    if height <= page_height:
        return [Bbox([[0, 0], [width, height]])]
    bottoms = [*_middles_of_gaps(figure), 0.0]  # where a part may end, from the top down
    # Where it would end with one more line; after the last one, a part always ends.
    next_bottoms = [*bottoms[1:], -math.inf]
    parts = []
    top = height
    for bottom, next_bottom in zip(bottoms, next_bottoms, strict=True):
        has_room_for_next_line = top - next_bottom <= page_height
        if not has_room_for_next_line:
            parts.append(Bbox([[0, bottom], [width, top]]))
            top = bottom
    return parts


class _Extent(NamedTuple):
    """Where a panel or a line of panels begins and ends, in inches from the bottom."""

    bottom: float
    top: float


def _middles_of_gaps(figure: matplotlib.figure.Figure) -> list[float]:
    """Return the middle of each gap between lines of panels in inches, from the top down."""
    panels = [_extent(figure, axis) for axis in figure.axes]
    panels.sort(key=lambda panel: panel.top, reverse=True)
    lines: list[_Extent] = []
    for panel in panels:
        # The panel is beside the last one: both are in one line, as low as the lower of them.
        if lines and panel.top > lines[-1].bottom:
            line = lines.pop()
            lines.append(_Extent(min(panel.bottom, line.bottom), line.top))
        else:
            lines.append(panel)
    return [(upper.bottom + lower.top) / 2 for upper, lower in pairwise(lines)]


def _extent(figure: matplotlib.figure.Figure, axis: Any) -> _Extent:
    """Return the extent of a panel with its texts."""
    box = axis.get_tightbbox()
    return _Extent(box.y0 / figure.dpi, box.y1 / figure.dpi)
