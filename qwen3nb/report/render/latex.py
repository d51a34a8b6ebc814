r"""Tables as LaTeX: booktabs, best in bold, second underlined, everything foreign escaped.

What is written compiles with ``\usepackage{booktabs}`` and nothing else, in pdfLaTeX of
2020 and later, where UTF-8 is the input encoding.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from qwen3nb.report.render.cell import Cell, Signs, marked

__all__ = ["latex_table", "latex_text"]

# Brackets and stars mean something after the end of a row; quotes and < > print as other
# signs in LaTeX's default type.
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
_SIGNS = Signs(
    r"\textbf{{{}}}", r"\underline{{{}}}", r"\textsubscript{{{}}}", r"\textsuperscript{{{}}}"
)
_NARROW = 4  # columns that fit one column of a paper; more go over both


def latex_text(text: str) -> str:
    """``text`` as LaTeX prints it literally; signs its default type lacks, by their number.

    >>> latex_text("50 % of $x_1$")
    '50 \\\\% of \\\\$x\\\\_1\\\\$'
    """
    line = " ".join(text.split())
    line = re.sub(r"(?<![\w-])-(?=\d)", "−", line)  # a number's sign is no hyphen
    signs = zip(" " + line, line, strict=False)
    return "".join("{}-" if before == char == "-" else _sign(char) for before, char in signs)


def _sign(char: str) -> str:
    if char in _PRINTED:
        return _PRINTED[char]
    if " " <= char <= "~":
        return char
    base = unicodedata.normalize("NFD", char)[0]
    # Letters with an accent are composed in the default type; others it does not have.
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
    """A ``table``, or a ``table*`` if it is wide, with caption, label and notes."""
    first = "l"
    other = "r" if kind == "numbers" else "l"
    float_ = "table*" if len(columns) > _NARROW else "table"
    lines = [rf"\begin{{{float_}}}", r"\centering", r"\small", r"\setlength{\tabcolsep}{4pt}"]
    if caption:
        lines.append(rf"\caption{{{latex_text(caption)}}}\par\medskip")
    if name:
        lines.append(rf"\label{{tab:{re.sub('[^A-Za-z0-9]+', '-', name)}}}")
    lines += [
        rf"\begin{{tabular}}{{{first}{other * (len(columns) - 1)}}}",
        r"\toprule",
        " & ".join(_head(column, side=other) for column in columns) + r" \\",
        r"\midrule",
        *(" & ".join(_cell(cell, side=other) for cell in row) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\medskip{{\footnotesize {latex_text(note)}\par}}" for note in notes),
        rf"\end{{{float_}}}",
    ]
    return "\n".join(lines) + "\n"


def _head(column: str, *, side: str) -> str:
    text, _, detail = column.partition("\n")
    return _stacked(latex_text(text), latex_text(detail), side=side)


def _cell(cell: Cell, *, side: str) -> str:
    text = marked(cell, latex_text(cell.text), escape=latex_text, signs=_SIGNS)
    return _stacked(text, latex_text(cell.detail), side=side)


def _stacked(text: str, detail: str, *, side: str) -> str:
    """The detail in smaller type under the text."""
    if not detail:
        return text
    inner = rf"{text}\\[-2pt]{{\tiny {detail}}}"
    return rf"\begin{{tabular}}[t]{{@{{}}{side}@{{}}}}{inner}\end{{tabular}}"
