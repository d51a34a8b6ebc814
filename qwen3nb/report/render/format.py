"""Task names, effects and counts in words, and texts on one line."""

from __future__ import annotations

import re

from qwen3nb.metrics.intervals import Interval
from qwen3nb.utils.format import interval_text, p_value_text


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


def effect_text(
    difference: float, interval: Interval | None, p_value: float | None = None, *, absent: str = ""
) -> str:
    """Return a difference with its interval, or what is ``absent``, and its p-value if given.

    >>> effect_text(0.05, (0.04, 0.06), 0.0004)
    '+0.050 [+0.040, +0.060], p < 0.001'
    """
    text = f"{difference:+.3f} {interval_text(interval, absent=absent)}".strip()
    return text if p_value is None else f"{text}, p {p_value_text(p_value, relation=True)}"


def plural(count: int, noun: str) -> str:
    """Return a number of things: ``1 seed``, ``2 seeds``."""
    return f"{count} {noun}{'s' * (count != 1)}"


def not_shown(count: int) -> str:
    """Return the sentence that says how many models a figure or table leaves out, if any.

    >>> not_shown(20)
    ' Only the best models are shown; not shown: 20.'
    """
    return f" Only the best models are shown; not shown: {count}." if count > 0 else ""
