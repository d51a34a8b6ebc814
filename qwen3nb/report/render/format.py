"""Cells for numbers, and short task names."""

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
