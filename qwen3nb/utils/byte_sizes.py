"""Sizes as people write them."""

import re

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_SIZE = re.compile(r"(?P<number>[0-9]+(\.[0-9]+)?) ?(?P<unit>[KMGT]?)B?", re.IGNORECASE)


def parse_size(text: str) -> int:
    """Return the bytes of a size.

    >>> parse_size("1.5GB")
    1500000000

    Raises:
        ValueError: not a number with B, KB, MB, GB or TB.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected a size such as 500MB, 50GB or 1.5TB; got {text!r}")
    return int(float(match["number"]) * _UNITS[match["unit"].upper()])
