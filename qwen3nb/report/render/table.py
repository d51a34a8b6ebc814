"""Tables as HTML, Markdown, LaTeX, CSV and data frames; sections; conclusions.

Every value is escaped on output: labels, task names and reasons come from foreign folders and
configuration files.
"""

import csv
import html
import io
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self, TypedDict, Unpack
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from qwen3nb.metrics.aggregate import Aggregate
from qwen3nb.metrics.intervals import Interval
from qwen3nb.records.data_used import NO_SCORES, DataUsed
from qwen3nb.report.render.html import anchor, data_attribute, escaped_text, styled, unstyled
from qwen3nb.report.render.latex import latex_label, latex_text
from qwen3nb.utils.choices import check_choice
from qwen3nb.utils.format import (
    ends_text,
    escaped,
    inert_text,
    interval_text,
    markdown_table,
    number_text,
    p_value_text,
    signed_format,
)
from qwen3nb.utils.imports import DataFrame


def short_task(name: str) -> str:
    """Shorten a task's name for a narrow column: ``PyDocsSampleRetrieval`` to ``Retrieval``."""
    return re.sub(r"^PyDocs(Sample)?(?=.)", "", name)


def cut(text: str, longest: int) -> str:
    """Return a text on one line, shortened with an ellipsis if it is too long.

    >>> cut("Sort a list  in reverse order.", 12)
    'Sort a list…'
    """
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def effect_text(
    difference: float, interval: Interval | None, p_value: float | None = None, *, absent: str = ""
) -> str:
    """Return a difference with its interval, or what is ``absent``, and its p-value if given.

    >>> effect_text(0.05, (0.04, 0.06), 0.0004)
    '+0.050 [+0.040, +0.060], p < 0.001'
    """
    change = number_text(difference, sign=True)
    text = f"{change} {interval_text(interval, absent=absent)}".strip()
    return text if p_value is None else f"{text}, p {p_value_text(p_value, relation=True)}"


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 seed``, ``2 seeds``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def not_shown(count: int) -> str:
    """Return a sentence on how many models a figure or table leaves out, or an empty string.

    >>> not_shown(20)
    ' Only the best models are shown; not shown: 20.'
    """
    return f" Only the best models are shown; not shown: {count}." if count > 0 else ""


@dataclass(frozen=True)
class Cell:
    """One cell of a table."""

    text: str  # the text shown; for a missing value, the reason, such as ``not run``
    detail: str = ""  # shown below in smaller type, such as an interval or a reason
    link: str = ""  # target, relative to the page
    strong: bool = False  # whether it is the best value of its column
    second: bool = False  # whether it is the second-best value
    value: float | None = None  # the unrounded number behind the text, for sorting and CSV
    interval: tuple[float, float] | None = None  # its unrounded ends
    std: str = ""  # standard deviation, formatted; shown as a subscript
    mark: str = ""  # a symbol explained in the table's legend
    id: str = ""  # anchor of the row on a page, for its first cell
    code: bool = False  # whether it is a command to copy, shown verbatim
    is_published: bool = False  # whether it was not measured here: grey, and its words say so


class CellFields(TypedDict, total=False):
    """The fields of a cell besides its text, value and interval."""

    detail: str
    link: str
    strong: bool
    second: bool
    std: str
    mark: str
    id: str
    code: bool


class TableFields(TypedDict, total=False):
    """The fields of a table besides its rows, heads and note."""

    kind: str
    name: str
    caption: str
    legend: tuple[tuple[str, str], ...]
    data: DataUsed
    method: str


class Head(str):
    """The head of a column of scores, with the number of queries or pairs behind them."""

    n: int

    def __new__(cls, text: str, n: int) -> Self:
        """Return the text as a head."""
        head = super().__new__(cls, text)
        head.n = n
        return head


def as_cell(value: Any) -> Cell:
    """Return the cell of a plain value.

    Text and integers are shown as they are, a float with three decimals, an aggregate with its
    interval, ``(value, detail)``, True as a strong "yes", False as "no", None as a dash.
    """
    if isinstance(value, Cell):
        return value
    if isinstance(value, tuple):
        content, detail = value
        return replace(as_cell(content), detail=detail)
    if isinstance(value, bool):
        return Cell("yes" if value else "no", strong=value)
    if isinstance(value, float | Aggregate):
        return number(value)
    if value is None:
        return Cell("–")
    return Cell(str(value))


