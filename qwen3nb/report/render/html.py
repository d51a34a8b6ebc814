"""Tables as HTML, with every value escaped; the book's script makes them sortable."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from qwen3nb.report.render.cell import Cell, Markup, marked

__all__ = ["html_table"]

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])")  # within CamelCase
_MARKUP = Markup(
    "<strong>{}</strong>", '<span class="q-second">{}</span>', "<sub>{}</sub>", "<sup>{}</sup>"
)


def html_table(
    columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, kind: str, notes: Sequence[str]
) -> str:
    """Return an HTML table with its notes below; cells with a value carry it as a sort key."""
    head = "".join(map(_head, columns))
    body = "".join(
        "<tr>" + "".join(_cell(cell, first=i == 0) for i, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    below = "".join(f'<p class="q-note">{html.escape(note)}</p>' for note in notes)
    return (
        f'<div class="q-table"><div class="q-scroll"><table class="q {html.escape(kind)}">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{below}</div>"
    )


def _head(column: str) -> str:
    text, _, detail = column.partition("\n")
    kept = html.escape(detail).replace(" = ", "\u00a0=\u00a0")  # "n = 200" stays on one line
    small = f'<span class="q-detail">{kept}</span>' if detail else ""
    name = _HUMP.sub("<wbr>", html.escape(text))  # where a long name may break
    return f'<th scope="col">{name}{small}</th>'


def _cell(cell: Cell, *, first: bool) -> str:
    text = html.escape(cell.text)
    if cell.link:
        text = f'<a href="{html.escape(cell.link, quote=True)}">{text}</a>'
    text = marked(cell, text, escape=html.escape, markup=_MARKUP)
    if cell.detail:
        text += f'<span class="q-detail">{html.escape(cell.detail)}</span>'
    key = "" if cell.value is None else f' data-sort="{cell.value!r}"'
    return f'<th scope="row"{key}>{text}</th>' if first else f"<td{key}>{text}</td>"
