r"""Tables as LaTeX: booktabs rules, best in bold, second best underlined, every value escaped.

The output compiles with ``\usepackage{booktabs,graphicx}`` and no other package, in pdfLaTeX of
2020 and later, where UTF-8 is the input encoding. A table wider than its column is scaled down.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from qwen3nb.report.render.cell import Cell, Markup, marked
from qwen3nb.utils.format import minus_signs

__all__ = ["latex_table", "latex_text"]

# Brackets and stars have a meaning after the end of a row; quotes and < > print as other
# characters in LaTeX's default font encoding.
_PRINTED = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "#": r"\#", "$": r"\$", "%": r"\%",
    "&": r"\&", "_": r"\_", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", '"': "''",
    "`": r"\textasciigrave{}", "[": "{[}", "]": "{]}", "*": "{*}",
    "–": "--", "—": "---", "−": "$-$", "±": r"$\pm$", "×": r"$\times$", "·": r"$\cdot$",
    "≤": r"$\leq$", "≥": r"$\geq$", "≈": r"$\approx$", "→": r"$\rightarrow$",
    "Δ": r"$\Delta$", "‖": r"$\|$", "†": r"\dag{}", "‡": r"\ddag{}", "…": r"\ldots{}",
    "°": r"$^{\circ}$", "²": r"$^{2}$", "µ": r"$\mu$", "•": r"\textbullet{}",
    "‘": "`", "’": "'", "“": "``", "”": "''",
}  # fmt: skip
_MARKUP = Markup(
    r"\textbf{{{}}}", r"\underline{{{}}}", r"\textsubscript{{{}}}", r"\textsuperscript{{{}}}"
)
_NARROW = 4  # table columns that fit one column of a paper; wider tables span both
_FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{"
_SMALLER = 6  # table columns that fit the page in the font of captions


def latex_text(text: str) -> str:
    """Escape ``text`` for LaTeX; characters missing from its default font become code points.

    >>> latex_text("50 % of $x_1$")
    '50 \\\\% of \\\\$x\\\\_1\\\\$'
    """
    line = minus_signs(" ".join(text.split()))
    pairs = zip(" " + line, line, strict=False)
    return "".join("{}-" if before == char == "-" else _printed(char) for before, char in pairs)


def _printed(char: str) -> str:
    if char in _PRINTED:
        return _PRINTED[char]
    if " " <= char <= "~":
        return char
    base = unicodedata.normalize("NFD", char)[0]
    # The default font composes accented letters; it lacks other characters.
    if "À" <= char <= "ž" and base != char and base.isascii():
        return char
    return rf"\texttt{{U+{ord(char):04X}}}"


def latex_table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    kind: str,
    name: str,
    caption: str,
    notes: Sequence[str],
) -> str:
    """Return a ``table``, or a ``table*`` if it is wide, with caption, label and notes."""
    first = "l"
    other = "r" if kind == "numbers" else "l"
    float_ = "table*" if len(columns) > _NARROW else "table"
    size = r"\footnotesize" if len(columns) > _SMALLER else r"\small"
    lines = [rf"\begin{{{float_}}}", r"\centering", size, r"\setlength{\tabcolsep}{3pt}"]
    if caption:
        lines.append(rf"\caption{{{latex_text(caption)}}}\par\medskip")
    if name:
        lines.append(rf"\label{{tab:{re.sub('[^A-Za-z0-9]+', '-', name)}}}")
    lines += [
        _FIT + rf"\begin{{tabular}}{{{first}{other * (len(columns) - 1)}}}",
        r"\toprule",
        " & ".join(_head(column, side=other) for column in columns) + r" \\",
        r"\midrule",
        *(" & ".join(_row(row, first=first, other=other)) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}}",
        *(rf"\par\medskip{{\footnotesize {latex_text(note)}\par}}" for note in notes),
        rf"\end{{{float_}}}",
    ]
    return "\n".join(lines) + "\n"


def _head(column: str, *, side: str) -> str:
    text, _, detail = column.partition("\n")
    return _stacked(latex_text(text), latex_text(detail), side=side)


def _row(cells: Sequence[Cell], *, first: str, other: str) -> list[str]:
    return [_cell(cell, side=other if index else first) for index, cell in enumerate(cells)]


def _cell(cell: Cell, *, side: str) -> str:
    text = marked(cell, latex_text(cell.text), escape=latex_text, markup=_MARKUP)
    return _stacked(text, latex_text(cell.detail), side=side)


def _stacked(text: str, detail: str, *, side: str) -> str:
    """Stack the detail in smaller type under the text."""
    if not detail:
        return text
    inner = rf"{text}\\[-1pt]{{\scriptsize {detail}}}"
    return rf"\begin{{tabular}}[t]{{@{{}}{side}@{{}}}}{inner}\end{{tabular}}"
