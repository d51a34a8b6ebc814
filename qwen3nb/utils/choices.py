"""A word out of a list: one check, one message, wherever a choice is read."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["one_of"]


def one_of(kind: str, value: str, choices: Iterable[str]) -> str:
    """``value``, if it is one of ``choices``.

    >>> one_of("tier", "smoke", ["smoke", "full"])
    'smoke'

    Raises:
        ValueError: it is not; the message lists the choices.
    """
    listed = list(choices)
    if value not in listed:
        raise ValueError(f"unknown {kind} {value!r}; choose one of: {', '.join(listed)}")
    return value
