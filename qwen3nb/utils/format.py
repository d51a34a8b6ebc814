"""Numbers, p-values, intervals, tables and dataclasses as text; sizes from text."""

import dataclasses
import html
import json
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
_ROUNDING = 1e-9
SMALLEST_P = 0.001  # smaller p-values are shown as a bound: the draws cannot resolve them
_NEGATIVE = re.compile(r"(?<![\w-])-(?=\.?\d)")
_PERCENT = re.compile(r"(?<=\d) (?=%)")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # how a spreadsheet formula may start
_NUMBER = re.compile(r"[+-]?[\d.,]+(e[+-]?\d+)?")
_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?) ?(?P<unit>[KMGT]?)B?", re.IGNORECASE)


def inert_text(text: str) -> str:
    """Put an apostrophe before text that a spreadsheet would read as a formula, except numbers.

    >>> inert_text("=1+1"), inert_text("-0.5"), inert_text("a=1")
    ("'=1+1", '-0.5', 'a=1')
    """
    if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text):
        return f"'{text}"
    return text


def without_apostrophe(text: str) -> str:
    """Return text as it was before `inert_text`.

    >>> without_apostrophe("'=1+1"), without_apostrophe("'tis")
    ('=1+1', "'tis")
    """
    if text.startswith("'") and text[1:].startswith(_FORMULA):
        return text[1:]
    return text


def json_text(value: object) -> str:
    """Serialise dataclasses, or containers of them, as strict JSON.

    Raises:
        ValueError: a NaN or infinity anywhere in ``value``.
    """
    return json.dumps(value, allow_nan=False, indent=1, default=dataclasses.asdict)


def typeset(text: str) -> str:
    """Return text as typeset on pages: with minus signs, and each per cent sign by its number.

    >>> typeset("checkpoint-400: -0.020 [-0.1, 0.25], 2026-11-20")
    'checkpoint-400: −0.020 [−0.1, 0.25], 2026-11-20'
    >>> typeset("95 % intervals of torch 0.22.1 and Qwen3-0.66B")
    '95\\xa0% intervals of torch 0.22.1 and Qwen3-0.66B'
    """
    return _PERCENT.sub("\u00a0", _NEGATIVE.sub("−", text))


def number_text(value: float | None, *, sign: bool = False, digits: int = 3) -> str:
    """Format a number, or a dash for None; with a ``sign``, only 0 is shown as 0."""
    if value is None:
        return "–"
    if not sign:
        return f"{value:.{digits}f}"
    return format(value + 0.0, signed_format(digits, [value]))  # without the sign of -0.0


def enough_digits(values: Iterable[float], *, digits: int = 3) -> int:
    """Return how many decimals show no value as 0 that is not 0; at least ``digits``.

    Values below 1e-9, which rounding leaves, count as 0.

    >>> enough_digits([0.0004, 0.044]), enough_digits([0.0, 0.25]), enough_digits([1e-17])
    (4, 3, 3)
    """
    for value in values:
        while abs(value) > _ROUNDING and float(f"{value:.{digits}f}") == 0:
            digits += 1
    return digits


def p_value_text(value: float | None, *, relation: bool = False) -> str:
    """Format a p-value with four decimals, as a bound if it is small, or as a dash if None.

    Args:
        value: the p-value.
        relation: whether ``=`` precedes a value that is not a bound.

    >>> p_value_text(0.31366), p_value_text(1 / 10_001), p_value_text(0.2, relation=True)
    ('0.3137', '<0.001', '= 0.2000')
    """
    if value is None:
        return "–"
    if value < SMALLEST_P:
        if relation:
            return f"< {SMALLEST_P}"
        return f"<{SMALLEST_P}"
    if relation:
        return f"= {value:.4f}"
    return f"{value:.4f}"


def signed_format(digits: int, values: Iterable[float]) -> str:
    """Return the format of differences with ``digits`` decimals, or more (`enough_digits`)."""
    return f"+.{enough_digits(values, digits=digits)}f"


def duration_text(seconds: float | None) -> str:
    """Format a duration in milliseconds or seconds, or a dash for None.

    >>> duration_text(0.00031), duration_text(0.0052), duration_text(0.31), duration_text(12.34)
    ('0.31 ms', '5.2 ms', '310 ms', '12.3 s')
    """
    if seconds is None:
        return "–"
    milliseconds = 1000 * seconds
    if seconds < 1e-3:
        return f"{milliseconds:.2f} ms"
    if seconds < 1e-2:
        return f"{milliseconds:.1f} ms"
    if seconds < 1:
        return f"{milliseconds:.0f} ms"
    return f"{seconds:.1f} s"


def interval_text(
    interval: tuple[float, float] | None,
    *,
    sign: bool = True,
    digits: int = 3,
    absent: str = "–",
) -> str:
    """Format the ends of an interval, or return ``absent`` for None.

    An end that would be rounded to 0 is shown by its side, as it decides whether 0 is inside.

    >>> interval_text((-0.1, 0.25)), interval_text((0.0004, 0.25))
    ('[-0.100, +0.250]', '[>0, +0.250]')
    """
    if interval is None:
        return absent
    spec = f".{digits}f"
    if sign:
        spec = f"+{spec}"
    return ends_text(interval, spec)


