"""Output to the terminal, without foreign control characters and without secrets.

Names of tensors, labels, file names, settings and messages of other programs may contain escape
sequences that move the cursor, rewrite lines or fill the clipboard. They are shown as text, such as
``\\x1b``. Colours and progress bars of this program are kept.
"""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO, TypedDict, Unpack

import click

from qwen3nb.utils.secrets import Secrets, known_secrets

# ASCII and C1 controls, line separators, characters that reorder or hide text, and lone surrogates.
# Line breaks and tabs stay.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_MOVES = re.compile(r"(\r\n|\r|(?:\n|\x1b\[A)+)")
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
    # Texts and the moves between them take turns.
    first_text, *parts = _MOVES.split(text)
    safe = [visible(first_text)]
    for move, following_text in zip(parts[::2], parts[1::2], strict=True):
        if move == "\r" and not _BAR.match(following_text):
            move = visible(move)
        safe += [move, visible(following_text)]
    return "".join(safe)


class GuardedStream:
    """A text stream that escapes control characters and removes secrets.

    Cursor moves of progress bars are kept. It has no ``buffer``: bytes would pass unchecked.

    Attributes:
        coloured: the same stream for text with colours of this program's own.
    """

    def __init__(self, stream: TextIO, secrets: Secrets, *, colours: bool = False) -> None:
        self._stream = stream
        self._secrets = secrets
        self._colours = colours
        self.coloured = self
        if not colours:
            self.coloured = GuardedStream(stream, secrets, colours=True)

    def write(self, text: str) -> int:
        """Write text; return the number of its characters."""
        safe = self._secrets.without(text)
        if not self._colours:
            safe = visible_progress(safe)
        self._stream.write(safe)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self._stream, name)


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Guard standard output and error within the block; once, however often it is entered."""
    if isinstance(sys.stdout, GuardedStream):  # guarded by a block around this one
        yield
        return
    output, errors = sys.stdout, sys.stderr
    secrets = known_secrets()
    sys.stdout = GuardedStream(output, secrets)
    sys.stderr = GuardedStream(errors, secrets)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = output, errors


def coloured(stream: Any) -> Any:
    """Return a stream for coloured text whose control characters are escaped."""
    if isinstance(stream, GuardedStream):
        return stream.coloured
    return stream


class Style(TypedDict, total=False):
    """How text is shown; see `click.style`."""

    bold: bool
    dim: bool
    fg: str


def say(text: object, *, err: bool = False, **style: Unpack[Style]) -> None:
    """Print text in a style of `click.style`, with control characters escaped."""
    stream = sys.stdout
    if err:
        stream = sys.stderr
    click.secho(visible(str(text)), file=coloured(stream), **style)