def score_text(score: Aggregate, spec: str = ".3f") -> str:
    """Return a score with its interval: ``0.529 [0.491, 0.567]``; or why it is undefined."""
    cell = number(score, spec)
    return f"{cell.text} {cell.detail}".strip()


def number(
    value: Aggregate | float | None,
    spec: str = ".3f",
    *,
    interval: Interval | None = None,
    absent: str = "–",
    **fields: Unpack[CellFields],
) -> Cell:
    """Return a cell with a number, which is also its value for sorting and CSV.

    An aggregate has its interval below it, or the reason it is undefined; None is ``absent``.
    ``spec`` is the format of the number and of the ends of its interval; ``fields`` are others of
    the cell, such as ``detail``, ``link`` or ``strong``.

    >>> number(0.25, interval=(0.2, 0.3)).detail, number(None, absent="not run").text
    ('[0.200, 0.300]', 'not run')
    """
    if isinstance(value, Aggregate):
        return _aggregate_cell(value, spec, fields)
    if value is None:
        return Cell(absent, **fields)
    if interval is not None:
        fields["detail"] = _interval_text(interval, spec)
    positive_zero = value + 0  # -0.0 would be shown with a minus
    text = format(positive_zero, _with_enough_digits(spec, value))
    return Cell(text, value=value, interval=interval, **fields)


def _aggregate_cell(score: Aggregate, spec: str, fields: CellFields) -> Cell:
    if score.value is None:
        reason: CellFields = {**fields, "detail": score.undefined, "strong": False}
        return Cell("undefined", **reason)
    interval = None
    if score.low is not None and score.high is not None:
        interval = (score.low, score.high)
    return number(score.value, spec, interval=interval, **fields)


def _interval_text(interval: Interval, spec: str) -> str:
    if _DIFFERENCE_SPEC.fullmatch(spec):
        return ends_text(interval, spec)
    low, high = interval
    return f"[{format(low, spec)}, {format(high, spec)}]"


def _with_enough_digits(spec: str, value: float) -> str:
    """Return the format; that of a difference with more digits where it would be rounded to 0."""
    difference_spec = _DIFFERENCE_SPEC.fullmatch(spec)
    if difference_spec is None:
        return spec
    digits = int(difference_spec[1])
    return signed_format(digits, [value])


