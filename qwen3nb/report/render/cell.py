"""A cell of a table: the text shown, the value it is sorted by, how it is marked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: shown; for a missing value, the reason, such as ``not run``.
        detail: in smaller type below, such as an interval or a reason.
        link: target, relative to the page.
        strong: whether it is the best of its column.
        second: whether it is the second best.
        value: the number behind the text, not rounded: what sorting and CSV use.
        interval: its ends, not rounded.
        std: standard deviation, formatted; shown as a subscript.
        mark: a sign that the table's legend explains.
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


class Signs(NamedTuple):
    """How a format sets off the best and the second best, subscripts and superscripts."""

    strong: str
    second: str
    below: str
    above: str


def marked(cell: Cell, text: str, *, escape: Callable[[str], str], signs: Signs) -> str:
    """``text``, escaped already, as the best or second best, with its spread and its mark."""
    if cell.strong and text:
        text = signs.strong.format(text)
    if cell.second:
        text = signs.second.format(text)
    if cell.std:
        text += signs.below.format(escape(cell.std))
    if cell.mark:
        text += signs.above.format(escape(cell.mark))
    return text
