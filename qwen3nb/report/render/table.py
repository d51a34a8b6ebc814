"""Tables of cells, and their output as HTML, Markdown, LaTeX, CSV and data frames.

Every value is escaped on output: labels, task names and reasons come from other people's
folders and configuration files. Each format has its own module beside this one.
"""

from __future__ import annotations

import html
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from qwen3nb.report.render.cell import Cell, Markup, marked
from qwen3nb.report.render.html import anchor, html_table, styled
from qwen3nb.report.render.latex import latex_table
from qwen3nb.report.render.spreadsheet import csv_table, plain_columns
from qwen3nb.utils.choices import one_of
from qwen3nb.utils.markdown import escaped, markdown_table

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["TABLE_FORMATS", "Table", "transposed", "with_ranks"]

TABLE_FORMATS = {"latex": ".tex", "csv": ".csv", "markdown": ".md"}
_FORMAT_NAMES = {"latex": "LaTeX", "csv": "CSV", "markdown": "Markdown"}
_MARKDOWN = Markup("**{}**", "<u>{}</u>", "<sub>{}</sub>", "<sup>{}</sup>")


@dataclass(frozen=True, repr=False)
class Table:
    """A table with a header row; ``len`` is the number of rows below it.

    Attributes:
        columns: names in the header; text after a line break is in smaller type.
        rows: cells, one per column.
        note: shown below the table.
        kind: ``numbers``, aligned on the right; ``words``, on the left; or ``facts``,
            names and values of which some are long and without a space.
        name: its id on a page, ``tab-<name>``, and the name of its files; if set, a page offers
            links to save them.
        caption: one sentence above the table; tables that have one are numbered on a page of the
            book and in a paper. Without a name, its first words are the id.
        legend: each mark and its meaning.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""
    kind: str = "numbers"
    name: str = ""
    caption: str = ""
    legend: tuple[tuple[str, str], ...] = ()

    def notes(self) -> list[str]:
        """Return the note and the legend, one string per entry."""
        return [note for note in (self.note, *(f"{m} {text}" for m, text in self.legend)) if note]

    def to_frame(self, *, intervals: bool = False) -> DataFrame:
        """Return a pandas DataFrame: unrounded numbers, text where a cell has no number.

        Args:
            intervals: whether two columns with the ends follow a column that has intervals.
        """
        from pandas import DataFrame

        names, values = plain_columns(self.columns, self.rows, intervals=intervals)
        return DataFrame(values, columns=names)

    def to_html(self) -> str:
        """Return an HTML table, escaped; the book's script makes it sortable."""
        return html_table(
            self.columns,
            self.rows,
            kind=self.kind,
            notes=self.notes(),
            id=anchor("tab", self.name, self.caption),
            caption=self.caption,
        )

    def to_markdown(self) -> str:
        """Return a Markdown table, escaped; the second best of a column is underlined."""
        table = markdown_table(self.columns, self.rows, cell=_markdown_cell)
        return "\n\n".join([table, *map(escaped, self.notes())])

    def to_latex(self) -> str:
        """Return a LaTeX table for the package booktabs, escaped."""
        return latex_table(
            self.columns,
            self.rows,
            kind=self.kind,
            name=self.name,
            caption=self.caption,
            notes=self.notes(),
        )

    def to_csv(self) -> str:
        """Return CSV: unrounded numbers, intervals in separate columns, reasons as text."""
        return csv_table(self.columns, self.rows)

    def to_text(self, format: str) -> str:
        """Return the table in one of `TABLE_FORMATS`.

        Raises:
            ValueError: an unknown format.
        """
        kind = one_of("format", format, TABLE_FORMATS)
        return {"latex": self.to_latex, "csv": self.to_csv, "markdown": self.to_markdown}[kind]()

    def __len__(self) -> int:
        return len(self.rows)

    def __bool__(self) -> bool:
        return True  # a table without rows still says why in its note

    def __repr__(self) -> str:
        name = f" {self.name}" if self.name else ""
        size = f"{len(self)} rows × {len(self.columns)} columns"
        return f"<Table{name}: {size}>\n{self.to_frame()!r}"

    def _repr_html_(self) -> str:
        return styled(self.to_html() + (self._links() if self.name and self.rows else ""))

    def _links(self) -> str:
        """Return links that save the table; the files are embedded in the page."""
        name = html.escape(self.name, quote=True)
        links = [
            f'<a download="{name}{ending}" href="data:text/plain;charset=utf-8,'
            f'{quote(self.to_text(kind), safe="")}">{_FORMAT_NAMES[kind]}</a>'
            for kind, ending in TABLE_FORMATS.items()
        ]
        return f'<p class="q-files">Save as {" · ".join(links)}</p>'


def _markdown_cell(cell: Cell) -> str:
    """Return a cell on one line, escaped; the second-best value is underlined."""
    text = marked(cell, escaped(cell.text), escape=escaped, markup=_MARKDOWN)
    return f"{text} {escaped(cell.detail)}".strip()


def transposed(table: Table, *, first: str) -> Table:
    """Return the table with a column per row, for a paper, where long tables fit and wide do not.

    Args:
        table: a table with a name per row.
        first: name of the first column.
    """
    heads = [column.partition("\n") for column in table.columns[1:]]
    rows = tuple(
        (Cell(name, detail), *(row[index] for row in table.rows))
        for index, (name, _, detail) in enumerate(heads, start=1)
    )
    return replace(table, columns=(first, *(row[0].text for row in table.rows)), rows=rows)


def with_ranks(
    rows: Sequence[Sequence[Cell]], *, lower: Collection[int] = (), but: Collection[int] = (0,)
) -> tuple[tuple[Cell, ...], ...]:
    """Mark the best and the second-best value of each column; ties share the mark.

    Args:
        rows: cells; those without a value are not ranked.
        lower: indices of the columns in which lower is better.
        but: indices of the columns that are not ranked.
    """
    best: dict[int, list[float]] = {}
    for index in range(len(rows[0]) if rows else 0):
        values = {row[index].value for row in rows} - {None}
        ordered = sorted((v for v in values if v is not None), reverse=index not in lower)
        best[index] = [] if index in but else ordered[:2]
    return tuple(
        tuple(
            replace(
                cell,
                strong=cell.value is not None and cell.value in best[i][:1],
                second=cell.value is not None and cell.value in best[i][1:],
            )
            for i, cell in enumerate(row)
        )
        for row in rows
    )
