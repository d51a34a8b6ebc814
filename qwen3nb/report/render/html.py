"""Tables as HTML, with every value escaped; the book's script makes them sortable.

On a page of the book, the book's style sheet applies. Elsewhere, as in JupyterLab, tables and
figures bring a small one of their own (`styled`), which publication removes (`unstyled`).
"""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Sequence
from pathlib import Path

from qwen3nb.report.render.cell import Cell, Markup, marked
from qwen3nb.utils.format import minus_signs

__all__ = ["anchor", "escaped_text", "html_table", "styled", "unstyled"]

_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])")  # within CamelCase
_MARKUP = Markup(
    "<strong>{}</strong>", '<span class="q-second">{}</span>', "<sub>{}</sub>", "<sup>{}</sup>"
)
_STYLE = Path(__file__).with_name("notebook.css")
_TAG = "<style data-q>"
_WORDS = 8  # of a caption that becomes an id


def anchor(prefix: str, name: str, caption: str = "") -> str:
    """Return an id made from a name, else from the first words of a caption; may be empty.

    >>> anchor("tab", "scores", ""), anchor("tab", "", "All models, n = 3"), anchor("tab", "")
    ('tab-scores', 'tab-all-models-n-3', '')
    """
    words = " ".join(caption.lower().split()[:_WORDS])
    slug = re.sub(r"[^A-Za-z0-9._]+", "-", name or words).strip("-.")
    return f"{prefix}-{slug}" if slug else ""


def escaped_text(text: str) -> str:
    """Return text for a page: escaped, and with minus signs before negative numbers."""
    return html.escape(minus_signs(text))


def styled(page: str) -> str:
    """Return a piece of HTML that looks the same outside the book."""
    return f"{_TAG}{_style()}</style>{page}"


def unstyled(page: str) -> str:
    """Return a piece of HTML without the style sheets that `styled` added."""
    return re.sub(rf"{_TAG}.*?</style>", "", page, flags=re.DOTALL) if _TAG in page else page


@functools.cache
def _style() -> str:
    return _STYLE.read_text(encoding="utf-8")


def html_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    kind: str,
    notes: Sequence[str],
    id: str = "",
    caption: str = "",
) -> str:
    """Return an HTML table with its caption above and its notes below.

    Cells with a value carry it as a sort key.
    """
    sided = kind != "numbers"  # among words, the head of a column of numbers stands over them
    numeric = [sided and any(row[i].value is not None for row in rows) for i in range(len(columns))]
    head = "".join(map(_head, columns, numeric))
    body = "".join(map(_row, rows))
    own = f' id="{html.escape(id, quote=True)}"' if id else ""
    above = f'<p class="q-caption">{escaped_text(caption)}</p>' if caption else ""
    below = "".join(f'<p class="q-note">{escaped_text(note)}</p>' for note in notes)
    return (
        f'<div class="q-table"{own}>{above}'
        f'<div class="q-scroll"><table class="q {html.escape(kind)}">'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{below}</div>"
    )


def _head(column: str, numeric: bool) -> str:
    text, _, detail = column.partition("\n")
    if not column.strip():
        return "<td></td>"  # a header without text would be announced as one
    kept = html.escape(detail).replace(" = ", "\u00a0=\u00a0")  # "n = 200" stays on one line
    small = f'<span class="q-detail">{kept}</span>' if detail else ""
    name = _HUMP.sub("<wbr>", html.escape(text))  # where a long name may break
    side = ' class="q-right"' if numeric else ""
    return f'<th scope="col"{side}>{name}{small}</th>'


def _row(row: Sequence[Cell]) -> str:
    own = f' id="{html.escape(row[0].id, quote=True)}"' if row and row[0].id else ""
    cells = "".join(_cell(cell, first=i == 0) for i, cell in enumerate(row))
    return f"<tr{own}>{cells}</tr>"


def _cell(cell: Cell, *, first: bool) -> str:
    text = _code(cell.text) if cell.code else escaped_text(cell.text)
    if cell.link:
        text = f'<a href="{html.escape(cell.link, quote=True)}">{text}</a>'
    text = marked(cell, text, escape=escaped_text, markup=_MARKUP)
    if cell.detail:
        text += f'<span class="q-detail">{escaped_text(cell.detail)}</span>'
    key = "" if cell.value is None else f' data-sort="{cell.value!r}"'
    return f'<th scope="row"{key}>{text}</th>' if first else f"<td{key}>{text}</td>"


def _code(text: str) -> str:
    """Return a command that breaks between its words, not at their hyphens."""
    words = " ".join(f"<span>{html.escape(word)}</span>" for word in text.split(" "))
    return f'<code class="q-command">{words}</code>' if text else ""