def ends_text(interval: tuple[float, float], spec: str) -> str:
    """Format the ends of an interval by ``spec``, those that are rounded to 0 by their side."""
    low, high = interval
    return f"[{_end_text(low, spec)}, {_end_text(high, spec)}]"


def _end_text(end: float, spec: str) -> str:
    text = format(end + 0.0, spec)
    is_rounded_away = abs(end) > _ROUNDING and float(text) == 0
    if not is_rounded_away:
        return text
    if end > 0:
        return ">0"
    return "<0"


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Format a table, its first column left-aligned, the others right-aligned."""
    if not rows:
        return []
    columns = zip(*rows, strict=True)
    # The first column has labels, the others have numbers.
    first_width, *widths = [max(map(len, column)) for column in columns]
    lines: list[str] = []
    for label, *cells in rows:
        padded = [label.ljust(first_width)]
        for cell, width in zip(cells, widths, strict=True):
            padded.append(cell.rjust(width))
        lines.append("  ".join(padded))
    return lines


def option_words(name: str, value: object) -> list[str]:
    """Return the command-line arguments that set a parameter.

    >>> option_words("max_length", 0), option_words("cache", False), option_words("prefix", "-")
    (['--max-length', '0'], ['--no-cache'], ['--prefix=-'])
    """
    option = name.replace("_", "-")
    if value is True:
        return [f"--{option}"]
    if value is False:
        return [f"--no-{option}"]
    text = str(value)
    if text.startswith("-"):  # which click would read as an option
        return [f"--{option}={text}"]
    return [f"--{option}", text]


def parse_size(text: str) -> int:
    """Return the bytes of a size.

    >>> parse_size("1.5GB")
    1500000000

    Raises:
        ValueError: not a number with B, KB, MB, GB or TB.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected a size such as 500MB, 50GB or 1.5TB; got {text!r:.60}")
    size = float(match["number"]) * _UNITS[match["unit"].upper()]
    if math.isinf(size):
        raise ValueError(f"expected a size such as 500MB, 50GB or 1.5TB; {text!r:.60} is too large")
    return int(size)


# Syntax of Markdown and MyST anywhere, and at the start of a line only: lists, block breaks,
# targets, fences, comments. A number keeps its sign.
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
    fence = "`"
    while fence in text:
        fence += "`"
    if "`" in text:
        text = f" {text} "
    return f"{fence}{text}{fence}".replace("|", r"\|")


def markdown_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[T]],
    *,
    cell: Callable[[T], str] = escaped,  # type: ignore[assignment]
) -> str:
    """Return a Markdown table.

    Args:
        columns: names in the head; escaped here.
        rows: cells, as many per row as there are columns.
        cell: writes a cell as Markdown and escapes it; by default the cells are text.
    """
    lines = [_row(map(escaped, columns)), "|" + "---|" * len(columns)]
    lines += [_row(map(cell, row)) for row in rows]
    return "\n".join(lines)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


_NUMBER_WORDS = (
    "no",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)


def names_in_words(names: Sequence[str]) -> str:
    """Return names as a list in a sentence.

    >>> names_in_words(["SciFact", "NFCorpus", "FiQA2018"]), names_in_words(["SciFact"])
    ('SciFact, NFCorpus and FiQA2018', 'SciFact')
    """
    *leading_names, last_name = names
    if not leading_names:
        return last_name
    return f"{', '.join(leading_names)} and {last_name}"


def first_names(names: Sequence[str], *, most: int = 3, separator: str = ", ") -> str:
    """Name the first few, and count the others.

    >>> first_names(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    text = separator.join(names[:most])
    if len(names) > most:
        text += f" and {len(names) - most} more"
    return text


def number_word(count: int) -> str:
    """Return a count as a word up to twelve, else in digits.

    >>> number_word(2), number_word(1200)
    ('two', '1,200')
    """
    if 0 <= count < len(_NUMBER_WORDS):
        return _NUMBER_WORDS[count]
    return f"{count:,}"


def by_number(text: str) -> list[str]:
    """Return a sort key that puts ``checkpoint-900`` before ``checkpoint-1000``.

    >>> sorted(["layers.10", "layers.2"], key=by_number)
    ['layers.2', 'layers.10']
    """
    texts_and_numbers = re.split(r"(\d+)", text)
    return [part.zfill(20) if part.isdigit() else part for part in texts_and_numbers]


def short_names(paths: Sequence[str]) -> list[str]:
    """Return a name per path: its last part, with more of it where two are equal.

    >>> short_names(["runs/a/checkpoint-1", "runs/a/checkpoint-2"])
    ['checkpoint-1', 'checkpoint-2']
    >>> short_names(["runs/a/checkpoint-1", "runs/b/checkpoint-1"])
    ['a/checkpoint-1', 'b/checkpoint-1']
    """
    longest = max(len(Path(path).parts) for path in paths)
    for count in range(1, longest + 1):
        names = ["/".join(Path(path).parts[-count:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return list(paths)
