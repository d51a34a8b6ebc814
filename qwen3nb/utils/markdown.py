"""Plain Markdown and strict JSON of results.

Names of systems, tasks and queries come from other people's files: whatever means
something in Markdown or HTML is escaped.
"""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = [
    "escaped",
    "interval_text",
    "json_text",
    "markdown_table",
    "number_text",
    "p_value_text",
    "percent_text",
]

SMALLEST_P = 0.001  # smaller p-values are shown as a bound: the draws cannot resolve them


def escaped(text: str) -> str:
    """``text`` on one line, with everything escaped that Markdown or HTML would read.

    >>> escaped("a|b <i>")
    'a\\\\|b &lt;i&gt;'
    """
    flat = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`*_{}\[\]#!|$~])", r"\\\1", flat)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; every cell is escaped."""
    lines = ["| " + " | ".join(map(escaped, columns)) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(map(escaped, row)) + " |" for row in rows]
    return "\n".join(lines)


def json_text(value: Any) -> str:
    """A dataclass, or what is made of them, as strict JSON.

    Raises:
        ValueError: a NaN or infinity anywhere in ``value``.
    """
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]
    return json.dumps(plain, allow_nan=False, indent=1, default=_plain)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def number_text(value: float | None, *, sign: bool = False, digits: int = 3) -> str:
    """A number, or a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def p_value_text(value: float | None, *, relation: bool = False) -> str:
    """A p-value with four decimals, a bound where it is small, or a dash where there is none.

    Args:
        value: the p-value.
        relation: whether ``=`` precedes a value that is no bound.

    >>> p_value_text(0.31366), p_value_text(1 / 10_001), p_value_text(0.2, relation=True)
    ('0.3137', '<0.001', '= 0.2000')
    """
    if value is None:
        return "–"
    if value < SMALLEST_P:
        return f"< {SMALLEST_P}" if relation else f"<{SMALLEST_P}"
    return f"= {value:.4f}" if relation else f"{value:.4f}"


def percent_text(value: float | None, *, sign: bool = True) -> str:
    """A share as a percentage with two decimals, or a dash.

    >>> percent_text(0.0213)
    '+2.13 %'
    """
    if value is None:
        return "–"
    return f"{100 * value:+.2f} %" if sign else f"{100 * value:.2f} %"


def interval_text(
    interval: tuple[float, float] | None, *, percent: bool = False, sign: bool = True
) -> str:
    """Ends of an interval, or a dash where there is none."""
    if interval is None:
        return "–"
    show = percent_text if percent else number_text
    return "[" + ", ".join(show(end, sign=sign) for end in interval) + "]"
