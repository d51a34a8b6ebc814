"""Escape text and write tables in Markdown.

Names of systems, tasks and queries come from files of unknown origin: Markdown and HTML
syntax in them is escaped.
"""

import html
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

# What Markdown and MyST read anywhere, and what they read at the start of a line only:
# lists, block breaks, targets, fences, comments. A number keeps its sign.
_SPECIAL = re.compile(r"([\\`*_{}\[\]#!|$~]|(?<=\])\()")
_SPECIAL_FIRST = re.compile(r"^(\d+(?=[.)](?:\s|$))|(?=[(:%=]|[-+](?!\d)))")


def escaped(text: str) -> str:
    """Return ``text`` on one line, with Markdown and HTML syntax escaped.

    >>> escaped("a|b <i>")
    'a\\\\|b &lt;i&gt;'
    """
    flat = html.escape(" ".join(text.split()), quote=False)
    return _SPECIAL_FIRST.sub(r"\1\\", _SPECIAL.sub(r"\\\1", flat))


def code(text: str) -> str:
    """Return one line of code as Markdown, also for a cell of a table.

    >>> print(code("a | b"), code("`c`"))
    `a \\| b` `` `c` ``
    """
    runs = [len(run) for run in re.findall("`+", text)]
    fence, space = "`" * (1 + max(runs, default=0)), " " * bool(runs)
    return f"{fence}{space}{text}{space}{fence}".replace("|", r"\|")


def markdown_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], *, cell: Callable[[Any], str] = escaped
) -> str:
    """A Markdown table.

    Args:
        columns: names in the head; escaped here.
        rows: cells, as many per row as there are columns.
        cell: writes a cell as Markdown and escapes it; by default the cells are text.
    """
    lines = ["| " + " | ".join(map(escaped, columns)) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(map(cell, row)) + " |" for row in rows]
    return "\n".join(lines)
