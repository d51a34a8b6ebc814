"""Grading on the terminal: a question, its document, and a key with Enter."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

import click

from qwen3nb.utils.terminal import say

if TYPE_CHECKING:
    from qwen3nb.evaluation.judging import Grading, Question

_KEYS = "0-3, s: cannot tell, u: undo, m: more, q: quit"
_LONGEST_TEXT = 2000  # characters of a document, until one asks for more
_FEWEST_COLUMNS = 20


def grade_here(grading: Grading) -> None:
    """Ask for grades until they decide, or the grader stops by q, Ctrl-C or Ctrl-D."""
    shown: Question | None = None
    while True:
        progress = grading.progress()
        question = progress.question
        if question is None:
            return
        if question != shown:
            verdict = progress.verdict
            say(f"\n{verdict.graded:,} of {verdict.pool:,} documents are graded", dim=True)
            _show(question)
            shown = question
        answer = _answer()
        if answer == "q":
            return
        if answer == "m":
            say(_wrapped(question.text[_LONGEST_TEXT:]))
        elif answer == "u":
            grading.undo()
            shown = None
        elif answer == "s":
            grading.grade(question.query, question.document, None)
        elif answer in ("0", "1", "2", "3"):
            grading.grade(question.query, question.document, int(answer))
        else:
            say(f"expected one of {_KEYS}; got {answer!r:.20}", fg="yellow")


def _show(question: Question) -> None:
    """Print a query and the beginning of its document."""
    say(_wrapped(question.query), bold=True)
    say(_wrapped(question.text[:_LONGEST_TEXT]))
    left = len(question.text) - _LONGEST_TEXT
    if left > 0:
        say(f"… and {left:,} characters; m shows them", dim=True)


def _wrapped(text: str) -> str:
    """Return a text that breaks between words at the width of the terminal."""
    columns = max(_FEWEST_COLUMNS, shutil.get_terminal_size().columns)
    lines = []
    for line in text.splitlines():
        lines.append(
            textwrap.fill(line, width=columns, replace_whitespace=False, break_long_words=False)
        )
    return "\n".join(lines)


def _answer() -> str:
    """Return what is typed; ``q`` for Ctrl-C, Ctrl-D and the end of the input."""
    try:
        return (
            str(click.prompt(_KEYS, prompt_suffix=" > ", default="", show_default=False))
            .strip()
            .lower()
        )
    except click.Abort:
        click.echo()
        if not sys.stdin.isatty():
            say(
                "The input has ended. Without a terminal, write a sheet (--sheet FILE) and read it "
                "back (--read FILE).",
                err=True,
            )
        return "q"
