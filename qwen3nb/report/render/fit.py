"""Fit texts into the panels of a figure, and a figure onto the pages of a paper.

The layout of matplotlib gives panels room for the height of their titles and labels, but not for
their width: a wide one runs over its neighbour, or over the edge, where it is cut.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from textwrap import wrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure
    import matplotlib.text
    from matplotlib.transforms import Bbox

_POINTS = 72  # in an inch
_GAP = 6.0  # points between the texts of neighbouring panels
_LINE = 1.25  # height of a line, in sizes of its font
_SHRUNK = 1.2  # times the height of a page: figures up to it are made lower instead of divided
_MOST_PASSES = 3  # layouts until every text fits
_SEPARATORS = "-_/:., "  # of the words of a name
# Words, with an equation such as ``n = 40`` as one; and pieces of a word, where one is too wide.
_WORDS = re.compile(r"\S+ = \S+|\S+")
_PIECES = re.compile(r".+?(?:[-_/:.,](?=.)|(?<=[a-z0-9])(?=[A-Z][a-z])|$)")


def wrapped_names(names: Sequence[str], *, most: int, lines: int = 2) -> list[str]:
    """Return the names of rows, those of more than ``most`` characters on two ``lines``.

    What does not fit is left out of the middle: names of checkpoints differ at the end. Names that
    would look alike show the place where they differ. On one of ``lines``, they lose the beginning.

    >>> wrapped_names(["bm25", "checkpoint-of-a-training"], most=14)
    ['bm25', 'checkpoint-of-\\na-training']
    >>> wrapped_names(["a-very-long-name-of-step-12000"], most=12)
    ['a-very-long-\\n…-step-12000']
    >>> wrapped_names(["a-long-name-of-1-with-an-end", "a-long-name-of-2-with-an-end"], most=12)
    ['a-long-name-\\n…1-with-an-…', 'a-long-name-\\n…2-with-an-…']
    >>> wrapped_names(["bm25", "checkpoint-of-a-training"], most=14, lines=1)
    ['bm25', '…of-a-training']
    """
    labels = {name: _label(name, most, lines) for name in names}
    for _ in labels:
        alike = _alike(labels)
        for group in alike:
            shared = _shared_beginning(group)
            word = 1 + max(map(shared.rfind, _SEPARATORS))
            start = max(word, len(shared) - most // 3)
            labels |= {name: _label(name, most, lines, start=start) for name in group}
        if not alike:
            break
    return [labels[name] for name in names]


def _label(name: str, most: int, lines: int, *, start: int | None = None) -> str:
    """Return a name on one or two lines; the last begins at ``start``, or has the end."""
    parts = wrap(name, most)
    if len(parts) <= lines:
        return "\n".join(parts)
    last = len(name) + 1 - most
    rest = f"…{name[last:]}"
    if start is not None and start < last:
        rest = f"…{name[start : start + most - 2]}…"
    return "\n".join([*parts[: lines - 1], rest])


def _shared_beginning(names: Sequence[str]) -> str:
    first, last = min(names), max(names)
    for position, (one, other) in enumerate(zip(first, last, strict=False)):
        if one != other:
            return first[:position]
    return first


def _alike(labels: Mapping[str, str]) -> list[list[str]]:
    """Return the groups of names that have the same label."""
    groups: dict[str, list[str]] = {}
    for name, label in labels.items():
        groups.setdefault(label, []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def fit_texts(figure: matplotlib.figure.Figure) -> None:
    """Wrap titles and labels of panels that run over a neighbour or the edge of the figure.

    The figure becomes higher by the lines that this adds.
    """
    panels = [axis for axis in figure.axes if any(text.get_text() for text in _texts(axis))]
    for _ in range(_MOST_PASSES):
        figure.draw_without_rendering()
        added: dict[int, float] = {}  # height by the top of a line of panels, in points
        for axis in panels:
            room = _room(axis, panels, figure)
            line = round(axis.get_window_extent().y0)
            height = sum(_wrap_text(text, room) for text in _texts(axis))
            added[line] = max(added.get(line, 0.0), height)
        if not any(added.values()):
            return
        width, height = figure.get_size_inches()
        figure.set_size_inches(width, height + sum(added.values()) / _POINTS)


def _texts(axis: matplotlib.axes.Axes) -> list[matplotlib.text.Text]:
    """Return the title and the label below a panel."""
    return [axis.title, axis.xaxis.label]


def _room(
    axis: matplotlib.axes.Axes,
    panels: Sequence[matplotlib.axes.Axes],
    figure: matplotlib.figure.Figure,
) -> float:
    """Return the width, in pixels, of a text in the middle of a panel.

    Files have other widths of letters than the screen, by a few parts in a hundred; the gap to
    neighbours and edges has room for them.
    """
    box = axis.get_window_extent()
    centre = (box.x0 + box.x1) / 2
    gap = _GAP * figure.dpi / _POINTS
    halves = [centre - figure.bbox.x0 - gap / 2, figure.bbox.x1 - centre - gap / 2]
    for other in panels:
        beside = other.get_window_extent()
        if other is not axis and beside.y0 < box.y1 and box.y0 < beside.y1:
            halves.append(abs((beside.x0 + beside.x1) / 2 - centre) / 2 - gap / 2)
    return 2 * min(halves)


def _wrap_text(text: matplotlib.text.Text, room: float) -> float:
    """Break the lines of a text that are wider than ``room``; return the added height in points."""
    before = text.get_text()
    lines = [part for line in before.split("\n") for part in _broken(text, line, room)]
    text.set_text("\n".join(lines))
    more = len(lines) - len(before.split("\n"))
    return more * float(text.get_fontsize()) * _LINE


def _broken(text: matplotlib.text.Text, line: str, room: float) -> Iterator[str]:
    """Yield a line in parts that are not wider than ``room``, broken between pieces."""

    def is_wide(words: str) -> bool:
        text.set_text(words)
        return bool(words) and text.get_window_extent().width > room

    if not is_wide(line):
        yield line
        return
    part = ""
    for word in _WORDS.findall(line):
        joined = f"{part} {word}".lstrip()
        if not is_wide(joined):
            part = joined
            continue
        if part:
            yield part
        part = ""
        for piece in _PIECES.findall(word) if is_wide(word) else [word]:
            if part and is_wide(part + piece):
                yield part
                part = ""
            part += piece
    yield part


def page_parts(figure: matplotlib.figure.Figure, most: float) -> list[Bbox]:
    """Return the parts of a figure, from top to bottom, each at most ``most`` inches high.

    A figure that is little higher is made as high. Others are divided between lines of panels, in
    inches of their own coordinates. A line that is higher than ``most`` stays whole.
    """
    from matplotlib.transforms import Bbox

    width, height = figure.get_size_inches()
    if most < height <= _SHRUNK * most:
        height = most
        figure.set_size_inches(width, height)
    figure.draw_without_rendering()
    if height <= most:
        return [Bbox([[0, 0], [width, height]])]
    cuts, parts = [height, *_gaps(figure), 0.0], []
    top = height
    for cut, following in pairwise([*cuts[1:], None]):
        if following is None or top - following > most:
            parts.append(Bbox([[0, cut], [width, top]]))
            top = cut
    return parts


def _gaps(figure: matplotlib.figure.Figure) -> list[float]:
    """Return the middle of each gap between lines of panels in inches, from the top down."""
    boxes = [_inches(figure, axis) for axis in figure.axes]
    lines: list[tuple[float, float]] = []  # the bottom and top of each line of panels
    for bottom, top in sorted(boxes, key=lambda box: -box[1]):
        if lines and top > lines[-1][0]:
            lines[-1] = (min(bottom, lines[-1][0]), lines[-1][1])
        else:
            lines.append((bottom, top))
    return [(upper[0] + lower[1]) / 2 for upper, lower in pairwise(lines)]


def _inches(figure: matplotlib.figure.Figure, axis: Any) -> tuple[float, float]:
    """Return the bottom and the top of a panel with its texts."""
    box = axis.get_tightbbox()
    return box.y0 / figure.dpi, box.y1 / figure.dpi
