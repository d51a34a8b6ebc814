"""Cells as Markdown, for the one writer of Markdown tables in `qwen3nb.utils.markdown`."""

from __future__ import annotations

from qwen3nb.report.render.cell import Cell, Signs, marked
from qwen3nb.utils.markdown import escaped

__all__ = ["markdown_cell"]

_SIGNS = Signs("**{}**", "<u>{}</u>", "<sub>{}</sub>", "<sup>{}</sup>")


def markdown_cell(cell: Cell) -> str:
    """A cell on one line, everything escaped; the second best is underlined."""
    text = marked(cell, escaped(cell.text), escape=escaped, signs=_SIGNS)
    return f"{text} {escaped(cell.detail)}".strip()
