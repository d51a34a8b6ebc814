"""Cells for numbers, short task names, and texts on one line."""

from __future__ import annotations

import re

from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.report.render.cell import Cell
from qwen3nb.utils.format import interval_text, number_text


def number(value: Aggregate, *, strong: bool = False, link: str = "") -> Cell:
    """Return a cell with a value and its interval, or why the value is undefined."""
    if value.value is None:
        return Cell("undefined", value.undefined, link=link)
    ends = None if value.low is None or value.high is None else (value.low, value.high)
    text, detail = number_text(value.value), interval_text(ends, sign=False, absent="")
    return Cell(text, detail, link=link, strong=strong, value=value.value, interval=ends)


def short_task(name: str) -> str:
    """Shorten a task's name for a narrow column: ``PyDocsSampleRetrieval`` to ``Retrieval``."""
    return re.sub(r"^PyDocs(Sample)?(?=.)", "", name)


def cut(text: str, longest: int) -> str:
    """Return a text on one line, cut with an ellipsis if it is longer.

    >>> cut("Sort a list  in reverse order.", 12)
    'Sort a list…'
    """
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def not_shown(count: int) -> str:
    """Return the sentence that says how many models a figure or table leaves out, if any.

    >>> not_shown(20)
    ' Only the best models are shown, 20 others are not.'
    """
    others = "another is" if count == 1 else f"{count} others are"
    return f" Only the best models are shown, {others} not." if count > 0 else ""