_DIFFERENCE_SPEC = re.compile(r"\+\.(\d+)f")  # such as "+.3f"
TABLE_FORMATS = {"latex": ".tex", "csv": ".csv", "markdown": ".md"}
_FORMAT_NAMES = {"latex": "LaTeX", "csv": "CSV", "markdown": "Markdown"}
_CAMEL_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])")  # "SciFact": between "i" and "F"
_COUNT = re.compile(r"-?\d{1,3}(,\d{3})+|-?\d{1,15}")  # "1,234" or "1234"
_NO_NUMBERS = {"", "–", "not run", "no vectors"}  # shown in place of a number
_NARROW = 4  # table columns that fit one column of a paper; wider tables span both
_MANY_COLUMNS = 7  # with more columns, the type is smaller on a page
_SMALLER = 6  # table columns that fit the page in the font of captions
_FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{"


class _Markup(NamedTuple):
    """Markup of a format: escaping, best and second best, subscripts, superscripts."""

    escape: Callable[[str], str]
    best: str
    second_best: str
    subscript: str
    superscript: str

    def highlighted(self, cell: Cell, escaped_text: str = "") -> str:
        """Return a cell's text, by default its own, with its highlighting and marks."""
        text = escaped_text or self.escape(cell.text)
        # Around no text, markup would be shown as it is: "****".
        if cell.strong and text:
            text = self.best.format(text)
        if cell.second:
            text = self.second_best.format(text)
        if cell.std:
            text += self.subscript.format(self.escape(cell.std))
        if cell.mark:
            text += self.superscript.format(self.escape(cell.mark))
        return text


_MARKDOWN = _Markup(escaped, "**{}**", "<u>{}</u>", "<sub>{}</sub>", "<sup>{}</sup>")
_SECOND = '<span class="q-second">{}</span>'
_HTML = _Markup(escaped_text, "<strong>{}</strong>", _SECOND, "<sub>{}</sub>", "<sup>{}</sup>")
_LATEX = _Markup(
    latex_text,
    r"\textbf{{{}}}",
    r"\underline{{{}}}",
    r"\textsubscript{{{}}}",
    r"\textsuperscript{{{}}}",
)


@dataclass(frozen=True, repr=False)
class Table:
    """A table with a header row; ``len`` is the number of rows below it.

    A named table has links that save it as a file; one with a caption is numbered in the book and
    in a paper. Without a name, the first words of the caption are its id.
    """

    columns: tuple[str, ...]  # names in the header; text after a line break is in smaller type
    rows: tuple[tuple[Cell, ...], ...]  # cells, one per column
    note: str = ""  # shown below the table
    kind: str = "numbers"  # right-aligned; or left-aligned "words", or "facts", possibly long
    name: str = ""  # its id on a page, ``tab-<name>``, and the name of its files
    caption: str = ""  # one sentence above the table
    legend: tuple[tuple[str, str], ...] = ()  # each mark and its meaning
    data: DataUsed = NO_SCORES  # of its scores; a line below names substitutes for MTEB's
    method: str = ""  # how it was computed; folded on a page, below the note elsewhere

    @classmethod
    def of(
        cls,
        rows: Iterable[Mapping[Any, Any] | Iterable[Any]],
        columns: Iterable[str] = (),
        *,
        note: str = "",
        empty: str = "",
        best: bool = False,
        **fields: Unpack[TableFields],
    ) -> Self:
        """Return a table of plain values (see `as_cell`).

        A row has the value of each column by the column's name, all rows the same, or, with
        ``columns``, the values in their order. Without rows, ``empty`` is shown instead of the
        note. With ``best``, the best and second-best values of each column except the first are
        marked. ``fields``: `kind`, `name`, `caption`, `legend`, `data` and `method`.
        """
        all_rows = list(rows)
        heads = tuple(columns)
        # Rows that are mappings have the heads as keys.
        if all_rows and isinstance(all_rows[0], Mapping) and not heads:
            heads = tuple(all_rows[0])
        cells = tuple(_row_of_cells(row, heads) for row in all_rows)
        if not cells:
            return cls(heads, (), empty or note, **fields)
        if best:
            cells = with_ranks(cells)
        return cls(heads, cells, note, **fields)

    def notes(self) -> list[str]:
        """Return the line on substitute data, the note and the legend, one string per entry."""
        legend = [f"{mark} {text}" for mark, text in self.legend]
        return [note for note in (self.data.text, self.note, *legend) if note]

    def _notes_and_method(self) -> list[str]:
        """Return all that stands below the table where nothing can be folded."""
        if self.method and self.rows:
            return [*self.notes(), self.method]
        return self.notes()

    def to_frame(self, *, intervals: bool = False) -> DataFrame:
        """Return a pandas DataFrame of unrounded numbers (NaN if missing) or texts.

        A column is named by the first line of its head, or by the whole head if that is ambiguous.
        With ``intervals``, columns for the ends of intervals and n are added: ``SciFact``,
        ``SciFact, low``, ``SciFact, high``, ``SciFact, n``.
        """
        import pandas as pd

        columns: dict[str, Any] = {}
        for index, head in enumerate(self.columns):
            name = self._frame_name(head)
            cells = [row[index] for row in self.rows]
            # The first column names the rows: a model called 42 stays text.
            columns[name] = _values(cells) if index else _names_or_values(cells)
            if not intervals:
                continue
            for end_name, ends in _interval_ends(cells).items():
                columns[f"{name}, {end_name}"] = np.array(ends, float)
            if isinstance(head, Head):
                columns[f"{name}, n"] = head.n
        return pd.DataFrame(columns, index=range(len(self)))

    def _frame_name(self, head: str) -> str:
        """Return the first line of a head, or the whole head if another has the same first line."""
        first_lines = [_first_line(column) for column in self.columns]
        name = _first_line(head)
        if first_lines.count(name) > 1:
            return " ".join(head.split())
        return name

    def to_html(self) -> str:
        """Return an HTML table, escaped; the book's script makes it sortable.

        Cells with a value have it as sort key.
        """
        name = anchor("tab", self.name, self.caption)
        attributes = f' id="{html.escape(name, quote=True)}"' if name else ""
        attributes += data_attribute(self.data)
        parts = []
        if self.caption:
            parts.append(f'<p class="q-caption">{escaped_text(self.caption)}</p>')
        if self.columns:
            parts.append(self._html_grid())
        for note in self.notes():
            parts.append(f'<p class="q-note">{escaped_text(note)}</p>')
        parts.append(self._html_method())
        return f'<div class="q-table"{attributes}>{"".join(parts)}</div>'

    def _html_method(self) -> str:
        """Return how the table was computed, folded; nothing for a table without rows."""
        if not (self.method and self.rows):
            return ""
        return (
            '<details class="q-method"><summary>How this was computed</summary>'
            f"<p>{escaped_text(self.method)}</p></details>"
        )

    def _html_grid(self) -> str:
        kind = self.kind
        if len(self.columns) > _MANY_COLUMNS:
            kind += " many"
        heads = "".join(map(self._html_head, range(len(self.columns))))
        body = "".join(map(_html_row, self.rows))
        return (
            f'<div class="q-scroll"><table class="q {html.escape(kind)}"><thead><tr>{heads}</tr>'
            f"</thead><tbody>{body}</tbody></table></div>"
        )

    def _html_head(self, index: int) -> str:
        head = self.columns[index]
        if not head.strip():
            return "<td></td>"  # screen readers would announce an empty header
        name, _, detail = head.partition("\n")
        # A long name may be broken at a hump, where the page is narrow.
        text = _CAMEL_HUMP.sub("<wbr>", html.escape(name))
        if detail:
            # Spaces that do not break keep "n = 200" on one line.
            unbroken_detail = escaped_text(detail).replace(" = ", "\u00a0=\u00a0")
            text += f'<span class="q-detail">{unbroken_detail}</span>'
        if self.kind != "numbers" and self._has_numbers(index):
            return f'<th scope="col" class="q-right">{text}</th>'
        return f'<th scope="col">{text}</th>'

    def _has_numbers(self, index: int) -> bool:
        return any(row[index].value is not None for row in self.rows)

    def to_markdown(self) -> str:
        """Return a Markdown table, escaped; the second best of a column is underlined."""
        parts = []
        if self.columns:
            parts.append(markdown_table(self.columns, self.rows, cell=_markdown_cell))
        for note in self._notes_and_method():
            parts.append(escaped(note))
        return "\n\n".join(parts)

    def to_latex(self) -> str:
        r"""Return a ``table``, escaped, or a ``table*`` if it is wide, scaled down to its column.

        It only needs ``\usepackage{booktabs,graphicx}``.
        """
        environment, font = "table", r"\small"
        if len(self.columns) > _NARROW:
            environment = "table*"
        if len(self.columns) > _SMALLER:
            font = r"\footnotesize"
        lines = [rf"\begin{{{environment}}}", r"\centering", font, r"\setlength{\tabcolsep}{3pt}"]
        if self.caption:
            lines.append(rf"\caption{{{latex_text(self.caption)}}}\par\medskip")
        if self.name:
            lines.append(latex_label("tab", self.name))
        lines += self._latex_grid()
        for note in self._notes_and_method():
            lines.append(rf"\par\medskip{{\footnotesize {latex_text(note)}\par}}")
        lines.append(rf"\end{{{environment}}}")
        return "\n".join(lines) + "\n"

    def _latex_grid(self) -> list[str]:
        """Return the lines of a ``tabular``: heads, rules and rows."""
        side = "r" if self.kind == "numbers" else "l"
        heads = []
        for head in self.columns:
            name, _, detail = head.partition("\n")
            heads.append(_stacked(latex_text(name), detail, side))
        return [
            # Columns such as "lrrr"; `_FIT` opens a brace that the last line closes.
            _FIT + rf"\begin{{tabular}}{{l{side * (len(self.columns) - 1)}}}",
            r"\toprule",
            _latex_line(heads),
            r"\midrule",
            *[_latex_row(row, side) for row in self.rows],
            r"\bottomrule",
            r"\end{tabular}}",
        ]

    def to_csv(self) -> str:
        """Return CSV: unrounded numbers, intervals in separate columns, reasons as text.

        Text that a spreadsheet would read as a formula is escaped.
        """
        columns: list[list[float | str | None]] = []
        for index, head in enumerate(self.columns):
            cells = [row[index] for row in self.rows]
            name = " ".join(head.split())
            columns.append([name, *map(_plain_value, cells)])
            for end_name, ends in _interval_ends(cells).items():
                columns.append([f"{name}, {end_name}", *ends])
        if not columns:
            return "\n"
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        for row in zip(*columns, strict=True):
            # A spreadsheet would run text that begins with an equals sign.
            writer.writerow(map(_inert_value, row))
        return buffer.getvalue()

    def to_text(self, format: str) -> str:
        """Return the table in one of `TABLE_FORMATS`; a ValueError lists them."""
        name = check_choice("format", format, TABLE_FORMATS)
        return str(getattr(self, f"to_{name}")())

    def __len__(self) -> int:
        return len(self.rows)

    def __bool__(self) -> bool:
        return True  # a table without rows still has a note

    def __repr__(self) -> str:
        name = f" {self.name}" if self.name else ""
        size = f"{len(self)} rows × {len(self.columns)} columns"
        import pandas as pd

        heads = [" ".join(head.split()) for head in self.columns]
        texts = [tuple(cell.text for cell in row) for row in self.rows]
        return f"<Table{name}: {size}>\n{pd.DataFrame(texts, columns=heads)!r}"

    def _repr_html_(self) -> str:
        return styled(self.to_html() + self.links_to_files())

    def links_to_files(self) -> str:
        """Return links that save a named table; the files are embedded in the page."""
        if not (self.name and self.rows):
            return ""
        name = html.escape(self.name, quote=True)
        links = []
        for format, ending in TABLE_FORMATS.items():
            # The link has the whole file in it, percent-encoded, so it needs no server.
            content = quote(self.to_text(format), safe="")
            links.append(
                f'<a download="{name}{ending}" href="data:text/plain;charset=utf-8,{content}">'
                f"{_FORMAT_NAMES[format]}</a>"
            )
        return f'<p class="q-files">Save as {" · ".join(links)}</p>'


def _row_of_cells(
    row: Mapping[Any, object] | Iterable[object], heads: tuple[str, ...]
) -> tuple[Cell, ...]:
    if isinstance(row, Mapping):
        return tuple(as_cell(row[head]) for head in heads)
    return tuple(as_cell(value) for value in row)


def _first_line(head: str) -> str:
    return head.partition("\n")[0]


def _names_or_values(cells: Sequence[Cell]) -> Any:
    """Return the names of rows as text, also of a model that is called ``42``."""
    if any(cell.value is not None for cell in cells):
        return _values(cells)
    return [str(_plain_value(cell)) for cell in cells]


def _plain_value(cell: Cell) -> float | str:
    """Return a cell's number, else its text and detail."""
    if cell.value is not None:
        return cell.value
    words = " ".join(f"{cell.text} {cell.detail}".split())
    return words.replace("−", "-")


def _inert_value(value: float | str | None) -> float | str | None:
    """Return a value that no spreadsheet reads as a formula."""
    if isinstance(value, str):
        return inert_text(value)
    return value


def _interval_ends(cells: Sequence[Cell]) -> dict[str, list[float | None]]:
    """Return lower and upper ends of a column with intervals; empty for other columns."""
    if not any(cell.interval for cell in cells):
        return {}
    ends: dict[str, list[float | None]] = {"low": [], "high": []}
    for cell in cells:
        low, high = cell.interval or (None, None)
        ends["low"].append(low)
        ends["high"].append(high)
    return ends


def _values(cells: Sequence[Cell]) -> NDArray[np.float64] | list[str] | list[int | None]:
    """Return the numbers of a column (NaN if missing), or its texts if they are words."""
    if any(cell.value is not None for cell in cells):
        return np.array([cell.value for cell in cells], float)
    texts = [str(_plain_value(cell)) for cell in cells]
    if not all(_is_count_or_missing(text) for text in texts):
        return texts
    counts = [_count(text) for text in texts]
    # Only an array of floats has a value for what is missing: NaN.
    if None in counts:
        return np.array(counts, float)
    return counts


def _is_count_or_missing(text: str) -> bool:
    return text in _NO_NUMBERS or _COUNT.fullmatch(text) is not None


def _count(text: str) -> int | None:
    if text in _NO_NUMBERS:
        return None
    return int(text.replace(",", ""))


def _html_row(row: Sequence[Cell]) -> str:
    """Return a row; its first cell names it."""
    if not row:
        return "<tr></tr>"
    name_cell, *value_cells = row
    row_id = ""
    if name_cell.id:
        row_id = f' id="{html.escape(name_cell.id, quote=True)}"'
    cells = [f'<th scope="row"{_attributes(name_cell)}>{_html_cell(name_cell)}</th>']
    for cell in value_cells:
        cells.append(f"<td{_attributes(cell)}>{_html_cell(cell)}</td>")
    return f"<tr{row_id}>{''.join(cells)}</tr>"


def _attributes(cell: Cell) -> str:
    """Return the number by which the book's script sorts, or what makes a cell grey, if any."""
    if cell.is_published:
        return ' class="q-published"'
    if cell.value is None:
        return ""
    return f' data-sort="{cell.value!r}"'


def _html_cell(cell: Cell) -> str:
    text = escaped_text(cell.text)
    if cell.code and cell.text:
        text = _html_command(cell.text)
    if cell.link:
        text = f'<a href="{html.escape(cell.link, quote=True)}">{text}</a>'
    text = _HTML.highlighted(cell, text)
    if cell.detail:
        text += f'<span class="q-detail">{escaped_text(cell.detail)}</span>'
    return text


def _html_command(command: str) -> str:
    """Return a command that a page breaks between words, not at hyphens."""
    words = [f"<span>{html.escape(word)}</span>" for word in command.split(" ")]
    return f'<code class="q-command">{" ".join(words)}</code>'


def _markdown_cell(cell: Cell) -> str:
    return f"{_MARKDOWN.highlighted(cell)} {escaped(cell.detail)}".strip()


def _latex_row(row: Sequence[Cell], side: str) -> str:
    """Return a row, its name on the left, its values on ``side``, ``l`` or ``r``."""
    texts = []
    for index, cell in enumerate(row):
        cell_side = side if index else "l"
        texts.append(_stacked(_LATEX.highlighted(cell), cell.detail, cell_side))
    return _latex_line(texts)


def _latex_line(texts: Sequence[str]) -> str:
    return " & ".join(texts) + r" \\"


def _stacked(text: str, detail: str, side: str) -> str:
    """Stack the detail in smaller type under a text for LaTeX."""
    if not detail:
        return text
    inner = rf"{text}\\[-1pt]{{\scriptsize {latex_text(detail)}}}"
    return rf"\begin{{tabular}}[t]{{@{{}}{side}@{{}}}}{inner}\end{{tabular}}"


def transposed(table: Table, *, first: str) -> Table:
    """Return the transposed table, for a paper, where long tables fit better than wide ones.

    The first column, with the names of the columns, is called ``first``.
    """
    rows = []
    for index, head in enumerate(table.columns[1:], start=1):
        name, _, detail = head.partition("\n")
        rows.append((Cell(name, detail), *[row[index] for row in table.rows]))
    names = [row[0].text for row in table.rows]
    return replace(table, columns=(first, *names), rows=tuple(rows))


def with_ranks(rows: Sequence[Sequence[Cell]]) -> tuple[tuple[Cell, ...], ...]:
    """Mark the best and second-best values of each column except the first, including ties.

    Cells without a value are not ranked.
    """
    columns = list(zip(*rows, strict=True))
    ranked_columns = columns[:1]
    for column in columns[1:]:
        ranked_columns.append(_with_best_marked(column))
    return tuple(zip(*ranked_columns, strict=True))


def _with_best_marked(cells: Sequence[Cell]) -> tuple[Cell, ...]:
    values = {cell.value for cell in cells if cell.value is not None}
    descending = sorted(values, reverse=True)
    best, second_best = descending[:1], descending[1:2]  # empty without so many values
    return tuple(
        replace(cell, strong=cell.value in best, second=cell.value in second_best) for cell in cells
    )


_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True, repr=False)
class Conclusion:
    """One or two sentences with their numbers, identical as ``str`` and on a page."""

    text: str  # plain text; text between backticks is code on a page
    page: str = ""  # page with the numbers, relative to the page that shows it
    data: DataUsed = NO_SCORES  # of its scores
    how_sure: str = ""  # page that explains how sure it is, likewise
    strong: tuple[str, ...] = ()  # names in the text that are bold on a page

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        text = _CODE.sub(r"<code>\1</code>", escaped_text(self.text))
        text = _with_bold_names(text, self.strong)
        links = []
        if self.page:
            links.append(f'<a href="{html.escape(self.page, quote=True)}">The numbers</a>')
        if self.how_sure:
            address = html.escape(self.how_sure, quote=True)
            links.append(f'<a href="{address}">How sure is this?</a>')
        if links:
            # Only space between them: without its links, a sentence reads alike on every page.
            text += f" {'&emsp;'.join(links)}"
        return styled(f'<p class="q-conclusion"{data_attribute(self.data)}>{text}</p>')


