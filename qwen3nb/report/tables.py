"""Tables: one kind of table, rendered for the book and for Markdown.

A `Table` is rows of `Cell`. Whatever it holds is escaped: labels, task names and
reasons come from folders and configuration files of other people.
"""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

__all__ = ["Cell", "Table", "markdown_text"]


@dataclass(frozen=True)
class Cell:
    """One cell.

    Attributes:
        text: what it says.
        detail: in smaller type below, such as an interval.
        link: where it leads, relative to the page it is on.
        strong: whether it is the best of its column.
    """

    text: str
    detail: str = ""
    link: str = ""
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table with a head row.

    Attributes:
        columns: names in the head; what follows a line break is in smaller type.
        rows: cells, as many per row as there are columns.
        note: what to know when reading it, below the table.
        kind: ``numbers``, aligned on the right; ``words``, on the left; or ``facts``,
            names and values of which some are long and without a space.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    kind: str = "numbers"

    def html(self) -> str:
        """As an HTML table, everything escaped."""
        head = "".join(map(_html_head, self.columns))
        body = "".join(
            "<tr>" + "".join(_html_cell(cell, first=i == 0) for i, cell in enumerate(row)) + "</tr>"
            for row in self.rows
        )
        note = f'<p class="q-note">{html.escape(self.note)}</p>' if self.note else ""
        return (
            f'<div class="q-table"><table class="q {self.kind}"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table>{note}</div>"
        )

    def markdown(self) -> str:
        """As a Markdown table, everything escaped."""
        lines = [
            "| " + " | ".join(map(markdown_text, self.columns)) + " |",
            "|" + "---|" * len(self.columns),
        ]
        for row in self.rows:
            cells = [markdown_text(f"{cell.text} {cell.detail}".strip()) for cell in row]
            marked = [
                f"**{text}**" if cell.strong else text
                for cell, text in zip(row, cells, strict=True)
            ]
            lines.append("| " + " | ".join(marked) + " |")
        return "\n".join(lines) + (f"\n\n{markdown_text(self.note)}" if self.note else "")

    def _repr_html_(self) -> str:
        return self.html()


def _html_head(name: str) -> str:
    text, _, detail = name.partition("\n")
    small = f'<span class="q-detail">{html.escape(detail)}</span>' if detail else ""
    return f'<th scope="col">{html.escape(text)}{small}</th>'


def _html_cell(cell: Cell, *, first: bool) -> str:
    text = html.escape(cell.text)
    if cell.link:
        text = f'<a href="{html.escape(cell.link, quote=True)}">{text}</a>'
    if cell.strong:
        text = f"<strong>{text}</strong>"
    if cell.detail:
        text += f'<span class="q-detail">{html.escape(cell.detail)}</span>'
    return f'<th scope="row">{text}</th>' if first else f"<td>{text}</td>"


def markdown_text(text: str) -> str:
    """``text`` with everything escaped that means something in Markdown or HTML."""
    escaped = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`*_{}\[\]()#+!|$~])", r"\\\1", escaped)
