"""A table of strings that want to be more than text."""

import itertools
import re

from helpers.html import HOSTILE
from qwen3nb.report.render.cell import Cell
from qwen3nb.report.render.table import Table

INJECTIONS = [
    *HOSTILE,
    r"\input{/etc/passwd}",
    r"\write18{id}",
    "100 % of a_b & c # d ~ e ^ f {g} \\",
    "[0.1, 0.2]",
    "*",
    "a -- b --- c -0.5",
    "名前 Δ ≤ ‖ é ß Ł ø 🙂 \u202e",
    "\x00\x1b[31m",
    "",
]


def hostile_table(text):
    cell = Cell(text, text, std=text, mark=text, id=text, link="x.html", strong=True)
    rows = ((cell, Cell(text)), (Cell(text, second=True), cell))
    return Table((text, f"a\n{text}"), rows, text, name=text, caption=text, legend=((text, text),))


# The commands that a table may hold.
LATEX = set(
    """
    begin end centering small footnotesize scriptsize setlength tabcolsep caption label par medskip
    toprule midrule bottomrule textbf underline textsubscript textsuperscript texttt resizebox ifdim
    width linewidth else fi textbackslash textasciicircum textasciitilde textless textgreater
    textbar textasciigrave textbullet dag ddag ldots pm times cdot leq geq approx rightarrow Delta
    mu circ
    """.split()  # noqa: SIM905 - a list of words reads better as lines
)


def is_balanced(latex):
    """Whether braces and environments are balanced, and no special character is bare."""
    ends = [re.findall(rf"\\{word}\{{(\w+\*?)\}}", latex) for word in ("begin", "end")]
    text = re.sub(r"\\.|\$[^$]*\$", "", latex, flags=re.DOTALL)
    depths = list(itertools.accumulate((c == "{") - (c == "}") for c in text))
    nested = sorted(ends[0]) == sorted(ends[1]) and depths[-1] == 0 <= min(depths)
    return nested and not set("%#~^") & {*text}
