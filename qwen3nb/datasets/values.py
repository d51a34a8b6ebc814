"""Check single values of foreign data: ids, numbers and texts.

The rules are a table of the guide, `book/guide/what-is-refused.md`.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from qwen3nb.datasets.rows import DataError

__all__ = ["checked_id", "finite_number", "has_control_characters", "number_in_text", "scored_pair"]

# Control characters, line and paragraph separators, and lone surrogates.
_UNFIT = re.compile("[\0-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_CONTROL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # tabs and line ends are text


def checked_id(value: Any, *, where: str) -> str:
    r"""Return an id: text that is not blank, without control characters and lone surrogates.

    Raises:
        DataError: it is none; the message starts with ``where``.

    >>> checked_id("d\0", where="corpus.jsonl:7")
    Traceback (most recent call last):
    ...
    qwen3nb.datasets.rows.DataError: corpus.jsonl:7: the id 'd\x00' has unprintable characters
    """
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where}: the id is {value!r:.60}; expected text that is not blank")
    if not value.isprintable() and _UNFIT.search(value):
        raise DataError(f"{where}: the id {value!r:.60} has unprintable characters")
    return value


def finite_number(value: Any) -> float | None:
    """Return a number of JSON as a float; None for anything else, NaN and infinities.

    >>> finite_number(2), finite_number("2"), finite_number(True), finite_number(10**400)
    (2.0, None, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def number_in_text(text: str) -> float | None:
    """Return the number that ``text`` is; None for anything else, NaN and infinities.

    Python also reads ``1_0`` as 10 and digits of other scripts, which no other program writes
    on purpose.

    >>> number_in_text("1e-3"), number_in_text("1_0"), number_in_text("nan")
    (0.001, None, None)
    """
    if not text.isascii() or "_" in text:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def has_control_characters(text: str) -> bool:
    """Return whether ``text`` has control characters other than tabs and line ends."""
    return _CONTROL.search(text) is not None


def scored_pair(
    file: Path, number: int, first: str, second: str, gold: Any, *, of: str
) -> tuple[str, str, float]:
    """Return two texts of line ``number`` and their score; ``of`` says what they are.

    Raises:
        DataError: the score is no finite number, or a text is empty or has control characters.
    """
    score = number_in_text(gold) if isinstance(gold, str) else finite_number(gold)
    if score is None:
        raise DataError(f"{file}:{number}: expected a number as score; got {gold!r:.60}")
    if not first.strip() or not second.strip():
        raise DataError(f"{file}:{number}: expected two {of}; got {first!r:.60}, {second!r:.60}")
    if has_control_characters(first + second):
        raise DataError(f"{file}:{number}: control characters in one of two {of}")
    return first, second, score
