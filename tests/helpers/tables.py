"""A table of strings that want to be more than text."""

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


def unbalanced(latex):
    """Return what is wrong with braces, environments and characters; empty if nothing."""
    depth, open_ = 0, []
    for item in re.findall(
        r"\\begin\{\w+\*?\}|\\end\{\w+\*?\}|\\.|[{}%#~^]|\$[^$]*\$", latex, re.S
    ):
        if item.startswith(r"\begin"):
            open_.append(item[7:-1])
        elif item.startswith(r"\end"):
            if not open_ or open_.pop() != item[5:-1]:
                return f"{item} ends nothing"
        elif item == "{":
            depth += 1
        elif item == "}":
            depth -= 1
        elif item in "%#~^":
            return f"bare {item}"
        if depth < 0:
            return "a brace closes nothing"
    return f"{depth} braces, {open_} open" if depth or open_ else ""
