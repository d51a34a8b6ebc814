"""Output to the terminal: text, never control characters or someone's secrets.

Names of tensors, labels, file names, settings and messages of other programs may hold escape
sequences that move the cursor, rewrite lines or fill the clipboard. They are shown as text, such as
``\\x1b``. Colours and progress bars are this program's own, and stay.
"""

import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

import click

from qwen3nb.utils.secrets import Secrets, known_secrets

# Controls of ASCII and of its extension, line separators, what reorders or hides text, and halves
# of surrogate pairs. Line breaks and tabs stay.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
# A progress bar, or the blanks that wipe one.
_BAR = re.compile(r"[^\r\n]*(?:\d%\||\d(?:it|s|B)/|\d+/\d+ \[|\[\d\d:\d\d|\?it/s|\?B/s)|[ \r]*$")


def uncoloured(text: str) -> str:
    """Return text without colours, which only decorate what a library prints."""
    return _COLOUR.sub("", text)


def visible(text: str) -> str:
    r"""Return text with its control characters written out, but for line breaks and tabs.

    >>> visible("a\x1b[31mb\u202ec")
    'a\\x1b[31mb\\u202ec'
    """
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def visible_progress(text: str) -> str:
    """Return the output of a program with its control characters written out.

    Returns of the carriage stay before progress bars, and so do moves between nested bars, since
    a later one replaces what they show.
    """
    parts = re.split(r"(\r\n|\r|(?:\n|\x1b\[A)+)", text)
    for index, part in enumerate(parts):
        moves = index % 2 and (part != "\r" or _BAR.match(parts[index + 1]))
        parts[index] = part if moves else visible(part)
    return "".join(parts)


class GuardedStream:
    """A stream of text that writes out control characters and removes secrets.

    Moves of progress bars stay. It has no ``buffer``: bytes would pass unseen.

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


@contextmanager
def traceback_here() -> Iterator[None]:
    """Print the traceback of an unexpected error within the block, and exit with 1 behind it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a mistake of this program, shown whole
        traceback.print_exception(error)
        sys.exit(1)


def coloured(stream: Any) -> Any:
    """Return a stream for text that has colours and whose control characters are written out."""
    return stream.coloured if isinstance(stream, GuardedStream) else stream


def say(text: object, *, err: bool = False, **style: Any) -> None:
    """Print text in a style of `click.style`, with its control characters written out."""
    stream = coloured(sys.stderr if err else sys.stdout)
    click.secho(visible(str(text)), file=stream, **style)
