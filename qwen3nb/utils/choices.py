"""Check that a value is one of the known choices."""

from collections.abc import Iterable


def one_of(kind: str, value: str, choices: Iterable[str]) -> str:
    """Return ``value`` if it is one of ``choices``.

    >>> one_of("tier", "smoke", ["smoke", "full"])
    'smoke'

    Raises:
        ValueError: it is not; lists the choices.
    """
    known = list(choices)
    if value not in known:
        raise ValueError(f"unknown {kind} {value!r}; choose one of: {', '.join(known)}")
    return value
