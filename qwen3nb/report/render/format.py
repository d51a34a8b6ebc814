"""Short task names, and texts on one line."""

from __future__ import annotations

import re


def short_task(name: str) -> str:
    """Shorten a task's name for a narrow column: ``PyDocsSampleRetrieval`` to ``Retrieval``."""
    return re.sub(r"^PyDocs(Sample)?(?=.)", "", name)


def cut(text: str, longest: int) -> str:
    """Return a text on one line, cut with an ellipsis if it is longer.

    >>> cut("Sort a list  in reverse order.", 12)
    'Sort a list…'
    """
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def not_shown(count: int) -> str:
    """Return the sentence that says how many models a figure or table leaves out, if any.

    >>> not_shown(20)
    ' Only the best models are shown, 20 others are not.'
    """
    others = "another is" if count == 1 else f"{count} others are"
    return f" Only the best models are shown, {others} not." if count > 0 else ""
