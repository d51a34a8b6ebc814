"""Tables: one kind of table, many outputs: HTML, Markdown, LaTeX, CSV.

A `Table` is rows of `Cell`. Whatever it holds is escaped: labels, task names and
reasons come from folders and configuration files of other people.
"""

from __future__ import annotations

import csv
import html
import io
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote

from qwen3nb.report.render.cell import Cell, Signs, markdown_text, marked

__all__ = ["TABLE_FORMATS", "Cell", "Signs", "Table", "markdown_text", "marked", "with_ranks"]

TABLE_FORMATS = {"latex": ".tex", "csv": ".csv", "markdown": ".md"}
# What a spreadsheet would take for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


_HTML = Signs(
    "<strong>{}</strong>", '<span class="q-second">{}</span>', "<sub>{}</sub>", "<sup>{}</sup>"
)
_MARKDOWN = Signs("**{}**", "<u>{}</u>", "<sub>{}</sub>", "<sup>{}</sup>")


@dataclass(frozen=True)
class Table:
    """A table with a head row.

    Attributes:
        columns: names in the head; what follows a line break is in smaller type.
        rows: cells, as many per row as there are columns.
        note: what to know when reading it, below the table.
        kind: ``numbers``, aligned on the right; ``words``, on the left; or ``facts``,
            names and values of which some are long and without a space.
        name: of its files; with one, a page offers them to be saved.
        caption: above the table, in LaTeX only.
        legend: what each mark in it means.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    kind: str = "numbers"
    name: str = ""
    caption: str = ""
    legend: tuple[tuple[str, str], ...] = ()

    def html(self) -> str:
        """As an HTML table, everything escaped; a script of the book makes it sortable."""
        head = "".join(map(_html_head, self.columns))
        body = "".join(
            "<tr>" + "".join(_html_cell(cell, first=i == 0) for i, cell in enumerate(row)) + "</tr>"
            for row in self.rows
        )
        notes = "".join(f'<p class="q-note">{html.escape(note)}</p>' for note in self.notes())
        return (
            f'<div class="q-table"><div class="q-scroll"><table class="q {html.escape(self.kind)}">'
            f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{notes}</div>"
        )

    def markdown(self) -> str:
        """As a Markdown table, everything escaped; the second best is underlined."""
        lines = [
            "| " + " | ".join(map(markdown_text, self.columns)) + " |",
            "|" + "---|" * len(self.columns),
        ]
        lines += ["| " + " | ".join(map(_markdown_cell, row)) + " |" for row in self.rows]
        return "\n".join(lines) + "".join(f"\n\n{markdown_text(note)}" for note in self.notes())

    def latex(self) -> str:
        """As a LaTeX table for the package booktabs, everything escaped."""
        from qwen3nb.report.render.latex import latex_table

        return latex_table(self)

    def csv(self) -> str:
        """As CSV: numbers in full, intervals in columns of their own, reasons in words."""
        spread = [any(row[i].interval for row in self.rows) for i in range(len(self.columns))]
        heads = []
        for column, wide in zip(self.columns, spread, strict=True):
            name = " ".join(column.split())
            heads += [name, f"{name}, low", f"{name}, high"] if wide else [name]
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        writer.writerow(map(_inert, heads))
        for row in self.rows:
            cells = zip(row, spread, strict=True)
            writer.writerow([part for cell, wide in cells for part in _csv_cell(cell, wide=wide)])
        return buffer.getvalue()

    def as_text(self, format: str) -> str:
        """In one of `TABLE_FORMATS`.

        Raises:
            ValueError: another format.
        """
        from qwen3nb.utils.choices import one_of

        chosen = one_of("format", format, TABLE_FORMATS)
        return {"latex": self.latex, "csv": self.csv, "markdown": self.markdown}[chosen]()

    def notes(self) -> list[str]:
        """The note, and what each mark means."""
        return [note for note in (self.note, *(f"{m} {said}" for m, said in self.legend)) if note]

    def _repr_html_(self) -> str:
        return self.html() + (self._files() if self.name and self.rows else "")

    def _files(self) -> str:
        """Links that save the table, held in the page itself."""
        links = [
            f'<a download="{html.escape(self.name, quote=True)}{ending}" '
            f'href="data:text/plain;charset=utf-8,{quote(self.as_text(kind), safe="")}">{shown}</a>'
            for (kind, ending), shown in zip(
                TABLE_FORMATS.items(), ("LaTeX", "CSV", "Markdown"), strict=True
            )
        ]
        return f'<p class="q-files">Save as {" · ".join(links)}</p>'


def with_ranks(
    rows: Sequence[Sequence[Cell]], *, lower: Collection[int] = (), but: Collection[int] = (0,)
) -> tuple[tuple[Cell, ...], ...]:
    """The rows with the best of each column strong and the second best marked; ties share.

    Args:
        rows: cells; those without a value are not ranked.
        lower: numbers of the columns in which less is better.
        but: numbers of the columns that are not ranked.
    """
    places: dict[int, list[float]] = {}
    for index in range(len(rows[0]) if rows else 0):
        values = {row[index].value for row in rows} - {None}
        ordered = sorted((v for v in values if v is not None), reverse=index not in lower)
        places[index] = [] if index in but else ordered[:2]
    return tuple(
        tuple(
            replace(
                cell,
                strong=cell.value is not None and cell.value in places[i][:1],
                second=cell.value is not None and cell.value in places[i][1:],
            )
            for i, cell in enumerate(row)
        )
        for row in rows
    )


def _html_head(name: str) -> str:
    text, _, detail = name.partition("\n")
    kept = html.escape(detail).replace(" = ", "\u00a0=\u00a0")  # "n = 200" stays on one line
    small = f'<span class="q-detail">{kept}</span>' if detail else ""
    return f'<th scope="col">{html.escape(text)}{small}</th>'


def _html_cell(cell: Cell, *, first: bool) -> str:
    text = html.escape(cell.text)
    if cell.link:
        text = f'<a href="{html.escape(cell.link, quote=True)}">{text}</a>'
    text = marked(cell, text, escape=html.escape, signs=_HTML)
    if cell.detail:
        text += f'<span class="q-detail">{html.escape(cell.detail)}</span>'
    key = "" if cell.value is None else f' data-sort="{cell.value!r}"'
    return f'<th scope="row"{key}>{text}</th>' if first else f"<td{key}>{text}</td>"


def _markdown_cell(cell: Cell) -> str:
    text = marked(cell, markdown_text(cell.text), escape=markdown_text, signs=_MARKDOWN)
    return f"{text} {markdown_text(cell.detail)}".strip()


def _csv_cell(cell: Cell, *, wide: bool) -> list[str]:
    """The value in full, or what the cell says in its place, and the interval."""
    words = f"{cell.text} {cell.detail}".strip()
    said = _inert(words) if cell.value is None else repr(cell.value)
    ends = ["", ""] if cell.interval is None else [repr(end) for end in cell.interval]
    return [said, *ends] if wide else [said]


def _inert(text: str) -> str:
    """Text that no spreadsheet takes for a formula; numbers stay numbers."""
    line = " ".join(text.split())
    if line.startswith(_FORMULA) and not re.fullmatch(r"[+-]?[\d.,]+(e[+-]?\d+)?", line):
        return f"'{line}"
    return line
