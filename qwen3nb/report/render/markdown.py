"""Cells as Markdown, for `qwen3nb.utils.markdown.markdown_table`."""

from __future__ import annotations

from qwen3nb.report.render.cell import Cell, Markup, marked
from qwen3nb.utils.markdown import escaped

__all__ = ["markdown_cell"]

_MARKUP = Markup("**{}**", "<u>{}</u>", "<sub>{}</sub>", "<sup>{}</sup>")


def markdown_cell(cell: Cell) -> str:
    """Return a cell on one line, escaped; the second-best value is underlined."""
    text = marked(cell, escaped(cell.text), escape=escaped, markup=_MARKUP)
    return f"{text} {escaped(cell.detail)}".strip()
