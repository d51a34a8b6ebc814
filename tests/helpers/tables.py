"""A table of strings that want to be more than text."""

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
    cell = Cell(text, text, std=text, mark=text, strong=True)
    rows = ((cell, Cell(text)), (Cell(text, second=True), cell))
    return Table((text, f"a\n{text}"), rows, text, name=text, caption=text, legend=((text, text),))