def _with_bold_names(text: str, names: Iterable[str]) -> str:
    """Make names bold in the HTML of a sentence, each where it first stands as a whole.

    >>> _with_bold_names("bm25-plus is first, then bm25.", ["bm25", "bm25-plus"])
    '<strong>bm25-plus</strong> is first, then <strong>bm25</strong>.'
    """
    for name in names:
        whole_name = rf"(?<![\w+.>-]){re.escape(escaped_text(name))}(?![\w+<-])"
        text = re.sub(whole_name, lambda found: f"<strong>{found[0]}</strong>", text, count=1)
    return text


MANY = 12  # with more tasks, tables and figures are split by type and folded
MOST_MODELS = 30  # maximum number of models in a figure: the best


@dataclass(frozen=True, repr=False)
class Sections:
    """Titled tables and figures; on a page, all but the first are folded.

    In Markdown, each table has a heading, and figures are left out.
    """

    tables: tuple[tuple[str, Any], ...]  # each a `Table`, `Sections`, `TableChoice` or `Figure`
    about: str = ""  # shown above them
    folded: bool = False  # whether the first is folded, too

    def to_markdown(self) -> str:
        """Return the tables below headings, escaped."""
        parts = [escaped(self.about)] if self.about else []
        for title, view in self.tables:
            if isinstance(view, Table | Sections):
                parts += [f"### {escaped(title)}", view.to_markdown()]
        return "\n\n".join(parts)

    def __repr__(self) -> str:
        titles = ""
        for title, view in self.tables:
            titles += f"\n  {title}"
            if isinstance(view, Table):
                titles += f": {len(view)} rows"
        return f"<Sections: {len(self.tables)}>{titles}"

    def _repr_html_(self) -> str:
        parts = []
        if self.about:
            parts.append(f'<p class="q-note">{escaped_text(self.about)}</p>')
        for index, (title, view) in enumerate(self.tables):
            is_open = index == 0 and not self.folded
            state = " open" if is_open else ""
            parts.append(
                f'<details class="q-section"{state}><summary>{html.escape(title)}</summary>'
                f"{unstyled(view._repr_html_())}</details>"
            )
        return styled(f"<div>{''.join(parts)}</div>")


@dataclass(frozen=True, repr=False)
class TableChoice:
    """Variants of a table with the same caption and note; without scripts, the first is shown.

    The page contains all variants: the book's script only shows the selected one.
    """

    variants: Mapping[str, Table]  # by choice, the default first
    label: str  # name of the choice, such as ``Baseline``

    @property
    def _default(self) -> Table:
        return next(iter(self.variants.values()))

    def __repr__(self) -> str:
        return repr(self._default)

    def _repr_html_(self) -> str:
        texts = {name: table.to_html() for name, table in self.variants.items()}
        # JSON in a script is not parsed before it is chosen. It must have no "<": with
        # "<!--<script>" in a name, the element would not end.
        data = json.dumps(texts).replace("<", r"\u003c")
        script = (
            '<script type="application/json" class="q-variants" '
            f'data-label="{html.escape(self.label)}">{data}</script>'
        )
        # The script belongs inside the table's <div>.
        table_without_end = self._default.to_html().removesuffix("</div>")
        return styled(f"{table_without_end}{script}</div>{self._default.links_to_files()}")
