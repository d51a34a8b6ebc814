"""Output to the terminal, without foreign control characters and without secrets.

Names of tensors, labels, file names, settings and messages of other programs may contain escape
sequences that move the cursor, rewrite lines or fill the clipboard. They are shown as text, such as
``\\x1b``. Colours and progress bars of this program are kept.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click

from qwen3nb.utils.secrets import Secrets, known_secrets

# ASCII and C1 controls, line separators, characters that reorder or hide text, and lone surrogates.
# Line breaks and tabs stay.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
# A progress bar, or the blanks that wipe one.
_BAR = re.compile(r"[^\r\n]*(?:\d%\||\d(?:it|s|B)/|\d+/\d+ \[|\[\d\d:\d\d|\?it/s|\?B/s)|[ \r]*$")


def uncoloured(text: str) -> str:
    """Return text without colours."""
    return _COLOUR.sub("", text)


def visible(text: str) -> str:
    r"""Return text with control characters escaped, except line breaks and tabs.

    >>> visible("a\x1b[31mb\u202ec")
    'a\\x1b[31mb\\u202ec'
    """
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def visible_progress(text: str) -> str:
    """Return the output of a program with control characters escaped.

    Carriage returns before progress bars, and cursor moves between nested bars, are kept.
    """
    parts = re.split(r"(\r\n|\r|(?:\n|\x1b\[A)+)", text)
    for index, part in enumerate(parts):
        moves = index % 2 and (part != "\r" or _BAR.match(parts[index + 1]))
        parts[index] = part if moves else visible(part)
    return "".join(parts)


class GuardedStream:
    """A text stream that escapes control characters and removes secrets.

    Cursor moves of progress bars are kept. It has no ``buffer``: bytes would pass unchecked.

    Attributes:
        coloured: the same stream for text with colours of this program's own.
    """

    def __init__(self, stream: TextIO, secrets: Secrets, *, colours: bool = False) -> None:
        self._below, self._secrets, self._colours = stream, secrets, colours
        self.coloured = self if colours else GuardedStream(stream, secrets, colours=True)

    def write(self, text: str) -> int:
        """Write text; return the number of its characters."""
        safe = self._secrets.without(text)
        self._below.write(safe if self._colours else visible_progress(safe))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self._below, name)


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Guard standard output and error within the block; once, however often it is entered."""
    if isinstance(sys.stdout, GuardedStream):
        yield
        return
    before, secrets = (sys.stdout, sys.stderr), known_secrets()
    guards: Any = tuple(GuardedStream(stream, secrets) for stream in before)
    sys.stdout, sys.stderr = guards
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def coloured(stream: Any) -> Any:
    """Return a stream for coloured text whose control characters are escaped."""
    return stream.coloured if isinstance(stream, GuardedStream) else stream


def say(text: object, *, err: bool = False, **style: Any) -> None:
    """Print text in a style of `click.style`, with control characters escaped."""
    stream = coloured(sys.stderr if err else sys.stdout)
    click.secho(visible(str(text)), file=stream, **style)
