"""Find the line of a key in a TOML file, which `tomllib` does not report.

The text is split into statements (a header, or a key with its value, which may span
lines), and `tomllib` parses each of them. Strings and comments are tokens of their own, so
that nothing inside them looks like a header.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["KeyPath", "deep_key_line", "key_lines", "line_of"]

KeyPath = tuple[str | int, ...]
_LONG = 200  # lines of a statement
_DEEP = 32  # dots of a key
_SEPARATOR = re.compile(r"[,=]")
_TOKEN = re.compile(
    r'"""(?:(?:\\.|[^\\])*?"{3,5})?'
    r"|'''(?:.*?'{3,5})?"
    r'|"(?:(?:\\.|[^"\\\n])*")?'
    r"|'(?:[^'\n]*')?"
    r"|#[^\n]*"
    r"|\n"
    r"|[\[\]{}]"
    r"|[^\"'#\n\[\]{}]+",
    re.DOTALL,
)


# Quotes that nothing closes: no TOML. To search on would look for their ends again and again.
_UNCLOSED = ('"', "'", '"""', "'''")


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the first line of every key, table and array element of valid TOML.

    >>> key_lines('[[q]]\\nid = "a"\\n')
    {('q',): 1, ('q', 0): 1, ('q', 0, 'id'): 2}
    """
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, statement in _statements(text):
        value = tomllib.loads(statement)
        if statement.lstrip().startswith("["):
            names, several = _header(value)
            table = _opened(names, counts, several=several)
            for depth in range(1, len(table) + 1):
                lines.setdefault(table[:depth], number)
        else:
            parts = statement.split("\n")
            for path in _paths(value, table):
                lines.setdefault(path, number + _offset(parts, path[-1]))
    return lines


def line_of(path: KeyPath, lines: Mapping[KeyPath, int]) -> int:
    """Return the line of ``path``, or of its nearest known ancestor; 1 if there is none."""
    for depth in range(len(path), 0, -1):
        if path[:depth] in lines:
            return lines[path[:depth]]
    return 1


def deep_key_line(text: str) -> int:
    """Return the line of the first key with more than 32 dots, or 0 if there is none.

    Check this before parsing: the time `tomllib` takes grows with the square of the dots.
    """
    dots, line = 0, 1
    for match in _TOKEN.finditer(text):
        piece = match[0]
        if piece in _UNCLOSED:
            return 0
        if piece[0] not in "\"'#":
            parts = _SEPARATOR.split(piece)
            most = dots + parts[0].count(".")
            if max([most, *(part.count(".") for part in parts[1:])]) > _DEEP:
                return line
            dots = parts[-1].count(".") if len(parts) > 1 else most
            dots = 0 if piece in "\n[]{}" else dots
        line += piece.count("\n")
    return 0


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the first line and the text of each statement."""
    line, depth, begun = 1, 0, 0
    parts: list[str] = []
    for match in _TOKEN.finditer(text + "\n"):
        piece = match[0]
        if piece == "\n" and depth == 0:
            if begun:
                yield begun, "".join(parts)
            parts, begun = [], 0
        elif not piece.startswith("#"):
            begun = begun or (line if piece.strip() else 0)
            parts.append(piece)
            depth += (piece in "[{") - (piece in "]}")
        line += piece.count("\n")


def _header(value: dict[str, Any]) -> tuple[list[str], bool]:
    """Return the names of a header, and whether it opens an element of an array of tables."""
    names: list[str] = []
    inner: Any = value
    while isinstance(inner, dict) and inner:
        name, inner = next(iter(inner.items()))
        names.append(name)
    return names, isinstance(inner, list)


def _opened(names: list[str], counts: dict[KeyPath, int], *, several: bool) -> KeyPath:
    """Return the path that a header opens; arrays of tables continue at their last element."""
    path: KeyPath = ()
    for depth, name in enumerate(names, start=1):
        path = (*path, name)
        if several and depth == len(names):
            counts[path] = counts.get(path, 0) + 1
        if path in counts:
            path = (*path, counts[path] - 1)
    return path


def _paths(value: Any, base: KeyPath) -> Iterator[KeyPath]:
    """Yield the path of every key in a value, below ``base``."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield (*base, name)
            yield from _paths(inner, (*base, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, (*base, index))


def _offset(lines: list[str], key: str | int) -> int:
    """Return the offset of the first line of a statement that contains ``key``, or 0.

    Very long statements are not searched: their first line is close enough.
    """
    if not 1 < len(lines) <= _LONG:
        return 0
    return next((index for index, line in enumerate(lines) if str(key) in line), 0)
