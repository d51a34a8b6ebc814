"""Table cells: the text shown, the value sorted by, and the highlighting."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Cell:
    """One cell of a table.

    Attributes:
        text: what is shown; for a missing value, the reason, such as ``not run``.
        detail: shown below in smaller type, such as an interval or a reason.
        link: target, relative to the page.
        strong: whether it is the best value of its column.
        second: whether it is the second-best value.
        value: the unrounded number behind the text, for sorting and CSV.
        interval: its unrounded ends.
        std: standard deviation, formatted; shown as a subscript.
        mark: a symbol explained in the table's legend.
        id: of the first cell of a row, the anchor of the row on a page.
        code: whether it is a command to copy, which is shown as it is.
    """

    text: str
    detail: str = ""
    link: str = ""
    strong: bool = False
    second: bool = False
    value: float | None = None
    interval: tuple[float, float] | None = None
    std: str = ""
    mark: str = ""
    id: str = ""
    code: bool = False


class Markup(NamedTuple):
    """How a format renders the best and second-best values, subscripts and superscripts."""

    strong: str
    second: str
    below: str
    above: str


def marked(cell: Cell, text: str, *, escape: Callable[[str], str], markup: Markup) -> str:
    """Add highlighting, spread and mark to ``text``, which is already escaped."""
    if cell.strong and text:
        text = markup.strong.format(text)
    if cell.second:
        text = markup.second.format(text)
    if cell.std:
        text += markup.below.format(escape(cell.std))
    if cell.mark:
        text += markup.above.format(escape(cell.mark))
    return text
