"""Parameters as words of a command line."""

from __future__ import annotations

from typing import Any

__all__ = ["option_words"]


def option_words(name: str, value: Any) -> list[str]:
    """Return the words that give a command a parameter.

    >>> option_words("max_length", 0), option_words("cache", False), option_words("prefix", "-")
    (['--max-length', '0'], ['--no-cache'], ['--prefix=-'])
    """
    option = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    text = str(value)
    # click would read a value that begins with a dash as an option.
    return [f"--{option}={text}"] if text.startswith("-") else [f"--{option}", text]
