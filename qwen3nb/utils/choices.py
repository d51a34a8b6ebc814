"""Choices: check that a value is a known one; split a list of names."""

from collections.abc import Iterable


def check_choice(kind: str, value: str, choices: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``choices``.

    >>> check_choice("tier", "smoke", ["smoke", "full"])
    'smoke'

    Raises:
        ValueError: it is not; lists the choices.
    """
    allowed = list(choices)
    if value not in allowed:
        raise ValueError(f"unknown {kind} {value!r}; choose one of: {', '.join(allowed)}")
    return value


def split_names(text: str) -> list[str]:
    """Split a comma-separated string; an empty one gives an empty list."""
    return [name.strip() for name in text.split(",") if name.strip()]
