"""Accessibility checks of built pages: what a parser can see without a browser."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

from qwen3nb.book.built_pages import built_pages

__all__ = ["accessibility_problems"]

_NAMES = ("aria-label", "aria-labelledby")


def accessibility_problems(html: Path) -> list[tuple[str, str]]:
    """Return page and problem of everything on built pages that fails a reader's technology.

    These are images without alternative text (a file name is none; a drawing hidden from screen
    readers needs none), ids used twice, column or row heads without text, and regions without a
    name.
    """
    problems = []
    for page in built_pages(html):
        checked = _Checker()
        checked.feed(page.read_text(encoding="utf-8"))
        name = str(page.relative_to(html))
        problems += [(name, problem) for problem in (*checked.problems, *checked.repeated())]
    return problems


class _Checker(HTMLParser):
    """Collects the problems of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self._ids: Counter[str] = Counter()
        self._head: str | None = None  # the text of the open table head

    def repeated(self) -> list[str]:
        """Return the ids that several elements have."""
        return [f"id {name!r} is used {n} times" for name, n in self._ids.items() if n > 1]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Check an element's id, alternative text and name; note a table head."""
        attributes = {name: value or "" for name, value in attrs}
        if attributes.get("id"):
            self._ids[attributes["id"]] += 1
        self.problems += _unnamed(tag, attributes)
        if tag == "th":
            self._head = "".join(attributes.get(name, "") for name in _NAMES)

    def handle_data(self, data: str) -> None:
        """Collect the text of a table head."""
        if self._head is not None:
            self._head += data

    def handle_endtag(self, tag: str) -> None:
        """Check that a table head has text."""
        if tag == "th":
            if not (self._head or "").strip():
                self.problems.append("a table head without text")
            self._head = None


def _unnamed(tag: str, attributes: Mapping[str, str]) -> list[str]:
    named = any(attributes.get(name, "").strip() for name in _NAMES)
    text, source = attributes.get("alt", "").strip(), attributes.get("src", "")
    if tag == "img" and (not text or text in (source, Path(source).name)):
        return [f"image without alternative text: {source}"]
    if tag == "svg" and attributes.get("role") == "img" and not named:
        return ["drawing without alternative text"]
    if attributes.get("role") == "region" and not named:
        return ["region without a name"]
    return []
