"""Format results as Markdown and strict JSON.

Names of systems, tasks and queries come from foreign files: everything that has a meaning
in Markdown or HTML is escaped.
"""

from __future__ import annotations

import dataclasses
import html
import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["escaped", "interval_text", "json_text", "markdown_table", "number_text", "percent_text"]


def escaped(text: str) -> str:
    """Return ``text`` on one line, with Markdown and HTML syntax escaped.

    >>> escaped("a|b <i>")
    'a\\\\|b &lt;i&gt;'
    """
    flat = html.escape(" ".join(text.split()), quote=False)
    return re.sub(r"([\\`*_{}\[\]#!|$~])", r"\\\1", flat)


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a Markdown table; every cell is escaped."""
    lines = ["| " + " | ".join(map(escaped, columns)) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(map(escaped, row)) + " |" for row in rows]
    return "\n".join(lines)


def json_text(value: Any) -> str:
    """Serialise dataclasses, or containers of them, as strict JSON.

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
    """Format a number, or a dash for None."""
    if value is None:
        return "–"
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def percent_text(value: float | None, *, sign: bool = True) -> str:
    """Format a share as a percentage with two decimals, or a dash for None.

    >>> percent_text(0.0213)
    '+2.13 %'
    """
    if value is None:
        return "–"
    return f"{100 * value:+.2f} %" if sign else f"{100 * value:.2f} %"


def interval_text(
    interval: tuple[float, float] | None, *, percent: bool = False, sign: bool = True
) -> str:
    """Format an interval, or a dash for None."""
    if interval is None:
        return "–"
    show = percent_text if percent else number_text
    return "[" + ", ".join(show(end, sign=sign) for end in interval) + "]"
