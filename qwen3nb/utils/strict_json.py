"""Parse JSON and TOML of other programs strictly: ambiguous documents are errors."""

import json
import re
from collections.abc import Iterable
from typing import Any

MOST_BITS = 14_280  # of a number of about 4,300 digits, the most that Python writes
_OTHER_BASE = re.compile("0[xob]")


def refused(constant: str) -> None:
    """Refuse NaN and infinities, as ``parse_constant`` of a decoder."""
    raise ValueError(f"{constant} is not JSON")


def first_duplicate(names: Iterable[str]) -> str | None:
    """Return the first name that occurs twice, or None."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def parse_json(text: str, *, nan: bool = False) -> Any:
    """Parse ``text``; a key may occur once in an object.

    Args:
        text: a whole JSON document.
        nan: whether NaN and infinities are allowed, which some programs write.

    Raises:
        ValueError: not JSON, a key twice, nested too deeply, or an integer of more digits than
            Python converts (4,300).

    >>> parse_json('{"a": 1, "a": 2}')
    Traceback (most recent call last):
    ...
    ValueError: the key 'a' occurs twice in an object
    """
    decoder = _STRICT
    if nan:
        decoder = _LAX
    try:
        return decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse ``text``, which may begin with a byte order mark.

    Raises:
        ValueError: not TOML, nested too deeply, or an integer of too many digits.
    """
    import tomllib

    try:
        content = tomllib.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # Of decimal digits, Python itself limits the number.
    if _OTHER_BASE.search(text):
        _check_numbers(content)
    return content


def _check_numbers(content: object) -> None:
    """Raise ValueError if an integer in a value has more digits than Python writes."""
    pending = [content]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, int) and value.bit_length() > MOST_BITS:
            raise ValueError("a number of too many digits")


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    value = dict(pairs)
    if len(value) < len(pairs):
        duplicate = first_duplicate(name for name, _ in pairs)
        raise ValueError(f"the key {duplicate!r:.60} occurs twice in an object")
    return value


# Created once: `json.loads` creates a decoder per call with options, which takes as long as parsing
# a short document.
_STRICT = json.JSONDecoder(object_pairs_hook=_without_duplicates, parse_constant=refused)
_LAX = json.JSONDecoder(object_pairs_hook=_without_duplicates)
